//! The generator role: what an agent does that generates load.
//!
//! ```text
//! load      one of its loads
//! order     what is said
//! pauses    notices when the process does not run
//! ```

mod load;
pub(crate) mod order;
mod pauses;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use hotlap_servers::infer::infer;

use crate::clock::Clock;
use crate::serve::{Answer, Service, report};
use crate::server::reach;
use crate::together::together;
use load::Load;
use order::{
    AskStatus, Begin, Collect, Describe, End, GeneratorOrder, Hold, Join, LoadCall, OfLoad, Open,
    Pause, Prepare, ProbeServer, Reach, StopLoad,
};
pub use order::{Begun, Door, HostDescription, Joined, Probe, Probed, Status};
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
    fn keep(&mut self, load: Load) -> u64 {
        let id = self.next;
        self.next += 1;
        self.loads.insert(id, load);
        id
    }

    #[allow(clippy::unit_arg, reason = "the report of some calls is ()")]
    fn call(&mut self, id: u64, call: LoadCall) -> Answer {
        if let LoadCall::End(_) = call {
            let used = self.loads.remove(&id).map_or(0, Load::end);
            if self.loads.is_empty() {
                self.pauses = None;
            }
            return report::<End>(used);
        }
        let load = self.loads.get_mut(&id).ok_or("this load has ended")?;
        if let LoadCall::Begin(_) | LoadCall::Open(_) = call {
            self.pauses.get_or_insert_with(|| Pauses::watch(self.clock));
        }
        let pauses = self.pauses.as_ref();
        match call {
            LoadCall::Begin(Begin { at_ns }) => report::<Begin>(load.begin(at_ns)?),
            LoadCall::Open(Open { at_ns, length }) => report::<Open>(load.open(at_ns, length)?),
            LoadCall::Pause(Pause { limit }) => report::<Pause>(load.pause(limit)?),
            LoadCall::Collect(_) => report::<Collect>(load.collect(pauses)?),
            LoadCall::AskStatus(_) => report::<AskStatus>(load.status()?),
            LoadCall::StopLoad(_) | LoadCall::End(_) => report::<StopLoad>(load.stop()?),
            LoadCall::Join(_) => report::<Join>(load.join(pauses)?),
        }
    }
}

impl Service for Generator {
    type Orders = GeneratorOrder;

    fn carry_out(&mut self, order: GeneratorOrder) -> Answer {
        match order {
            GeneratorOrder::Describe(_) => report::<Describe>(HostDescription::here()),
            GeneratorOrder::Reach(Reach { door }) => report::<Reach>(door.reached()),
            GeneratorOrder::ProbeServer(ProbeServer { probe }) => {
                report::<ProbeServer>(probe.run()?)
            }
            GeneratorOrder::Prepare(Prepare { plan }) => {
                report::<Prepare>(self.keep(Load::prepare(&plan, self.clock)?))
            }
            GeneratorOrder::Hold(Hold { plan }) => {
                report::<Hold>(self.keep(Load::hold(&plan, self.clock)?))
            }
            GeneratorOrder::OfLoad(OfLoad { id, call }) => self.call(id, call),
        }
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
