//! Published figures beside measured ones, in words.

use serde::Serialize;

use super::figure::{Figure, bare, exactly, ratio};
use crate::analysis::Analysis;
use crate::analysis::published::{MeasuredRatio, ratio_here, ratio_then};
use crate::model::{Published, Run};
use crate::text::number;

/// A published figure beside the measured one.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct PublishedView {
    /// The name of the server in the source.
    pub called: String,
    /// Published requests per second.
    pub requests_per_s: Figure,
    /// Published average, standard deviation and longest latency, in milliseconds.
    pub latency_ms: Option<[f64; 3]>,
    /// Published memory, in MB.
    pub memory_mb: Option<f64>,
    /// Published CPU use, in per cent of one core.
    pub cpu_percent: Option<f64>,
    /// The year.
    pub year: u32,
    /// The source.
    pub source: String,
    /// The machine.
    pub machine: String,
    /// How it was measured.
    pub command: String,
    /// The server that the ratios are relative to; empty if there is none.
    pub relative_to: String,
    /// The published ratio to that server.
    pub ratio_then: Option<Figure>,
    /// The measured ratio to that server.
    pub ratio_here: Option<Figure>,
    /// `2016: 2.30× of puma · here: 4.10× [4.00, 4.20]`.
    pub sentence: String,
    /// Why it cannot be trusted; empty if there is no known reason.
    pub doubt: String,
    /// Why the whole source cannot be trusted; empty if there is no known reason.
    pub source_doubt: String,
    /// Published socket errors under overload: connect, read, write, timeout.
    pub socket_errors: Option<[u64; 4]>,
}

impl PublishedView {
    /// All figures published for a server under this load.
    pub(super) fn all_of<'a>(
        run: &'a Run,
        analysis: &'a Analysis,
        server: usize,
    ) -> impl Iterator<Item = Self> + 'a {
        let all = run.servers[server].published.iter().filter(|p| p.load == analysis.load);
        all.map(move |then| Self::of(run, analysis, server, then))
    }

    fn of(run: &Run, analysis: &Analysis, server: usize, then: &Published) -> Self {
        let base = then.than.as_ref();
        let relative_to = base.map_or("", |base| run.servers[base.server].name.as_str());
        let ratio_then = ratio_then(server, then).map(|value| ratio(&exactly(value)));
        let here = ratio_here(run, analysis, server, then);
        let bound =
            |sign: &str, value: f64| bare(value, format!("{sign} {}", ratio(&exactly(value)).text));
        let ratio_here = match here {
            MeasuredRatio::Known(estimate) => Some(ratio(&estimate)),
            MeasuredRatio::AtLeast(value) => Some(bound("≥", value)),
            MeasuredRatio::AtMost(value) => Some(bound("≤", value)),
            MeasuredRatio::Limited | MeasuredRatio::Unknown => None,
        };
        let here = match (&ratio_here, here) {
            (Some(figure), _) => figure.full(),
            (None, MeasuredRatio::Limited) => {
                "not known, the load generator limited both".to_owned()
            }
            _ => "not measured".to_owned(),
        };
        let sentence = match (&ratio_then, base) {
            (Some(r), _) => format!("{}: {} of {relative_to} · here: {here}", then.year, r.text),
            (None, Some(_)) => format!("{}: 1×, the others are relative to it", then.year),
            (None, None) => format!(
                "{}: {} requests/s, without a ratio",
                then.year,
                number::rate(then.requests_per_s)
            ),
        };
        let requests = number::grouped(then.requests_per_s.round(), 0);
        Self {
            called: then.called.clone(),
            requests_per_s: bare(then.requests_per_s, requests),
            latency_ms: then.latency_ms,
            memory_mb: then.memory_mb,
            cpu_percent: then.cpu_percent,
            year: then.year,
            source: then.source.clone(),
            machine: then.machine.clone(),
            command: then.command.clone(),
            relative_to: relative_to.to_owned(),
            ratio_then,
            ratio_here,
            sentence,
            doubt: then.doubt.clone(),
            source_doubt: then.source_doubt.clone(),
            socket_errors: then.socket_errors,
        }
    }

    /// The sentence, and the reason for caution.
    pub fn sentence_with_doubt(&self) -> String {
        match self.doubt.is_empty() {
            true => self.sentence.clone(),
            false => format!("{} · doubt: {}", self.sentence, self.doubt),
        }
    }
}
