//! Sentences about the number of connections from which a path is better than the first.

use super::figures::effect_text;
use super::setup::pairs;
use super::verdicts::subject;
use bytepath_record::{Work, listed};
use bytepath_stats::{Analysis, Comparison, Course, Metric};

/// Returns a sentence for each path and each of rate and cost with a crossing, and one for the
/// others; empty if the study does not vary the number of connections.
pub(crate) fn sentences(analysis: &Analysis) -> Vec<String> {
    let Some(scaling) = &analysis.scaling else { return Vec::new() };
    let (first, work) = (&scaling.first, analysis.work());
    let of = |question| {
        let others = scaling.courses.iter().filter(|course| course.path != *first);
        let (mut lines, mut without) = (Vec::new(), Vec::new());
        for course in others {
            match sentence(course, first, question, work) {
                Some(line) => lines.push(line),
                None => without.push(name(course)),
            }
        }
        let none = format!(
            "No crossing with {first} is shown in {}: {}.",
            subject(question, work),
            listed(&without, LISTED)
        );
        lines.into_iter().chain((!without.is_empty()).then_some(none))
    };
    [Metric::Rate, analysis.cost()].into_iter().flat_map(of).collect()
}

/// Most paths without a crossing that are named.
const LISTED: usize = 6;

fn name(course: &Course) -> String {
    match pairs(&course.at) {
        at if at.is_empty() => course.path.clone(),
        at => format!("{} with {at}", course.path),
    }
}

/// Returns a path's crossing in a sentence; `None` if it is neither significantly better nor worse
/// at the largest numbers of connections.
fn sentence(course: &Course, first: &str, question: Metric, work: Work) -> Option<String> {
    let (better, connections, there) = [true, false].into_iter().find_map(|better| {
        let (connections, there) = course.from(question, better)?;
        Some((better, connections, there))
    })?;
    let below = course.points.iter().take_while(|point| point.connections < connections);
    let from = match below.clone().count() {
        0 => "at every number of connections that was measured".to_owned(),
        _ => format!("from {connections} connections on"),
    };
    let is_opposite = |one: &Comparison| one.verdict.better() == Some(!better);
    let crosses = below.clone().count() > 0
        && below.clone().all(|point| point.comparison(question).is_some_and(is_opposite));
    let (is, is_not) = (claim(question, better, work), claim(question, !better, work));
    let otherwise = if crosses { format!("; below, it {is_not}") } else { String::new() };
    let effect = effect_text(there.effect.as_ref());
    let path = name(course);
    Some(format!("{path} {is} than {first} {from}: {effect} at {connections}{otherwise}."))
}

/// Returns what a better, or worse, path does.
fn claim(question: Metric, better: bool, work: Work) -> String {
    let terms = work.terms();
    match question {
        Metric::Rate => format!("has a {} {}", if better { "higher" } else { "lower" }, terms.rate),
        Metric::Instructions => {
            format!(
                "takes {} instructions per {}",
                if better { "fewer" } else { "more" },
                terms.unit
            )
        }
        Metric::Cpu => {
            format!("costs {} CPU per {}", if better { "less" } else { "more" }, terms.unit)
        }
        Metric::Latency(percentile) => {
            format!("has a {} {}", if better { "lower" } else { "higher" }, percentile.name())
        }
    }
}
