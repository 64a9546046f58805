//! How many blocks an interval needs, by Student's t.

use crate::math::two_sided;

/// Most blocks that a plan will speak of; above that it says "more".
pub const MOST_BLOCKS: u32 = 1000;

/// How many blocks bring the half-width of a t interval down to `half_width`,
/// if the log ratios keep scattering with `stddev`. None above [`MOST_BLOCKS`].
pub fn blocks_for(stddev: f64, half_width: f64, confidence: f64) -> Option<u32> {
    let narrow = |n: u32| {
        two_sided(confidence, f64::from(n) - 1.0)
            .is_some_and(|t| t * stddev / f64::from(n).sqrt() <= half_width)
    };
    // The half-width falls as n grows, so the first n that does is found by halving.
    let (mut low, mut high) = (2, MOST_BLOCKS);
    if !narrow(high) {
        return None;
    }
    while low < high {
        let middle = (low + high) / 2;
        if narrow(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_needed() {
        // 0.05 * 2.063899 / sqrt(25) = 0.02064 and 0.05 * 2.059539 / sqrt(26) = 0.02020,
        // 0.05 * 2.055529 / sqrt(27) = 0.01978: the first within 0.02 is 27.
        assert_eq!(blocks_for(0.05, 0.02, 0.95), Some(27));
        assert_eq!(blocks_for(0.0, 0.02, 0.95), Some(2));
        assert_eq!(blocks_for(5.0, 0.02, 0.95), None);
        assert_eq!(blocks_for(f64::NAN, 0.02, 0.95), None);
    }
}
