//! Text for people: escapes for control characters, numbers, dates, tables and wrapped lines.
//! Nothing here depends on what hotlap measures.

mod escape;
pub mod layout;
pub mod number;
pub mod table;

pub use escape::{is_hidden, json, name, visible, visible_ink, visible_json, visible_lines};
pub use layout::{capital, flow, hanging, wrap};
