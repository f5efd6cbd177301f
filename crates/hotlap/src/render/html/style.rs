//! The style sheet of the page.

/// The style sheet. It begins with the colours for light and dark.
pub const STYLE: &str = include_str!("page.css");
