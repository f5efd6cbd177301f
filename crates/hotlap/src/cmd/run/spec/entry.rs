//! Entries name the servers of a run. An entry is an argument of the command line, or an item in
//! the list of a suite. `-L workers 1,2,4` repeats each argument for every value. A pattern names
//! several servers.

use hotlap_bench::suite::{self, Publication, PublishedFigure, Suite};
use hotlap_servers::launch::Counts;

use crate::exit::usage;
use crate::model::{Published, Than};

/// One argument, or one entry of a suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// A server of the catalogue or a pattern, a command, or a URL.
    pub run: String,
    /// The name for tables, if the suite gives one. Only for an entry that matches one server.
    pub name: Option<String>,
    /// The number of cores that its servers are told to use, and the name without it.
    pub cpus: Option<(usize, String)>,
    /// The index of the entry that is the layer below.
    pub on: Option<usize>,
    /// A side effect that must happen once per request.
    pub counts: Option<Counts>,
    /// Published figures of this server. Servers in them are indices of entries.
    pub published: Vec<Published>,
    /// Its line in the suite. 0 for a command-line argument.
    pub line: usize,
}

/// The servers with each value of each parameter in place of `{NAME}`, in the order given.
/// `parameters` are names, each followed by its values, which commas separate.
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

/// The arguments of the command line. With `layers`, each adds a layer to the one before it.
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

/// The entries of a suite.
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

/// What a source published for one of the entries of a suite.
fn published(source: &Publication, entry: usize) -> Vec<Published> {
    // Compared with the reference's figure under the same load, or with the reference's first
    // figure if there is none under that load.
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
