//! Loads in words.

use crate::model::{Load, Run};
use crate::text::number::{self, plural};

/// `64 connections, keep-alive`.
pub(super) fn load_words(load: &Load) -> String {
    let connections = plural(load.connections, "connection");
    let mut words = match load.keep_alive {
        true => format!("{connections}, keep-alive"),
        false => format!("{connections}, a new one per request"),
    };
    if load.http2 {
        let over = if load.https { " over TLS" } else { "" };
        words += &format!(", HTTP/2{over} with {}", plural(load.pipeline, "stream"));
        if load.connections > 1 {
            words += " each";
        }
    } else {
        if load.https {
            words += ", HTTPS";
        }
        if load.pipeline > 1 {
            words += &format!(", {} requests in flight on each", load.pipeline);
        }
    }
    if load.threads > 1 {
        words += &format!(", {} generator threads", load.threads);
    }
    if let Some(rate) = load.rate {
        words += &format!(", {} requests/s offered", number::rate(rate));
    }
    words
}

/// `GET / 64 connections, keep-alive`.
pub fn request_and_load(load: &Load) -> String {
    format!("{} {}", load.request, load_words(load)).trim_start().to_owned()
}

/// The name of a load in a sentence, if there are several: its name or description, with its
/// request if the loads differ in it.
pub(super) fn load_name(load: &Load, among: &[&Load]) -> String {
    let name = if load.name.is_empty() { load_words(load) } else { load.name.clone() };
    let differ = among.iter().any(|other| other.request != load.request);
    match differ && !load.request.is_empty() && name != load.request {
        true => format!("{name}, {}", load.request),
        false => name,
    }
}

/// The title of a load, if there are several: name and description.
pub(super) fn load_title(load: &Load, among: &[&Load]) -> String {
    let (name, words) = (load_name(load, among), load_words(load));
    if load.name.is_empty() { name } else { format!("{name}: {words}") }
}

/// ` under POST /bla`, for a sentence about one of several loads; empty for the only one.
pub(super) fn under(run: &Run, load: usize) -> String {
    let all: Vec<&Load> = run.loads.iter().collect();
    match run.loads.get(load).filter(|_| run.loads.len() > 1) {
        Some(load) => format!(" under {}", load_name(load, &all)),
        None => String::new(),
    }
}

/// A sentence with its load in front, given the result of [`under`].
pub(super) fn with_load(under: &str, sentence: &str) -> String {
    match under.strip_prefix(" under ") {
        Some(load) => format!("{load}: {sentence}"),
        None => sentence.to_owned(),
    }
}

/// The length of a slice: `12 ms`, `0.3 s`.
pub(super) fn slice_words(ms: f64) -> String {
    if ms < 100.0 { format!("{ms} ms") } else { format!("{} s", ms / 1e3) }
}
