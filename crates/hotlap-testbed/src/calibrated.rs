//! Servers of known latency and cost.
//!
//! Each server is the ceiling's event loop with one or more known properties. The self-test
//! measures these servers and compares its results with the true values.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::process::{getpid, getppid};
use rustix::time::{ClockId, clock_gettime};

use crate::event_loop::{Behaviour, NotAServer, ServeError, serve};
use crate::request::Request;

/// A known property of a server, written as a name and one to four numbers: `bimodal:0:50000:100`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calibrated {
    /// `fixed:US`: every response is delayed by `us` microseconds.
    Fixed {
        /// The delay, in microseconds.
        us: u64,
    },
    /// `bimodal:US:SLOW_US:ONE_IN`: every response is delayed, and one response in `one_in` is
    /// delayed for longer.
    Bimodal {
        /// The usual delay, in microseconds.
        us: u64,
        /// The delay of a slow response, in microseconds.
        slow_us: u64,
        /// One response in this many is slow.
        one_in: u64,
    },
    /// `pausing:EVERY_MS:PAUSE_MS`: each thread of the server stalls again and again while
    /// requests arrive.
    Pausing {
        /// The shortest time from the end of one pause to the beginning of the next, in
        /// milliseconds.
        every_ms: u64,
        /// The length of a pause, in milliseconds.
        pause_ms: u64,
    },
    /// `queue:WORKERS:US` or `queue:WORKERS:US:SLOW_US:ONE_IN`: requests wait in one queue for one
    /// of several workers. Each request takes `us` microseconds, and one request in `one_in` takes
    /// longer. A worker is not a thread but only the time at which the worker becomes free. A busy
    /// machine therefore delays responses but does not reduce the capacity.
    Queue {
        /// The number of workers of the whole server.
        workers: u64,
        /// The service time, in microseconds.
        us: u64,
        /// The service time of a slow request, in microseconds.
        slow_us: u64,
        /// One request in this many is slow.
        one_in: u64,
    },
    /// `erring:ONE_IN`: one response in `one_in` has a wrong body of the right length.
    Erring {
        /// One response in this many is wrong.
        one_in: u64,
    },
    /// `costing:NS`: every request takes `ns` nanoseconds of CPU time, including time in the
    /// kernel.
    Costing {
        /// The thread's CPU time, in nanoseconds.
        ns: u64,
    },
    /// `working:ROUNDS`: every request takes `rounds` rounds of arithmetic in addition to the
    /// ceiling's work.
    Working {
        /// The number of rounds, each of a few cycles.
        rounds: u64,
    },
    /// `walking:STEPS`: every request reads `steps` places in 10 MB of memory, one after another,
    /// in an order that no prefetcher can predict.
    Walking {
        /// The number of reads. Each read waits for the one before it.
        steps: u64,
    },
    /// `calling:COUNT`: every request makes `count` system calls that do almost nothing.
    Calling {
        /// The number of system calls.
        count: u64,
    },
    /// `bursting:EVERY:US`: before each `every`-th response, the server burns `us` microseconds of
    /// CPU time.
    Bursting {
        /// The number of requests from one burst to the next.
        every: u64,
        /// The thread's CPU time, in microseconds.
        us: u64,
    },
    /// `ticking:EVERY_MS:US`: a timer burns `us` microseconds of CPU time at regular intervals,
    /// with or without requests.
    Ticking {
        /// The time from the end of one tick to the beginning of the next, in milliseconds.
        every_ms: u64,
        /// The thread's CPU time, in microseconds.
        us: u64,
    },
    /// `starting:ONE_IN:ROUNDS`: one process in `one_in`, chosen by its process id, is slow for
    /// its whole life. Every request to a slow process takes `rounds` rounds of arithmetic.
    Starting {
        /// One process in this many is slow.
        one_in: u64,
        /// The number of rounds, as in `working`.
        rounds: u64,
    },
    /// `compiling:REQUESTS:ROUNDS`: the first request takes `rounds` rounds of arithmetic, and
    /// each later request takes fewer. After `requests` requests, the server does no arithmetic.
    Compiling {
        /// The number of requests after which the arithmetic ends.
        requests: u64,
        /// The number of rounds, as in `working`.
        rounds: u64,
    },
}

/// The list of all properties, for error messages.
const WRITTEN: &str = "fixed:US, bimodal:US:SLOW_US:ONE_IN, pausing:EVERY_MS:PAUSE_MS, \
    queue:WORKERS:US, queue:WORKERS:US:SLOW_US:ONE_IN, erring:ONE_IN, costing:NS, working:ROUNDS, \
    walking:STEPS, calling:COUNT, bursting:EVERY:US, ticking:EVERY_MS:US, starting:ONE_IN:ROUNDS \
    or compiling:REQUESTS:ROUNDS, or several joined by +";

impl FromStr for Calibrated {
    type Err = NotAServer;

    fn from_str(text: &str) -> Result<Self, NotAServer> {
        let error = || NotAServer { text: text.to_owned(), known: WRITTEN.to_owned() };
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
            ("calling", &[count]) => Ok(Self::Calling { count }),
            ("bursting", &[every, us]) if every > 0 => Ok(Self::Bursting { every, us }),
            ("ticking", &[every_ms, us]) => Ok(Self::Ticking { every_ms, us }),
            ("starting", &[one_in, rounds]) if one_in > 0 => Ok(Self::Starting { one_in, rounds }),
            ("compiling", &[requests, rounds]) if requests > 0 => {
                Ok(Self::Compiling { requests, rounds })
            }
            _ => Err(error()),
        }
    }
}

/// A server with one or more known properties, for example `working:2000+calling:3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalibratedServer(Vec<Calibrated>);

impl FromStr for CalibratedServer {
    type Err = NotAServer;

    fn from_str(text: &str) -> Result<Self, NotAServer> {
        text.split('+').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl CalibratedServer {
    /// Serves the contract `hello` until the process ends, with one event loop per thread. A
    /// server with a queue has only one event loop.
    ///
    /// # Errors
    /// The address is unavailable, or the system cannot create an event loop.
    pub fn serve(&self, address: SocketAddr, threads: usize) -> Result<(), ServeError> {
        // All requests must share one queue, but each event loop would have its own queue.
        let has_queue = self.0.iter().any(|kind| matches!(kind, Calibrated::Queue { .. }));
        serve(address, if has_queue { 1 } else { threads }, || Server::new(self))
    }

    /// Returns the CPU time that the properties add to a request, in nanoseconds, timed without a
    /// server.
    ///
    /// CPU time is measured over stretches of `requests` requests. `requests` must be a multiple
    /// of the number of requests between two bursts. The result is the lowest median of several
    /// repetitions.
    pub fn alone_ns(&self, requests: u64) -> f64 {
        const REPETITIONS: usize = 5;
        const STRETCHES: usize = 9;
        let mut server = Server::new(self);
        let mut out = b"Hello, World!".to_vec();
        let mut median_ns = || {
            let mut stretches = [0; STRETCHES].map(|_: u64| {
                let began_ns = thread_cpu_ns();
                for _ in 0..requests {
                    let _ = server.spend(&mut out);
                }
                thread_cpu_ns() - began_ns
            });
            stretches.sort_unstable();
            stretches[STRETCHES / 2]
        };
        let least_ns = (0..REPETITIONS).map(|_| median_ns()).min().unwrap_or(0);
        least_ns as f64 / requests.max(1) as f64
    }
}

#[derive(Debug)]
struct Server(Vec<Part>);

impl Server {
    fn new(server: &CalibratedServer) -> Self {
        Self(server.0.iter().copied().map(Part::new).collect())
    }

    /// Applies every property to one request. Returns the delay of the response.
    fn spend(&mut self, out: &mut [u8]) -> Duration {
        self.0.iter_mut().map(|part| part.spend(out)).sum()
    }
}

impl Behaviour for Server {
    fn respond(&mut self, request: &Request, _: &[u8], out: &mut Vec<u8>) -> Duration {
        request.reply.write(request.close, out);
        self.spend(out)
    }

    fn after_events(&mut self) {
        self.0.iter_mut().for_each(Part::after_events);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.0.iter().filter_map(Part::wakes_at).min()
    }

    /// Returns true if one of the properties is a fixed or bimodal delay.
    fn busy_polls(&self) -> bool {
        let is_latency = |part: &Part| {
            matches!(part.kind, Calibrated::Fixed { .. } | Calibrated::Bimodal { .. })
        };
        self.0.iter().any(is_latency)
    }
}

/// One property of a server in one thread, with its state.
#[derive(Debug)]
struct Part {
    kind: Calibrated,
    responses: u64,
    /// When the last pause or tick ended.
    ended: Instant,
    /// When each worker of a queue becomes free.
    free_at: BinaryHeap<Reverse<Instant>>,
    /// The thread's CPU time at the first request, in nanoseconds.
    cpu_began_ns: Option<u64>,
    /// The memory that a walking server reads. Each place holds the index of the next one. Empty
    /// for all other properties.
    places: Vec<u32>,
    /// The place where the last walk ended.
    place: usize,
    /// The result of the last rounds of arithmetic, on which the next rounds depend.
    result: u64,
    /// Whether this process is one of the slow processes of `starting`.
    is_slow: bool,
}

impl Part {
    fn new(kind: Calibrated) -> Self {
        let is_walking = matches!(kind, Calibrated::Walking { .. });
        Self {
            kind,
            responses: 0,
            ended: Instant::now(),
            free_at: match kind {
                Calibrated::Queue { workers, .. } => {
                    (0..workers).map(|_| Reverse(Instant::now())).collect()
                }
                _ => BinaryHeap::new(),
            },
            cpu_began_ns: None,
            places: if is_walking { one_cycle(PLACES) } else { Vec::new() },
            place: 0,
            result: 0,
            is_slow: match kind {
                Calibrated::Starting { one_in, .. } => {
                    is_chosen(getpid().as_raw_pid().unsigned_abs(), one_in)
                }
                _ => false,
            },
        }
    }
}

impl Part {
    /// Applies the property to one request. Returns the delay of the response.
    fn spend(&mut self, out: &mut [u8]) -> Duration {
        self.responses += 1;
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
                // Only a check of the whole body notices a wrong last byte.
                if let Some(last) = out.last_mut() {
                    *last = b'?';
                }
            }
            Calibrated::Working { rounds } => self.work(rounds),
            Calibrated::Walking { steps } => {
                for _ in 0..steps {
                    self.place = self.places[self.place] as usize;
                }
                std::hint::black_box(self.place);
            }
            // CPU time is spent before each response, up to the total that all responses so far
            // should have cost. The cost of sending a response therefore counts towards the next
            // response. If the time were spent once per set of events, a sample of the CPU clock
            // would depend on the size of the set.
            Calibrated::Costing { ns } => {
                let began_ns = *self.cpu_began_ns.get_or_insert_with(thread_cpu_ns);
                while thread_cpu_ns() < began_ns + ns * self.responses {}
            }
            Calibrated::Calling { count } => {
                for _ in 0..count {
                    let _ = getppid();
                }
            }
            Calibrated::Bursting { every, us } if self.responses.is_multiple_of(every) => {
                burn(Duration::from_micros(us));
            }
            Calibrated::Starting { rounds, .. } if self.is_slow => self.work(rounds),
            Calibrated::Compiling { requests, rounds } => {
                let left = requests.saturating_sub(self.responses - 1);
                self.work(rounds.saturating_mul(left) / requests);
            }
            Calibrated::Erring { .. }
            | Calibrated::Pausing { .. }
            | Calibrated::Bursting { .. }
            | Calibrated::Ticking { .. }
            | Calibrated::Starting { .. } => {}
        }
        Duration::ZERO
    }

    fn work(&mut self, rounds: u64) {
        self.result = work(self.result, rounds);
    }

    fn after_events(&mut self) {
        match self.kind {
            Calibrated::Pausing { every_ms, pause_ms }
                if self.ended.elapsed() >= Duration::from_millis(every_ms) =>
            {
                std::thread::sleep(Duration::from_millis(pause_ms));
                self.ended = Instant::now();
            }
            Calibrated::Ticking { us, .. }
                if self.wakes_at().is_some_and(|due| due <= Instant::now()) =>
            {
                burn(Duration::from_micros(us));
                self.ended = Instant::now();
            }
            _ => {}
        }
    }

    /// Returns the time at which the next tick is due.
    fn wakes_at(&self) -> Option<Instant> {
        match self.kind {
            Calibrated::Ticking { every_ms, .. } => {
                Some(self.ended + Duration::from_millis(every_ms))
            }
            _ => None,
        }
    }

    /// Returns how long a request that arrives now will take, including its wait in the queue.
    fn queued(&mut self, takes: Duration, now: Instant) -> Duration {
        let free_at = self.free_at.pop().map_or(now, |Reverse(free_at)| free_at);
        let ends = free_at.max(now) + takes;
        self.free_at.push(Reverse(ends));
        ends - now
    }
}

/// Returns the CPU time of this thread, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// Does arithmetic that takes the same time in each round, because each round waits for the one
/// before it. No round touches memory, because some processors learn to skip memory accesses after
/// a while. The first round waits for `x`, the result of earlier rounds, so that a processor
/// cannot overlap two calls.
fn work(x: u64, rounds: u64) -> u64 {
    let mut x = std::hint::black_box(x);
    for _ in 0..rounds {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(x >> 33);
    }
    std::hint::black_box(x)
}

/// Burns this much of the thread's CPU time.
fn burn(time: Duration) {
    let ends_ns = thread_cpu_ns() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
    while thread_cpu_ns() < ends_ns {
        work(1, 100);
    }
}

/// Returns true for about one process id in `one_in`. The results of consecutive ids look random.
fn is_chosen(process: u32, one_in: u64) -> bool {
    (u64::from(process).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).is_multiple_of(one_in)
}

/// Returns a random permutation of one cycle, so that a walk visits every place before it repeats
/// one. Source: Sattolo, "An algorithm to generate a random cyclic permutation", Information
/// Processing Letters 22, 1986. Every call with the same `places` returns the same permutation.
fn one_cycle(places: usize) -> Vec<u32> {
    let mut next: Vec<u32> = (0..).take(places).collect();
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    for last in (1..places).rev() {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        next.swap(last, (x >> 33) as usize % last);
    }
    next
}

/// The number of places in 10 MB.
const PLACES: usize = 10_000_000 / size_of::<u32>();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Reply;

    #[test]
    fn a_calibrated_server_is_parsed_from_names_and_numbers() {
        let parsed = |text: &str| text.parse::<CalibratedServer>();
        let bimodal = Calibrated::Bimodal { us: 0, slow_us: 50_000, one_in: 100 };
        let calling = Calibrated::Calling { count: 3 };
        let sum = parsed("bimodal:0:50000:100+calling:3");
        assert_eq!(sum, Ok(CalibratedServer(vec![bimodal, calling])));
        assert_eq!(parsed("queue:1:500"), parsed("queue:1:500:500:1"));
        for text in ["fixed", "fixed:", "erring:0", "bimodal:1:2", "queue:0:1", "quick:1", ""] {
            assert!(parsed(text).unwrap_err().to_string().starts_with(&format!("{text:?} is no")));
        }
    }

    #[test]
    fn a_queue_serves_in_order_of_arrival_with_the_worker_that_is_free_first() {
        let ms = Duration::from_millis;
        let mut server = Part::new("queue:2:10000".parse().unwrap());
        let began = Instant::now();
        let mut at = |after| server.queued(ms(10), began + after);
        assert_eq!([at(ms(0)), at(ms(1)), at(ms(2)), at(ms(3))], [10, 10, 18, 18].map(ms));
        assert_eq!(at(ms(50)), ms(10));
    }

    #[test]
    fn exactly_one_response_in_a_hundred_is_wrong() {
        let mut server = Server::new(&"erring:100".parse().unwrap());
        let request = Request { reply: Reply::Greeting, close: false, len: 1 };
        let wrong = (0..1000)
            .filter(|_| {
                let mut out = Vec::new();
                assert_eq!(server.respond(&request, &[], &mut out), Duration::ZERO);
                !out.ends_with(b"Hello, World!")
            })
            .count();
        assert_eq!(wrong, 10);
    }

    /// Returns the CPU time of each of `calls` calls, in nanoseconds.
    fn taken_ns(calls: usize, mut call: impl FnMut()) -> Vec<u64> {
        let mut taken_ns = || {
            let began_ns = thread_cpu_ns();
            call();
            thread_cpu_ns() - began_ns
        };
        (0..calls).map(|_| taken_ns()).collect()
    }

    #[test]
    fn exactly_one_request_in_so_many_has_a_burst() {
        let mut server = Server::new(&"bursting:10:3000".parse().unwrap());
        let taken_ns = taken_ns(100, || {
            let _ = server.spend(&mut []);
        });
        let bursts = taken_ns.iter().enumerate().filter(|(_, ns)| **ns >= 3_000_000);
        let at: Vec<usize> = bursts.map(|(at, _)| at + 1).collect();
        assert_eq!(at, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
    }

    #[test]
    fn a_burst_alone_costs_its_share_of_a_request() {
        let ns = "bursting:10:3000".parse::<CalibratedServer>().unwrap().alone_ns(10);
        assert!(ns >= 300_000.0, "{ns}");
    }

    #[test]
    fn a_tick_is_due_after_the_end_of_the_last_one() {
        let mut later = Server::new(&"ticking:600000:1000".parse().unwrap());
        assert!(taken_ns(1, || later.after_events())[0] < 1_000_000);
        let mut due = Server::new(&"ticking:0:1000".parse().unwrap());
        let first = due.wakes_at().unwrap();
        assert!(taken_ns(1, || due.after_events())[0] >= 1_000_000);
        assert!(due.wakes_at().unwrap() >= first + Duration::from_millis(1));
    }

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
