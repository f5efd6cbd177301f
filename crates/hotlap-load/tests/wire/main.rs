//! Tests of what goes over the wire: requests as they are sent, and responses of every kind.

#[path = "../support/certificate.rs"]
mod certificate;
#[path = "../support/plan.rs"]
mod plan;
#[path = "../support/tls.rs"]
mod secure;

mod conversation;
mod framing;
mod misbehaving;
mod multiplexed;
mod tls;
