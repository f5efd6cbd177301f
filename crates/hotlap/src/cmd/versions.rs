//! What `hotlap bisect` and `hotlap timeline` share: commits and their builds, races of several
//! versions, and the state on disk between races.

pub mod race;
pub mod repository;
pub mod session;

/// A result, or an interrupt by the user.
#[derive(Debug)]
pub enum UnlessInterrupted<T> {
    /// The result.
    Done(T),
    /// The user interrupted hotlap.
    Interrupted,
}
