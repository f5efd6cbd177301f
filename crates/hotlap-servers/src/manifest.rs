//! `server.toml`, read strictly into [`Server`]s.
//!
//! What is written and what is meant are two types: the keys of the file stay private to this room,
//! and what leaves it has every variant resolved. An unknown key, a wrong type or an empty command
//! is an error with file and line, because a key that is silently ignored would let a server run
//! otherwise than its folder says.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;

use crate::contract::{self, Api};
use crate::launch::Counts;

/// The name of the file in each server's folder.
pub const FILE_NAME: &str = "server.toml";

/// A server of the catalogue, or a variant of one: everything that its folder says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `go/net-http`; a variant is `go/net-http:name`.
    pub id: String,
    /// What it is, in a sentence.
    pub about: String,
    /// Where its documentation is.
    pub url: String,
    /// What sort of server it is.
    pub kind: ServerKind,
    /// What it answers.
    pub contracts: Vec<contract::Name>,
    /// What it is built with.
    pub toolchain: Toolchain,
    /// What starts it, in the folder that it was built in.
    pub command: Vec<String>,
    /// Added to its environment.
    pub env: BTreeMap<String, String>,
    /// The exact answer to `GET /api/hello`, for those of the contract `api`.
    pub api: Option<Api>,
    /// A side effect that must happen once a request.
    pub counts: Option<Counts>,
    /// Whether it keeps connections. One that by design does not says so with each answer.
    pub keep_alive: bool,
    /// Its folder in the catalogue.
    pub folder: PathBuf,
    /// The line of `server.toml` that holds its command.
    pub command_line: usize,
}

/// What sort of server it is: it decides what is required of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    /// It routes, so it must know an unknown path.
    Framework,
    /// What a language brings along.
    StandardLibrary,
    /// Written on bare sockets.
    HandWritten,
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Framework => "framework",
            Self::StandardLibrary => "standard-library",
            Self::HandWritten => "hand-written",
        })
    }
}

/// What a server is built with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// Commands that succeed where it is installed.
    pub probe: Vec<Vec<String>>,
    /// System packages that bring it.
    pub install: Install,
    /// Commands that build it, in its folder's copy.
    pub build: Vec<Vec<String>>,
    /// The command whose first line of output says what really runs; empty: the probe's output
    /// does.
    pub version: Vec<String>,
    /// Where the original comes from when no common registry has it.
    pub upstream: Option<Upstream>,
}

/// System packages, by package manager.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Install {
    /// Debian and its like.
    #[serde(default)]
    pub apt: Vec<String>,
    /// Homebrew.
    #[serde(default)]
    pub brew: Vec<String>,
}

/// The true source of something that no common registry carries.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The command that installs it for whoever reaches the source.
    pub install: String,
    /// Why it cannot be had otherwise.
    pub why: String,
}

/// Why a manifest cannot be used: which, where in it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", file.display(), line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct ManifestError {
    /// The file (or the folder that lacks one).
    pub file: PathBuf,
    /// Where in it, from 1.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
}

/// Reads the manifest in `folder`: the server itself first, then its variants by name.
///
/// # Errors
/// When the file is missing, unreadable, or says something that is not understood.
pub fn read(folder: &Path, id: &str) -> Result<Vec<Server>, ManifestError> {
    let file = folder.join(FILE_NAME);
    let text = std::fs::read_to_string(&file).map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("no {FILE_NAME} in this folder: every server needs one")
            }
            _ => format!("cannot be read: {error}"),
        };
        ManifestError { file: file.clone(), line: None, what }
    })?;
    parse(&text, folder, id)
}

/// Reads a manifest's text, as [`read`] does.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, folder: &Path, id: &str) -> Result<Vec<Server>, ManifestError> {
    let file = folder.join(FILE_NAME);
    let keys: Keys = toml::from_str(text).map_err(|error| ManifestError {
        file: file.clone(),
        line: error.span().map(|span| line_of(text, span.start)),
        what: error.message().replace('\n', " "),
    })?;
    let mut servers = Vec::with_capacity(1 + keys.variants.len());
    let mut of = |name: Option<&str>, variant: &VariantKeys| {
        let id = name.map_or_else(|| id.to_owned(), |name| format!("{id}:{name}"));
        resolve(&keys, variant, id, folder, text).map(|server| servers.push(server)).map_err(
            |(span, what)| ManifestError {
                file: file.clone(),
                line: Some(line_of(text, span.start)),
                what,
            },
        )
    };
    of(None, &VariantKeys::default())?;
    for (name, variant) in &keys.variants {
        of(Some(name), variant)?;
    }
    Ok(servers)
}

/// The line that holds a byte, from 1.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|&&b| b == b'\n').count()
}

type Commands = Vec<Spanned<Vec<String>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    about: String,
    url: String,
    kind: ServerKind,
    contracts: Spanned<Vec<contract::Name>>,
    toolchain: ToolchainKeys,
    run: RunKeys,
    api: Option<Api>,
    counts: Option<Counts>,
    keep_alive: Option<bool>,
    #[serde(default)]
    variants: BTreeMap<String, VariantKeys>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolchainKeys {
    probe: Spanned<Probes>,
    #[serde(default)]
    install: Install,
    #[serde(default)]
    build: Commands,
    version: Option<Spanned<Vec<String>>>,
    upstream: Option<Upstream>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunKeys {
    command: Spanned<Vec<String>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantKeys {
    about: Option<String>,
    contracts: Option<Spanned<Vec<contract::Name>>>,
    command: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    build: Option<Commands>,
    version: Option<Spanned<Vec<String>>>,
    probe: Option<Spanned<Probes>>,
    install: Option<Install>,
    upstream: Option<Upstream>,
    api: Option<Api>,
    counts: Option<Counts>,
    keep_alive: Option<bool>,
}

/// One command, or a list of them.
struct Probes(Vec<Vec<String>>);

/// What stands in a probe's list: a word of its only command, or a whole command.
enum Item {
    Word(String),
    Command(Vec<String>),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemVisitor;
        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = Item;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E>(self, word: &str) -> Result<Item, E> {
                Ok(Item::Word(word.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Item, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = seq.next_element()? {
                    words.push(word);
                }
                Ok(Item::Command(words))
            }
        }
        deserializer.deserialize_any(ItemVisitor)
    }
}

impl<'de> Deserialize<'de> for Probes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut words = Vec::new();
        let mut commands = Vec::new();
        for item in Vec::<Item>::deserialize(deserializer)? {
            match item {
                Item::Word(word) => words.push(word),
                Item::Command(command) => commands.push(command),
            }
        }
        match (words.is_empty(), commands.is_empty()) {
            (_, true) => Ok(Self(vec![words])),
            (true, false) => Ok(Self(commands)),
            (false, false) => Err(D::Error::custom(
                "a probe is one command or a list of commands, not a mixture of both",
            )),
        }
    }
}

type Complaint = (Range<usize>, String);

/// A variant over its base. `env` is merged key by key, as are the keys of the toolchain; the rest
/// replaces the base's.
fn resolve(
    keys: &Keys,
    variant: &VariantKeys,
    id: String,
    folder: &Path,
    text: &str,
) -> Result<Server, Complaint> {
    let base = &keys.toolchain;
    let probe = variant.probe.as_ref().unwrap_or(&base.probe);
    for command in &probe.get_ref().0 {
        filled(probe.span(), command, "probe")?;
    }
    let build = variant.build.as_ref().unwrap_or(&base.build);
    for command in build {
        filled(command.span(), command.get_ref(), "build")?;
    }
    let version = variant.version.as_ref().or(base.version.as_ref());
    if let Some(version) = version {
        filled(version.span(), version.get_ref(), "version")?;
    }
    let command = variant.command.as_ref().unwrap_or(&keys.run.command);
    filled(command.span(), command.get_ref(), "command")?;
    let contracts = variant.contracts.as_ref().unwrap_or(&keys.contracts);
    if contracts.get_ref().is_empty() {
        let known = contract::Name::ALL.map(|name| format!("\"{name}\"")).join(", ");
        return Err((contracts.span(), format!("no contract: name at least one of {known}")));
    }
    let api = variant.api.as_ref().or(keys.api.as_ref());
    if api.is_none() && contracts.get_ref().contains(&contract::Name::Api) {
        return Err((
            contracts.span(),
            "the contract \"api\" needs its answer: add [api] with body and content_type"
                .to_owned(),
        ));
    }
    let mut env = keys.run.env.clone();
    env.extend(variant.env.clone());
    Ok(Server {
        id,
        about: variant.about.as_ref().unwrap_or(&keys.about).clone(),
        url: keys.url.clone(),
        kind: keys.kind,
        contracts: contracts.get_ref().clone(),
        toolchain: Toolchain {
            probe: probe.get_ref().0.clone(),
            install: variant.install.as_ref().unwrap_or(&base.install).clone(),
            build: build.iter().map(|command| command.get_ref().clone()).collect(),
            version: version.map(|version| version.get_ref().clone()).unwrap_or_default(),
            upstream: variant.upstream.as_ref().or(base.upstream.as_ref()).cloned(),
        },
        command: command.get_ref().clone(),
        env,
        api: api.cloned(),
        counts: variant.counts.as_ref().or(keys.counts.as_ref()).cloned(),
        keep_alive: variant.keep_alive.or(keys.keep_alive).unwrap_or(true),
        folder: folder.to_owned(),
        command_line: line_of(text, command.span().start),
    })
}

fn filled(span: Range<usize>, command: &[String], key: &str) -> Result<(), Complaint> {
    match command.first() {
        Some(program) if !program.trim().is_empty() => Ok(()),
        _ => Err((span, format!("{key} is empty: it needs a program and its arguments"))),
    }
}

impl Server {
    /// The id without its variant: the folder's path.
    #[must_use]
    pub fn base_id(&self) -> &str {
        self.id.split_once(':').map_or(&self.id, |(base, _)| base)
    }

    /// The first part of the id.
    #[must_use]
    pub fn language(&self) -> &str {
        self.id.split_once('/').map_or(&self.id, |(language, _)| language)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
about     = "Go's standard library server, as shipped."
url       = "https://pkg.go.dev/net/http"
kind      = "standard-library"
contracts = ["hello", "json-api"]

[toolchain]
probe   = ["go", "version"]
install = { apt = ["golang-go"], brew = ["go"] }
build   = [["go", "build", "-o", "server", "."]]
version = ["./server", "--version"]

[run]
command = ["./server"]
env = { A = "1", B = "2" }

[variants.nogc]
env = { GOGC = "off", B = "3" }

[variants.two-probes]
probe = [["go", "version"], ["gcc", "-v"]]
contracts = ["hello"]
"#;

    fn parsed(text: &str) -> Result<Vec<Server>, ManifestError> {
        parse(text, Path::new("servers/go/x"), "go/x")
    }

    fn complaint(text: &str) -> String {
        parsed(text).unwrap_err().to_string()
    }

    #[test]
    fn a_variant_replaces_what_it_names_and_keeps_the_rest() {
        let servers = parsed(WHOLE).unwrap();
        let ids: Vec<_> = servers.iter().map(|s| s.id.as_str()).collect();
        assert_eq!(ids, ["go/x", "go/x:nogc", "go/x:two-probes"]);
        let env: Vec<_> = servers[1].env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(env, ["A=1", "B=3", "GOGC=off"]);
        assert_eq!(servers[1].command, ["./server"]);
        assert_eq!(servers[1].command_line, 14);
        assert_eq!(servers[2].toolchain.probe.len(), 2);
        assert_eq!(servers[2].toolchain.build, servers[0].toolchain.build);
        assert_eq!(servers[2].contracts, [contract::Name::Hello]);
        assert_eq!(servers[2].base_id(), "go/x");
        assert_eq!(servers[2].language(), "go");
    }

    #[test]
    fn an_unknown_key_is_named_with_file_and_line() {
        let text = WHOLE.replace("[run]\n", "[run]\nshell = true\n");
        assert_eq!(
            complaint(&text),
            "servers/go/x/server.toml:14: unknown field `shell`, expected `command` or `env`"
        );
    }

    #[test]
    fn a_wrong_type_is_named_with_file_and_line() {
        let text = WHOLE.replace("command = [\"./server\"]", "command = \"./server\"");
        assert_eq!(
            complaint(&text),
            "servers/go/x/server.toml:14: invalid type: string \"./server\", expected a sequence"
        );
    }

    #[test]
    fn an_empty_command_is_named_with_file_and_line() {
        let text = WHOLE.replace("command = [\"./server\"]", "command = []");
        assert_eq!(
            complaint(&text),
            "servers/go/x/server.toml:14: command is empty: it needs a program and its arguments"
        );
        let text = WHOLE.replace("probe   = [\"go\", \"version\"]", "probe = []");
        assert_eq!(
            complaint(&text),
            "servers/go/x/server.toml:8: probe is empty: it needs a program and its arguments"
        );
    }

    #[test]
    fn an_unknown_contract_is_answered_with_the_known_ones() {
        let text = WHOLE.replace("\"json-api\"", "\"jsonapi\"");
        assert_eq!(
            complaint(&text),
            "servers/go/x/server.toml:5: unknown variant `jsonapi`, expected one of `hello`, \
             `clock`, `api`, `json-api`"
        );
    }

    #[test]
    fn the_contract_api_needs_its_answer() {
        let text = WHOLE.replace("\"json-api\"", "\"api\"");
        assert!(complaint(&text).contains(":5: the contract \"api\" needs its answer"));
        let text = text + "[api]\nbody = '{}'\ncontent_type = \"application/json\"\n";
        assert_eq!(parsed(&text).unwrap()[0].api.as_ref().unwrap().body, "{}");
    }

    #[test]
    fn a_mixed_probe_is_refused() {
        let text = WHOLE.replace("[\"go\", \"version\"]\n", "[\"go\", [\"gcc\"]]\n");
        assert!(complaint(&text).contains(":8: a probe is one command or a list of commands"));
    }

    #[test]
    fn a_broken_file_is_named_with_its_line() {
        let text = WHOLE.replace("[run]", "[run");
        assert!(complaint(&text).starts_with("servers/go/x/server.toml:13: "));
    }

    #[test]
    fn a_missing_manifest_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = read(folder.path(), "go/x").unwrap_err().to_string();
        assert!(
            error.ends_with("server.toml: no server.toml in this folder: every server needs one")
        );
    }
}
