//! HdrHistogram's text formats, for its own tools and others.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::Histogram;

/// Ticks in each halving of the distance to 100 %, as HdrHistogram prints them.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// Counts per bucket at three significant digits: the power of two that distinguishes 2 × 10³
/// values.
const SUB_BUCKETS: u32 = 2048;

impl Histogram {
    /// HdrHistogram's percentile distribution (`.hgrm`), which its plotter reads and which wrk2
    /// prints. Times are divided by `unit_ns` (1,000,000 for milliseconds).
    pub fn to_hgrm(&self, unit_ns: f64) -> String {
        let mut text = format!(
            "{:>12} {:>14} {:>10} {:>14}\n\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        );
        let mut count = 0;
        for step in self.0.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
            count += step.count_since_last_iteration();
            let quantile = step.quantile_iterated_to();
            let left = 1.0 - quantile;
            let odds = if left > 0.0 { format!("{:>14.2}", 1.0 / left) } else { String::new() };
            let value = step.value_iterated_to() as f64 / unit_ns;
            let row = format!("{value:>12.3} {quantile:>14.12} {count:>10} {odds}");
            text.push_str(row.trim_end());
            text.push('\n');
        }
        let (mean, stdev) = (self.mean() / unit_ns, self.stdev() / unit_ns);
        let (max, total) = (self.max() as f64 / unit_ns, self.len());
        text.push_str(&format!("#[Mean    = {mean:>12.3}, StdDeviation   = {stdev:>12.3}]\n"));
        text.push_str(&format!("#[Max     = {max:>12.3}, Total count    = {total:>12}]\n"));
        let (buckets, sub_buckets) = (self.0.buckets(), SUB_BUCKETS);
        text.push_str(&format!("#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]\n"));
        text
    }
}

/// HdrHistogram's compressed interval log (`.hlog`), which its log processor and analyzer read: one
/// line per histogram, all of the interval that began at `opened`. The first has no tag. Values are
/// in nanoseconds; the maximum beside each histogram, for human readers, is in milliseconds. A tag
/// that the format cannot hold (with a comma, a space or a line break) is left out.
pub fn interval_log(
    opened: SystemTime,
    length: Duration,
    first: &Histogram,
    tagged: &[(&str, &Histogram)],
) -> String {
    const INFALLIBLE: &str = "writing to a Vec cannot fail";
    let (mut bytes, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("[Histogram log format version 1.3]")
        .with_start_time(opened)
        .with_base_time(opened)
        .with_max_value_divisor(1e6);
    let mut log = builder.begin_log_with(&mut bytes, &mut serializer).expect(INFALLIBLE);
    log.write_histogram(&first.0, Duration::ZERO, length, None).expect(INFALLIBLE);
    for (tag, histogram) in tagged {
        let tag = Tag::new(tag);
        log.write_histogram(&histogram.0, Duration::ZERO, length, tag).expect(INFALLIBLE);
    }
    String::from_utf8(bytes).expect("the format is text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hgrm_is_what_plotters_read() {
        let mut histogram = Histogram::new();
        (1..=4).for_each(|ms| histogram.record(ms * 1_000_000));
        let expected = "       Value     Percentile TotalCount 1/(1-Percentile)

       1.000 0.000000000000          1           1.00
       1.000 0.100000000000          1           1.11
       1.000 0.200000000000          1           1.25
       2.001 0.300000000000          2           1.43
       2.001 0.400000000000          2           1.67
       2.001 0.500000000000          2           2.00
       3.000 0.550000000000          3           2.22
       3.000 0.600000000000          3           2.50
       3.000 0.650000000000          3           2.86
       3.000 0.700000000000          3           3.33
       4.002 0.750000000000          4           4.00
       4.002 1.000000000000          4
#[Mean    =        2.500, StdDeviation   =        1.118]
#[Max     =        4.002, Total count    =            4]
#[Buckets =           32, SubBuckets     =         2048]
";
        assert_eq!(histogram.to_hgrm(1e6), expected);
    }
}
