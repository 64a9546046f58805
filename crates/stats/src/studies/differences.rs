//! Differences between the hosts and the methods of two studies.

use bytepath_record::{Facts, Load, StudyHeader, Work, unit};
use schemars::JsonSchema;
use serde::Serialize;

/// Copy bandwidths that differ by more than this part are reported: then the machine itself was
/// faster or slower, whatever the paths did.
const CEILING_APART: f64 = 0.1;

/// Memory sizes that differ by less than this part indicate the same machine under another kernel.
const MEMORY_APART: f64 = 0.05;

/// A difference in hosts or method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    pub what: String,
    /// Value in the first study.
    pub first: String,
    pub second: String,
    /// Its meaning for the comparison.
    pub weight: Weight,
}

/// The meaning of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Another machine: the figures do not show what changed in software.
    Machine,
    /// The same machine in another state: this may be the cause, or the subject.
    State,
    /// Another method of measurement.
    Method,
}

/// Returns the differences between two studies besides their trials.
pub fn differences(first: &StudyHeader, second: &StudyHeader) -> Vec<Difference> {
    let mut all = Differences::default();
    all.check(Weight::Machine, "testbed", &first.testbed, &second.testbed);
    for (a, b) in first.facts.iter().zip(&second.facts) {
        all.hosts(a, b);
    }
    let (a, b) = (&first.schedule, &second.schedule);
    let seconds = |s: f64| format!("{s} s");
    all.check(Weight::Method, "window", &seconds(a.window), &seconds(b.window));
    all.check(Weight::Method, "warm-up", &seconds(a.warm_up), &seconds(b.warm_up));
    let design = |d| format!("{d:?}").to_lowercase();
    all.check(Weight::Method, "design", &design(a.design), &design(b.design));
    all.check(Weight::Method, "bytepath", &first.bytepath, &second.bytepath);
    let meters = |header: &StudyHeader| header.meters.join(" ");
    all.check(Weight::Method, "meters", &meters(first), &meters(second));
    for load in &first.loads {
        for other in second.loads.iter().filter(|other| other.pair == load.pair) {
            let Some(cell) = load.cells.iter().find(|cell| other.cells.contains(cell)) else {
                continue;
            };
            let rate = |load: &Load| format!("{}/s", load.rate);
            all.check(Weight::State, &format!("load of {cell}"), &rate(load), &rate(other));
        }
    }
    if let (Some(a), Some(b)) = (first.ceiling, second.ceiling)
        && apart(a.workload, b.workload, CEILING_APART)
    {
        let terms = Work::Bytes.terms();
        let rate = |bytes: f64| format!("{:.1} {}", bytes * terms.rate_scale, terms.rate_unit);
        all.check(Weight::State, "copy ceiling", &rate(a.workload), &rate(b.workload));
    }
    all.0
}

/// Returns the differences between two hosts.
pub fn host_differences(a: &Facts, b: &Facts) -> Vec<Difference> {
    let mut all = Differences::default();
    all.hosts(a, b);
    all.0
}

fn apart(a: f64, b: f64, part: f64) -> bool {
    (a - b).abs() > part * a.abs().max(b.abs())
}

#[derive(Default)]
struct Differences(Vec<Difference>);

impl Differences {
    /// Adds a difference once, even if both hosts have it.
    fn check(&mut self, weight: Weight, what: &str, first: &str, second: &str) {
        let (what, first, second) = (what.to_owned(), first.to_owned(), second.to_owned());
        let difference = Difference { what, first, second, weight };
        if difference.first != difference.second && !self.0.contains(&difference) {
            self.0.push(difference);
        }
    }

    fn hosts(&mut self, a: &Facts, b: &Facts) {
        self.check(Weight::Machine, "CPU", &a.cpu_model, &b.cpu_model);
        self.check(Weight::Machine, "architecture", &a.architecture, &b.architecture);
        let count = |f: &Facts| f.cpus.len().to_string();
        self.check(Weight::Machine, "CPUs", &count(a), &count(b));
        if apart(a.memory as f64, b.memory as f64, MEMORY_APART) {
            let gib = |f: &Facts| format!("{:.1} GiB", f.memory as f64 / unit::GIB);
            self.check(Weight::Machine, "memory", &gib(a), &gib(b));
        }
        self.check(Weight::State, "kernel", &a.kernel_release, &b.kernel_release);
        self.check(Weight::State, "kernel build", &a.kernel_version, &b.kernel_version);
        let page = |f: &Facts| f.page_size.to_string();
        self.check(Weight::State, "page size", &page(a), &page(b));
        let user = |f: &Facts| match (f.privileges.user_namespace, f.privileges.euid) {
            (true, _) => "in a user namespace",
            (false, 0) => "root",
            (false, _) => "not root",
        };
        self.check(Weight::State, "user", user(a), user(b));
        let names = a.settings.keys().chain(b.settings.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        for name in names {
            let of =
                |f: &Facts| f.settings.get(name).cloned().unwrap_or_else(|| "not there".into());
            self.check(Weight::State, name, &of(a), &of(b));
        }
    }
}
