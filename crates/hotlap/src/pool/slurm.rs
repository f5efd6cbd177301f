//! A script for `sbatch`: the shards as an array of jobs.
//!
//! Options are those of sbatch(1), which works alike since Slurm 17. A task has whole nodes
//! (`--exclusive`) and all of their memory. If a node fails or a job is preempted, Slurm starts its
//! task again (`--requeue`); before the time limit it sends SIGTERM to the shell, which hotlap has
//! replaced, so that servers are ended in order.

use std::path::Path;
use std::time::Duration;

use super::plan::Plan;

/// The name of the script.
pub const FILE: &str = "slurm.sh";

/// Seconds before the time limit at which hotlap is told to end.
const SIGNAL_BEFORE_S: u32 = 120;

/// The script. With `generator_host` a task has two nodes, and the load comes from the second.
pub fn script(
    plan: &Plan,
    folder: &Path,
    limit: Duration,
    generator_host: bool,
) -> Result<String, String> {
    let path = folder.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@=,".contains(c);
    if !path.chars().all(is_plain) {
        return Err(format!(
            "Slurm reads some characters of {path:?} as its own: use a folder of letters, digits, \
             and . _ - + @ = , (--into)"
        ));
    }
    let name: String = plan.suite.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let minutes = limit.as_secs().div_ceil(60).max(1);
    let nodes = if generator_host { 2 } else { 1 };
    let last = plan.shards - 1;
    let mut script = format!(
        "#!/bin/sh
# Written by `hotlap plan`. Shards that are done are left out, so this may be submitted again;
# some of them alone: sbatch --array=3,7 {FILE}
#SBATCH --job-name=hotlap-{name}
#SBATCH --array=0-{last}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --time={minutes}
#SBATCH --signal=B:TERM@{SIGNAL_BEFORE_S}
#SBATCH --output={path}/shard-%a.log
set -eu
shard={path}/shard-$SLURM_ARRAY_TASK_ID.toml
"
    );
    script += match generator_host {
        false => "exec \"${HOTLAP:-hotlap}\" run --shard \"$shard\"\n",
        true => {
            "generator=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" |
    grep -vx \"$SLURMD_NODENAME\" | head -n 1)
exec \"${HOTLAP:-hotlap}\" run --shard \"$shard\" --generator-on \\
    \"srun --nodes=1 --ntasks=1 --overlap --nodelist=$generator '${HOTLAP:-hotlap}' agent\"
"
        }
    };
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::super::division::Group;
    use super::*;

    fn plan() -> Plan {
        let group = Group { servers: vec!["a".to_owned()], shards: (0..12).collect() };
        Plan::new("my suite.toml".into(), 1, "a".to_owned(), vec![group])
    }

    fn written(generator_host: bool) -> String {
        script(&plan(), Path::new("/pool/x"), Duration::from_secs(3601), generator_host).unwrap()
    }

    #[test]
    fn a_task_has_whole_nodes_and_may_be_started_again() {
        let script = written(false);
        for line in [
            "#SBATCH --job-name=hotlap-my-suite",
            "#SBATCH --array=0-11",
            "#SBATCH --nodes=1",
            "#SBATCH --exclusive",
            "#SBATCH --requeue",
            "#SBATCH --time=61",
            "#SBATCH --signal=B:TERM@120",
            "#SBATCH --output=/pool/x/shard-%a.log",
            "shard=/pool/x/shard-$SLURM_ARRAY_TASK_ID.toml",
            "exec \"${HOTLAP:-hotlap}\" run --shard \"$shard\"",
        ] {
            assert!(script.lines().any(|own| own == line), "{line}:\n{script}");
        }
    }

    #[test]
    fn with_a_generator_host_a_task_has_two_nodes() {
        let script = written(true);
        assert!(script.contains("#SBATCH --nodes=2\n") && script.contains("--generator-on"));
    }

    #[test]
    fn a_path_that_slurm_would_misread_is_refused() {
        for path in ["/pool/a b", "/pool/%a", "/pool/$x", "/pool/a\nb", "/pool/'", "/pool/#"] {
            let why = script(&plan(), Path::new(path), Duration::from_secs(60), false).unwrap_err();
            assert!(why.contains("--into"), "{path}: {why}");
        }
    }
}
