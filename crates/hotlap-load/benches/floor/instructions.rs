//! User and kernel instructions per request, on a machine whose clock counts them.

use super::generators::{self, Generator, Load};
use super::measure::{self, Run};
use super::server::Server;
use super::table::{self, figure, shown, spread};
use super::{Options, pin};

/// The results of one generator.
#[derive(Default)]
struct Ratios {
    totals: Vec<f64>,
    /// Requests per sleep, and per wait that it reports, asleep or not.
    sleeps: Vec<f64>,
    waits: Vec<f64>,
}

/// Must run in the emulated machine of `emulated.sh`, where 1 ns of CPU time is 1 instruction.
pub fn run(options: &Options) {
    let clock = clock_ns();
    assert!((0.99..1.01).contains(&clock), "1 instruction is {clock} ns: see emulated.sh");
    let seconds = options.seconds.unwrap_or(1);
    let rounds = options.rounds.unwrap_or(3);
    let connections = options.connections;
    let server = Server::start(options.body, options.streams);
    pin(1);
    let of = |seconds| {
        let load = Load { connections, seconds, body: options.body };
        generators::all(load, &server)
    };
    let (short, long) = (of(seconds), of(seconds * 3));
    let mut known: Vec<Ratios> = long.iter().map(|_| Ratios::default()).collect();
    let ran = |generator: &Generator| {
        let ran = measure::run(&[], generator, measure::limit_s(seconds * 3), &server);
        if !ran.is_ok {
            eprintln!("{} failed: {}", generator.name, ran.stderr.trim());
        }
        ran.is_ok.then_some(ran)
    };
    for round in 0..rounds {
        for offset in 0..long.len() {
            let at = (offset + round) % long.len();
            if let (Some(short), Some(long)) = (ran(&short[at]), ran(&long[at])) {
                known[at].add(&short, &long);
            }
        }
    }
    println!(
        "User and kernel instructions per request: {connections} connections, {} bytes, {rounds} \
         rounds, median (lowest–highest); a run of {seconds}·10⁹ instructions of all programs \
         together subtracted from one of {}·10⁹. An instruction takes {clock:.4} ns, by a loop of \
         known length.\n",
        options.body,
        seconds * 3,
    );
    let names: Vec<&str> = long.iter().map(|g| g.name).collect();
    print(&names, &known);
}

/// CPU time of an instruction, measured with a loop of two instructions; includes the kernel's work
/// meanwhile.
fn clock_ns() -> f64 {
    const TURNS: u64 = 100_000_000;
    let cpu_ns = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
    };
    let before = cpu_ns();
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "the number of instructions must be known")]
    // SAFETY: the loop decrements a register and touches nothing else.
    unsafe {
        std::arch::asm!("2: dec {0}", "jnz 2b", inout(reg) TURNS => _, options(nomem, nostack));
    }
    (cpu_ns() - before) / (2 * TURNS) as f64
}

impl Ratios {
    /// Adds the difference between a longer and a shorter run.
    fn add(&mut self, short: &Run, long: &Run) {
        let requests = long.requests - short.requests;
        let each = |of: fn(&Run) -> f64| (of(long) - of(short)) / requests;
        self.totals.push(1e3 * each(|ran| ran.cpu_us));
        self.sleeps.extend((long.sleeps > short.sleeps).then(|| 1.0 / each(|ran| ran.sleeps)));
        if long.printed("wakeups").is_some() {
            self.waits.push(1.0 / each(|ran| ran.printed("wakeups").unwrap_or_default()));
        }
    }

    fn middle(&self) -> Option<f64> {
        spread(&self.totals).map(|s| s.middle)
    }
}

fn print(names: &[&str], known: &[Ratios]) {
    let of = |name: &str| known[names.iter().position(|n| *n == name)?].middle();
    let rows: Vec<Vec<String>> = names
        .iter()
        .zip(known)
        .map(|(name, known)| {
            let ratio = |to: &str| figure(known.middle().zip(of(to)).map(|(a, b)| a / b), 3);
            vec![
                (*name).to_owned(),
                shown(&known.totals, 0),
                ratio("wrk"),
                ratio("gcannon"),
                ratio("bare loop"),
                shown(&known.sleeps, 1),
                shown(&known.waits, 1),
            ]
        })
        .collect();
    let head = [
        "",
        "user and kernel",
        "÷ wrk",
        "÷ gcannon",
        "÷ bare loop",
        "requests/sleep",
        "requests/wake-up",
    ];
    table::print(&head, &rows);
}
