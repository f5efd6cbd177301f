//! The messages of a channel: first hellos, then orders and their reports.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// How long each side waits for any message at all from the other. An order may take longer,
/// because the controller sends heartbeats, which the agent answers at once.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// The version number of the protocol, which changes whenever a message changes.
const PROTOCOL: u32 = 9;

/// The task of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentRole {
    /// The agent runs servers.
    Server,
    /// The agent generates load.
    Generator,
}

impl fmt::Display for AgentRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Generator => "generator",
        })
    }
}

/// The first message of each side. The fields of protocol 1 stay in all later protocols, so that a
/// mismatch can be reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version number of the protocol.
    pub protocol: u32,
    /// The version of hotlap.
    pub version: String,
    /// The name of the host.
    pub host: String,
    /// The task of the agent. The agent's hello repeats the controller's choice.
    pub role: AgentRole,
}

impl Hello {
    /// Returns the hello of this program.
    pub fn own(role: AgentRole) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned(), host, role }
    }

    /// Whether both programs understand each other and measure in the same way.
    pub fn matches(&self, other: &Self) -> bool {
        (self.protocol, &self.version) == (other.protocol, &other.version)
    }
}

/// One kind of order, and the report that answers it.
pub trait Order: Sized {
    /// The type of all orders of the agent's role, which include this one.
    type All: Serialize + DeserializeOwned + From<Self>;

    /// The answer to an order that was carried out.
    type Report: Serialize + DeserializeOwned;

    /// The operation in words, for error messages after "while": `starting the load`.
    const PHASE: &'static str;

    /// How long the answer may take.
    fn limit(&self) -> Duration;
}

/// The answer to an order: the report in JSON, or why the order cannot be carried out.
pub type Answer = Result<Box<RawValue>, String>;

/// Carries out the orders of one role. `orders!` implements this trait.
pub trait AgentService {
    /// Carries out an order, and answers it with [`report`].
    ///
    /// # Errors
    /// Returns why the order cannot be carried out.
    fn carry_out(&mut self, order: &RawValue) -> Answer;
}

/// Turns the report on one kind of order into an answer.
///
/// # Errors
/// Fails if the report cannot be written as JSON.
pub fn report<O: Order>(report: O::Report) -> Answer {
    serde_json::value::to_raw_value(&report).map_err(|e| format!("a report: {e}"))
}

/// Defines the orders of a role. An order has fields, a report, a description in words, a time
/// limit for the answer, and the code that carries it out. Each order is a type. In messages, an
/// order is a value of one enum, which has a variant for each type.
#[macro_export]
macro_rules! orders {
    (
        $(#[$about:meta])*
        $all:ident, carried out by $by:ident: $By:ty {
            $(
                $(#[$own:meta])*
                $name:ident $({ $($field:ident: $of:ty),+ $(,)? })? -> $report:ty,
                    $phase:literal, $limit:expr => $carry:expr;
            )+
        }
    ) => {
        $(
            $(#[$own])*
            #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
            #[allow(missing_docs, reason = "a field is named like the parameter that it carries")]
            pub struct $name { $($(pub $field: $of),+)? }

            impl $crate::Order for $name {
                type All = $all;
                type Report = $report;
                const PHASE: &'static str = $phase;

                #[allow(unused_variables, reason = "few limits depend on a field")]
                fn limit(&self) -> std::time::Duration {
                    let Self { $($($field),+)? } = self;
                    $limit
                }
            }

            impl From<$name> for $all {
                fn from(order: $name) -> Self {
                    Self::$name(order)
                }
            }
        )+

        $(#[$about])*
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs, reason = "each variant is the order of the same name")]
        #[allow(clippy::large_enum_variant, reason = "one order exists at a time")]
        pub enum $all { $($name($name)),+ }

        impl $crate::AgentService for $By {
            #[allow(clippy::unit_arg, reason = "the report of some orders is ()")]
            fn carry_out(&mut self, order: &serde_json::value::RawValue) -> $crate::Answer {
                let order = serde_json::from_str(order.get());
                let $by = self;
                match order.map_err(|e| format!("an unknown order: {e}"))? {
                    $($all::$name($name { $($($field),+)? }) => $crate::report::<$name>($carry)),+
                }
            }
        }
    };
}

/// A message from the controller to the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToAgent<O> {
    /// The controller is still running.
    Heartbeat,
    /// The agent should read its clock.
    Clock {
        /// The number of the call.
        number: u64,
    },
    /// The agent should carry out an order.
    Order {
        /// The number of the call.
        number: u64,
        /// The order.
        order: O,
    },
}

/// A message from the agent to the controller.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToController<R> {
    /// The agent is still running. It answers each heartbeat at once, even during an order.
    Heartbeat,
    /// The time on the agent's clock.
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
        /// The report on the order.
        report: R,
    },
    /// An order could not be carried out.
    Refused {
        /// The number of the call.
        number: u64,
        /// Why the order could not be carried out.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_or_protocol_does_not_match() {
        let own = Hello::own(AgentRole::Generator);
        let host = "elsewhere".to_owned();
        assert!(own.matches(&Hello { host, ..own.clone() }));
        assert!(!own.matches(&Hello { version: "0.0.9".to_owned(), ..own.clone() }));
        assert!(!own.matches(&Hello { protocol: PROTOCOL + 1, ..own.clone() }));
    }

    #[test]
    fn a_later_hello_with_more_fields_is_understood() {
        let later = r#"{"protocol":1009,"version":"2.0.0","host":"h","role":"server","more":[1]}"#;
        let hello: Hello = serde_json::from_str(later).expect("a hello");
        assert_eq!((hello.protocol, hello.version.as_str()), (1009, "2.0.0"));
    }
}
