//! Kernel functions that meters name: those that waited for locks, and those that handed work to
//! other CPUs.

use crate::wording::figures::amount;
use bytepath_record::{Scope, Study, Trial, TrialStatus};
use bytepath_stats::{Analysis, Row};

/// A ranking of functions by one quantity.
pub(crate) struct Ranking {
    pub title: &'static str,
    /// A note for the reader.
    pub note: &'static str,
    /// Whether the quantity is a time.
    pub timed: bool,
    /// The highest-ranked functions of each cell, cell by cell: the cell, the function (with the
    /// kind of lock and its name, if there is one; or all together), microseconds per unit of work
    /// if it is a time, how often per unit of work, and that unit.
    pub lines: Vec<Vec<String>>,
}

/// The rankings: a metric, its title and note, and whether it is a time.
const RANKED: [(&str, &str, &str, bool); 5] = [
    (
        "locks.spin",
        "Spinning for locks",
        "CPU time of the waiters; functions are sampled from one wait in 16 and scaled up. Uncontended locks are not included, \
         nor, on bare metal, is the first waiter of a queued spin lock.",
        true,
    ),
    (
        "locks.sleep",
        "Sleeping for locks",
        "Elapsed time; it took no CPU. The times of simultaneous sleepers add up.",
        true,
    ),
    (
        "handoffs.wakeups",
        "Threads woken on another CPU",
        "From the profile trials; functions are sampled from one wake-up in 16 and scaled up.",
        false,
    ),
    ("handoffs.interrupts", "Interrupts sent to other CPUs", "Of the profile trials.", false),
    (
        "handoffs.frees",
        "Memory freed on a CPU other than the one that allocated it",
        "From the profile trials; one address in 64 was followed, and its figures are scaled up.",
        false,
    ),
];

/// Most functions shown for each cell.
const SHOWN: usize = 6;

/// Returns all readings of functions per unit of work, over all trials of a cell in which the meter
/// ran.
pub(crate) fn rankings(study: &Study, analysis: &Analysis) -> Vec<Ranking> {
    let ranking = |(metric, title, note, timed)| {
        let lines: Vec<Vec<String>> =
            analysis.rows.iter().flat_map(|row| lines(study, row, metric, timed)).collect();
        (!lines.is_empty()).then_some(Ranking { title, note, timed, lines })
    };
    RANKED.into_iter().filter_map(ranking).collect()
}

fn lines(study: &Study, row: &Row, metric: &str, timed: bool) -> Vec<Vec<String>> {
    let has_figures = |trial: &&Trial| {
        trial.cell == row.cell
            && trial.status == TrialStatus::Measured
            && trial.readings.iter().any(|reading| reading.metric == metric)
    };
    // A meter runs either in all trials or only in profile trials. If it runs in all, those that
    // count suffice.
    let counted: Vec<&Trial> = study.trials.iter().filter(has_figures).collect();
    let trials = match counted.is_empty() {
        true => study.profiles.iter().filter(has_figures).collect(),
        false => counted,
    };
    let terms = row.work.terms();
    let units = trials.iter().map(|trial| trial.count as f64).sum::<f64>() / terms.unit_size;
    if units <= 0.0 {
        return Vec::new();
    }
    let mut lines: Vec<(String, f64, f64)> = Vec::new();
    for reading in trials.iter().flat_map(|trial| &trial.readings) {
        let Some((kind, is_count)) = part_of(&reading.metric, metric) else { continue };
        let function = match &reading.scope {
            Scope::Machine | Scope::MachineOf(_) if kind.is_empty() => "all".to_owned(),
            Scope::Function(name) | Scope::FunctionOf(_, name) if kind.is_empty() => name.clone(),
            Scope::Function(name) | Scope::FunctionOf(_, name) => format!("{name}, {kind}"),
            _ => continue,
        };
        let at = lines.iter().position(|line| line.0 == function).unwrap_or_else(|| {
            lines.push((function, 0.0, 0.0));
            lines.len() - 1
        });
        let [time, count] = if is_count || !timed { [0.0, 1.0] } else { [1.0, 0.0] };
        lines[at].1 += time * reading.value;
        lines[at].2 += count * reading.value;
    }
    let most = |line: &(String, f64, f64)| if timed { line.1 } else { line.2 };
    lines.sort_by(|a, b| (b.0 == "all").cmp(&(a.0 == "all")).then(most(b).total_cmp(&most(a))));
    lines.retain(|line| line.0 == "all" || most(line) > 0.0);
    lines.truncate(SHOWN + 1);
    let line = |(function, time, count): (String, f64, f64)| {
        let time = timed.then(|| amount(time / units * 1e6));
        let rest = [amount(count / units), terms.unit.to_owned()];
        [row.cell.to_string(), function].into_iter().chain(time).chain(rest).collect()
    };
    lines.into_iter().map(line).collect()
}

/// Returns the kind of a part of metric `of` ("" for the whole), and whether it is a count; `None`
/// if it is not a part.
fn part_of<'a>(metric: &'a str, of: &str) -> Option<(&'a str, bool)> {
    let rest = metric.strip_prefix(of)?;
    let (kind, counts) = rest.strip_suffix(".waits").map_or((rest, false), |kind| (kind, true));
    let kind = if kind.is_empty() { kind } else { kind.strip_prefix('.')? };
    let whole = ["foreign", "same-cpu"].contains(&kind);
    (!whole).then_some((kind, counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_metrics_into_kind_and_count() {
        assert_eq!(part_of("locks.spin", "locks.spin"), Some(("", false)));
        assert_eq!(part_of("locks.spin.waits", "locks.spin"), Some(("", true)));
        assert_eq!(part_of("locks.spin.mutex.waits", "locks.spin"), Some(("mutex", true)));
        assert_eq!(part_of("locks.sleep.mutex", "locks.spin"), None);
        assert_eq!(part_of("handoffs.frees.same-cpu", "handoffs.frees"), None);
        assert_eq!(part_of("handoffs.wakeups.foreign", "handoffs.wakeups"), None);
    }
}
