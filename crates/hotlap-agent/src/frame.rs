//! The format of messages on the wire: a marker once, then frames. A frame is the length of its
//! content in bytes (`u32`, little-endian), followed by the content: JSON and a newline. The
//! newline is needed because `srun` passes output on line by line, and would hold back what comes
//! after the last newline.

use std::io::{self, Read, Write};

use serde::Serialize;

/// The first bytes that an agent writes. They include NULs, so no login banner contains them.
pub(crate) const MARKER: &[u8] = b"\0hotlap-agent\0\n";

/// The maximum length of a frame's content. The largest messages are plans that replay an access
/// log, at about 25 bytes for each line.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// The maximum number of bytes before the marker.
pub(crate) const MAX_BANNER: usize = 64 << 10;

/// Why a frame cannot be read or encoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The stream ended between two frames, or could not be read.
    #[error("the connection was closed")]
    Closed,
    /// The stream ended within a frame.
    #[error("the connection was closed in the middle of a message")]
    CutOff,
    /// The message is too long.
    #[error("a message has {0} bytes, but at most {MAX_BYTES} are allowed")]
    TooLong(usize),
}

/// Encodes a message as a frame.
///
/// # Errors
/// Fails if the content is too long.
pub(crate) fn encode(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message).expect("messages have text keys only");
    bytes.push(b'\n');
    let length = bytes.len() - 4;
    if length > MAX_BYTES {
        return Err(FrameError::TooLong(length));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}

/// Writes a frame that [`encode`] returned.
///
/// # Errors
/// Returns the errors of the writer.
pub(crate) fn write(output: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    output.write_all(frame)?;
    output.flush()
}

/// Reads the content of the next frame.
///
/// # Errors
/// Fails if the stream has ended, or if the frame is too long.
pub(crate) fn read(input: &mut impl Read) -> Result<Vec<u8>, FrameError> {
    let mut head = [0; 4];
    let mut filled = 0;
    while filled < head.len() {
        match input.read(&mut head[filled..]) {
            Ok(0) if filled == 0 => return Err(FrameError::Closed),
            Ok(0) => return Err(FrameError::CutOff),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(FrameError::Closed),
        }
    }
    let length = u32::from_le_bytes(head) as usize;
    if length > MAX_BYTES {
        return Err(FrameError::TooLong(length));
    }
    // Memory grows with the bytes that arrive, not with the length that was announced.
    let mut content = Vec::new();
    match input.take(length as u64).read_to_end(&mut content) {
        Ok(count) if count == length => {
            content.pop_if(|last| *last == b'\n');
            Ok(content)
        }
        _ => Err(FrameError::CutOff),
    }
}

/// Skips everything up to and including the marker.
///
/// # Errors
/// Returns the bytes that came instead, if the stream ends without a marker or has none in its
/// first 64 KiB.
pub(crate) fn skip_to_marker(input: &mut impl Read) -> Result<(), Vec<u8>> {
    let mut skipped = Vec::new();
    let mut byte = [0];
    while skipped.len() < MAX_BANNER + MARKER.len() {
        match input.read(&mut byte) {
            Ok(1) => skipped.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return Err(skipped),
        }
        if skipped.ends_with(MARKER) {
            return Ok(());
        }
    }
    Err(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: under `srun`, only the first message ever arrived.
    #[test]
    fn a_frame_is_read_as_it_was_written_and_ends_with_a_newline() {
        let mut bytes = encode(&"a \"quoted\"\nline").expect("a frame");
        bytes.extend(encode(&7).expect("a frame"));
        assert!(bytes.ends_with(b"7\n"));
        let mut input = bytes.as_slice();
        assert_eq!(read(&mut input).expect("a frame"), br#""a \"quoted\"\nline""#);
        assert_eq!(read(&mut input).expect("a frame"), b"7");
        assert!(matches!(read(&mut input), Err(FrameError::Closed)));
    }

    #[test]
    fn a_frame_that_is_cut_off_or_too_long_is_an_error() {
        let bytes = encode(&"text").expect("a frame");
        for end in 1..bytes.len() {
            assert!(matches!(read(&mut &bytes[..end]), Err(FrameError::CutOff)), "{end}");
        }
        let long = (MAX_BYTES as u32 + 1).to_le_bytes();
        assert!(matches!(read(&mut &long[..]), Err(FrameError::TooLong(_))));
        // No memory is allocated for bytes that were announced and did not come.
        let announced = (MAX_BYTES as u32).to_le_bytes();
        assert!(matches!(read(&mut &announced[..]), Err(FrameError::CutOff)));
    }

    #[test]
    fn a_banner_before_the_marker_is_skipped() {
        let bytes = [b"Welcome!\n\0hotlap-\0".as_slice(), MARKER, b"rest"].concat();
        let mut input = bytes.as_slice();
        skip_to_marker(&mut input).expect("a marker");
        assert_eq!(input, b"rest");
    }

    #[test]
    fn what_came_instead_of_a_marker_is_kept() {
        let said = skip_to_marker(&mut b"no such command\n".as_slice());
        assert_eq!(said, Err(b"no such command\n".to_vec()));
        let noise = vec![b'x'; 2 * MAX_BANNER];
        let said = skip_to_marker(&mut noise.as_slice()).expect_err("no marker");
        assert_eq!(said.len(), MAX_BANNER + MARKER.len());
    }
}
