//! `hotlap setup` and a package manager: however hotlap ends, what it has begun to install is
//! installed to the end.
#![cfg(target_os = "linux")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A hang is an error; a busy machine is not.
const LIMIT: Duration = Duration::from_secs(60);

/// What stands for apt-get: it begins, waits for a file to appear, and goes on.
const APT_GET: &str = r#"#!/bin/sh
case "$*" in
*--assume-no*) echo "0 upgraded, 0 newly installed"; exit 1 ;;
*update) exit 0 ;;
esac
echo "Unpacking one"
touch begun
n=0
while [ ! -e go ]; do
    sleep 0.05
    n=$((n + 1))
    [ $n -lt 2000 ] || exit 1
done
echo "Unpacking two" || exit 1
touch installed
"#;

/// A server that lacks a package, and a package manager, in a folder of their own.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().unwrap() };
        let programs = [("apt-get", APT_GET), ("sudo", "#!/bin/sh\nexec \"$@\"\n")];
        fs::create_dir(scene.path("bin")).unwrap();
        for (name, text) in programs {
            let path = scene.path("bin").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let server = scene.path("servers/sh/one");
        fs::create_dir_all(&server).unwrap();
        let manifest = "about = \"A server for a test.\"\nurl = \"https://example.org\"\n\
                        kind = \"hand-written\"\ncontracts = [\"hello\"]\n[toolchain]\n\
                        probe = [\"no-such-tool\"]\ninstall = { apt = [\"no-such-package\"] }\n\
                        [run]\ncommand = [\"true\"]\n";
        fs::write(server.join("server.toml"), manifest).unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `hotlap setup --yes` as a command, or one that starts it.
    fn setup(&self, starter: &[&str]) -> Command {
        let words = [starter, &[env!("CARGO_BIN_EXE_hotlap"), "setup", "--yes"]].concat();
        let mut command = Command::new(words[0]);
        let path = std::env::var("PATH").unwrap();
        command
            .args(&words[1..])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("HOTLAP_CACHE", self.path("cache"))
            .env("HOTLAP_SERVERS", self.path("servers"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env_remove("HOTLAP_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.path("stderr")).unwrap());
        command
    }

    fn wait_for(&self, what: &str, so: impl Fn() -> bool) {
        let began = Instant::now();
        while !so() {
            let said = fs::read_to_string(self.path("stderr")).unwrap_or_default();
            assert!(began.elapsed() < LIMIT, "not within {LIMIT:?}: {what}: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the package manager is at work.
    fn begins(&self) {
        self.wait_for("it begins to install", || self.path("begun").exists());
    }

    /// Lets the package manager go on; it comes to its end, and its log has all that it said.
    fn installs_to_the_end(&self) {
        fs::write(self.path("go"), "").unwrap();
        self.wait_for("all is installed", || self.path("installed").exists());
        let log = fs::read_to_string(self.path("cache/setup.log")).unwrap();
        assert!(
            log.contains("install --no-install-recommends --yes -- no-such-package\n"),
            "{log}"
        );
        assert!(log.ends_with("\nUnpacking one\nUnpacking two\n"), "{log}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // What waits for it ends.
        let _ = fs::write(self.path("go"), "");
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed()).unwrap()
}

/// It wrote to a pipe, whose end ended it between two packages.
#[test]
fn a_package_manager_outlives_a_hotlap_that_is_killed() {
    let scene = Scene::new();
    let mut child = scene.setup(&[]).process_group(0).spawn().unwrap();
    scene.begins();
    // As `kill -9 -<group>` does, which reaches what hotlap has started in its own group.
    kill_process_group(pid(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(!scene.path("installed").exists());
    scene.installs_to_the_end();
}

/// A terminal that is closed sends SIGHUP to all that run in its foreground.
#[test]
fn a_package_manager_outlives_its_terminal() {
    let scene = Scene::new();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let theirs = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = scene.setup(&["setsid", "--ctty", "--wait"]);
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    scene.begins();
    drop(terminal);
    scene.wait_for("it says that it waits", || {
        fs::read_to_string(scene.path("stderr"))
            .unwrap()
            .contains("Waiting for the package manager")
    });
    scene.installs_to_the_end();
    child.wait().unwrap();
}

/// Ctrl-C ended the package manager together with hotlap.
#[test]
fn ctrl_c_waits_for_the_package_manager_and_says_so() {
    let scene = Scene::new();
    let mut child = scene.setup(&[]).process_group(0).spawn().unwrap();
    scene.begins();
    kill_process_group(pid(&child), Signal::INT).unwrap();
    let said = || fs::read_to_string(scene.path("stderr")).unwrap();
    scene.wait_for("it says that it waits", || said().contains("Waiting for the package manager"));
    assert_eq!(child.try_wait().unwrap(), None);
    scene.installs_to_the_end();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{}", said());
    assert_eq!(said().matches("Waiting for the package manager").count(), 1);
    assert!(said().contains("cache/setup.log"), "{}", said());
}
