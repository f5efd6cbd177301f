//! Access logs: turns a log and the flags into requests, and into notes for the user.

use std::path::Path;

use hotlap_load::plan::escape;
use hotlap_servers::access_log::{self, AccessLog, LinesLeftOut, Replay, ReplayOrder};

use crate::cli::{ReplayArgs, ReplayMode};
use crate::exit::usage;
use crate::text::number;

/// Reads an access log. Its requests get the given headers. `seed` determines a random order, and
/// `speed` is how many times as fast the log is replayed. Returns the log with notes for the user.
pub fn read(
    file: &Path,
    args: ReplayArgs,
    seed: u64,
    speed: f64,
    headers: &[(String, String)],
) -> anyhow::Result<(AccessLog, Vec<String>)> {
    let order = match args.replay.unwrap_or(ReplayMode::Order) {
        ReplayMode::Order => ReplayOrder::Lines,
        ReplayMode::Weights => ReplayOrder::Random { seed },
        ReplayMode::Times => ReplayOrder::Times { speed },
    };
    let replay = Replay { order, unsafe_methods: args.unsafe_methods };
    let mut log = access_log::read(file, replay).or_else(|error| usage(error.to_string()))?;
    for ask in &mut log.requests.asks {
        // Paths are fields, so placeholders in headers would be replaced. Given headers are
        // literal.
        let literal = |value: &str| String::from_utf8_lossy(&escape(value.as_bytes())).into_owned();
        let is_given = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        ask.headers.retain(|(name, _)| !is_given(name));
        ask.headers.extend(headers.iter().map(|(name, value)| (name.clone(), literal(value))));
    }
    let notes = notes(file, &log.left_out);
    Ok((log, notes))
}

/// Rejects the options of a replay if there is no access log.
pub fn needs_log(args: ReplayArgs) -> anyhow::Result<()> {
    let given = [("--replay", args.replay.is_some()), ("--unsafe-methods", args.unsafe_methods)];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => usage(format!("{option} needs an access log: add --access-log FILE")),
    }
}

/// Describes what was left out of an access log.
fn notes(file: &Path, left_out: &LinesLeftOut) -> Vec<String> {
    let file = file.display();
    let LinesLeftOut { of, lines, first, methods } = left_out;
    let mut notes = Vec::new();
    if let Some((line, cause)) = first {
        let (lines, of) = (number::count(*lines), number::plural(*of as usize, "line"));
        notes.push(format!(
            "{file}: hotlap leaves out {lines} of {of}. The first is line {line}, which {cause}"
        ));
    }
    if !methods.is_empty() {
        let all = number::plural(methods.values().sum::<u64>() as usize, "request");
        let by_method: Vec<String> = methods
            .iter()
            .map(|(name, count)| format!("{name} {}", number::count(*count)))
            .collect();
        notes.push(format!(
            "{file}: hotlap leaves out {all} with methods other than GET and HEAD ({}). With \
             --unsafe-methods, hotlap sends these requests without bodies",
            by_method.join(", ")
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_said_once() {
        let cause = "has no request".to_owned();
        let methods = [("POST".to_owned(), 1_200), ("PUT".to_owned(), 3)].into();
        let left_out = LinesLeftOut { of: 2_034, lines: 17, first: Some((12, cause)), methods };
        let expected = [
            "a.log: hotlap leaves out 17 of 2,034 lines. The first is line 12, which has no request",
            "a.log: hotlap leaves out 1,203 requests with methods other than GET and HEAD (POST \
             1,200, PUT 3). With --unsafe-methods, hotlap sends these requests without bodies",
        ];
        assert_eq!(notes(Path::new("a.log"), &left_out), expected);
        assert!(notes(Path::new("a.log"), &LinesLeftOut::default()).is_empty());
    }
}
