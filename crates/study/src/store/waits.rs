//! The line below a waterfall that says how much of its step "locks" was waiting.

use bytepath_profile::WorkUnit;
use bytepath_profile::waterfall::Waterfall;
use bytepath_record::unit::GIB;
use bytepath_record::{Scope, Trial, TrialStatus, Work};
use std::collections::BTreeMap;

/// What two cells spent spinning for locks while their profiles were taken; `None` if the meter
/// `locks` did not run in both, or the steps are not times.
pub(super) fn words(profiles: &[Trial], waterfall: &Waterfall, per: WorkUnit) -> Option<String> {
    let Waterfall { before, after, unit, .. } = waterfall;
    let scale = if unit.starts_with("CPU-ns") { 1e9 } else { 1.0 };
    if !unit.starts_with("CPU-") {
        return None;
    }
    let [first, second] = [spun(profiles, &before.cell, per)?, spun(profiles, &after.cell, per)?];
    let amount = |spun: &Spun| format!("{:.3}", spun.cost * scale);
    let longer = if first.cost > second.cost { &first } else { &second };
    let most = longer.most.as_ref().map(|name| format!(", most in {name}")).unwrap_or_default();
    Some(format!(
        "Of the step locks, time spent spinning: {} {unit} ({}) and {} ({}){most}.",
        amount(&first),
        before.cell,
        amount(&second),
        after.cell
    ))
}

/// What a cell spent.
struct Spun {
    /// Seconds per unit of work.
    cost: f64,
    /// The function that waited longest.
    most: Option<String>,
}

fn spun(profiles: &[Trial], cell: &str, per: WorkUnit) -> Option<Spun> {
    const METRIC: &str = "locks.spin";
    let (mut time, mut work) = (None, 0.0);
    let mut functions: BTreeMap<&str, f64> = BTreeMap::new();
    let taken = |t: &&Trial| t.cell.0 == cell && t.status == TrialStatus::Measured;
    for trial in profiles.iter().filter(taken) {
        work += units(trial, per)?;
        for reading in &trial.readings {
            match &reading.scope {
                Scope::Machine | Scope::MachineOf(_) if reading.metric == METRIC => {
                    *time.get_or_insert(0.0) += reading.value;
                }
                Scope::Function(name) | Scope::FunctionOf(_, name)
                    if reading.metric.starts_with(METRIC)
                        && !reading.metric.ends_with(".waits") =>
                {
                    *functions.entry(name).or_default() += reading.value;
                }
                _ => {}
            }
        }
    }
    let most = functions.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    Some(Spun { cost: time? / work, most: most.map(|(name, _)| name.to_owned()) })
}

fn units(trial: &Trial, per: WorkUnit) -> Option<f64> {
    match per {
        WorkUnit::Gib => {
            (trial.work == Work::Bytes && trial.count > 0).then(|| trial.count as f64 / GIB)
        }
        WorkUnit::Packet => trial.packets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_profile::change::Change;
    use bytepath_profile::waterfall::Bar;
    use bytepath_record::{CellId, Reading, Unit};

    fn trial(cell: &str, spun: Option<f64>) -> Trial {
        let mut trial = Trial::blank(CellId(cell.into()), 0, 0);
        trial.status = TrialStatus::Measured;
        trial.count = 2 << 30;
        let mut add = |metric: &str, unit, value, scope| {
            trial.readings.push(Reading::sum(metric, unit, value, scope));
        };
        if let Some(spun) = spun {
            add("locks.spin", Unit::Seconds, spun, Scope::Machine);
            add("locks.spin.waits", Unit::Count, 9.0, Scope::Machine);
            add("locks.spin.lock", Unit::Seconds, 0.6 * spun, Scope::Function("tcp_v4_rcv".into()));
            add("locks.spin.lock.waits", Unit::Count, 9.0, Scope::Function("pipe_write".into()));
        }
        trial
    }

    #[test]
    fn made_up_waits_are_reported_per_unit_with_the_function_that_waited_longest() {
        let bar = |cell: &str| Bar {
            cell: cell.into(),
            trials: 1,
            sampled: 0.4,
            metered: None,
            packet: None,
        };
        let waterfall = Waterfall {
            before: bar("socket"),
            after: bar("msg-zerocopy"),
            unit: "CPU-s/GiB".into(),
            confidence: 0.95,
            parts: Vec::new(),
            sampled: Change::plain(0.0),
            check: None,
            notes: Vec::new(),
        };
        let rejected = TrialStatus::Rejected { events: Vec::new() };
        let profiles = |other| {
            [
                trial("socket", Some(0.042)),
                trial("msg-zerocopy", other),
                Trial { status: rejected.clone(), ..trial("socket", Some(7.0)) },
            ]
        };
        let line = words(&profiles(Some(0.068)), &waterfall, WorkUnit::Gib);
        let expected = "Of the step locks, time spent spinning: 0.021 CPU-s/GiB (socket) and 0.034 \
                        (msg-zerocopy), most in tcp_v4_rcv.";
        assert_eq!(line.as_deref(), Some(expected));
        assert_eq!(
            words(&profiles(None), &waterfall, WorkUnit::Gib),
            None,
            "it did not run in one"
        );
        let events = Waterfall { unit: "10^9 cycles/GiB".into(), ..waterfall.clone() };
        assert_eq!(words(&profiles(Some(0.068)), &events, WorkUnit::Gib), None);
        assert_eq!(words(&profiles(Some(0.068)), &waterfall, WorkUnit::Packet), None, "no packets");
    }
}
