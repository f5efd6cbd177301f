//! Tests of what servers respond: learned, verified and checked.

#[path = "../../../hotlap-load/tests/support/certificate.rs"]
mod certificate;

use std::sync::atomic::AtomicBool;

mod allocation;
mod check;
mod http2;
mod learn;
mod tls;
mod verify;

/// A flag that is never set, because nobody interrupts.
static GOES_ON: AtomicBool = AtomicBool::new(false);
