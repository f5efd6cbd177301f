//! The live line of a load.

use std::time::Instant;

use hotlap_load::Progress;
use hotlap_load::plan::{Pace, Plan, Stop};

use crate::console::Console;
use crate::live::Live;
use crate::text::number;

/// Shows the rate so far, and the time left if it is known.
pub struct LoadView {
    live: Live,
    began: Instant,
}

impl LoadView {
    /// Begins with the load; shows nothing where the console has no live view.
    pub fn start(plan: &Plan, console: &Console) -> Self {
        let quiet = Console { quiet: true, ..*console };
        let live = Live::start(if console.live { console } else { &quiet });
        match (plan.stop, &plan.pace) {
            (Stop::After(time), _) => live.left(plan.warmup + time),
            (Stop::Requests(_), Pace::Recorded(due)) => live.left(due.span()),
            (Stop::Requests(_), _) => {}
        }
        Self { live, began: Instant::now() }
    }

    /// Shows how far the load has come.
    pub fn show(&mut self, progress: Progress) {
        let rate = progress.responses as f64 / self.began.elapsed().as_secs_f64();
        let rate = number::rate(rate);
        self.live.phase(format!("{rate} requests/s, {} failed", progress.failures));
    }

    /// Removes the line.
    pub fn clear(&mut self) {
        self.live.clear();
    }
}
