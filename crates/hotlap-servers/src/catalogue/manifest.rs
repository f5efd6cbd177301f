//! Parses `server.toml` strictly into [`CatalogueServer`]s.
//!
//! The keys of the file and the resulting servers are separate types. The keys are private to this
//! module, and each variant becomes a complete [`CatalogueServer`]. An unknown key, a wrong type or
//! an empty command is an error with file and line. If a key were silently ignored, a server would
//! run differently from what its manifest says.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use hotlap_load::plan;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;

use crate::contract::{self, Api};
use crate::launch::{Counts, Launch};

/// The name of the manifest in each server's folder.
pub const FILE_NAME: &str = "server.toml";

/// A server of the catalogue, or a variant of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogueServer {
    /// The id, such as `go/net-http`. The id of a variant is `go/net-http:name`.
    pub id: String,
    /// A one-sentence description.
    pub about: String,
    /// The URL of the server's documentation.
    pub url: String,
    /// The kind of server.
    pub kind: ServerKind,
    /// The contracts that the server implements.
    pub contracts: Vec<contract::Name>,
    /// The protocols that the server speaks on its port. Protocols over TLS need a certificate at
    /// the start.
    pub protocols: Vec<SpokenProtocol>,
    /// How the server is built.
    pub toolchain: Toolchain,
    /// The command that starts the server, in the folder of its build.
    pub command: Vec<String>,
    /// Environment variables to add.
    pub env: BTreeMap<String, String>,
    /// Environment variables to add only when the server is observed.
    pub explain_env: BTreeMap<String, String>,
    /// The exact response to `GET /api/hello`, for the contract `api`.
    pub api: Option<Api>,
    /// A side effect that must happen for each request.
    pub counts: Option<Counts>,
    /// Whether the server keeps connections open. A server that closes connections by design
    /// announces the close in each response.
    pub keep_alive: bool,
    /// The server's folder in the catalogue.
    pub folder: PathBuf,
    /// The line of `server.toml` that has the server's command, counted from 1.
    pub command_line: usize,
}

/// The kind of server, which decides which checks are required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    /// A framework with routing, which must reject unknown paths.
    Framework,
    /// A server from a language's standard library.
    StandardLibrary,
    /// A server that was written by hand on bare sockets.
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

/// How a server is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// The commands that succeed if the toolchain is installed.
    pub probe: Vec<Vec<String>>,
    /// The system packages that provide the toolchain.
    pub install: Install,
    /// The commands that build the server, in a copy of its folder.
    pub build: Vec<Vec<String>>,
    /// The command whose first line of output is the version. If empty, the output of the probe is
    /// used.
    pub version: Vec<String>,
    /// Where to get the toolchain if no common registry has it.
    pub upstream: Option<Upstream>,
}

/// System packages, by package manager.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Install {
    /// The packages for Debian and derivatives.
    #[serde(default, deserialize_with = "packages")]
    pub apt: Vec<String>,
    /// The packages for Homebrew.
    #[serde(default, deserialize_with = "packages")]
    pub brew: Vec<String>,
}

/// Parses names of packages. The names become arguments of a command that runs as root, so no name
/// may be an option.
fn packages<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    let is_name = |name: &String| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-.:=~_@/".contains(c))
    };
    match names.iter().find(|name| !is_name(name)) {
        Some(name) => Err(D::Error::custom(format!("{name:?} is not the name of a package"))),
        None => Ok(names),
    }
}

/// Where to get a toolchain that no common registry has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The command that installs the toolchain, on a machine that can reach the source.
    pub install: String,
    /// Why the toolchain is not available elsewhere.
    pub why: String,
}

/// Why a manifest cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", file.display(), line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct ManifestError {
    /// The path of the manifest.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// What is wrong, and what to do.
    pub what: String,
}

/// Reads the manifest in `folder`. Returns the server first, then its variants by name.
///
/// # Errors
/// If the file is missing, unreadable or invalid.
pub fn read(folder: &Path, id: &str) -> Result<Vec<CatalogueServer>, ManifestError> {
    let file = folder.join(FILE_NAME);
    let text = std::fs::read_to_string(&file).map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("this folder has no {FILE_NAME}, which every server needs")
            }
            _ => format!("cannot read the file: {error}"),
        };
        ManifestError { file: file.clone(), line: None, what }
    })?;
    parse(&text, folder, id)
}

/// Parses the text of a manifest.
///
/// # Errors
/// If the manifest is invalid.
pub fn parse(text: &str, folder: &Path, id: &str) -> Result<Vec<CatalogueServer>, ManifestError> {
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

/// Returns the line of a byte offset in a text, counted from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|&&b| b == b'\n').count()
}

type Commands = Vec<Spanned<Vec<String>>>;
type Env = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    about: String,
    url: String,
    kind: ServerKind,
    contracts: Spanned<Vec<contract::Name>>,
    protocols: Option<Spanned<Vec<SpokenProtocol>>>,
    toolchain: ToolchainKeys,
    run: RunKeys,
    #[serde(default)]
    explain: ExplainKeys,
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
    env: Env,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainKeys {
    #[serde(default)]
    env: Env,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantKeys {
    about: Option<String>,
    contracts: Option<Spanned<Vec<contract::Name>>>,
    protocols: Option<Spanned<Vec<SpokenProtocol>>>,
    command: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    env: Env,
    #[serde(default)]
    explain: ExplainKeys,
    build: Option<Commands>,
    version: Option<Spanned<Vec<String>>>,
    probe: Option<Spanned<Probes>>,
    install: Option<Install>,
    upstream: Option<Upstream>,
    api: Option<Api>,
    counts: Option<Counts>,
    keep_alive: Option<bool>,
}

type Complaint = (Range<usize>, String);

/// Merges a variant into its base. The variables of `env` and `explain.env` and the keys of the
/// toolchain are merged one by one. Everything else replaces the base's value.
fn resolve(
    keys: &Keys,
    variant: &VariantKeys,
    id: String,
    folder: &Path,
    text: &str,
) -> Result<CatalogueServer, Complaint> {
    let base = &keys.toolchain;
    let probe = variant.probe.as_ref().unwrap_or(&base.probe);
    for command in probe.get_ref().commands() {
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
        return Err((contracts.span(), format!("no contract: list at least one of {known}")));
    }
    let api = variant.api.as_ref().or(keys.api.as_ref());
    if api.is_none() && contracts.get_ref().contains(&contract::Name::Api) {
        return Err((
            contracts.span(),
            "the contract \"api\" needs a response in [api]: add body and content_type".to_owned(),
        ));
    }
    let protocols = match variant.protocols.as_ref().or(keys.protocols.as_ref()) {
        Some(listed) if listed.get_ref().is_empty() => {
            let known = SpokenProtocol::ALL.map(|name| format!("\"{name}\"")).join(", ");
            return Err((listed.span(), format!("no protocol: list at least one of {known}")));
        }
        Some(listed) => {
            SpokenProtocol::ALL.into_iter().filter(|p| listed.get_ref().contains(p)).collect()
        }
        None => vec![SpokenProtocol::Http1],
    };
    let merged = |base: &Env, own: &Env| base.clone().into_iter().chain(own.clone()).collect();
    Ok(CatalogueServer {
        id,
        about: variant.about.as_ref().unwrap_or(&keys.about).clone(),
        url: keys.url.clone(),
        kind: keys.kind,
        contracts: contracts.get_ref().clone(),
        protocols,
        toolchain: Toolchain {
            probe: probe.get_ref().commands().to_vec(),
            install: with_database(variant.install.as_ref().unwrap_or(&base.install), contracts),
            build: build.iter().map(|command| command.get_ref().clone()).collect(),
            version: version.map(|version| version.get_ref().clone()).unwrap_or_default(),
            upstream: variant.upstream.as_ref().or(base.upstream.as_ref()).cloned(),
        },
        command: command.get_ref().clone(),
        env: merged(&keys.run.env, &variant.env),
        explain_env: merged(&keys.explain.env, &variant.explain.env),
        api: api.cloned(),
        counts: variant.counts.as_ref().or(keys.counts.as_ref()).cloned(),
        keep_alive: variant.keep_alive.or(keys.keep_alive).unwrap_or(true),
        folder: folder.to_owned(),
        command_line: line_of(text, command.span().start),
    })
}

/// Returns the packages of a server, and PostgreSQL if one of these contracts needs a database.
fn with_database(packages: &Install, contracts: &Spanned<Vec<contract::Name>>) -> Install {
    let mut packages = packages.clone();
    if contracts.get_ref().iter().any(|contract| contract.needs_database()) {
        packages.apt.push("postgresql".to_owned());
        packages.brew.push("postgresql".to_owned());
    }
    packages
}

fn filled(span: Range<usize>, command: &[String], key: &str) -> Result<(), Complaint> {
    match command.first() {
        Some(program) if !program.trim().is_empty() => Ok(()),
        _ => Err((span, format!("{key} is empty: give a program and its arguments"))),
    }
}

impl CatalogueServer {
    /// Returns the id without its variant, which is the path of the server's folder.
    pub fn base_id(&self) -> &str {
        self.id.split_once(':').map_or(&self.id, |(base, _)| base)
    }

    /// Returns whether one of the server's contracts needs a database.
    pub fn needs_database(&self) -> bool {
        self.contracts.iter().any(|contract| contract.needs_database())
    }

    /// Returns the command that starts the server in `folder`.
    pub fn launch(&self, folder: PathBuf) -> Launch {
        Launch {
            argv: self.command.clone(),
            env: self.env.clone(),
            explain_env: self.explain_env.clone(),
            prepare: None,
            cwd: folder,
            tls: None,
            has_database: false,
            has_files: self.contracts.contains(&contract::Name::Static),
        }
    }

    /// Returns the language, which is the first part of the id.
    pub fn language(&self) -> &str {
        self.id.split_once('/').map_or(&self.id, |(language, _)| language)
    }
}

/// A protocol that a server speaks on its port. With a certificate, a server speaks its protocols
/// over TLS. Without a certificate, the server speaks its other protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpokenProtocol {
    /// HTTP/1.1 without TLS.
    #[serde(rename = "http/1.1")]
    Http1,
    /// HTTP/2 without TLS, for clients that begin with the preface of HTTP/2 (RFC 9113 section
    /// 3.3).
    #[serde(rename = "h2c")]
    H2c,
    /// HTTP/1.1 over TLS.
    #[serde(rename = "https")]
    Https,
    /// HTTP/2 over TLS, for clients that ask for it in the handshake (RFC 9113 section 3.2).
    #[serde(rename = "h2")]
    H2,
}

impl SpokenProtocol {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::Http1, Self::H2c, Self::Https, Self::H2];

    /// Returns the protocol for a version of HTTP, with or without TLS.
    pub const fn of(version: plan::Protocol, is_tls: bool) -> Self {
        match (version, is_tls) {
            (plan::Protocol::Http1, false) => Self::Http1,
            (plan::Protocol::Http2, false) => Self::H2c,
            (plan::Protocol::Http1, true) => Self::Https,
            (plan::Protocol::Http2, true) => Self::H2,
        }
    }

    /// Returns the version of HTTP.
    pub const fn version(self) -> plan::Protocol {
        match self {
            Self::Http1 | Self::Https => plan::Protocol::Http1,
            Self::H2c | Self::H2 => plan::Protocol::Http2,
        }
    }

    /// Returns whether the protocol runs over TLS.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::H2)
    }

    /// Returns the name of the protocol in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "http/1.1",
            Self::H2c => "h2c",
            Self::Https => "https",
            Self::H2 => "h2",
        }
    }

    /// Returns the name of the protocol in sentences.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::H2c => "HTTP/2 without TLS",
            Self::Https => "HTTPS",
            Self::H2 => "HTTP/2 over TLS",
        }
    }
}

impl fmt::Display for SpokenProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The value of the key `probe`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a probe is one command or a list of commands, not a mixture")]
enum Probes {
    One(Vec<String>),
    Several(Vec<Vec<String>>),
}

impl Probes {
    fn commands(&self) -> &[Vec<String>] {
        match self {
            Self::One(command) => std::slice::from_ref(command),
            Self::Several(commands) => commands,
        }
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
explain.env.C = "2"

[variants.two-probes]
probe = [["go", "version"], ["gcc", "-v"]]
contracts = ["hello"]

[explain]
env = { C = "1" }
"#;

    fn parsed(text: &str) -> Result<Vec<CatalogueServer>, ManifestError> {
        parse(text, Path::new("servers/go/x"), "go/x")
    }

    fn complaint(text: &str) -> String {
        parsed(text).unwrap_err().to_string()
    }

    /// Regression: `apt-get install`, run as root, took an option from a manifest and executed it.
    #[test]
    fn packages_are_names_and_never_options() {
        for name in ["-o", "--yes", "Dir::Bin=/x; rm", "", "a b"] {
            let error = parsed(&WHOLE.replace("golang-go", name)).unwrap_err().to_string();
            assert!(error.contains("is not the name of a package"), "{name}: {error}");
        }
        for name in ["libssl-dev", "g++-12", "openssl@3", "python3:any", "gcc=4:12.2.0-3"] {
            assert!(parsed(&WHOLE.replace("golang-go", name)).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_variant_overrides_its_own_keys_and_keeps_the_rest() {
        let servers = parsed(WHOLE).unwrap();
        let ids: Vec<_> = servers.iter().map(|s| s.id.as_str()).collect();
        assert_eq!(ids, ["go/x", "go/x:nogc", "go/x:two-probes"]);
        let env: Vec<_> = servers[1].env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(env, ["A=1", "B=3", "GOGC=off"]);
        assert_eq!([0, 1, 2].map(|n| servers[n].explain_env["C"].as_str()), ["1", "2", "1"]);
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
            "servers/go/x/server.toml:14: command is empty: give a program and its arguments"
        );
        let text = WHOLE.replace("probe   = [\"go\", \"version\"]", "probe = []");
        assert_eq!(
            complaint(&text),
            "servers/go/x/server.toml:8: probe is empty: give a program and its arguments"
        );
    }

    #[test]
    fn an_unknown_contract_lists_the_known_ones() {
        let text = WHOLE.replace("\"json-api\"", "\"jsonapi\"");
        assert_eq!(
            complaint(&text),
            "servers/go/x/server.toml:5: unknown variant `jsonapi`, expected one of `hello`, \
             `clock`, `api`, `json-api`, `json`, `db`, `queries`, `updates`, `fortunes`, `cached`, \
             `upload`, `delay`, `static`"
        );
    }

    #[test]
    fn the_contract_api_needs_its_response() {
        let text = WHOLE.replace("\"json-api\"", "\"api\"");
        assert!(complaint(&text).contains(":5: the contract \"api\" needs a response"));
        let text = text + "[api]\nbody = '{}'\ncontent_type = \"application/json\"\n";
        assert_eq!(parsed(&text).unwrap()[0].api.as_ref().unwrap().body, "{}");
    }

    #[test]
    fn a_server_speaks_http_1_unless_its_manifest_lists_protocols() {
        assert_eq!(parsed(WHOLE).unwrap()[0].protocols, [SpokenProtocol::Http1]);
        let text = WHOLE.replace("[toolchain]", "protocols = [\"http/1.1\", \"h2c\"]\n[toolchain]");
        let text = text.replace("[variants.nogc]", "[variants.nogc]\nprotocols = [\"h2c\"]");
        let servers = parsed(&text).unwrap();
        assert_eq!(servers[0].protocols, [SpokenProtocol::Http1, SpokenProtocol::H2c]);
        assert_eq!(servers[1].protocols, [SpokenProtocol::H2c]);
        assert_eq!(servers[2].protocols, servers[0].protocols);
        assert_eq!(
            complaint(&text.replace("[\"h2c\"]", "[\"spdy\"]")),
            "servers/go/x/server.toml:19: unknown variant `spdy`, expected one of `http/1.1`, \
             `h2c`, `https`, `h2`"
        );
        let known = "\"http/1.1\", \"h2c\", \"https\", \"h2\"";
        let what =
            format!("servers/go/x/server.toml:19: no protocol: list at least one of {known}");
        assert_eq!(complaint(&text.replace("[\"h2c\"]", "[]")), what);
    }

    #[test]
    fn a_mixed_probe_is_an_error() {
        let text = WHOLE.replace("[\"go\", \"version\"]\n", "[\"go\", [\"gcc\"]]\n");
        assert!(complaint(&text).contains(":8: a probe is one command or a list of commands"));
    }

    #[test]
    fn a_syntax_error_is_reported_with_its_line() {
        let text = WHOLE.replace("[run]", "[run");
        assert!(complaint(&text).starts_with("servers/go/x/server.toml:13: "));
    }

    #[test]
    fn a_missing_manifest_is_an_error_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = read(folder.path(), "go/x").unwrap_err().to_string();
        assert!(
            error
                .ends_with("server.toml: this folder has no server.toml, which every server needs")
        );
    }
}
