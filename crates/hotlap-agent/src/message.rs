//! What is said after the hellos.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Each side waits this long for anything at all from the other, however long it may take to carry
/// out an order: the controller sends heartbeats, which the agent answers.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// One kind of order, and the report that answers it.
pub trait Order: Sized {
    /// All orders of the role, of which this is one.
    type All: Serialize + DeserializeOwned;

    /// The answer to an order that was carried out.
    type Report: Serialize + DeserializeOwned;

    /// What is done, for error messages, as the object of "while": `starting the load`.
    const PHASE: &'static str;

    /// The order as a value of [`Order::All`], the type that goes over the wire.
    fn into_all(self) -> Self::All;
}

/// Defines a type for each order, and an enum of all orders. Values of the enum go over the wire.
#[macro_export]
macro_rules! orders {
    (
        $(#[$about:meta])*
        $all:ident {
            $(
                $(#[$own:meta])*
                $name:ident $({ $($field:ident: $of:ty),+ $(,)? })? -> $report:ty, $phase:literal;
            )+
        }
    ) => {
        $(
            $(#[$own])*
            #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
            #[allow(missing_docs, reason = "fields are named as in the calls that they carry")]
            pub struct $name { $($(pub $field: $of),+)? }

            impl $crate::Order for $name {
                type All = $all;
                type Report = $report;
                const PHASE: &'static str = $phase;

                fn into_all(self) -> $all {
                    $all::$name(self)
                }
            }
        )+

        $(#[$about])*
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs, reason = "each variant is the order of the same name")]
        #[allow(clippy::large_enum_variant, reason = "one order exists at a time")]
        pub enum $all { $($name($name)),+ }
    };
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
