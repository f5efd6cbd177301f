//! The values of fields as one worker sends them, and texts that contain such values.

use std::ops::Range;
use std::sync::Arc;

use crate::plan::{Buffer, Field, Piece, Plan, Text};

/// The fields of a plan, for one worker.
///
/// Workers take the values of a sequence in turn, so that a counter never repeats, however many
/// workers there are.
#[derive(Debug, Clone)]
pub(super) struct Values {
    fields: Arc<[Field]>,
    uses: Vec<Uses>,
    /// The number of requests in the order that is repeated.
    cycle: u32,
    /// The number of this worker's first value.
    first: u64,
    /// The step from each value to the next.
    workers: u64,
    buffer: Buffer,
}

/// The uses of a field in the repeated order of requests.
#[derive(Debug, Clone)]
struct Uses {
    /// The field's key for random values.
    key: u64,
    /// For each position in the order, the number of earlier requests that use the field.
    before: Vec<u32>,
    /// The number of requests in the whole order that use the field.
    in_cycle: u64,
}

impl Values {
    /// Creates the values for a plan whose requests are sent in this order, repeatedly.
    pub(super) fn new(plan: &Plan, order: &[u32], worker: usize) -> Self {
        if plan.order.is_some() {
            return Self::numbered(plan);
        }
        let uses = |index: usize| {
            let has_field = |text: &Text| text.pieces().contains(&Piece::Field(index));
            let used: Vec<bool> = plan.requests.iter().map(|r| r.texts().any(has_field)).collect();
            let mut count = 0;
            let before = |request: &u32| {
                let before = count;
                count += u32::from(used[*request as usize]);
                before
            };
            let before = order.iter().map(before).collect();
            let field = &plan.fields[index];
            let seed = field.source.seed(plan.seed, plan.unique);
            Uses { key: field.key(seed, index), before, in_cycle: u64::from(count) }
        };
        Self {
            fields: plan.fields.clone().into(),
            uses: (0..plan.fields.len()).map(uses).collect(),
            cycle: u32::try_from(order.len()).unwrap_or(u32::MAX).max(1),
            first: plan.first_value + plan.worker(worker) as u64,
            workers: plan.workers() as u64,
            buffer: Buffer::default(),
        }
    }

    /// Creates the values for a plan whose order names the value of each request by its number. The
    /// value does not depend on the worker that sends the request.
    fn numbered(plan: &Plan) -> Self {
        let uses = |index: usize| {
            let field = &plan.fields[index];
            let key = field.key(field.source.seed(plan.seed, plan.unique), index);
            Uses { key, before: vec![0], in_cycle: 1 }
        };
        Self {
            fields: plan.fields.clone().into(),
            uses: (0..plan.fields.len()).map(uses).collect(),
            cycle: 1,
            first: 0,
            workers: 1,
            buffer: Buffer::default(),
        }
    }

    /// Returns the value of a field in the worker's `number`-th request.
    #[inline]
    pub(super) fn value(&mut self, field: usize, number: u32) -> &[u8] {
        let uses = &self.uses[field];
        let (cycle, position) = (number / self.cycle, number % self.cycle);
        let used = u64::from(cycle) * uses.in_cycle + u64::from(uses.before[position as usize]);
        let n = self.first + used * self.workers;
        self.fields[field].source.value(uses.key, n, &mut self.buffer)
    }
}

/// A text that is rendered for one request after another in the same memory.
#[derive(Debug, Clone)]
pub(super) struct Rendered {
    /// The pieces of the text. Empty if nothing varies.
    pieces: Vec<Piece>,
    /// The body of the request. The length of the body may be a part of the text.
    body: Vec<Piece>,
    bytes: Vec<u8>,
    /// The range of each field's value in `bytes`. Empty until the first rendering.
    places: Vec<(usize, Range<usize>)>,
}

impl Rendered {
    /// Creates a text of a request with this body. If the text does not vary, it is ready to send.
    pub(super) fn new(text: &Text, body: &Text) -> Self {
        let pieces = |text: &Text| if text.varies() { text.pieces().to_vec() } else { Vec::new() };
        Self {
            bytes: if text.varies() { Vec::new() } else { text.constant() },
            pieces: pieces(text),
            body: pieces(body),
            places: Vec::new(),
        }
    }

    /// Returns whether the text differs from request to request.
    pub(super) fn varies(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Returns the latest rendering.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Renders the text with the values of a request. While values keep their widths, they are
    /// replaced in place.
    #[inline]
    pub(super) fn render(&mut self, number: u32, values: &mut Values) {
        if self.varies() {
            self.replace(number, values);
        }
    }

    #[inline(never)]
    fn replace(&mut self, number: u32, values: &mut Values) {
        if self.places.is_empty() {
            return self.rebuild(number, values);
        }
        for (field, place) in &self.places {
            let value = values.value(*field, number);
            match self.bytes.get_mut(place.clone()) {
                Some(old) if old.len() == value.len() => copy(old, value),
                _ => return self.rebuild(number, values),
            }
        }
    }

    /// Renders the whole text again.
    #[inline(never)]
    fn rebuild(&mut self, number: u32, values: &mut Values) {
        self.bytes.clear();
        self.places.clear();
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
                Piece::Field(field) => {
                    let start = self.bytes.len();
                    self.bytes.extend_from_slice(values.value(*field, number));
                    self.places.push((*field, start..self.bytes.len()));
                }
                Piece::BodyLength => {
                    let length = self.body.iter().map(|piece| match piece {
                        Piece::Bytes(bytes) => bytes.len(),
                        Piece::Field(field) => values.value(*field, number).len(),
                        Piece::BodyLength => 0,
                    });
                    let length = length.sum::<usize>();
                    self.bytes.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
                }
            }
        }
    }
}

/// Copies a value over another of the same length. Most values are so short that calling the
/// library's copy costs more than copying them.
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
    use crate::plan::{Endpoint, Field, OrderEntry, Plan, Request, Target, ValueSource, fill};

    fn plan(requests: Vec<Request>, fields: Vec<Field>, threads: usize) -> Plan {
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 80).into());
        let mut plan = Plan::new(Target::plain(endpoint), requests[0].clone());
        (plan.requests, plan.fields, plan.shape.threads) = (requests, fields, threads);
        plan
    }

    fn counter(name: &str, from: u64) -> Field {
        Field::new(name, ValueSource::Counter { from })
    }

    fn post(path: &str, body: &str, fields: &[Field]) -> Request {
        Request::with_fields("POST", path, "h", &[], body.as_bytes(), fields).unwrap()
    }

    fn renderings(plan: &Plan, order: &[u32], worker: usize, numbers: Range<u32>) -> Vec<String> {
        let mut values = Values::new(plan, order, worker);
        let prepare = |r: &Request| Rendered::new(&r.http1(false), &r.body);
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
        // Each rendering depends only on its number.
        assert_eq!(renderings(&plan, &[0], 0, 1..2), expected[1..2]);
    }

    #[test]
    fn a_counter_counts_only_the_requests_that_use_it() {
        let fields = [counter("a", 0), counter("b", 0)];
        let requests = vec![post("/${a}", "", &fields), post("/${a}/${b}", "", &fields)];
        let mut plan = plan(requests, fields.to_vec(), 1);
        let paths = |worker: usize, plan: &Plan| -> Vec<String> {
            let all = renderings(plan, &[0, 1, 0], worker, 0..6);
            all.iter().map(|text| text.split(' ').nth(1).unwrap().to_owned()).collect()
        };
        assert_eq!(paths(0, &plan), ["/0", "/1/0", "/2", "/3", "/4/1", "/5"]);
        // Two workers share the sequence.
        plan.shape.threads = 2;
        assert_eq!(paths(0, &plan), ["/0", "/2/0", "/4", "/6", "/8/2", "/10"]);
        assert_eq!(paths(1, &plan), ["/1", "/3/1", "/5", "/7", "/9/3", "/11"]);
    }

    /// Regression: in a recorded order, all servers got the same UUIDs, which were not the UUIDs in
    /// the expected responses.
    #[test]
    fn uuids_of_a_recorded_order_differ_from_server_to_server() {
        let fields = [Field::new("id", ValueSource::Uuid)];
        let mut plan = plan(vec![post("/${id}", "", &fields)], fields.to_vec(), 1);
        plan.order = Some(vec![OrderEntry { request: 0, value: 7 }].into());
        let path = |plan: &Plan| {
            let text = renderings(plan, &[0], 0, 7..8).remove(0);
            text.split(' ').nth(1).unwrap().to_owned()
        };
        let mut paths = Vec::new();
        for unique in 0..3 {
            plan.unique = unique;
            let expected = fill(b"/${id}", &plan.fields, plan.seed, unique, 7);
            assert_eq!(path(&plan).as_bytes(), expected);
            paths.push(path(&plan));
        }
        assert!(paths[0] != paths[1] && paths[1] != paths[2], "{paths:?}");
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
