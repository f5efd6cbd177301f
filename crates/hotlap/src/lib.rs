//! hotlap: hyperfine for HTTP servers.
//!
//! Rooms: [`cli`] says what can be typed, and [`config`] the user's defaults; [`cmd`] holds one
//! verb a file; [`record`] is what is kept; [`store`] keeps it (the only SQL); [`report`] makes
//! finished words and figures of it, which its renderers only lay out; [`timekeeper`] stands
//! between an experiment and all of these; [`console`] and [`live`] are what the user looks at. This is
//! the only crate that prints.

pub mod assets;
pub mod cli;
pub mod cmd;
pub mod config;
pub mod console;
pub mod exit;
pub mod export;
pub mod interrupt;
pub mod live;
pub mod paths;
pub mod quantity;
pub mod record;
pub mod redact;
pub mod report;
pub mod store;
pub mod text;
pub mod timekeeper;
