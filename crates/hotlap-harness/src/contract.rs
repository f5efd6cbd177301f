//! The requests that a server must answer, and the exact answers: data, without a socket.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The contracts by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// `GET /` is answered with `Hello, World!`.
    Hello,
    /// `GET /` is answered with `Hello World ` and the Unix time in milliseconds.
    Clock,
    /// `GET /api/hello` is answered with what the server's manifest says.
    Api,
    /// A small JSON program: `GET /bla`, `POST /bla`, and what is no JSON refused.
    JsonApi,
}

impl Name {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hello, Self::Clock, Self::Api, Self::JsonApi];

    /// As manifests and flags write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Clock => "clock",
            Self::Api => "api",
            Self::JsonApi => "json-api",
        }
    }

    /// The contract of that name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
