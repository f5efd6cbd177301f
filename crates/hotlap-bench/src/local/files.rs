//! The open files that a run needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::participant::Load;

/// Open files besides connections: event queues, logs, the store, supervisors.
const BESIDES: usize = 128;

/// Open files of a generator thread: its event queue, a waker, a timer.
const A_THREAD: usize = 3;

/// Raises the limit of open files to what this many servers need under these loads, since all of
/// them keep their connections between slices.
///
/// # Errors
/// The hard limit is lower; says which load fits.
pub fn allow_files(servers: usize, loads: &[Load]) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    let needed = needed(servers, loads);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    let maximum = Some(limit.maximum.map_or(needed, |hard| hard.max(needed)));
    let wanted = match limit.maximum.is_none_or(|hard| hard >= needed) {
        true => Rlimit { current: Some(needed), maximum: limit.maximum },
        // An administrator may raise it.
        false => Rlimit { current: Some(needed), maximum },
    };
    setrlimit(Resource::Nofile, wanted)
        .map_err(|_| refusal(servers, loads, needed, limit.maximum.unwrap_or_default()))
}

fn needed(servers: usize, loads: &[Load]) -> u64 {
    let files = |load: &Load| load.connections + A_THREAD * load.threads;
    (BESIDES + servers * loads.iter().map(files).max().unwrap_or(0)) as u64
}

fn refusal(servers: usize, loads: &[Load], needed: u64, hard: u64) -> String {
    let threads = loads.iter().map(|load| load.threads).max().unwrap_or(1);
    let room = usize::try_from(hard).unwrap_or(usize::MAX).saturating_sub(BESIDES);
    let fits = (room / servers.max(1)).saturating_sub(A_THREAD * threads);
    let remedy = match fits {
        0 => String::new(),
        fits => format!(", or use --connections {fits}"),
    };
    format!(
        "{servers} servers (with the control and the ceiling) under this load need {needed} open \
         files, but only {hard} are allowed: raise the limit (ulimit -Hn {needed}){remedy}"
    )
}

#[cfg(test)]
mod tests {

    use super::*;

    /// Regression: with 256 open files, a run failed in its first lap, server after server.
    #[test]
    fn a_limit_that_is_too_low_is_reported_with_a_load_that_fits() {
        let load = Load::new;
        let loads = [load(64)];
        assert_eq!(needed(4, &loads), 396);
        assert_eq!(
            refusal(4, &loads, 396, 256),
            "4 servers (with the control and the ceiling) under this load need 396 open files, but \
             only 256 are allowed: raise the limit (ulimit -Hn 396), or use --connections 29"
        );
        assert_eq!(needed(4, &[load(29)]), 256);
        assert!(refusal(4, &loads, 396, 128).ends_with("(ulimit -Hn 396)"));
        assert_eq!(allow_files(1, &[load(1)]), Ok(()));
    }
}
