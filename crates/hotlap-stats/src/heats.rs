//! Blocks within heats: the one place where an interval is made of them.

use std::collections::BTreeMap;

use crate::Estimate;
use crate::estimate::median;
use crate::student;

/// Values by the heat that they belong to.
pub(crate) struct Heats(Vec<Vec<f64>>);

/// A centre on the scale of the values, with what its interval needs.
pub(crate) struct Centre {
    pub value: f64,
    /// Standard error of `value`; infinite where one value is all there is.
    pub standard_error: f64,
    pub df: f64,
    pub confidence: f64,
}

impl Heats {
    /// Groups `(heat, value)`; `None` if there is no value.
    pub fn of(values: impl IntoIterator<Item = (u32, f64)>) -> Option<Self> {
        let mut heats = BTreeMap::<u32, Vec<f64>>::new();
        for (heat, value) in values {
            heats.entry(heat).or_default().push(value);
        }
        (!heats.is_empty()).then(|| Self(heats.into_values().collect()))
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn blocks(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Student's interval over the locations of the heats; with one heat, over its blocks.
    pub fn centre(&self, confidence: f64) -> Centre {
        let units = match &self.0[..] {
            [one] => one.clone(),
            many => many.iter().map(|heat| location(heat)).collect(),
        };
        let n = units.len() as f64;
        let standard_error = if units.len() < 2 { f64::INFINITY } else { sd(&units) / n.sqrt() };
        Centre { value: mean(&units), standard_error, df: n - 1.0, confidence }
    }

    /// Standard deviation (between heats, between blocks of one heat): the variance of the heats'
    /// locations less what the blocks alone explain, and never below zero.
    pub fn spread(&self) -> (f64, f64) {
        let (mut squares, mut df, mut per_heat) = (0.0, 0.0, 0.0);
        for heat in &self.0 {
            let n = heat.len() as f64;
            squares += sd(heat).powi(2) * (n - 1.0);
            df += n - 1.0;
            per_heat += 1.0 / n / self.0.len() as f64;
        }
        let block = if df > 0.0 { squares / df } else { 0.0 };
        let locations: Vec<f64> = self.0.iter().map(|heat| location(heat)).collect();
        let heat = (sd(&locations).powi(2) - block * per_heat).max(0.0);
        (heat.sqrt(), block.sqrt())
    }
}

impl Centre {
    pub fn half_width(&self) -> f64 {
        student::quantile(1.0 - self.confidence, self.df) * self.standard_error
    }

    /// Two-sided p-value of "the centre is 0".
    pub fn p(&self) -> f64 {
        match self.standard_error {
            se if se.is_infinite() => 1.0,
            0.0 if self.value == 0.0 => 1.0,
            se => student::two_sided_p(self.value / se, self.df),
        }
    }

    /// The estimate of the exponential: from log units to a ratio or a level.
    pub fn exp(&self) -> Estimate {
        let half = self.half_width();
        let [value, low, high] = [self.value, self.value - half, self.value + half].map(f64::exp);
        Estimate { value, low, high }
    }
}

fn location(heat: &[f64]) -> f64 {
    median(heat).unwrap_or(f64::NAN)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sample standard deviation; 0 for fewer than two values.
fn sd(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}
