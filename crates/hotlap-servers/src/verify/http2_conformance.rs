//! Conformance checks of HTTP/2: behaviour that is reported but not required, each with its rule.

use std::time::Duration;

use hotlap_load::http2::{MAX_FRAME, flags, kind};

use super::checks::check;
use super::client::Wire;
use super::http2::block;
use super::http2_frames::{End, Frames};
use super::{Check, Verifier};

/// Time limit for one response.
const LIMIT: Duration = Duration::from_secs(1);

/// The first stream of a client.
const FIRST: u32 = 1;

const WHOLE: u8 = flags::END_STREAM | flags::END_HEADERS;

type Outcome = Result<(), String>;

struct Conformance<'a> {
    verifier: &'a Verifier<'a>,
    /// The header block of a request without a body.
    block: Vec<u8>,
    /// The status of its response; 0 if that is unknown.
    status: u16,
}

/// Runs all twelve checks, or those that are acceptable for a server that is not the user's own.
/// `status` is that of the response to the contract's first request.
pub(super) fn run(verifier: &Verifier<'_>, status: u16) -> Vec<Check> {
    let main = &verifier.contract.exchanges[0];
    let exchange = if main.body.is_empty() { main.clone() } else { main.readiness() };
    let scheme = if verifier.target.tls.is_some() { "https" } else { "http" };
    let block = block(&exchange, verifier.host, scheme);
    let status = if main.body.is_empty() { status } else { 0 };
    let c = Conformance { verifier, block, status };
    let mut conformance = vec![
        check("SETTINGS first", "the first frame (RFC 9113 section 3.4)", c.settings_first()),
        check("SETTINGS acknowledged", "an ACK (RFC 9113 section 6.5.3)", c.acknowledges()),
        check("PING", "the same bytes, with ACK (RFC 9113 section 6.7)", c.ping()),
        check("unknown frame", "ignored (RFC 9113 section 5.5)", c.unknown_frame()),
        check("CONTINUATION", "accepted (RFC 9113 section 6.10)", c.continuation()),
        check("padding", "accepted (RFC 9113 section 6.2)", c.padding()),
        check("many streams", "all answered (RFC 9113 section 5.1.2)", c.many_streams()),
        check("flow control", "no more DATA than the window (RFC 9113 section 6.9)", c.window()),
        check("reset", "other streams go on (RFC 9113 section 5.4.2)", c.goes_on_after_reset()),
    ];
    if verifier.rude {
        let refused = "an error (RFC 9113 section 5.1.1)";
        conformance.push(check("even stream", refused, c.even_stream()));
        let refused = "FRAME_SIZE_ERROR (RFC 9113 section 4.2)";
        conformance.push(check("oversize frame", refused, c.oversize_frame()));
        let refused = "malformed (RFC 9113 section 8.2.1)";
        conformance.push(check("upper-case name", refused, c.upper_case_name()));
    }
    conformance
}

impl Conformance<'_> {
    fn open(&self, settings: &[u8]) -> Result<Frames, String> {
        let limit = self.verifier.limit.min(LIMIT);
        Frames::begin(Wire::open_bare(self.verifier.target, limit)?, settings, limit)
    }

    /// The usual response on this stream.
    fn answered(&self, frames: &mut Frames, stream: u32) -> Outcome {
        match frames.end_of(stream)? {
            End::Response(status, _) if self.status == 0 || status == self.status => Ok(()),
            End::Response(status, _) => Err(format!("status {status}")),
            End::Reset => Err("the stream was reset".to_owned()),
            End::Closed => Err("the connection was closed".to_owned()),
        }
    }

    fn settings_first(&self) -> Outcome {
        match self.open(&[])?.next()? {
            Some(frame) if frame.header.kind == kind::SETTINGS => Ok(()),
            Some(frame) => Err(format!("a frame of type {}", frame.header.kind)),
            None => Err("no frame".to_owned()),
        }
    }

    fn acknowledges(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        frames
            .wait_for("an ACK", |f| f.header.kind == kind::SETTINGS && f.header.has(flags::ACK))
            .map(drop)
    }

    fn ping(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        frames.send(kind::PING, 0, 0, b"hotlap!?")?;
        let answer = frames
            .wait_for("an answer", |f| f.header.kind == kind::PING && f.header.has(flags::ACK))?;
        match answer.payload == b"hotlap!?" {
            true => Ok(()),
            false => Err(format!("{:?}", answer.payload)),
        }
    }

    fn unknown_frame(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        frames.send(0xfe, 0xff, 0, b"unknown")?;
        frames.send(kind::HEADERS, WHOLE, FIRST, &self.block)?;
        self.answered(&mut frames, FIRST)
    }

    fn continuation(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        let (first, rest) = self.block.split_at(1);
        frames.send(kind::HEADERS, flags::END_STREAM, FIRST, first)?;
        frames.send(kind::CONTINUATION, flags::END_HEADERS, FIRST, rest)?;
        self.answered(&mut frames, FIRST)
    }

    fn padding(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        let padded = [&[7][..], &self.block, &[0; 7]].concat();
        frames.send(kind::HEADERS, WHOLE | flags::PADDED, FIRST, &padded)?;
        self.answered(&mut frames, FIRST)
    }

    fn many_streams(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        let streams: Vec<u32> = (0..10).map(|n| FIRST + 2 * n).collect();
        for stream in &streams {
            frames.send(kind::HEADERS, WHOLE, *stream, &self.block)?;
        }
        // They may be answered in any order.
        let mut open = streams;
        while !open.is_empty() {
            let ended = frames.wait_for("a response to each", |f| {
                f.header.has(flags::END_STREAM)
                    && matches!(f.header.kind, kind::HEADERS | kind::DATA)
            })?;
            open.retain(|stream| *stream != ended.header.stream);
        }
        Ok(())
    }

    /// Each stream may carry one byte before a WINDOW_UPDATE.
    fn window(&self) -> Outcome {
        // SETTINGS_INITIAL_WINDOW_SIZE.
        let mut frames = self.open(&[0, 4, 0, 0, 0, 1])?;
        frames
            .wait_for("an ACK", |f| f.header.kind == kind::SETTINGS && f.header.has(flags::ACK))?;
        frames.send(kind::HEADERS, WHOLE, FIRST, &self.block)?;
        let first = frames.wait_for("DATA or an end", |f| {
            f.header.stream == FIRST
                && (f.header.kind == kind::DATA || f.header.has(flags::END_STREAM))
        })?;
        if first.header.kind == kind::DATA && first.payload.len() > 1 {
            return Err(format!("{} bytes for a window of 1", first.payload.len()));
        }
        if first.header.has(flags::END_STREAM) {
            return Ok(());
        }
        frames.send(kind::WINDOW_UPDATE, 0, FIRST, &65_535_u32.to_be_bytes())?;
        let last = |f: &super::http2_frames::Frame| {
            f.header.stream == FIRST && f.header.has(flags::END_STREAM)
        };
        frames.wait_for("the rest after a WINDOW_UPDATE", last).map(drop)
    }

    fn goes_on_after_reset(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        frames.send(kind::HEADERS, WHOLE, FIRST, &self.block)?;
        // CANCEL.
        frames.send(kind::RST_STREAM, 0, FIRST, &8_u32.to_be_bytes())?;
        frames.send(kind::HEADERS, WHOLE, FIRST + 2, &self.block)?;
        self.answered(&mut frames, FIRST + 2)
    }

    /// A request that the server must not answer as if it were right.
    fn refused(&self, frames: &mut Frames, stream: u32) -> Outcome {
        match frames.end_of(stream)? {
            End::Reset | End::Closed | End::Response(400..=499, _) => Ok(()),
            // Some servers respond before they have read the rest.
            End::Response(status, _) => match frames.is_ended(stream)? {
                true => Ok(()),
                false => Err(format!("status {status}")),
            },
        }
    }

    fn even_stream(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        frames.send(kind::HEADERS, WHOLE, 2, &self.block)?;
        self.refused(&mut frames, 2)
    }

    fn oversize_frame(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        // Larger than any server's default; one that allows more says so in its SETTINGS.
        let size = MAX_FRAME as usize + 1;
        let allowed = frames.wait_for("SETTINGS", |f| f.header.kind == kind::SETTINGS)?;
        let allows_more = allowed.payload.chunks_exact(6).any(|s| s[..2] == [0, 5]);
        if allows_more {
            return Ok(());
        }
        frames.send(kind::HEADERS, flags::END_HEADERS, FIRST, &self.block)?;
        frames.send(kind::DATA, flags::END_STREAM, FIRST, &vec![b'x'; size])?;
        self.refused(&mut frames, FIRST)
    }

    fn upper_case_name(&self) -> Outcome {
        let mut frames = self.open(&[])?;
        // A literal without indexing, with a name of its own (RFC 7541 section 6.2.2): X-A: 1.
        let field = [&[0, 3][..], b"X-A", &[1], b"1"].concat();
        let block = [&self.block[..], &field].concat();
        frames.send(kind::HEADERS, WHOLE, FIRST, &block)?;
        self.refused(&mut frames, FIRST)
    }
}
