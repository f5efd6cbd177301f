//! Measures what each instrument costs a server, and how many samples of a profile have no name.
//!
//!     cargo bench -p hotlap-servers --bench observe
//!     cargo bench -p hotlap-servers --bench observe -- handover
//!     cargo bench -p hotlap-servers --bench observe -- servers/node/http BUILD_FOLDER
//!
//! The server is a minimal one, one with a planted difference, or the server of a manifest, built
//! in a folder. Windows of half a second with an instrument alternate with windows without one. The
//! server is frozen between windows.
#![allow(clippy::print_stdout, reason = "a bench reports to its terminal")]

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    return linux::main();
    #[cfg(not(target_os = "linux"))]
    ExitCode::SUCCESS
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;
    use std::path::{Path, PathBuf};
    use std::process::ExitCode;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use hotlap_load::Session;
    use hotlap_load::plan::{Plan, Protocol, Request};
    use hotlap_observe::cpus;
    use hotlap_observe::{Instrument, Observation, Profile};
    use hotlap_servers::catalogue;
    use hotlap_servers::contract::{Contract, Name};
    use hotlap_servers::launch::Launch;
    use hotlap_servers::machine::Network;
    use hotlap_servers::process::{Supervisor, supervisor};
    use hotlap_servers::running::HOST;
    use hotlap_servers::running::{LocalHost, ServerHost, StartOrder, Up};
    use hotlap_servers::verify::Requirements;
    use hotlap_testbed::Planted;

    const WINDOW: Duration = Duration::from_millis(500);
    const WARM_UP: Duration = Duration::from_secs(5);
    const ROUNDS: usize = 10;
    const CONNECTIONS: usize = 16;

    /// The CPU time and the requests of some windows.
    #[derive(Clone, Copy, Default)]
    struct Seen {
        cpu_ns: u64,
        requests: u64,
    }

    impl Seen {
        fn us_a_request(self) -> f64 {
            self.cpu_ns as f64 / 1e3 / self.requests.max(1) as f64
        }
    }

    pub(super) fn main() -> ExitCode {
        let words: Vec<String> = std::env::args().skip(1).filter(|w| w != "--bench").collect();
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["supervisor"] => return supervisor::main(),
            ["planted", name] => {
                let planted: Planted = name.parse().expect("a planted difference");
                let port: u16 = std::env::var("PORT").expect("a port").parse().expect("a number");
                planted.serve((Ipv4Addr::LOCALHOST, port).into(), 1).expect("a server");
            }
            [] => measure(&planted("nothing")),
            [name] => measure(&planted(name)),
            [folder, build] => {
                let server =
                    catalogue::read(Path::new(folder), folder).expect("a manifest").remove(0);
                measure(&Launch {
                    argv: server.command,
                    env: server.env,
                    explain_env: server.explain_env,
                    cwd: PathBuf::from(build),
                    ..Launch::default()
                });
            }
            _ => return ExitCode::from(64),
        }
        ExitCode::SUCCESS
    }

    fn planted(name: &str) -> Launch {
        let argv = vec![program(), "planted".to_owned(), name.to_owned()];
        Launch { argv, cwd: std::env::temp_dir(), ..Launch::default() }
    }

    fn program() -> String {
        std::env::current_exe().expect("this program").display().to_string()
    }

    fn measure(launch: &Launch) {
        let cores = cpus::allowed().expect("the cores");
        let (last, others) = cores.split_last().expect("a core");
        let mut started = start(launch, if others.is_empty() { &cores } else { others });
        let (usable, missing) = started.server.instruments();
        println!("available: {usable:?}");
        missing.iter().for_each(|why| println!("{why}"));
        let request = Request::get("/", HOST);
        let mut plan = Plan::new(started.target.clone(), request);
        plan.shape.connections = CONNECTIONS;
        cpus::pin(&[*last]).expect("a core");
        let session = Session::start_held(&plan).expect("a load");
        let _ = session.wait_for_window();
        let _ = window(&session, &mut started, WARM_UP);
        let mut costs: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let mut seen: BTreeMap<&str, Seen> = BTreeMap::new();
        let instruments = [
            ("events", Instrument::Events),
            ("profile", Instrument::Profile),
            ("system calls", Instrument::SystemCalls),
        ];
        for _ in 0..ROUNDS {
            for (name, instrument) in instruments {
                let off = window(&session, &mut started, WINDOW);
                costs.entry("off").or_default().push(off.us_a_request());
                if started.server.enable(instrument).is_ok() {
                    let on = window(&session, &mut started, WINDOW);
                    started.server.disable();
                    costs.entry(name).or_default().push(on.us_a_request() / off.us_a_request());
                    let sum = seen.entry(name).or_default();
                    sum.cpu_ns += on.cpu_ns;
                    sum.requests += on.requests;
                }
            }
        }
        started.server.thaw();
        report(costs);
        for (name, instrument) in instruments {
            if let (Some(seen), Ok(observation)) = (seen.get(name), started.server.take(instrument))
            {
                print(seen, &observation);
            }
        }
        session.stop();
    }

    fn start(launch: &Launch, cores: &[usize]) -> Up {
        let host = LocalHost {
            database: None,
            supervisor: Supervisor::new(program(), &["supervisor"]),
            logs: std::env::temp_dir(),
            network: Network::loopback(),
        };
        let order = StartOrder {
            number: std::process::id() as usize,
            launch: launch.clone(),
            counts: None,
            requirements: Requirements::Custom,
            first: Contract::of(Name::Hello, None).exchanges.remove(0),
            protocol: Protocol::Http1,
            // Two of the planted differences are in the body.
            accepts_wrong: true,
            cpus: cores.len(),
            cores: cores.to_vec(),
            all_cores: cores.to_vec(),
            limit: Duration::from_secs(60),
            counters: false,
            observes: true,
        };
        let started = host.start(&order, &AtomicBool::new(false));
        started.unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// Returns the CPU time of a window in ns, and its requests. The server is frozen after the
    /// window.
    fn window(session: &Session, started: &mut Up, length: Duration) -> Seen {
        let before = started.server.sample(&|| 0).cpu_ns.expect("its CPU time");
        started.server.thaw();
        let window = session.open_window(Duration::ZERO, length);
        let closes = window.closes.expect("a time");
        std::thread::sleep(closes.saturating_duration_since(Instant::now()));
        let outcome = session.collect().expect("an outcome");
        session.pause(Duration::from_secs(1));
        started.server.freeze().expect("freezing it");
        let after = started.server.sample(&|| 0).cpu_ns.expect("its CPU time");
        Seen { cpu_ns: after - before, requests: outcome.responses }
    }

    fn report(costs: BTreeMap<&str, Vec<f64>>) {
        for (name, mut values) in costs {
            values.sort_by(f64::total_cmp);
            let at = |share: f64| values[(share * (values.len() - 1) as f64).round() as usize];
            let unit = if name == "off" { "µs a request" } else { "of that without" };
            println!("{name:<13} {:.3} ({:.3} to {:.3}) {unit}", at(0.5), at(0.16), at(0.84));
        }
    }

    fn print(seen: &Seen, observation: &Observation) {
        match observation {
            Observation::Profile(profile) => of_profile(profile, seen.cpu_ns),
            Observation::SystemCalls(calls) => {
                for (name, count) in calls {
                    println!("{:>10.4} {name}", *count as f64 / seen.requests as f64);
                }
            }
            Observation::Events(events) => println!("{} requests: {events:?}", seen.requests),
        }
    }

    fn of_profile(profile: &Profile, cpu_ns: u64) {
        let all = profile.samples();
        let mut by_function: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let (mut unnamed, mut depth) = (0, 0);
        for stack in &profile.stacks {
            let frame = stack.frames.last().map(|&at| &profile.frames[at as usize]);
            let (library, function) = frame.map_or(("", "none"), |f| (&f.library, &f.function));
            *by_function.entry((library, function)).or_insert(0) += stack.samples;
            unnamed += if function.starts_with('[') { stack.samples } else { 0 };
            depth += stack.samples * stack.frames.len() as u64;
        }
        let share = |samples: u64| 100.0 * samples as f64 / all.max(1) as f64;
        println!(
            "{all} samples of {} µs, {:.1}% of the CPU time, {} lost, {:.1} frames deep, {:.1}% \
             without a name",
            profile.period_ns / 1_000,
            100.0 * (all * profile.period_ns) as f64 / cpu_ns as f64,
            profile.lost,
            depth as f64 / all.max(1) as f64,
            share(unnamed)
        );
        let mut list: Vec<_> = by_function.into_iter().collect();
        list.sort_unstable_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        for ((library, function), samples) in list.into_iter().take(25) {
            println!("{:>6.1}% {library:<20} {function}", share(samples));
        }
    }
}
