//! The verifier's side of HTTP/2: one request at a time, and its whole response.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hotlap_load::http::{Framing, Response};
use hotlap_load::http2::{Client, Event, Limits, RequestFields, Value, encode};

use super::client::Wire;
use crate::contract::{Exchange, quoted};
use crate::interrupt;

/// The state of HTTP/2 on a connection.
pub(super) struct Conversation {
    client: Client,
    /// Requests sent.
    requests: u32,
}

/// A response as far as it has arrived.
struct Partial {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Wire {
    /// Begins with HTTP/2.
    pub(super) fn begin_http2(&mut self) -> Result<(), String> {
        if self.channel.as_ref().is_some_and(|channel| !channel.speaks_http2()) {
            return Err("the server does not offer HTTP/2 (ALPN h2)".to_owned());
        }
        let mut client = Client::new(Limits::default());
        client.keep_fields();
        let mut out = Vec::new();
        client.open(&mut out);
        self.http2 = Some(Box::new(Conversation { client, requests: 0 }));
        self.send(&out)
    }

    /// Sends a request on a stream and returns the response, or stops waiting once `stop` is set.
    pub(super) fn ask_http2(
        &mut self,
        exchange: &Exchange,
        host: &str,
        stop: &AtomicBool,
    ) -> Result<Response, String> {
        let Some(mut conversation) = self.http2.take() else {
            return Err("the connection does not speak HTTP/2".to_owned());
        };
        let answer = self.converse(&mut conversation, exchange, host, stop);
        self.http2 = Some(conversation);
        answer
    }

    fn converse(
        &mut self,
        Conversation { client, requests }: &mut Conversation,
        exchange: &Exchange,
        host: &str,
        stop: &AtomicBool,
    ) -> Result<Response, String> {
        let headers: Vec<(&str, Value<'_>)> = (exchange.headers.iter())
            .map(|(name, value)| (name.as_str(), Value::Constant(value.as_bytes())))
            .collect();
        let encoded = encode(&[RequestFields {
            method: &exchange.method,
            scheme: if self.channel.is_some() { "https" } else { "http" },
            authority: host,
            path: Value::Constant(exchange.path.as_bytes()),
            headers: &headers,
            body_length: exchange.body.len(),
        }]);
        let block = encoded.requests[0].form(hotlap_load::http2::Form::Plain);
        let block = block.constant().unwrap_or_default();
        let mut out = Vec::new();
        *requests += 1;
        if client.request(*requests, block, &exchange.body, exchange.is_head(), &mut out).is_none()
        {
            return Err("the server takes no more requests on this connection".to_owned());
        }
        self.send(&out)?;
        let until = Instant::now() + self.limit;
        let mut partial: Option<Partial> = None;
        loop {
            if let Some(answer) = self.read_http2(client, &mut partial)? {
                return Ok(answer);
            }
            if self.over {
                return Err(match client.has_settings() {
                    true => "the connection closed before the response was complete".to_owned(),
                    false => "the connection closed without a frame of HTTP/2".to_owned(),
                });
            }
            let is_changed = self.fill(until.min(Instant::now() + interrupt::LOOK));
            if !is_changed && !self.over && stop.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            if !is_changed && !self.over && Instant::now() >= until {
                return Err(format!("no complete response within {} s", self.limit.as_secs_f64()));
            }
        }
    }

    /// Takes the frames that have arrived, up to the end of the response.
    fn read_http2(
        &mut self,
        client: &mut Client,
        partial: &mut Option<Partial>,
    ) -> Result<Option<Response>, String> {
        let received = std::mem::take(&mut self.buf);
        let (mut rest, mut out) = (received.as_slice(), Vec::new());
        let answer = loop {
            match client.take(&mut rest, &mut out) {
                Event::NeedMore => break Ok(None),
                Event::Head { status, .. } => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let fields = client.fields().iter();
                    let headers = fields.map(|(name, value)| (text(name), value.clone())).collect();
                    *partial = Some(Partial { status, headers, body: Vec::new() });
                }
                Event::Data { data, .. } => {
                    if let Some(partial) = partial {
                        partial.body.extend_from_slice(data);
                    }
                }
                Event::End { .. } => break Ok(partial.take().map(Partial::complete)),
                Event::Reset { code, .. } => {
                    break Err(format!("the server reset the stream: {code}"));
                }
                Event::GoAway { .. } => {}
                Event::Refused { .. } => {
                    break Err("the server did not process the request (GOAWAY)".to_owned());
                }
                Event::Malformed { why, .. } => break Err(format!("a malformed response: {why}")),
                Event::Broken { why, .. } if !client.has_settings() => {
                    let got = quoted(&received);
                    break Err(format!("the server does not speak HTTP/2 here ({why}): {got}"));
                }
                Event::Broken { why, .. } => break Err(format!("a protocol error: {why}")),
            }
        };
        self.buf = rest.to_vec();
        if !out.is_empty() {
            // Answers to the server's own frames. If they cannot be sent, the next read fails.
            let _ = self.send(&out);
        }
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
