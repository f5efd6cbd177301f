//! The keys of a suite file.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::definition::Question;
use super::entry::CustomRequest;
use super::published::Absent;
use hotlap_servers::contract;
use hotlap_servers::launch::Counts;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keys {
    #[serde(default)]
    pub(super) about: String,
    pub(super) question: Option<Spanned<Question>>,
    pub(super) contract: Option<contract::Name>,
    pub(super) reference: Option<Spanned<String>>,
    pub(super) budget: Option<Spanned<String>>,
    pub(super) precision: Option<Spanned<String>>,
    pub(super) slice: Option<Spanned<String>>,
    pub(super) slo: Option<Spanned<String>>,
    pub(super) cpus: Option<Spanned<usize>>,
    #[serde(default)]
    pub(super) https: bool,
    #[serde(default)]
    pub(super) leave_out_missing: bool,
    #[serde(default)]
    pub(super) stress: Vec<Spanned<String>>,
    pub(super) servers: Spanned<Vec<Spanned<Item>>>,
    #[serde(default)]
    pub(super) load: Vec<Spanned<LoadKeys>>,
    pub(super) request: Option<CustomRequest>,
    pub(super) requests_file: Option<Spanned<PathBuf>>,
    pub(super) access_log: Option<Spanned<PathBuf>>,
    #[serde(default)]
    pub(super) published: Vec<SourceKeys>,
    #[serde(default)]
    pub(super) absent: Vec<Absent>,
}

impl Keys {
    /// The question; by default the one that the goals ask, else the comparison.
    pub(super) fn question(&self) -> Question {
        match &self.question {
            Some(question) => *question.get_ref(),
            None if self.slo.is_some() => Question::Capacity,
            None => Question::Compare,
        }
    }
}

/// A server: its name alone, or a table.
pub(super) struct Item(pub(super) ServerKeys);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerKeys {
    pub(super) run: String,
    pub(super) name: Option<String>,
    pub(super) on: Option<String>,
    #[serde(default)]
    pub(super) cpus: List<usize>,
    pub(super) counts: Option<Counts>,
}

/// A protocol, as suites write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum ProtocolKey {
    #[serde(rename = "http/1.1")]
    Http1,
    #[serde(rename = "h2")]
    Http2,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadKeys {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) connections: List<usize>,
    #[serde(default)]
    pub(super) threads: List<usize>,
    #[serde(default)]
    pub(super) close: List<bool>,
    #[serde(default)]
    pub(super) pipeline: List<usize>,
    #[serde(default)]
    pub(super) protocol: List<ProtocolKey>,
    #[serde(default)]
    pub(super) streams: List<usize>,
    #[serde(default)]
    pub(super) request: List<String>,
    #[serde(default)]
    pub(super) rate: List<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceKeys {
    pub(super) source: String,
    pub(super) year: u32,
    #[serde(default)]
    pub(super) machine: String,
    #[serde(default)]
    pub(super) command: String,
    #[serde(default)]
    pub(super) doubt: String,
    pub(super) reference: Option<Spanned<String>>,
    pub(super) rows: Vec<Spanned<FigureKeys>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FigureKeys {
    pub(super) server: String,
    pub(super) cpus: Option<usize>,
    pub(super) load: Option<String>,
    pub(super) called: Option<String>,
    pub(super) requests_per_s: f64,
    pub(super) latency_ms: Option<[f64; 3]>,
    pub(super) memory_mb: Option<f64>,
    pub(super) cpu_percent: Option<f64>,
    pub(super) socket_errors: Option<[u64; 4]>,
    #[serde(default)]
    pub(super) doubt: String,
}

/// One value, or a list of them.
pub(super) struct List<T>(pub(super) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Values<T> {
            type Value = List<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }
            fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<List<T>, E> {
                Ok(List(vec![T::deserialize(value.into_deserializer())?]))
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<List<T>, E> {
                Ok(List(vec![T::deserialize(value.into_deserializer())?]))
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<List<T>, E> {
                Ok(List(vec![T::deserialize(value.into_deserializer())?]))
            }
            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<List<T>, E> {
                Ok(List(vec![T::deserialize(value.into_deserializer())?]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element()? {
                    values.push(value);
                }
                Ok(List(values))
            }
        }
        deserializer.deserialize_any(Values(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Both;
        impl<'de> Visitor<'de> for Both {
            type Value = Item;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a server's name, or a table with `run`")
            }
            fn visit_str<E>(self, run: &str) -> Result<Item, E> {
                let (name, on, counts) = (None, None, None);
                Ok(Item(ServerKeys { run: run.to_owned(), name, on, cpus: List(vec![]), counts }))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Item, A::Error> {
                ServerKeys::deserialize(MapAccessDeserializer::new(map)).map(Item)
            }
        }
        deserializer.deserialize_any(Both)
    }
}
