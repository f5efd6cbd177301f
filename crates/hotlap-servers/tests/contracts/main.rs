//! What servers respond: learned, verified and checked.

#[path = "../../../hotlap-load/tests/support/certificate.rs"]
mod certificate;

mod check;
mod learn;
mod tls;
mod verify;
