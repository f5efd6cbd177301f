//! Where runs are stored and reports are written to: options of several commands.

use std::path::PathBuf;

use clap::Args;

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
    /// The main chart as a picture: requests/s, or latency over the rate
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
