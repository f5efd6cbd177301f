//! The first messages: each side says which program it is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of the protocol; it changes when a message does.
const PROTOCOL: u32 = 5;

/// What an agent does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It runs servers.
    Server,
    /// It generates load.
    Generator,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Generator => "generator",
        })
    }
}

/// What each side says first. The fields of protocol 1 stay in all later ones, so that a mismatch
/// can be reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The number of the protocol.
    pub protocol: u32,
    /// The version of hotlap.
    pub version: String,
    /// The name of the host.
    pub host: String,
    /// What the agent should do. The agent repeats it.
    pub role: Role,
}

impl Hello {
    /// What this program says.
    pub fn own(role: Role) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned(), host, role }
    }

    /// Whether both programs understand each other and measure in the same way.
    pub fn matches(&self, other: &Self) -> bool {
        (self.protocol, &self.version) == (other.protocol, &other.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_or_protocol_does_not_match() {
        let own = Hello::own(Role::Generator);
        let host = "elsewhere".to_owned();
        assert!(own.matches(&Hello { host, ..own.clone() }));
        assert!(!own.matches(&Hello { version: "0.0.9".to_owned(), ..own.clone() }));
        assert!(!own.matches(&Hello { protocol: PROTOCOL + 1, ..own.clone() }));
    }

    #[test]
    fn a_later_hello_with_more_fields_is_understood() {
        let later = r#"{"protocol":9,"version":"2.0.0","host":"h","role":"server","more":[1]}"#;
        let hello: Hello = serde_json::from_str(later).expect("a hello");
        assert_eq!((hello.protocol, hello.version.as_str()), (9, "2.0.0"));
    }
}
