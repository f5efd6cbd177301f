//! Tests that probes and checks of servers that misbehave at random end in time, without a panic
//! and without much memory. `HOTLAP_SEEDS=2000` tries 2,000 servers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hotlap_load::plan::{Endpoint, Protocol, Target, Tls};
use hotlap_servers::contract::{Ask, Contract, Name};
use hotlap_servers::infer::infer;
use hotlap_servers::verify::{Requirements, Verifier, verify};
use hotlap_testbed::{Speaks, Unruly, for_seeds, most_memory};

/// The time limit of one response.
const LIMIT: Duration = Duration::from_millis(50);

/// The time limit of all probes and all checks of a server. Some of the thirty or so probes and
/// checks of a server wait for 1 to 2 s.
const WHOLE: Duration = Duration::from_secs(60);

fn try_one(seed: u64) {
    let unruly = Arc::new(Unruly::new(seed));
    let server = unruly.start();
    let mut target = Target::plain(Endpoint::Tcp(server.address()));
    match unruly.speaks {
        Speaks::Http1 => {}
        Speaks::Http2 => target.protocol = Protocol::Http2,
        Speaks::Tls => {
            target.tls = Some(Tls { insecure: true, ..Tls::with("localhost".to_owned()) })
        }
    }
    let began = Instant::now();
    let goes_on = AtomicBool::new(false);
    let _ = infer(&target, "localhost", LIMIT, &Contract::custom(&Ask::default()), &goes_on);
    let _ = verify(&Verifier {
        target: &target,
        host: "localhost",
        contract: &Contract::of(Name::Hello, None),
        requirements: Requirements::Custom,
        rude: true,
        limit: LIMIT,
        pause: Duration::from_millis(2),
        stop: &goes_on,
    });
    let took = began.elapsed();
    server.close();
    assert!(took < WHOLE, "seed {seed}: {took:?}, {unruly:?}");
}

#[test]
fn checks_of_unruly_servers_end() {
    for_seeds(100, 8, try_one);
    let most = most_memory("self");
    assert!(most.is_none_or(|bytes| bytes < 300 << 20), "{most:?}");
}
