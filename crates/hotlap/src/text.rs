//! Text for people: escapes for control characters, numbers, dates, tables, wrapped lines. Nothing
//! here depends on what hotlap measures.

pub mod date;
mod escape;
pub mod layout;
pub mod number;
mod sparkline;
pub mod table;
mod wrap;

pub use escape::{is_hidden, visible, visible_ink, visible_json, visible_lines};
pub use sparkline::sparkline;
pub use wrap::{capital, flow, hanging, wrap};
