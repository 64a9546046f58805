//! Compares paths at each number of connections: each with the baseline's path, in cells that are
//! otherwise identical, judged like the cells of a study.

use crate::metric::Metric;
use crate::verdict::{Comparer, Comparison, Noise, Side};
use bytepath_record::{CellId, Levels, distinct, grouped, joined};
use schemars::JsonSchema;
use serde::Serialize;

/// The factor whose levels are numbers of connections.
const CONNECTIONS: &str = "flows";

/// Factors that name paths.
const PATHS: [&str; 3] = ["path", "tx", "rx"];

/// Fewest numbers of connections that form a course.
const FEWEST: usize = 3;

/// The paths of a study over its numbers of connections.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Scaling {
    /// The path that the others are compared with.
    pub first: String,
    /// Each path, including that one, with each combination of the other factors.
    pub courses: Vec<Course>,
}

/// A path over all numbers of connections.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Course {
    pub path: String,
    /// The levels of the other factors that vary.
    pub at: Levels,
    /// In ascending order of the number of connections.
    pub points: Vec<ScalingPoint>,
}

/// A path at one number of connections.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ScalingPoint {
    pub connections: u32,
    pub cell: CellId,
    /// Comparisons with the first path at the same number of connections: rate and cost. Empty for
    /// the first path itself, and if it has no such cell.
    pub comparisons: Vec<Comparison>,
}

impl Course {
    /// Returns the smallest number of connections such that it is significantly better (or worse)
    /// than the first path there and at every larger number, with the comparison at that number.
    pub fn from(&self, question: Metric, better: bool) -> Option<(u32, &Comparison)> {
        let is_sure = |point: &&ScalingPoint| {
            let comparison = point.comparison(question);
            comparison.is_some_and(|one| one.verdict.better() == Some(better))
        };
        let point = self.points.iter().rev().take_while(is_sure).last()?;
        Some((point.connections, point.comparison(question)?))
    }
}

impl ScalingPoint {
    pub fn comparison(&self, question: Metric) -> Option<&Comparison> {
        self.comparisons.iter().find(|comparison| comparison.question == question)
    }
}

/// Compares the paths; `None` if no path but the first has enough numbers of connections, or no
/// speed was measured.
pub(crate) fn scaling(
    comparer: &Comparer,
    cells: &[Side],
    baseline: &CellId,
    noises: &[Noise],
) -> Option<Scaling> {
    if comparer.is_silent(Metric::Rate) {
        return None;
    }
    let places: Vec<Place> = cells.iter().map(|side| Place::of(side, &varied(cells))).collect();
    let first = cells.iter().position(|side| side.cell.id == *baseline)?;
    let first = places[first].path.clone();
    let base = |place: &Place| {
        let alike = |other: &Place| Place { path: place.path.clone(), ..other.clone() } == *place;
        let at = places.iter().position(|other| other.path == first && alike(other))?;
        (place.path != first).then_some(cells[at])
    };
    let pairs = places.iter().zip(cells).filter_map(|(place, cell)| Some((base(place)?, *cell)));
    let pairs: Vec<(Side, Side)> = pairs.collect();
    let compare = |question: Metric| {
        let noise = noises.iter().find(|noise| noise.question == question);
        let pairs: Vec<_> = pairs.iter().map(|(base, cell)| (Some(*base), *cell)).collect();
        comparer.compare_pairs(question, &pairs, noise)
    };
    let questions = [Metric::Rate, Metric::Cpu, Metric::Instructions];
    let compared: Vec<Vec<Option<Comparison>>> = questions.map(compare).into();
    let point = |(place, side): (&Place, &Side)| {
        let pair = pairs.iter().position(|(_, cell)| cell.cell.id == side.cell.id);
        let of = |pair: usize| compared.iter().filter_map(move |all| all[pair].clone()).collect();
        let comparisons = pair.map(of).unwrap_or_default();
        let cell = side.cell.id.clone();
        let point = ScalingPoint { connections: place.connections, cell, comparisons };
        ((place.path.clone(), place.at.clone()), point)
    };
    let courses = grouped(places.iter().zip(cells).map(point)).into_iter();
    let courses = courses.map(|((path, at), mut points)| {
        points.sort_by_key(|point| point.connections);
        Course { path, at, points }
    });
    let courses: Vec<Course> = courses.collect();
    let is_course = |course: &Course| {
        course.points.iter().filter(|point| !point.comparisons.is_empty()).count() >= FEWEST
    };
    courses.iter().any(is_course).then_some(Scaling { first, courses })
}

/// Coordinates of a cell: path, number of connections, other levels.
#[derive(Clone, PartialEq)]
struct Place {
    path: String,
    connections: u32,
    at: Levels,
}

impl Place {
    fn of(side: &Side, varied: &[&String]) -> Place {
        let levels = || side.cell.levels.iter().filter(|(factor, _)| varied.contains(factor));
        let names_path = |factor: &str| PATHS.contains(&factor);
        let paths = levels().filter(|(factor, _)| names_path(factor));
        let at = levels().filter(|(factor, _)| !names_path(factor) && *factor != CONNECTIONS);
        Place {
            path: joined(paths.map(|(_, level)| level), "+"),
            connections: side.cell.stream.flows,
            at: at.map(|(factor, level)| (factor.clone(), level.clone())).collect(),
        }
    }
}

/// Returns the factors in whose levels the cells differ.
fn varied<'a>(cells: &[Side<'a>]) -> Vec<&'a String> {
    let all = || cells.iter().flat_map(|side| &side.cell.levels);
    let varies = |name: &&String| {
        let levels = all().filter(|(factor, _)| factor == name).map(|(_, level)| level);
        distinct(levels).len() > 1
    };
    distinct(all().map(|(factor, _)| factor)).into_iter().filter(varies).collect()
}
