//! Servers whose true figures are known because they are made that way.
//!
//! Each is the ceiling's loop with one stated property. `prove` experiments them and holds what the
//! instrument says against what is true. One that holds answers back is woken just before the
//! moment, so it is late only where something else has its core.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::request::Request;
use crate::serve::{Behaviour, greet};

/// A stated property. Written `name:number[:number[:number]]`, as [`Known::from_str`] reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// `fixed:US`: every answer is held back for so many microseconds.
    Fixed {
        /// Microseconds.
        us: u64,
    },
    /// `bimodal:US:SLOW_US:ONE_IN`: one answer in `one_in` is held back for longer.
    Bimodal {
        /// Microseconds, usually.
        us: u64,
        /// Microseconds, of the slow ones.
        slow_us: u64,
        /// Each so-manyth is slow.
        one_in: u64,
    },
    /// `pausing:EVERY_MS:PAUSE_MS`: it stands still, again and again.
    Pausing {
        /// From the end of one pause to the start of the next, in milliseconds.
        every_ms: u64,
        /// How long each is, in milliseconds.
        pause_ms: u64,
    },
    /// `erring:ONE_IN`: each so-manyth answer has the wrong body, of the right length.
    Erring {
        /// Each so-manyth is wrong.
        one_in: u64,
    },
    /// `costing:NS`: every request costs so much CPU time, the kernel's part included.
    Costing {
        /// Nanoseconds of the thread's CPU time.
        ns: u64,
    },
    /// `working:ROUNDS`: every request costs so many rounds of arithmetic on top of the ceiling's.
    Working {
        /// Rounds; each is some cycles long.
        rounds: u64,
    },
    /// `walking:STEPS`: every request reads so many places of 10 MB of memory, one after the other,
    /// in an order that no prefetcher can guess.
    Walking {
        /// Reads; each waits for the one before it.
        steps: u64,
    },
}

/// A word that names no known server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no known server is called {0:?}; there are fixed:US, bimodal:US:SLOW_US:ONE_IN, \
     pausing:EVERY_MS:PAUSE_MS, erring:ONE_IN, costing:NS, working:ROUNDS and walking:STEPS"
)]
pub struct Unknown(String);

impl FromStr for Known {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let unknown = || Unknown(text.to_owned());
        let (name, rest) = text.split_once(':').ok_or_else(unknown)?;
        let numbers: Vec<u64> =
            rest.split(':').map(str::parse).collect::<Result<_, _>>().map_err(|_| unknown())?;
        match (name, numbers[..].as_ref()) {
            ("fixed", &[us]) => Ok(Self::Fixed { us }),
            ("bimodal", &[us, slow_us, one_in]) if one_in > 0 => {
                Ok(Self::Bimodal { us, slow_us, one_in })
            }
            ("pausing", &[every_ms, pause_ms]) => Ok(Self::Pausing { every_ms, pause_ms }),
            ("erring", &[one_in]) if one_in > 0 => Ok(Self::Erring { one_in }),
            ("costing", &[ns]) => Ok(Self::Costing { ns }),
            ("working", &[rounds]) => Ok(Self::Working { rounds }),
            ("walking", &[steps]) => Ok(Self::Walking { steps }),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Fixed { us } => write!(f, "fixed:{us}"),
            Self::Bimodal { us, slow_us, one_in } => write!(f, "bimodal:{us}:{slow_us}:{one_in}"),
            Self::Pausing { every_ms, pause_ms } => write!(f, "pausing:{every_ms}:{pause_ms}"),
            Self::Erring { one_in } => write!(f, "erring:{one_in}"),
            Self::Costing { ns } => write!(f, "costing:{ns}"),
            Self::Working { rounds } => write!(f, "working:{rounds}"),
            Self::Walking { steps } => write!(f, "walking:{steps}"),
        }
    }
}

/// A known server at work, in one thread.
#[derive(Debug)]
pub struct AtWork {
    known: Known,
    answered: u64,
    /// When the last pause ended.
    awake_since: Instant,
    /// The thread's CPU time when it began, in nanoseconds.
    cpu_began_ns: Option<u64>,
    /// What a walking server walks over: each place holds the next one. Empty in the others.
    places: Vec<u32>,
    /// The place that the last walk ended at.
    place: usize,
}

impl AtWork {
    /// A server with that property.
    #[must_use]
    pub fn new(known: Known) -> Self {
        let places = if let Known::Walking { .. } = known { one_cycle(PLACES) } else { Vec::new() };
        let awake_since = Instant::now();
        Self { known, answered: 0, awake_since, cpu_began_ns: None, places, place: 0 }
    }
}

impl Behaviour for AtWork {
    fn answer(&mut self, request: &Request, out: &mut Vec<u8>) -> Duration {
        self.answered += 1;
        greet(request, out);
        match self.known {
            Known::Fixed { us } => return Duration::from_micros(us),
            Known::Bimodal { us, slow_us, one_in } => {
                let slow = self.answered.is_multiple_of(one_in);
                return Duration::from_micros(if slow { slow_us } else { us });
            }
            Known::Erring { one_in } if self.answered.is_multiple_of(one_in) => {
                // The last byte of the body, so that only a check of the whole body finds it.
                if let Some(last) = out.last_mut() {
                    *last = b'?';
                }
            }
            Known::Working { rounds } => work(rounds),
            Known::Walking { steps } => {
                for _ in 0..steps {
                    self.place = self.places[self.place] as usize;
                }
                std::hint::black_box(self.place);
            }
            // Before each answer, and up to where all answers together should be: what sending
            // this one takes is a part of the next. All at once after a round of answers, it would
            // depend on the size of the round where a moment in between finds it.
            Known::Costing { ns } => {
                let began_ns = *self.cpu_began_ns.get_or_insert_with(thread_cpu_ns);
                while thread_cpu_ns() < began_ns + ns * self.answered {}
            }
            Known::Erring { .. } | Known::Pausing { .. } => {}
        }
        Duration::ZERO
    }

    fn round(&mut self) {
        if let Known::Pausing { every_ms, pause_ms } = self.known
            && self.awake_since.elapsed() >= Duration::from_millis(every_ms)
        {
            std::thread::sleep(Duration::from_millis(pause_ms));
            self.awake_since = Instant::now();
        }
    }

    /// Where a time is what is known.
    fn is_awake(&self) -> bool {
        matches!(self.known, Known::Fixed { .. } | Known::Bimodal { .. })
    }
}

fn thread_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// Arithmetic that takes the same time each round, whether there are few or many: each waits for
/// the one before it, and none touches memory, which some processors learn to pass by after a
/// while.
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
/// (Sattolo, "An algorithm to generate a random cyclic permutation", 1986). The same each time.
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
    use crate::request::Ask;

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
    fn a_known_server_reads_back_as_it_is_written() {
        for text in [
            "fixed:100",
            "bimodal:0:50000:100",
            "pausing:4000:1000",
            "erring:100",
            "costing:41200",
            "walking:1000",
        ] {
            assert_eq!(text.parse::<Known>().unwrap().to_string(), text);
        }
        for text in ["fixed", "fixed:", "erring:0", "bimodal:1:2", "quick:1"] {
            assert_eq!(text.parse::<Known>(), Err(Unknown(text.to_owned())));
        }
    }

    #[test]
    fn exactly_one_answer_in_a_hundred_is_wrong() {
        let mut server = AtWork::new(Known::Erring { one_in: 100 });
        let request = Request { ask: Ask::Get, close: false, len: 1 };
        let wrong = (0..1000)
            .filter(|_| {
                let mut out = Vec::new();
                assert_eq!(server.answer(&request, &mut out), Duration::ZERO);
                !out.ends_with(b"Hello, World!")
            })
            .count();
        assert_eq!(wrong, 10);
    }
}
