//! Builders for the bytes that an HTTP/2 server sends.

use hotlap_load::http2::{FrameHeader, flags, kind};

/// The header block for `:status: 200`, an entry of the static table (RFC 7541 appendix A, index
/// 8).
pub const OK: &[u8] = &[0x88];

/// The header block for `:status: 200` and `content-length: 5`. The index 28 of the name
/// `content-length` is encoded as 15 + 13, without indexing the field.
pub const OK_5: &[u8] = &[0x88, 0x0f, 0x0d, 1, b'5'];

pub const END: u8 = flags::END_STREAM;
pub const WHOLE: u8 = flags::END_HEADERS;
pub const PADDED: u8 = flags::PADDED;

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut bytes = FrameHeader { length, kind, flags, stream }.bytes().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

pub fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flags, stream, block)
}

pub fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, stream, payload)
}

pub fn continuation(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(kind::CONTINUATION, flags, stream, block)
}

/// Encodes a SETTINGS frame with these parameters.
pub fn settings(parameters: &[(u16, u32)]) -> Vec<u8> {
    let bytes = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let payload: Vec<u8> = parameters.iter().flat_map(bytes).collect();
    frame(kind::SETTINGS, 0, 0, &payload)
}

pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

pub fn rst_stream(stream: u32, code: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub fn goaway(last: u32, code: u32) -> Vec<u8> {
    frame(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

pub fn ping() -> Vec<u8> {
    frame(kind::PING, 0, 0, b"12345678")
}

/// Encodes a header block: `:status: 200`, then literal fields without indexing and with new names
/// (RFC 7541 section 6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = OK.to_vec();
    block.extend(literals(fields));
    block
}

/// Encodes literal fields without indexing and with new names. Names and values must be shorter
/// than 127 bytes.
pub fn literals(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for string in [name, value] {
            block.push(string.len() as u8);
            block.extend_from_slice(string.as_bytes());
        }
    }
    block
}
