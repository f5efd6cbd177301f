//! `hotlap init`: prints a suite file for the named servers, with a comment on every key.

use crate::cli::InitArgs;
use crate::console::Console;
use crate::exit::Exit;

/// The text before the servers.
const HEAD: &str = r#"# A suite of hotlap: which servers, under which loads, and what is asked.
# Run it with: hotlap run --suite ./FILE.toml   (from any folder)

about = "What this compares, and why. The report begins with it."

# compare: which is faster?  layers: what does each step cost, each server standing on the one
# before it?  scale: how do requests/s grow with a value that is given as a list?
question = "compare"

# What servers of the catalogue are held to: hello, clock, api or json-api. Without it each is held
# to its usual one. Commands and URLs are held to their own first answer.
# contract = "hello"

# The server that the others are compared with; without it the first.
# reference = "NAME"

# Time to spend in all, and the width of the intervals at which it may stop early.
budget = "2m"
# precision = "1%"

# How long a server runs before it is frozen and the others run; without it 12ms if
# every server then costs what it costs when left running, else 100ms.
# slice = "100ms"

# What each server meets alone once all is measured: overload, churn, slow headers, ...
# stress = ["overload"]

# Cores for the servers; without it half of them.
# cpus = 1

# Start the servers with a certificate and load them over TLS: https, and h2 with protocol = "h2".
# Commands find the files in TLS_CERT and TLS_KEY.
# https = true

# Leave out servers whose toolchain is missing, instead of showing them as failed.
# leave_out_missing = true

# Start PostgreSQL for the servers, with the tables and rows of an SQL file. Servers find it
# through DATABASE_URL (docs/databases.md).
# with_postgres = "schema.sql"

# A name of the catalogue, a command or a URL; or a table with
#   run    = what is run
#   name   = what tables call it
#   on     = the server that it stands on, for layers
#   cpus   = how many cores it is told to use (CPUS); a list gives a row each
#   counts = { file = "access.log", per_request = 1 }   lines that it must append
servers = [
"#;

/// The text that follows the servers.
const TAIL: &str = r#"]

# A load: each value may be a list, and lists are crossed. Repeat [[load]] for more. A load with a
# rate (requests/s) is an open loop: it is measured at that rate alone, by response time and CPU
# time per request.
[[load]]
connections = 64
# threads   = 1
# close     = [false, true]
# pipeline  = 1
# protocol  = "h2"
# streams   = 10
# request   = "POST /bla"
# rate      = 1000

# The request to commands and URLs. For several requests, or fields that vary, give a file instead,
# above the servers: requests_file = 'requests.toml', or access_log = 'access.log' (docs/requests.md
# describes both).
# [request]
# method        = "GET"
# path          = "/"
# headers       = { Accept = "text/plain" }
# body          = ""
# expect_status = 200
# expect_body   = "Hello, World!"

# Published figures, shown beside the measured ones.
# [[published]]
# source  = "the source"
# year    = 2016
# machine = "the machine"
# command = "the load generator and its options"
# doubt   = "why all of it may be wrong"
# rows    = [{ server = "NAME", requests_per_s = 1000, doubt = "why this one may be wrong" }]

# A published server that is not part of this suite.
# [[absent]]
# name = "NAME"
# why  = "the reason"
"#;

/// Prints the file.
pub fn run(args: &InitArgs, console: &Console) -> anyhow::Result<Exit> {
    console.data(&suite(&args.servers))?;
    Ok(Exit::Ok)
}

fn suite(servers: &[String]) -> String {
    let mut text = HEAD.to_owned();
    for server in servers {
        text += &format!("  {},\n", quoted(server));
    }
    text + TAIL
}

/// A TOML string: unchanged where possible, else with escapes (TOML 1.0, "String").
fn quoted(text: &str) -> String {
    if !text.contains(|c: char| c == '\'' || c.is_control()) {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out += &format!("\\u{:04X}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hotlap_bench::suite::Suite;

    use super::*;

    #[test]
    fn what_it_writes_can_be_read_with_every_server_as_it_was_named() {
        let servers = ["go/net-http", "node app.js", r#"sh -c 'echo "a\b"'"#, "a\tb"];
        let text = suite(&servers.map(str::to_owned));
        let suite = Suite::parse(&text, Path::new("mine.toml")).unwrap();
        let runs: Vec<&str> = suite.servers.iter().map(|s| s.run.as_str()).collect();
        assert_eq!(runs, servers);
    }

    #[test]
    fn each_key_that_is_commented_out_is_one_that_there_is() {
        let text = suite(&["NAME".to_owned(), "b".to_owned()]);
        let is_key = |l: &&str| {
            let key = l.split('=').next().unwrap_or_default().trim();
            l.starts_with('[')
                || (!l.starts_with(' ')
                    && l.contains('=')
                    && key.chars().all(|c| c == '_' || c.is_ascii_lowercase()))
        };
        let opened: Vec<&str> = text
            .lines()
            .map(|line| line.strip_prefix("# ").filter(is_key).unwrap_or(line))
            .collect();
        let suite = Suite::parse(
            &opened.join("\n").replace("request   = \"POST /bla\"", ""),
            Path::new("mine.toml"),
        );
        let suite = suite.unwrap();
        assert_eq!((suite.loads.len(), suite.published.len(), suite.absent.len()), (2, 1, 1));
        assert!(suite.request.is_some() && suite.precision.is_some());
        assert!(suite.leave_out_missing && suite.https);
    }
}
