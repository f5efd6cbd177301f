//! Sessions: their windows, and what is counted in them.

#[path = "../support/plan.rs"]
mod plan;

mod censored;
mod held;
mod session;
