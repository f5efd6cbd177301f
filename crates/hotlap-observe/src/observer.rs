//! The instruments that observe one server.

#[cfg(target_os = "linux")]
use crate::events::EventCounts;
use crate::observation::{Device, Instrument, Observation, ObserveError};
use crate::processes::Roots;
#[cfg(target_os = "linux")]
use crate::profile::Profiler;
#[cfg(target_os = "linux")]
use crate::system_calls::SystemCalls;

/// An instrument, or the reason why it cannot be used.
type Attached = Result<Box<dyn Device>, ObserveError>;

/// The instruments of one server, off until an observation begins.
#[derive(Debug)]
pub struct Observer {
    devices: Vec<(Instrument, Attached)>,
    on: Option<Instrument>,
}

impl Observer {
    /// Attaches instruments to the processes of a server. This function never fails.
    /// [`Observer::instruments`] reports each instrument that cannot be used.
    pub fn open(roots: &Roots) -> Self {
        Self { devices: attach(roots), on: None }
    }

    /// Returns the usable instruments, and everything that is missing, each with a remedy. The
    /// second list has the other instruments, and what a usable instrument cannot see or sees only
    /// at a cost. For example, a profile of user mode alone lacks the kernel's part.
    pub fn instruments(&self) -> (Vec<Instrument>, Vec<ObserveError>) {
        let (mut usable, mut missing, mut limits) = (Vec::new(), Vec::new(), Vec::new());
        for (instrument, device) in &self.devices {
            match device {
                Ok(device) => {
                    usable.push(*instrument);
                    limits.extend(device.limits());
                }
                Err(why) => missing.push(why.clone()),
            }
        }
        missing.extend(limits);
        (usable, missing)
    }

    /// Switches an instrument on at the beginning of a slice, and any other instrument off. The
    /// server must be frozen or idle.
    ///
    /// # Errors
    /// The instrument cannot be used, or the server has ended. All instruments are off then.
    pub fn enable(&mut self, instrument: Instrument) -> Result<(), ObserveError> {
        self.disable();
        self.device(instrument)?.enable()?;
        self.on = Some(instrument);
        Ok(())
    }

    /// Switches all instruments off, at the end of a slice. The server must be frozen or idle.
    pub fn disable(&mut self) {
        if let Some(on) = self.on.take()
            && let Ok(device) = self.device(on)
        {
            device.disable();
        }
    }

    /// Returns everything that an instrument saw since the last call, usually in one lap. This
    /// call reads symbols, so make it outside of slices, while the server runs and is not frozen.
    ///
    /// # Errors
    /// The instrument cannot be used.
    pub fn take(&mut self, instrument: Instrument) -> Result<Observation, ObserveError> {
        self.disable();
        self.device(instrument)?.take()
    }

    fn device(&mut self, instrument: Instrument) -> Result<&mut Box<dyn Device>, ObserveError> {
        let found = self.devices.iter_mut().find(|(one, _)| *one == instrument);
        match found {
            Some((_, Ok(device))) => Ok(device),
            Some((_, Err(error))) => Err(error.clone()),
            None => Err(ObserveError {
                what: "the server".into(),
                why: "instruments work on Linux only".to_owned(),
                remedy: "run hotlap on Linux".to_owned(),
            }),
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.disable();
    }
}

#[cfg(target_os = "linux")]
fn attach(roots: &Roots) -> Vec<(Instrument, Attached)> {
    fn boxed<D: Device + 'static>(device: Result<D, ObserveError>) -> Attached {
        device.map(|device| Box::new(device) as Box<dyn Device>)
    }
    vec![
        (Instrument::Profile, boxed(Profiler::open(roots))),
        (Instrument::Events, boxed(Ok(EventCounts::open(roots)))),
        (Instrument::SystemCalls, boxed(SystemCalls::open(roots))),
    ]
}

/// Returns no instruments, because nothing can be observed on this system.
#[cfg(not(target_os = "linux"))]
fn attach(_roots: &Roots) -> Vec<(Instrument, Attached)> {
    Vec::new()
}
