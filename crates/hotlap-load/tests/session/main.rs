//! Tests of sessions: their windows, and what is counted in a window.

#[path = "../support/plan.rs"]
mod plan;

mod censored;
mod held;
mod session;
