//! The requests of a plan, ready to send: their bytes, the order in which they are sent, and the
//! templates of their responses. Each worker has its own.

use crate::plan::{ExpectedResponse, Plan, Request, Reuse};
use crate::template::ResponseTemplate;

/// A request that is ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct PreparedRequest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_head: bool,
    pub(crate) expect: ExpectedResponse,
    pub(crate) template: ResponseTemplate,
}

/// All requests, and their order.
#[derive(Debug, Clone)]
pub(crate) struct RequestMix {
    requests: Vec<PreparedRequest>,
    /// Indices of `requests`, sent in this order repeatedly.
    order: Vec<u32>,
    next: usize,
    /// Check the body of one response in this many.
    check_one_in: u32,
    /// Bodies skipped since the last one checked.
    skipped: u32,
}

impl RequestMix {
    /// The mix of one worker; each worker starts at another place in the order.
    pub(crate) fn new(plan: &Plan, worker: usize) -> Self {
        let prepare = |request: &Request| PreparedRequest {
            bytes: match plan.reuse {
                Reuse::KeepAlive => request.bytes.clone(),
                Reuse::Close => with_connection_close(&request.bytes),
            },
            is_head: request.is_head,
            expect: request.expect.clone(),
            template: ResponseTemplate::default(),
        };
        let order = order(&plan.requests.iter().map(|r| r.weight).collect::<Vec<_>>());
        Self {
            requests: plan.requests.iter().map(prepare).collect(),
            next: worker * order.len() / plan.threads.max(1),
            order,
            check_one_in: plan.check_one_in.max(1),
            skipped: 0,
        }
    }

    /// The index of the request to send next.
    #[inline]
    pub(crate) fn next(&mut self) -> u32 {
        if let [only] = self.order[..] {
            return only;
        }
        let request = self.order[self.next];
        self.next = if self.next + 1 == self.order.len() { 0 } else { self.next + 1 };
        request
    }

    /// The request with an index that [`RequestMix::next`] returned.
    #[inline]
    pub(crate) fn get(&mut self, request: u32) -> &mut PreparedRequest {
        &mut self.requests[request as usize]
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

/// The request with `Connection: close` added, unless it has a `Connection` header.
fn with_connection_close(bytes: &[u8]) -> Vec<u8> {
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
    let line = bytes.windows(2).position(|w| w == b"\r\n");
    let mut lines = bytes[..head].split(|&b| b == b'\n').skip(1);
    let is_connection =
        |l: &[u8]| l.get(..11).is_some_and(|name| name.eq_ignore_ascii_case(b"connection:"));
    let Some(line) = line.filter(|_| !lines.any(is_connection)) else { return bytes.to_vec() };
    [&bytes[..line], b"\r\nConnection: close", &bytes[line..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_evenly_by_their_weights() {
        assert_eq!(order(&[1]), [0]);
        assert_eq!(order(&[3, 1]), [0, 0, 1, 0]);
        assert_eq!(order(&[1, 1, 2]), [2, 0, 1, 2]);
    }

    #[test]
    fn connection_close_is_added_once() {
        let closes = b"GET / HTTP/1.1\r\nConnection: close\r\nHost: a\r\n\r\nbody";
        assert_eq!(with_connection_close(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody"), closes);
        assert_eq!(with_connection_close(closes), closes);
    }
}
