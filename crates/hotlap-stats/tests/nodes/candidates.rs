//! Candidates for merging nodes. Each returns an estimate in log units and half the width of its
//! 95% interval.

use std::collections::BTreeMap;

use hotlap_stats::{Mean, student};

/// An estimator. It gets one pair per restart, labelled with the restart's node.
pub type Candidate = fn(&[(u32, f64)]) -> (f64, f64);

pub const CANDIDATES: [(&str, Candidate); 4] = [
    ("Student's over nodes", students),
    ("Paule and Mandel, Hartung and Knapp", hartung_knapp),
    ("DerSimonian and Laird", dersimonian_laird),
    ("fixed effect", fixed),
];

/// The method that hotlap uses.
pub fn students(pairs: &[(u32, f64)]) -> (f64, f64) {
    let found = Mean::of(pairs.iter().copied()).unwrap().effect(0.95);
    (found.ratio.value.ln(), (found.ratio.high / found.ratio.low).ln() / 2.0)
}

/// Returns the mean of each node, and its squared standard error from the node's own restarts.
fn nodes(pairs: &[(u32, f64)]) -> Vec<(f64, f64)> {
    let mut nodes = BTreeMap::<u32, Vec<f64>>::new();
    for (node, log) in pairs {
        nodes.entry(*node).or_default().push(*log);
    }
    let of = |values: &Vec<f64>| {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        (mean, squares / (n - 1.0) / n)
    };
    nodes.values().map(of).collect()
}

/// Returns the weighted mean, the sum of weights, and the weighted sum of squares around the mean.
fn weighted(nodes: &[(f64, f64)], between: f64) -> (f64, f64, f64) {
    let weights: Vec<f64> = nodes.iter().map(|(_, error)| 1.0 / (error + between)).collect();
    let sum: f64 = weights.iter().sum();
    let centre = nodes.iter().zip(&weights).map(|((y, _), w)| y * w).sum::<f64>() / sum;
    let q = nodes.iter().zip(&weights).map(|((y, _), w)| w * (y - centre).powi(2)).sum();
    (centre, sum, q)
}

/// The random-effects model with the variance of Paule and Mandel ("Consensus values and weighting
/// factors", J. Res. NBS 87, 1982) and the interval of Hartung and Knapp (Statistics in Medicine
/// 20, 2001).
fn hartung_knapp(pairs: &[(u32, f64)]) -> (f64, f64) {
    let nodes = nodes(pairs);
    let df = (nodes.len() - 1) as f64;
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if weighted(&nodes, middle).2 > df { low = middle } else { high = middle }
    }
    let (centre, sum, q) = weighted(&nodes, high);
    (centre, student::quantile(0.05, df) * (q / df / sum).sqrt())
}

/// The random-effects model of most meta-analyses (Controlled Clinical Trials 7, 1986).
fn dersimonian_laird(pairs: &[(u32, f64)]) -> (f64, f64) {
    let nodes = nodes(pairs);
    let (_, sum, q) = weighted(&nodes, 0.0);
    let squares: f64 = nodes.iter().map(|(_, error)| error.powi(-2)).sum();
    let between = ((q - (nodes.len() - 1) as f64) / (sum - squares / sum)).max(0.0);
    let (centre, sum, _) = weighted(&nodes, between);
    (centre, 1.959_964 / sum.sqrt())
}

/// The fixed-effect model, which assumes that nodes do not differ.
fn fixed(pairs: &[(u32, f64)]) -> (f64, f64) {
    let (centre, sum, _) = weighted(&nodes(pairs), 0.0);
    (centre, 1.959_964 / sum.sqrt())
}
