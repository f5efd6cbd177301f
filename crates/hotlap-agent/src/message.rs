//! What is said after the hellos.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Each side waits this long for anything at all from the other, however long it may take to carry
/// out an order: the controller sends heartbeats, which the agent answers.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// What an agent is asked to do; each role has one type of orders and one of reports.
pub trait Order: Serialize + DeserializeOwned {
    /// The answer to an order that was carried out.
    type Report: Serialize + DeserializeOwned;

    /// What is done, for error messages, as the object of "while": `starting the load`.
    fn phase(&self) -> &'static str;
}

/// From the controller to the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToAgent<O> {
    /// The controller is there.
    Heartbeat,
    /// The agent should read its clock.
    Clock {
        /// The number of the call.
        number: u64,
    },
    /// The agent should do something.
    Order {
        /// The number of the call.
        number: u64,
        /// What to do.
        order: O,
    },
}

/// From the agent to the controller.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToController<R> {
    /// The agent is there. Answers each heartbeat, whatever the agent is doing.
    Heartbeat,
    /// The agent's clock.
    Clock {
        /// The number of the call.
        number: u64,
        /// Monotonic time, in nanoseconds.
        ns: u64,
    },
    /// An order was carried out.
    Report {
        /// The number of the call.
        number: u64,
        /// The answer.
        report: R,
    },
    /// An order could not be carried out.
    Refused {
        /// The number of the call.
        number: u64,
        /// Why, with a remedy.
        why: String,
    },
}
