//! Time that the CPUs of the roles spent in each idle state.

use bytepath_record::{Cell, Role, Scope, Trial, Unit, distinct};
use schemars::JsonSchema;
use serde::Serialize;

/// An idle state's share of a role's CPU.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct IdleShare {
    /// Name of the state: "C6", "core-c6".
    pub state: String,
    /// True if reported by the hardware's residency registers; false if requested by the kernel.
    /// The two differ and are never mixed.
    pub hardware: bool,
    /// Part of the window, as the mean over the trials.
    pub share: f64,
    /// Times it was entered per second; `None` if reported by the hardware.
    pub entries: Option<f64>,
}

/// Returns the idle states of the CPU that a role is pinned to, in the order in which the meter
/// reports them; empty for a role that is not pinned.
pub(crate) fn idle(role: Role, cell: &Cell, measured: &[&Trial]) -> Vec<IdleShare> {
    let Some(cpu) = cell.placement.cpu(role) else { return Vec::new() };
    let scope = Scope::Cpu(cpu);
    let readings = measured.iter().flat_map(|trial| &trial.readings);
    let readings = readings.filter(|r| r.scope == scope && r.unit == Unit::Ratio);
    let states = readings.filter_map(|reading| {
        let state = reading.metric.strip_prefix("cstate.")?;
        let of_hardware = state.strip_prefix("hw.");
        Some((of_hardware.unwrap_or(state), of_hardware.is_some()))
    });
    let mean = |metric: &str, of: fn(f64, &Trial) -> f64| {
        let values = measured.iter().filter_map(|t| Some(of(t.reading(metric, &scope)?, t)));
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let share = |(state, hardware): (&str, bool)| {
        let prefix = if hardware { "cstate.hw." } else { "cstate." };
        let metric = format!("{prefix}{state}");
        let entries = mean(&format!("{metric}.entries"), |count, trial| count / trial.window);
        let (share, state) = (mean(&metric, |share, _| share)?, state.to_owned());
        Some(IdleShare { share, entries, state, hardware })
    };
    distinct(states).into_iter().filter_map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{cell, trial};
    use bytepath_record::Reading;

    #[test]
    fn shares_of_the_roles_own_cpu() {
        let mut trials = [trial("a", 0, 2.0, 1), trial("a", 1, 2.0, 1)];
        for (trial, share) in trials.iter_mut().zip([0.25, 0.75]) {
            let mut add = |metric: &str, unit, value, cpu| {
                let scope = Scope::Cpu(cpu);
                trial.readings.push(Reading::sum(metric, unit, value, scope));
            };
            add("cstate.C6", Unit::Ratio, share, 1);
            add("cstate.C6.entries", Unit::Count, 100.0, 1);
            add("cstate.hw.core-c6", Unit::Ratio, share / 2.0, 1);
            add("cstate.C1", Unit::Ratio, 0.9, 7);
        }
        let measured: Vec<&Trial> = trials.iter().collect();
        let found = idle(Role::Receiver, &cell("a"), &measured);
        let expected = [
            IdleShare { state: "C6".into(), hardware: false, share: 0.5, entries: Some(50.0) },
            IdleShare { state: "core-c6".into(), hardware: true, share: 0.25, entries: None },
        ];
        assert_eq!(found, expected);
        assert_eq!(idle(Role::Sender, &cell("a"), &measured), []);
    }
}
