//! The servers while they are measured: estimates whose intervals narrow, and the generator's
//! health.
//!
//! The measuring thread only pushes a few figures per lap and per window of a warm-up. The drawing
//! thread computes the estimates.

use std::collections::BTreeMap;

use hotlap_stats::{Reading, Share, level};

use crate::report::figure::{exactly, micros, per_second};
use crate::text::layout;
use crate::text::number::time;
use crate::text::table::{Column, Table};

/// The maximum number of rows: the view must fit a terminal with 24 lines.
const MOST: usize = 16;

/// The figures of one lap.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// The index of the server.
    pub server: usize,
    /// The restart, from 0.
    pub restart: u32,
    /// The round of the restart, from 0.
    pub round: u32,
    /// Requests per second.
    pub requests_per_s: f64,
    /// CPU time per request, in nanoseconds.
    pub cost_ns: Option<f64>,
    /// The share of the lap that the busiest generator thread was on a core.
    pub busy: f64,
    /// How late the generator sent (99th percentile), in nanoseconds; `None` in a closed loop.
    pub late_ns: Option<u64>,
}

/// The contents of the view.
#[derive(Debug, Default)]
pub struct Board {
    names: Vec<String>,
    laps: Vec<Seen>,
    /// Requests/s in the latest window of the warm-up of each server.
    warming: BTreeMap<usize, f64>,
    running: Option<usize>,
    late_ns: u64,
}

impl Board {
    /// An empty view for these servers; a server with an empty name is hidden.
    pub fn new(names: Vec<String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Sets the server whose lap it is, or none.
    pub fn running(&mut self, server: Option<usize>) {
        self.running = server;
    }

    /// Sets the requests/s of a server that is warming up.
    pub fn warming(&mut self, server: usize, requests_per_s: f64) {
        self.running = Some(server);
        self.warming.insert(server, requests_per_s);
    }

    /// Adds a lap; a lap at a rate only adds the generator's lateness.
    pub fn lap(&mut self, seen: Seen) {
        match seen.late_ns {
            Some(late) => self.late_ns = late,
            None => self.laps.push(seen),
        }
    }

    /// The lines of the view, at most `width` columns wide.
    pub fn lines(&self, width: usize) -> Vec<String> {
        let shown: Vec<usize> = (0..self.names.len())
            .filter(|&i| {
                !self.names[i].is_empty() && (self.has_laps(i) || self.warming.contains_key(&i))
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
        let stops = "q stops and prints the table so far";
        match self.laps.last() {
            Some(lap) => format!("generator {:.0} % busy{late} · {stops}", lap.busy * 100.0),
            None => stops.to_owned(),
        }
    }

    fn has_laps(&self, server: usize) -> bool {
        self.of(server).next().is_some()
    }

    fn laps_cell(&self, server: usize) -> String {
        match self.of(server).count() {
            0 => "warm-up".to_owned(),
            laps => laps.to_string(),
        }
    }

    fn of(&self, server: usize) -> impl Iterator<Item = &Seen> {
        self.laps.iter().filter(move |l| l.server == server)
    }

    fn level(
        &self,
        server: usize,
        value: impl Fn(&Seen) -> Option<f64>,
    ) -> Option<hotlap_stats::Estimate> {
        let reading = |l: &Seen| {
            let share = Share::whole(value(l)?);
            Some(Reading { restart: l.restart, round: l.round, share })
        };
        level(&self.of(server).filter_map(reading).collect::<Vec<_>>(), 0.95)
    }

    fn rate(&self, server: usize) -> String {
        let level = self.level(server, |l| Some(l.requests_per_s));
        let warming = || self.warming.get(&server).map(|rate| per_second(&exactly(*rate)).text);
        level.map(|l| per_second(&l).full()).or_else(warming).unwrap_or_default()
    }

    fn cost(&self, server: usize) -> String {
        let level = self.level(server, |l| Some(l.cost_ns? / 1e3));
        level.map_or_else(String::new, |l| micros(&l).full())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(server: usize, restart: u32, requests_per_s: f64) -> Seen {
        let cost_ns = Some(1e9 / requests_per_s);
        Seen { server, restart, round: 0, requests_per_s, cost_ns, busy: 0.61, late_ns: None }
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
            board.lap(seen(server, restart, rate));
        }
        board.lap(Seen { late_ns: Some(12_000), ..seen(0, 0, 1.0) });
        board.running(Some(1));
        assert_eq!(
            board.lines(80),
            [
                "generator 61 % busy, 12 µs late (p99) · q stops and prints the table so far",
                "   server     requests/s  CPU µs/request  laps",
                "   go      50,000 ± 0.5%     20.0 ± 0.5%     3",
                ">  node           30,000            33.3     1",
            ]
        );
    }

    #[test]
    fn sixty_servers_fit_a_terminal_and_the_one_that_runs_is_in_view() {
        let mut board = Board::new((0..60).map(|i| format!("server {i}")).collect());
        (0..60).for_each(|i| board.lap(seen(i, 0, 1e3)));
        board.running(Some(40));
        let lines = board.lines(80);
        assert!(lines.len() <= 22, "{}", lines.len());
        assert!(lines.iter().any(|l| l.starts_with(">  server 40")), "{lines:?}");
    }
}
