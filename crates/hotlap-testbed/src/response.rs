//! The responses of the contract `hello`, as bytes.

/// The response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// To `GET /`.
    Greeting,
    /// To `HEAD /`.
    GreetingHead,
    /// To another path.
    NotFound,
    /// To another method.
    MethodNotAllowed,
}

impl Reply {
    /// Appends the response; with `close`, it announces the end of the connection.
    #[inline]
    pub fn write(self, close: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(match (self, close) {
            (Self::Greeting, false) => {
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\n\
                  Hello, World!"
            }
            (Self::Greeting, true) => {
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\
                  Connection: close\r\n\r\nHello, World!"
            }
            (Self::GreetingHead, false) => {
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\n"
            }
            (Self::GreetingHead, true) => {
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\
                  Connection: close\r\n\r\n"
            }
            (Self::NotFound, _) => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            (Self::MethodNotAllowed, _) => {
                b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\n\r\n"
            }
        });
    }
}

/// Appends the response to an invalid request.
pub(crate) fn refuse(status: u16, out: &mut Vec<u8>) {
    let reason = match status {
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Bad Request",
    };
    out.extend_from_slice(
        format!("HTTP/1.1 {status} {reason}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .as_bytes(),
    );
}
