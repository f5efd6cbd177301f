//! Header compression (RFC 7541): the decoder of responses, and what the encoder of requests needs.
//!
//! It is our own, because the crates for it do not suit a load generator (versions of 2026):
//!
//! - `loona-hpack` 0.4.3 is correct, but builds its Huffman table, a hash map of hash maps, for
//!   each string: 16 µs each. A response with a varying id would cost more here than in most
//!   servers. It also accepts table size updates in the middle of a header block (section 4.2), and
//!   cannot tell whether a block changed the table. The tests compare this decoder with it.
//! - `httlib-hpack` 0.1.3 panics on an integer that is cut off (`ff`), and its Huffman decoder
//!   accepts wrong padding (section 5.2).
//!
//! Memory: 12 KiB per connection, allocated as it is used and then reused.

mod decoder;
mod dynamic_table;
mod huffman;
mod integer;
mod static_table;

pub use decoder::Decoder;
pub(super) use dynamic_table::{FIELD_OVERHEAD, TABLE_SIZE};
pub(super) use integer::{insert_length, write_integer};
pub(super) use static_table::{STATIC_LENGTH, find};
