//! How long the turns and laps of a load are, and what is sent before the window of each.
//!
//! A server that was stopped while others ran finds the caches full of their code and data. What
//! that costs depends on how much it touches: a small one is itself again after two milliseconds, a
//! runtime with a collector is not in twenty. Turns are short, so that what is compared lies close
//! together, but no server may cost much more in them than it did when nobody came between. All
//! turns of a load have one length. Those for whom no turns are long enough drive laps in one
//! piece, and long ones, and so do those that are like them, since two versions of one server would
//! differ by it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::seat::Between;

/// How long a turn may be, and what is sent before it on average.
#[derive(Debug, Clone, Copy)]
struct Length {
    window: Duration,
    ramp: Duration,
}

/// The turns that there are, the shortest first.
const LENGTHS: [Length; 2] = [
    Length { window: Duration::from_millis(12), ramp: Duration::from_millis(2) },
    Length { window: Duration::from_millis(48), ramp: Duration::from_millis(16) },
];

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

/// Two servers are alike if one costs at most so many times as much as the other when it runs
/// alone, and their turns make them dearer by as much, but for this share: more than what is tried
/// scatters by.
const ALIKE: (f64, f64) = (1.25, 0.15);

/// The turns and laps of one load. Servers are told apart by program: the reference and its double
/// are one.
#[derive(Debug)]
pub(super) struct Turns {
    /// How long turns are, and may become; none: there are none.
    lengths: &'static [Length],
    /// Programs for which no turns are long enough.
    in_pieces: BTreeSet<usize>,
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

/// What was tried on a program.
#[derive(Debug, Default)]
struct Tried {
    driven: Between,
    /// What that would have cost before, when it ran alone, in nanoseconds.
    alone_ns: f64,
    in_turns: bool,
}

impl Turns {
    /// Of laps of this length: one has two turns at least.
    pub(super) fn new(lap: Duration) -> Self {
        let fit = LENGTHS.partition_point(|length| length.window * 2 <= lap);
        let (lengths, in_pieces) = (&LENGTHS[..fit], BTreeSet::new());
        Self { lengths, in_pieces, is_long: false, stage: Stage::Untried }
    }

    /// How long the window of a turn of a program is that has this mean service time; none where
    /// its laps are driven in one piece.
    pub(super) fn length(&self, program: usize, service: Duration) -> Option<Duration> {
        let length = self.lengths.first().filter(|_| !self.in_pieces.contains(&program))?;
        Some(length.window.max(service * SERVICE_TIMES))
    }

    /// How long a lap in one piece is at least, and what is sent before it.
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
        let mean = self.lengths.first().map_or(Duration::ZERO, |length| length.ramp);
        mean / 2 + (mean + service * 2).mul_f64(place)
    }

    /// How often all servers are to be tried now, there and back; not at all once it is settled.
    /// Asked again when they are driven, it looks at them: all turns become longer if one server
    /// needs that, and those that would need even longer ones take none.
    pub(super) fn tries(&mut self) -> u32 {
        if let Stage::Tried(servers) = &self.stage {
            let dearer = |in_turns| {
                servers
                    .values()
                    .filter(move |tried| tried.in_turns == in_turns && tried.is_dearer())
            };
            self.is_long |= dearer(false).next().is_some();
            if dearer(true).next().is_none() {
                self.stage = Stage::Settled;
            } else if self.lengths.len() > 1 {
                self.lengths = &self.lengths[1..];
            } else {
                let alike = |tried: &Tried| dearer(true).any(|other| tried.is_like(other));
                let some = servers.iter().filter(|(_, tried)| tried.in_turns && alike(tried));
                self.in_pieces = some.map(|(&program, _)| program).collect();
                (self.is_long, self.stage) = (true, Stage::Settled);
            }
        }
        if matches!(self.stage, Stage::Settled) {
            return 0;
        }
        self.stage = Stage::Tried(BTreeMap::new());
        TRIES
    }

    /// A program that costs `alone_ns` a request when it runs alone has driven a turn, or a lap in
    /// one piece.
    pub(super) fn driven(&mut self, program: usize, run: &Between, alone_ns: f64, in_turns: bool) {
        if let Stage::Tried(servers) = &mut self.stage {
            let tried = servers.entry(program).or_default();
            tried.driven.add(run);
            tried.alone_ns += alone_ns * run.requests as f64;
            tried.in_turns = in_turns;
        }
    }
}

impl Tried {
    /// What it costs of what it costs alone.
    fn ratio(&self) -> f64 {
        if self.alone_ns > 0.0 { self.driven.cpu_ns as f64 / self.alone_ns } else { 1.0 }
    }

    fn is_dearer(&self) -> bool {
        self.ratio() > DEARER
    }

    fn is_like(&self, other: &Self) -> bool {
        let alone = |tried: &Self| tried.alone_ns / tried.driven.requests.max(1) as f64;
        let (times, share) = ALIKE;
        (alone(self) / alone(other)).ln().abs() <= times.ln()
            && (self.ratio() - other.ratio()).abs() <= share
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
        let mean = LENGTHS[0].ramp;
        for turn in 0..100 {
            let ramp = turns.ramp(turn, service);
            assert!(ramp >= mean / 2 && ramp < mean * 3 / 2 + service * 2, "{ramp:?}");
        }
    }

    /// What is settled, turns of each server and the least lap in one piece in milliseconds, where
    /// servers cost that much alone and so many times that in turns of a length.
    fn settled(lap: Duration, servers: impl Fn(u128) -> Vec<(f64, f64)>) -> (Vec<u128>, u128) {
        let mut turns = Turns::new(lap);
        let ms = |length: Option<Duration>| length.map_or(0, |length| length.as_millis());
        for _ in 0..10 {
            let tries = turns.tries();
            let of = |program| ms(turns.length(program, Duration::ZERO));
            let servers = servers(of(usize::MAX));
            if tries == 0 {
                let all = (0..servers.len()).map(of).collect();
                return (all, turns.least().0.as_millis());
            }
            let in_turns = of(usize::MAX) > 0;
            for (program, (alone, times)) in servers.into_iter().enumerate() {
                for n in 0..2 * tries {
                    let noise = 1.0 + 0.2 * (f64::from(n) - 5.5) / 5.5;
                    let cpu_ns = (alone * times * noise * 1e6) as u64;
                    let turn = Between { requests: 1_000, cpu_ns, ..Between::default() };
                    turns.driven(program, &turn, alone * 1e3, in_turns);
                }
            }
        }
        panic!("it never ends");
    }

    /// With turns of 10 ms for all, Go's net/http was measured 30 % too dear, and Node by half;
    /// with laps of 0.1 s in one piece, among eleven servers, Node by a third.
    #[test]
    fn turns_are_as_long_as_the_slowest_to_recover_needs_them() {
        let slow = |ms| vec![(4.0, 1.0), (8.0, if ms < 20 { 1.3 } else { 1.05 })];
        assert_eq!(settled(LAP, |_| vec![(4.0, 1.0), (8.0, 1.05)]), (vec![12, 12], 0));
        assert_eq!(settled(LAP, |_| vec![]), (vec![], 0), "nobody was seen");
        assert_eq!(settled(LAP, slow), (vec![48, 48], 0));
        assert_eq!(settled(LAP, |_| vec![(4.0, 1.5), (8.0, 1.0)]), (vec![0, 48], 300));
        assert_eq!(settled(LAP / 2, slow), (vec![12, 0], 300), "a lap has two of them at least");
        assert_eq!(settled(LAP / 5, |_| vec![(4.0, 1.0)]), (vec![0], 0));
        assert_eq!(settled(LAP / 5, |_| vec![(4.0, 1.5)]), (vec![0], 300));
    }

    /// One in turns and the other in one piece, they would differ by what the turns cost.
    #[test]
    fn two_versions_of_one_server_are_driven_alike() {
        let settled = |servers: [(f64, f64); 3]| settled(LAP, |_| servers.to_vec()).0;
        assert_eq!(settled([(8.0, 1.13), (8.3, 1.01), (4.0, 1.02)]), [0, 0, 48]);
        assert_eq!(settled([(8.0, 1.13), (8.3, 0.97), (8.0, 1.30)]), [0, 48, 0]);
        assert_eq!(settled([(8.0, 1.13), (11.0, 1.09), (6.0, 1.09)]), [0, 48, 48]);
    }

    #[test]
    fn a_server_that_takes_no_turns_makes_none_longer() {
        let mut turns = Turns::new(LAP);
        assert_eq!(turns.tries(), TRIES);
        let run = |cpu_ns| Between { requests: 1_000, cpu_ns, ..Between::default() };
        turns.driven(0, &run(1_000_000), 1e3, true);
        turns.driven(1, &run(1_300_000), 1e3, false);
        assert_eq!(turns.tries(), 0);
        assert_eq!(turns.length(0, Duration::ZERO), Some(LENGTHS[0].window));
        assert_eq!(turns.least(), (LONG_LAP, LONG_RAMP));
    }

    #[test]
    fn a_turn_has_some_service_times_in_it() {
        let turns = Turns::new(LAP);
        assert_eq!(turns.length(0, Duration::from_micros(300)), Some(LENGTHS[0].window));
        let slow = turns.length(0, Duration::from_millis(20));
        assert_eq!(slow, Some(Duration::from_millis(80)));
    }
}
