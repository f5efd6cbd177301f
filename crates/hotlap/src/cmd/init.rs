//! `hotlap init`: prints a suite file for the named servers, with comments about the keys.

use crate::cli::InitArgs;
use crate::console::Console;
use crate::exit::Exit;

/// The text of the suite file before the list of servers.
const HEAD: &str = r#"# A suite of hotlap: servers, loads and requests.
# Run it with: hotlap run --suite ./FILE.toml

about = "What this compares, and why. The report begins with it."

# compare: which server is faster?  layers: how much more does each server cost than the server
# before it?  scale: how do requests/s grow with a value that is given as a list?
question = "compare"

# The contract that built-in servers must meet, or several contracts: "db,queries,fortunes". Each
# contract gets a table. Without this key, a server has its usual contract. A command or a URL must
# repeat its first response.
# contract = "hello"

# The server that the others are compared with. Without this key, the first server.
# reference = "NAME"

# How long to measure, and how narrow the intervals must be to stop early.
duration = "2m"
# precision = "1%"

# How long a server runs before it is frozen and the others run. Without this key, 12ms if every
# server costs the same in such slices as when left running, else 100ms, and more for slow servers.
# slice = "100ms"

# Stress scenarios that follow the measurement: overload, churn, slow headers, ...
# stress = ["overload"]

# Cores for the servers. Without this key, half of them.
# cpus = 1

# Start the servers with a certificate and load them over TLS. Commands find the certificate in
# TLS_CERT and its key in TLS_KEY.
# https = true

# Leave out servers whose toolchain is missing. Without this key, they are shown as failed.
# leave_out_missing = true

# Start PostgreSQL for the servers, with the tables and rows of an SQL file. Servers find it
# through DATABASE_URL (docs/databases.md).
# with_postgres = "schema.sql"

# A server of the catalogue, a command or a URL, or a table with these keys:
#   run    = the server of the catalogue, the command or the URL
#   name   = the name in tables
#   on     = the layer below, for layers
#   cpus   = the number of cores that the server should use (CPUS), or a list, with a row for each
#   counts = { file = "access.log", per_request = 1 }   the lines that the server must append
servers = [
"#;

/// The text of the suite file after the list of servers.
const TAIL: &str = r#"]

# A load. A value may be a list: every combination becomes a load. Repeat [[load]] for more. A load
# with a rate (requests/s) is an open loop, measured at that rate only.
[[load]]
connections = 64
# threads   = 1
# close     = [false, true]
# pipeline  = 1
# protocol  = "h2"
# streams   = 10
# request   = "POST /bla"
# rate      = 1000

# The request to commands and URLs. For several requests, or fields that vary, name a file above the
# servers instead: requests_file = 'requests.toml' or access_log = 'access.log' (docs/requests.md).
# [request]
# method        = "GET"
# path          = "/"
# headers       = { Accept = "text/plain" }
# body          = ""
# expect_status = 200
# expect_body   = "Hello, World!"

# Published figures to show next to the measured ones.
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

/// Prints the suite file.
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

/// Quotes a text as a TOML string: literally if possible, else with escapes (TOML 1.0, "String").
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
