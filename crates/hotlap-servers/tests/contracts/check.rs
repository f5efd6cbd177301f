//! Complete checks of complete servers: built, started, verified, stopped.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotlap_servers::build::{Builder, MissingKind};
use hotlap_servers::catalogue::{self, CatalogueServer, SpokenProtocol};
use hotlap_servers::check::{CheckOutcome, CheckedServer, Checker};
use hotlap_servers::contract::{Ask, Name};
use hotlap_servers::launch::Launch;
use hotlap_servers::process::Supervisor;

fn program() -> PathBuf {
    example("faulty-server")
}

/// Returns the path of an example that `cargo test` builds next to the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is not built: `cargo build --examples`", program.display());
    program
}

struct Bench {
    root: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn server(&self, id: &str, contracts: &str, keys: &str, command: &str) -> CatalogueServer {
        let folder = self.root.path().join("servers").join(id);
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "about = \"x\"\nurl = \"https://example.org\"\nkind = \"framework\"\n\
             contracts = {contracts}\n{keys}\n\
             [run]\ncommand = {command}\n"
        );
        fs::write(folder.join("server.toml"), text).unwrap();
        catalogue::read(&folder, id).unwrap().remove(0)
    }

    fn faulty(&self, id: &str, contracts: &str, keys: &str, fault: &str) -> CatalogueServer {
        let keys = format!("{keys}\n[toolchain]\nprobe = [\"echo\", \"faulty 1\"]");
        let site = if contracts.contains("json-api") { "json-api" } else { "hello" };
        let command = format!("[\"{}\", \"{site}\", \"{fault}\"]", program().display());
        self.server(id, contracts, &keys, &command)
    }

    fn with<R>(&self, f: impl FnOnce(&Checker<'_>) -> R) -> R {
        let cache = self.root.path().join("cache");
        let stop = AtomicBool::new(false);
        let supervisor = Supervisor::new(program(), &["supervisor"]);
        f(&Checker {
            contracts: &[],
            database: None,
            builder: Builder { cache: &cache, supervisor: &supervisor, stop: &stop, on: &|_| {} },
            logs: self.root.path(),
            start_limit: Duration::from_secs(30),
        })
    }

    fn check(&self, server: &CatalogueServer) -> CheckedServer {
        self.with(|checker| checker.check(0, server))
    }
}

#[test]
fn a_correct_server_passes_with_all_conformance_checks() {
    let bench = Bench::new();
    let row = bench.check(&bench.faulty("faulty/honest", "[\"hello\"]", "", "none"));
    assert_eq!(row.outcome, CheckOutcome::Passed, "{row:#?}");
    assert_eq!((row.version.as_str(), row.conformance()), ("faulty 1", (13, 13)));
    assert!(row.ready > Duration::ZERO);
    assert!(!cfg!(target_os = "linux") || row.rss_bytes > 0);
    assert_eq!(row.notes, [""; 0]);
}

/// Regression: 37 of 48 folders of the catalogue listened on loopback alone or at all addresses,
/// whatever `HOST` was.
#[cfg(target_os = "linux")]
#[test]
fn a_server_that_listens_elsewhere_than_at_its_host_fails() {
    let bench = Bench::new();
    let server = |id: &str, address: &str| {
        let mut server = bench.faulty(id, "[\"hello\"]", "", "none");
        server.command.splice(..0, ["env".to_owned(), format!("HOST={address}")]);
        server
    };
    let row = bench.check(&server("faulty/open", "0.0.0.0"));
    assert_eq!(row.outcome, CheckOutcome::Failed, "{row:#?}");
    let failures: Vec<_> = row.failures().map(|(_, check)| check.to_string()).collect();
    let expected = "address: expected sockets at $HOST (127.0.0.2) only; got 0.0.0.0:";
    assert!(failures.len() == 1 && failures[0].starts_with(expected), "{failures:?}");

    let row = bench.check(&server("faulty/closed", "127.0.0.1"));
    let CheckOutcome::ServerFailure(failure) = &row.outcome else { panic!("{row:#?}") };
    assert!(failure.cause.starts_with("the server listens on 127.0.0.1:"), "{failure:#?}");
    assert!(failure.cause.ends_with(", not at $HOST (127.0.0.2)"), "{failure:#?}");
    assert_eq!(failure.remedy, "make the server read HOST from the environment");
}

#[test]
fn each_contract_is_reported() {
    let bench = Bench::new();
    let row = bench.check(&bench.faulty("faulty/json", "[\"json-api\", \"hello\"]", "", "none"));
    assert_eq!(row.outcome, CheckOutcome::Failed);
    let names: Vec<_> = row.reports.iter().map(|r| (r.contract, r.findings.passed())).collect();
    assert_eq!(names, [(Some(Name::JsonApi), true), (Some(Name::Hello), false)]);
    let (report, check) = row.failures().next().unwrap();
    assert_eq!((report.contract, check.name.as_str()), (Some(Name::Hello), "GET /"));
}

#[test]
fn each_protocol_is_verified() {
    let bench = Bench::new();
    let keys = "protocols = [\"h2c\", \"http/1.1\"]";
    let row = bench.check(&bench.faulty("faulty/old", "[\"hello\"]", keys, "none"));
    assert_eq!(row.outcome, CheckOutcome::Failed, "{row:#?}");
    assert_eq!(row.conformance(), (13, 13));
    let passed = SpokenProtocol::ALL.map(|protocol| row.passed_over(protocol));
    assert_eq!(passed, [Some(true), Some(false), None, None]);
    assert!(row.failures().all(|(report, _)| report.protocol == SpokenProtocol::H2c));
}

/// A server is started with a certificate for its protocols over TLS, and without one for the
/// others.
#[test]
fn protocols_over_tls_are_verified_with_a_certificate() {
    let bench = Bench::new();
    let secure = |id: &str, protocols: &str| {
        let keys = format!(
            "protocols = {protocols}\nkeep_alive = false\n\
             [toolchain]\nprobe = [\"echo\", \"secure 1\"]"
        );
        let command = format!("[\"{}\"]", example("secure-server").display());
        let server = bench.server(id, "[\"hello\"]", &keys, &command);
        bench.check(&CatalogueServer { kind: catalogue::ServerKind::HandWritten, ..server })
    };
    let row = secure("secure/both", "[\"https\", \"http/1.1\"]");
    let over: Vec<_> = row.reports.iter().map(|report| report.protocol).collect();
    assert_eq!(over, [SpokenProtocol::Http1, SpokenProtocol::Https], "{row:#?}");
    let [plain, tls] = &row.reports[..] else { panic!("{row:#?}") };
    assert_eq!(plain.findings, tls.findings);
    let row = secure("secure/newer", "[\"h2\"]");
    let CheckOutcome::ServerFailure(failure) = &row.outcome else { panic!("{row:#?}") };
    assert!(failure.cause.contains("does not offer HTTP/2 (ALPN h2)"), "{failure:#?}");
}

#[test]
fn a_wrong_response_is_a_failed_row_rather_than_a_failed_start() {
    let bench = Bench::new();
    let row = bench.check(&bench.faulty("faulty/wrong", "[\"hello\"]", "", "wrong-body"));
    assert_eq!(row.outcome, CheckOutcome::Failed, "{row:#?}");
    let failures: Vec<_> = row.failures().map(|(_, check)| check.to_string()).collect();
    assert_eq!(
        failures,
        ["GET /: expected 200, text/plain, \"Hello, World!\"; got body \"Hello, world!\""]
    );
}

#[test]
fn side_effects_are_counted() {
    let bench = Bench::new();
    let keys = "counts = { file = \"access.log\", per_request = 1 }";
    let row = bench.check(&bench.faulty("faulty/logs", "[\"hello\"]", keys, "logs-requests"));
    assert_eq!(row.outcome, CheckOutcome::Passed, "{row:#?}");
    let row =
        bench.check(&bench.faulty("faulty/half", "[\"hello\"]", keys, "logs-every-other-request"));
    assert_eq!(row.outcome, CheckOutcome::Failed);
    let (_, check) = row.failures().next().unwrap();
    assert_eq!(
        check.to_string(),
        "side effect: expected 1 line per request in access.log; got 25 lines for 50 requests"
    );
}

#[test]
fn a_missing_toolchain_or_failed_start_is_a_row_too() {
    let bench = Bench::new();
    let absent = bench.server(
        "x/absent",
        "[\"hello\"]",
        "[toolchain]\nprobe = [\"no-such-compiler\"]",
        "[\"true\"]",
    );
    let unbuilt = bench.server(
        "x/unbuilt",
        "[\"hello\"]",
        "[toolchain]\nprobe = [\"true\"]\nbuild = [[\"false\"]]",
        "[\"true\"]",
    );
    let dies = bench.server(
        "x/dies",
        "[\"hello\"]",
        "[toolchain]\nprobe = [\"true\"]",
        "[\"sh\", \"-c\", \"echo no such port >&2; exit 3\"]",
    );
    let told = Mutex::new(0);
    let rows = bench.with(|checker| {
        checker.check_all(&[&absent, &unbuilt, &dies], 2, &|_| *told.lock().unwrap() += 1)
    });
    assert_eq!(*told.lock().unwrap(), 3);
    assert!(
        matches!(&rows[0].outcome, CheckOutcome::Skipped(a) if a.kind == MissingKind::Missing),
        "{rows:#?}"
    );
    assert!(matches!(&rows[1].outcome, CheckOutcome::Unbuilt(e) if e.what == "false"), "{rows:#?}");
    let CheckOutcome::ServerFailure(failure) = &rows[2].outcome else { panic!("{rows:#?}") };
    assert_eq!(failure.cause, "the server exited with code 3 before its first response");
    assert_eq!(failure.log_tail, ["no such port"]);
}

#[test]
fn a_command_is_compared_with_its_own_first_response() {
    let bench = Bench::new();
    let argv = [program().to_str().unwrap(), "hello", "wrong-body"].map(str::to_owned).into();
    let launch = Launch { argv, cwd: bench.root.path().to_owned(), ..Launch::default() };
    let row = bench.with(|checker| checker.check_command(0, "faulty", launch, &Ask::default()));
    assert_eq!(row.outcome, CheckOutcome::Passed, "{row:#?}");
    assert_eq!(row.reports[0].contract, None);
}
