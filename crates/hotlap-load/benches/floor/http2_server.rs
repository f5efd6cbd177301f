//! The server's side of HTTP/2, as little of it as load generators need: each HEADERS frame is a
//! request, and is answered with the same header block and body.

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// One connection.
#[derive(Default)]
pub struct Peer {
    received: Vec<u8>,
    has_preface: bool,
    /// Bytes to send.
    pub out: Vec<u8>,
    /// How many of them have been sent.
    pub sent: usize,
}

/// A response for any stream: frames in which the stream identifiers are 0.
pub struct Response {
    headers: Vec<u8>,
    data: Vec<Vec<u8>>,
}

impl Response {
    /// `:status: 200` and `content-length`, both without the dynamic table, and the body.
    pub fn new(body: &[u8]) -> Self {
        // RFC 7541: index 8 is `:status: 200`, index 28 is the name `content-length`; a literal
        // without indexing whose index takes 15 in the prefix, and the rest in another byte.
        let length = body.len().to_string();
        let mut block = vec![0x88, 0x0f, 28 - 15, length.len() as u8];
        block.extend_from_slice(length.as_bytes());
        let last = body.len().div_ceil(16_384).max(1) - 1;
        let data = body
            .chunks(16_384)
            .enumerate()
            .map(|(number, part)| frame(DATA, if number == last { END_STREAM } else { 0 }, part));
        Self { headers: frame(HEADERS, END_HEADERS, &block), data: data.collect() }
    }
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

impl Peer {
    /// Takes bytes and answers them; returns the number of requests.
    pub fn take(&mut self, bytes: &[u8], response: &Response) -> u64 {
        self.received.extend_from_slice(bytes);
        let mut at = 0;
        if !self.has_preface {
            if self.received.len() < PREFACE.len() {
                return 0;
            }
            assert!(self.received.starts_with(PREFACE), "not HTTP/2");
            (self.has_preface, at) = (true, PREFACE.len());
            self.out.extend(frame(SETTINGS, 0, &[]));
            // Flow control is not what is measured: as much window as there can be.
            self.out.extend(frame(WINDOW_UPDATE, 0, &(0x7fff_0000_u32).to_be_bytes()));
        }
        let mut requests = 0;
        while let Some(header) = self.received.get(at..at + 9) {
            let length =
                usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
            let (kind, flags, stream) = (header[3], header[4], &header[5..9]);
            let Some(payload) = self.received.get(at + 9..at + 9 + length) else { break };
            match kind {
                HEADERS => {
                    requests += 1;
                    for part in std::iter::once(&response.headers).chain(&response.data) {
                        let from = self.out.len() + 5;
                        self.out.extend_from_slice(part);
                        self.out[from..from + 4].copy_from_slice(stream);
                    }
                }
                SETTINGS if flags & ACK == 0 => self.out.extend(frame(SETTINGS, ACK, &[])),
                PING if flags & ACK == 0 => self.out.extend(frame(PING, ACK, payload)),
                _ => {}
            }
            at += 9 + length;
        }
        self.received.drain(..at);
        requests
    }
}
