//! Chooses how often to sample, from what a sample costs.

/// Fraction of a CPU that sampling may take, by the cost of a sample in a loop. A stream loses
/// several times as much, with its longer call chains, colder caches and CPUs that wait for each
/// other: with `cpu-clock` in a virtual machine it lost 10 % of its throughput at 499 Hz, where
/// samples took 0.7 % of a CPU. The total loss should stay below 2 %.
pub(crate) const SHARE: f64 = 0.0025;

/// Rates to choose from, Hz. They differ from the kernel's tick rates, so that samples do not
/// always hit the same code.
const RATES: [u64; 6] = [999, 499, 249, 99, 49, 19];

/// Returns the highest rate, Hz, at which samples of this cost, in seconds, take no more than this
/// share of a CPU.
pub(crate) fn affordable_rate(cost: Option<f64>, share: f64) -> u64 {
    let affordable = |rate: &u64| cost.is_none_or(|cost| *rate as f64 * cost <= share);
    RATES.into_iter().find(affordable).unwrap_or(RATES[RATES.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expensive_samples_are_taken_less_often() {
        let us = |us: f64| affordable_rate(Some(us * 1e-6), SHARE);
        assert_eq!((us(0.8), us(2.5)), (999, 999));
        assert_eq!((us(5.0), us(10.0), us(13.0), us(25.0)), (499, 249, 99, 99));
        assert_eq!((us(30.0), us(50.0), us(100.0), us(1e6)), (49, 49, 19, 19));
        assert_eq!(affordable_rate(None, SHARE), 999);
    }
}
