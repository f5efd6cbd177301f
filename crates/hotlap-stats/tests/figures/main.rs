//! Tests of histograms and percentiles, compared with other implementations.

mod histogram;
mod percentile;
mod reference;
