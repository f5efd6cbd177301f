//! The requests of a plan, made ready: bytes built once, the order in which they are sent, and what
//! is known of their answers. Each worker has its own.

use crate::layout::Layout;
use crate::plan::{Expect, Plan, Reuse};

/// One request, ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_head: bool,
    pub(crate) expect: Expect,
    pub(crate) layout: Layout,
}

/// All of them.
#[derive(Debug, Clone)]
pub(crate) struct Book {
    entries: Vec<Entry>,
    /// Which one is sent when, over and over.
    order: Vec<u32>,
    next: usize,
    /// Answers whose body is looked at: one in so many.
    one_in: u32,
    unlooked: u32,
}

impl Book {
    /// The book of worker `worker`: each starts at another place of the order.
    pub(crate) fn new(plan: &Plan, worker: usize) -> Self {
        let ready = |request: &crate::plan::Request| Entry {
            bytes: match plan.reuse {
                Reuse::KeepAlive => request.bytes.clone(),
                Reuse::Close => closing(&request.bytes),
            },
            is_head: request.is_head,
            expect: request.expect.clone(),
            layout: Layout::default(),
        };
        let order = order(&plan.requests.iter().map(|r| r.weight).collect::<Vec<_>>());
        Self {
            entries: plan.requests.iter().map(ready).collect(),
            next: worker * order.len() / plan.threads.max(1),
            order,
            one_in: plan.check_one_in.max(1),
            unlooked: 0,
        }
    }

    /// Which request is sent next.
    #[inline]
    pub(crate) fn pick(&mut self) -> u32 {
        if let [only] = self.order[..] {
            return only;
        }
        let picked = self.order[self.next];
        self.next = if self.next + 1 == self.order.len() { 0 } else { self.next + 1 };
        picked
    }

    #[inline]
    pub(crate) fn entry(&mut self, request: u32) -> &mut Entry {
        &mut self.entries[request as usize]
    }

    /// Whether the next body may go unlooked at.
    pub(crate) fn skips_body(&mut self) -> bool {
        self.unlooked += 1;
        if self.unlooked >= self.one_in {
            self.unlooked = 0;
        }
        self.unlooked != 0
    }

    /// Whether some bodies go unlooked at.
    pub(crate) fn samples(&self) -> bool {
        self.one_in > 1
    }
}

/// Every request as often as its weight, spread evenly: the j-th of w is at (j + ½) / w of the way.
fn order(weights: &[u32]) -> Vec<u32> {
    let mut places: Vec<(f64, u32)> = Vec::new();
    for (request, weight) in (0..).zip(weights) {
        let weight = (*weight).max(1);
        places.extend((0..weight).map(|j| ((f64::from(j) + 0.5) / f64::from(weight), request)));
    }
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.into_iter().map(|(_, request)| request).collect()
}

/// The same request with `Connection: close` in it, unless it says something about that itself.
fn closing(bytes: &[u8]) -> Vec<u8> {
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
    fn weights_are_kept_and_spread() {
        assert_eq!(order(&[1]), [0]);
        assert_eq!(order(&[3, 1]), [0, 0, 1, 0]);
        assert_eq!(order(&[1, 1, 2]), [2, 0, 1, 2]);
    }

    #[test]
    fn a_closing_request_says_so_once() {
        let closes = b"GET / HTTP/1.1\r\nConnection: close\r\nHost: a\r\n\r\nbody";
        assert_eq!(closing(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody"), closes);
        assert_eq!(closing(closes), closes);
    }
}
