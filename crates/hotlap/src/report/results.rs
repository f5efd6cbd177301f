//! The results of one load.

use serde::Serialize;

use super::loads::{load_title, under, with_load};
use super::sentences;
use super::{Noise, RequestRow, Row};
use crate::analysis::Analysis;
use crate::model::{Load, Run};
use crate::text::number::rounded;

/// The results of one load.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct LoadResults {
    /// The index of the load.
    pub load: usize,
    /// The load, in words; empty where it is the only one.
    pub title: String,
    /// ` under POST /bla`, for a sentence about one of several loads; empty for the only one.
    #[serde(skip)]
    pub under: String,
    /// The rate that the load offers, in requests/s; `None` in a closed loop.
    pub rate: Option<f64>,
    /// Whether any server has a lap that counts.
    #[serde(skip)]
    pub is_measured: bool,
    /// Name of the reference.
    pub reference: Option<String>,
    /// What separates the reference from itself under this load.
    pub noise: Option<Noise>,
    /// By rank; then those without one; the ceiling last.
    pub rows: Vec<Row>,
    /// Each request to each of these servers; empty if the load sends one request.
    pub by_request: Vec<RequestRow>,
    /// What this load says, in sentences.
    pub sentences: Vec<String>,
}

impl LoadResults {
    pub(super) fn of(run: &Run, analysis: &Analysis) -> Self {
        let load = &run.loads[analysis.load];
        let mut order: Vec<usize> =
            (0..run.servers.len()).filter(|&server| run.is_shown(server)).collect();
        analysis.sort(run, &mut order);
        let all: Vec<&Load> = run.loads.iter().collect();
        let mut results = Self {
            load: analysis.load,
            title: match all.len() {
                1 => String::new(),
                _ => load_title(load, &all),
            },
            under: under(run, analysis.load),
            rate: load.rate.map(rounded),
            is_measured: analysis.is_measured(),
            reference: analysis.reference.map(|r| run.servers[r].name.clone()),
            noise: Noise::of(run, analysis),
            rows: order.iter().map(|server| Row::of(run, analysis, *server)).collect(),
            by_request: Vec::new(),
            sentences: sentences::of_table(run, analysis),
        };
        let common_rate = results.common_rate();
        let rows = order.into_iter().zip(&results.rows);
        let requests = rows.flat_map(|row| RequestRow::all_of(run, analysis, row, common_rate));
        results.by_request = requests.collect();
        results
    }

    /// A server's name that is unique over all loads.
    pub fn unique_name(&self, server: &str) -> String {
        match self.title.is_empty() {
            true => server.to_owned(),
            false => format!("{server} ({})", self.title),
        }
    }

    /// The sentences, each with its load where there are several.
    pub(super) fn sentences_with_load(&self) -> impl Iterator<Item = String> {
        self.sentences.iter().map(|sentence| with_load(&self.under, sentence))
    }
}
