//! hotlap: hyperfine for HTTP servers.
//!
//! [`cli`] defines the command line, [`config`] reads the user's defaults, and [`cmd`] carries out
//! the commands. [`recorder`] turns the events of a run into a [`model::Run`]. [`store`] stores
//! the run, and is the only module with SQL. [`analysis`] computes the figures and verdicts of a
//! run, [`report`] puts them into words, and [`render`] lays them out. [`pool`] divides a suite
//! among machines and merges their runs. [`certificate`] says how small a difference a machine can
//! find. [`console`] and [`live`] write to the terminal. No other crate prints.

pub mod analysis;
pub mod assets;
pub mod certificate;
pub mod cli;
pub mod cmd;
pub mod config;
pub mod console;
pub mod exit;
pub mod export;
pub mod interrupt;
pub mod live;
pub mod model;
pub mod paths;
pub mod pool;
pub mod quantity;
pub mod recorder;
pub mod redact;
pub mod render;
pub mod report;
pub mod slo;
pub mod store;
pub mod text;
