//! The generator role: what an agent does that generates load.
//!
//! ```text
//! load      one of its loads
//! order     what is said
//! pauses    notices when the process does not run
//! ```

mod load;
mod order;
mod pauses;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use hotlap_servers::infer::infer;

use crate::clock::Clock;
use crate::serve::Service;
use crate::server::reach;
use crate::together::together;
use load::Load;
pub use order::{
    Begun, Door, GeneratorOrder, GeneratorReport, HostDescription, Joined, LoadCall, Probe, Probed,
    Status,
};
use pauses::Pauses;

/// Carries out the orders of a generator. It has any number of loads: those of several servers are
/// held at the same time, and are paused while the others send.
#[derive(Debug)]
pub struct Generator {
    clock: Clock,
    loads: BTreeMap<u64, Load>,
    /// The number of the next load.
    next: u64,
    /// Since the first window of any load.
    pauses: Option<Pauses>,
}

impl Generator {
    /// A generator whose times are those of this clock.
    pub fn new(clock: Clock) -> Self {
        Self { clock, loads: BTreeMap::new(), next: 0, pauses: None }
    }

    /// Keeps a load under a number.
    fn keep(&mut self, load: Load) -> GeneratorReport {
        let id = self.next;
        self.next += 1;
        self.loads.insert(id, load);
        GeneratorReport::Loading(id)
    }

    fn call(&mut self, id: u64, call: LoadCall) -> Result<GeneratorReport, String> {
        if let LoadCall::End = call {
            let used = self.loads.remove(&id).map_or(0, Load::end);
            if self.loads.is_empty() {
                self.pauses = None;
            }
            return Ok(GeneratorReport::Ended(used));
        }
        let load = self.loads.get_mut(&id).ok_or("this load has ended")?;
        if let LoadCall::Begin { .. } | LoadCall::Open { .. } = call {
            self.pauses.get_or_insert_with(|| Pauses::watch(self.clock));
        }
        let pauses = self.pauses.as_ref();
        Ok(match call {
            LoadCall::Begin { at_ns } => GeneratorReport::Begun(load.begin(at_ns)?),
            LoadCall::Open { at_ns, length } => GeneratorReport::Begun(load.open(at_ns, length)?),
            LoadCall::Pause { limit } => GeneratorReport::Paused(load.pause(limit)?),
            LoadCall::Collect => GeneratorReport::Joined(Box::new(load.collect(pauses)?)),
            LoadCall::Status => GeneratorReport::Status(load.status()?),
            LoadCall::Stop => {
                load.stop()?;
                GeneratorReport::Done
            }
            LoadCall::Join => GeneratorReport::Joined(Box::new(load.join(pauses)?)),
            LoadCall::End => GeneratorReport::Done,
        })
    }
}

impl Service for Generator {
    type Order = GeneratorOrder;

    fn carry_out(&mut self, order: GeneratorOrder) -> Result<GeneratorReport, String> {
        Ok(match order {
            GeneratorOrder::Describe => {
                GeneratorReport::Described(Box::new(HostDescription::here()))
            }
            GeneratorOrder::Reach(door) => GeneratorReport::Reached(door.reached()),
            GeneratorOrder::Probe(probe) => GeneratorReport::Probed(Box::new(probe.run()?)),
            GeneratorOrder::Prepare(plan) => self.keep(Load::prepare(&plan, self.clock)?),
            GeneratorOrder::Hold(plan) => self.keep(Load::hold(&plan, self.clock)?),
            GeneratorOrder::Load { id, call } => self.call(id, call)?,
        })
    }
}

impl Door {
    /// The addresses that are reached from here. All are tried at the same time.
    fn reached(&self) -> Vec<IpAddr> {
        let tries = |ip: &&IpAddr| reach::answers(SocketAddr::new(**ip, self.port), &self.secret);
        let tried = together(&self.addresses.iter().collect::<Vec<_>>(), tries);
        self.addresses.iter().zip(tried).filter(|(_, is)| *is).map(|(ip, _)| *ip).collect()
    }
}

impl Probe {
    fn run(&self) -> Result<Probed, String> {
        let inferred = infer(&self.target, &self.host, self.limit, &self.contract)?;
        let requests = inferred.contract.requests(&self.host, &inferred.answers);
        Ok(Probed { requests, notes: inferred.notes })
    }
}
