//! This machine as a host of servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hotlap_load::plan::Target;

use super::local::LocalServer;
use super::server::{Found, LogWait, RunningServer, ServerHost, StartOrder, Up};
use super::start::Starting;
use crate::database::Database;
use crate::launch::ServerFailure;
use crate::machine::Network;
use crate::process::Supervisor;

/// The host of servers on this machine.
#[derive(Debug, Clone)]
pub struct LocalHost {
    /// The command that starts a supervisor.
    pub supervisor: Supervisor,
    /// The folder for the servers' logs.
    pub logs: PathBuf,
    /// Where servers listen.
    pub network: Network,
    /// The database of the run. `None` if no server needs one.
    pub database: Option<Arc<Database>>,
}

impl LocalHost {
    /// Starts a server and waits until it responds, as [`ServerHost::start`] does.
    ///
    /// # Errors
    /// Returns the cause, the last lines of the server's log, and a remedy.
    pub fn start_here(
        &self,
        order: &StartOrder,
        stop: &AtomicBool,
    ) -> Result<Up<LocalServer>, ServerFailure> {
        let mut up = Starting {
            supervisor: &self.supervisor,
            log: self.logs.join(format!("{}.log", order.number)),
            network: &self.network,
            database: self.database.as_ref(),
            order,
            stop,
        }
        .run()?;
        // Open the counted log before another server in the same folder starts and replaces the
        // file.
        up.server.lines(LogWait::No);
        Ok(up)
    }
}

impl ServerHost for LocalHost {
    fn is_here(&self) -> bool {
        true
    }

    fn start(&self, order: &StartOrder, stop: &AtomicBool) -> Result<Up, ServerFailure> {
        let Up { server, target, fixed_port, ready, uncounted, notes } =
            self.start_here(order, stop)?;
        Ok(Up { server: Box::new(server), target, fixed_port, ready, uncounted, notes })
    }

    fn find(&self, target: &Target, observes: bool) -> Result<Found, ServerFailure> {
        if !hotlap_observe::is_here(&target.endpoint) {
            let note = format!(
                "CPU time is unknown: {target} is on another host. Name that host with --server-on"
            );
            return Ok(Found { server: None, notes: vec![note] });
        }
        let owner = hotlap_observe::owner(&target.endpoint, &[]);
        let server = Box::new(LocalServer::of(&owner, observes));
        Ok(Found { server: Some(server), notes: owner.note().into_iter().collect() })
    }
}
