//! hotlap: hyperfine for HTTP servers.
//!
//! [`cli`] is what can be typed, and [`config`] the user's defaults; [`cmd`] has one command a
//! file. [`recorder`] makes a [`model::Run`] of the events of a run; [`store`] keeps it (the only
//! SQL). [`analysis`] makes every number and verdict of it, [`report`] puts these into words, and
//! [`render`] lays them out. [`console`] and [`live`] are what the user looks at. This is the only
//! crate that prints.

pub mod analysis;
pub mod assets;
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
pub mod quantity;
pub mod recorder;
pub mod redact;
pub mod render;
pub mod report;
pub mod store;
pub mod text;
