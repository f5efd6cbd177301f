//! What comes of a lap: its figures, or why there are none.

use std::time::Instant;

use hotlap_load::Outcome;
use hotlap_servers::failure::ServerFailure;
use hotlap_servers::observe::ObserveError;

use super::instance::Instance;
use crate::lap::{Contribution, Usage, Violation};
use crate::load_host::LoadError;

/// A lap before it is judged.
pub(super) struct Run {
    pub(super) at: Instant,
    pub(super) outcome: Outcome,
    pub(super) usage: Option<Usage>,
    pub(super) generators: Vec<Contribution>,
    /// The checks that it failed, besides those of every lap.
    pub(super) failed: Vec<Violation>,
}

/// Why a server could not be measured.
pub(super) enum Trouble {
    /// It cannot take part any more.
    Server(ServerFailure),
    /// A generator was lost: the lap does not count, and the run goes on.
    Generator(String),
}

impl From<ServerFailure> for Trouble {
    fn from(failure: ServerFailure) -> Self {
        Self::Server(failure)
    }
}

impl Trouble {
    /// The trouble with a load that a server should have answered.
    pub(super) fn of(error: LoadError, instance: &mut Instance, phase: &str) -> Self {
        match error {
            LoadError::Lost(why) => Self::Generator(why),
            LoadError::Gone(_) => Self::Server(instance.out(
                phase,
                error.to_string(),
                "finished laps are kept; once the generator's host is reached again, repeat the run",
            )),
            LoadError::Failed(_) => Self::Server(instance.failed(phase, error)),
        }
    }

    /// The same as a failure of the server, if a generator was lost again and again.
    pub(super) fn into_failure(self, instance: &Instance, phase: &str) -> ServerFailure {
        match self {
            Self::Server(failure) => failure,
            Self::Generator(why) => {
                let remedy = "see why its generator ends, and repeat the run";
                instance.out(phase, why, remedy)
            }
        }
    }
}

/// Why nothing was observed of a server whose generators were lost.
pub(super) fn unloaded() -> ObserveError {
    ObserveError {
        what: "the server".into(),
        why: "its generators were lost".to_owned(),
        remedy: "repeat it".to_owned(),
    }
}
