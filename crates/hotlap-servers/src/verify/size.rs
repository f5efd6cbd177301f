//! How large a response may be, in both protocols.

/// The largest response that the verifier accepts.
pub(super) const ANSWER_LIMIT: usize = 64 << 20;

/// Why a response is not read to its end.
pub(super) fn too_large() -> String {
    format!("a response of over {} MiB", ANSWER_LIMIT >> 20)
}
