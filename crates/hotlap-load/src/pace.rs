//! When a request is due: pure, without a clock.
//!
//! The requests of an open loop are numbered; each worker has every so-manieth of them, so that the
//! threads take turns instead of sending all at once. What is overdue needs no queue: the next
//! request to send and the time now say all there is to know about it.

use crate::plan::Pace;

/// One worker's share of an open loop.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    start_ns: u64,
    shape: Shape,
    /// How many of this worker's requests were taken.
    taken: u64,
    /// When the next one is due.
    next_ns: u64,
}

#[derive(Debug, Clone)]
enum Shape {
    /// Request k of worker w of t is request k·t + w of all, and due (k·t + w) / rate after the
    /// start: no error adds up.
    Constant { rate: f64, worker: u64, workers: u64 },
    /// Each worker keeps a process with the rate's t-th part: t of them together are one with the
    /// whole rate (superposition of Poisson processes).
    Poisson { mean_ns: f64, seed: u64, at_ns: f64 },
}

impl Schedule {
    /// The share of worker `worker` of `workers`, from `start_ns` on; `None` in a closed loop.
    pub(crate) fn new(pace: Pace, worker: usize, workers: usize, start_ns: u64) -> Option<Self> {
        let (worker, workers) = (worker as u64, workers as u64);
        let shape = match pace {
            Pace::Closed => return None,
            Pace::Constant { rate } => Shape::Constant { rate, worker, workers },
            Pace::Poisson { rate, seed } => Shape::Poisson {
                mean_ns: 1e9 * workers as f64 / rate,
                seed: mix(seed ^ mix(worker + 1)),
                at_ns: 0.0,
            },
        };
        let mut schedule = Self { start_ns, shape, taken: 0, next_ns: 0 };
        schedule.next_ns = schedule.due();
        Some(schedule)
    }

    /// When the next request is due.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Takes the next request: when it was due.
    #[inline]
    pub(crate) fn take(&mut self) -> u64 {
        let due = self.next_ns;
        self.taken += 1;
        self.next_ns = self.due();
        due
    }

    /// Takes all that are due before `end_ns`, and says how many.
    pub(crate) fn drain(&mut self, end_ns: u64) -> u64 {
        let before = self.taken;
        while self.next_ns < end_ns {
            self.take();
        }
        self.taken - before
    }

    /// The moments of the next requests, as far as they are due before `end_ns`; takes none.
    pub(crate) fn due_before(&self, end_ns: u64) -> impl Iterator<Item = u64> + use<> {
        let mut ahead = self.clone();
        std::iter::from_fn(move || (ahead.next_ns < end_ns).then(|| ahead.take()))
    }

    /// When request `taken` is due; of a Poisson process, to be asked for once each, in order.
    fn due(&mut self) -> u64 {
        match &mut self.shape {
            Shape::Constant { rate, worker, workers } => {
                let number = self.taken * *workers + *worker;
                self.start_ns.saturating_add((number as f64 * 1e9 / *rate).round() as u64)
            }
            Shape::Poisson { mean_ns, seed, at_ns } => {
                // Uniform in (0, 1]: the logarithm is finite. Inverse of the exponential
                // distribution's cumulative function (Knuth, TAOCP 2, section 3.4.1 D).
                let bits = mix(seed.wrapping_add(self.taken.wrapping_mul(GOLDEN))) >> 11;
                let uniform = (bits + 1) as f64 / (1u64 << 53) as f64;
                *at_ns -= *mean_ns * uniform.ln();
                self.start_ns.saturating_add(*at_ns as u64)
            }
        }
    }
}

/// The increment of `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators, OOPSLA 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of `SplitMix64`.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dues(pace: Pace, worker: usize, workers: usize, count: usize) -> Vec<u64> {
        let mut schedule = Schedule::new(pace, worker, workers, 1_000).expect("an open loop");
        (0..count).map(|_| schedule.take()).collect()
    }

    #[test]
    fn a_constant_rate_is_due_at_equal_gaps() {
        let pace = Pace::Constant { rate: 1_000.0 };
        assert_eq!(dues(pace, 0, 1, 4), [1_000, 1_001_000, 2_001_000, 3_001_000]);
    }

    #[test]
    fn threads_take_turns() {
        let pace = Pace::Constant { rate: 1_000.0 };
        assert_eq!(dues(pace, 0, 2, 2), [1_000, 2_001_000]);
        assert_eq!(dues(pace, 1, 2, 2), [1_001_000, 3_001_000]);
    }

    #[test]
    fn a_closed_loop_has_no_schedule() {
        assert!(Schedule::new(Pace::Closed, 0, 1, 0).is_none());
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        // Thirds of a second do not end: after a million of them, no nanosecond is lost.
        let all = dues(Pace::Constant { rate: 3.0 }, 0, 1, 1_000_001);
        assert_eq!(all[999_999], 1_000 + 333_333 * 1_000_000_000);
    }

    /// The sum wrapped around, so that the second request, due in 3 million years, was overdue.
    #[test]
    fn what_is_due_after_the_end_of_the_clock_is_never_due() {
        for pace in [Pace::Constant { rate: 1e-14 }, Pace::Poisson { rate: 1e-14, seed: 1 }] {
            let all = dues(pace, 1, 2, 3);
            assert!(all.is_sorted() && all[2] == u64::MAX, "{all:?}");
        }
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        // Of an exponential distribution the deviation equals the mean, and a share of 1/e is
        // longer than the mean. 200,000 gaps know both within 1 %.
        let all = dues(Pace::Poisson { rate: 1e6, seed: 7 }, 0, 1, 200_001);
        let gaps: Vec<f64> = all.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let n = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / n;
        let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n).sqrt();
        let longer = gaps.iter().filter(|g| **g > mean).count() as f64 / n;
        assert!((mean - 1_000.0).abs() < 10.0, "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.01, "{deviation}");
        assert!((longer - (-1.0_f64).exp()).abs() < 0.005, "{longer}");
    }

    #[test]
    fn the_same_seed_gives_the_same_moments_and_each_worker_its_own() {
        let pace = Pace::Poisson { rate: 1_000.0, seed: 1 };
        assert_eq!(dues(pace, 0, 2, 50), dues(pace, 0, 2, 50));
        assert_ne!(dues(pace, 0, 2, 50), dues(pace, 1, 2, 50));
        assert_ne!(dues(pace, 0, 2, 50), dues(Pace::Poisson { rate: 1_000.0, seed: 2 }, 0, 2, 50));
    }

    /// When the requests of all workers are due within the first second, in order.
    fn first_second(rate: f64, workers: usize) -> Vec<u64> {
        let mut all: Vec<u64> = (0..workers)
            .flat_map(|worker| {
                let schedule = Schedule::new(Pace::Constant { rate }, worker, workers, 0);
                schedule.expect("an open loop").due_before(1_000_000_000)
            })
            .collect();
        all.sort_unstable();
        all
    }

    /// There, each connection has a schedule of its own, and they begin together. Here, threads
    /// have parts of one schedule, and connections none.
    #[test]
    fn wrk2_sends_in_bursts_over_many_connections() {
        for workers in [1, 3, 16] {
            let due = first_second(4_000.0, workers);
            assert_eq!(due.len(), 4_000);
            assert!(due.windows(2).all(|w| w[1] - w[0] == 250_000), "{workers} workers");
        }
    }

    #[test]
    fn h2load_sends_in_clumps_of_ten_milliseconds() {
        let due = first_second(30_000.0, 2);
        let in_millisecond = |ms: u64| due.iter().filter(|ns| **ns / 1_000_000 == ms).count();
        assert!((0..1_000).all(|ms| in_millisecond(ms) == 30));
    }

    #[test]
    fn autocannon_sends_a_seconds_requests_at_once() {
        let due = first_second(1_000.0, 4);
        let in_tenth = |tenth: u64| due.iter().filter(|ns| **ns / 100_000_000 == tenth).count();
        assert_eq!((0..10).map(in_tenth).collect::<Vec<_>>(), [100; 10]);
    }

    proptest! {
        #[test]
        fn moments_are_in_order(rate in 0.1..1e7, poisson: bool, seed: u64, workers in 1usize..9) {
            let pace = if poisson {
                Pace::Poisson { rate, seed }
            } else {
                Pace::Constant { rate }
            };
            let all = dues(pace, workers - 1, workers, 200);
            prop_assert!(all.is_sorted());
            prop_assert!(all[0] >= 1_000);
        }

        #[test]
        fn the_shares_of_all_threads_make_up_the_rate(rate in 10.0..1e5, workers in 1usize..9) {
            let due = |w| {
                let pace = Pace::Constant { rate };
                Schedule::new(pace, w, workers, 0).expect("open").drain(1_000_000_000)
            };
            let sum: u64 = (0..workers).map(due).sum();
            prop_assert!((sum as f64 - rate).abs() <= 1.0, "{} of {}", sum, rate);
        }
    }
}
