//! Ratios of pairs of runs, sorted.

/// At least one ratio.
pub struct Ratios(Vec<f64>);

impl Ratios {
    /// Sorts these ratios, of which there must be at least one.
    pub fn new(mut ratios: Vec<f64>) -> Self {
        assert!(!ratios.is_empty(), "no pairs were run");
        ratios.sort_by(f64::total_cmp);
        Ratios(ratios)
    }

    /// Returns the quantile `share`, from the lowest (0) to the highest (1).
    pub fn at(&self, share: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * share).round() as usize]
    }
}
