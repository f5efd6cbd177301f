//! Sampling events of a whole process tree, with a ring buffer for each core.
//!
//! An inherited event may be mapped only if it counts on a single core (perf_event_open(2),
//! *inherit*). So each attached thread has an event for each core that is online. A profile is
//! read only when a slice ends, so that reading costs the running server nothing.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

use perf_event::data::Record;
use perf_event::{Builder, Counter, Sampler};

use crate::cpus;
use crate::processes::{ProcessTree, Roots, threads};

/// The largest and the smallest size of a ring, in bytes. Smaller rings are tried if less memory
/// may be locked (`perf_event_mlock_kb`, 516 KiB for each core by default).
const LARGEST: usize = 1 << 20;
const SMALLEST: usize = 1 << 16;

/// The memory that all rings together may take, in bytes. This memory cannot be swapped out.
const ALL_RINGS: usize = 64 << 20;

/// The events of one kind.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    rings: Vec<Ring>,
}

/// The events of one core.
struct Ring {
    /// The first event, which has the ring.
    sampler: Sampler,
    /// The events of further threads, which write to the ring of the first event.
    others: Vec<Counter>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("events", &(1 + self.others.len())).finish()
    }
}

impl Rings {
    /// Attaches events, switched off, to these threads and to everything that the threads will
    /// start.
    ///
    /// # Errors
    /// The kernel refuses an event, or all of the threads have ended.
    pub(crate) fn open(threads: &[u32], builder: &Builder<'_>) -> io::Result<Self> {
        let cores = online()?;
        let mut bytes = (ALL_RINGS / cores.len().max(1)).clamp(SMALLEST, LARGEST);
        let mut rings = Vec::with_capacity(cores.len());
        for core in cores {
            let mut ring: Option<Ring> = None;
            for &thread in threads {
                let Some(event) = open(builder, thread, core)? else { continue };
                match &mut ring {
                    Some(ring) => ring.join(event)?,
                    None => ring = Ring::new(event, builder, thread, core, &mut bytes)?,
                }
            }
            rings.push(ring.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?);
        }
        Ok(Self { rings })
    }

    /// Switches the events on.
    ///
    /// # Errors
    /// The kernel cannot switch an event on. All events are off then.
    pub(crate) fn enable(&mut self) -> io::Result<()> {
        let enabled = self.events().try_for_each(Counter::enable);
        if enabled.is_err() {
            self.disable();
        }
        enabled
    }

    /// Switches the events off.
    pub(crate) fn disable(&mut self) {
        // If one event cannot be switched off, the others are still switched off.
        self.events().for_each(|event| _ = event.disable());
    }

    fn events(&mut self) -> impl Iterator<Item = &mut Counter> {
        self.rings.iter_mut().flat_map(|ring| {
            std::iter::once(ring.sampler.as_counter_mut()).chain(ring.others.iter_mut())
        })
    }

    /// Passes every record in the rings to `each`, and removes it. Returns the number of records
    /// that were lost because a ring was full.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Record<'_>)) -> u64 {
        let mut lost = 0;
        for ring in &mut self.rings {
            while let Some(record) = ring.sampler.next_record() {
                match record.parse_record() {
                    Ok(Record::Lost(record)) => lost += record.lost,
                    Ok(record) => each(record),
                    // A newer kernel may write records of an unknown kind.
                    Err(_) => {}
                }
            }
        }
        lost
    }
}

impl Ring {
    /// Maps a ring of at most `bytes`, which is lowered to the amount that may be locked. `None` if
    /// the thread has ended.
    fn new(
        event: Counter,
        builder: &Builder<'_>,
        thread: u32,
        core: usize,
        bytes: &mut usize,
    ) -> io::Result<Option<Self>> {
        let mut event = Some(event);
        while let Some(unmapped) = event {
            match unmapped.sampled(*bytes) {
                Ok(sampler) => return Ok(Some(Self { sampler, others: Vec::new() })),
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && *bytes > SMALLEST => {
                    *bytes /= 2;
                    event = open(builder, thread, core)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Makes another event of this core write to this ring.
    #[expect(unsafe_code, reason = "the library has no call for this request")]
    fn join(&mut self, event: Counter) -> io::Result<()> {
        // The value is _IO('$', 5), see perf_event_open(2), "perf_event ioctl calls".
        const SET_OUTPUT: libc::c_ulong = 0x2405;
        // SAFETY: both are open files, and the request takes a file instead of a pointer.
        let result =
            unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT as _, self.sampler.as_raw_fd()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        self.others.push(event);
        Ok(())
    }
}

/// Opens an event of one thread on one core. `None` if the thread has ended.
fn open(builder: &Builder<'_>, thread: u32, core: usize) -> io::Result<Option<Counter>> {
    let mut builder = builder.clone();
    builder.observe_pid(thread.cast_signed()).one_cpu(core).inherit(true).enabled(false);
    match builder.build() {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        event => event.map(Some),
    }
}

/// Returns the cores that are online.
fn online() -> io::Result<Vec<usize>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let unreadable = || io::Error::other(format!("{text:?} is not a list of cores"));
    cpus::parse(&text).ok_or_else(unreadable)
}

/// Returns the threads to attach an event to, so that all other threads inherit the event. The
/// result is the supervisor's main thread, which starts the server, or all threads of trees that
/// already run.
pub(crate) fn to_attach(roots: &Roots) -> Vec<u32> {
    if let Some(supervisor) = roots.supervisor {
        return vec![supervisor];
    }
    let mut tree = ProcessTree::new(roots.clone());
    let _ = tree.look();
    tree.pids().into_iter().flat_map(threads).collect()
}
