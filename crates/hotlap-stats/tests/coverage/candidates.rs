//! The estimators from which the crate's was chosen (the last one). The others are kept so that the
//! choice can be repeated.

use hotlap_stats::{Pair, effect, median, student};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Location and half width of its 95 % interval, from rounds by restart.
pub type Candidate = fn(&[Vec<f64>]) -> (f64, f64);

pub const CANDIDATES: [(&str, Candidate); 9] = [
    ("t over all rounds, restarts ignored", |h| t(&h.concat())),
    ("t over restart means", |h| t(&units(h, mean))),
    ("t over restart medians", |h| t(&units(h, |b| median(b).unwrap()))),
    ("t over restart trimmed means (25 %)", |h| t(&units(h, |b| trimmed(b, 0.25)))),
    ("t over restart Hodges-Lehmann", |h| t(&units(h, |b| median(&walsh(b)).unwrap()))),
    ("sign flips of restart medians", |h| signed_rank(&units(h, |b| median(b).unwrap()))),
    ("random effects, Satterthwaite", satterthwaite),
    ("hierarchical bootstrap of medians", bootstrap),
    ("t over restart biweights (chosen)", chosen),
];

/// The estimator of the crate.
pub fn chosen(restarts: &[Vec<f64>]) -> (f64, f64) {
    let pairs: Vec<Pair> = restarts
        .iter()
        .enumerate()
        .flat_map(|(restart, rounds)| {
            rounds.iter().map(move |&log_ratio| Pair {
                restart: restart as u32,
                round: 0,
                log_ratio,
            })
        })
        .collect();
    let ratio = effect(&pairs, 0.95).unwrap().ratio;
    (ratio.value.ln(), (ratio.high / ratio.low).ln() / 2.0)
}

fn units(restarts: &[Vec<f64>], location: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    if let [one] = restarts {
        return one.clone();
    }
    restarts.iter().map(|b| location(b)).collect()
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn variance(x: &[f64]) -> f64 {
    let m = mean(x);
    x.iter().map(|v| (v - m).powi(2)).sum::<f64>() / (x.len() as f64 - 1.0)
}

fn t(x: &[f64]) -> (f64, f64) {
    let n = x.len() as f64;
    (mean(x), student::quantile(0.05, n - 1.0) * (variance(x) / n).sqrt())
}

fn trimmed(x: &[f64], share: f64) -> f64 {
    let mut x = x.to_vec();
    x.sort_by(f64::total_cmp);
    let cut = (x.len() as f64 * share).floor() as usize;
    mean(&x[cut..x.len() - cut])
}

/// The means of all pairs, a value with itself included. Their median is Hodges and Lehmann's
/// estimate ("Estimates of location based on rank tests", Annals of Mathematical Statistics 34,
/// 1963).
fn walsh(x: &[f64]) -> Vec<f64> {
    let mut means = Vec::new();
    for (i, a) in x.iter().enumerate() {
        means.extend(x[i..].iter().map(|b| f64::midpoint(*a, *b)));
    }
    means.sort_by(f64::total_cmp);
    means
}

/// Hodges and Lehmann's estimate with the interval of the exact signed-rank test; unbounded if
/// there are too few values for 95 %.
fn signed_rank(x: &[f64]) -> (f64, f64) {
    let means = walsh(x);
    let top = means.len();
    let mut ways = vec![0.0; top + 1];
    ways[0] = 1.0;
    for rank in 1..=x.len() {
        for sum in (rank..=top).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let total = 2f64.powi(x.len() as i32);
    let (mut k, mut below) = (0, 0.0);
    while k < top / 2 && (below + ways[k]) / total <= 0.025 {
        below += ways[k];
        k += 1;
    }
    if k == 0 {
        return (median(&means).unwrap(), f64::INFINITY);
    }
    let (low, high) = (means[k - 1], means[top - k]);
    (f64::midpoint(low, high), (high - low) / 2.0)
}

/// Random effects by analysis of variance: restarts and rounds are pooled if the restarts vary no
/// more than their rounds explain, and so are the degrees of freedom (Satterthwaite, "An
/// approximate distribution of estimates of variance components", Biometrics Bulletin 2, 1946).
fn satterthwaite(restarts: &[Vec<f64>]) -> (f64, f64) {
    let (h, b) = (restarts.len() as f64, restarts[0].len() as f64);
    let means = units(restarts, mean);
    if restarts.len() < 2 || restarts[0].len() < 2 {
        return t(&means);
    }
    let between = b * variance(&means);
    let within = restarts.iter().map(|x| variance(x)).sum::<f64>() / h;
    if between > within {
        return t(&means);
    }
    let (df_between, df_within) = (h - 1.0, h * (b - 1.0));
    let df = df_between + df_within;
    let pooled = (df_between * between + df_within * within) / df;
    (mean(&means), student::quantile(0.05, df) * (pooled / (h * b)).sqrt())
}

/// Restarts are resampled, then the rounds of each: the middle 95 % of the means of restart
/// medians.
fn bootstrap(restarts: &[Vec<f64>]) -> (f64, f64) {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let mut centres: Vec<f64> = (0..200)
        .map(|_| {
            let drawn: Vec<f64> = restarts
                .iter()
                .map(|_| {
                    let restart = &restarts[random.random_range(0..restarts.len())];
                    let rounds: Vec<f64> = restart
                        .iter()
                        .map(|_| restart[random.random_range(0..restart.len())])
                        .collect();
                    median(&rounds).unwrap()
                })
                .collect();
            mean(&drawn)
        })
        .collect();
    centres.sort_by(f64::total_cmp);
    (f64::midpoint(centres[4], centres[195]), (centres[195] - centres[4]) / 2.0)
}
