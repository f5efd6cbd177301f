//! Worker threads for independent jobs, a few at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs a job for each item on at most `threads` threads. Results are in the order of the items.
///
/// # Panics
/// If a job does.
pub(crate) fn map<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    job: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, job(item)));
        }
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(items.len())).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The same with one job for all items that share a key, which returns a result for each of them.
///
/// # Panics
/// If a job does.
pub(crate) fn map_groups<T: Sync, K: Ord, R: Send>(
    items: &[T],
    key: impl Fn(&T) -> K,
    threads: usize,
    job: impl Fn(&[&T]) -> Vec<R> + Sync,
) -> Vec<R> {
    let mut groups: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        groups.entry(key(item)).or_default().push(index);
    }
    let groups: Vec<Vec<usize>> = groups.into_values().collect();
    let results = map(&groups, threads, |group| {
        job(&group.iter().map(|&index| &items[index]).collect::<Vec<_>>())
    });
    let mut results: Vec<(usize, R)> =
        groups.into_iter().flatten().zip(results.into_iter().flatten()).collect();
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The number of threads that can run at the same time in this process.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        for threads in [0, 1, 3, 200] {
            assert_eq!(map(&items, threads, |item| item + 1), (1..=100).collect::<Vec<_>>());
        }
        assert_eq!(map(&[], 4, |item: &u32| *item), [0; 0]);
    }

    #[test]
    fn the_items_of_a_key_are_one_job() {
        let items = ["b1", "a1", "b2", "c1", "a2"];
        let jobs = AtomicUsize::new(0);
        let results = map_groups(
            &items,
            |item| item.chars().next(),
            2,
            |group| {
                jobs.fetch_add(1, Ordering::Relaxed);
                group.iter().map(|item| format!("{item} of {}", group.len())).collect()
            },
        );
        assert_eq!(results, ["b1 of 2", "a1 of 2", "b2 of 2", "c1 of 1", "a2 of 2"]);
        assert_eq!(jobs.into_inner(), 3);
    }
}
