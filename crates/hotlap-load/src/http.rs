//! Bytes out, response framing in: HTTP/1.1 (RFC 9112) without a socket, so that it can be fuzzed.
