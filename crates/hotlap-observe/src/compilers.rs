//! Finds compilers that run as threads of a server.
//!
//! A server is not warm while its compiler is at work. The cost of the server may look steady too
//! early, because compilers pause between their tiers. Many runtimes compile on named threads that
//! do nothing else.

use std::collections::HashMap;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::processes::{thread_cpu_ns, threads};

/// The compiler of a server that compiles while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compiler {
    /// hotlap knows no compiler of this server.
    Unknown,
    /// The server compiles on threads that also do other work, or that cannot be told apart by
    /// name.
    Unnamed,
    /// The server compiles on threads that do nothing else.
    Named {
        /// The CPU time of the compiler threads so far, in nanoseconds.
        cpu_ns: u64,
    },
}

/// The beginnings of the names of threads that only compile. These threads belong to C1 and C2 of
/// HotSpot, Graal (in HotSpot, and for Truffle languages), OpenJ9, and the tiers of .NET.
const THREADS: [&str; 6] = [
    "C1 CompilerThre",
    "C2 CompilerThre",
    "JVMCI",
    "TruffleCompiler",
    "JIT Compilation",
    ".NET Tiered Com",
];

/// Programs that run on V8. V8 compiles on threads that are named after the program, or after a
/// pool that also collects garbage.
const PROGRAMS: [&str; 3] = ["node", "nodejs", "deno"];

/// The compiler threads of a server. Keep one value for as long as the server runs. HotSpot ends
/// idle compiler threads, and their time still counts.
#[derive(Debug, Default)]
pub struct Compilers {
    /// The last known CPU time of each thread, in nanoseconds.
    known: HashMap<u32, u64>,
}

impl Compilers {
    /// Returns the compiler of these processes.
    pub fn look(&mut self, pids: &[u32]) -> Compiler {
        let named = |name: &str| THREADS.iter().any(|known| name.starts_with(known));
        let mut is_unnamed = false;
        for &pid in pids {
            is_unnamed |= program(pid).is_some_and(|name| PROGRAMS.contains(&name.as_str()));
            for thread in threads(pid) {
                if name(pid, thread).is_some_and(|name| named(&name))
                    && let Some(cpu_ns) = thread_cpu_ns(pid, thread)
                {
                    self.known.insert(thread, cpu_ns);
                }
            }
        }
        match (self.known.is_empty(), is_unnamed) {
            (false, _) => Compiler::Named { cpu_ns: self.known.values().sum() },
            (true, true) => Compiler::Unnamed,
            (true, false) => Compiler::Unknown,
        }
    }
}

/// Returns the file name of a process's program. The name of the process is the name of its main
/// thread, which may change.
fn program(pid: u32) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.file_name()?.to_str()?.to_owned())
}

fn name(pid: u32, thread: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_with_the_name_of_a_compiler_is_one_and_its_time_is_kept() {
        let mut compilers = Compilers::default();
        let own = [std::process::id()];
        assert_eq!(compilers.look(&own), Compiler::Unknown);
        let (tell, told) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let compiler = thread::Builder::new().name("C2 CompilerThread0".to_owned());
        let compiler = compiler.spawn(move || {
            let sum = (0..20_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
            tell.send(sum).unwrap();
            let _ = ends.recv();
        });
        told.recv().unwrap();
        let Compiler::Named { cpu_ns } = compilers.look(&own) else { panic!("no compiler") };
        assert!(cpu_ns > 1_000_000, "{cpu_ns}");
        drop(end);
        compiler.unwrap().join().unwrap();
        assert!(matches!(compilers.look(&own), Compiler::Named { cpu_ns: now } if now >= cpu_ns));
    }
}
