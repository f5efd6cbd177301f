//! Functions that a runtime compiles while it runs, from the file in which it lists them.
//!
//! The format is that of the kernel's tools/perf/Documentation/jit-interface.txt: one line for each
//! function, `START SIZE NAME`, both numbers in hexadecimal, in `/tmp/perf-PID.map`. Node writes it
//! as it compiles (`--perf-basic-prof`), as does Python (`-X perf`); a JVM writes it when asked.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::functions::Functions;

/// How long a JVM may take to write its list. It does so at its next safe point, in some
/// milliseconds; starting `jcmd` takes most of the time.
const JVM_LIMIT: Duration = Duration::from_secs(10);

/// The longest list that is read, in bytes. A list of 100,000 functions has about 10 MB.
const LONGEST: u64 = 256 << 20;

/// The path of a process's list: in its own root folder, with its process id as it sees it.
pub(super) fn path(pid: u32) -> Option<PathBuf> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let own = ids.and_then(|ids| ids.split_whitespace().last()?.parse().ok()).unwrap_or(pid);
    Some(PathBuf::from(format!("/proc/{pid}/root/tmp/perf-{own}.map")))
}

/// The socket at which a JVM takes requests, beside its list. A JVM that is killed leaves it.
pub(super) fn jvm_socket(list: &Path) -> PathBuf {
    let name = list.file_stem().unwrap_or_default().to_string_lossy().replace("perf-", ".java_pid");
    list.with_file_name(name)
}

/// Reads a list. It must belong to the process's user or root, because anyone may write to `/tmp`.
///
/// # Errors
/// There is none, or it belongs to another user.
pub(super) fn read(pid: u32, path: &Path) -> io::Result<Functions> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let (meta, process) = (file.metadata()?, fs::metadata(format!("/proc/{pid}"))?);
    if !meta.is_file() || ![0, process.uid()].contains(&meta.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

fn parse(text: &str) -> Functions {
    Functions::latest(text.lines().filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        let mut hex = || {
            let word = words.next()?;
            u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
        };
        let (start, size) = (hex()?, hex()?);
        let name = words.next()?.trim();
        (size > 0 && !name.is_empty()).then(|| (start, size, plain(name)))
    }))
}

/// The name of a function, whichever of a runtime's compilers compiled it.
fn plain(name: &str) -> String {
    // V8: kind, then how it is run: interpreted, baseline, mid-tier, optimized.
    let kinds = ["JS:", "LazyCompile:", "Function:", "Eval:", "Script:"];
    let javascript = kinds.iter().find_map(|kind| name.strip_prefix(kind));
    let Some(function) = javascript else { return name.to_owned() };
    let function = function.trim_start_matches(['~', '^', '+', '*', '\'']);
    match function.strip_prefix(' ') {
        Some(place) => format!("(anonymous) {}", place.trim_start()),
        None => function.to_owned(),
    }
}

/// Asks a JVM to write its list; JDK 17 and later do. `jcmd` must be that of the JVM itself or be
/// found in `PATH`. Returns whether it did. The process must not be frozen.
pub(super) fn ask_jvm(pid: u32) -> bool {
    let own = fs::read_link(format!("/proc/{pid}/exe"));
    let own = own.ok().map(|java| java.with_file_name("jcmd")).filter(|jcmd| jcmd.exists());
    let program = own.unwrap_or_else(|| PathBuf::from("jcmd"));
    let mut command = Command::new(program);
    command.arg(pid.to_string()).arg("Compiler.perfmap");
    command.env_remove("JAVA_TOOL_OPTIONS");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let until = Instant::now() + JVM_LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_node_and_of_a_jvm_are_read() {
        let functions = parse(
            "3ef414c0 398 JS:*handle /srv/app.js:12:3\n\
             0x00007f1000000000 0x0000000000000200 java.lang.String java.lang.String.trim()\n\
             7f1000000400 0 empty\nnonsense\n",
        );
        assert_eq!(functions.at(0x3ef4_14c0 + 0x397), Some("handle /srv/app.js:12:3"));
        assert_eq!(
            functions.at(0x7f10_0000_01ff),
            Some("java.lang.String java.lang.String.trim()")
        );
        assert_eq!(functions.at(0x7f10_0000_0400), None);
    }

    #[test]
    fn a_function_has_one_name_however_it_is_compiled() {
        let names =
            ["JS:~next router.js:9:1", "JS:^next router.js:9:1", "LazyCompile:*next router.js:9:1"];
        assert_eq!(names.map(plain), ["next router.js:9:1"; 3]);
        assert_eq!(plain("JS:* app.js:3:9"), "(anonymous) app.js:3:9");
        assert_eq!(plain("Builtin:ArrayMap"), "Builtin:ArrayMap");
    }

    #[test]
    fn the_socket_of_a_jvm_is_beside_its_list() {
        let list = Path::new("/proc/7/root/tmp/perf-1.map");
        assert_eq!(jvm_socket(list), Path::new("/proc/7/root/tmp/.java_pid1"));
    }

    #[test]
    fn a_list_that_is_no_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(std::process::id(), folder.path()).is_err());
        let path = folder.path().join("perf-1.map");
        fs::write(&path, "10 10 one\n").unwrap();
        assert_eq!(read(std::process::id(), &path).unwrap().at(0x18), Some("one"));
    }
}
