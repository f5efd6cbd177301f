//! HTTP/2 (RFC 9113) for clients, without sockets or clock: bytes in, events out.
//!
//! ```text
//! client    the state machine of one connection: Client, Event, Limits
//!   memo      heads of header blocks that have arrived before
//!   head      what a header block says about the response, and whether it is valid
//!   streams   the streams in flight; window: flow control
//! encode    requests, encoded once: Template
//! frame     frame headers, error codes
//! hpack     header compression (RFC 7541)
//! ```
//!
//! As for HTTP/1.1, the client is strict where a lenient one would hide a fault of the server.
//!
//! Nearly every header block that arrives is one of the last few (`memo`), and a frame that is
//! complete in the input is read in place. So a response with a body of 13 bytes takes about 530
//! instructions, and some 3000 if its header block must be decoded (counted with callgrind).

mod client;
mod encode;
mod event;
mod frame;
mod head;
pub mod hpack;
mod memo;
mod settings;
mod streams;
mod window;

pub use client::{Client, Limits};
pub use encode::{EncodedRequests, Form, Template, encode};
pub use event::{Event, OpenStream};
pub use frame::{ErrorCode, FRAME_HEADER, FrameHeader, MAX_FRAME, flags, kind};
