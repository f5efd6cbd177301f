//! How long the turns and laps of a load are, and what is sent before the window of each.
//!
//! A server that was stopped while others ran finds the caches full of their code and data. What
//! that costs depends on how much it touches: a small one is itself again after two milliseconds, a
//! runtime with a collector is not in twenty. Turns are short, so that what is compared lies close
//! together, but no server may cost much more in them than it did when nobody came between. All
//! servers of a load have turns of one length, or a server and its double would differ by it. Where
//! no turns are long enough, laps are driven in one piece, and those are long.

use std::collections::BTreeMap;
use std::time::Duration;

use super::seat::Between;

/// How long turns may be, the shortest first.
const LENGTHS: [Duration; 2] = [Duration::from_millis(12), Duration::from_millis(48)];

/// A turn has so many times the length of the mean ramp before it.
const RAMPS: u32 = 6;

/// A turn has at least so many mean service times in it.
const SERVICE_TIMES: u32 = 4;

/// Laps in one piece are at least so long where turns, or usual laps, are too short for a server,
/// and so much is sent before. Such a lap begins with new connections, and what they set up in the
/// server's memory takes as long as the caches.
pub(super) const LONG_LAP: Duration = Duration::from_millis(300);
const LONG_RAMP: Duration = Duration::from_millis(100);

/// How often all servers take a turn that is tried, there and back, at each length. A lap in one
/// piece is tried once, there and back.
const TRIES: u32 = 6;

/// Turns are too short for a server that costs more than so many times as much in them as in the
/// end of its warm-up, when it ran alone.
const DEARER: f64 = 1.1;

/// The turns and laps of one load.
#[derive(Debug)]
pub(super) struct Turns {
    /// How long turns are, and may become; none: there are none.
    lengths: &'static [Duration],
    /// Laps in one piece are long.
    is_long: bool,
    stage: Stage,
}

/// How far it is settled.
#[derive(Debug)]
enum Stage {
    Untried,
    Tried(BTreeMap<usize, Tried>),
    Settled,
}

/// What was tried on a server, and what a request cost it before, in nanoseconds.
#[derive(Debug, Default)]
struct Tried {
    driven: Between,
    warm_ns: f64,
    in_turns: bool,
}

impl Turns {
    /// Of laps of this length: one has two turns at least.
    pub(super) fn new(lap: Duration) -> Self {
        let fit = LENGTHS.partition_point(|length| *length * 2 <= lap);
        Self { lengths: &LENGTHS[..fit], is_long: false, stage: Stage::Untried }
    }

    /// How long the window of a turn is, for a server with this mean service time; none where laps
    /// are driven in one piece.
    pub(super) fn length(&self, service: Duration) -> Option<Duration> {
        self.lengths.first().map(|length| (*length).max(service * SERVICE_TIMES))
    }

    /// How long a lap is at least, and what is sent before one that is driven in one piece.
    pub(super) fn least(&self) -> (Duration, Duration) {
        if self.is_long { (LONG_LAP, LONG_RAMP) } else { (Duration::ZERO, Duration::ZERO) }
    }

    /// The ramp of the turn with this number. A server that answers all its connections at a time
    /// answers in steps, each a service time long or two. A stopped server goes on where it stood,
    /// so with ramps of one length the windows of a lap may all open at the same moment of its
    /// step, and then count the same part of one too much or too little. So ramps are spread over
    /// their mean and two service times. Spread evenly they would still favour some moments, unless
    /// they cover a whole number of steps; the mean of two even spreads has no edges for that.
    /// These are multiples of two numbers that keep no step with each other (Roberts, "The
    /// unreasonable effectiveness of quasirandom sequences", 2018: of the plastic ratio).
    pub(super) fn ramp(&self, turn: u32, service: Duration) -> Duration {
        const STEPS: [f64; 2] = [0.754_877_666_246_692_8, 0.569_840_290_998_053_3];
        let place: f64 = STEPS.iter().map(|step| (f64::from(turn) * step).fract() / 2.0).sum();
        let mean = self.lengths.first().copied().unwrap_or_default() / RAMPS;
        mean / 2 + (mean + service * 2).mul_f64(place)
    }

    /// How often all servers are to be tried now, there and back; not at all once it is settled.
    /// Asked again when they are driven, it looks at them: all become longer if one needs it.
    pub(super) fn tries(&mut self) -> u32 {
        if let Stage::Tried(servers) = &self.stage {
            let mut dearer = servers.values().filter(|tried| tried.is_dearer()).peekable();
            if dearer.peek().is_none() {
                self.stage = Stage::Settled;
            } else if self.lengths.len() > 1 && dearer.all(|tried| tried.in_turns) {
                self.lengths = &self.lengths[1..];
            } else {
                (self.lengths, self.is_long, self.stage) = (&[], true, Stage::Settled);
            }
        }
        if matches!(self.stage, Stage::Settled) {
            return 0;
        }
        self.stage = Stage::Tried(BTreeMap::new());
        TRIES
    }

    /// A server that costs `warm_ns` a request when it runs alone has driven a turn, or a lap in
    /// one piece.
    pub(super) fn driven(&mut self, entrant: usize, run: &Between, warm_ns: f64, in_turns: bool) {
        if let Stage::Tried(servers) = &mut self.stage {
            let tried = servers.entry(entrant).or_default();
            tried.driven.add(run);
            (tried.warm_ns, tried.in_turns) = (warm_ns, in_turns);
        }
    }
}

impl Tried {
    fn is_dearer(&self) -> bool {
        let Between { cpu_ns, requests, .. } = self.driven;
        requests > 0 && cpu_ns as f64 > DEARER * self.warm_ns * requests as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAP: Duration = Duration::from_millis(100);

    /// All turns of a lap began their windows at the same moment of a server's step, or most did.
    #[test]
    fn windows_open_at_all_moments_of_a_step() {
        // How much the moments favour one side of the step, 0 to 1.
        let favour = |service_us: u64, step_us: f64| {
            let service = Duration::from_micros(service_us);
            let angle = |turn| {
                let ramp = Turns::new(LAP).ramp(turn, service);
                std::f64::consts::TAU * ramp.as_secs_f64() * 1e6 / step_us
            };
            let sum = |part: fn(f64) -> f64| (0..40).map(|n| part(angle(n))).sum::<f64>() / 40.0;
            sum(f64::cos).hypot(sum(f64::sin))
        };
        for service_us in [160, 320, 330, 450, 700, 1_000, 5_000, 64_000] {
            let found = favour(service_us, service_us as f64);
            assert!(found < 0.06, "{found} with steps of {service_us} µs");
        }
        for service_us in [320, 330, 450, 1_000] {
            let found = favour(service_us, 2.0 * service_us as f64);
            assert!(found < 0.06, "{found} with steps of two times {service_us} µs");
        }
    }

    #[test]
    fn a_ramp_is_neither_skipped_nor_long() {
        let (turns, service) = (Turns::new(LAP), Duration::from_millis(10));
        let mean = LENGTHS[0] / RAMPS;
        for turn in 0..100 {
            let ramp = turns.ramp(turn, service);
            assert!(ramp >= mean / 2 && ramp < mean * 3 / 2 + service * 2, "{ramp:?}");
        }
    }

    /// What is settled, turns and the least lap in milliseconds, where servers cost that much in
    /// turns of that length, or in laps in one piece: 0.
    fn settled(lap: Duration, costs: impl Fn(u128) -> Vec<f64>) -> (u128, u128) {
        let mut turns = Turns::new(lap);
        for _ in 0..10 {
            let tries = turns.tries();
            let ms = turns.length(Duration::ZERO).map_or(0, |length| length.as_millis());
            if tries == 0 {
                return (ms, turns.least().0.as_millis());
            }
            for (entrant, cost) in costs(ms).into_iter().enumerate() {
                for n in 0..2 * tries {
                    let noise = 1.0 + 0.2 * (f64::from(n) - 5.5) / 5.5;
                    let cpu_ns = (cost * noise * 1e6) as u64;
                    let turn = Between { requests: 1_000, cpu_ns, ..Between::default() };
                    turns.driven(entrant, &turn, 1e3, ms > 0);
                }
            }
        }
        panic!("it never ends");
    }

    /// With turns of 10 ms for all, Go's net/http was measured 30 % too dear, and Node by half;
    /// with laps of 0.1 s in one piece, among eleven servers, Node by a third.
    #[test]
    fn turns_are_as_long_as_the_slowest_to_recover_needs_them() {
        assert_eq!(settled(LAP, |_| vec![1.0, 1.05]), (12, 0));
        assert_eq!(settled(LAP, |_| vec![]), (12, 0), "nobody was seen");
        assert_eq!(settled(LAP, |ms| vec![1.0, if ms < 20 { 1.3 } else { 1.05 }]), (48, 0));
        assert_eq!(settled(LAP, |_| vec![1.5, 1.0]), (0, 300), "then they are driven in one piece");
        assert_eq!(settled(LAP / 2, |_| vec![1.5]), (0, 300));
        assert_eq!(settled(LAP / 2, |_| vec![1.0]), (12, 0));
        assert_eq!(settled(LAP / 5, |_| vec![1.0]), (0, 0), "a lap has two of them at least");
        assert_eq!(settled(LAP / 5, |_| vec![1.5]), (0, 300));
    }

    #[test]
    fn longer_turns_are_no_help_to_a_server_that_takes_none() {
        let mut turns = Turns::new(LAP);
        assert_eq!(turns.tries(), TRIES);
        let run = |cpu_ns| Between { requests: 1_000, cpu_ns, ..Between::default() };
        turns.driven(0, &run(1_300_000), 1e3, true);
        turns.driven(1, &run(1_300_000), 1e3, false);
        assert_eq!(turns.tries(), 0);
        assert_eq!((turns.length(Duration::ZERO), turns.least()), (None, (LONG_LAP, LONG_RAMP)));
    }

    #[test]
    fn a_turn_has_some_service_times_in_it() {
        let turns = Turns::new(LAP);
        assert_eq!(turns.length(Duration::from_micros(300)), Some(LENGTHS[0]));
        let slow = turns.length(Duration::from_millis(20));
        assert_eq!(slow, Some(Duration::from_millis(80)));
    }
}
