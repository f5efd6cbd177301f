//! HTTP/1.1 framing (RFC 9112) without sockets, so that it can be tested and fuzzed on its own.
//!
//! Two readers share the same rules. [`ResponseReader`] is for the engine: it takes bytes in any
//! pieces that the network delivers, and buffers only a head that arrives in parts.
//! [`read_response`] is for verification: a buffer in, a complete [`Response`] out, with its
//! headers and decoded body.
//!
//! Both are strict where a lenient reader would hide a fault of the server: lines must end in CRLF,
//! and a response with conflicting lengths, or with both a length and chunks, is an error.

mod body;
mod error;
mod head;
mod reader;
mod response;

pub use error::ResponseError;
pub use head::{Framing, Head};
pub use reader::{ResponseEvent, ResponseReader};
pub use response::{GrowingResponse, Response, read_response};

/// Whether a text is a token, as the name of a header must be (RFC 9110 section 5.6.2).
pub fn is_token(text: &str) -> bool {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.chars().all(is_token)
}

#[cfg(test)]
pub(crate) use head::{head_end, parse_head};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_letters_digits_and_some_signs() {
        for token in ["X-Id", "a", "9", "!#$%&'*+-.^_`|~"] {
            assert!(is_token(token), "{token}");
        }
        for text in ["", "X Id", "X:", "(a)", "ä", "a\n"] {
            assert!(!is_token(text), "{text}");
        }
    }
}
