//! The settings, participants and loads for runs of real servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_agent::ThisProcess;
use hotlap_bench::local;
use hotlap_bench::participant::{Load, Origin, Participant, Role};
use hotlap_load::plan::{Endpoint, Protocol, Target};
use hotlap_servers::contract::{Contract, Name};
use hotlap_servers::machine::{CpuAllocation, Network};

use hotlap_servers::launch::{Launch, ServerFailure};
use hotlap_servers::running::{LocalHost, LocalServer, StartOrder, Up};
use hotlap_servers::verify::Requirements;

use crate::stand_in::{LIMIT, program, supervisor};

/// Returns the settings of real runners in tests: one slice length, no pinning, no probes.
pub fn setting(slice: Duration, logs: &Path) -> local::Setting {
    local::Setting {
        slices: vec![slice],
        probe_limit: Duration::ZERO,
        timeout: LIMIT,
        start_limit: LIMIT,
        level_for: Duration::ZERO,
        warm_limit: Duration::from_secs(1),
        grace: Duration::ZERO,
        freeze: true,
        counters: false,
        cores: CpuAllocation { server: vec![], generator: vec![], shared: true, notes: vec![] },
        host: Arc::new(LocalHost {
            database: None,
            supervisor: supervisor(),
            logs: logs.to_owned(),
            network: Network::loopback(),
        }),
        generator: Arc::new(ThisProcess),
        against: [].into(),
    }
}

/// Returns a load of two keep-alive connections.
pub fn load() -> Load {
    Load::new(2)
}

pub fn participant(name: &str, role: Role, start: Origin) -> Participant {
    Participant::new(name, role, start, Contract::of(Name::Hello, None))
}

/// Returns a server that already runs at this address.
pub fn running(address: SocketAddr) -> Origin {
    let target = Target::plain(Endpoint::Tcp(address));
    Origin::Running { url: format!("http://{address}/"), target, host: "test".to_owned() }
}

/// Returns a script that may start the stand-in, and may leave files in this folder.
pub fn launch(folder: &Path, script: &str) -> Launch {
    Launch {
        argv: ["sh", "-c", script].map(str::to_owned).into(),
        env: BTreeMap::from([
            ("FOLDER".to_owned(), folder.display().to_string()),
            ("STAND_IN".to_owned(), program().display().to_string()),
            // With a backtrace, the cause would not be among the server's last lines.
            ("RUST_BACKTRACE".to_owned(), "0".to_owned()),
        ]),
        cwd: folder.to_owned(),
        ..Launch::default()
    }
}

/// Starts a script, and waits for its first response.
pub fn start(
    folder: &Path,
    script: &str,
    limit: Duration,
) -> Result<Up<LocalServer>, ServerFailure> {
    start_unless(&AtomicBool::new(false), folder, script, limit)
}

/// Starts a script like [`start`], but gives up once `stop` is set.
pub fn start_unless(
    stop: &AtomicBool,
    folder: &Path,
    script: &str,
    limit: Duration,
) -> Result<Up<LocalServer>, ServerFailure> {
    let host = LocalHost {
        database: None,
        supervisor: supervisor(),
        logs: folder.to_owned(),
        network: Network::loopback(),
    };
    let order = StartOrder {
        number: 0,
        launch: launch(folder, script),
        counts: None,
        requirements: Requirements::Custom,
        first: Contract::of(Name::Hello, None).exchanges.remove(0),
        protocol: Protocol::Http1,
        accepts_wrong: false,
        cpus: 1,
        cores: Vec::new(),
        all_cores: Vec::new(),
        limit,
        counters: false,
        observes: false,
    };
    host.start_here(&order, stop)
}

/// Returns a command that runs this program as another user. `None` unless these tests run as root
/// and that user may execute the program.
#[expect(clippy::print_stderr, reason = "a test that is skipped must say so")]
pub fn as_nobody(program: &Path) -> Option<Command> {
    let nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command
    };
    let tried = nobody().args(["test", "-x"]).arg(program).status();
    if !rustix::process::geteuid().is_root() || !tried.is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs root, setpriv, and a target folder that others may read");
        return None;
    }
    let mut command = nobody();
    command.arg(program);
    Some(command)
}

pub fn permit(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).unwrap();
}
