//! Flags about TLS.

use std::path::PathBuf;

use clap::Args;

/// How servers are reached over TLS.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// Accept any TLS certificate
    #[arg(short = 'k', long)]
    pub insecure: bool,
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub cacert: Option<PathBuf>,
    /// The client's own certificate, with those that lead to its authority (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// The private key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// The server's name in the handshake (SNI) and in its certificate (default: that of the URL)
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,
    /// Offer only these cipher suites (TLS_AES_256_GCM_SHA384,...; default: all, with --https those
    /// with AES-128-GCM)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub ciphers: Vec<String>,
    /// Let connections resume TLS sessions; otherwise each handshake is a full one
    #[arg(long)]
    pub tls_resume: bool,
}
