//! hotlap: hyperfine for HTTP servers.

fn main() {}
