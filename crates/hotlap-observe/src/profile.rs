//! Makes a CPU profile by sampling.
//!
//! The clock is the kernel's `cpu-clock` event, which needs no PMU. A high-resolution timer runs
//! while a thread is on a core, and pauses while the thread is off the core. So samples come at
//! even intervals of each thread's CPU time, even if the thread runs only briefly at a time. The
//! timer cannot interrupt a section of the kernel with interrupts off. The time of such a section
//! appears at the instruction that switches interrupts on again. [`Profile::stack`] attributes this
//! time to the caller.
//!
//! Callers are found by frame pointers. The caller of a function that keeps no frame is found by
//! the word on top of the stack ([`crate::call`]). In code compiled without frame pointers, only
//! the leaf is reliable. Callers that are not in executable memory are left out.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag};

use crate::functions::kernel;
use crate::observation::{Device, Frame, Observation, ObserveError, Profile, Stack, refusal};
use crate::processes::Roots;
use crate::rings::{Rings, to_attach};
use crate::symbols::Symbols;

const WHAT: &str = "a CPU profile";

/// The CPU time between two samples of one thread, in nanoseconds. The period does not divide a
/// timer tick (1, 3⅓, 4 or 10 ms), so work at ticks is sampled as often as other work.
///
/// Sampling costs CPU time: 4% more for a server that takes 6 µs per request (`observe`, a bench
/// of `hotlap-servers`).
const PERIOD_NS: u64 = 733_000;

/// The largest number of frames of a stack that are recorded. A sample takes 8 bytes for each
/// frame.
const DEEPEST: u16 = 100;

/// The number of bytes of the stack memory that are recorded, enough for the word on top.
const STACK: u32 = 8;

/// The markers in a stack before addresses of the kernel and before addresses of the program, and
/// the lowest of all markers. The markers are defined by `enum perf_callchain_context` in
/// include/uapi/linux/perf_event.h.
const KERNEL: u64 = -128_i64 as u64;
const USER: u64 = -512_i64 as u64;
const FIRST_MARKER: u64 = -4095_i64 as u64;

/// The instrument that samples a server's stacks.
#[derive(Debug)]
pub(crate) struct Profiler {
    rings: Rings,
    /// The supervisor, which starts the server but is not part of it.
    supervisor: Option<u32>,
    symbols: Symbols,
    /// The reason why the kernel's part is missing, if it is missing.
    user_only: Option<ObserveError>,
    /// The number of samples by process and stack.
    seen: HashMap<Sampled, u64>,
    /// The names of processes that were sampled.
    names: BTreeMap<u32, String>,
    lost: u64,
}

/// The process and the stack of a sample.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sampled {
    pid: u32,
    /// The addresses of the stack, innermost first, with markers between the parts of the stack.
    chain: Vec<u64>,
    /// The word on top of the stack in user mode, if this word is an address of code.
    on_top: Option<u64>,
}

impl Profiler {
    /// Attaches the sampling clock, switched off.
    pub(crate) fn open(roots: &Roots) -> Result<Self, ObserveError> {
        let threads = to_attach(roots);
        let mut clock = Builder::new(Software::CPU_CLOCK);
        clock.sample_period(PERIOD_NS).sample_max_stack(DEEPEST);
        clock.sample(SampleFlag::TID | SampleFlag::CALLCHAIN | SampleFlag::STACK_USER);
        clock.sample_stack_user(STACK).include_kernel();
        let (rings, user_only) = match Rings::open(&threads, &clock) {
            Ok(rings) => (rings, None),
            Err(error) => {
                clock.exclude_kernel(true);
                let rings = Rings::open(&threads, &clock).map_err(|error| refusal(WHAT, &error))?;
                (rings, Some(refusal("CPU time in the kernel", &error)))
            }
        };
        Ok(Self {
            rings,
            symbols: Symbols::new(roots.supervisor.is_some()),
            supervisor: roots.supervisor,
            user_only,
            seen: HashMap::new(),
            names: BTreeMap::new(),
            lost: 0,
        })
    }

    /// Moves the samples from the rings to `seen`.
    fn drain(&mut self) {
        let (seen, names, symbols) = (&mut self.seen, &mut self.names, &mut self.symbols);
        let supervisor = self.supervisor;
        self.lost += self.rings.drain(|record| {
            let Record::Sample(sample) = record else { return };
            let (Some(pid), Some(chain)) = (sample.pid(), sample.callchain()) else { return };
            if Some(pid) == supervisor {
                return;
            }
            // Read the name now, because the process may have ended by the time symbols are read.
            names.entry(pid).or_insert_with(|| {
                symbols.remember(pid);
                let name = fs::read_to_string(format!("/proc/{pid}/comm"));
                name.map_or_else(|_| format!("process {pid}"), |name| name.trim_end().to_owned())
            });
            let word = sample.stack_user().and_then(|stack| stack.try_into().ok());
            let on_top = word.map(u64::from_ne_bytes).filter(|&word| symbols.is_code(pid, word));
            let chain = chain.to_vec();
            *seen.entry(Sampled { pid, chain, on_top }).or_insert(0) += 1;
        });
    }
}

impl Device for Profiler {
    fn enable(&mut self) -> Result<(), ObserveError> {
        self.rings.enable().map_err(|error| refusal(WHAT, &error))
    }

    fn disable(&mut self) {
        self.rings.disable();
        self.drain();
    }

    fn take(&mut self) -> Result<Observation, ObserveError> {
        let mut fold = Fold::default();
        self.symbols.refresh(self.names.keys().copied());
        for (Sampled { pid, mut chain, on_top }, samples) in self.seen.drain() {
            if let Some((after, returns_to)) = skipped_caller(&chain, on_top)
                && self.symbols.calls(pid, returns_to, chain[after - 1])
            {
                chain.insert(after, returns_to);
            }
            let frames = frames(&chain, |address| self.symbols.frame(pid, address));
            fold.add(self.names[&pid].clone(), frames, samples);
        }
        self.names.clear();
        let lost = std::mem::take(&mut self.lost);
        Ok(Observation::Profile(fold.into_profile(PERIOD_NS, lost)))
    }

    fn limits(&self) -> Vec<ObserveError> {
        let mut limits: Vec<ObserveError> = self.user_only.clone().into_iter().collect();
        if self.user_only.is_none() && !kernel().is_readable() {
            limits.push(ObserveError {
                what: "names of kernel functions".into(),
                why: "the kernel hides the functions' addresses (kernel.kptr_restrict)".to_owned(),
                remedy: "show them with: sudo sysctl kernel.kptr_restrict=0, or run hotlap as root"
                    .to_owned(),
            });
        }
        if self.symbols.is_unnamed() {
            limits.push(ObserveError {
                what: "names of functions that the server's runtime compiles".into(),
                why: "the runtime does not list the functions in a perf map".to_owned(),
                remedy: "start the runtime with its flags for a perf map (in the catalogue: \
                         [explain] env in server.toml)"
                    .to_owned(),
            });
        }
        limits
    }
}

/// Returns the place in a stack where the caller that frame pointers skip may belong, and the
/// address in this caller.
fn skipped_caller(chain: &[u64], on_top: Option<u64>) -> Option<(usize, u64)> {
    let user = chain.iter().position(|&address| address == USER)?;
    let (leaf, next) = (chain.get(user + 1)?, chain.get(user + 2));
    let on_top = on_top.filter(|on_top| Some(on_top) != next)?;
    (*leaf < FIRST_MARKER).then_some((user + 2, on_top))
}

/// Returns the frames of a stack, outermost first, with the kernel's frames last.
///
/// Every address except the first of each part is the address to which a call returns, so the call
/// itself is before this address.
fn frames(chain: &[u64], mut user: impl FnMut(u64) -> Option<Frame>) -> Vec<Frame> {
    let (mut of_kernel, mut of_user) = (Vec::new(), Vec::new());
    let (mut is_kernel, mut is_leaf) = (false, true);
    for &address in chain {
        if address >= FIRST_MARKER {
            (is_kernel, is_leaf) = (address == KERNEL, true);
            continue;
        }
        let address = if is_leaf { address } else { address.wrapping_sub(1) };
        is_leaf = false;
        if is_kernel {
            of_kernel.push(kernel().frame(address));
        } else {
            of_user.extend(user(address));
        }
    }
    let mut frames: Vec<Frame> =
        of_user.into_iter().rev().chain(of_kernel.into_iter().rev()).collect();
    // Functions without a name that call each other become one frame.
    frames.dedup_by(|one, other| one == other && one.function.starts_with('['));
    frames
}

/// A collection of stacks in which equal frames and stacks are merged.
#[derive(Debug, Default)]
struct Fold {
    frames: HashMap<Frame, u32>,
    stacks: BTreeMap<(String, Vec<u32>), u64>,
}

impl Fold {
    fn add(&mut self, process: String, frames: Vec<Frame>, samples: u64) {
        let mut index = |frame| {
            let next = self.frames.len() as u32;
            *self.frames.entry(frame).or_insert(next)
        };
        let frames = frames.into_iter().map(&mut index).collect();
        *self.stacks.entry((process, frames)).or_insert(0) += samples;
    }

    fn into_profile(self, period_ns: u64, lost: u64) -> Profile {
        let mut frames: Vec<(u32, Frame)> =
            self.frames.into_iter().map(|(frame, at)| (at, frame)).collect();
        frames.sort_unstable_by_key(|(at, _)| *at);
        let stack = |((process, frames), samples)| Stack { process, frames, samples };
        Profile {
            period_ns,
            lost,
            frames: frames.into_iter().map(|(_, frame)| frame).collect(),
            stacks: self.stacks.into_iter().map(stack).collect(),
        }
    }
}
