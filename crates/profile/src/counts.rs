//! Counters without functions, as printed by `perf stat` and `perf trace -s`, and the comparison of
//! two such tables.

use indexmap::IndexSet;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

/// Events counted per thread, by the names of perf-list(1) and in the order of `perf stat`.
pub const EVENTS: [&str; 10] = [
    "task-clock",
    "context-switches",
    "cpu-migrations",
    "page-faults",
    "cycles",
    "instructions",
    "branches",
    "branch-misses",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
];

/// Name of the wall time in a table, in seconds.
pub const ELAPSED: &str = "time elapsed";

/// A table of counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Name of the table in errors and reports.
    pub title: String,
    /// The counters, in the order of the table.
    pub rows: Vec<Count>,
    /// Notes about what was left out.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Count {
    /// Name of the thread it was counted for; may be empty.
    pub group: String,
    /// Name of what was counted: an event, a system call.
    pub name: String,
    /// `ms`, `s`, `calls`; empty for events.
    pub unit: String,
    /// The count; `None` if it was not counted.
    pub value: Option<f64>,
    /// Part of the time in which it was counted, 0 to 1, if counters took turns.
    pub counted: Option<f64>,
}

/// Two tables side by side.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Compared {
    /// Titles of the tables.
    pub titles: [String; 2],
    /// Units of work done on each side, if given.
    pub work: Option<[f64; 2]>,
    /// Every counter of either table, then the derived figures.
    pub rows: Vec<ComparedRow>,
    /// Warnings, and notes about what was left out.
    pub notes: Vec<String>,
}

/// A counter in both tables.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ComparedRow {
    /// Name of the thread it was counted for; may be empty.
    pub group: String,
    pub name: String,
    /// Unit of both values; may be empty.
    pub unit: String,
    /// Value before the change; `None` if it was not counted.
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// After over before; `None` unless both exist and the first is not zero.
    pub ratio: Option<f64>,
    /// Whether it was derived from other counters.
    pub derived: bool,
}

/// Compares two tables. Rows with the same group and name are added up: threads of one name. If
/// `work` states the units done on both sides, each counter is also listed per unit.
pub fn compare(tables: [&Counts; 2], work: Option<[f64; 2]>) -> Compared {
    let keys: IndexSet<[&str; 3]> =
        tables.iter().flat_map(|table| &table.rows).map(Count::key).collect();
    let added = tables.map(Counts::sums);
    let sums = |key: &[&str; 3]| row(*key, added.each_ref().map(|sums| *sums.get(key)?), false);
    let mut rows: Vec<ComparedRow> = keys.iter().map(sums).collect();
    for derived in DERIVED {
        let values = tables.map(|table| derived.of(table));
        if values.iter().any(Option::is_some) {
            rows.push(row(["", derived.name, derived.unit], values, true));
        }
    }
    if let Some(work) = work {
        for key in &keys {
            let each = |at: usize| added[at].get(key)?.map(|value| value / work[at]);
            let unit =
                if key[2].is_empty() { "per unit".into() } else { format!("{}/unit", key[2]) };
            rows.push(row([key[0], key[1], &unit], [each(0), each(1)], true));
        }
    }
    let mut notes = Vec::new();
    for table in tables {
        notes.extend(table.notes.iter().map(|note| format!("{}: {note}", table.title)));
        let least = table.rows.iter().filter_map(|row| row.counted).fold(1.0, f64::min);
        if least < 1.0 {
            notes.push(format!(
                "{}: counters took turns; one was counted {:.0} % of the time and scaled up",
                table.title,
                least * 100.0
            ));
        }
    }
    Compared { titles: tables.map(|table| table.title.clone()), work, rows, notes }
}

fn row(key: [&str; 3], [before, after]: [Option<f64>; 2], derived: bool) -> ComparedRow {
    let [group, name, unit] = key.map(str::to_owned);
    let ratio = before.zip(after).map(|(before, after)| after / before).filter(|r| r.is_finite());
    ComparedRow { group, name, unit, before, after, ratio, derived }
}

impl Count {
    fn key(&self) -> [&str; 3] {
        [&self.group, &self.name, &self.unit]
    }
}

impl Counts {
    /// Returns the sum of the rows for each key; `None` if one was not counted.
    fn sums(&self) -> HashMap<[&str; 3], Option<f64>> {
        let mut sums = HashMap::new();
        for row in &self.rows {
            let sum = sums.entry(row.key()).or_insert(Some(0.0));
            *sum = sum.zip(row.value).map(|(sum, value)| sum + value);
        }
        sums
    }

    /// Returns the value of an event, by its own name or its alias.
    fn value(&self, event: &str) -> Option<f64> {
        let other = OTHER_NAMES.iter().find(|(name, _)| *name == event).map(|(_, other)| *other);
        std::iter::once(event).chain(other).find_map(|name| {
            // `cycles:u`: with a modifier it is the same counter.
            let row = self.rows.iter().find(|row| row.name.split(':').next() == Some(name));
            row.and_then(|row| row.value)
        })
    }
}

/// perf's aliases of events.
const OTHER_NAMES: [(&str, &str); 5] = [
    ("task-clock", "cpu-clock"),
    ("cycles", "cpu-cycles"),
    ("branches", "branch-instructions"),
    ("context-switches", "cs"),
    ("cpu-migrations", "migrations"),
];

/// A figure derived from counters.
#[derive(Clone, Copy, Debug)]
pub struct Derived {
    /// The event of [`EVENTS`] next to which it is printed.
    pub event: &'static str,
    pub name: &'static str,
    /// Its unit; may be empty.
    pub unit: &'static str,
    /// The event to divide by.
    by: &'static str,
    scale: f64,
}

impl Derived {
    /// Returns its value for a table with clocks in ms; `None` if a counter is missing.
    pub fn of(&self, table: &Counts) -> Option<f64> {
        let ratio = table.value(self.event)? / table.value(self.by)? * self.scale;
        Some(ratio).filter(|ratio| ratio.is_finite())
    }
}

/// All derived figures.
pub const DERIVED: [Derived; 9] = [
    derived("task-clock", "CPUs used", "", ELAPSED, 1e-3),
    derived("cycles", "clock rate", "GHz", "task-clock", 1e-6),
    derived("instructions", "instructions per cycle", "", "cycles", 1.0),
    derived("branch-misses", "branch-miss rate", "%", "branches", 100.0),
    derived("branches", "branches", "M/s", "task-clock", 1e-3),
    derived("stalled-cycles-frontend", "front end idle", "% of cycles", "cycles", 100.0),
    derived("stalled-cycles-backend", "back end idle", "% of cycles", "cycles", 100.0),
    derived("context-switches", "context switches", "/s", "task-clock", 1e3),
    derived("cpu-migrations", "CPU migrations", "/s", "task-clock", 1e3),
];

const fn derived(
    event: &'static str,
    name: &'static str,
    unit: &'static str,
    by: &'static str,
    scale: f64,
) -> Derived {
    Derived { event, name, unit, by, scale }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, &str, Option<f64>)]) -> Counts {
        let count = |(name, unit, value): &(&str, &str, Option<f64>)| Count {
            name: (*name).into(),
            unit: (*unit).into(),
            value: *value,
            ..Count::default()
        };
        Counts { title: "t".into(), rows: rows.iter().map(count).collect(), notes: Vec::new() }
    }

    #[test]
    fn compares_counters_and_derived_figures() {
        let before = table(&[
            ("task-clock", "ms", Some(2000.0)),
            ("cycles:u", "", Some(4e9)),
            ("instructions:u", "", Some(4e9)),
            ("time elapsed", "s", Some(4.0)),
        ]);
        let after = table(&[
            ("task-clock", "ms", Some(1000.0)),
            ("cycles", "", None),
            ("cycles:u", "", Some(2e9)),
            ("instructions:u", "", Some(6e9)),
        ]);
        let found = compare([&before, &after], Some([1e6, 2e6]));
        let find = |name: &str, unit: &str| {
            let row = found.rows.iter().find(|row| row.name == name && row.unit == unit);
            row.map(|row| (row.before, row.after, row.ratio)).unwrap()
        };
        assert_eq!(find("task-clock", "ms"), (Some(2000.0), Some(1000.0), Some(0.5)));
        assert_eq!(find("cycles", ""), (None, None, None));
        assert_eq!(find("time elapsed", "s"), (Some(4.0), None, None));
        assert_eq!(find("CPUs used", ""), (Some(0.5), None, None));
        assert_eq!(find("instructions:u", "per unit"), (Some(4000.0), Some(3000.0), Some(0.75)));
        assert_eq!(find("clock rate", "GHz"), (Some(2.0), None, None), "a hole is not zero");
    }

    #[test]
    fn threads_of_a_name_add_up() {
        let call =
            |value| Count { group: "app".into(), name: "write".into(), value, ..Count::default() };
        let two = Counts { rows: vec![call(Some(2.0)), call(Some(3.0))], ..Counts::default() };
        let hole = Counts { rows: vec![call(Some(2.0)), call(None)], ..Counts::default() };
        let found = compare([&two, &hole], None);
        assert_eq!((found.rows[0].before, found.rows[0].after), (Some(5.0), None));
    }
}
