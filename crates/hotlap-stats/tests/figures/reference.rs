//! Comparison with other tools. Each value was computed with the expression above it, in SciPy
//! 1.17.1 with NumPy 2.4.6 unless stated otherwise.

use hotlap_stats::{Mean, effect, holm, mad, samples_suffice, student};

fn close(ours: f64, theirs: f64) {
    assert!((ours / theirs - 1.0).abs() < 1e-10, "ours {ours:e}, theirs {theirs:e}");
}

#[test]
fn the_p_value_of_t() {
    // 2 * scipy.stats.t.sf(t, df)
    for (t, df, theirs) in [
        (2.0, 1.0, 2.951672353008665e-01),
        (2.0, 2.5, 1.573914957579659e-01),
        (3.5, 7.0, 9.993040881885549e-03),
        (0.3, 60.0, 7.652140752134595e-01),
        (12.0, 3.0, 1.245015800789336e-03),
        (40.0, 4.0, 2.334016322601268e-06),
    ] {
        close(student::two_sided_p(t, df), theirs);
    }
}

#[test]
fn the_quantile_of_t() {
    // scipy.stats.t.isf(alpha / 2, df)
    for (alpha, df, theirs) in [
        (0.05, 1.0, 1.27062047361747e+01),
        (0.05, 2.0, 4.302652729749464e+00),
        (0.05, 4.0, 2.776445105197794e+00),
        (0.05, 9.0, 2.262157162798205e+00),
        (0.01, 3.0, 5.840909309733357e+00),
        (0.001, 2.8, 1.45983349771832e+01),
        (0.05, 1000.0, 1.962339080826409e+00),
        (1e-6, 5.0, 2.847847346298421e+01),
    ] {
        close(student::quantile(alpha, df), theirs);
    }
}

#[test]
fn the_interval_over_restarts_is_students() {
    // r = scipy.stats.ttest_1samp(x, 0) and ci = r.confidence_interval(.95) give the exponentials
    // of x.mean(), ci.low and ci.high, and r.pvalue.
    let x = [0.012, 0.019, 0.008, 0.022, 0.015];
    let pairs = (0..).zip(x).collect();
    let effect = effect(&pairs, 0.95).unwrap();
    close(effect.ratio.value, 1.015316107532257);
    close(effect.ratio.low, 1.008354949575685);
    close(effect.ratio.high, 1.02232532170169);
    close(effect.p, 0.0035796147097891086);
}

#[test]
fn the_median_absolute_deviation() {
    // scipy.stats.median_abs_deviation(x, scale='normal')
    close(mad(&[2.1, 3.5, 2.2, 9.9, 2.4, 2.0, 2.6]).unwrap(), 0.44478066555168033);
}

#[test]
fn how_many_samples_a_percentile_needs() {
    // numpy.log(.025) / numpy.log(q): 5.32, 35.01, 71.92, 367.04, 3687.03, 36886.95, 368886.1
    let quantiles = [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999];
    let needed = [6, 36, 72, 368, 3688, 36_887, 368_887];
    for (q, needed) in quantiles.into_iter().zip(needed) {
        assert!(!samples_suffice(needed - 1, q, 1) && samples_suffice(needed, q, 1), "{q}");
    }
}

#[test]
fn holms_correction() {
    // In R, p.adjust(c(0.001, 0.02, 0.03, 0.5, 0.012), "holm") gives 0.005 0.060 0.060 0.500 0.048,
    // by its definition cummax(sort(p) * (5:1)).
    let ours = holm(&[0.001, 0.02, 0.03, 0.5, 0.012]);
    for (ours, theirs) in ours.into_iter().zip([0.005, 0.060, 0.060, 0.5, 0.048]) {
        close(ours, theirs);
    }
}

#[test]
fn a_ratio_across_runs_has_welchs_interval() {
    // r = scipy.stats.ttest_ind(log(a), log(b), equal_var=False) and ci =
    // r.confidence_interval(.95) give exp(log(a).mean() - log(b).mean()), exp(ci.low), exp(ci.high)
    // and r.pvalue.
    let runs =
        |values: &[f64]| values.iter().map(|value| [(0, value.ln())].into()).collect::<Vec<_>>();
    let (a, b) = (runs(&[16.9, 17.1, 16.8, 17.3, 17.0]), runs(&[18.2, 18.9, 18.4]));
    let of = |side: &[_]| Mean::of_runs(side).unwrap();
    let effect = of(&a).minus(&of(&b)).effect(0.95);
    close(effect.ratio.value, 0.9200690444500766);
    close(effect.ratio.low, 0.8835881661178476);
    close(effect.ratio.high, 0.9580561159783261);
    close(effect.p, 0.00785351874761017);
}
