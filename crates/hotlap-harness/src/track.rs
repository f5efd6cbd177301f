//! The costly things behind one seam: servers that start, warm up, run laps and stop.
//!
//! [`crate::race`] knows only this. The real track starts processes; a scripted one returns what a
//! test wrote down.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lap::{Count, Kind, Lap};

/// Where laps are run.
pub trait Track {
    /// Starts an entrant afresh and waits until it answers.
    ///
    /// # Errors
    /// Why it cannot take part (any more).
    fn start(&mut self, entrant: usize) -> Result<(), Retired>;

    /// Holds entrants that were started against their contracts. For each of them, in order, what
    /// it is like, or why it cannot take part.
    fn verify(&mut self, entrants: &[usize]) -> Vec<Result<Ready, Retired>>;

    /// Starts one entrant and verifies it.
    ///
    /// # Errors
    /// Why it cannot take part.
    fn bring_up(&mut self, entrant: usize) -> Result<Ready, Retired> {
        self.start(entrant)?;
        self.verify(&[entrant]).remove(0)
    }

    /// Loads an entrant until it is steady, or a limit is reached.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn warm(&mut self, entrant: usize, load: usize) -> Result<Warmup, Retired>;

    /// Drives some laps that do not count, where an entrant needs them before its first that does,
    /// once all are warm.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn practise(&mut self, _entrant: usize, _load: usize) -> Result<(), Retired> {
        Ok(())
    }

    /// Runs one lap. The race fills in heat, block and place.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn lap(&mut self, entrant: usize, load: usize, kind: Kind) -> Result<Lap, Retired>;

    /// How often all entrants are to be tried out, there and back, so that it is known how long
    /// turns and laps of a load have to be. Asked again after these, until there is nothing to be
    /// tried.
    fn tries(&mut self, _load: usize) -> u32 {
        0
    }

    /// Drives what is tried on an entrant, which does not count, in the so-manyth of these tries.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn try_out(&mut self, _entrant: usize, _load: usize, _step: u32) -> Result<(), Retired> {
        Ok(())
    }

    /// In how many turns a lap of an entrant at full load may be driven, between which others have
    /// theirs; 1 where it must be driven in one piece.
    fn turns(&self, _entrant: usize, _load: usize) -> u32 {
        1
    }

    /// Drives one turn of a lap at full load, where it may be driven in turns.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn turn(&mut self, _entrant: usize, _load: usize) -> Result<(), Retired> {
        unreachable!("its laps are driven in one piece")
    }

    /// The lap that an entrant has driven in turns since the last.
    ///
    /// # Errors
    /// Why it cannot take part any more.
    fn lap_of_turns(&mut self, entrant: usize, load: usize) -> Result<Lap, Retired> {
        self.lap(entrant, load, Kind::Flat)
    }

    /// How long the window of such a lap is: longer than the usual one for a server that answers
    /// slowly, and at a rate.
    fn lap_takes(&self, entrant: usize, load: usize, kind: Kind) -> Duration;

    /// Stops an entrant. Never fails: what is wrong is in what it returns.
    fn stop(&mut self, entrant: usize) -> Option<String>;

    /// Time since the race began.
    fn elapsed(&self) -> Duration;

    /// Whether the user wants to end it now.
    fn interrupted(&self) -> bool;
}

/// A server that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// From the start of the process to the first correct answer, in milliseconds.
    pub ready_ms: f64,
    /// Badges: checks passed and made, of those that are reported and not required.
    pub badges: (u32, u32),
    /// What should be told (answers that vary, a port found).
    pub notes: Vec<String>,
    /// Resident memory before any load, in bytes.
    pub rss_bytes: u64,
}

/// How a server came to be steady.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    /// Which way it went.
    pub class: hotlap_stats::steady::Class,
    /// From the first request of the warm-up to the steady state, in milliseconds.
    pub steady_ms: f64,
    /// The curve: answers per second in windows of equal length.
    pub curve: Vec<f64>,
    /// Length of one window, in milliseconds.
    pub window_ms: f64,
    /// What the hardware counted right after it, where the kernel permits it.
    pub count: Option<Count>,
}

/// Why a server is out of the race: the phase, the cause, its last words and the cure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{phase}: {cause}")]
pub struct Retired {
    /// What was being done (`start`, `verify`, `warm-up`, `lap`).
    pub phase: String,
    /// What happened.
    pub cause: String,
    /// The last lines that it printed.
    pub last_words: Vec<String>,
    /// What to do about it.
    pub cure: String,
}
