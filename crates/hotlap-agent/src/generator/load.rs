//! One of the loads of a generator.

use std::time::{Duration, Instant};

use hotlap_load::plan::{Plan, Stop};
use hotlap_load::{Session, ValuesUsed};

use super::order::{Begun, Joined, Status};
use super::pauses::Pauses;
use crate::clock::Clock;

/// A load, from its connections on until the controller ends it.
#[derive(Debug)]
pub(super) struct Load {
    clock: Clock,
    /// `None` once it has been joined.
    session: Option<Session>,
    /// How long it sends before its window opens, if it has one window.
    warmup: Duration,
    /// How many values of its fields it uses.
    used: ValuesUsed,
    /// When each window that is not collected opened and, of a load that is held, closed.
    windows: Vec<(u64, u64)>,
}

impl Load {
    /// Opens the connections of a load that has one window.
    pub(super) fn prepare(plan: &Plan, clock: Clock) -> Result<Self, String> {
        let session = Session::start_waiting(plan).map_err(|e| e.to_string())?;
        let warmup = match plan.stop {
            Stop::After(_) => plan.warmup,
            Stop::Requests(_) => Duration::ZERO,
        };
        Ok(Self { warmup, ..Self::of(session, clock) })
    }

    /// Opens the connections of a load that is held between windows.
    pub(super) fn hold(plan: &Plan, clock: Clock) -> Result<Self, String> {
        Ok(Self::of(Session::start_held(plan).map_err(|e| e.to_string())?, clock))
    }

    fn of(session: Session, clock: Clock) -> Self {
        let used = session.values_used();
        let (session, windows) = (Some(session), Vec::new());
        Self { clock, session, warmup: Duration::ZERO, used, windows }
    }

    fn session(&self) -> Result<&Session, String> {
        self.session.as_ref().ok_or_else(|| "the load has ended".to_owned())
    }

    pub(super) fn begin(&mut self, at_ns: u64) -> Result<Begun, String> {
        let (now_ns, now) = (self.clock.now_ns(), Instant::now());
        let late_ns = now_ns.saturating_sub(at_ns);
        let wait = Duration::from_nanos(at_ns.saturating_sub(now_ns));
        let start = (now + wait).checked_sub(Duration::from_nanos(late_ns)).unwrap_or(now);
        let window = self.session()?.begin(start);
        let window = window.ok_or("the load is not ready, or has ended")?;
        let opens_after = window.opens.saturating_duration_since(now).as_nanos() as u64;
        let opens_ns = now_ns + opens_after;
        self.windows = vec![(opens_ns, u64::MAX)];
        // This thread may have waited for a core since it looked at the clock.
        let agreed_ns = at_ns.saturating_add(self.warmup.as_nanos() as u64);
        Ok(Begun { late_ns: late_ns.max(opens_ns.saturating_sub(agreed_ns)), opens_ns })
    }

    /// Opens a window; what of it has passed is cut off.
    pub(super) fn open(&mut self, at_ns: u64, length: Duration) -> Result<Begun, String> {
        let session = self.session()?;
        if !session.is_ready() {
            return Err("the load is not ready, or has ended".to_owned());
        }
        let (now_ns, now) = (self.clock.now_ns(), Instant::now());
        let late_ns = now_ns.saturating_sub(at_ns);
        let wait = Duration::from_nanos(at_ns.saturating_sub(now_ns));
        let length = length.saturating_sub(Duration::from_nanos(late_ns));
        let window = session.open_window(wait, length);
        let opens_after = window.opens.saturating_duration_since(now).as_nanos() as u64;
        let opens_ns = now_ns + opens_after;
        self.windows.push((opens_ns, opens_ns + length.as_nanos() as u64));
        // As above.
        Ok(Begun { late_ns: late_ns.max(opens_ns.saturating_sub(at_ns)), opens_ns })
    }

    pub(super) fn pause(&self, limit: Duration) -> Result<bool, String> {
        Ok(self.session()?.pause(limit))
    }

    pub(super) fn collect(&mut self, pauses: Option<&Pauses>) -> Result<Joined, String> {
        let outcome = self.session()?.collect().ok_or("the load has ended")?;
        Ok(Joined { outcome, paused_ns: self.paused_ns(pauses) })
    }

    pub(super) fn status(&self) -> Result<Status, String> {
        let session = self.session()?;
        Ok(Status {
            is_ready: session.is_ready(),
            is_finished: session.is_finished(),
            progress: session.progress(),
            at_ns: self.clock.now_ns(),
        })
    }

    pub(super) fn stop(&self) -> Result<(), String> {
        self.session()?.stop();
        Ok(())
    }

    pub(super) fn join(&mut self, pauses: Option<&Pauses>) -> Result<Joined, String> {
        let session = self.session.take().ok_or("the load has ended")?;
        session.stop();
        let outcome = session.join().map_err(|e| e.to_string())?;
        if let [(opens, closes @ u64::MAX)] = &mut self.windows[..] {
            *closes = *opens + outcome.window_ns;
        }
        Ok(Joined { outcome, paused_ns: self.paused_ns(pauses) })
    }

    /// Ends the load and closes its connections. Returns how many values of its fields it used at
    /// most.
    pub(super) fn end(mut self) -> u64 {
        self.session = None;
        self.used.most()
    }

    /// The longest time in a window for which the process stood still.
    fn paused_ns(&mut self, pauses: Option<&Pauses>) -> u64 {
        let windows = std::mem::take(&mut self.windows);
        let Some(pauses) = pauses else { return 0 };
        let longest = |(opens, closes): &(u64, u64)| pauses.longest_ns(*opens, *closes);
        windows.iter().map(longest).max().unwrap_or(0)
    }
}
