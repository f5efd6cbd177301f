//! The formats for machines: JSON, CSV, and HdrHistogram's own formats.

use std::time::Duration;

use hotlap_agent::{Contributions, Sampled};
use hotlap_load::plan::{ExpectedBody, Pace, Plan};
use hotlap_stats::{Censored, Concurrency, Histogram, Percentile, Survival, interval_log};
use serde_json::json;

use crate::analysis::latency::known;
use crate::cmd::load::loaded::Loaded;
use crate::redact;
use crate::render::csv;
use crate::report::OpenLoopView;
use crate::text::visible_json;

/// Formats the whole outcome and the main figures as JSON. Secrets in requests and in the first
/// wrong response are redacted.
pub fn json(loaded: &Loaded) -> String {
    let outcome = &loaded.outcome;
    let latency = |times: Times| (!times.survival.is_empty()).then(|| times.json());
    let open_loop = outcome.open_loop().map(|found| OpenLoopView::of(found, |value| value));
    let [service, response, lag, connect, handshake] = Times::all(loaded);
    let (mut plan, mut outcome) = (loaded.plan.clone(), outcome.clone());
    for request in &mut plan.requests {
        for (name, value) in &mut request.headers {
            match redact::is_secret(name) {
                true => *value = redact::MARK.into(),
                false => value.replace(redact::bytes_of),
            }
        }
        request.path.replace(redact::bytes_of);
        request.body.replace(redact::bytes_of);
        if let ExpectedBody::Bytes { bytes, varies } = &mut request.expect.body {
            let redacted = redact::bytes_of(bytes);
            if redacted[..] != **bytes {
                // The varying ranges referred to the original body.
                (*bytes, *varies) = (redacted.into(), Vec::new());
            }
        }
    }
    if let Some(wrong) = &mut outcome.first_wrong {
        wrong.first_bytes = redact::message(&wrong.first_bytes);
        wrong.request = redact::message(&wrong.request);
    }
    let by_request = loaded.by_request().into_iter().map(|own| {
        let (answered, survival) = (&own.latency, own.survival());
        let times = Times { name: "latency", answered, survival, concurrency: own.concurrency };
        json!({
            "name": own.name,
            "responses": own.outcome.responses,
            "errors": own.outcome.failures,
            "latency": latency(times),
        })
    });
    let by_request: Vec<serde_json::Value> = by_request.collect();
    let plan = plan_json(plan);
    let value = json!({
        "url": loaded.url,
        "figures": {
            "requests_per_s": loaded.rate(),
            "responses": outcome.responses,
            "errors": outcome.failures.total(),
            "late": loaded.is_late(),
            "open_loop": open_loop,
            "service": latency(service),
            "response": latency(response),
            "lag": latency(lag),
            "connect": latency(connect),
            "handshake": latency(handshake),
            "by_request": by_request,
        },
        "generators": loaded.generators.as_ref().map(|own| generators(loaded, own)),
        "plan": plan,
        "outcome": outcome,
    });
    let text = serde_json::to_string(&value).expect("an outcome is plain data") + "\n";
    visible_json(&redact::text(&text))
}

/// Returns what each generator contributed.
fn generators(loaded: &Loaded, contributions: &Contributions) -> serde_json::Value {
    let sampler = loaded.sampled().map(|(sampled, _)| {
        json!({
            "generator": sampled.generator,
            "latency": Times::sampled(loaded).map(|times| times.json()),
        })
    });
    let invalid: Vec<String> = contributions.invalid.iter().map(ToString::to_string).collect();
    json!({
        "overlap": contributions.overlap,
        "invalid": invalid,
        "each": contributions.generators,
        "sampler": sampler,
    })
}

/// Returns a plan as JSON. For an access log, the number of requests and the rate of a replay with
/// times take the place of the paths. The paths may contain secrets, and there may be millions of
/// them.
fn plan_json(mut plan: Plan) -> serde_json::Value {
    const PLAIN: &str = "a plan is plain data";
    let Some(order) = plan.order.take() else { return serde_json::to_value(&plan).expect(PLAIN) };
    plan.fields = Vec::new();
    let recorded = matches!(plan.pace, Pace::Recorded(_)).then(|| plan.pace.rate());
    if recorded.is_some() {
        plan.pace = Pace::Closed;
    }
    let mut value = serde_json::to_value(&plan).expect(PLAIN);
    value["order"] = json!({ "entries": order.len() });
    if let Some(rate) = recorded {
        value["pace"] = json!({ "recorded": { "rate": rate } });
    }
    value
}

/// Formats one line per figure, with its name, value and unit.
pub fn csv(loaded: &Loaded) -> String {
    let outcome = &loaded.outcome;
    let mut lines: Vec<[String; 3]> = vec![["figure", "value", "unit"].map(str::to_owned)];
    let mut put = |name: &str, value: f64, unit: &str| {
        lines.push([name.to_owned(), value.to_string(), unit.to_owned()]);
    };
    put("requests_per_s", loaded.rate(), "1/s");
    put("responses", outcome.responses as f64, "");
    put("errors", outcome.failures.total() as f64, "");
    put("window", outcome.window_ns as f64 / 1e9, "s");
    put("received", outcome.bytes.received as f64, "B");
    let yes = |is: bool| f64::from(u8::from(is));
    if let Some(o) = outcome.open_loop() {
        put("due", o.due as f64, "");
        put("offered_per_s", o.offered_per_s, "1/s");
        put("behind", yes(o.is_behind), "");
        put("waiting", o.waiting as f64, "");
        put("queue_growth_per_s", o.growth_per_s, "1/s");
        put("oldest_waiting", o.oldest_ns as f64 / 1e6, "ms");
        put("late", yes(loaded.is_late()), "");
    }
    for times in Times::all(loaded).into_iter().chain(Times::sampled(loaded)) {
        let name = times.name;
        if times.survival.is_empty() {
            continue;
        }
        if !times.answered.is_empty() {
            put(&format!("{name}_mean"), times.answered.mean() / 1e6, "ms");
            put(&format!("{name}_stdev"), times.answered.stdev() / 1e6, "ms");
        }
        let labels = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];
        let found = labels.map(|(label, q)| (label, known(&times.survival, q, times.concurrency)));
        for (label, found) in found.into_iter().chain([("max", Some(times.survival.longest()))]) {
            let Some(found) = found else { continue };
            put(&format!("{name}_{label}"), found.ns as f64 / 1e6, "ms");
            if found.is_lower_bound {
                put(&format!("{name}_{label}_is_lower_bound"), 1.0, "");
            }
        }
    }
    if let Some(Contributions { generators, overlap, invalid, .. }) = &loaded.generators {
        put("valid", yes(invalid.is_empty()), "");
        put("overlap", *overlap, "");
        for (number, own) in (1..).zip(generators) {
            put(&format!("responses (generator {number})"), own.responses as f64, "");
            put(&format!("errors (generator {number})"), own.failures as f64, "");
        }
    }
    for own in loaded.by_request() {
        let survival = own.survival();
        let mut put = |figure: &str, value: f64, unit: &str| {
            lines.push([format!("{figure} ({})", own.name), value.to_string(), unit.to_owned()]);
        };
        put("responses", own.outcome.responses as f64, "");
        put("errors", own.outcome.failures as f64, "");
        for (label, q) in [("p50", 0.5), ("p99", 0.99)] {
            if let Some(found) = known(&survival, q, own.concurrency) {
                put(label, found.ns as f64 / 1e6, "ms");
            }
        }
    }
    lines.into_iter().map(|line| csv::line(line.into_iter())).collect()
}

/// The times of one kind, for machine-readable formats.
struct Times<'a> {
    name: &'static str,
    answered: &'a Histogram,
    survival: Survival,
    concurrency: Concurrency,
}

impl<'a> Times<'a> {
    fn all(loaded: &'a Loaded) -> [Self; 5] {
        let (outcome, whole) = (&loaded.outcome, Censored::default());
        let of = |name, answered, censored, concurrency| Self {
            name,
            answered,
            survival: Survival::new(answered, censored),
            concurrency,
        };
        let concurrency = loaded.concurrency();
        [
            of("service", &outcome.service_time, &outcome.service_time_censored, concurrency),
            of("response", &outcome.response_time, &outcome.response_time_censored, concurrency),
            of("lag", &outcome.lag, &whole, Concurrency::ONE),
            of("connect", &outcome.connect_time, &whole, Concurrency::ONE),
            of("handshake", &outcome.handshake_time, &whole, Concurrency::ONE),
        ]
    }

    /// The times of the requests that were sampled during the load, from when each was due.
    fn sampled(loaded: &'a Loaded) -> Option<Self> {
        let (Sampled { outcome, .. }, concurrency) = loaded.sampled()?;
        let answered = &outcome.response_time;
        let survival = Survival::new(answered, &outcome.response_time_censored);
        Some(Self { name: "sampled", answered, survival, concurrency })
    }

    fn json(&self) -> serde_json::Value {
        let Self { answered, survival, concurrency, .. } = self;
        let quantile = |q| known(survival, q, *concurrency);
        let found = [
            ("p50", quantile(0.5)),
            ("p90", quantile(0.9)),
            ("p99", quantile(0.99)),
            ("p999", quantile(0.999)),
            ("p9999", quantile(0.9999)),
            ("max", Some(survival.longest())),
        ];
        let moment = |ns: f64| (!answered.is_empty()).then_some(ns / 1e6);
        let is_bound = |(name, found): &(&'static str, Option<Percentile>)| {
            found.is_some_and(|f| f.is_lower_bound).then_some(*name)
        };
        let mut value = json!({
            "count": answered.len(),
            "unanswered": survival.len() - answered.len(),
            "mean_ms": moment(answered.mean()),
            "stdev_ms": moment(answered.stdev()),
            "lower_bounds": found.iter().filter_map(is_bound).collect::<Vec<_>>(),
        });
        for (name, found) in found {
            value[format!("{name}_ms")] = json!(found.map(|f| f.ns as f64 / 1e6));
        }
        value
    }
}

/// HdrHistogram's percentile distribution, in milliseconds. In an open loop, it contains response
/// times, otherwise service times.
pub fn hgrm(loaded: &Loaded) -> String {
    loaded.user_times().to_hgrm(1e6)
}

/// HdrHistogram's compressed interval log. The histogram without a tag has the same times as
/// [`hgrm`]. In an open loop, a tagged histogram has the service times.
pub fn hlog(loaded: &Loaded) -> String {
    let outcome = &loaded.outcome;
    let length = Duration::from_nanos(outcome.window_ns);
    let service = [("service", &outcome.service_time)];
    let tagged = if outcome.response_time.is_empty() { &[] } else { &service[..] };
    interval_log(loaded.opened, length, loaded.user_times(), tagged)
}
