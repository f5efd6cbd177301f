//! HTTP/1.1 framing (RFC 9112) without sockets, so that it can be tested and fuzzed on its own.
//!
//! Two readers share the same rules. [`ResponseReader`] is for the engine: it takes bytes in any
//! pieces that the network delivers, and buffers only a head that arrives in parts.
//! [`read_response`] is for verification: a buffer in, a complete [`Response`] out, with its
//! headers and decoded body.
//!
//! Both are strict where a lenient reader would hide a fault of the server: lines must end in CRLF,
//! and a response with conflicting lengths, or with both a length and chunks, is an error.

mod body;
mod error;
mod head;
mod reader;
mod request;
mod response;

pub use error::ResponseError;
pub use head::{Framing, Head};
pub use reader::{ResponseEvent, ResponseReader};
pub use request::{is_token, request};
pub use response::{GrowingResponse, Response, read_response};

#[cfg(test)]
pub(crate) use head::{head_end, parse_head};
