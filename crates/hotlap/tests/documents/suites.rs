//! Tests the suites of this repository. Each suite can be read and names only what the catalogue
//! has.

use std::path::{Path, PathBuf};

use hotlap_bench::suite::{self, Suite};
use hotlap_servers::catalogue::{Catalogue, SpokenProtocol};
use hotlap_servers::contract::Contract;

fn root(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)
}

#[test]
fn every_suite_names_servers_that_answer_its_contract_and_requests_that_it_has() {
    let catalogue = Catalogue::open(&root("servers")).unwrap();
    let names = suite::names(&root("suites"));
    let known = [
        "app-servers",
        "hello",
        "http2",
        "json-api",
        "layers",
        "nim-speedup",
        "quick",
        "tls",
        "web",
    ];
    assert!(known.iter().all(|name| names.iter().any(|n| n == name)), "{names:?}");
    for name in names {
        let suite = Suite::open(&name, &root("suites")).unwrap();
        assert!(!suite.about.is_empty(), "{name}");
        for entry in &suite.servers {
            let server = catalogue.find(&entry.run);
            let server = server.unwrap_or_else(|| panic!("{name}:{}: {}", entry.line, entry.run));
            for contract in &suite.contracts {
                assert!(server.contracts.contains(contract), "{name}: {}", entry.run);
            }
            for protocol in
                suite.loads.iter().map(|load| SpokenProtocol::of(load.protocol, suite.https))
            {
                assert!(server.protocols.contains(&protocol), "{name}: {}", entry.run);
            }
        }
        let exchanges = suite.contracts.iter().flat_map(|c| Contract::of(*c, None).exchanges);
        let exchanges: Vec<String> = exchanges.map(|exchange| exchange.name).collect();
        for request in suite.loads.iter().filter_map(|l| l.request.as_ref()) {
            assert!(exchanges.contains(request), "{name}: {request}");
        }
    }
}

#[test]
fn every_published_row_has_a_source_a_year_and_what_it_is_set_against() {
    for name in suite::names(&root("suites")) {
        let suite = Suite::open(&name, &root("suites")).unwrap();
        for source in &suite.published {
            let citation = &source.citation;
            assert!(!citation.source.is_empty() && citation.year > 2010, "{name}");
            let reference =
                source.reference.unwrap_or_else(|| panic!("{name}: {}", citation.source));
            if source.rows.iter().any(|row| row.entry == reference) {
                continue;
            }
            panic!("{name}: {} has no row for its reference", citation.source);
        }
        for absent in &suite.absent {
            assert!(!absent.why.is_empty(), "{name}: {}", absent.name);
        }
    }
}
