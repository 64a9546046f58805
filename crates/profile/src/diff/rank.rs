//! Adding up samples by function, and the order of the rows.

use super::types::{GroupBy, GroupTotal, Measure, Options, Pair, Presence, Row};
use crate::subsystem::{Class, Classes, Coverage, Subsystem, is_idle};
use crate::symptom::Tally;
use crate::text::intern;
use crate::{Frame, FrameKind, Profile, Sample, StackId, normalise};
use bytepath_math::Moments;
use hashbrown::HashMap;
use indexmap::{IndexMap, IndexSet};

/// Properties of a function besides its amounts.
#[derive(Clone, Debug)]
struct FunctionInfo {
    module: String,
    subsystem: Option<Subsystem>,
}

/// Accumulates the amounts of functions.
pub(super) struct Ranking<'a> {
    options: &'a Options<'a>,
    /// Whether functions in user space are distinguished by their file: only if both sides record
    /// it.
    modules: bool,
    /// The files of the two builds if each side has its own build of the program; their functions
    /// are compared.
    pub programs: Option<[String; 2]>,
    /// By name, and by file if that distinguishes them; otherwise the second text is empty.
    functions: IndexMap<(String, String), FunctionInfo>,
    groups: IndexSet<String>,
    /// Amounts of each group on both sides.
    totals: Vec<[Moments; 2]>,
    /// Amounts of each function in every profile of a side that has it.
    amounts: HashMap<(u32, u32), [Moments; 2]>,
    /// All that is compared, before and after the change.
    pub busy: [Moments; 2],
    /// Idle samples, unless they are rows.
    pub idle: [Moments; 2],
    /// Foreign samples, unless they are rows.
    pub foreign: [Moments; 2],
    /// Coverage of the kernel's time by the rules.
    pub coverage: Coverage,
    /// Symptoms of both sides.
    pub symptoms: Tally,
}

/// Returns the program of each side, if all profiles of a side are of the same program and the two
/// sides differ: the profile of a command has its name as title, and frames in its file.
fn programs(sides: [&[Profile]; 2]) -> Option<[String; 2]> {
    let program = |profile: &Profile| {
        let file = normalise::module(profile.header.title.split_whitespace().next()?).to_owned();
        let is_in_it = |frame: &Frame| {
            frame.kind == FrameKind::User && normalise::module(&frame.module) == file
        };
        profile.frames().iter().any(is_in_it).then_some(file)
    };
    let of = |side: &[Profile]| -> Option<String> {
        let mut all = side.iter().map(program);
        let first = all.next()??;
        all.all(|other| other.as_ref() == Some(&first)).then_some(first)
    };
    let [before, after] = [of(sides[0])?, of(sides[1])?];
    (before != after).then_some([before, after])
}

impl<'a> Ranking<'a> {
    pub(super) fn new(options: &'a Options<'a>, sides: [&[Profile]; 2]) -> Self {
        let names_files = |profile: &Profile| {
            let mut user = profile.frames().iter().filter(|f| f.kind == FrameKind::User);
            user.any(|f| !f.module.is_empty())
        };
        Ranking {
            options,
            modules: sides.into_iter().all(|side| side.iter().all(names_files)),
            programs: programs(sides),
            functions: IndexMap::new(),
            groups: IndexSet::new(),
            totals: Vec::new(),
            amounts: HashMap::new(),
            busy: [Moments::default(); 2],
            idle: [Moments::default(); 2],
            foreign: [Moments::default(); 2],
            coverage: Coverage::default(),
            symptoms: Tally::new(2),
        }
    }

    /// Adds a profile to a side (0 without, 1 with the change), its weights multiplied by `scale`.
    pub(super) fn add(&mut self, side: usize, profile: &Profile, scale: f64) {
        let classes = Classes::of(profile, self.options.rules);
        self.coverage.add(profile, &classes);
        self.symptoms.add(side, profile, &classes);
        let keys: Vec<u32> = profile
            .frames()
            .iter()
            .zip(classes.frames())
            .map(|(f, c)| self.key(side, f, *c))
            .collect();
        // Samples with the same stack and group are added up first, so that each stack is walked
        // only once.
        let mut stacks: HashMap<(u32, u32), f64> = HashMap::new();
        let mut threads = HashMap::new();
        let (mut busy, mut idle, mut foreign) = (0.0, 0.0, 0.0);
        for sample in profile.samples() {
            if !self.options.idle && is_idle(profile, &classes, sample) {
                idle += sample.weight;
                continue;
            }
            if !self.options.foreign && sample.owner.is_apart() {
                foreign += sample.weight;
                continue;
            }
            busy += sample.weight;
            let group = self.group(profile, &classes, sample, &mut threads);
            *stacks.entry((sample.stack.0, group)).or_default() += sample.weight;
        }
        self.busy[side].add(busy * scale);
        self.idle[side].add(idle * scale);
        self.foreign[side].add(foreign * scale);
        // Sort, so that sums do not depend on the order of a hash map.
        let mut stacks: Vec<_> = stacks.into_iter().collect();
        stacks.sort_unstable_by_key(|(key, _)| *key);
        self.add_groups(side, stacks.iter().map(|((_, group), weight)| (*group, weight * scale)));
        let mut amounts: HashMap<(u32, u32), f64> = HashMap::new();
        let mut last_turns: Vec<usize> = vec![0; self.functions.len()];
        for (turn, ((stack, group), weight)) in stacks.into_iter().enumerate() {
            let stack = profile.stack(StackId(stack));
            let deep = match self.options.measure {
                Measure::SelfOnly => 1,
                Measure::Total => stack.len(),
            };
            for frame in stack.iter().take(deep) {
                let Some(key) = keys.get(frame.0 as usize) else { continue };
                // A recursive function counts once.
                if std::mem::replace(&mut last_turns[*key as usize], turn + 1) == turn + 1 {
                    continue;
                }
                *amounts.entry((*key, group)).or_default() += weight;
            }
        }
        for (key, weight) in amounts {
            self.amounts.entry(key).or_default()[side].add(weight * scale);
        }
    }

    /// Adds the amounts of a profile's groups, stack by stack.
    fn add_groups(&mut self, side: usize, stacks: impl Iterator<Item = (u32, f64)>) {
        let mut totals = vec![0.0; self.groups.len()];
        stacks.for_each(|(group, amount)| totals[group as usize] += amount);
        self.totals.resize(totals.len(), Default::default());
        for (all, total) in self.totals.iter_mut().zip(totals).filter(|(_, total)| *total != 0.0) {
            all[side].add(total);
        }
    }

    /// Returns the amounts of each group, computed by `pair`; the largest change first.
    pub(super) fn groups(&self, pair: impl Fn([Moments; 2]) -> Pair) -> Vec<GroupTotal> {
        let total = |(group, amounts): (&String, &[Moments; 2])| GroupTotal {
            group: group.clone(),
            amount: pair(*amounts),
        };
        let mut totals: Vec<GroupTotal> = self.groups.iter().zip(&self.totals).map(total).collect();
        let size = |total: &GroupTotal| total.amount.saved.abs();
        totals.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.group.cmp(&b.group)));
        totals
    }

    fn key(&mut self, side: usize, frame: &Frame, class: Option<Class>) -> u32 {
        let own = normalise::module(&frame.module);
        let file = match &self.programs {
            Some(programs) if programs[side] == own => programs[1].as_str(),
            _ => own,
        };
        let apart = self.modules && frame.kind == FrameKind::User;
        let module = if apart { file.to_owned() } else { String::new() };
        let key = (normalise::of_frame(frame).into_owned(), module);
        let entry = self.functions.entry(key);
        let id = entry.index() as u32;
        entry.or_insert_with(|| FunctionInfo {
            module: file.to_owned(),
            subsystem: match class {
                Some(Class::Is(subsystem)) => Some(subsystem),
                Some(Class::Caller) => None,
                None => Some(Subsystem::Other),
            },
        });
        id
    }

    fn group(
        &mut self,
        profile: &Profile,
        classes: &Classes,
        sample: &Sample,
        threads: &mut HashMap<u32, u32>,
    ) -> u32 {
        let name = match self.options.by {
            GroupBy::None => "",
            GroupBy::Role => sample.owner.name(),
            GroupBy::Subsystem => classes.sample(sample).name(),
            GroupBy::Thread => {
                if let Some(group) = threads.get(&sample.thread.0) {
                    return *group;
                }
                let name = normalise::thread(&profile.thread(sample.thread).name);
                let group = intern(&mut self.groups, &name) as u32;
                threads.insert(sample.thread.0, group);
                return group;
            }
        };
        intern(&mut self.groups, name) as u32
    }

    /// Returns every row, sorted, with its amounts computed by `pair`.
    pub(super) fn rows(&self, pair: impl Fn([Moments; 2]) -> Pair) -> Vec<Row> {
        let row = |((key, group), amounts): (&(u32, u32), &[Moments; 2])| {
            let ((function, _), info) = self.functions.get_index(*key as usize)?;
            Some(Row {
                function: function.clone(),
                module: info.module.clone(),
                group: self.groups.get_index(*group as usize)?.clone(),
                subsystem: info.subsystem,
                presence: match amounts.map(|side| side.sum()) {
                    [0.0, _] => Presence::Appeared,
                    [_, 0.0] => Presence::Vanished,
                    _ => Presence::Both,
                },
                amount: pair(*amounts),
            })
        };
        let some = |(_, amounts): &(_, &[Moments; 2])| amounts.iter().any(|a| a.sum() != 0.0);
        let mut rows: Vec<Row> = self.amounts.iter().filter(some).filter_map(row).collect();
        rows.sort_by(order);
        rows
    }
}

/// Sorts by most saved. Among equal savings, functions in both profiles come first: one that is
/// missing may only have fallen below what its tool lists, and then its saving is only a bound.
/// Next come those with less left after the change, for which the saving is the larger part; then
/// by name.
fn order(a: &Row, b: &Row) -> std::cmp::Ordering {
    let one_sided = |row: &Row| row.presence != Presence::Both;
    b.amount
        .saved
        .total_cmp(&a.amount.saved)
        .then(one_sided(a).cmp(&one_sided(b)))
        .then(a.amount.with.total_cmp(&b.amount.with))
        .then_with(|| a.function.cmp(&b.function))
        .then_with(|| a.module.cmp(&b.module))
        .then_with(|| a.group.cmp(&b.group))
}
