//! Measures how long it takes to freeze an idle or busy server, until every process has stopped,
//! and to thaw the server again.
//!
//!     cargo bench -p hotlap-servers --bench freeze
#![allow(clippy::print_stdout, reason = "a bench reports to its terminal")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use hotlap_servers::process::{Process, ProcessSetting, Supervisor, supervisor};

const TIMES: usize = 200;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("supervisor") {
        return supervisor::main();
    }
    println!("                   freeze, µs              thaw, µs");
    println!("processes       median       90%     median       90%");
    for (processes, sleep) in [(1, true), (8, true), (1, false), (8, false)] {
        let one = if sleep { "sleep 1000" } else { "(while :; do :; done)" };
        let script = format!("{} wait", format!("{one} & ").repeat(processes));
        let setting = ProcessSetting {
            argv: vec!["sh".to_owned(), "-c".to_owned(), script],
            env: [].into(),
            cwd: std::env::temp_dir(),
            cpus: vec![],
            log: std::env::temp_dir().join(format!("freeze-{}.log", std::process::id())),
        };
        let supervisor = Supervisor::this_program("supervisor").expect("this program");
        let mut server = Process::start(&setting, &supervisor).expect("a server");
        std::thread::sleep(Duration::from_millis(100));
        let (mut freezes, mut thaws) = (Vec::new(), Vec::new());
        for _ in 0..TIMES {
            let began = Instant::now();
            server.freeze().expect("freezing the server");
            freezes.push(began.elapsed().as_secs_f64() * 1e6);
            let began = Instant::now();
            server.thaw().expect("thawing the server");
            thaws.push(began.elapsed().as_secs_f64() * 1e6);
            std::thread::sleep(Duration::from_millis(3));
        }
        server.stop(Duration::ZERO);
        let at = |times: &mut Vec<f64>, share: f64| {
            times.sort_by(f64::total_cmp);
            times[(share * (times.len() - 1) as f64) as usize]
        };
        println!(
            "{:>4} {:<8} {:>10.0} {:>10.0} {:>10.0} {:>10.0}",
            processes + 1,
            if sleep { "idle" } else { "busy" },
            at(&mut freezes, 0.5),
            at(&mut freezes, 0.9),
            at(&mut thaws, 0.5),
            at(&mut thaws, 0.9)
        );
    }
    ExitCode::SUCCESS
}
