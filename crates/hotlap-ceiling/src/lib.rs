//! The ceiling, and servers of known behaviour.
