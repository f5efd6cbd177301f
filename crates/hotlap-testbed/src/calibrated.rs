//! Servers of known latency and cost.
//!
//! Each is the ceiling's event loop with one specified property. The self-test measures them and
//! compares its results with the true values.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::event_loop::Behaviour;
use crate::request::Request;
use crate::serve::{ServeError, serve};

/// A server with a known property. Written `name:number[:number[:number]]`, as the variants show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calibrated {
    /// `fixed:US`: every response is delayed by this many microseconds.
    Fixed {
        /// Microseconds.
        us: u64,
    },
    /// `bimodal:US:SLOW_US:ONE_IN`: every response is delayed, one in `one_in` for longer.
    Bimodal {
        /// Usual delay, in microseconds.
        us: u64,
        /// Delay of the slow ones, in microseconds.
        slow_us: u64,
        /// One response in this many is slow.
        one_in: u64,
    },
    /// `pausing:EVERY_MS:PAUSE_MS`: it stalls repeatedly.
    Pausing {
        /// From the end of one pause to the beginning of the next, in milliseconds.
        every_ms: u64,
        /// Length of a pause, in milliseconds.
        pause_ms: u64,
    },
    /// `queue:WORKERS:US`, `queue:WORKERS:US:SLOW_US:ONE_IN`: requests wait in one queue for one of
    /// some workers, and each takes this many microseconds, one in `one_in` longer. The workers
    /// only exist as the times at which they become free, so a busy machine delays responses but
    /// does not reduce the capacity.
    Queue {
        /// Number of workers, over the whole server.
        workers: u64,
        /// Service time, in microseconds.
        us: u64,
        /// Service time of the slow ones, in microseconds.
        slow_us: u64,
        /// One request in this many is slow.
        one_in: u64,
    },
    /// `erring:ONE_IN`: one response in `one_in` has the wrong body, of the right length.
    Erring {
        /// One response in this many is wrong.
        one_in: u64,
    },
    /// `costing:NS`: every request takes this much CPU time, including the kernel's part.
    Costing {
        /// Nanoseconds of the thread's CPU time.
        ns: u64,
    },
    /// `working:ROUNDS`: every request takes this many rounds of arithmetic more than the ceiling.
    Working {
        /// Rounds of a few cycles each.
        rounds: u64,
    },
    /// `walking:STEPS`: every request reads this many places in 10 MB of memory, one after another,
    /// in an order that no prefetcher can predict.
    Walking {
        /// Number of reads; each waits for the one before it.
        steps: u64,
    },
}

/// A text that is not a [`Calibrated`] server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a calibrated server; use fixed:US, bimodal:US:SLOW_US:ONE_IN, \
     pausing:EVERY_MS:PAUSE_MS, queue:WORKERS:US, queue:WORKERS:US:SLOW_US:ONE_IN, erring:ONE_IN, \
     costing:NS, working:ROUNDS or walking:STEPS"
)]
pub struct NotCalibrated(String);

impl FromStr for Calibrated {
    type Err = NotCalibrated;

    fn from_str(text: &str) -> Result<Self, NotCalibrated> {
        let error = || NotCalibrated(text.to_owned());
        let (name, rest) = text.split_once(':').ok_or_else(error)?;
        let numbers: Vec<u64> =
            rest.split(':').map(str::parse).collect::<Result<_, _>>().map_err(|_| error())?;
        match (name, numbers[..].as_ref()) {
            ("fixed", &[us]) => Ok(Self::Fixed { us }),
            ("bimodal", &[us, slow_us, one_in]) if one_in > 0 => {
                Ok(Self::Bimodal { us, slow_us, one_in })
            }
            ("pausing", &[every_ms, pause_ms]) => Ok(Self::Pausing { every_ms, pause_ms }),
            ("queue", &[workers, us]) if workers > 0 => {
                Ok(Self::Queue { workers, us, slow_us: us, one_in: 1 })
            }
            ("queue", &[workers, us, slow_us, one_in]) if workers > 0 && one_in > 0 => {
                Ok(Self::Queue { workers, us, slow_us, one_in })
            }
            ("erring", &[one_in]) if one_in > 0 => Ok(Self::Erring { one_in }),
            ("costing", &[ns]) => Ok(Self::Costing { ns }),
            ("working", &[rounds]) => Ok(Self::Working { rounds }),
            ("walking", &[steps]) => Ok(Self::Walking { steps }),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Calibrated {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Fixed { us } => write!(f, "fixed:{us}"),
            Self::Bimodal { us, slow_us, one_in } => write!(f, "bimodal:{us}:{slow_us}:{one_in}"),
            Self::Pausing { every_ms, pause_ms } => write!(f, "pausing:{every_ms}:{pause_ms}"),
            Self::Queue { workers, us, slow_us, one_in } => {
                write!(f, "queue:{workers}:{us}:{slow_us}:{one_in}")
            }
            Self::Erring { one_in } => write!(f, "erring:{one_in}"),
            Self::Costing { ns } => write!(f, "costing:{ns}"),
            Self::Working { rounds } => write!(f, "working:{rounds}"),
            Self::Walking { steps } => write!(f, "walking:{steps}"),
        }
    }
}

impl Calibrated {
    /// Serves the contract `hello` until the process ends, with one event loop per thread.
    ///
    /// # Errors
    /// The address is unavailable, or the system refuses an event loop.
    pub fn serve(self, address: SocketAddr, threads: usize) -> Result<(), ServeError> {
        // A queue is one queue, and each event loop would have its own.
        let threads = if matches!(self, Self::Queue { .. }) { 1 } else { threads };
        serve(address, threads, || Server::new(self))
    }
}

/// A calibrated server in one thread.
#[derive(Debug)]
struct Server {
    kind: Calibrated,
    responses: u64,
    /// When the last pause ended.
    paused_until: Instant,
    /// When each worker of a queue becomes free.
    free_at: BinaryHeap<Reverse<Instant>>,
    /// The thread's CPU time at the first request, in nanoseconds.
    cpu_began_ns: Option<u64>,
    /// The memory that a walking server walks through: each place holds the index of the next one.
    /// Empty for all others.
    places: Vec<u32>,
    /// Where the last walk ended.
    place: usize,
}

impl Server {
    fn new(kind: Calibrated) -> Self {
        let is_walking = matches!(kind, Calibrated::Walking { .. });
        Self {
            kind,
            responses: 0,
            paused_until: Instant::now(),
            free_at: match kind {
                Calibrated::Queue { workers, .. } => {
                    (0..workers).map(|_| Reverse(Instant::now())).collect()
                }
                _ => BinaryHeap::new(),
            },
            cpu_began_ns: None,
            places: if is_walking { one_cycle(PLACES) } else { Vec::new() },
            place: 0,
        }
    }
}

impl Behaviour for Server {
    fn respond(&mut self, request: &Request, out: &mut Vec<u8>) -> Duration {
        self.responses += 1;
        request.reply.write(request.close, out);
        match self.kind {
            Calibrated::Fixed { us } => return Duration::from_micros(us),
            Calibrated::Bimodal { us, slow_us, one_in } => {
                let is_slow = self.responses.is_multiple_of(one_in);
                return Duration::from_micros(if is_slow { slow_us } else { us });
            }
            Calibrated::Queue { us, slow_us, one_in, .. } => {
                let is_slow = self.responses.is_multiple_of(one_in);
                let takes = Duration::from_micros(if is_slow { slow_us } else { us });
                return self.queued(takes, Instant::now());
            }
            Calibrated::Erring { one_in } if self.responses.is_multiple_of(one_in) => {
                // The last byte of the body, so that only a check of the whole body finds it.
                if let Some(last) = out.last_mut() {
                    *last = b'?';
                }
            }
            Calibrated::Working { rounds } => work(rounds),
            Calibrated::Walking { steps } => {
                for _ in 0..steps {
                    self.place = self.places[self.place] as usize;
                }
                std::hint::black_box(self.place);
            }
            // CPU time is spent before each response, up to the total that all responses so far
            // should have cost, so the cost of sending one counts towards the next. If it were
            // spent at once for all responses to one set of events, a sample of the CPU clock in
            // between would depend on the size of the set.
            Calibrated::Costing { ns } => {
                let began_ns = *self.cpu_began_ns.get_or_insert_with(thread_cpu_ns);
                while thread_cpu_ns() < began_ns + ns * self.responses {}
            }
            Calibrated::Erring { .. } | Calibrated::Pausing { .. } => {}
        }
        Duration::ZERO
    }

    fn after_events(&mut self) {
        if let Calibrated::Pausing { every_ms, pause_ms } = self.kind
            && self.paused_until.elapsed() >= Duration::from_millis(every_ms)
        {
            std::thread::sleep(Duration::from_millis(pause_ms));
            self.paused_until = Instant::now();
        }
    }

    /// True if its latency is the known property.
    fn busy_polls(&self) -> bool {
        matches!(self.kind, Calibrated::Fixed { .. } | Calibrated::Bimodal { .. })
    }
}

impl Server {
    /// How long a request that arrives now waits in the queue and is served.
    fn queued(&mut self, takes: Duration, now: Instant) -> Duration {
        let free_at = self.free_at.pop().map_or(now, |Reverse(free_at)| free_at);
        let ends = free_at.max(now) + takes;
        self.free_at.push(Reverse(ends));
        ends - now
    }
}

fn thread_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// Arithmetic that takes the same time each round: each round waits for the one before it, and none
/// touches memory, which some processors learn to skip after a while.
fn work(rounds: u64) {
    let mut x = std::hint::black_box(rounds);
    for _ in 0..rounds {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(x >> 33);
    }
    std::hint::black_box(x);
}

/// 10 MB of places.
const PLACES: usize = 10_000_000 / size_of::<u32>();

/// A random permutation of one cycle, so that a walk visits every place before it repeats one
/// (Sattolo, "An algorithm to generate a random cyclic permutation", Information Processing Letters
/// 22, 1986). It is the same each time.
fn one_cycle(places: usize) -> Vec<u32> {
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
    use crate::response::Reply;

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
    fn a_calibrated_server_is_parsed_as_it_is_written() {
        for text in [
            "fixed:100",
            "bimodal:0:50000:100",
            "pausing:4000:1000",
            "queue:2:1000:20000:100",
            "erring:100",
            "costing:41200",
            "working:152",
            "walking:1000",
        ] {
            assert_eq!(text.parse::<Calibrated>().unwrap().to_string(), text);
        }
        assert_eq!("queue:1:500".parse(), "queue:1:500:500:1".parse::<Calibrated>());
        for text in ["fixed", "fixed:", "erring:0", "bimodal:1:2", "queue:0:1", "quick:1"] {
            assert_eq!(text.parse::<Calibrated>(), Err(NotCalibrated(text.to_owned())));
        }
    }

    #[test]
    fn a_queue_serves_in_order_of_arrival_with_the_worker_that_is_free_first() {
        let ms = Duration::from_millis;
        let mut server = Server::new("queue:2:10000".parse().unwrap());
        let began = Instant::now();
        let mut at = |after| server.queued(ms(10), began + after);
        assert_eq!([at(ms(0)), at(ms(1)), at(ms(2)), at(ms(3))], [10, 10, 18, 18].map(ms));
        assert_eq!(at(ms(50)), ms(10));
    }

    #[test]
    fn exactly_one_response_in_a_hundred_is_wrong() {
        let mut server = Server::new(Calibrated::Erring { one_in: 100 });
        let request = Request { reply: Reply::Greeting, close: false, len: 1 };
        let wrong = (0..1000)
            .filter(|_| {
                let mut out = Vec::new();
                assert_eq!(server.respond(&request, &mut out), Duration::ZERO);
                !out.ends_with(b"Hello, World!")
            })
            .count();
        assert_eq!(wrong, 10);
    }
}
