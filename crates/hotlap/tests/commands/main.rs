//! Tests commands as a user types them: what they print, and their exit codes.

mod access_log;
mod action;
mod bisect;
mod certificate;
mod cli;
mod database;
mod escapes;
mod load;
mod places;
mod program;
mod requests_file;
mod secrets;
mod shards;
mod timeline;
mod unruly;
