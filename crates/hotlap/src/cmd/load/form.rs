//! The outcome of one load in its forms: for people, as wrk prints it, JSON, CSV, hgrm, hlog.

use std::time::Duration;

use hotlap_bench::validity;
use hotlap_load::plan::{ExpectedBody, Pace, Plan, Reuse, Stop};
use hotlap_load::{Failure, OpenLoop, Outcome, Phase};
use hotlap_stats::{Censored, Concurrency, Histogram, Percentile, Survival, interval_log};
use serde_json::json;

use super::Loaded;
use crate::analysis::latency::known;
use crate::redact;
use crate::render::csv;
use crate::report::figure::percentile;
use crate::text::number::{count, grouped, plural, rate, time};
use crate::text::{visible, visible_json, wrap};

/// For people, short.
#[must_use]
pub fn human(loaded: &Loaded, width: usize) -> String {
    let (plan, outcome) = (&loaded.plan, &loaded.outcome);
    let mut out = format!("\n  {}\n  {}\n\n", visible(&loaded.url), shape(plan, outcome));
    let failures = outcome.failures.total();
    out += &format!(
        "  requests/s  {:<12}{} right answers, {} errors\n",
        rate(outcome.rate()),
        count(outcome.responses),
        count(failures)
    );
    let up = outcome.connections;
    if up.established < up.requested {
        let why = outcome.first_connect_error.as_deref().unwrap_or("closed by the server");
        let (some, all) = (count(up.established), count(up.requested));
        out += &format!("  connected   {some} of {all}: {why}\n");
    }
    let concurrency = concurrency(plan);
    let service = Survival::new(&outcome.service_time, &outcome.service_time_censored);
    out += &format!("  service     {}\n", times(&service, concurrency));
    if let Some(open_loop) = outcome.open_loop() {
        let response = Survival::new(&outcome.response_time, &outcome.response_time_censored);
        out += &format!("  response    {}\n", times(&response, concurrency));
        out += &format!("  sent late   {}\n", plain(&outcome.lag));
        out += &offered(&open_loop);
    }
    if !outcome.handshake_time.is_empty() {
        out += &format!("  connect     {}\n", plain(&outcome.connect_time));
        let handshakes = count(outcome.handshake_time.len());
        out += &format!("  handshake   {}, {handshakes} of them\n", plain(&outcome.handshake_time));
    }
    out += &format!(
        "  read        {} MB/s\n",
        grouped(outcome.bytes.received as f64 * 1e3 / outcome.window_ns.max(1) as f64, 1)
    );
    let busiest = outcome.threads.iter().map(|t| t.busy()).fold(0.0, f64::max) * 100.0;
    let cpu: u64 = outcome.threads.iter().map(|t| t.cpu_ns).sum();
    let each = cpu as f64 / 1e3 / (outcome.responses + failures).max(1) as f64;
    out += &format!("  generator   {busiest:.0} % busy, {each:.1} µs CPU a request\n");
    for failure in &outcome.failures.0 {
        let word = |v: serde_json::Value| v.as_str().unwrap_or_default().to_owned();
        out += &format!(
            "  error       {} in {}: {}\n",
            word(json!(failure.failure)),
            word(json!(failure.phase)),
            count(failure.count)
        );
    }
    if loaded.latency {
        let seen = seen_by_users(outcome);
        out.push('\n');
        for q in [0.5, 0.75, 0.9, 0.99, 0.999, 0.9999] {
            let value = known(&seen, q, concurrency);
            let value = value.map_or_else(too_few, |found| percentile(found).text);
            out += &format!("  {:>7} %  {value}\n", grouped_share(q));
        }
    }
    if plan.pace != Pace::Closed {
        out.push('\n');
        out += &wrap(
            "Response time counts from the moment a request was due, service time from its \
             sending: what waits for a busy server is in the first only.",
            2,
            width,
        );
        if let Some(behind) = outcome.open_loop().filter(|o| o.is_behind) {
            out.push('\n');
            out += &wrap(
                &format!(
                    "RATE NOT REACHED: of {} requests/s offered, {} were answered, and the queue \
                     grew. Response times depend on how long this runs; those with ≥ are lower \
                     bounds.",
                    rate(behind.offered_per_s),
                    rate(behind.reached_per_s),
                ),
                2,
                width,
            );
        }
        if is_late(loaded) {
            out.push('\n');
            out += &wrap(
                "LATE: more than 1 of 100 requests were sent too long after they were due, by the \
                 generator's own fault, so these times are not the server's. Give it more threads \
                 (-t), cores of its own (--generator-cpus), or a lower rate.",
                2,
                width,
            );
        }
    } else if busiest >= 90.0 {
        out.push('\n');
        out += &wrap(
            "The generator was the limit: the server may be faster than this. Give it more \
             threads (-t).",
            2,
            width,
        );
    }
    out
}

/// Whether requests were sent too late for their times to be the server's: the rule by which a lap
/// of `hotlap run` is marked.
fn is_late(loaded: &Loaded) -> bool {
    let (plan, lag) = (&loaded.plan, &loaded.outcome.lag);
    match plan.pace {
        Pace::Closed => false,
        Pace::Constant { rate } | Pace::Poisson { rate, .. } => {
            validity::is_late(lag, plan.connections, rate)
        }
    }
}

fn too_few() -> String {
    "too few samples".to_owned()
}

fn grouped_share(q: f64) -> String {
    let percent = format!("{:.2}", q * 100.0);
    percent.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn shape(plan: &Plan, outcome: &Outcome) -> String {
    let mut parts = vec![plural(plan.connections, "connection")];
    parts.push(match plan.reuse {
        Reuse::KeepAlive => "keep-alive".to_owned(),
        Reuse::Close => "a new one for each request".to_owned(),
    });
    if plan.pipeline > 1 {
        parts.push(format!("{} in flight on each", plan.pipeline));
    }
    let plural = if plan.threads == 1 { "" } else { "s" };
    parts.push(format!("{} thread{plural} ({})", plan.threads, outcome.backend));
    match plan.pace {
        Pace::Closed => {}
        Pace::Constant { rate: r } => parts.push(format!("{} requests/s", rate(r))),
        Pace::Poisson { rate: r, .. } => parts.push(format!("{} requests/s, Poisson", rate(r))),
    }
    parts.push(format!("{:.1} s", outcome.window_ns as f64 / 1e9));
    if plan.check_one_in > 1 {
        parts.push(format!("one body in {} checked", plan.check_one_in));
    }
    parts.join(", ")
}

fn concurrency(plan: &Plan) -> Concurrency {
    let rate = match plan.pace {
        Pace::Closed => None,
        Pace::Constant { rate } | Pace::Poisson { rate, .. } => Some(rate),
    };
    Concurrency { in_flight: (plan.connections * plan.pipeline) as u64, rate }
}

/// Percentiles of times that were measured at this concurrency.
fn times(times: &Survival, concurrency: Concurrency) -> String {
    if times.is_empty() {
        return "–".to_owned();
    }
    let text = |found| percentile(found).text;
    let at = |q| known(times, q, concurrency).map_or_else(too_few, text);
    let max = text(times.longest());
    format!("p50 {}  p90 {}  p99 {}  max {max}", at(0.5), at(0.9), at(0.99))
}

/// Percentiles of times that the generator or single connections cause.
fn plain(histogram: &Histogram) -> String {
    times(&Survival::new(histogram, &Censored::default()), Concurrency::ONE)
}

/// What became of the offered rate.
fn offered(open_loop: &OpenLoop) -> String {
    let OpenLoop { offered_per_s, reached_per_s, due, waiting, .. } = *open_loop;
    let share = reached_per_s / offered_per_s.max(f64::MIN_POSITIVE) * 100.0;
    let mut out = format!(
        "  offered     {} requests/s, {} requests\n  reached     {} requests/s, {share:.0} %\n",
        rate(offered_per_s),
        count(due),
        rate(reached_per_s),
    );
    out += &format!(
        "  queue       {} {} unanswered at the end",
        count(waiting),
        if waiting == 1 { "request" } else { "requests" }
    );
    if waiting > 0 {
        let growth = grouped(open_loop.growth_per_s, 0).replace('-', "−");
        let sign = if open_loop.growth_per_s >= 0.0 { "+" } else { "" };
        let oldest = time(open_loop.oldest_ns as f64 / 1e6);
        out += &format!(", {sign}{growth}/s, the oldest for {oldest}");
    }
    out + "\n"
}

/// What wrk prints before it measures.
#[must_use]
pub fn wrk_head(url: &str, plan: &Plan) -> String {
    let length = match plan.stop {
        Stop::After(time) => scaled(time.as_secs_f64(), &MINUTES, 0),
        Stop::Requests(n) => format!("{n} requests"),
    };
    format!(
        "Running {length} test @ {url}\n  {} threads and {} connections\n",
        plan.threads, plan.connections
    )
}

/// What wrk prints after it has measured, column for column, for scripts that read it.
#[must_use]
pub fn wrk(loaded: &Loaded) -> String {
    let (outcome, threads) = (&loaded.outcome, loaded.plan.threads.max(1) as f64);
    let service = &outcome.service_time;
    let us = |ns: f64| micros(ns / 1e3);
    let mut out = String::from("  Thread Stats   Avg      Stdev     Max   +/- Stdev\n");
    let (mean, stdev) = (service.mean(), service.stdev());
    // Below zero there is nothing: `as` takes it for zero.
    let share = |ns: f64| service.share_within(ns as u64);
    let within = share(mean + stdev) - share(mean - stdev);
    out += &stats_line("Latency", [us(mean), us(stdev), us(service.max() as f64)], within);

    // wrk samples each thread's rate; the ticks are all threads' together, so this is the mean
    // thread's.
    let rates: Vec<f64> =
        outcome.series.iter().map(|t| t.responses as f64 * 10.0 / threads).collect();
    let n = rates.len().max(1) as f64;
    // The sum of nothing is −0.
    let mean = rates.iter().fold(0.0, |sum, rate| sum + rate) / n;
    let stdev = (rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt();
    let max = rates.iter().copied().fold(0.0, f64::max);
    let within = rates.iter().filter(|r| (**r - mean).abs() <= stdev).count() as f64 / n;
    let metric = |v: f64| scaled(v, &THOUSANDS, 2);
    out += &stats_line("Req/Sec", [metric(mean), metric(stdev), metric(max)], within);

    if loaded.latency {
        out += "  Latency Distribution\n";
        for q in [0.5, 0.75, 0.9, 0.99] {
            let value = padded(&us(service.quantile(q) as f64), 10);
            out += &format!("{:7.0}%{value}\n", q * 100.0);
        }
    }
    out + &wrk_totals(outcome)
}

fn wrk_totals(outcome: &Outcome) -> String {
    let failures = &outcome.failures;
    let in_phase = |phase, of: &[Failure]| -> u64 {
        let counts = failures.0.iter().filter(|c| c.phase == phase && of.contains(&c.failure));
        counts.map(|c| c.count).sum()
    };
    let broken = [
        Failure::Reset,
        Failure::ClosedEarly,
        Failure::Truncated,
        Failure::BadFraming,
        Failure::Other,
    ];
    let failed_to_connect: Vec<Failure> =
        [&broken[..], &[Failure::Refused, Failure::Tls, Failure::Timeout]].concat();
    let missing = outcome.connections.requested.saturating_sub(outcome.connections.established);
    let connect = in_phase(Phase::Connect, &failed_to_connect).max(missing);
    let write = in_phase(Phase::Send, &broken);
    let read: u64 =
        [Phase::FirstByte, Phase::Body, Phase::Idle].map(|p| in_phase(p, &broken)).iter().sum();
    let timeout = failures.of(Failure::Timeout) - in_phase(Phase::Connect, &[Failure::Timeout]);
    let bad: u64 = outcome.statuses.iter().filter(|(s, _)| **s > 399).map(|(_, n)| n).sum();
    let whole: u64 = outcome.statuses.values().sum::<u64>().max(outcome.responses);
    let seconds = outcome.window_ns as f64 / 1e9;
    let bytes = outcome.bytes.received as f64;
    let mut out = format!(
        "  {whole} requests in {}, {}B read\n",
        micros(seconds * 1e6),
        scaled(bytes, &BYTES, 2)
    );
    if connect + read + write + timeout > 0 {
        out += &format!(
            "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}\n"
        );
    }
    if bad > 0 {
        out += &format!("  Non-2xx or 3xx responses: {bad}\n");
    }
    out += &format!("Requests/sec: {:9.2}\n", whole as f64 / seconds.max(1e-9));
    out + &format!("Transfer/sec: {:>10}B\n", scaled(bytes / seconds.max(1e-9), &BYTES, 2))
}

fn stats_line(name: &str, [mean, stdev, max]: [String; 3], within: f64) -> String {
    format!(
        "    {name:<10}{}{}{}{:8.2}%\n",
        padded(&mean, 8),
        padded(&stdev, 10),
        padded(&max, 9),
        within * 100.0
    )
}

/// Set to the right in `width` columns, of which the last two are for the unit.
fn padded(text: &str, width: usize) -> String {
    let unit = text.chars().rev().take(2).take_while(|c| c.is_ascii_alphabetic()).count();
    let blanks = 2 - unit;
    format!("{text:>0$}{1:2$}", width - blanks, "", blanks)
}

/// A unit system: what the base unit is called, and what so many of each make.
struct Units(f64, &'static [&'static str]);

const MINUTES: Units = Units(60.0, &["s", "m", "h"]);
const SECONDS: Units = Units(1000.0, &["us", "ms", "s"]);
const THOUSANDS: Units = Units(1000.0, &["", "k", "M", "G", "T", "P"]);
const BYTES: Units = Units(1024.0, &["", "K", "M", "G", "T", "P"]);

fn micros(us: f64) -> String {
    if us >= 1e6 { scaled(us / 1e6, &MINUTES, 2) } else { scaled(us, &SECONDS, 2) }
}

/// In the largest unit of which there are at least 0.85, as wrk has it.
fn scaled(value: f64, units: &Units, decimals: usize) -> String {
    let (mut value, mut names) = (value, units.1.iter());
    let mut name = names.next().copied().unwrap_or_default();
    for next in names {
        if value < units.0 * 0.85 {
            break;
        }
        value /= units.0;
        name = next;
    }
    format!("{value:.decimals$}{name}")
}

/// The whole outcome, and the figures that people look at. Secrets in requests and in the first
/// wrong response are redacted.
#[must_use]
pub fn json(loaded: &Loaded) -> String {
    let outcome = &loaded.outcome;
    let latency = |times: Times| (!times.survival.is_empty()).then(|| times.json());
    let open_loop = outcome.open_loop().map(|o| {
        json!({
            "offered_per_s": o.offered_per_s,
            "reached_per_s": o.reached_per_s,
            "is_behind": o.is_behind,
            "due": o.due,
            "waiting": o.waiting,
            "growth_per_s": o.growth_per_s,
            "oldest_ms": o.oldest_ns as f64 / 1e6,
        })
    });
    let [service, response, lag, connect, handshake] = Times::all(loaded);
    let (mut plan, mut outcome) = (loaded.plan.clone(), outcome.clone());
    for request in &mut plan.requests {
        request.bytes = redact::message(&request.bytes);
        if let ExpectedBody::Bytes { bytes, varies } = &mut request.expect.body {
            let redacted = redact::bytes_of(bytes);
            if redacted != *bytes {
                // The ranges were those of the true body.
                (*bytes, *varies) = (redacted, Vec::new());
            }
        }
    }
    if let Some(wrong) = &mut outcome.first_wrong {
        wrong.first_bytes = redact::message(&wrong.first_bytes);
    }
    let value = json!({
        "url": loaded.url,
        "figures": {
            "requests_per_s": outcome.rate(),
            "answers": outcome.responses,
            "errors": outcome.failures.total(),
            "late": is_late(loaded),
            "open_loop": open_loop,
            "service": latency(service),
            "response": latency(response),
            "lag": latency(lag),
            "connect": latency(connect),
            "handshake": latency(handshake),
        },
        "plan": plan,
        "outcome": outcome,
    });
    let text = serde_json::to_string(&value).expect("an outcome is plain data") + "\n";
    visible_json(&redact::text(&text))
}

/// A line a figure: name, value, unit.
#[must_use]
pub fn csv(loaded: &Loaded) -> String {
    let outcome = &loaded.outcome;
    let mut lines: Vec<[String; 3]> = vec![["figure", "value", "unit"].map(str::to_owned)];
    let mut put = |name: &str, value: f64, unit: &str| {
        lines.push([name.to_owned(), value.to_string(), unit.to_owned()]);
    };
    put("requests_per_s", outcome.rate(), "1/s");
    put("answers", outcome.responses as f64, "");
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
        put("late", yes(is_late(loaded)), "");
    }
    for times in Times::all(loaded) {
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
    lines.into_iter().map(|line| csv::line(line.into_iter())).collect()
}

/// The times of one name, for the forms that machines read.
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
        let concurrency = concurrency(&loaded.plan);
        [
            of("service", &outcome.service_time, &outcome.service_time_censored, concurrency),
            of("response", &outcome.response_time, &outcome.response_time_censored, concurrency),
            of("lag", &outcome.lag, &whole, Concurrency::ONE),
            of("connect", &outcome.connect_time, &whole, Concurrency::ONE),
            of("handshake", &outcome.handshake_time, &whole, Concurrency::ONE),
        ]
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

/// HdrHistogram's percentile distribution, in milliseconds: of response times where there are any.
#[must_use]
pub fn hgrm(loaded: &Loaded) -> String {
    users(&loaded.outcome).to_hgrm(1e6)
}

/// HdrHistogram's compressed interval log: the same times without a tag, and service times tagged
/// where they are not the same.
#[must_use]
pub fn hlog(loaded: &Loaded) -> String {
    let outcome = &loaded.outcome;
    let length = Duration::from_nanos(outcome.window_ns);
    let service = [("service", &outcome.service_time)];
    let tagged = if outcome.response_time.is_empty() { &[] } else { &service[..] };
    interval_log(loaded.opened, length, users(outcome), tagged)
}

/// The same, with the requests that were not answered.
fn seen_by_users(outcome: &Outcome) -> Survival {
    if outcome.due == 0 {
        return Survival::new(&outcome.service_time, &outcome.service_time_censored);
    }
    Survival::new(&outcome.response_time, &outcome.response_time_censored)
}

/// The times that a user sees: from the moment a request was due, where there is one.
fn users(outcome: &Outcome) -> &Histogram {
    if outcome.response_time.is_empty() { &outcome.service_time } else { &outcome.response_time }
}

#[cfg(test)]
mod peers;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_wrks() {
        let texts = [0.0, 850.0, 849.0, 1_060.0, 33_350.0, 999_999.0, 1_500_000.0].map(micros);
        assert_eq!(texts, ["0.00us", "0.85ms", "849.00us", "1.06ms", "33.35ms", "1.00s", "1.50s"]);
        assert_eq!(micros(90e6), "1.50m");
        assert_eq!(scaled(24_110.0, &THOUSANDS, 2), "24.11k");
        assert_eq!(scaled(132_540_000.0, &BYTES, 2), "126.40M");
        assert_eq!(scaled(30.0, &MINUTES, 0), "30s");
    }

    #[test]
    fn columns_are_wrks() {
        assert_eq!(
            stats_line("Latency", ["1.06ms", "1.01ms", "33.35ms"].map(str::to_owned), 0.9524),
            "    Latency     1.06ms    1.01ms  33.35ms   95.24%\n"
        );
        assert_eq!(
            stats_line("Req/Sec", ["24.11k", "1.99k", "29.31k"].map(str::to_owned), 0.715),
            "    Req/Sec    24.11k     1.99k   29.31k    71.50%\n"
        );
    }
}
