//! What the calibrated servers spend CPU time on.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time of this thread, in nanoseconds.
pub(super) fn thread_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// Arithmetic that takes the same time each round: each round waits for the one before it, and none
/// touches memory, which some processors learn to skip after a while. The first round waits for
/// `x`, the result of earlier rounds, so that a processor cannot overlap the two.
pub(super) fn work(x: u64, rounds: u64) -> u64 {
    let mut x = std::hint::black_box(x);
    for _ in 0..rounds {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(x >> 33);
    }
    std::hint::black_box(x)
}

/// Takes this much of the thread's CPU time.
pub(super) fn burn(time: Duration) {
    let ends_ns = thread_cpu_ns() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
    while thread_cpu_ns() < ends_ns {
        work(1, 100);
    }
}

/// Whether this process is one of `one_in`. The numbers of processes in a row look random.
pub(super) fn is_chosen(process: u32, one_in: u64) -> bool {
    (u64::from(process).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).is_multiple_of(one_in)
}

/// A random permutation of one cycle, so that a walk visits every place before it repeats one
/// (Sattolo, "An algorithm to generate a random cyclic permutation", Information Processing Letters
/// 22, 1986). It is the same each time.
pub(super) fn one_cycle(places: usize) -> Vec<u32> {
    let mut next: Vec<u32> = (0..).take(places).collect();
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    for last in (1..places).rev() {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        next.swap(last, (x >> 33) as usize % last);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_visits_every_place_once() {
        let next = one_cycle(1_000);
        let mut seen = vec![false; next.len()];
        let mut place = 0;
        for _ in 0..next.len() {
            assert!(!seen[place], "{place} twice");
            seen[place] = true;
            place = next[place] as usize;
        }
        assert_eq!(place, 0);
    }

    #[test]
    fn one_process_in_five_is_chosen() {
        let chosen = (1_000..6_000).filter(|process| is_chosen(*process, 5)).count();
        assert!((950..=1_050).contains(&chosen), "{chosen}");
        assert!((1..100).all(|process| is_chosen(process, 1)));
    }
}
