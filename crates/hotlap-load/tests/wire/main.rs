//! What goes over the wire: requests as they are sent, and responses of every kind.

#[path = "../support/certificate.rs"]
mod certificate;
#[path = "../support/plan.rs"]
mod plan;

mod conversation;
mod framing;
mod misbehaving;
mod multiplexed;
mod tls;
