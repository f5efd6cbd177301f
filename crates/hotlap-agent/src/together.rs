//! Several agents, or addresses, at the same time.

use crate::error::ChannelError;

/// Does something with all of a list at the same time.
pub(crate) fn together<T: Sync, R: Send>(list: &[T], does: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if let [only] = list {
        return vec![does(only)];
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = list.iter().map(|one| scope.spawn(|| does(one))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        // A panic is passed on.
        joined.map(|result| result.unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
    })
}

/// All results, or the first error.
pub(crate) fn all<T>(results: Vec<Result<T, ChannelError>>) -> Result<Vec<T>, ChannelError> {
    results.into_iter().collect()
}
