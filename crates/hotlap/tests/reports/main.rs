//! Tests whole runs with scripted laps, which are stored, analysed, and reported in every form.

mod browser;
mod by_request;
mod capacity;
mod compare;
mod explain;
mod exports;
mod layers;
mod loads;
mod page;
mod pool;
mod resume;
mod run;
mod scene;
mod store;
mod stragglers;
mod stressed;
mod verdicts;
