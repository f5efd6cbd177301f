//! The verifier's side of HTTP/2: one request at a time, and its whole response.

use hotlap_load::http::{Framing, Response};
use hotlap_load::http2::{BlockForm, ClientConnection, Limits, StreamEvent, encode};
use hotlap_load::plan::Request;

use super::size::{ANSWER_LIMIT, too_large};
use crate::contract::{Exchange, quoted};

/// The state of HTTP/2 on a connection.
pub(super) struct Conversation {
    client: ClientConnection,
    /// Requests sent.
    requests: u32,
    /// The response that is arriving.
    partial: Option<Partial>,
}

/// A response as far as it has arrived.
struct Partial {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// The header block of a request, which does not use the server's table.
pub(super) fn block(exchange: &Exchange, host: &str, scheme: &str) -> Vec<u8> {
    let Exchange { method, path, headers, body, .. } = exchange;
    let encoded = encode(&[Request::build(method, path, host, headers, body)], scheme);
    encoded.block(0, BlockForm::Plain).constant().unwrap_or_default().to_vec()
}

impl Conversation {
    /// Begins: `out` gets what a connection begins with.
    pub(super) fn begin(out: &mut Vec<u8>) -> Self {
        let mut client = ClientConnection::new(Limits::default());
        client.keep_fields();
        client.open(out);
        Self { client, requests: 0, partial: None }
    }

    /// Whether the server's SETTINGS have arrived: it speaks HTTP/2.
    pub(super) fn has_settings(&self) -> bool {
        self.client.has_settings()
    }

    /// Appends the frames of a request to `out`.
    pub(super) fn request(
        &mut self,
        exchange: &Exchange,
        host: &str,
        scheme: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let block = block(exchange, host, scheme);
        self.requests += 1;
        self.partial = None;
        let stream =
            self.client.request(self.requests, &block, &exchange.body, exchange.is_head(), out);
        match stream {
            Some(_) => Ok(()),
            None => Err("the server takes no more requests on this connection".to_owned()),
        }
    }

    /// Takes the frames that have arrived, up to the end of a response. `out` gets answers to the
    /// server's own frames.
    pub(super) fn read(
        &mut self,
        received: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Response>, String> {
        let Self { client, partial, .. } = self;
        let bytes = std::mem::take(received);
        let mut rest = bytes.as_slice();
        let answer = loop {
            match client.take(&mut rest, out) {
                StreamEvent::NeedMore => break Ok(None),
                StreamEvent::Head { status, .. } => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let fields = client.fields().iter();
                    let headers = fields.map(|(name, value)| (text(name), value.clone())).collect();
                    *partial = Some(Partial { status, headers, body: Vec::new() });
                }
                StreamEvent::Data { data, .. } => {
                    if let Some(partial) = partial {
                        partial.body.extend_from_slice(data);
                        if partial.body.len() > ANSWER_LIMIT {
                            break Err(too_large());
                        }
                    }
                }
                StreamEvent::End { .. } => break Ok(partial.take().map(Partial::complete)),
                StreamEvent::Reset { code, .. } => {
                    break Err(format!("the server reset the stream: {code}"));
                }
                StreamEvent::GoAway { .. } => {}
                StreamEvent::Refused { .. } => {
                    break Err("the server did not process the request (GOAWAY)".to_owned());
                }
                StreamEvent::Malformed { why, .. } => {
                    break Err(format!("a malformed response: {why}"));
                }
                StreamEvent::Broken { why, .. } if !client.has_settings() => {
                    let got = quoted(&bytes);
                    break Err(format!("the server does not speak HTTP/2 here ({why}): {got}"));
                }
                StreamEvent::Broken { why, .. } => break Err(format!("a protocol error: {why}")),
            }
        };
        *received = rest.to_vec();
        answer
    }
}

impl Partial {
    fn complete(self) -> Response {
        let length = self.body.len() as u64;
        Response {
            status: self.status,
            minor: 1,
            headers: self.headers,
            body: self.body,
            consumed: 0,
            keep_alive: true,
            framing: Framing::Length(length),
            interim: Vec::new(),
        }
    }
}
