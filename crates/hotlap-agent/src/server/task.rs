//! What takes longer than a call may: it runs in a thread of its own, and the controller asks for
//! news.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// A task under way, which reports steps and a result.
#[derive(Debug)]
pub(super) struct Running<T> {
    stop: Arc<AtomicBool>,
    news: Receiver<News<T>>,
}

/// What a task reports.
#[derive(Debug)]
enum News<T> {
    Step(String),
    Result(T),
}

/// Where a task reports its steps, from any thread.
#[derive(Debug)]
pub(super) struct Steps<T>(Sender<News<T>>);

/// The state of a task.
#[derive(Debug)]
pub(super) enum Progress<T> {
    /// It goes on; the steps that it began.
    Working(Vec<String>),
    /// It has ended; `None` if it panicked.
    Ended(Option<T>),
}

impl<T> Steps<T> {
    pub(super) fn say(&self, step: String) {
        // Nobody listens any more: the channel closed.
        let _ = self.0.send(News::Step(step));
    }
}

impl<T: Send + 'static> Running<T> {
    /// Begins a task, which should end soon after the flag is set.
    pub(super) fn begin(act: impl FnOnce(&AtomicBool, &Steps<T>) -> T + Send + 'static) -> Self {
        let (sender, news) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            let result = act(&stopped, &Steps(sender.clone()));
            let _ = sender.send(News::Result(result));
        });
        Self { stop, news }
    }

    pub(super) fn interrupt(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for news for at most this long.
    pub(super) fn poll(&self, wait: Duration) -> Progress<T> {
        match self.news.recv_timeout(wait) {
            Ok(News::Step(step)) => Progress::Working(vec![step]),
            Ok(News::Result(result)) => Progress::Ended(Some(result)),
            Err(RecvTimeoutError::Timeout) => Progress::Working(Vec::new()),
            Err(RecvTimeoutError::Disconnected) => Progress::Ended(None),
        }
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(60);

    #[test]
    fn steps_come_before_the_result() {
        let task = Running::begin(|_, steps| {
            steps.say("one".to_owned());
            2
        });
        assert!(matches!(task.poll(WAIT), Progress::Working(steps) if steps == ["one"]));
        assert!(matches!(task.poll(WAIT), Progress::Ended(Some(2))));
    }

    #[test]
    fn a_task_sees_the_interrupt_and_a_panic_is_an_end() {
        let task = Running::begin(|stop, _| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        assert!(matches!(task.poll(Duration::ZERO), Progress::Working(_)));
        task.interrupt();
        assert!(matches!(task.poll(WAIT), Progress::Ended(Some(()))));
        let task = Running::<()>::begin(|_, _| panic!("planted"));
        assert!(matches!(task.poll(WAIT), Progress::Ended(None)));
    }
}
