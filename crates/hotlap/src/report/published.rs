//! What somebody published, elsewhere and then, beside what was measured here.
//!
//! Only ratios travel between machines, so each figure is set against one of the same source, and
//! what was measured against the same server here. What speaks against a figure stands with it.

use hotlap_stats::Estimate;

use super::figure::{self, bare, ratio};
use super::standing::{Standing, is_compared};
use super::{Figure, Published, Table};
use crate::record::{self, Run};

/// All that was published for a server under this load.
#[must_use]
pub fn published(run: &Run, standing: &Standing, server: usize) -> Vec<Published> {
    let all = run.servers[server].published.iter().filter(|p| p.load == standing.load);
    all.map(|then| beside(run, standing, server, then)).collect()
}

fn beside(run: &Run, standing: &Standing, server: usize, then: &record::Published) -> Published {
    let than = then.than.as_ref();
    let ratio_then = than
        .filter(|t| t.server != server)
        .map(|t| ratio(&exactly(then.requests_per_s / t.requests_per_s)));
    let compared = than
        .map(|t| t.server)
        .filter(|other| *other != server && is_compared(run, *other) && is_compared(run, server));
    let ratio_here =
        compared.and_then(|other| match standing.compared(&[(server, other)])[0].rate {
            Some((effect, _)) => Some(ratio(&effect.ratio)),
            None => bound(standing, server, other),
        });
    let name = than.map_or("", |t| run.servers[t.server].name.as_str());
    let is_bound = |i: usize| standing.servers[i].is_bound;
    let here = match (&ratio_here, compared) {
        (Some(figure), _) => figure.full(),
        (None, Some(other)) if is_bound(server) && is_bound(other) => {
            "not to be told, as the generator was the limit of both".to_owned()
        }
        _ => "not measured".to_owned(),
    };
    let sentence = match (&ratio_then, than) {
        (Some(r), _) => format!("{}: {} of {name} · here: {here}", then.year, r.text),
        (None, Some(_)) => format!("{}: 1×, what the others are set against", then.year),
        (None, None) => format!(
            "{}: {} requests/s, set against nothing",
            then.year,
            figure::rate(then.requests_per_s)
        ),
    };
    Published {
        called: then.called.clone(),
        requests_per_s: bare(then.requests_per_s, figure::grouped(then.requests_per_s.round(), 0)),
        latency_ms: then.latency_ms,
        memory_mb: then.memory_mb,
        cpu_percent: then.cpu_percent,
        year: then.year,
        source: then.source.clone(),
        machine: then.machine.clone(),
        command: then.command.clone(),
        than: name.to_owned(),
        ratio_then,
        ratio_here,
        sentence,
        doubt: then.doubt.clone(),
        source_doubt: then.source_doubt.clone(),
        socket_errors: then.socket_errors,
    }
}

fn exactly(value: f64) -> Estimate {
    Estimate { value, low: f64::NAN, high: f64::NAN }
}

/// What a server's ratio to another is at least, or at most, where the generator was the limit of
/// one of the two.
fn bound(standing: &Standing, server: usize, other: usize) -> Option<Figure> {
    let (server, other) = (&standing.servers[server], &standing.servers[other]);
    let sign = match (server.is_bound, other.is_bound) {
        (true, false) => "≥",
        (false, true) => "≤",
        _ => return None,
    };
    let value = server.rate.as_ref()?.value / other.rate.as_ref()?.value;
    Some(bare(value, format!("{sign} {}", ratio(&exactly(value)).text)))
}

/// What one source published for the servers of a table.
#[derive(Debug)]
pub struct Page<'a> {
    /// One of its rows, for what all of them share.
    pub any: &'a Published,
    /// Whose, and what.
    pub rows: Vec<(&'a str, &'a Published)>,
}

/// What was published for the servers of a table, source by source.
#[must_use]
pub fn pages(table: &Table) -> Vec<Page<'_>> {
    let mut pages: Vec<Page> = Vec::new();
    for row in &table.rows {
        for then in &row.published {
            let of = |p: &Published| (p.source.clone(), p.machine.clone(), p.command.clone());
            match pages.iter_mut().find(|page| of(page.any) == of(then)) {
                Some(page) => page.rows.push((&row.name, then)),
                None => pages.push(Page { any: then, rows: vec![(&row.name, then)] }),
            }
        }
    }
    pages
}

impl Page<'_> {
    /// On which machine and how, and what speaks against all of it, in parts.
    #[must_use]
    pub fn circumstances(&self) -> Vec<String> {
        let doubt = match self.any.source_doubt.as_str() {
            "" => String::new(),
            doubt => format!("doubt: {doubt}"),
        };
        let parts = [self.any.machine.clone(), self.any.command.clone(), doubt];
        parts.into_iter().filter(|part| !part.is_empty()).collect()
    }
}

impl Published {
    /// The sentence, and what speaks against it.
    #[must_use]
    pub fn said(&self) -> String {
        match self.doubt.is_empty() {
            true => self.sentence.clone(),
            false => format!("{} · doubt: {}", self.sentence, self.doubt),
        }
    }
}
