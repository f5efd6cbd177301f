//! The requests of a plan, ready to send: their bytes, the order in which they are sent, and the
//! templates of their responses. Each worker has its own.

use crate::plan::{ExpectedBody, ExpectedResponse, Insert, Plan, Request, Reuse};
use crate::rendered::Rendered;
use crate::template::ResponseTemplate;
use crate::values::Values;

/// A place in a worker's sequence of requests. Everything about the request follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Turn {
    /// The index of the request.
    pub(crate) request: u32,
    /// Its number in the worker's sequence.
    pub(crate) number: u32,
}

/// A request that is ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct PreparedRequest {
    bytes: Rendered,
    varies: bool,
    pub(crate) is_head: bool,
    /// What the current response is compared with.
    pub(crate) expect: ExpectedResponse,
    /// The expected body, if it has values of fields.
    body: Option<Rendered>,
    pub(crate) template: ResponseTemplate,
}

/// All requests, and their order.
#[derive(Debug, Clone)]
pub(crate) struct RequestMix {
    requests: Vec<PreparedRequest>,
    /// Indices of `requests`, sent in this order repeatedly.
    order: Vec<u32>,
    /// The position in `order` of the next request, and its number.
    next: usize,
    number: u32,
    /// Numbers start again from 0 here, at the end of an order.
    end: u32,
    values: Values,
    /// Check the body of one response in this many.
    check_one_in: u32,
    /// Bodies skipped since the last one checked.
    skipped: u32,
}

impl RequestMix {
    /// The mix of one worker; each worker starts at another place in the order.
    pub(crate) fn new(plan: &Plan, worker: usize) -> Self {
        let order = order(&plan.requests.iter().map(|r| r.weight).collect::<Vec<_>>());
        let length = order.len().max(1) as u32;
        let next = worker * order.len() / plan.threads.max(1);
        Self {
            requests: plan.requests.iter().map(|r| PreparedRequest::new(r, plan.reuse)).collect(),
            next,
            number: next as u32,
            end: u32::MAX - u32::MAX % length,
            values: Values::new(plan, &order, worker),
            order,
            check_one_in: plan.check_one_in.max(1),
            skipped: 0,
        }
    }

    /// The request to send next.
    #[inline]
    pub(crate) fn next(&mut self) -> Turn {
        let number = self.number;
        self.number = if number + 1 == self.end { 0 } else { number + 1 };
        if let [only] = self.order[..] {
            return Turn { request: only, number };
        }
        let request = self.order[self.next];
        self.next = if self.next + 1 == self.order.len() { 0 } else { self.next + 1 };
        Turn { request, number }
    }

    /// The bytes of a request.
    #[inline]
    pub(crate) fn bytes(&mut self, turn: Turn) -> &[u8] {
        let prepared = &mut self.requests[turn.request as usize];
        if prepared.varies {
            prepared.bytes.render(turn.number, &mut self.values);
        }
        prepared.bytes.bytes()
    }

    /// A request that [`RequestMix::next`] returned, with the response that it expects.
    #[inline]
    pub(crate) fn get(&mut self, turn: Turn) -> &mut PreparedRequest {
        let prepared = &mut self.requests[turn.request as usize];
        if prepared.body.is_some() {
            prepared.expect_body(turn.number, &mut self.values);
        }
        prepared
    }

    /// Whether the body of the response that has just begun need not be checked.
    pub(crate) fn skips_next_body(&mut self) -> bool {
        self.skipped += 1;
        if self.skipped >= self.check_one_in {
            self.skipped = 0;
        }
        self.skipped != 0
    }

    /// Whether some bodies are not checked.
    pub(crate) fn skips_bodies(&self) -> bool {
        self.check_one_in > 1
    }
}

impl PreparedRequest {
    fn new(request: &Request, reuse: Reuse) -> Self {
        let (mut bytes, mut inserts) = (request.bytes.clone(), request.inserts.clone());
        if reuse == Reuse::Close {
            add_connection_close(&mut bytes, &mut inserts);
        }
        let body_at = bytes.windows(4).position(|w| w == b"\r\n\r\n").map_or(0, |at| at + 4);
        let mut expect = request.expect.clone();
        let body = match &expect.body {
            ExpectedBody::Fields { bytes, inserts } => {
                Some(Rendered::new(bytes.clone(), inserts.clone(), 0))
            }
            _ => None,
        };
        if body.is_some() {
            expect.body = ExpectedBody::Bytes { bytes: Vec::new(), varies: Vec::new() };
        }
        Self {
            varies: !inserts.is_empty(),
            bytes: Rendered::new(bytes, inserts, body_at),
            is_head: request.is_head,
            expect,
            body,
            template: ResponseTemplate::default(),
        }
    }

    /// Inserts the values of a request into the expected body.
    #[inline(never)]
    fn expect_body(&mut self, number: u32, values: &mut Values) {
        let (Some(body), ExpectedBody::Bytes { bytes, .. }) =
            (&mut self.body, &mut self.expect.body)
        else {
            return;
        };
        body.render(number, values);
        bytes.clear();
        bytes.extend_from_slice(body.bytes());
        self.template.expect_body(bytes);
    }
}

/// Each request as often as its weight, spread evenly: the j-th of w is (j + ½) / w of the way.
fn order(weights: &[u32]) -> Vec<u32> {
    let mut places: Vec<(f64, u32)> = Vec::new();
    for (request, weight) in (0..).zip(weights) {
        let weight = (*weight).max(1);
        places.extend((0..weight).map(|j| ((f64::from(j) + 0.5) / f64::from(weight), request)));
    }
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.into_iter().map(|(_, request)| request).collect()
}

/// Adds `Connection: close` after the request line, unless there is a `Connection` header.
fn add_connection_close(bytes: &mut Vec<u8>, inserts: &mut [Insert]) {
    const HEADER: &[u8] = b"\r\nConnection: close";
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
    let line = bytes.windows(2).position(|w| w == b"\r\n");
    let mut lines = bytes[..head].split(|&b| b == b'\n').skip(1);
    let is_connection =
        |l: &[u8]| l.get(..11).is_some_and(|name| name.eq_ignore_ascii_case(b"connection:"));
    let Some(line) = line.filter(|_| !lines.any(is_connection)) else { return };
    bytes.splice(line..line, HEADER.iter().copied());
    for insert in inserts.iter_mut().filter(|insert| insert.at > line) {
        insert.at += HEADER.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Endpoint, Field, Inserted, Source, Target};

    #[test]
    fn requests_are_spread_evenly_by_their_weights() {
        assert_eq!(order(&[1]), [0]);
        assert_eq!(order(&[3, 1]), [0, 0, 1, 0]);
        assert_eq!(order(&[1, 1, 2]), [2, 0, 1, 2]);
    }

    #[test]
    fn connection_close_is_added_once() {
        let closes = b"GET / HTTP/1.1\r\nConnection: close\r\nHost: a\r\n\r\nbody";
        for before in [&b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody"[..], closes] {
            let mut bytes = before.to_vec();
            add_connection_close(&mut bytes, &mut []);
            assert_eq!(bytes, closes);
        }
    }

    fn plan(threads: usize) -> Plan {
        let fields = vec![Field { name: "id".to_owned(), source: Source::Counter { from: 8 } }];
        let build = |path: &str| Request::with_fields("GET", path, "h", &[], b"", &fields).unwrap();
        let mut varying = build("/${id}");
        varying.expect.body = ExpectedBody::Fields {
            bytes: b"<>".to_vec(),
            inserts: vec![Insert { at: 1, what: Inserted::Field(0) }],
        };
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 80).into());
        let mut plan = Plan::new(Target { endpoint, tls: None }, build("/"));
        plan.requests.push(varying);
        (plan.fields, plan.threads) = (fields, threads);
        plan
    }

    /// Requests may be answered in any order of connections, long after others were sent.
    #[test]
    fn bytes_and_expected_body_follow_from_the_turn() {
        let mut mix = RequestMix::new(&plan(1), 0);
        let turns: Vec<Turn> = (0..8).map(|_| mix.next()).collect();
        for turn in turns.iter().rev().chain(&turns) {
            let text = String::from_utf8(mix.bytes(*turn).to_vec()).unwrap();
            let body = mix.get(*turn).expect.body.clone();
            let id = 8 + turn.number / 2;
            let (path, expected) = match turn.request {
                0 => ("/".to_owned(), ExpectedBody::Any),
                _ => (format!("/{id}"), exactly(&format!("<{id}>"))),
            };
            assert_eq!(text, format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
            assert_eq!(body, expected);
        }
    }

    fn exactly(body: &str) -> ExpectedBody {
        ExpectedBody::Bytes { bytes: body.as_bytes().to_vec(), varies: Vec::new() }
    }

    #[test]
    fn places_move_with_the_header_of_a_connection_that_closes() {
        let plan = Plan { reuse: Reuse::Close, ..plan(1) };
        let mut mix = RequestMix::new(&plan, 0);
        let turn = std::iter::repeat_with(|| mix.next()).find(|turn| turn.request == 1).unwrap();
        let expected = b"GET /8 HTTP/1.1\r\nConnection: close\r\nHost: h\r\n\r\n";
        assert_eq!(mix.bytes(turn), expected);
    }

    #[test]
    fn the_sequence_starts_again_at_the_end_of_an_order() {
        let mut mix = RequestMix::new(&plan(1), 0);
        mix.number = mix.end - 1;
        mix.next = mix.order.len() - 1;
        assert_eq!(mix.next().number, mix.end - 1);
        assert_eq!((mix.next().number, mix.next), (0, 1));
    }
}
