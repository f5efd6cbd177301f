//! What the laps of every run must show, even on a busy host, where a server may give no response
//! for seconds and an agent may be late.
#![allow(dead_code)]

use serde_json::Value;

/// Whether a load or a run was measured. On a busy host, nothing of it may be valid, but its counts
/// are right.
pub fn were_measured(code: Option<i32>) -> bool {
    matches!(code, Some(0 | 4))
}

/// Every lap that counts has a cost, or no response although its requests are old.
pub fn have_costs(export: &Value) {
    let slice_ms = export["run"]["schedule"]["slice_ms"].as_f64();
    let laps = export["laps"].as_array().unwrap();
    assert!(!laps.is_empty(), "{export}");
    for lap in laps.iter().filter(|lap| lap["counts"] == true) {
        match lap["answers"].as_u64().unwrap() {
            0 => assert!(lap["max_ms"].as_f64() > slice_ms.map(|ms| ms / 2.0), "{lap}"),
            _ => assert!(lap["cpu_us"].as_f64().is_some_and(|us| us > 0.0), "{lap}"),
        }
    }
}
