//! Entries name the servers of a run. An entry is an argument of the command line, or an item in
//! the server list of a suite. `-L workers 1,2,4` repeats each argument that contains `{workers}`
//! for every value. A pattern names several servers.

use hotlap_bench::suite::{self, Publication, PublishedFigure, Suite};
use hotlap_servers::launch::Counts;

use crate::exit::usage;
use crate::model::{Published, Than};

/// One argument, or one entry of a suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// A server of the catalogue or a pattern, a command, or a URL.
    pub run: String,
    /// The name in tables, if the suite gives one. Ignored if the entry matches several servers.
    pub name: Option<String>,
    /// The number of cores that the servers are told to use, and the name without this number.
    pub cpus: Option<(usize, String)>,
    /// The index of the entry that is the layer below.
    pub on: Option<usize>,
    /// A side effect that must happen a known number of times per request.
    pub counts: Option<Counts>,
    /// The published figures of this server. Servers in these figures are indices of entries.
    pub published: Vec<Published>,
    /// The line of the entry in the suite, or 0 for a command-line argument.
    pub line: usize,
}

/// Replaces `{NAME}` in the servers with each value of each parameter, in the order given. In
/// `parameters`, each name is followed by its values, which are separated by commas.
pub(super) fn expanded(servers: &[String], parameters: &[String]) -> anyhow::Result<Vec<String>> {
    let mut servers = servers.to_vec();
    for pair in parameters.chunks_exact(2) {
        let (name, values) = (&pair[0], &pair[1]);
        if ["port", "host", "cpus", "tls_cert", "tls_key"].contains(&name.as_str()) {
            return usage(format!(
                "-L {name}: hotlap fills in {{{name}}} itself. Choose another name."
            ));
        }
        let place = format!("{{{name}}}");
        if !servers.iter().any(|server| server.contains(&place)) {
            return usage(format!(
                "-L {name}: no server contains {place}. Write {place} where the values belong."
            ));
        }
        let with_each = |server: &String| -> Vec<String> {
            match server.contains(&place) {
                true => values.split(',').map(|value| server.replace(&place, value)).collect(),
                false => vec![server.clone()],
            }
        };
        servers = servers.iter().flat_map(with_each).collect();
    }
    Ok(servers)
}

/// Turns command-line arguments into entries. With `layers`, each entry is a layer above the
/// previous entry.
pub fn typed(servers: &[String], layers: bool) -> Vec<Entry> {
    let entry = |(index, run): (usize, &String)| Entry {
        run: run.clone(),
        name: None,
        cpus: None,
        on: index.checked_sub(1).filter(|_| layers),
        counts: None,
        published: Vec::new(),
        line: 0,
    };
    servers.iter().enumerate().map(entry).collect()
}

/// Turns the servers of a suite into entries.
pub fn of_suite(suite: &Suite) -> Vec<Entry> {
    let read = |(index, entry): (usize, &suite::SuiteServer)| Entry {
        run: entry.run.clone(),
        name: (entry.name.is_some() || entry.cpus.is_some()).then(|| entry.title()),
        cpus: entry.cpus.map(|n| (n, entry.name.clone().unwrap_or_else(|| entry.run.clone()))),
        on: entry.on,
        counts: entry.counts.clone(),
        published: suite.published.iter().flat_map(|s| published(s, index)).collect(),
        line: entry.line,
    };
    suite.servers.iter().enumerate().map(read).collect()
}

/// Returns what a source published for one entry of a suite.
fn published(source: &Publication, entry: usize) -> Vec<Published> {
    // A figure is compared only with the reference's figure under the same load.
    let than = |row: &PublishedFigure| {
        let reference = source.reference?;
        let own = || source.rows.iter().filter(|r| r.entry == reference);
        let base = own().find(|r| r.load == row.load)?;
        Some(Than { server: reference, requests_per_s: base.requests_per_s })
    };
    let rows = source.rows.iter().filter(|row| row.entry == entry);
    rows.map(|row| Published {
        figure: row.clone(),
        citation: source.citation.clone(),
        than: than(row),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(servers: &[&str], parameters: &[&str]) -> Result<Vec<String>, String> {
        let owned =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        expanded(&owned(servers), &owned(parameters)).map_err(|error| error.to_string())
    }

    #[test]
    fn each_value_makes_a_server() {
        let found = with(&["go/net-http", "a -w {w} -t {t}"], &["w", "1,2", "t", "x,y"]).unwrap();
        let a = ["a -w 1 -t x", "a -w 1 -t y", "a -w 2 -t x", "a -w 2 -t y"];
        assert_eq!(found[1..], a);
        assert_eq!(with(&["a"], &[]).unwrap(), ["a"]);
        assert_eq!(
            with(&["a"], &["w", "1"]),
            Err("-L w: no server contains {w}. Write {w} where the values belong.".to_owned())
        );
        assert!(with(&["a {port}"], &["port", "1"]).is_err());
    }
}
