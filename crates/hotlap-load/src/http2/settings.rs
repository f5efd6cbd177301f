//! SETTINGS (RFC 9113 section 6.5).

use super::event::Fault;
use super::frame::{LARGEST_FRAME, MAX_31_BITS, MAX_FRAME, kind};
use super::{frame, hpack, window};

/// Identifiers of settings.
const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;

/// The largest header list that the client accepts, with 32 bytes for each field: as large as the
/// largest head in HTTP/1.1.
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
    /// The initial values.
    fn default() -> Self {
        Self {
            header_table_size: hpack::TABLE_SIZE,
            max_streams: u32::MAX,
            initial_window: window::INITIAL,
            max_frame: MAX_FRAME,
        }
    }
}

impl Settings {
    /// Applies the payload of a SETTINGS frame; `is_first` if it is the server's first, which
    /// allows any number of streams unless it says otherwise. The smallest header table size within
    /// the frame is the one that counts: the client never makes its table larger.
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
                // Section 6.5.2: only a client may enable it.
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
                // MAX_HEADER_LIST_SIZE is advice, and unknown settings must be ignored.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Appends the client's preface (RFC 9113 section 3.4) to `out`, with its SETTINGS and the window
/// of the connection.
///
/// SETTINGS_HEADER_TABLE_SIZE stays at its initial value of 4096: with 0, servers would do another
/// work than they do for other clients.
pub(super) fn write_preface(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let mut payload = [0; 18];
    let settings = [
        (ENABLE_PUSH, 0),
        (INITIAL_WINDOW_SIZE, window::STREAM),
        (MAX_HEADER_LIST_SIZE, HEADER_LIST as u32),
    ];
    for (bytes, (id, value)) in payload.chunks_exact_mut(6).zip(settings) {
        bytes[..2].copy_from_slice(&id.to_be_bytes());
        bytes[2..].copy_from_slice(&value.to_be_bytes());
    }
    frame::write(out, kind::SETTINGS, 0, 0, &payload);
    frame::write_window_update(out, 0, window::CONNECTION - window::INITIAL);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::ErrorCode;

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
        // RFC 9113 section 3.4: 24 bytes, then SETTINGS.
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
        // Section 6.5.2: without the setting there is no limit.
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
