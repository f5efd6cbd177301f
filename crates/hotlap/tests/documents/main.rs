//! Tests the documents and generates parts of them.

mod catalogue;
mod circles;
mod documents;
mod example;
mod pool_page;
#[path = "../reports/scene.rs"]
mod scene;
mod sizing_page;
mod suites;
mod tidy;
