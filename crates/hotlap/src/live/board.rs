//! The servers during the measurement, with their estimates so far, and how busy and late the
//! generator is.
//!
//! The measuring thread only adds a few figures per lap and per window of a warm-up. The drawing
//! thread computes the estimates.

use std::collections::BTreeMap;

use hotlap_stats::{Reading, level};

use crate::model::Lap;
use crate::report::figure::{exactly, micros, per_second};
use crate::text::layout;
use crate::text::number::time;
use crate::text::table::{Column, Table};

/// The maximum number of rows. The view must fit into a terminal with 24 lines.
const MOST: usize = 16;

/// The contents of the live view.
#[derive(Debug, Default)]
pub struct Board {
    names: Vec<String>,
    /// Requests/s of each server, with one reading per lap in a closed loop.
    rates: Vec<Vec<Reading>>,
    /// CPU time per request of each server, in nanoseconds.
    costs: Vec<Vec<Reading>>,
    /// Requests/s of each server in the latest window of its warm-up.
    warming: BTreeMap<usize, f64>,
    running: Option<usize>,
    /// The share of the latest lap in which the busiest generator thread had something to do.
    busy: Option<f64>,
    late_ns: u64,
    /// Whether the key `q` has no effect, because hotlap does not read the keyboard.
    is_deaf: bool,
}

impl Board {
    /// Creates an empty view for these servers. A server with an empty name is hidden.
    pub fn new(names: Vec<String>) -> Self {
        let none = vec![Vec::new(); names.len()];
        Self { names, rates: none.clone(), costs: none, ..Self::default() }
    }

    /// Sets whether the key `q` ends the run.
    pub fn listens(&mut self, has_keys: bool) {
        self.is_deaf = !has_keys;
    }

    /// Sets the server that is running a lap, or none.
    pub fn running(&mut self, server: Option<usize>) {
        self.running = server;
    }

    /// Sets the requests/s of a server that is warming up.
    pub fn warming(&mut self, server: usize, requests_per_s: f64) {
        self.running = Some(server);
        self.warming.insert(server, requests_per_s);
    }

    /// Adds a lap if it counts and belongs to the first load. A lap at a rate only sets the
    /// generator's lateness.
    pub fn lap(&mut self, lap: &Lap) {
        if !lap.counts() || lap.load != 0 {
            return;
        }
        if lap.rate().is_some() {
            self.late_ns = lap.outcome.lag.quantile(0.99);
            return;
        }
        let reading = |share| Reading { restart: lap.restart, round: lap.round, share };
        self.busy = Some(lap.outcome.busiest());
        self.rates[lap.server].push(reading(lap.rate_share()));
        self.costs[lap.server].extend(lap.cost_share().map(reading));
    }

    /// Returns the lines of the view, which are at most `width` columns wide.
    pub fn lines(&self, width: usize) -> Vec<String> {
        let shown: Vec<usize> = (0..self.names.len())
            .filter(|&i| {
                !self.names[i].is_empty()
                    && (!self.rates[i].is_empty() || self.warming.contains_key(&i))
            })
            .collect();
        if shown.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![self.health()];
        // The current server is always visible.
        let first = shown.iter().position(|i| Some(*i) == self.running).unwrap_or(0);
        let first = (first + 1).saturating_sub(MOST);
        let rows = &shown[first..shown.len().min(first + MOST)];
        let cells = |of: &dyn Fn(usize) -> String| rows.iter().map(|&i| of(i)).collect::<Vec<_>>();
        let mark = |i| if self.running == Some(i) { ">" } else { " " }.to_owned();
        let table = Table::new(vec![
            Column::left("", cells(&mark)),
            Column::name("server", cells(&|i| self.names[i].clone())),
            Column::right("requests/s", cells(&|i| self.rate(i))),
            Column::right("CPU µs\n/request", cells(&|i| self.cost(i))),
            Column::right("laps", cells(&|i| self.laps_cell(i))).drop_order(1),
        ]);
        lines.extend(layout::lines(&table, width).all().cloned());
        if rows.len() < shown.len() {
            lines.push(format!("  … {} of {} servers", rows.len(), shown.len()));
        }
        lines
    }

    fn health(&self) -> String {
        let late = match self.late_ns {
            0 => String::new(),
            ns => format!(", {} late (p99)", time(ns as f64 / 1e6)),
        };
        let stops = match self.is_deaf {
            true => "Ctrl-C stops and prints the table so far",
            false => "q stops and prints the table so far",
        };
        match self.busy {
            Some(busy) => format!("generator {:.0}% busy{late} · {stops}", busy * 100.0),
            None => stops.to_owned(),
        }
    }

    fn laps_cell(&self, server: usize) -> String {
        match self.rates[server].len() {
            0 => "warm-up".to_owned(),
            laps => laps.to_string(),
        }
    }

    fn rate(&self, server: usize) -> String {
        let warming = || self.warming.get(&server).map(|rate| per_second(&exactly(*rate)).text);
        let level = level(&self.rates[server], 0.95).map(|level| per_second(&level).full());
        level.or_else(warming).unwrap_or_default()
    }

    fn cost(&self, server: usize) -> String {
        let level = level(&self.costs[server], 0.95);
        level.map_or_else(String::new, |level| micros(&level.scaled(1e-3)).full())
    }
}

#[cfg(test)]
mod tests {
    use hotlap_bench::lap::{LapKind, Usage};
    use hotlap_load::Outcome;
    use hotlap_load::outcome::ThreadUsage;

    use super::*;

    fn lap(server: usize, restart: u32, requests_per_s: f64, kind: LapKind) -> Lap {
        let threads = vec![ThreadUsage { cpu_ns: 610, wall_ns: 1_000, ..ThreadUsage::default() }];
        let responses = requests_per_s as u64;
        let mut outcome =
            Outcome { responses, window_ns: 1_000_000_000, threads, ..Outcome::default() };
        outcome.lag.record(12_000);
        let cpu_ns = Some(1_000_000_000);
        let usage = Usage { requests: responses, cpu_ns, ..Usage::default() };
        Lap { restart, ..Lap::new((server, 0), kind, 0, outcome, Some(usage)) }
    }

    #[test]
    fn estimates_are_shown_as_they_narrow() {
        let mut board = Board::new(vec!["go".to_owned(), "node".to_owned(), String::new()]);
        assert_eq!(board.lines(80), Vec::<String>::new());
        board.warming(0, 12_340.0);
        assert_eq!(
            board.lines(80)[1..],
            ["   server  requests/s     laps", ">  go          12,340  warm-up"]
        );
        for (server, restart, rate) in
            [(0, 0, 50e3), (1, 0, 30e3), (2, 0, 9e3), (0, 1, 50.1e3), (0, 2, 49.9e3)]
        {
            board.lap(&lap(server, restart, rate, LapKind::Flat));
        }
        board.lap(&lap(0, 0, 1.0, LapKind::Paced { rate: 1.0 }));
        board.running(Some(1));
        assert_eq!(
            board.lines(80),
            [
                "generator 61% busy, 12 µs late (p99) · q stops and prints the table so far",
                "   server     requests/s  CPU µs/request  laps",
                "   go      50,000 ± 0.5%     20.0 ± 0.5%     3",
                ">  node           30,000            33.3     1",
            ]
        );
    }

    #[test]
    fn sixty_servers_fit_a_terminal_and_the_one_that_runs_is_in_view() {
        let mut board = Board::new((0..60).map(|i| format!("server {i}")).collect());
        (0..60).for_each(|i| board.lap(&lap(i, 0, 1e3, LapKind::Flat)));
        board.running(Some(40));
        let lines = board.lines(80);
        assert!(lines.len() <= 22, "{}", lines.len());
        assert!(lines.iter().any(|l| l.starts_with(">  server 40")), "{lines:?}");
    }
}
