//! Why bytes are not an HTTP response.

/// Why bytes cannot be read as an HTTP/1.x response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// They violate RFC 9112; the text says how.
    #[error("{0}")]
    Framing(&'static str),
    /// The connection closed before the response was complete.
    #[error("the connection closed before the response was complete")]
    ClosedEarly,
}

impl ResponseError {
    /// The server sent too many interim responses before a final one.
    pub(super) const TOO_MANY_INTERIM: Self = Self::Framing("over 100 interim responses");
}
