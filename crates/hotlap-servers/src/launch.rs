//! A command that starts a server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hotlap_load::plan::Tls;
use serde::{Deserialize, Serialize};

use crate::certificate::Certificate;

/// The environment variables that name the files of a server's certificate and its private key. A
/// server that is started with them speaks TLS on its port.
pub const TLS_CERT: &str = "TLS_CERT";
/// See [`TLS_CERT`].
pub const TLS_KEY: &str = "TLS_KEY";

/// A command that starts a server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Launch {
    /// Program and arguments. At the start, `$PORT`, `${PORT}` and `{port}` are replaced as whole
    /// words, as are `HOST`, `CPUS`, and with TLS [`TLS_CERT`] and [`TLS_KEY`].
    pub argv: Vec<String>,
    /// Environment variables to add, with the same replacements. `PORT`, `HOST` and `CPUS` are
    /// always added.
    pub env: BTreeMap<String, String>,
    /// Environment variables to add only when the server is observed, with the same replacements:
    /// they make a runtime name the functions that it compiles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub explain_env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: PathBuf,
    /// A shell command that runs to its end in the same directory before each start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// How it is spoken to over TLS; `None`: without TLS.
    #[serde(default)]
    pub tls: Option<Tls>,
}

impl Launch {
    /// Starts it with a certificate, which is trusted unless `tls` says what is.
    pub fn with_certificate(mut self, certificate: &Certificate, mut tls: Tls) -> Self {
        if tls.authorities.is_empty() && !tls.insecure {
            tls.authorities = vec![certificate.der.clone()];
        }
        let files = [(TLS_CERT, &certificate.file), (TLS_KEY, &certificate.key_file)];
        self.env.extend(files.map(|(name, file)| (name.to_owned(), file.display().to_string())));
        self.tls = Some(tls);
        self
    }
}

/// A side effect that must happen a known number of times per request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// The file whose lines are counted, in the server's folder. Lines from before the start do not
    /// count.
    pub file: String,
    /// Lines per request.
    pub per_request: u32,
}
