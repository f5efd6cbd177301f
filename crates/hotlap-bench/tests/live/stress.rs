//! Stresses a correct server, and servers with one weakness each. The impact depends on the server,
//! not on how busy the machine is.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hotlap_bench::participant::{Origin, Participant, Role};
use hotlap_bench::stress::{
    Impact, Reason, Scenario, StressEvent, StressSetting, StressTrial, Subject, Timing, stress,
};
use hotlap_load::plan::{Endpoint, Target, Tls};
use hotlap_load::tls;
use hotlap_servers::launch::Certificate;
use hotlap_servers::machine::{CpuAllocation, Network};
use hotlap_servers::process::Supervisor;
use hotlap_servers::running::LocalHost;
use hotlap_testbed::{HELLO, TestServer};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::setting::{participant, running};

const BAD: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A server's weakness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weakness {
    None,
    /// The server stops serving after the first bytes that are not a request.
    DiesOnGarbage,
    /// The server reads one head at a time, while all other connections wait.
    ReadsOneHeadAtATime,
}

/// A server that rejects invalid requests, apart from its weakness.
struct Strict {
    weakness: Weakness,
    is_dead: AtomicBool,
    reading: Mutex<()>,
}

fn serve(weakness: Weakness) -> SocketAddr {
    let server = Strict { weakness, is_dead: AtomicBool::new(false), reading: Mutex::new(()) };
    TestServer::start(move |client| server.converse(client.stream)).address()
}

/// Starts the correct server behind TLS, with a certificate in this folder.
fn serve_over_tls(folder: &Path) -> Participant {
    let certificate = Certificate::kept_in(folder).unwrap();
    let key = tls::private_key(&fs::read(&certificate.key_file).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der.clone().into()],
            PrivatePkcs8KeyDer::from(key).into(),
        );
    let config = Arc::new(config.unwrap());
    let strict = Strict {
        weakness: Weakness::None,
        is_dead: AtomicBool::new(false),
        reading: Mutex::new(()),
    };
    let address = TestServer::start(move |client| {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        strict.converse(StreamOwned::new(connection, client.stream));
    })
    .address();
    let mut settings = Tls::with("localhost".to_owned());
    settings.authorities = vec![certificate.der];
    let target = Target { tls: Some(settings), ..Target::plain(Endpoint::Tcp(address)) };
    let (url, host) = (format!("https://{address}/"), "test".to_owned());
    participant("it", Role::Plain, Origin::Running { url, target, host })
}

impl Strict {
    fn converse(&self, mut stream: impl Read + Write) {
        let mut rest = Vec::new();
        while !self.is_dead.load(Ordering::SeqCst) {
            let Some(response) = self.next(&mut stream, &mut rest) else { return };
            if stream.write_all(response).is_err() || response != HELLO {
                return;
            }
        }
    }

    /// Reads a head and returns the response to it.
    fn next(&self, stream: &mut impl Read, rest: &mut Vec<u8>) -> Option<&'static [u8]> {
        let mut buffer = [0; 8192];
        let mut turn = None;
        loop {
            let is_text = |b: &u8| b.is_ascii_graphic() || b" \r\n".contains(b);
            if !rest.iter().all(is_text) {
                return Some(self.bad());
            }
            if let Some(end) = rest.windows(4).position(|w| w == b"\r\n\r\n") {
                let head: Vec<u8> = rest.drain(..end + 4).collect();
                return Some(match head.starts_with(b"GET / HTTP/1.1\r\nHost: ") {
                    true => HELLO,
                    false => self.bad(),
                });
            }
            if rest.len() > 32 << 10 {
                return Some(TOO_LARGE);
            }
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(length) => rest.extend_from_slice(&buffer[..length]),
            }
            if turn.is_none() && self.weakness == Weakness::ReadsOneHeadAtATime {
                turn = Some(self.reading.lock().unwrap_or_else(|p| p.into_inner()));
            }
        }
    }

    fn bad(&self) -> &'static [u8] {
        if self.weakness == Weakness::DiesOnGarbage {
            self.is_dead.store(true, Ordering::SeqCst);
        }
        BAD
    }
}

/// Stresses a server. `timeout_ms` is the normal clients' timeout.
fn stressed(address: SocketAddr, scenarios: &[&str], timeout_ms: u64) -> Subject {
    stressed_by(address, &setting(scenarios, timeout_ms))
}

fn stressed_by(address: SocketAddr, setting: &StressSetting) -> Subject {
    stressed_as(&participant("it", Role::Plain, running(address)), setting)
}

fn stressed_as(participant: &Participant, setting: &StressSetting) -> Subject {
    let subject = Subject::new(participant, setting.good);
    stress(0, participant, setting, subject, &AtomicBool::new(false), &mut |_| {})
}

fn setting(scenarios: &[&str], timeout_ms: u64) -> StressSetting {
    let ms = Duration::from_millis;
    let setting = StressSetting {
        scenarios: Scenario::all()
            .into_iter()
            .filter(|s| scenarios.contains(&s.name.as_str()))
            .collect(),
        timing: Timing {
            warm: ms(200),
            ramp: ms(20),
            baseline: ms(100),
            attack_lead: ms(150),
            // The attack must be long enough for the attackers' thread to get a core.
            attack: ms(1_500),
            timeout: ms(timeout_ms),
            overload_timeout: ms(timeout_ms),
            recover: ms(60_000),
            idle: ms(10),
        },
        good: 2,
        cores: CpuAllocation { server: vec![], generator: vec![], shared: true, notes: vec![] },
        host: Arc::new(LocalHost {
            database: None,
            supervisor: Supervisor::new("/none", &[]),
            logs: PathBuf::new(),
            network: Network::loopback(),
        }),
        start_limit: ms(30_000),
        grace: ms(1_000),
        allow_remote: false,
    };
    assert_eq!(setting.scenarios.len(), scenarios.len());
    setting
}

fn only(subject: &Subject) -> &StressTrial {
    assert_eq!(subject.trials.len(), 1, "{subject:?}");
    &subject.trials[0]
}

/// Regression: the trials of a server were lost when the user interrupted its stress test.
#[test]
fn an_interrupted_stress_continues_with_the_remaining_scenarios() {
    let setting = setting(&["half-open", "resets", "garbage"], 30_000);
    let participant = participant("it", Role::Plain, running(serve(Weakness::None)));
    let run = |subject: Subject, trials: usize| {
        let stop = AtomicBool::new(false);
        stress(0, &participant, &setting, subject, &stop, &mut |event| {
            if let StressEvent::Trial { subject } = event {
                stop.store(subject.trials.len() >= trials, Ordering::SeqCst);
            }
        })
    };
    let names =
        |subject: &Subject| subject.trials.iter().map(|t| t.scenario.clone()).collect::<Vec<_>>();
    let ended = run(Subject::new(&participant, setting.good), 1);
    assert_eq!(names(&ended), ["half-open"]);
    let whole = run(ended.clone(), 9);
    assert_eq!(names(&whole), ["half-open", "resets", "garbage"]);
    assert_eq!(whole.trials[0], ended.trials[0], "completed scenarios are not repeated");
    assert!(whole.left(&setting.scenarios).is_empty());
}

/// However busy the machine is, a correct server fails no normal client.
#[test]
fn a_correct_server_serves_normal_clients_and_rejects_attackers() {
    let scenarios = ["half-open", "resets", "garbage", "64 KiB header"];
    let subject = stressed(serve(Weakness::None), &scenarios, 30_000);
    assert_eq!(subject.failure, None);
    for trial in &subject.trials {
        let StressTrial { scenario, observed, judgement, .. } = trial;
        assert!(judgement.impact < Impact::Failing, "{scenario}: {:?}", judgement.reasons);
        assert_eq!(observed.during.failed(), 0, "{scenario}");
        let fate = observed.fate.as_ref().unwrap();
        assert!(fate.connected > 0, "{scenario}: {fate:?}");
    }
    let fate = |i: usize| subject.trials[i].observed.fate.clone().unwrap();
    // Half a request gets no response. A client that finds the accept queue full may connect too
    // late.
    assert_eq!((fate(0).silent + fate(0).refused, fate(0).answered.len()), (200, 0));
    assert_eq!(fate(0).silent, fate(0).open);
    assert!(fate(1).of_class(2) > 0 && fate(1).of_class(4) == 0, "{:?}", fate(1));
    assert!(fate(2).of_class(4) > 0 && fate(2).of_class(2) == 0, "{:?}", fate(2));
    // If some of the received bytes were not read, a reset may destroy the response to them.
    assert!(fate(3).of_class(4) + fate(3).closed > 0, "{:?}", fate(3));
}

/// Attackers complete the TLS handshake, because otherwise the server would not see what they send.
#[test]
fn attacks_and_normal_clients_reach_a_server_behind_tls() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve_over_tls(&folder.path().join("tls"));
    let subject = stressed_as(&server, &setting(&["overload", "resets", "garbage"], 30_000));
    assert_eq!(subject.failure, None);
    let [overload, resets, garbage] = &subject.trials[..] else { panic!("{subject:?}") };
    for trial in [overload, resets, garbage] {
        assert_eq!(trial.observed.during.failed(), 0, "{trial:?}");
        assert!(trial.observed.during.responses > 0 && trial.observed.recovered_ms.is_some());
    }
    assert!(overload.observed.others.as_ref().unwrap().responses > 0);
    let fate = |trial: &StressTrial| trial.observed.fate.clone().unwrap();
    assert!(fate(resets).of_class(2) > 0 && fate(resets).of_class(4) == 0, "{:?}", fate(resets));
    assert!(fate(garbage).of_class(4) > 0 && fate(garbage).of_class(2) == 0, "{garbage:?}");
}

#[test]
fn a_server_that_dies_of_garbage_is_down() {
    let mut setting = setting(&["garbage"], 30_000);
    setting.timing.recover = Duration::from_millis(1_500);
    let subject = stressed_by(serve(Weakness::DiesOnGarbage), &setting);
    let trial = only(&subject);
    assert_eq!(trial.judgement.impact, Impact::Down);
    assert_eq!(trial.judgement.reasons[0], Reason::Mute);
    assert_eq!(trial.observed.recovered_ms, None);
}

#[test]
fn a_server_that_reads_one_head_at_a_time_hurts_normal_clients_and_recovers() {
    let subject = stressed(serve(Weakness::ReadsOneHeadAtATime), &["slow headers"], 100);
    let trial = only(&subject);
    let reasons = &trial.judgement.reasons;
    assert!(reasons.iter().any(|r| matches!(r, Reason::Errors(..))), "{reasons:?}");
    assert!(trial.judgement.impact >= Impact::Failing);
    let fate = trial.observed.fate.as_ref().unwrap();
    // Each head takes seconds, and the server reads it completely before the next one.
    assert_eq!(fate.total(), 100, "{fate:?}");
    assert!(fate.silent + fate.refused >= 90, "{fate:?}");
    assert!(trial.observed.recovered_ms.is_some());
}

#[test]
fn a_server_on_another_machine_is_not_attacked() {
    // TEST-NET-1 (RFC 5737) has no hosts, and the test sends nothing.
    let subject = stressed("192.0.2.1:80".parse().unwrap(), &["garbage"], 100);
    let failure = subject.failure.unwrap();
    assert_eq!(failure.cause, "192.0.2.1 is not a loopback address");
    assert!(failure.remedy.contains("--allow-remote"));
    assert!(subject.trials.is_empty());
}
