//! Times of requests, merged over laps: never an average of percentiles, no percentile for which
//! there are too few samples, and none that hides the requests that were not answered.

use hotlap_stats::{Censored, Concurrency, Histogram, Percentile, Survival, samples_suffice};

use crate::model::Lap;

/// Times of requests, answered and not.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// Of requests that were answered correctly.
    pub answered: Histogram,
    /// Of those that were not observed from beginning to end.
    pub censored: Censored,
}

impl Times {
    /// Those of a lap: response times where its load offers a rate, else service times.
    #[must_use]
    pub fn of(lap: &Lap, at_a_rate: bool) -> (&Histogram, &Censored) {
        match at_a_rate {
            false => (&lap.service, &lap.service_censored),
            true => (&lap.response, &lap.response_censored),
        }
    }

    /// All of these together.
    pub fn merged<'a>(parts: impl IntoIterator<Item = (&'a Histogram, &'a Censored)>) -> Self {
        let mut all = Self::default();
        for (answered, censored) in parts {
            all.answered.merge(answered);
            all.censored.merge(censored);
        }
        all
    }

    /// Their distribution.
    #[must_use]
    pub fn survival(&self) -> Survival {
        Survival::new(&self.answered, &self.censored)
    }
}

/// The quantile `q` of times of which a stall delays some `together`; `None` where there are too
/// few samples. A lower bound is returned in any case: it is certain for these requests, and
/// leaving it out would hide that the server hung.
#[must_use]
pub fn known(times: &Survival, q: f64, concurrency: Concurrency) -> Option<Percentile> {
    let found = times.quantile(q);
    let is_certain =
        found.is_lower_bound || samples_suffice(times.len(), q, concurrency.delayed_by(found.ns));
    is_certain.then_some(found)
}

/// Points of the percentile curve, five between each halving of the rest (as HdrHistogram's own
/// plots have them): the share, and the nanoseconds that it does not exceed. They end where there
/// are too few samples, or where a point would be a lower bound.
#[must_use]
pub fn curve(times: &Survival, concurrency: Concurrency) -> Vec<(f64, u64)> {
    const PER_HALVING: u32 = 5;
    let quantiles = (0..).map(|i| {
        let (halvings, tick) = (i / PER_HALVING, i % PER_HALVING);
        let rest = 0.5_f64.powi(halvings as i32);
        1.0 - rest + rest / 2.0 * f64::from(tick) / f64::from(PER_HALVING)
    });
    quantiles
        .take(200)
        .map_while(|q| Some((q, known(times, q, concurrency)?)))
        .take_while(|(_, found)| !found.is_lower_bound)
        .map(|(q, found)| (q, found.ns))
        .collect()
}
