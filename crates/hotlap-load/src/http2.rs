//! HTTP/2 (RFC 9113) for clients, without sockets or clock. Bytes go in, and events come out.
//!
//! ```text
//! client    the state machine of one connection: ClientConnection, StreamEvent, Limits
//!   head      what a header block says about the response, and blocks that have arrived before
//!   streams   the streams in flight, and flow control
//! encode    requests, encoded once: Template
//! frame     frame headers, error codes, SETTINGS
//! hpack     header compression (RFC 7541)
//! ```
//!
//! Like the readers of HTTP/1.1, the client is strict where a lenient client would hide a fault of
//! the server.
//!
//! Usually, a header block equals one of the last eight (`head`). A frame that is complete in the
//! input is read in place. A response with a body of 13 bytes therefore takes about 530
//! instructions (callgrind), or some 3000 if its header block must be decoded.

mod client;
mod encode;
mod frame;
mod head;
pub mod hpack;
mod streams;

pub use client::{ClientConnection, Limits, StreamEvent};
pub use encode::{BlockForm, EncodedRequests, Template, encode};
pub use frame::{ErrorCode, FRAME_HEADER, FrameHeader, MAX_FRAME, flags, kind};
pub use streams::OpenStream;
