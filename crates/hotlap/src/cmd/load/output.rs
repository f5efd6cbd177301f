//! The outcome of one load in each format. This file has the format for people, and the submodules
//! have wrk's format and the formats for machines.

mod machine;
mod wrk;

use hotlap_agent::{Contributions, GeneratorOutcome, Sampled};
use hotlap_load::OpenLoop;
use hotlap_load::outcome::RequestOutcome;
use hotlap_load::plan::{Pace, Protocol};
use hotlap_stats::{Censored, Concurrency, Histogram, Survival};
use serde_json::json;

use crate::analysis::latency::known;
use crate::cmd::load::loaded::{Loaded, LoadedRequest};
use crate::report::figure::percentile;
use crate::report::latency::{QUEUE_GREW, not_reached};
use crate::report::shape_words;
use crate::report::warnings::{FAILED_LATENCY, failed, remedy};
use crate::text::number::{count, grouped, plural, rate, time};
use crate::text::table::{Cell, Column, Table, UNKNOWN};
use crate::text::{layout, visible, wrap};
pub use machine::{csv, hgrm, hlog, json};
pub use wrk::{wrk, wrk_head};

/// Formats the main figures for people. Tables and sentences fit into `width` columns.
pub fn human(loaded: &Loaded, width: usize) -> String {
    let (plan, outcome) = (&loaded.plan, &loaded.outcome);
    let mut out = format!("\n  {}\n  {}\n\n", visible(&loaded.url), shape(loaded));
    let failures = outcome.failures.total();
    out += &format!(
        "  requests/s  {:<12}{}, {}\n",
        rate(loaded.rate()),
        plural(outcome.responses as usize, "correct response"),
        plural(failures as usize, "error")
    );
    let up = outcome.connections;
    if up.established < up.requested {
        let why = outcome.first_connect_error.as_deref().unwrap_or("possibly closed by the server");
        let (some, all) = (count(up.established), count(up.requested));
        out += &format!("  connected   {some} of {all}: {why}\n");
    }
    let concurrency = loaded.concurrency();
    let service = Survival::new(&outcome.service_time, &outcome.service_time_censored);
    out += &format!("  service     {}\n", times(&service, concurrency));
    if let Some(open_loop) = outcome.open_loop() {
        let response = Survival::new(&outcome.response_time, &outcome.response_time_censored);
        out += &format!("  response    {}\n", times(&response, concurrency));
        out += &format!("  sent late   {}\n", plain(&outcome.lag));
        out += &offered(&open_loop);
    }
    out += &sampled(loaded);
    if !outcome.handshake_time.is_empty() {
        out += &format!("  connect     {}\n", plain(&outcome.connect_time));
        let handshakes = count(outcome.handshake_time.len());
        out += &format!("  handshake   {}, {handshakes} of them\n", plain(&outcome.handshake_time));
    }
    out += &format!(
        "  read        {} MB/s\n",
        grouped(outcome.bytes.received as f64 / 1e6 / loaded.served_s().max(1e-9), 1)
    );
    let busiest = outcome.busiest() * 100.0;
    let cpu: u64 = outcome.threads.iter().map(|t| t.cpu_ns).sum();
    let each = cpu as f64 / 1e3 / (outcome.responses + failures).max(1) as f64;
    out += &format!("  generator   {busiest:.0}% busy, {each:.1} µs CPU per request\n");
    for failure in &outcome.failures.0 {
        let word = |v: serde_json::Value| v.as_str().unwrap_or_default().to_owned();
        out += &format!(
            "  error       {} in {}: {}\n",
            word(json!(failure.failure)),
            word(json!(failure.phase)),
            count(failure.count)
        );
    }
    for (reason, connections) in &outcome.goaways {
        let ended = plural(*connections as usize, "connection");
        out += &format!("  ended       {ended} (GOAWAY {})\n", visible(reason));
    }
    out += &by_request(loaded, width);
    out += &by_generator(loaded, width);
    if let Some(most) = outcome.failures.most() {
        let all = failed(&outcome.failures, outcome.requests());
        // The line about GOAWAY has already stated the cause.
        let remedy = if outcome.goaways.is_empty() { remedy(most) } else { "" };
        out.push('\n');
        out += &wrap(format!("{all}. {FAILED_LATENCY} {remedy}").trim_end(), 2, width);
    }
    if loaded.latency {
        let seen = loaded.user_survival();
        out.push('\n');
        for q in [0.5, 0.75, 0.9, 0.99, 0.999, 0.9999] {
            let value = known(&seen, q, concurrency);
            let value = value.map_or_else(too_few, |found| percentile(found).text);
            out += &format!("  {:>7}%  {value}\n", grouped_share(q));
        }
    }
    if plan.pace != Pace::Closed {
        out.push('\n');
        out += &wrap(
            "Response time begins when a request is due, and service time when it is sent.",
            2,
            width,
        );
        if let Some(behind) = outcome.open_loop().filter(|o| o.is_behind) {
            out.push('\n');
            out += &wrap(
                &format!(
                    "RATE NOT REACHED: {}. {QUEUE_GREW}",
                    not_reached(behind.offered_per_s, behind.reached_per_s)
                ),
                2,
                width,
            );
        }
        if loaded.is_late() {
            out.push('\n');
            out += &wrap(
                "LATE: the load generator itself sent more than 1 in 100 requests too late, so \
                 these times are not the server's. Use more threads (-t), cores of its own \
                 (--generator-cpus) or a lower rate.",
                2,
                width,
            );
        }
    } else if let Some(wait_ns) = loaded.hidden_wait() {
        out.push('\n');
        out += &wrap(
            &format!(
                "These percentiles hide stalls: for 1% of the time, a new request would have \
                 waited for {} or longer, but a closed loop sends none while it waits. Load the \
                 server at a fixed rate (-R), which counts from when each request was due.",
                time(wait_ns / 1e6)
            ),
            2,
            width,
        );
    }
    if plan.pace == Pace::Closed && busiest >= 90.0 {
        out.push('\n');
        out += &wrap(
            "The load generator was the limit: the server may be faster. Use more threads (-t).",
            2,
            width,
        );
    }
    out
}

/// Formats the latency that was sampled during the load. Empty if nothing was sampled.
fn sampled(loaded: &Loaded) -> String {
    let Some((Sampled { outcome, .. }, concurrency)) = loaded.sampled() else {
        return String::new();
    };
    let seen = Survival::new(&outcome.response_time, &outcome.response_time_censored);
    let failed = outcome.failures.total();
    let errors = match failed {
        0 => String::new(),
        some => format!(", {}", plural(some as usize, "error")),
    };
    format!("  sampled     {}{errors}\n", times(&seen, concurrency))
}

/// Formats the figures of each request as a table. Empty if there is only one request.
fn by_request(loaded: &Loaded, width: usize) -> String {
    let rows = loaded.by_request();
    if rows.is_empty() {
        return String::new();
    }
    let latency = |q: f64| {
        let cell = |own: &LoadedRequest| {
            let found = known(&own.survival(), q, own.concurrency);
            Cell::from(found.map_or_else(|| UNKNOWN.to_owned(), |found| percentile(found).text))
        };
        rows.iter().map(cell).collect::<Vec<_>>()
    };
    let number = |of: fn(&RequestOutcome) -> u64| {
        rows.iter().map(|own| Cell::from(count(of(own.outcome)))).collect::<Vec<_>>()
    };
    let names: Vec<Cell> = rows.iter().map(|own| Cell::from(own.name)).collect();
    let table = Table::new(vec![
        Column::name("request", names),
        Column::right("responses", number(|own| own.responses)),
        Column::right("errors", number(|own| own.failures)),
        Column::right("p50", latency(0.5)),
        Column::right("p99", latency(0.99)),
    ]);
    table_text(&table, width)
}

/// Formats the contribution of each generator as a table. Empty if the load came from this host.
fn by_generator(loaded: &Loaded, width: usize) -> String {
    let Some(Contributions { generators, overlap, .. }) = &loaded.generators else {
        return String::new();
    };
    let cells = |of: &dyn Fn(&GeneratorOutcome) -> String| {
        generators.iter().map(|own| Cell::from(of(own))).collect::<Vec<_>>()
    };
    let table = Table::new(vec![
        Column::name("generator", cells(&|own| visible(&own.command))),
        Column::right("connections", cells(&|own| own.connections.to_string())),
        Column::right("responses", cells(&|own| count(own.responses))),
        Column::right("errors", cells(&|own| count(own.failures))),
        Column::right("busy", cells(&|own| format!("{:.0}%", own.busy * 100.0))),
        Column::right("clock", cells(&|own| format!("± {}", time(own.error_ns() as f64 / 1e6)))),
    ]);
    let mut out = table_text(&table, width);
    out += &format!("  measurements overlap for {:.1}% of the time\n", overlap * 100.0);
    out
}

/// Formats a table with an empty line above it.
fn table_text(table: &Table, width: usize) -> String {
    let lines = layout::lines(table, width.saturating_sub(2));
    let mut out = String::from("\n");
    for line in lines.header.iter().chain(&lines.rows) {
        out += &format!("  {}\n", line.trim_end());
    }
    out
}

fn too_few() -> String {
    "too few samples".to_owned()
}

fn grouped_share(q: f64) -> String {
    let percent = format!("{:.2}", q * 100.0);
    percent.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn shape(loaded: &Loaded) -> String {
    let (plan, outcome) = (&loaded.plan, &loaded.outcome);
    // The TLS version is added below.
    let mut parts = vec![shape_words(&plan.shape, plan.target.protocol, false)];
    let (asked, open) = (plan.shape.pipeline as u64, outcome.connections.streams);
    let is_http2 = plan.target.protocol == Protocol::Http2;
    if is_http2 && plan.pace == Pace::Closed && (1..asked).contains(&open) {
        parts.push(format!("of which the server allows {open}"));
    }
    if let Some(tls) = &outcome.tls {
        parts.push(tls.to_string());
        if plan.target.tls.as_ref().is_some_and(|tls| tls.resumes) {
            let resumed = outcome.connections.resumed;
            parts.push(format!("{} resumed", plural(resumed as usize, "handshake")));
        }
    }
    let plural = if plan.shape.threads == 1 { "" } else { "s" };
    let each = if loaded.generators.is_some() { " each" } else { "" };
    parts.push(format!("{} thread{plural}{each} ({})", plan.shape.threads, outcome.backend));
    match &plan.pace {
        Pace::Closed => {}
        Pace::Constant { rate: r } => parts.push(format!("{} requests/s", rate(*r))),
        Pace::Poisson { rate: r, .. } => parts.push(format!("{} requests/s, Poisson", rate(*r))),
        Pace::Recorded(due) => {
            parts.push(format!("times of the log, {} requests/s", rate(due.rate())));
        }
    }
    parts.push(format!("{:.1} s", outcome.window_ns as f64 / 1e9));
    if plan.check_one_in > 1 {
        parts.push(format!("one body in {} checked", plan.check_one_in));
    }
    parts.join(", ")
}

/// Formats percentiles of times that were measured at this concurrency.
fn times(times: &Survival, concurrency: Concurrency) -> String {
    if times.is_empty() {
        return "–".to_owned();
    }
    let text = |found| percentile(found).text;
    let at = |q| known(times, q, concurrency).map_or_else(too_few, text);
    let max = text(times.longest());
    format!("p50 {}  p90 {}  p99 {}  max {max}", at(0.5), at(0.9), at(0.99))
}

/// Formats percentiles of times that depend on the generator or on single connections.
fn plain(histogram: &Histogram) -> String {
    times(&Survival::new(histogram, &Censored::default()), Concurrency::ONE)
}

/// Formats how the offered rate compares with the achieved rate.
fn offered(open_loop: &OpenLoop) -> String {
    let OpenLoop { offered_per_s, reached_per_s, due, waiting, .. } = *open_loop;
    let share = reached_per_s / offered_per_s.max(f64::MIN_POSITIVE) * 100.0;
    let mut out = format!(
        "  offered     {} requests/s, {} requests\n  reached     {} requests/s, {share:.0}%\n",
        rate(offered_per_s),
        count(due),
        rate(reached_per_s),
    );
    out += &format!(
        "  queue       {} {} without a response at the end",
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

/// Tests for known defects in the output of other tools. Defects in the engines of those tools are
/// tested in `hotlap-load`'s `tests/peers.rs`.
#[cfg(test)]
mod tests {
    use hotlap_load::Outcome;
    use hotlap_load::outcome::Tick;
    use hotlap_load::plan::{Plan, Request};

    use super::*;

    /// A load of one connection whose responses took 1 to 1,000,000 µs, each value once.
    fn loaded() -> Loaded {
        let mut service = Histogram::new();
        (1..=1_000_000).for_each(|us| service.record(us * 1_000));
        let outcome = Outcome {
            backend: "none".to_owned(),
            window_ns: 1_000_000_000,
            responses: 1_000_000,
            service_time: service,
            ..Outcome::default()
        };
        let target = hotlap_load::url::resolve("http://127.0.0.1:1/").unwrap().target;
        let mut plan = Plan::new(target, Request::get("/", "test"));
        plan.shape.connections = 1;
        Loaded {
            url: "http://127.0.0.1:1/".to_owned(),
            plan,
            names: Vec::new(),
            outcome,
            generators: None,
            opened: std::time::SystemTime::UNIX_EPOCH,
            latency: true,
        }
    }

    /// Returns the value in the CSV line with this name.
    fn value(csv: &str, name: &str) -> f64 {
        let line = csv.lines().find_map(|line| line.strip_prefix(&format!("{name},"))).unwrap();
        line.split(',').next().unwrap().parse().unwrap()
    }

    /// Regression: if a server died, the offered rate was computed from all due requests and only
    /// the time before the death.
    #[test]
    fn a_death_ends_the_time_of_responses_and_not_of_the_offer() {
        let mut loaded = loaded();
        let outcome = &mut loaded.outcome;
        let tick = |responses, failures| Tick { responses, failures, ..Tick::default() };
        outcome.series = [vec![tick(100, 0); 10], vec![tick(0, 100); 30]].concat();
        (outcome.window_ns, outcome.responses, outcome.due) = (4_000_000_000, 1_000, 4_000);
        assert_eq!(loaded.outcome.open_loop().unwrap().offered_per_s, 1_000.0);
        assert_eq!(value(&csv(&loaded), "requests_per_s"), 1_000.0);
        assert_eq!(value(&csv(&loaded), "offered_per_s"), 1_000.0);
        assert!(human(&loaded, 80).contains("requests/s  1,000 "));
    }

    /// Regression: for a server that was blocked nearly all of the time, `load` printed a p99 of
    /// 9.4 ms and no warning.
    #[test]
    fn percentiles_that_hide_stalls_are_said_to() {
        let mut loaded = loaded();
        // Each pair is a count and a time in milliseconds.
        let mut text = |times: &[(usize, f64)]| {
            let service = &mut loaded.outcome.service_time;
            *service = Histogram::new();
            for (count, ms) in times {
                (0..*count).for_each(|_| service.record((ms * 1e6) as u64));
            }
            hotlap_testkit::flat(&human(&loaded, 80))
        };
        let stalled = text(&[(9_900, 9.4), (64, 1_700.0)]);
        let said = "These percentiles hide stalls: for 1% of the time, a new request would have \
                    waited for 1.7 s or longer, but a closed loop sends none while it waits. Load \
                    the server at a fixed rate (-R)";
        assert!(stalled.contains("p99 9.4 ms max 1.7 s") && stalled.contains(said), "{stalled}");
        let few = text(&[(300, 1.0), (2, 1_700.0)]);
        assert!(few.contains("p99 too few samples max 1.7 s") && few.contains(said), "{few}");
        let ordinary: [&[(usize, f64)]; 5] = [
            &[(100_000, 1.0)],
            // One pause in ten seconds, on each of 64 connections.
            &[(640_000, 1.0), (64, 50.0)],
            &[(9_000, 1.0), (1_000, 40.0)],
            &[(9_700, 1.0), (300, 200.0)],
            // A lost packet is sent again after 0.2 s.
            &[(100_000, 1.0), (3, 200.0)],
        ];
        for times in ordinary {
            let said = text(times);
            assert!(!said.contains("hide stalls"), "{times:?}: {said}");
        }
    }

    #[test]
    fn the_benchmarker_prints_p9999_as_p99999() {
        let loaded = loaded();
        let service = &serde_json::from_str::<serde_json::Value>(&json(&loaded)).unwrap();
        let service = &service["figures"]["service"];
        let csv = csv(&loaded);
        for (name, ms) in [("p50", 500.0), ("p90", 900.0), ("p99", 990.0), ("p999", 999.0)] {
            let near = |found: f64| (found / ms - 1.0).abs() < 0.001;
            assert!(near(service[format!("{name}_ms")].as_f64().unwrap()), "{name}: {service}");
            assert!(near(value(&csv, &format!("service_{name}"))), "{name}: {csv}");
        }
        let ms = service["p9999_ms"].as_f64().unwrap();
        assert!((ms / 999.9 - 1.0).abs() < 0.001, "{service}");
        assert!(wrk(&loaded).contains("     99%    0.99s"), "{}", wrk(&loaded));
    }

    #[test]
    fn httparena_prints_the_mean_as_p99() {
        let loaded = loaded();
        let (csv, human) = (csv(&loaded), human(&loaded, 80));
        assert!((value(&csv, "service_mean") / 500.0 - 1.0).abs() < 0.001, "{csv}");
        assert!((value(&csv, "service_p99") / 990.0 - 1.0).abs() < 0.001, "{csv}");
        let service = human.lines().find_map(|line| line.trim().strip_prefix("service"));
        let service = service.map(str::trim);
        assert_eq!(service, Some("p50 500.2 ms  p90 900.2 ms  p99 990.4 ms  max 1.0 s"));
    }
}
