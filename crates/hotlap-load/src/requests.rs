//! The requests of a plan, ready to send: their bytes, the order in which they are sent, and the
//! templates of their responses. Each worker has its own copy.

mod prepared;
mod values;

use crate::expected::ResponseTemplate;
use crate::http2::BlockForm;
use crate::plan::{OrderEntry, Plan, Protocol, Reuse, Shared, Text};
use prepared::Http2Requests;
pub(crate) use prepared::PreparedRequest;
use values::Values;

/// A position in a worker's sequence of requests. The position determines everything about the
/// request. It is a single number, because it is copied with each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Turn(u64);

impl Turn {
    fn new(request: u32, number: u32) -> Self {
        Self(u64::from(number) << 32 | u64::from(request))
    }

    /// Returns the index of the request.
    #[inline]
    pub(crate) fn request(self) -> usize {
        self.0 as u32 as usize
    }

    /// Returns the number of the request in the worker's sequence. If the plan has an order,
    /// returns the number of the request's values.
    #[inline]
    fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// How to find the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    /// There is only one request, and it never varies.
    Fixed,
    /// The next request is identified by its position in the order.
    Positions,
    /// The next request is identified by a number that may exceed the positions, or it is an entry
    /// in the plan's order.
    Numbers,
}

/// All requests of a worker, and their order.
#[derive(Debug, Clone)]
pub(crate) struct RequestMix {
    requests: Vec<PreparedRequest>,
    /// Indices of `requests`, sent in this order repeatedly. The list is as long as the pool,
    /// unless the pool is empty.
    order: Vec<u32>,
    /// The position in `order` of the next request.
    position: usize,
    /// The number of the next request, which may exceed the positions in `order`.
    number: u32,
    /// The order of the plan, which replaces the field `order`. `None` if the weights decide.
    recorded: Option<Recorded>,
    sequence: Sequence,
    /// Whether any request has fields.
    varies: bool,
    pool: Pool,
    /// The same requests for HTTP/2, if the plan uses HTTP/2.
    http2: Option<Box<Http2Requests>>,
    values: Values,
    /// The body of one response in this many is checked.
    check_one_in: u32,
    /// The number of bodies skipped since the last checked body.
    skipped: u32,
}

impl RequestMix {
    /// Creates the mix of one worker. The workers start at positions spread over the order.
    pub(crate) fn new(plan: &Plan, worker: usize) -> Self {
        let mut order = order(&plan.requests.iter().map(|r| r.weight).collect::<Vec<_>>());
        let position = plan.worker(worker) * order.len() / plan.workers();
        let closes = plan.shape.reuse == Reuse::Close && plan.target.protocol == Protocol::Http1;
        let mut requests: Vec<PreparedRequest> =
            plan.requests.iter().map(|r| PreparedRequest::new(r, closes)).collect();
        let mut values = Values::new(plan, &order, worker);
        let varies = plan.requests.iter().flat_map(|r| r.texts()).any(Text::varies);
        let pool = Pool::new(plan, &order, &mut requests, &mut values);
        if !pool.0.is_empty() {
            order = order.iter().copied().cycle().take(pool.0.len()).collect();
        }
        let sequence = match plan.order.is_some() || (varies && pool.0.is_empty()) {
            true => Sequence::Numbers,
            false if order.len() == 1 => Sequence::Fixed,
            false => Sequence::Positions,
        };
        Self {
            recorded: plan.order.as_ref().map(|order| Recorded::new(order, plan, worker)),
            sequence,
            varies,
            number: position as u32,
            requests,
            order,
            position,
            pool,
            http2: (plan.target.protocol == Protocol::Http2)
                .then(|| Box::new(Http2Requests::new(&plan.requests, plan.target.tls.is_some()))),
            values,
            check_one_in: plan.check_one_in.max(1),
            skipped: 0,
        }
    }

    /// Returns the request to send next.
    #[inline]
    pub(crate) fn next(&mut self) -> Turn {
        match self.sequence {
            Sequence::Fixed => Turn::default(),
            Sequence::Positions => {
                let position = self.position;
                Turn::new(self.next_request(), position as u32)
            }
            Sequence::Numbers => self.next_number(),
        }
    }

    /// Returns the index of the next request in the order.
    #[inline]
    fn next_request(&mut self) -> u32 {
        let position = self.position;
        self.position = if position + 1 == self.order.len() { 0 } else { position + 1 };
        self.order[position]
    }

    /// Returns the next request by number. Inlining this function would cost a fixed request 2%.
    #[inline(never)]
    fn next_number(&mut self) -> Turn {
        if let Some(recorded) = &mut self.recorded {
            let entry = recorded.next();
            return Turn::new(entry.request, entry.value);
        }
        let number = self.number;
        // Numbers start again only at the end of an order.
        let end = u32::MAX - u32::MAX % self.order.len() as u32;
        self.number = if number + 1 == end { 0 } else { number + 1 };
        Turn::new(self.next_request(), number)
    }

    /// Returns the indices of the requests that are sent next, in order and without end.
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = usize> {
        let entries = |mut recorded: Recorded| {
            std::iter::repeat_with(move || recorded.next().request as usize)
        };
        let by_weight = self.order.iter().cycle().skip(self.position);
        let recorded = self.recorded.clone().into_iter().flat_map(entries);
        recorded.chain(by_weight.map(|request| *request as usize))
    }

    /// Returns the bytes of a request.
    #[inline]
    pub(crate) fn bytes(&mut self, turn: Turn) -> &[u8] {
        if !self.varies {
            return self.requests[turn.request()].sent.bytes();
        }
        // The pool is as long as the order, so a position is also an index of the pool.
        match self.sequence {
            Sequence::Positions => &self.pool.0[turn.number() as usize],
            _ => self.rendered_bytes(turn),
        }
    }

    #[inline(never)]
    fn rendered_bytes(&mut self, turn: Turn) -> &[u8] {
        let sent = &mut self.requests[turn.request()].sent;
        sent.render(turn.number(), &mut self.values);
        sent.bytes()
    }

    /// Returns the header block in this form, and the body, of a request for HTTP/2.
    #[inline]
    pub(crate) fn http2(&mut self, turn: Turn, form: BlockForm) -> (&[u8], &[u8]) {
        let Some(http2) = &mut self.http2 else { return (&[], &[]) };
        http2.get(turn, form, &mut self.values)
    }

    /// Returns the size of the fields that all requests share in a server's header table (HTTP/2).
    pub(crate) fn table_size(&self) -> u32 {
        self.http2.as_ref().map_or(0, |http2| http2.table_size())
    }

    /// Returns whether a request is a HEAD.
    #[inline]
    pub(crate) fn is_head(&self, turn: Turn) -> bool {
        self.requests[turn.request()].is_head
    }

    /// Returns the template of a request that [`RequestMix::next`] returned. The template matches
    /// nothing if the expected body varies.
    #[inline]
    pub(crate) fn template(&mut self, turn: Turn) -> &mut ResponseTemplate {
        &mut self.requests[turn.request()].template
    }

    /// Returns a request that [`RequestMix::next`] returned, with the expected response.
    #[inline]
    pub(crate) fn get(&mut self, turn: Turn) -> &mut PreparedRequest {
        let prepared = &mut self.requests[turn.request()];
        if prepared.body.is_some() {
            prepared.expect_body(turn.number(), &mut self.values);
        }
        prepared
    }

    /// Ends the use of the expected body of a request, after the last call of [`RequestMix::get`].
    pub(crate) fn done(&mut self, turn: Turn) {
        let prepared = &mut self.requests[turn.request()];
        if prepared.body.is_some() {
            prepared.template.expect_none();
        }
    }

    /// Returns whether the body of the response that has just begun need not be checked.
    pub(crate) fn skips_next_body(&mut self) -> bool {
        self.skipped += 1;
        if self.skipped >= self.check_one_in {
            self.skipped = 0;
        }
        self.skipped != 0
    }

    /// Returns whether some bodies are not checked.
    pub(crate) fn skips_bodies(&self) -> bool {
        self.check_one_in > 1
    }
}

/// The entries of a recorded order that one worker sends. After the last entry, the worker starts
/// again from the first. Each of n workers sends every n-th entry, so that together they send the
/// order.
#[derive(Debug, Clone)]
struct Recorded {
    entries: Shared<OrderEntry>,
    /// The position of the next entry.
    next: usize,
    /// The distance from each entry of this worker to the next.
    step: usize,
}

impl Recorded {
    /// Creates the share of worker `worker` in the entries of a plan.
    fn new(entries: &Shared<OrderEntry>, plan: &Plan, worker: usize) -> Self {
        let count = entries.len().max(1);
        let first = (plan.first_value + plan.worker(worker) as u64) % count as u64;
        Self { entries: entries.clone(), next: first as usize, step: plan.workers() % count }
    }

    /// Takes the next entry.
    #[inline]
    fn next(&mut self) -> OrderEntry {
        let entry = self.entries[self.next];
        self.next += self.step;
        if self.next >= self.entries.len() {
            self.next -= self.entries.len();
        }
        entry
    }
}

/// The bytes of a worker's whole sequence of requests, rendered in advance. Sending a request from
/// the pool costs almost nothing, however many fields the request has.
#[derive(Debug, Clone, Default)]
struct Pool(Vec<Box<[u8]>>);

/// The maximum number of requests in a pool. At 100,000 requests/s, the requests repeat after about
/// 0.7 s. A list with a quarter as many values is still sent several times in that time.
const POOL: usize = 65_536;

/// The maximum number of bytes of a pool in each thread.
const POOL_BYTES: usize = 16 << 20;

impl Pool {
    /// Renders a pool. The pool stays empty if nothing varies, if the plan has an order or uses
    /// HTTP/2, or if the requests exceed a limit. The pool also stays empty if values may not
    /// repeat, or if a field has more than [`POOL`] / 4 values. Otherwise, many of the field's
    /// values would never be sent.
    fn new(
        plan: &Plan,
        order: &[u32],
        requests: &mut [PreparedRequest],
        values: &mut Values,
    ) -> Self {
        let mut pool = Self::default();
        let varies = requests.iter().any(|r| r.sent.varies());
        let count = POOL - POOL % order.len().clamp(1, POOL);
        let distinct = plan.fields.iter().map(|field| field.source.distinct());
        let is_small = |distinct: Option<u64>| distinct.is_some_and(|d| d <= POOL as u64 / 4);
        if !varies
            || plan.order.is_some()
            || plan.target.protocol == Protocol::Http2
            || order.len() > POOL
            || !distinct.into_iter().all(is_small)
        {
            return pool;
        }
        let mut bytes = 0;
        for number in 0..count {
            let request = &mut requests[order[number % order.len()] as usize];
            request.sent.render(number as u32, values);
            let sent = request.sent.bytes();
            bytes += sent.len();
            if bytes > POOL_BYTES {
                return Self::default();
            }
            pool.0.push(sent.into());
        }
        pool
    }
}

/// Returns each request as often as its weight, spread evenly. The j-th of w copies is (j + ½) / w
/// of the way through the order.
fn order(weights: &[u32]) -> Vec<u32> {
    let mut places: Vec<(f64, u32)> = Vec::new();
    for (request, weight) in (0..).zip(weights) {
        let weight = (*weight).max(1);
        places.extend((0..weight).map(|j| ((f64::from(j) + 0.5) / f64::from(weight), request)));
    }
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.into_iter().map(|(_, request)| request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Endpoint, ExpectedBody, Field, Request, Target, ValueSource};
    use values::Rendered;

    #[test]
    fn requests_are_spread_evenly_by_their_weights() {
        assert_eq!(order(&[1]), [0]);
        assert_eq!(order(&[3, 1]), [0, 0, 1, 0]);
        assert_eq!(order(&[1, 1, 2]), [2, 0, 1, 2]);
    }

    fn plan(threads: usize) -> Plan {
        let fields = vec![Field::new("id", ValueSource::Counter { from: 8 })];
        let build = |path: &str| Request::with_fields("GET", path, "h", &[], b"", &fields).unwrap();
        let mut varying = build("/${id}");
        varying.expect.body = ExpectedBody::Fields(Text::parse(b"<${id}>", &fields).unwrap());
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 80).into());
        let mut plan = Plan::new(Target::plain(endpoint), build("/"));
        plan.requests.push(varying);
        (plan.fields, plan.shape.threads) = (fields, threads);
        plan
    }

    fn with_source(source: ValueSource) -> Plan {
        let mut plan = plan(1);
        plan.fields[0].source = source;
        plan
    }

    #[test]
    fn a_pool_has_the_bytes_that_would_be_rendered() {
        let values = (0..10).map(|n| format!("v{n}")).collect::<Vec<_>>().into();
        let plan = with_source(ValueSource::Choice { values, random: true });
        let mut mix = RequestMix::new(&plan, 0);
        assert_eq!(mix.pool.0.len(), POOL);
        let request = &plan.requests[1];
        let mut rendered = Rendered::new(&request.http1(false), &request.body);
        for _ in 0..100 {
            let turn = mix.next();
            if turn.request() == 1 {
                rendered.render(turn.number(), &mut mix.values.clone());
                assert_eq!(mix.bytes(turn), rendered.bytes());
            }
        }
        mix.position = POOL - 1;
        let last = mix.next();
        assert!(!mix.bytes(last).is_empty());
        assert_eq!(mix.next().number(), 0);
    }

    /// If such values were pooled, a cache would see the same few values again and again.
    #[test]
    fn values_that_may_not_repeat_are_not_pooled() {
        let is_pooled = |source| !RequestMix::new(&with_source(source), 0).pool.0.is_empty();
        assert!(is_pooled(ValueSource::Integer { min: 1, max: 10_000 }));
        assert!(!is_pooled(ValueSource::Integer { min: 1, max: 100_000 }));
        assert!(!is_pooled(ValueSource::Counter { from: 0 }));
        assert!(!is_pooled(ValueSource::Uuid));
        assert!(is_pooled(ValueSource::Text { length: 16 }));
        assert!(!is_pooled(ValueSource::Text { length: 4_096 }));
    }

    /// A response may arrive long after other requests were sent, in any order of connections.
    #[test]
    fn bytes_and_expected_body_follow_from_the_turn() {
        let mut mix = RequestMix::new(&plan(1), 0);
        let turns: Vec<Turn> = (0..8).map(|_| mix.next()).collect();
        for turn in turns.iter().rev().chain(&turns) {
            let text = String::from_utf8(mix.bytes(*turn).to_vec()).unwrap();
            let body = mix.get(*turn).expect.body.clone();
            let id = 8 + turn.number() / 2;
            let (path, expected) = match turn.request() {
                0 => ("/".to_owned(), ExpectedBody::Any),
                _ => (format!("/{id}"), exactly(&format!("<{id}>"))),
            };
            assert_eq!(text, format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
            assert_eq!(body, expected);
        }
    }

    fn exactly(body: &str) -> ExpectedBody {
        ExpectedBody::Bytes { bytes: body.as_bytes().to_vec().into(), varies: Vec::new() }
    }

    #[test]
    fn places_move_with_the_header_of_a_connection_that_closes() {
        let mut plan = plan(1);
        plan.shape.reuse = Reuse::Close;
        let mut mix = RequestMix::new(&plan, 0);
        let turn = std::iter::repeat_with(|| mix.next()).find(|turn| turn.request() == 1).unwrap();
        let expected = b"GET /8 HTTP/1.1\r\nConnection: close\r\nHost: h\r\n\r\n";
        assert_eq!(mix.bytes(turn), expected);
    }

    /// Returns the plan above, with the order 0 (10), 1 (11), 1 (7). Each entry is a request and
    /// the number of its value.
    fn recorded(threads: usize) -> Plan {
        let entry = |(request, value)| OrderEntry { request, value };
        let order: Vec<OrderEntry> = [(0, 10), (1, 11), (1, 7)].map(entry).into();
        Plan { order: Some(order.into()), first_value: 0, ..plan(threads) }
    }

    fn paths(mix: &mut RequestMix, count: usize) -> Vec<String> {
        let path = |mix: &mut RequestMix| {
            let turn = mix.next();
            let text = String::from_utf8(mix.bytes(turn).to_vec()).unwrap();
            text.split(' ').nth(1).unwrap().to_owned()
        };
        (0..count).map(|_| path(mix)).collect()
    }

    #[test]
    fn an_order_names_requests_and_values() {
        let mut mix = RequestMix::new(&recorded(1), 0);
        assert_eq!(paths(&mut mix, 5), ["/", "/19", "/15", "/", "/19"]);
        let mut later = RequestMix::new(&Plan { first_value: 5, ..recorded(1) }, 0);
        assert_eq!(paths(&mut later, 2), ["/15", "/"]);
    }

    #[test]
    fn threads_share_an_order() {
        let share = |worker| paths(&mut RequestMix::new(&recorded(2), worker), 3);
        assert_eq!(
            (share(0), share(1)),
            (
                ["/", "/15", "/19"].map(str::to_owned).into(),
                ["/19", "/", "/15"].map(str::to_owned).into(),
            )
        );
        // There are more threads than entries.
        let share = |worker| paths(&mut RequestMix::new(&recorded(4), worker), 2);
        assert_eq!(share(3), ["/", "/19"]);
    }

    #[test]
    fn the_sequence_starts_again_at_the_end_of_an_order() {
        let mut mix = RequestMix::new(&plan(1), 0);
        let last = u32::MAX - u32::MAX % 2 - 1;
        (mix.number, mix.position) = (last, 1);
        assert_eq!(mix.next().number(), last);
        assert_eq!((mix.next().number(), mix.position), (0, 1));
    }

    /// Regression: requests of a log that were due but not sent were counted for other requests.
    #[test]
    fn upcoming_requests_are_those_that_are_sent_next() {
        for plan in [recorded(1), recorded(2), plan(2)] {
            let mut mix = RequestMix::new(&plan, 1 % plan.shape.threads);
            mix.next();
            let upcoming: Vec<usize> = mix.upcoming().take(7).collect();
            let sent: Vec<usize> = (0..7).map(|_| mix.next().request()).collect();
            assert_eq!(upcoming, sent);
        }
    }
}
