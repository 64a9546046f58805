//! Ratios of pairs of runs, in order.

/// At least one ratio.
pub struct Ratios(Vec<f64>);

impl Ratios {
    /// Of these, in any order. There has to be one.
    pub fn new(mut ratios: Vec<f64>) -> Self {
        assert!(!ratios.is_empty(), "no pairs were run");
        ratios.sort_by(f64::total_cmp);
        Ratios(ratios)
    }

    /// The one at this share of the way from the lowest (0) to the highest (1).
    pub fn at(&self, share: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * share).round() as usize]
    }
}
