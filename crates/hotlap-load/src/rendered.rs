//! A text with inserts, rendered for one request after the other in the same memory.

use std::ops::Range;

use crate::plan::{Insert, Inserted};
use crate::values::Values;

/// A text with inserts, and its latest rendering.
#[derive(Debug, Clone)]
pub(crate) struct Rendered {
    literal: Vec<u8>,
    inserts: Vec<Insert>,
    /// Offset of the body in `literal`.
    body_at: usize,
    bytes: Vec<u8>,
    /// Where each insert is in `bytes`.
    places: Vec<Range<usize>>,
}

/// A part of a request's bytes, and the inserts in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its place in the bytes without the values of inserts.
    pub(crate) literal: Range<usize>,
    /// The numbers of its inserts.
    pub(crate) inserts: Range<usize>,
}

impl Span {
    /// The part at this place in bytes with these inserts.
    pub(crate) fn new(literal: Range<usize>, inserts: &[Insert]) -> Self {
        let before = |at: usize, includes: bool| {
            inserts.iter().filter(|i| i.at < at || (includes && i.at == at)).count()
        };
        Self { inserts: before(literal.start, false)..before(literal.end, true), literal }
    }
}

impl Rendered {
    /// A text that has not been rendered yet, unless it has no inserts. The body begins at
    /// `body_at`.
    pub(crate) fn new(literal: Vec<u8>, inserts: Vec<Insert>, body_at: usize) -> Self {
        let bytes = if inserts.is_empty() { literal.clone() } else { Vec::new() };
        let places = vec![0..0; inserts.len()];
        Self { literal, inserts, body_at, bytes, places }
    }

    /// The latest rendering.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where a part of it is in the latest rendering.
    pub(crate) fn range(&self, span: &Span) -> Range<usize> {
        let place = |at: usize, inserts_before: usize| match inserts_before.checked_sub(1) {
            None => at,
            Some(last) => self.places[last].end + (at - self.inserts[last].at),
        };
        let Span { literal, inserts } = span;
        place(literal.start, inserts.start)..place(literal.end, inserts.end)
    }

    /// Renders it with the values of a request. While values keep their widths, they are replaced
    /// in place.
    #[inline(never)]
    pub(crate) fn render(&mut self, number: u32, values: &mut Values) {
        for (insert, place) in self.inserts.iter().zip(&self.places) {
            let Inserted::Field(field) = insert.what else { continue };
            let value = values.value(field, number);
            match self.bytes.get_mut(place.clone()) {
                Some(old) if old.len() == value.len() => copy(old, value),
                _ => return self.rebuild(number, values),
            }
        }
    }

    /// Renders it anew.
    #[inline(never)]
    fn rebuild(&mut self, number: u32, values: &mut Values) {
        self.bytes.clear();
        let mut from = 0;
        for (insert, place) in self.inserts.iter().zip(&mut self.places) {
            self.bytes.extend_from_slice(&self.literal[from..insert.at]);
            from = insert.at;
            let start = self.bytes.len();
            match insert.what {
                Inserted::Field(field) => {
                    self.bytes.extend_from_slice(values.value(field, number));
                }
                Inserted::BodyLength => {
                    let is_in_body = |i: &&Insert| i.at >= self.body_at;
                    let inserted = self.inserts.iter().filter(is_in_body).map(|i| match i.what {
                        Inserted::Field(field) => values.value(field, number).len(),
                        Inserted::BodyLength => 0,
                    });
                    let length = self.literal.len() - self.body_at + inserted.sum::<usize>();
                    self.bytes.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
                }
            }
            *place = start..self.bytes.len();
        }
        self.bytes.extend_from_slice(&self.literal[from..]);
    }
}

/// Copies a value over one of the same length. Most values are short, and calling the library's
/// copy costs more than they do.
#[inline]
fn copy(old: &mut [u8], new: &[u8]) {
    let length = new.len();
    if let (4..=8, Some(first), Some(last)) =
        (length, new.first_chunk::<4>(), new.last_chunk::<4>())
    {
        let (first, last) = (*first, *last);
        old[..4].copy_from_slice(&first);
        old[length - 4..].copy_from_slice(&last);
    } else {
        old.copy_from_slice(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Endpoint, Field, Plan, Request, Source, Target};

    fn plan(requests: Vec<Request>, fields: Vec<Field>, threads: usize) -> Plan {
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 80).into());
        let mut plan = Plan::new(Target::plain(endpoint), requests[0].clone());
        (plan.requests, plan.fields, plan.threads) = (requests, fields, threads);
        plan
    }

    fn counter(name: &str, from: u64) -> Field {
        Field { name: name.to_owned(), source: Source::Counter { from } }
    }

    fn post(path: &str, body: &str, fields: &[Field]) -> Request {
        Request::with_fields("POST", path, "h", &[], body.as_bytes(), fields).unwrap()
    }

    fn renderings(plan: &Plan, order: &[u32], worker: usize, numbers: Range<u32>) -> Vec<String> {
        let mut values = Values::new(plan, order, worker);
        let prepare = |r: &Request| {
            let body_at = r.bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            Rendered::new(r.bytes.clone(), r.inserts.clone(), body_at)
        };
        let mut all: Vec<Rendered> = plan.requests.iter().map(prepare).collect();
        let render = |number: u32| {
            let rendered = &mut all[order[number as usize % order.len()] as usize];
            rendered.render(number, &mut values);
            String::from_utf8(rendered.bytes().to_vec()).unwrap()
        };
        numbers.map(render).collect()
    }

    #[test]
    fn the_length_of_the_body_follows_its_values() {
        let fields = [counter("id", 9)];
        let plan = plan(vec![post("/${id}", "{${id},${id}}", &fields)], fields.to_vec(), 1);
        let head = |id: u32, length: u32| {
            format!("POST /{id} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n")
        };
        let expected = [head(9, 5) + "{9,9}", head(10, 7) + "{10,10}", head(11, 7) + "{11,11}"];
        assert_eq!(renderings(&plan, &[0], 0, 0..3), expected);
        // Each rendering depends on its number alone.
        assert_eq!(renderings(&plan, &[0], 0, 1..2), expected[1..2]);
    }

    #[test]
    fn a_counter_counts_only_the_requests_that_use_it() {
        let fields = [counter("a", 0), counter("b", 0)];
        let requests = vec![post("/${a}", "", &fields), post("/${a}/${b}", "", &fields)];
        let plan = plan(requests, fields.to_vec(), 1);
        let paths = |worker: usize, plan: &Plan| -> Vec<String> {
            let all = renderings(plan, &[0, 1, 0], worker, 0..6);
            all.iter().map(|text| text.split(' ').nth(1).unwrap().to_owned()).collect()
        };
        assert_eq!(paths(0, &plan), ["/0", "/1/0", "/2", "/3", "/4/1", "/5"]);
        // Two workers share the sequence.
        let plan = Plan { threads: 2, ..plan };
        assert_eq!(paths(0, &plan), ["/0", "/2/0", "/4", "/6", "/8/2", "/10"]);
        assert_eq!(paths(1, &plan), ["/1", "/3/1", "/5", "/7", "/9/3", "/11"]);
    }

    #[test]
    fn values_of_all_lengths_are_copied() {
        for length in 0..40 {
            let new: Vec<u8> = (0..length).collect();
            let mut old = vec![0xff; new.len()];
            copy(&mut old, &new);
            assert_eq!(old, new);
        }
    }
}
