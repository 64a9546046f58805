//! One figure over many studies, in order of time, and the changes in it.

use super::between::figures;
use super::change::changes;
use crate::estimate::Summary;
use crate::metric::Metric;
use crate::study::counted;
use crate::trial::GuestCpu;
use bytepath_record::{Role, Study, Trial, Work};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Error rate of each search for a change. Stricter than that of a verdict,
/// because a history is searched again with every study that is added.
pub const CHANGE_LEVEL: f64 = 0.01;

/// Longest series that is searched; of a longer one, the newest part.
const LONGEST: usize = 500;

/// The figures of all cells of one study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyPoints {
    /// When it began, milliseconds since the Unix epoch.
    pub started_ms: u64,
    pub baseline: String,
    /// Properties of the receiver's host: kernel, CPU and so on, as (name, value).
    pub host: Vec<(String, String)>,
    /// One point for every measured figure.
    pub points: Vec<Point>,
}

/// A figure of one cell in one study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    pub cell: String,
    /// The metric: work per second, CPU seconds or instructions per unit of work, or seconds.
    pub question: Metric,
    /// The kind of work that its trials count.
    pub work: Work,
    pub n: usize,
    pub mean: f64,
    /// Standard deviation of the trials; `None` below two.
    pub stddev: Option<f64>,
}

/// A figure over time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct History {
    pub cell: String,
    pub question: Metric,
    /// The kind of work that its trials count in the newest study.
    pub work: Work,
    /// Every study that measured it, in order of time.
    pub entries: Vec<Entry>,
    pub shifts: Vec<Shift>,
}

/// One study of a history.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Entry {
    /// Name of the study.
    pub study: String,
    /// When it began, milliseconds since the Unix epoch.
    pub started_ms: u64,
    pub n: usize,
    /// Mean of the trials: work per second, CPU seconds or instructions per unit of work, or
    /// seconds.
    pub mean: f64,
    /// Standard deviation of the trials; `None` below two.
    pub stddev: Option<f64>,
    /// Differences of the host from the study before: (what, before, now).
    pub changed: Vec<(String, String, String)>,
}

/// A change of the level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Shift {
    /// The first study after the change, counted from 0.
    pub at: usize,
    /// Ratio of the level after to the level before, by geometric means.
    pub ratio: f64,
    /// Share of random orders with a cut at least as good.
    pub p: f64,
}

/// Collects the figures of a study.
pub fn points(study: &Study) -> StudyPoints {
    let header = &study.header;
    let mut points = Vec::new();
    for cell in header.cells.iter().filter(|c| !c.null) {
        let of_cell = study.trials.iter().filter(|t| t.cell == cell.id).collect();
        let counted = counted(header, cell, of_cell).into_iter();
        let measured: Vec<_> = counted.filter(|t| t.rate().is_some()).collect();
        let Some(work) = measured.first().map(|t| t.work) else { continue };
        for question in Metric::ALL {
            let figures = figures(question, (study, cell), &measured).into_iter();
            // Only values above zero have a logarithm.
            let summary = Summary::of(figures).filter(|s| s.mean > 0.0);
            if let Some(Summary { n, mean, stddev, .. }) = summary {
                points.push(Point { cell: cell.id.0.clone(), question, work, n, mean, stddev });
            }
        }
    }
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut host = vec![pair("bytepath", &header.bytepath)];
    if let Some(f) = header.facts.get(Role::Receiver as usize) {
        host.push(pair("kernel", &f.kernel_release));
        host.push(pair("kernel build", &f.kernel_version));
        host.push(pair("CPU", &f.cpu_model));
        host.push(pair("CPUs", &f.cpus.len().to_string()));
        host.extend(f.settings.iter().map(|(name, value)| pair(name, value)));
    }
    host.push(pair("testbed", &header.testbed));
    let has_guest = |trial: &Trial| Role::ALL.into_iter().any(|r| GuestCpu::of(trial, r).is_some());
    if study.trials.iter().any(has_guest) {
        host.push(pair("CPU of both ends", "with all that a guest takes of its host"));
    }
    host.push(pair("window", &format!("{} s", header.schedule.window)));
    host.retain(|(_, value)| !value.is_empty());
    StudyPoints { started_ms: header.started_ms, baseline: header.baseline.0.clone(), host, points }
}

/// Builds the history of one figure from studies with their names, in any order.
pub fn history(studies: &[(String, StudyPoints)], cell: &str, question: Metric) -> History {
    let measured = studies.iter().filter_map(|(name, study)| {
        let mut points = study.points.iter();
        let point = points.find(|p| p.cell == cell && p.question == question)?;
        Some((name, study, point))
    });
    let mut series: Vec<(&String, &StudyPoints, &Point)> = measured.collect();
    series.sort_by_key(|(name, study, _)| (study.started_ms, name.as_str()));
    let series = &series[series.len().saturating_sub(LONGEST)..];
    let entry = |(at, (name, study, point)): (usize, &(&String, &StudyPoints, &Point))| Entry {
        study: (*name).clone(),
        started_ms: study.started_ms,
        n: point.n,
        mean: point.mean,
        stddev: point.stddev,
        changed: match at {
            0 => Vec::new(),
            _ => changed(&series[at - 1].1.host, &study.host),
        },
    };
    let entries = series.iter().enumerate().map(entry).collect();
    let logs: Vec<f64> = series.iter().map(|(_, _, point)| point.mean.ln()).collect();
    let shift = |c: super::change::Change| Shift {
        at: c.at,
        ratio: crate::estimate::ratio(c.after - c.before),
        p: c.p,
    };
    let shifts = changes(&logs, CHANGE_LEVEL).into_iter().map(shift).collect();
    let work = series.last().map_or(Work::Bytes, |(_, _, point)| point.work);
    History { cell: cell.to_owned(), question, work, entries, shifts }
}

/// Returns the properties that both studies recorded with different values.
fn changed(before: &[(String, String)], now: &[(String, String)]) -> Vec<(String, String, String)> {
    let before: std::collections::HashMap<&String, &String> =
        before.iter().map(|(name, value)| (name, value)).collect();
    let difference = |(name, new): &(String, String)| {
        let old = before.get(name).filter(|old| **old != new)?;
        Some((name.clone(), (*old).clone(), new.clone()))
    };
    now.iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_math::Random;

    fn study(at: u64, mean: f64, kernel: &str) -> (String, StudyPoints) {
        let point = Point {
            cell: "socket".into(),
            question: Metric::Rate,
            work: Work::Bytes,
            n: 5,
            mean,
            stddev: Some(1.0),
        };
        let points = StudyPoints {
            started_ms: at,
            baseline: "socket".into(),
            host: vec![("kernel".into(), kernel.into())],
            points: vec![point],
        };
        (format!("study-{at}"), points)
    }

    #[test]
    fn a_slower_kernel_is_found_and_named() {
        let mut random = Random::new(9);
        let mut studies: Vec<_> = (0..24)
            .map(|i| {
                let (level, kernel) = if i < 14 { (50e9, "6.18.0") } else { (46e9, "6.18.1") };
                study(i, level * (0.01 * random.normal()).exp(), kernel)
            })
            .collect();
        studies.reverse();
        let h = history(&studies, "socket", Metric::Rate);
        assert_eq!(h.entries.len(), 24);
        assert_eq!(h.entries[0].study, "study-0", "in order of time, not of the folder");
        assert_eq!(h.shifts.len(), 1);
        assert_eq!(h.shifts[0].at, 14);
        assert!((h.shifts[0].ratio - 0.92).abs() < 0.01);
        let changed = &h.entries[14].changed;
        assert_eq!(*changed, [("kernel".into(), "6.18.0".into(), "6.18.1".into())]);
        assert!(h.entries[13].changed.is_empty());
        assert!(history(&studies, "splice", Metric::Rate).entries.is_empty());
    }
}
