//! Computes when requests are due, without reading a clock.
//!
//! The requests of a constant rate or of a recording are numbered. Each of n workers sends every
//! n-th request, so that threads send one after another rather than all at once. With Poisson
//! arrivals, each worker has its own process. Overdue requests need no queue, because the due time
//! of the next request and the current time determine them.

use crate::plan::{DueTimes, Pace};
use crate::plan::{mix, number};

/// One worker's share of an open loop.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    start_ns: u64,
    arrivals: Arrivals,
    /// The number of requests that this worker has taken.
    taken: u64,
    /// When the next request is due.
    next_ns: u64,
}

#[derive(Debug, Clone)]
enum Arrivals {
    /// Request k of worker w of n is request k·n + w overall. It is due (k·n + w + ½) / rate after
    /// the start, so rounding errors do not add up. The half ensures that exactly m requests are
    /// due in a time of m / rate.
    Constant { rate: f64, worker: u64, workers: u64 },
    /// Each of n workers runs a process with 1/n of the rate. Together they are a process with the
    /// whole rate (superposition of Poisson processes).
    Poisson { mean_ns: f64, seed: u64, at_ns: f64 },
    /// Request k of worker w of n is request k·n + w of the recording.
    Recorded { due: DueTimes, worker: u64, workers: u64 },
}

impl Schedule {
    /// Creates the share of worker `worker` of `workers`, from `start_ns` on. Returns `None` for a
    /// closed loop.
    pub(crate) fn new(pace: &Pace, worker: usize, workers: usize, start_ns: u64) -> Option<Self> {
        let (worker, workers) = (worker as u64, workers as u64);
        let arrivals = match pace {
            Pace::Closed => return None,
            &Pace::Constant { rate } => Arrivals::Constant { rate, worker, workers },
            Pace::Recorded(due) => Arrivals::Recorded { due: due.clone(), worker, workers },
            &Pace::Poisson { rate, seed } => Arrivals::Poisson {
                mean_ns: 1e9 * workers as f64 / rate,
                seed: mix(seed ^ mix(worker + 1)),
                at_ns: 0.0,
            },
        };
        Some(Self { start_ns, arrivals, taken: 0, next_ns: 0 }.restarted())
    }

    /// Returns the same schedule, from its start.
    pub(crate) fn restarted(&self) -> Self {
        let mut schedule = Self { taken: 0, ..self.clone() };
        if let Arrivals::Poisson { at_ns, .. } = &mut schedule.arrivals {
            *at_ns = 0.0;
        }
        schedule.next_ns = schedule.due();
        schedule
    }

    /// Returns when the next request is due.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Takes the next request. Returns when it was due.
    #[inline]
    pub(crate) fn take(&mut self) -> u64 {
        let due = self.next_ns;
        self.taken += 1;
        self.next_ns = self.due();
        due
    }

    /// Takes all requests that are due before `end_ns`. Returns their number.
    pub(crate) fn take_until(&mut self, end_ns: u64) -> u64 {
        let before = self.taken;
        while self.next_ns < end_ns {
            self.take();
        }
        self.taken - before
    }

    /// Returns the due times of the next requests before `end_ns`, without taking the requests.
    pub(crate) fn due_before(&self, end_ns: u64) -> impl Iterator<Item = u64> + use<> {
        let mut ahead = self.clone();
        std::iter::from_fn(move || (ahead.next_ns < end_ns).then(|| ahead.take()))
    }

    /// Returns when request `taken` is due. Call this once for each request, in order, because a
    /// Poisson process accumulates its gaps.
    #[inline(never)]
    fn due(&mut self) -> u64 {
        match &mut self.arrivals {
            Arrivals::Constant { rate, worker, workers } => {
                let number = self.taken * *workers + *worker;
                self.start_ns.saturating_add(((number as f64 + 0.5) * 1e9 / *rate).round() as u64)
            }
            Arrivals::Poisson { mean_ns, seed, at_ns } => {
                // The number is uniform in (0, 1], so that its logarithm is finite. The gap is the
                // value of the inverse exponential distribution function (Knuth, TAOCP 2, section
                // 3.4.1 D).
                let bits = number(*seed, self.taken) >> 11;
                let uniform = (bits + 1) as f64 / (1u64 << 53) as f64;
                *at_ns -= *mean_ns * uniform.ln();
                self.start_ns.saturating_add(*at_ns as u64)
            }
            Arrivals::Recorded { due, worker, workers } => {
                let due_ns = due.ns((self.taken * *workers + *worker) as usize);
                due_ns.map_or(u64::MAX, |ns| self.start_ns.saturating_add(ns))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn due_times(pace: &Pace, worker: usize, workers: usize, count: usize) -> Vec<u64> {
        let mut schedule = Schedule::new(pace, worker, workers, 1_000).expect("an open loop");
        (0..count).map(|_| schedule.take()).collect()
    }

    #[test]
    fn a_constant_rate_is_due_at_equal_gaps() {
        let pace = Pace::Constant { rate: 1_000.0 };
        assert_eq!(due_times(&pace, 0, 1, 4), [501_000, 1_501_000, 2_501_000, 3_501_000]);
    }

    #[test]
    fn threads_send_one_after_the_other() {
        let pace = Pace::Constant { rate: 1_000.0 };
        assert_eq!(due_times(&pace, 0, 2, 2), [501_000, 2_501_000]);
        assert_eq!(due_times(&pace, 1, 2, 2), [1_501_000, 3_501_000]);
    }

    #[test]
    fn a_closed_loop_has_no_schedule() {
        assert!(Schedule::new(&Pace::Closed, 0, 1, 0).is_none());
    }

    #[test]
    fn threads_share_a_recording_and_nothing_is_due_after_it() {
        let due = DueTimes::new(&[7_000_000, 8_000_000, 9_000_000], 1.0);
        let pace = Pace::Recorded(due);
        assert_eq!(due_times(&pace, 0, 1, 4), [1_000, 1_001_000, 2_001_000, u64::MAX]);
        assert_eq!(due_times(&pace, 0, 2, 3), [1_000, 2_001_000, u64::MAX]);
        assert_eq!(due_times(&pace, 1, 2, 2), [1_001_000, u64::MAX]);
        let schedule = Schedule::new(&pace, 0, 1, 1_000).expect("an open loop");
        assert_eq!(schedule.due_before(u64::MAX).count(), 3);
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        // A third of a second is not a whole number of nanoseconds, but a second is.
        let all = due_times(&Pace::Constant { rate: 3.0 }, 0, 1, 1_000_001);
        assert_eq!(all[999_999], 1_000 + 333_333 * 1_000_000_000 + 166_666_667);
    }

    /// Regression: a rate of 1 request/s for 4 s gave 5 requests, and the last one had no time.
    #[test]
    fn a_rate_for_some_time_is_as_many_requests() {
        let due = |rate, s: u64| {
            let schedule = Schedule::new(&Pace::Constant { rate }, 0, 1, 0).expect("an open loop");
            schedule.due_before(s * 1_000_000_000).count()
        };
        assert_eq!((due(1.0, 4), due(0.5, 4), due(1_000.0, 1), due(0.1, 4)), (4, 2, 1_000, 0));
    }

    /// Regression: the sum wrapped around, so a request that was due in 3 million years was
    /// overdue.
    #[test]
    fn a_request_due_after_the_end_of_the_clock_is_never_due() {
        for pace in [Pace::Constant { rate: 1e-14 }, Pace::Poisson { rate: 1e-14, seed: 1 }] {
            let all = due_times(&pace, 1, 2, 3);
            assert!(all.is_sorted() && all[2] == u64::MAX, "{all:?}");
        }
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        // In an exponential distribution, the standard deviation equals the mean. A share of 1/e of
        // the gaps is longer than the mean. With 200,000 gaps, the random error is below 1%.
        let all = due_times(&Pace::Poisson { rate: 1e6, seed: 7 }, 0, 1, 200_001);
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
    fn a_schedule_that_is_restarted_has_the_same_due_times() {
        for pace in [Pace::Constant { rate: 1e6 }, Pace::Poisson { rate: 1e6, seed: 1 }] {
            let mut schedule = Schedule::new(&pace, 0, 1, 1_000).expect("an open loop");
            assert_eq!(schedule.take_until(101_000), schedule.restarted().take_until(101_000));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_due_times_and_each_worker_its_own() {
        let pace = Pace::Poisson { rate: 1_000.0, seed: 1 };
        assert_eq!(due_times(&pace, 0, 2, 50), due_times(&pace, 0, 2, 50));
        assert_ne!(due_times(&pace, 0, 2, 50), due_times(&pace, 1, 2, 50));
        assert_ne!(
            due_times(&pace, 0, 2, 50),
            due_times(&Pace::Poisson { rate: 1_000.0, seed: 2 }, 0, 2, 50)
        );
    }

    /// Returns the due times of all workers within the first second, in order.
    fn first_second(rate: f64, workers: usize) -> Vec<u64> {
        let mut all: Vec<u64> = (0..workers)
            .flat_map(|worker| {
                let schedule = Schedule::new(&Pace::Constant { rate }, worker, workers, 0);
                schedule.expect("an open loop").due_before(1_000_000_000)
            })
            .collect();
        all.sort_unstable();
        all
    }

    /// Two generators with two threads each share a load. The first has workers 0 and 2, and the
    /// second has workers 1 and 3.
    #[test]
    fn generators_that_share_a_load_send_one_after_the_other() {
        let mut plan = crate::plan::Plan::new(
            crate::plan::Target::plain(crate::plan::Endpoint::Tcp(([127, 0, 0, 1], 80).into())),
            crate::plan::Request::get("/", "test"),
        );
        plan.shape.threads = 2;
        let mut workers = Vec::new();
        for index in 0..2 {
            plan.part = crate::plan::LoadPart { index, of: 2 };
            workers.extend((0..2).map(|thread| plan.worker(thread)));
            assert_eq!(plan.workers(), 4);
        }
        assert_eq!(workers, [0, 2, 1, 3]);
    }

    /// The threads share one schedule, however many connections there are.
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
        fn due_times_are_in_order(
            rate in 0.1..1e7,
            poisson: bool,
            seed: u64,
            workers in 1usize..9,
        ) {
            let pace = if poisson {
                Pace::Poisson { rate, seed }
            } else {
                Pace::Constant { rate }
            };
            let all = due_times(&pace, workers - 1, workers, 200);
            prop_assert!(all.is_sorted());
            prop_assert!(all[0] >= 1_000);
        }

        #[test]
        fn the_shares_of_all_threads_add_up_to_the_rate(rate in 10.0..1e5, workers in 1usize..9) {
            let due = |w| {
                let pace = Pace::Constant { rate };
                Schedule::new(&pace, w, workers, 0).expect("open").take_until(1_000_000_000)
            };
            let sum: u64 = (0..workers).map(due).sum();
            prop_assert!((sum as f64 - rate).abs() <= 1.0, "{} of {}", sum, rate);
        }
    }
}
