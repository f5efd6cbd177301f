//! Random numbers as pure functions: `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom
//! number generators, OOPSLA 2014). The n-th number of a key can be computed on its own, so nothing
//! has to be remembered.

/// The increment of `SplitMix64`.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of `SplitMix64`: mixes all bits of a number.
#[inline]
pub(crate) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The `n`-th random number of a key: 64 uniform bits.
#[inline]
pub(crate) fn number(key: u64, n: u64) -> u64 {
    mix(key.wrapping_add(n.wrapping_mul(GOLDEN)))
}

/// Maps 64 uniform bits to 0..`span`, each value equally likely to within `span` / 2⁶⁴ (Lemire:
/// Fast random integer generation in an interval, ACM TOMACS 29, 2019). A span of 0 stands for
/// 2⁶⁴.
#[inline]
pub(crate) fn below(bits: u64, span: u64) -> u64 {
    match span {
        0 => bits,
        _ => ((u128::from(bits) * u128::from(span)) >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_a_span_are_uniform() {
        let mut counts = [0u32; 10];
        for n in 0..100_000 {
            counts[below(number(7, n), 10) as usize] += 1;
        }
        // Five standard deviations of 95.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 475), "{counts:?}");
        assert_eq!(below(u64::MAX, 10), 9);
        assert_eq!(below(u64::MAX, 0), u64::MAX);
    }
}
