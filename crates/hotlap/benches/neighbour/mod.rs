//! A busy neighbour on the same cores. The neighbour is a separate process, which a benchmark
//! starts from its own binary.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hotlap_observe::cpus;

/// Turns this process into the neighbour if it was started as one.
pub fn become_one(args: &[String]) {
    if let [word, seed] = args
        && word == "as-neighbour"
    {
        run(seed.parse().expect("a seed"));
    }
}

/// A process that takes a random share of every core, in bursts, until it is ended.
pub struct Neighbour(Child);

impl Neighbour {
    /// Starts a neighbour. A neighbour with the same seed takes the same shares.
    pub fn start(seed: u64) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["as-neighbour", &seed.to_string()]).stdin(Stdio::piped());
        Self(command.spawn().expect("a neighbour"))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes a share of every core in bursts of some milliseconds. The share changes every second or
/// so, to a random value between 0 and 90%. The process ends when its parent is gone.
fn run(seed: u64) -> ! {
    let cpus = cpus::allowed().expect("cores");
    for (n, cpu) in cpus.into_iter().enumerate() {
        std::thread::spawn(move || {
            let _ = cpus::pin(&[cpu]);
            let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(n as u64));
            loop {
                let share = 0.9 * random.next();
                let until = Instant::now() + Duration::from_secs_f64(0.3 + 2.0 * random.next());
                while Instant::now() < until {
                    let period = Duration::from_secs_f64(0.005 + 0.095 * random.next());
                    let burst = Instant::now() + period.mul_f64(share);
                    while Instant::now() < burst {
                        (0..1_000_u64).for_each(|i| _ = std::hint::black_box(i.wrapping_mul(i)));
                    }
                    std::thread::sleep(period.mul_f64(1.0 - share));
                }
            }
        });
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0)
}

/// A generator of seeded numbers from 0 to 1 (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
