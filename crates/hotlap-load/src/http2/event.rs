//! Events of a connection.

use super::frame::ErrorCode;

/// An event of a [`Client`](super::Client). `tag` is the number that the caller gave to the
/// request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// All bytes are consumed, and nothing else has happened.
    NeedMore,
    /// The head of a final response; interim responses are checked and skipped.
    Head {
        /// The request.
        tag: u32,
        /// The status code.
        status: u16,
        /// The value of `content-length`. In a response to a HEAD, how long the body of a GET would
        /// be.
        length: Option<u64>,
        /// Whether the response ends here: [`Event::End`] is next.
        is_end: bool,
    },
    /// Bytes of a body, at least one. They never exceed the length that the head stated.
    Data {
        /// The request.
        tag: u32,
        /// The bytes.
        data: &'a [u8],
    },
    /// The response is complete and valid. The tag is free.
    End {
        /// The request.
        tag: u32,
        /// The bytes of its frames on the wire: headers, bodies, padding and interim responses.
        bytes: u64,
    },
    /// The server ended the stream before the response was complete. The tag is free.
    Reset {
        /// The request.
        tag: u32,
        /// The server's reason.
        code: ErrorCode,
    },
    /// The server takes no further requests on this connection. Those that it will not answer
    /// follow as [`Event::Refused`]; the others may still be answered.
    GoAway {
        /// The last stream that the server may have processed.
        last_stream: u32,
        /// The server's reason.
        code: ErrorCode,
    },
    /// The server did not process this request. The tag is free.
    Refused {
        /// The request.
        tag: u32,
    },
    /// The response is malformed, or its stream violates the protocol (RFC 9113 sections 5.4.2 and
    /// 8.1.1). The stream was reset, and the connection goes on. The tag is free.
    Malformed {
        /// The request.
        tag: u32,
        /// What is wrong.
        why: &'static str,
    },
    /// The server violated the protocol, and the connection cannot be used any more (RFC 9113
    /// section 5.4.1). All further calls return this again.
    Broken {
        /// The code that was sent to the server.
        code: ErrorCode,
        /// What is wrong.
        why: &'static str,
    },
}

/// A request that is not answered completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenStream {
    /// The number that the caller gave to the request.
    pub tag: u32,
    /// The stream identifier.
    pub stream: u32,
    /// Bytes of the response on the wire so far.
    pub bytes: u64,
}

/// A connection error (RFC 9113 section 5.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) code: ErrorCode,
    pub(super) why: &'static str,
}

impl Fault {
    /// A fault with the general code.
    pub(super) const fn protocol(why: &'static str) -> Self {
        Self { code: ErrorCode::PROTOCOL_ERROR, why }
    }

    /// A frame of a wrong size.
    pub(super) const fn size(why: &'static str) -> Self {
        Self { code: ErrorCode::FRAME_SIZE_ERROR, why }
    }

    /// A violation of flow control.
    pub(super) const fn flow(why: &'static str) -> Self {
        Self { code: ErrorCode::FLOW_CONTROL_ERROR, why }
    }

    /// Too much work without progress.
    pub(super) const fn flood(why: &'static str) -> Self {
        Self { code: ErrorCode::ENHANCE_YOUR_CALM, why }
    }
}
