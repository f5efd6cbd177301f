//! What to do about requests that failed.

use hotlap_load::Failure;

/// The likely cause of failures of one kind, and what to do.
pub fn remedy(failure: Failure) -> &'static str {
    match failure {
        Failure::Refused => {
            "Possibly nothing listens there any more, or the server's accept queue is full: look \
             into the server's log, and try fewer connections (-c)."
        }
        Failure::Reset | Failure::ClosedEarly | Failure::Truncated => {
            "Possibly the server closes connections without announcing it (Connection: close): \
             look into the server's log, or open a connection for each request \
             (--disable-keepalive)."
        }
        Failure::Timeout => {
            "Look into the server's log, and try fewer connections (-c) or a longer --timeout."
        }
        Failure::NoPort => {
            "No local port is free, because a closed connection occupies its port for a minute: \
             keep connections open, or send fewer requests."
        }
        Failure::BadFraming | Failure::WrongBody | Failure::WrongStatus => {
            "The responses differ from the expected ones: `hotlap check` shows them."
        }
        Failure::Tls => "The server ended TLS with an error: look into the server's log.",
        Failure::StreamReset => {
            "The server reset streams: look into the server's log, and try fewer --streams."
        }
        Failure::Other => {
            "A system call failed: check `ulimit -n`, and the network between hotlap and the \
             server."
        }
    }
}
