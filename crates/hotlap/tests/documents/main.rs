//! The documents, and what is generated for them.

#[path = "../catalogue/mod.rs"]
mod catalogue;
#[path = "../circles/mod.rs"]
mod circles;
#[path = "../example/mod.rs"]
mod example;
#[path = "../scene/mod.rs"]
mod scene;

mod documents;
mod pool_page;
mod scale_page;
mod tidy;
