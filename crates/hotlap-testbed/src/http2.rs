//! The server's side of an HTTP/2 connection to a client of a [`TestServer`](crate::TestServer), as
//! frames.
//!
//! Header blocks are not decoded. A test chooses the response by the number of the request.

use crate::Peer;

/// The types of frames (RFC 9113 section 6).
pub mod kind {
    #![allow(missing_docs, reason = "the names are those of the standard")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
}

/// The flag END_STREAM. In SETTINGS and PING, the same bit is the flag ACK.
pub const END_STREAM: u8 = 1;
/// The flag END_HEADERS.
pub const END_HEADERS: u8 = 4;

/// A header block with `:status: 200` (RFC 7541, index 8).
pub const STATUS_200: &[u8] = &[0x88];

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Returns the bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Returns the frames of a response with status 200 and this body.
pub fn response(stream: u32, body: &[u8]) -> Vec<u8> {
    let head = frame(kind::HEADERS, END_HEADERS, stream, STATUS_200);
    [head, frame(kind::DATA, END_STREAM, stream, body)].concat()
}

/// The server's side of a connection to a client that speaks HTTP/2.
#[derive(Debug)]
pub struct Http2Peer {
    client: Peer,
    received: Vec<u8>,
}

impl Http2Peer {
    /// Reads the client's preface and sends these SETTINGS. Returns `None` if the client does not
    /// speak HTTP/2.
    pub fn begin(mut client: Peer, settings: &[u8]) -> Option<Self> {
        let mut received = Vec::new();
        while received.len() < PREFACE.len() {
            received.extend(client.receive()?);
        }
        if !received.starts_with(PREFACE) {
            return None;
        }
        received.drain(..PREFACE.len());
        client.send(&frame(kind::SETTINGS, 0, 0, settings));
        Some(Self { client, received })
    }

    /// Returns the connection to the client.
    pub fn client(&mut self) -> &mut Peer {
        &mut self.client
    }

    /// Waits for the next request and returns its stream. Returns `None` when the client has closed
    /// the connection. SETTINGS and PING are acknowledged.
    pub fn request(&mut self) -> Option<u32> {
        loop {
            let (kind, flags, stream, payload) = self.frame()?;
            match kind {
                kind::HEADERS => {
                    self.client.count_request();
                    return Some(stream);
                }
                kind::SETTINGS | kind::PING if flags & END_STREAM == 0 => {
                    let payload = if kind == kind::PING { payload } else { Vec::new() };
                    self.send(&frame(kind, END_STREAM, 0, &payload));
                }
                kind::SETTINGS | kind::PING => {}
                _ => {}
            }
        }
    }

    /// Returns the type, the stream and the payload of the next frame of any type.
    pub fn other(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        self.frame().map(|(kind, _, stream, payload)| (kind, stream, payload))
    }

    /// Sends bytes. Returns false if the client has disconnected.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.client.send(bytes)
    }

    /// Returns the type, the flags, the stream and the payload of the next frame.
    fn frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        loop {
            if let Some(header) = self.received.get(..9) {
                let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
                let (kind, flags) = (header[3], header[4]);
                let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
                if self.received.len() >= 9 + length {
                    let payload = self.received[9..9 + length].to_vec();
                    self.received.drain(..9 + length);
                    return Some((kind, flags, stream, payload));
                }
            }
            self.received.extend(self.client.receive()?);
        }
    }
}
