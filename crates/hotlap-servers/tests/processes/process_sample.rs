//! Tests that samples cover everything that a server uses, including threads and children that have
//! ended.
#![cfg(target_os = "linux")]

use std::net::SocketAddr;

use hotlap_observe::Counters;
use hotlap_observe::Sampler;
use hotlap_observe::processes::listening;
use hotlap_servers::process::{Process, Standby};

use crate::stand_in::{LIMIT, program, setting, shell, supervisor, until};
use tempfile::TempDir;

const MS: u64 = 1_000_000;

/// Two clock ticks: the kernel rounds user and system time of children down to 10 ms each.
const TICKS: u64 = 20 * MS;

/// A server that used 40 ms in a thread that ended, and whose children used as much each.
struct Burnt {
    folder: TempDir,
    server: Process,
    sampler: Sampler,
}

impl Burnt {
    fn with(children: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = program().display().to_string();
        let setting = setting(folder.path(), &[&path, "burn", "40", children]);
        let server = Process::start(&setting, &supervisor()).unwrap();
        let mut sampler = Sampler::new(server.roots());
        let mut last = 0;
        until("all is burnt", || {
            let now = sampler.cpu().unwrap().cpu_ns;
            assert!(now >= last, "CPU time fell from {last} to {now}");
            last = now;
            !server.tail(1).is_empty()
        });
        Self { folder, server, sampler }
    }

    /// Returns what the server printed last: its own CPU time, and its children's in whole ticks.
    fn told(&self) -> (u64, u64) {
        let line = self.server.tail(1)[0].clone();
        let (own, children) = line.split_once(' ').unwrap();
        (own.parse().unwrap(), children.parse().unwrap())
    }

    /// Makes the server print its CPU times again, and returns them.
    fn again(&self) -> (u64, u64) {
        std::fs::write(self.folder.path().join("again"), "").unwrap();
        until("it says so again", || self.server.tail(2).len() == 2);
        self.told()
    }
}

#[test]
fn cpu_time_of_threads_that_ended_is_exact() {
    let mut burnt = Burnt::with("0");
    let (before, _) = burnt.told();
    let seen = burnt.sampler.cpu().unwrap().cpu_ns;
    let (after, _) = burnt.again();
    assert!(before >= 40 * MS && (before..=after).contains(&seen), "{before} {seen} {after}");
    burnt.server.stop(LIMIT);
}

#[test]
fn children_that_ended_are_counted_once_and_cpu_time_never_falls() {
    let mut burnt = Burnt::with("3");
    let (before, children) = burnt.told();
    let seen = burnt.sampler.cpu().unwrap().cpu_ns;
    let (after, _) = burnt.again();
    assert!(children >= 3 * 40 * MS - TICKS, "{children}");
    // The CPU time of each child may be known to the nanosecond or in ticks.
    let range = before + children..=after + children + 3 * TICKS;
    assert!(range.contains(&seen), "{seen} instead of {range:?}");
    burnt.server.stop(LIMIT);
}

#[test]
fn a_late_sampler_includes_processes_that_ended_before() {
    let burnt = Burnt::with("3");
    let (before, children) = burnt.told();
    let seen = Sampler::new(burnt.server.roots()).cpu().unwrap().cpu_ns;
    assert!(seen >= before + children, "{before} {children} {seen}");
    burnt.server.stop(LIMIT);
}

#[test]
fn nothing_is_lost_when_the_server_ends_while_sampled() {
    let Burnt { mut server, mut sampler, .. } = Burnt::with("0");
    let before = sampler.cpu().unwrap().cpu_ns;
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(server.pid().cast_signed()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    server.wait(LIMIT).unwrap();
    assert!(sampler.cpu().unwrap().cpu_ns >= before);
    assert_eq!(sampler.memory().unwrap().processes, 0);
    assert_eq!(server.stop(LIMIT).survivors, [""; 0]);
}

#[test]
fn memory_threads_and_processes_cover_the_whole_tree() {
    let folder = tempfile::tempdir().unwrap();
    let server = shell(folder.path(), "sleep 1000 & (setsid sleep 1000 &) ; touch ready; wait");
    until("it is ready", || folder.path().join("ready").exists());
    let mut sampler = Sampler::new(server.roots());
    until("shell and two sleepers run", || sampler.memory().unwrap().processes == 3);
    let memory = sampler.memory().unwrap();
    assert_eq!(memory.threads, 3);
    assert!(memory.rss_bytes > 100 * 1024, "{memory:?}");
    let pss = memory.pss_bytes.expect("memory maps of own processes");
    assert!(pss > 0 && pss <= memory.rss_bytes, "{memory:?}");
    assert_eq!(sampler.resident().unwrap().pss_bytes, None);
    server.stop(LIMIT);
}

#[test]
fn context_switches_of_ended_threads_and_processes_stay_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    // This process prints its context switches, and ends once they have been sampled. The parent of
    // the process lives longer.
    let script = "sh -c 'sleep 0.01; sleep 0.01; grep ctxt /proc/$$/status > told; touch done;
        while [ ! -e seen ]; do sleep 0.01; done' & wait; touch over; sleep 1000";
    let server = shell(folder.path(), script);
    let mut sampler = Sampler::new(server.roots());
    let mut last = 0;
    let mut switches = || {
        let now = sampler.switches().unwrap();
        assert!(now.voluntary + now.involuntary >= last, "{now:?} after {last}");
        last = now.voluntary + now.involuntary;
        last
    };
    until("it has said so", || {
        switches();
        file("done").exists()
    });
    let told = std::fs::read_to_string(file("told")).unwrap();
    let words = told.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let told = words.sum::<u64>();
    assert!(told > 0 && switches() >= told, "{told}");
    std::fs::write(file("seen"), "").unwrap();
    until("it has ended", || file("over").exists());
    assert!(switches() >= told, "{told}");
    server.stop(LIMIT);
}

#[test]
fn the_port_of_a_plain_command_is_found_even_if_a_child_listens() {
    let folder = tempfile::tempdir().unwrap();
    let path = program().display().to_string();
    let server = shell(folder.path(), &format!("(setsid {path} listen &) ; wait; sleep 1000"));
    until("it listens", || !server.tail(1).is_empty());
    let address: SocketAddr = server.tail(1)[0].parse().unwrap();
    let pids: Vec<u32> = server.members().unwrap().iter().map(|member| member.pid).collect();
    assert_eq!(listening(&pids).unwrap(), [address]);
    server.stop(LIMIT);
}

/// Reports that a test was skipped. The test harness does not capture this output.
fn skipped(why: &str) {
    let line = format!("skipped: nothing was counted: {why}\n");
    std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
}

#[test]
fn counters_work_or_give_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = program().display().to_string();
    let standby = Standby::new(&setting(folder.path(), &[&path, "burn", "20", "2"]), &supervisor());
    let standby = standby.unwrap();
    match Counters::open(standby.supervisor_pid()) {
        Err(refused) => {
            assert!(!refused.why.is_empty() && !refused.remedy.is_empty());
            skipped(&refused.to_string());
        }
        Ok(mut counters) => {
            counters.begin().unwrap();
            let server = standby.go().unwrap();
            until("all is burnt", || !server.tail(1).is_empty());
            let counted = counters.end().unwrap();
            // 60 ms of work takes more instructions than this at any clock rate.
            assert!(counted.instructions_user > 1_000_000, "{counted:?}");
            server.stop(LIMIT);
        }
    }
}

#[test]
fn a_server_runs_on_the_cores_it_was_given() {
    let allowed = hotlap_observe::cpus::allowed().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let script = "grep Cpus_allowed_list /proc/self/status";
    let mut asked = setting(folder.path(), &["sh", "-c", script]);
    asked.cpus = vec![allowed[allowed.len() - 1]];
    let mut server = Process::start(&asked, &supervisor()).unwrap();
    server.wait(LIMIT);
    assert!(server.notes().is_empty(), "{:?}", server.notes());
    assert_eq!(server.tail(1)[0], format!("Cpus_allowed_list:\t{}", asked.cpus[0]));
    // A core that does not exist leads to a note, not to a failure.
    asked.cpus = vec![1023];
    let mut server = Process::start(&asked, &supervisor()).unwrap();
    assert!(server.notes()[0].contains("cannot pin"), "{:?}", server.notes());
    assert!(server.wait(LIMIT).is_some());
}
