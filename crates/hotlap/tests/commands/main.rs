//! Commands as a user types them: what they print, and their exit codes.

#[path = "../input/mod.rs"]
mod input;

mod access_log;
mod action;
mod cli;
mod escapes;
mod load;
mod requests_file;
mod secrets;
mod suites;
mod words;
