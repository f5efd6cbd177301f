//! Histograms and percentiles, compared with other implementations.

mod histogram;
mod percentile;
mod reference;
