//! Groups of options that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hotlap_bench::suite::STREAMS;
use hotlap_load::plan::{Protocol, Reuse, Shape};

use crate::exit::usage;
use crate::quantity;

/// Where runs are stored.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store and exports")]
pub struct StoreArgs {
    /// Store file (default: hotlap.db in the user's data directory)
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

/// Where a report is written to.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Store and exports")]
pub struct ExportArgs {
    /// All figures and laps (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,
    /// The table and the sentences
    #[arg(long, value_name = "FILE")]
    pub export_markdown: Option<PathBuf>,
    /// One line per server
    #[arg(long, value_name = "FILE")]
    pub export_csv: Option<PathBuf>,
    /// A self-contained page with charts
    #[arg(long, value_name = "FILE")]
    pub export_html: Option<PathBuf>,
    /// The main chart as a picture: requests/s, or latency at each rate
    #[arg(long, value_name = "FILE")]
    pub export_svg: Option<PathBuf>,
    /// A test case per server, for CI
    #[arg(long, value_name = "FILE")]
    pub export_junit: Option<PathBuf>,
    /// Figures for github-action-benchmark (tool: customSmallerIsBetter)
    #[arg(long, value_name = "FILE")]
    pub export_github_benchmark: Option<PathBuf>,
    /// Figures for Bencher (Bencher Metric Format)
    #[arg(long, value_name = "FILE")]
    pub export_bencher: Option<PathBuf>,
}

/// How requests travel over connections, in `run`, `capacity`, `explain` and `load`.
#[derive(Debug, Args)]
pub struct ConnectionArgs {
    /// Open a new connection for each request
    #[arg(long)]
    pub disable_keepalive: bool,
    /// Requests in flight on each connection (default: 1)
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    #[arg(conflicts_with = "http2")]
    pub pipeline: Option<usize>,
    /// HTTP/2: negotiated in TLS (ALPN) for https, without negotiation for http (prior knowledge)
    ///
    /// -c is the number of requests in flight, as with HTTP/1.1, so the number of connections is -c
    /// divided by --streams. A run leaves out the ceiling, which speaks only HTTP/1.1.
    #[arg(long)]
    pub http2: bool,
    /// Streams of each connection with --http2 (default: the largest number up to 10 by which -c
    /// can be divided)
    #[arg(long, value_name = "N", requires = "http2", value_parser = quantity::count)]
    pub streams: Option<usize>,
    /// Timeout of a request (at least 2s while the server is probed)
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = quantity::span)]
    pub timeout: Duration,
}

impl ConnectionArgs {
    /// The version of HTTP.
    pub fn protocol(&self) -> Protocol {
        if self.http2 { Protocol::Http2 } else { Protocol::Http1 }
    }

    /// Returns the shape of a load with this many requests at a time (-c). Without a number of
    /// threads, the load has 1 thread. `closes` says whether each request has its own connection.
    pub fn shape(
        &self,
        in_flight: usize,
        threads: Option<usize>,
        closes: bool,
    ) -> anyhow::Result<Shape> {
        let (connections, pipeline) = match self.http2 {
            true => streams(in_flight, self.streams, closes)?,
            false => (in_flight, self.pipeline.unwrap_or(1)),
        };
        Ok(Shape { connections, threads: threads.unwrap_or(1), reuse: Reuse::of(closes), pipeline })
    }

    /// The flags that change the shape or the protocol of a load, and whether each was given.
    pub fn given(&self) -> [(&'static str, bool); 3] {
        [
            ("--disable-keepalive", self.disable_keepalive),
            ("--pipeline", self.pipeline.is_some()),
            ("--http2", self.http2),
        ]
    }
}

/// Returns how many connections, with how many streams each, carry this many requests at a time.
/// All connections have the same number of streams. The default is the largest number up to
/// [`STREAMS`] by which the requests can be divided, or 1 if each request has its own connection.
fn streams(
    in_flight: usize,
    streams: Option<usize>,
    closes: bool,
) -> anyhow::Result<(usize, usize)> {
    let usual = || {
        let most = if closes { 1 } else { STREAMS };
        (1..=most).rev().find(|streams| in_flight.is_multiple_of(*streams)).unwrap_or(1)
    };
    let streams = streams.unwrap_or_else(usual).max(1);
    if !in_flight.is_multiple_of(streams) {
        return usage(format!(
            "{in_flight} requests at a time (-c) cannot be divided among connections of {streams} \
             streams: use -c {} or {}, or other --streams",
            (in_flight / streams).max(1) * streams,
            in_flight.next_multiple_of(streams)
        ));
    }
    Ok((in_flight / streams, streams))
}

/// One request, or the requests of an access log, and the expected response.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub struct AskArgs {
    /// Method (default: GET, or POST with a body). To probe the server, POST and other unsafe
    /// methods are sent only once: then only the status is checked, and the body if --expect-body
    /// is given
    #[arg(short, long, value_name = "METHOD", visible_short_alias = 'X')]
    pub method: Option<String>,
    /// Header of the request. Repeat the option for more. Values of headers such as Authorization
    /// and Cookie, and of --redact, are sent, but not stored or shown
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// Body of the request. @FILE reads the body from a file
    #[arg(long, value_name = "TEXT|@FILE")]
    pub body: Option<String>,
    /// Replay an access log: the requests of a server, in Common or Combined Log Format (Apache,
    /// nginx), or JSON (Caddy, nginx)
    ///
    /// Each response must have the status in the log. Bodies are not compared. Without
    /// --unsafe-methods, only GET and HEAD are sent. Headers are not in a log: add them with -H.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["requests_file", "method", "body", "expect_status", "expect_body"]
    )]
    pub access_log: Option<PathBuf>,
    /// How the requests of the log are sent.
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// Expected status (default: 200 to 299)
    #[arg(long, value_name = "N")]
    pub expect_status: Option<u16>,
    /// Expected body (default: the body that the probes received, except for the parts that vary)
    #[arg(long, value_name = "TEXT|@FILE")]
    pub expect_body: Option<String>,
}

/// How the requests of an access log are sent.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Request")]
pub struct ReplayArgs {
    /// How the requests of --access-log are sent
    #[arg(long, value_name = "HOW")]
    pub replay: Option<ReplayMode>,
    /// Also send POST, PUT, DELETE, ... of --access-log, without bodies, which logs do not have
    #[arg(long)]
    pub unsafe_methods: bool,
}

/// In which order, and when, the requests of an access log are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReplayMode {
    /// In the order of the log, then again from the first (the default).
    Order,
    /// Each as often as in the log, in a random order that follows from --seed.
    Weights,
    /// Each at its time in the log, in an open loop (`hotlap load` only).
    Times,
}

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
    /// The client's certificate, with the certificates that lead to its authority (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// The private key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// The server's name in the handshake (SNI) and in its certificate (default: the name in the
    /// URL)
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,
    /// Offer only these cipher suites (TLS_AES_256_GCM_SHA384,...; default: all, with --https those
    /// with AES-128-GCM)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub ciphers: Vec<String>,
    /// Let connections resume TLS sessions. Otherwise each handshake is a full handshake
    #[arg(long)]
    pub tls_resume: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a load with -c 15 and 10 streams per connection had 20 requests in flight.
    #[test]
    fn as_many_requests_are_in_flight_as_asked() {
        let of = |in_flight, asked| streams(in_flight, asked, false).ok();
        assert_eq!(of(64, None), Some((8, 8)));
        assert_eq!(of(15, None), Some((3, 5)));
        assert_eq!(of(13, None), Some((13, 1)));
        assert_eq!(of(20, Some(10)), Some((2, 10)));
        assert_eq!(of(15, Some(10)), None);
        assert_eq!(streams(64, None, true).ok(), Some((64, 1)));
    }
}
