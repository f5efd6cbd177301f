//! Tests that servers start as configured, and leave nothing behind, whatever happens.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hotlap_observe::{Member, processes};
use hotlap_servers::process::{Process, ProcessExit, StartError};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::stand_in::{LIMIT, gone, program, setting, shell, still_there, supervisor, until};

/// A server with children, grandchildren, and two daemons that left its session. One daemon ignores
/// SIGTERM. The server creates `$FOLDER/ready` once that daemon does so.
const FAMILY: &str = "
    sleep 1000 & (sleep 1000 & sleep 1000) &
    (setsid sleep 1000 &)
    (setsid sh -c 'trap \"\" TERM; touch $FOLDER/deaf; sleep 1000 & wait; sleep 1000' &)
    while [ ! -e $FOLDER/deaf ]; do sleep 0.01; done
    touch $FOLDER/ready
    wait";

/// The grace period for a server whose daemon ignores SIGTERM, so that the whole period passes. The
/// period is long enough for the other processes to end on a busy machine.
const GRACE: Duration = Duration::from_secs(3);

fn ready(folder: &Path) {
    until("the server is ready", || folder.join("ready").exists());
}

/// Returns all processes of a [`FAMILY`].
fn family(server: &Process) -> Vec<Member> {
    let mut members = Vec::new();
    until("the family is whole", || {
        members = server.members().unwrap();
        is_whole(&members)
    });
    members
}

/// Returns whether all programs of a [`FAMILY`] run. Each daemon has left the group by then.
fn is_whole(members: &[Member]) -> bool {
    members.iter().filter(|member| member.name == "sleep").count() == 5
}

#[test]
fn a_server_runs_with_its_arguments_environment_and_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut asked = setting(
        folder.path(),
        &["sh", "-c", "echo \"$0 $1 $PORT\"; pwd; echo e >&2; ulimit -n", "a b", "$PORT"],
    );
    asked.env.insert("PORT".to_owned(), "8080".to_owned());
    let mut server = Process::start(&asked, &supervisor()).unwrap();
    assert_eq!(server.wait(LIMIT), Some(ProcessExit::Code(0)));
    let lines = server.tail(10);
    assert_eq!(lines[0], "a b $PORT 8080");
    assert_eq!(Path::new(&lines[1]), folder.path().canonicalize().unwrap());
    assert_eq!(lines[2], "e");
    assert_eq!(server.tail(2).len(), 2);
    assert_eq!(server.stop(LIMIT).exit, Some(ProcessExit::Code(0)));
}

#[test]
fn a_server_inherits_no_descriptors_no_ignored_signals_and_no_terminal_input() {
    let folder = tempfile::tempdir().unwrap();
    // This descriptor is not close-on-exec, as if left by a careless parent.
    let careless = fs::File::create(folder.path().join("careless")).unwrap();
    let inherited = rustix::io::dup(&careless).unwrap();
    let script = "ls /proc/self/fd | tr '\\n' ' '; echo; grep -E 'Sig(Blk|Ign)' /proc/self/status; \
                  readlink /proc/self/fd/0";
    let mut server = shell(folder.path(), script);
    server.wait(LIMIT);
    drop(inherited);
    let lines = server.tail(10);
    if cfg!(target_os = "linux") {
        // Descriptor 3 is the folder that `ls` reads.
        assert_eq!(lines[0].trim(), "0 1 2 3");
        assert_eq!(lines[1], "SigBlk:\t0000000000000000");
        // Signals 32 and 33 are reserved by the C library.
        let ignored = u64::from_str_radix(lines[2].trim_start_matches("SigIgn:\t"), 16).unwrap();
        assert_eq!(ignored & !0x1_8000_0000, 0);
        assert_eq!(lines[3], "/dev/null");
    }
}

#[test]
fn ctrl_c_reaches_neither_server_nor_supervisor() {
    let folder = tempfile::tempdir().unwrap();
    let server = shell(folder.path(), "touch $FOLDER/ready; sleep 1000");
    ready(folder.path());
    let own = rustix::process::getpgrp().as_raw_pid() as u32;
    let members = server.members().unwrap();
    assert!(members.iter().all(|member| member.group == server.pid()), "{members:?}");
    let table = processes::all().unwrap();
    let supervisor = table.iter().find(|member| member.pid == server.supervisor_pid()).unwrap();
    assert_eq!(supervisor.group, supervisor.pid);
    assert_ne!(own, server.pid());
    // The supervisor ignores the signal, which may be sent to every process of a session.
    kill_process(pid(server.supervisor_pid()), Signal::TERM).unwrap();
    let stopped = server.stop(LIMIT);
    assert_eq!(stopped.exit, Some(ProcessExit::Signal(Signal::TERM.as_raw())));
}

#[test]
fn a_server_that_stops_on_sigterm_is_not_reported() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'exit 7' TERM; touch $FOLDER/ready; while :; do sleep 0.01; done";
    let server = shell(folder.path(), script);
    ready(folder.path());
    let members = server.members().unwrap();
    let stopped = server.stop(LIMIT);
    assert_eq!(stopped.exit, Some(ProcessExit::Code(7)));
    assert!(!stopped.ignored_sigterm && stopped.left_behind.is_empty(), "{stopped:?}");
    assert!(stopped.survivors.is_empty());
    gone(&members);
}

#[test]
fn a_server_that_ignores_sigterm_is_killed_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let server = shell(folder.path(), "trap '' TERM; touch $FOLDER/ready; sleep 1000; sleep 1000");
    ready(folder.path());
    let stopped = server.stop(Duration::from_millis(50));
    assert!(stopped.ignored_sigterm);
    assert_eq!(stopped.exit, Some(ProcessExit::Signal(Signal::KILL.as_raw())));
}

#[test]
fn children_and_daemons_end_with_the_server_and_stubborn_ones_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = shell(folder.path(), FAMILY);
    ready(folder.path());
    let members = family(&server);
    assert!(members.iter().any(|member| member.group != server.pid()), "a daemon: {members:?}");
    let stopped = server.stop(GRACE);
    assert_eq!(stopped.exit, Some(ProcessExit::Signal(Signal::TERM.as_raw())));
    assert!(stopped.left_behind.iter().any(|left| left.starts_with("sh (")), "{stopped:?}");
    gone(&members);
}

#[test]
fn a_program_that_daemonizes_stays_under_the_supervisor() {
    let folder = tempfile::tempdir().unwrap();
    let script = "(setsid sh -c 'touch $FOLDER/ready; exec sleep 1000' &) ; exit 0";
    let mut server = shell(folder.path(), script);
    assert_eq!(server.wait(LIMIT), Some(ProcessExit::Code(0)));
    ready(folder.path());
    let members = server.members().unwrap();
    assert!(!members.is_empty());
    // Regression: under load, a program that daemonizes was reported as "exited with code 0".
    assert_eq!((server.exited(), server.ended()), (Some(ProcessExit::Code(0)), None));
    let stopped = server.stop(LIMIT);
    assert!(!stopped.left_behind.is_empty() && !stopped.ignored_sigterm, "{stopped:?}");
    gone(&members);
}

#[test]
fn a_server_that_dies_at_start_is_reported_with_exit_code_and_last_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = shell(folder.path(), "echo one; echo two >&2; echo three; exit 3");
    assert_eq!(server.wait(LIMIT), Some(ProcessExit::Code(3)));
    assert_eq!(server.exited(), Some(ProcessExit::Code(3)));
    assert_eq!(server.tail(2), ["two", "three"]);
    let mut crashed = shell(folder.path(), "kill -SEGV $$");
    assert_eq!(crashed.wait(LIMIT), Some(ProcessExit::Signal(Signal::SEGV.as_raw())));
}

#[test]
fn a_program_that_cannot_be_executed_is_reported_with_cause_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let start = |argv: &[&str]| {
        Process::start(&setting(folder.path(), argv), &supervisor()).unwrap_err().to_string()
    };
    assert_eq!(
        start(&["no-such-program-here"]),
        "cannot execute no-such-program-here: No such file or directory (os error 2); \
         install the program, or give its full path"
    );
    assert!(start(&["./server"]).contains("whether the program is built"));
    fs::write(folder.path().join("plain"), "text").unwrap();
    assert!(start(&["./plain"]).contains("chmod +x"));
    let script = folder.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(
        start(&["./script"])
            .contains("install the interpreter that the program's first line names")
    );
    assert!(matches!(
        Process::start(&setting(folder.path(), &[]), &supervisor()),
        Err(StartError::Empty)
    ));
    let mut nowhere = setting(folder.path(), &["true"]);
    nowhere.cwd = folder.path().join("missing");
    assert!(matches!(Process::start(&nowhere, &supervisor()), Err(StartError::Folder { .. })));
    let mut mute = setting(folder.path(), &["true"]);
    mute.log = folder.path().join("missing/log");
    assert!(matches!(Process::start(&mute, &supervisor()), Err(StartError::Log { .. })));
}

#[cfg(target_os = "linux")]
#[test]
fn the_whole_tree_freezes_and_thaws_daemons_included() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = shell(folder.path(), FAMILY);
    ready(folder.path());
    family(&server);
    server.freeze().unwrap();
    assert!(server.is_frozen());
    let members = server.members().unwrap();
    until("all are stopped", || members.iter().all(|member| state(member) == 'T'));
    server.thaw().unwrap();
    until("none is stopped", || members.iter().all(|member| state(member) != 'T'));
    server.freeze().unwrap();
    // SIGTERM alone would only be handled after a thaw.
    let stopped = server.stop(GRACE);
    assert!(!stopped.ignored_sigterm, "{stopped:?}");
    gone(&members);
}

#[cfg(target_os = "linux")]
fn state(member: &Member) -> char {
    let line = fs::read_to_string(format!("/proc/{}/stat", member.pid)).unwrap_or_default();
    line[line.rfind(')').map_or(0, |at| at + 1)..].trim().chars().next().unwrap_or('-')
}

#[test]
fn a_dropped_server_is_dead_when_the_drop_returns() {
    let folder = tempfile::tempdir().unwrap();
    let server = shell(folder.path(), FAMILY);
    ready(folder.path());
    let members = family(&server);
    drop(server);
    assert_eq!(still_there(&members), [], "of {members:?}");
}

/// Regression: a dropped server got SIGKILL without SIGTERM, so `docker run` left its container
/// behind.
#[test]
fn a_dropped_server_can_clean_up() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'touch $FOLDER/cleaned; exit' TERM; touch $FOLDER/ready; sleep 1000 & wait";
    let server = shell(folder.path(), script);
    ready(folder.path());
    drop(server);
    assert!(folder.path().join("cleaned").exists());
}

/// Regression: survivors were looked up by their old parent, so a survivor that init had adopted
/// was missed.
#[cfg(target_os = "linux")]
#[test]
fn a_survivor_with_another_parent_is_seen() {
    let mut parent = Command::new("sh");
    parent.args(["-c", "sleep 1000 & echo $!; exec sleep 1000"]);
    let mut parent = parent.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let out = parent.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    let orphan: u32 = line.trim().parse().unwrap();
    let before: Vec<Member> =
        processes::all().unwrap().into_iter().filter(|member| member.pid == orphan).collect();
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("it has another parent", || {
        let now = processes::all().unwrap().into_iter().find(|member| member.pid == orphan);
        now.is_some_and(|now| now.parent != before[0].parent)
    });
    let found = still_there(&before);
    kill_process(pid(orphan), Signal::KILL).unwrap();
    assert_eq!(found.len(), 1, "{before:?}");
}

/// A test in `process` checks that the drop after the stop does not wait again.
#[cfg(target_os = "linux")]
#[test]
fn a_server_whose_supervisor_is_silent_is_a_survivor() {
    let folder = tempfile::tempdir().unwrap();
    let asked = setting(folder.path(), &["sh", "-c", "touch $FOLDER/ready; exec sleep 1000"]);
    let limit = Duration::from_secs(3);
    let server = Process::start(&asked, &supervisor().answers_within(limit)).unwrap();
    ready(folder.path());
    let members = server.members().unwrap();
    let supervisor = server.supervisor_pid();
    kill_process(pid(supervisor), Signal::STOP).unwrap();
    let stopped = server.stop(Duration::ZERO);
    kill_process(pid(supervisor), Signal::CONT).unwrap();
    assert_eq!(stopped.survivors.len(), 1, "{stopped:?}");
    gone(&members);
}

/// hotlap is killed, killed while its server is frozen, interrupted with Ctrl-C, or panics.
#[test]
fn nothing_stays_behind_however_hotlap_ends() {
    type End = fn(&mut Child, &[Member]);
    let ends: [(&str, End); 4] = [
        ("hold", |hotlap, _| hotlap.kill().unwrap()),
        ("hold", |hotlap, members| {
            for member in members.iter().skip(1) {
                let _ = kill_process(pid(member.pid), Signal::STOP);
            }
            hotlap.kill().unwrap();
        }),
        // A terminal does the same: the signal goes to the whole foreground group.
        ("hold", |hotlap, _| kill_process_group(pid(hotlap.id()), Signal::INT).unwrap()),
        ("panic", |_, _| ()),
    ];
    for (how, end) in ends {
        let folder = tempfile::tempdir().unwrap();
        let (mut hotlap, members) = held(folder.path(), how);
        end(&mut hotlap, &members);
        assert!(!hotlap.wait().unwrap().success());
        gone(&members);
    }
}

/// Regression: `cargo build` replaced hotlap during a run. The next restart then failed as if the
/// server had failed, or used the other program.
#[cfg(target_os = "linux")]
#[test]
fn a_hotlap_whose_file_is_replaced_starts_itself_and_not_the_other_program() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("hotlap");
    fs::copy(program(), &copy).unwrap();
    let replaced = Command::new(copy).arg("replaced").arg(folder.path()).status().unwrap();
    assert!(replaced.success());
    assert!(folder.path().join("ready").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_whose_supervisor_is_killed_dies_and_is_reported_lost() {
    let folder = tempfile::tempdir().unwrap();
    let script = "sleep 1000 & sleep 1000 & touch $FOLDER/ready; wait";
    let mut server = shell(folder.path(), script);
    ready(folder.path());
    let members = server.members().unwrap();
    kill_process(pid(server.supervisor_pid()), Signal::KILL).unwrap();
    assert_eq!(server.wait(LIMIT), Some(ProcessExit::Lost));
    gone(&members);
}

/// Regression: the session of a shell stayed at -20 after `kill -9` and after a second Ctrl-C.
#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped must say so")]
fn the_session_has_its_former_priority_however_hotlap_ends() {
    // As in a terminal, job control gives hotlap its own process group, which Ctrl-C reaches as a
    // whole.
    let mut shell = Command::new("setsid");
    shell.args(["bash", "-c", "set -m; \"$0\" raise & cat"]).arg(program());
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut shell = shell.spawn().unwrap();
    let mut told = String::new();
    BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut told).unwrap();
    let session = format!("/proc/{}/autogroup", shell.id());
    let nice = || fs::read_to_string(&session).unwrap_or_default();
    let is = |value: &str| nice().trim_end().ends_with(value);
    match told.trim().parse() {
        Ok(hotlap) if is(" nice -20") => {
            kill_process_group(pid(hotlap), Signal::KILL).unwrap();
            until("the former priority", || is(" nice 0"));
        }
        _ => eprintln!("skipped: the priority of a session: {} {}", told.trim(), nice()),
    }
    // The shell ends when its input ends.
    drop(shell.stdin.take());
    shell.wait().unwrap();
}

/// Returns a process that started a family under a supervisor, in its own group, and the processes
/// below that process.
fn held(folder: &Path, how: &str) -> (Child, Vec<Member>) {
    let mut command = Command::new(program());
    command.arg(how).arg(folder).arg(FAMILY).process_group(0);
    command.stderr(fs::File::create(folder.join("stderr")).unwrap());
    let hotlap = command.spawn().unwrap();
    ready(folder);
    until("hotlap holds its server", || folder.join("supervisor").exists());
    let supervisor = fs::read_to_string(folder.join("supervisor")).unwrap().parse().unwrap();
    let mut members = Vec::new();
    until("the family is whole, or hotlap has ended", || {
        let table = processes::all().unwrap();
        members = table.into_iter().filter(|member| member.pid == supervisor).collect();
        members.extend(processes::descendants(supervisor).unwrap());
        is_whole(&members) || how != "hold"
    });
    (hotlap, members)
}

fn pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}
