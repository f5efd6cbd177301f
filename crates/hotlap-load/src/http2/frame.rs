//! Frame headers (RFC 9113 section 4.1), error codes (section 7), and SETTINGS (section 6.5).

use std::fmt;

use super::hpack;

/// The length of a frame header in bytes.
pub const FRAME_HEADER: usize = 9;

/// The longest payload that a client accepts, in bytes. This is the initial value of
/// SETTINGS_MAX_FRAME_SIZE, which the client does not change.
pub const MAX_FRAME: u32 = 16_384;

/// The longest payload that the standard allows, in bytes. SETTINGS_MAX_FRAME_SIZE must not exceed
/// this value.
pub(super) const LARGEST_FRAME: u32 = (1 << 24) - 1;

/// The largest stream identifier, which is also the largest size of a flow-control window.
pub(super) const MAX_31_BITS: u32 = (1 << 31) - 1;

/// Frame types (RFC 9113 section 6).
pub mod kind {
    /// A part of a body.
    pub const DATA: u8 = 0;
    /// A header block, or its first part.
    pub const HEADERS: u8 = 1;
    /// The priority of a stream. The frame is deprecated, so it is checked and ignored.
    pub const PRIORITY: u8 = 2;
    /// The early end of a stream.
    pub const RST_STREAM: u8 = 3;
    /// Parameters of the connection.
    pub const SETTINGS: u8 = 4;
    /// The announcement of a response to a request that was not sent.
    pub const PUSH_PROMISE: u8 = 5;
    /// A test of the connection. The receiver must reply with the same bytes.
    pub const PING: u8 = 6;
    /// The announcement that the server accepts no further streams.
    pub const GOAWAY: u8 = 7;
    /// An increase of a flow-control window.
    pub const WINDOW_UPDATE: u8 = 8;
    /// A further part of a header block.
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames (RFC 9113 section 6).
pub mod flags {
    /// DATA, HEADERS: no further frame with content follows on this stream.
    pub const END_STREAM: u8 = 0x1;
    /// SETTINGS, PING: the frame acknowledges another frame.
    pub const ACK: u8 = 0x1;
    /// HEADERS, CONTINUATION: the header block is complete.
    pub const END_HEADERS: u8 = 0x4;
    /// DATA, HEADERS: the payload starts with the length of its padding.
    pub const PADDED: u8 = 0x8;
    /// HEADERS: five bytes of priority precede the header block.
    pub const PRIORITY: u8 = 0x20;
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The length of the payload in bytes.
    pub length: u32,
    /// The frame type: a constant from [`kind`], unless the type is unknown.
    pub kind: u8,
    /// The [`flags`].
    pub flags: u8,
    /// The identifier of the stream. 0 is the connection as a whole.
    pub stream: u32,
}

impl FrameHeader {
    /// Parses a frame header. The reserved bit is ignored, as the standard demands.
    #[inline]
    pub fn parse(bytes: &[u8; FRAME_HEADER]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        Self {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & MAX_31_BITS,
        }
    }

    /// Returns the bytes of the header. The length must have at most 24 bits.
    #[inline]
    pub fn bytes(&self) -> [u8; FRAME_HEADER] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = (self.stream & MAX_31_BITS).to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    /// Returns whether a flag is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame to `out`.
pub(super) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = payload.len() as u32;
    out.extend_from_slice(&FrameHeader { length, kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

/// Appends an RST_STREAM frame to `out`.
pub(super) fn write_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write(out, kind::RST_STREAM, 0, stream, &code.0.to_be_bytes());
}

/// Appends a WINDOW_UPDATE frame to `out`.
pub(super) fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// The reason for the end of a stream or a connection (RFC 9113 section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// No error: a graceful end.
    pub const NO_ERROR: Self = Self(0x0);
    /// A violation of the protocol without a more specific code.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// An internal error of the sender.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// More data than the flow-control window allows, or a window that is too large.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    /// A frame for a stream that has ended.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame of a wrong size.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The request was not processed and may be sent again.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is not needed any more.
    pub const CANCEL: Self = Self(0x8);
    /// A header block cannot be decoded.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The connection for a CONNECT request failed.
    pub const CONNECT_ERROR: Self = Self(0xa);
    /// The other side causes too much work.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// The encryption is too weak.
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    /// HTTP/1.1 must be used instead.
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);

    /// Returns the name of the code in the standard, if the standard defines the code.
    pub fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        NAMES.get(self.0 as usize).copied()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error code {:#x}", self.0),
        }
    }
}

/// A connection error (RFC 9113 section 5.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) code: ErrorCode,
    pub(super) why: &'static str,
}

impl Fault {
    /// Creates a fault with the general code.
    pub(super) const fn protocol(why: &'static str) -> Self {
        Self { code: ErrorCode::PROTOCOL_ERROR, why }
    }

    /// Creates a fault for a frame of a wrong size.
    pub(super) const fn size(why: &'static str) -> Self {
        Self { code: ErrorCode::FRAME_SIZE_ERROR, why }
    }

    /// Creates a fault for a violation of flow control.
    pub(super) const fn flow(why: &'static str) -> Self {
        Self { code: ErrorCode::FLOW_CONTROL_ERROR, why }
    }

    /// Creates a fault for too much work without progress.
    pub(super) const fn flood(why: &'static str) -> Self {
        Self { code: ErrorCode::ENHANCE_YOUR_CALM, why }
    }
}

/// The initial window of a connection. It is also the initial window of a stream unless SETTINGS
/// say otherwise (RFC 9113 section 6.9.2).
pub(super) const INITIAL_WINDOW: u32 = 65_535;

/// The window that a server gets for each response. The window must not limit the throughput. It
/// is used up only if a server sends 8 MiB before the client reacts. At 5 GB/s, about the speed of
/// loopback, this takes 1.7 ms, which is longer than the client needs to react. The window costs
/// no memory, because bodies are not buffered.
pub(super) const STREAM_WINDOW: u32 = (1 << 24) - 1;

/// The window that a server gets for all responses of a connection together: 1 GiB. This is enough
/// for 64 streams with a full window each. The limit of the standard is twice as high.
pub(super) const CONNECTION_WINDOW: u32 = 1 << 30;

/// The identifiers of settings.
const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;

/// The largest header list that the client accepts, in bytes, with 32 bytes for each field. The
/// limit is the same as for a head in HTTP/1.1.
pub(super) const HEADER_LIST: usize = 64 * 1024;

/// The server's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) header_table_size: u32,
    pub(super) max_streams: u32,
    pub(super) initial_window: u32,
    pub(super) max_frame: u32,
}

impl Default for Settings {
    /// Returns the initial values in the standard.
    fn default() -> Self {
        Self {
            header_table_size: hpack::TABLE_SIZE,
            max_streams: u32::MAX,
            initial_window: INITIAL_WINDOW,
            max_frame: MAX_FRAME,
        }
    }
}

impl Settings {
    /// Applies the payload of a SETTINGS frame. `is_first` means that the frame is the server's
    /// first, which allows any number of streams unless it sets a limit. The smallest header table
    /// size so far counts, because the client never enlarges its table.
    pub(super) fn apply(&mut self, payload: &[u8], is_first: bool) -> Result<(), Fault> {
        if is_first {
            self.max_streams = u32::MAX;
        }
        if !payload.len().is_multiple_of(6) {
            return Err(Fault::size("the length of SETTINGS is not a multiple of 6"));
        }
        for setting in payload.chunks_exact(6) {
            let [a, b, c, d, e, f] = *setting else { continue };
            let value = u32::from_be_bytes([c, d, e, f]);
            match u16::from_be_bytes([a, b]) {
                HEADER_TABLE_SIZE => {
                    self.header_table_size = self.header_table_size.min(value);
                }
                // RFC 9113 section 6.5.2: only a client may enable push.
                ENABLE_PUSH if value != 0 => {
                    return Err(Fault::protocol("the server sets SETTINGS_ENABLE_PUSH"));
                }
                MAX_CONCURRENT_STREAMS => self.max_streams = value,
                INITIAL_WINDOW_SIZE if value > MAX_31_BITS => {
                    return Err(Fault::flow("SETTINGS_INITIAL_WINDOW_SIZE is over 2^31 - 1"));
                }
                INITIAL_WINDOW_SIZE => self.initial_window = value,
                MAX_FRAME_SIZE if !(MAX_FRAME..=LARGEST_FRAME).contains(&value) => {
                    return Err(Fault::protocol("SETTINGS_MAX_FRAME_SIZE is out of range"));
                }
                MAX_FRAME_SIZE => self.max_frame = value,
                // MAX_HEADER_LIST_SIZE is only advice, and unknown settings must be ignored.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Appends the client's preface (RFC 9113 section 3.4) to `out`, with its SETTINGS and the window
/// of the connection.
///
/// SETTINGS_HEADER_TABLE_SIZE stays at its initial value of 4096. With 0, servers would not do the
/// same work as for other clients.
pub(super) fn write_preface(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let mut payload = [0; 18];
    let settings = [
        (ENABLE_PUSH, 0),
        (INITIAL_WINDOW_SIZE, STREAM_WINDOW),
        (MAX_HEADER_LIST_SIZE, HEADER_LIST as u32),
    ];
    for (bytes, (id, value)) in payload.chunks_exact_mut(6).zip(settings) {
        bytes[..2].copy_from_slice(&id.to_be_bytes());
        bytes[2..].copy_from_slice(&value.to_be_bytes());
    }
    write(out, kind::SETTINGS, 0, 0, &payload);
    write_window_update(out, 0, CONNECTION_WINDOW - INITIAL_WINDOW);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_header_has_nine_bytes_in_network_order() {
        // RFC 9113 section 4.1: length (24 bits), type, flags, reserved bit, stream (31 bits).
        let bytes = [0x01, 0x02, 0x03, 0x01, 0x05, 0x00, 0x00, 0x01, 0x07];
        let header =
            FrameHeader { length: 0x01_0203, kind: kind::HEADERS, flags: 0x5, stream: 0x107 };
        assert_eq!(FrameHeader::parse(&bytes), header);
        assert_eq!(header.bytes(), bytes);
        assert!(header.has(flags::END_STREAM) && header.has(flags::END_HEADERS));
        assert!(!header.has(flags::PADDED) && !header.has(flags::PRIORITY));
    }

    #[test]
    fn the_reserved_bit_is_ignored_and_sent_as_zero() {
        let reserved = [0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(FrameHeader::parse(&reserved).stream, 0x7fff_ffff);
        let header = FrameHeader { length: 0, kind: 0, flags: 0, stream: 0xffff_ffff };
        assert_eq!(header.bytes(), [0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn frames_are_written_with_their_lengths() {
        let mut out = Vec::new();
        write_reset(&mut out, 3, ErrorCode::CANCEL);
        write_window_update(&mut out, 0, 0x1_0000);
        // RFC 9113 sections 6.4 and 6.9: each payload has four bytes.
        let expected =
            [0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 8, 0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 1, 0, 0];
        assert_eq!(out, expected);
    }

    #[test]
    fn error_codes_have_the_names_of_the_standard() {
        // RFC 9113 section 7.
        assert_eq!(ErrorCode::NO_ERROR.to_string(), "NO_ERROR");
        assert_eq!(ErrorCode(7), ErrorCode::REFUSED_STREAM);
        assert_eq!(ErrorCode(7).to_string(), "REFUSED_STREAM");
        assert_eq!(ErrorCode(0xd).to_string(), "HTTP_1_1_REQUIRED");
        assert_eq!(ErrorCode(0xe).to_string(), "error code 0xe");
    }

    fn setting(id: u16, value: u32) -> Vec<u8> {
        [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
    }

    fn applied(payload: &[u8]) -> Result<Settings, Fault> {
        let mut settings = Settings::default();
        settings.apply(payload, true).map(|()| settings)
    }

    #[test]
    fn the_preface_is_that_of_the_standard() {
        let mut out = Vec::new();
        write_preface(&mut out);
        // RFC 9113 section 3.4: the preface starts with 24 bytes, and SETTINGS follow.
        let (preface, frames) = out.split_at(24);
        assert_eq!(preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let expected = [
            0, 0, 18, 4, 0, 0, 0, 0, 0, // SETTINGS with three parameters.
            0, 2, 0, 0, 0, 0, // ENABLE_PUSH 0.
            0, 4, 0, 0xff, 0xff, 0xff, // INITIAL_WINDOW_SIZE 2^24 - 1.
            0, 6, 0, 1, 0, 0, // MAX_HEADER_LIST_SIZE 65536.
            0, 0, 4, 8, 0, 0, 0, 0, 0, 0x3f, 0xff, 0, 1, // WINDOW_UPDATE by 2^30 - 65535.
        ];
        assert_eq!(frames, expected);
    }

    #[test]
    fn settings_are_applied_in_order_and_unknown_ones_ignored() {
        let payload = [setting(3, 5), setting(4, 10), setting(5, 20_000), setting(1, 100)].concat();
        let settings = applied(&payload).unwrap();
        let expected = Settings {
            header_table_size: 100,
            max_streams: 5,
            initial_window: 10,
            max_frame: 20_000,
        };
        assert_eq!(settings, expected);
        let more = [setting(3, 6), setting(3, 7), setting(0x99, 1), setting(2, 0), setting(6, 9)];
        let settings = applied(&more.concat()).unwrap();
        assert_eq!(settings, Settings { max_streams: 7, ..applied(&[]).unwrap() });
        // Section 6.5.2: without the setting, there is no limit.
        assert_eq!(applied(&[]).unwrap().max_streams, u32::MAX);
        assert_eq!(Settings::default().max_streams, u32::MAX);
    }

    #[test]
    fn the_header_table_never_grows() {
        let mut settings = applied(&setting(1, 65_536)).unwrap();
        assert_eq!(settings.header_table_size, 4096);
        settings.apply(&[setting(1, 0), setting(1, 4096)].concat(), false).unwrap();
        assert_eq!(settings.header_table_size, 0);
    }

    #[test]
    fn values_out_of_range_are_errors() {
        // RFC 9113 section 6.5.2.
        let code = |payload: &[u8]| applied(payload).map_err(|fault| fault.code);
        assert_eq!(code(&setting(2, 1)), Err(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(code(&setting(4, 1 << 31)), Err(ErrorCode::FLOW_CONTROL_ERROR));
        assert!(code(&setting(4, (1 << 31) - 1)).is_ok());
        assert_eq!(code(&setting(5, 16_383)), Err(ErrorCode::PROTOCOL_ERROR));
        assert!(code(&setting(5, 16_384)).is_ok() && code(&setting(5, (1 << 24) - 1)).is_ok());
        assert_eq!(code(&setting(5, 1 << 24)), Err(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(code(&[0; 5]), Err(ErrorCode::FRAME_SIZE_ERROR));
    }
}
