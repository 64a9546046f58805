//! Adds up, over the trials of a cell, what can be added up.

use bytepath_math::Moments;
use bytepath_record::{
    CallRow, Evidence, FragmentCounts, Ledger, Manner, RoleRecord, SizeDistribution, distinct,
    joined,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// A sentence and the number of trials with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CountedText {
    /// The sentence, as the first trial worded it.
    pub text: String,
    /// The number of trials, counting sentences that differ only in their numbers as the same.
    pub count: u32,
}

/// Returns the reasons for which trials were rejected, as sentences, given the events of each and
/// the number of all trials. Trials with the same kinds of events share a sentence.
pub fn rejections(events: &[String], of: usize) -> Vec<String> {
    let all = count_by(events.iter().map(String::as_str), kinds).into_iter();
    let words = |CountedText { text, count }: CountedText| match count {
        1 => format!("1 of {of} rejected: {text}"),
        n => format!("{n} of {of} rejected, the first because {text}"),
    };
    all.map(words).collect()
}

/// Counts sentences in the order of first occurrence. Two that differ only in their digits are the
/// same sentence: a warning contains its measurement.
pub(crate) fn count<'a>(sentences: impl IntoIterator<Item = &'a str>) -> Vec<CountedText> {
    count_by(sentences, without_numbers)
}

fn count_by<'a>(
    sentences: impl IntoIterator<Item = &'a str>,
    kind: fn(&str) -> String,
) -> Vec<CountedText> {
    let mut counted: Vec<CountedText> = Vec::new();
    let mut kinds: HashMap<String, usize> = HashMap::new();
    for text in sentences {
        let at = *kinds.entry(kind(text)).or_insert(counted.len());
        match counted.get_mut(at) {
            Some(same) => same.count += 1,
            None => counted.push(CountedText { text: text.to_owned(), count: 1 }),
        }
    }
    counted
}

/// Counts words in the order of first occurrence, without empty ones.
pub(crate) fn count_exact<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<CountedText> {
    count_by(words.into_iter().filter(|word| !word.is_empty()), str::to_owned)
}

/// Returns the kinds of events of a trial: "CPU 0 lost 12%; CPU 1 lost 14%" is "CPU # lost #%".
fn kinds(events: &str) -> String {
    let each: BTreeSet<String> = events.split("; ").map(without_numbers).collect();
    joined(each, "; ")
}

/// Returns a sentence without its numbers: "steal 1.3 % on CPU 0" is "steal # % on CPU #".
pub(crate) fn without_numbers(text: &str) -> String {
    let mut shape = String::with_capacity(text.len());
    for c in text.chars() {
        let numeric = c.is_ascii_digit() || (c == '.' && shape.ends_with('#'));
        if !numeric {
            shape.push(c);
        } else if !shape.ends_with('#') {
            shape.push('#');
        }
    }
    shape
}

/// The ledgers of one end, added up over trials, as parts of the bytes delivered.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Shares {
    /// Bytes delivered in all trials together.
    pub delivered: u64,
    /// Part that was copied, 0 to 1.
    pub copied: f64,
    /// Part that was not copied, 0 to 1.
    pub not_copied: f64,
    /// Part that was discarded in the kernel, 0 to 1.
    #[serde(skip_serializing_if = "is_zero")]
    pub discarded: f64,
    /// Part without proof either way, 0 to 1.
    pub unknown: f64,
    /// The evidence for these parts.
    pub evidence: Vec<Evidence>,
}

impl Shares {
    /// Adds up ledgers; `None` if no byte was delivered.
    pub fn of<'a>(ledgers: impl IntoIterator<Item = &'a Ledger>) -> Option<Shares> {
        let mut sums = [0u128; 4];
        let mut evidence: Vec<Evidence> = Vec::new();
        for l in ledgers {
            let parts = [l.copied, l.not_copied, l.discarded, l.unknown];
            sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += u128::from(part));
            l.evidence.iter().for_each(|one| enter(&mut evidence, one));
        }
        let all: u128 = sums.iter().sum();
        let part = |n: u128| n as f64 / all as f64;
        (all > 0).then(|| Shares {
            delivered: u64::try_from(all).unwrap_or(u64::MAX),
            copied: part(sums[0]),
            not_copied: part(sums[1]),
            discarded: part(sums[2]),
            unknown: part(sums[3]),
            evidence,
        })
    }

    /// Returns the part of the bytes that were moved in this manner, 0 to 1.
    pub fn part(&self, manner: Manner) -> f64 {
        match manner {
            Manner::Copied => self.copied,
            Manner::NotCopied => self.not_copied,
            Manner::Discarded => self.discarded,
            Manner::Unknown => self.unknown,
        }
    }

    /// Returns the evidence for one manner, strongest first.
    pub fn evidence_of(&self, manner: Manner) -> Vec<&Evidence> {
        let mut evidence: Vec<_> = self.evidence.iter().filter(|e| e.manner == manner).collect();
        evidence.sort_by_key(|e| std::cmp::Reverse(e.bytes));
        evidence
    }
}

fn is_zero(part: &f64) -> bool {
    *part == 0.0
}

fn enter(evidence: &mut Vec<Evidence>, new: &Evidence) {
    match evidence.iter_mut().find(|e| e.manner == new.manner && e.source == new.source) {
        Some(same) => {
            same.bytes = same.bytes.saturating_add(new.bytes);
            same.events = same.events.saturating_add(new.events);
        }
        None => evidence.push(new.clone()),
    }
}

/// A system call, over several trials.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PooledCall {
    /// All calls together. `stddev_percent` is the standard deviation of the trials' means in
    /// percent of their mean, zero for a single trial. It is not the calls' own spread over the
    /// root of their number, which would be too small: calls of one connection depend on each
    /// other.
    #[serde(flatten)]
    pub row: CallRow,
    /// The calls' own spread over the root of their number, as a single table of `perf trace -s`
    /// over all calls would show it.
    pub calls_percent: f64,
}

/// The system calls of a thread, over several trials.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PooledCalls {
    /// Name of the thread.
    pub thread: String,
    /// Its calls.
    pub calls: Vec<PooledCall>,
}

/// Pools the system-call tables of each thread, by its name; empty if some trial has only its
/// role's table, because the threads' would not add up to the role's.
pub(crate) fn calls_by_thread(records: &[&RoleRecord]) -> Vec<PooledCalls> {
    let only_role =
        |record: &&RoleRecord| record.calls_by_thread.is_empty() && !record.calls.is_empty();
    if records.iter().any(only_role) {
        return Vec::new();
    }
    let tables = || records.iter().flat_map(|record| &record.calls_by_thread);
    let names = distinct(tables().map(|of| of.thread.as_str()));
    let pool = |thread: &str| {
        let of_it = tables().filter(|of| of.thread == thread);
        PooledCalls { thread: thread.into(), calls: calls(of_it.map(|of| of.calls.as_slice())) }
    };
    names.into_iter().map(pool).collect()
}

/// Pools the system-call tables of several trials.
pub(crate) fn calls<'a>(tables: impl IntoIterator<Item = &'a [CallRow]>) -> Vec<PooledCall> {
    let mut pooled: Vec<(CallRow, Moments, f64)> = Vec::new();
    for row in tables.into_iter().flatten().filter(|row| row.calls > 0) {
        match pooled.iter_mut().find(|(sum, ..)| sum.name == row.name) {
            Some((sum, means, squares)) => {
                sum.calls = sum.calls.saturating_add(row.calls);
                sum.errors = sum.errors.saturating_add(row.errors);
                sum.bytes = sum.bytes.saturating_add(row.bytes);
                sum.total += row.total;
                sum.min = sum.min.min(row.min);
                sum.max = sum.max.max(row.max);
                means.add(row.avg);
                *squares += squares_of(row);
            }
            None => {
                pooled.push((row.clone(), [row.avg].into_iter().collect(), squares_of(row)));
            }
        }
    }
    let pool = |(row, means, squares): (CallRow, Moments, f64)| {
        let (calls, avg) = (row.calls as f64, row.total / row.calls as f64);
        let variance = ((squares - calls * avg * avg) / (calls - 1.0)).max(0.0);
        let spread = means.stddev().map_or(0.0, |sd| 100.0 * sd / means.mean());
        let row = CallRow {
            total: finite(row.total),
            min: finite(row.min),
            avg: finite(avg),
            max: finite(row.max),
            stddev_percent: finite(spread),
            ..row
        };
        PooledCall { row, calls_percent: finite(100.0 * (variance / calls).sqrt() / avg) }
    };
    pooled.into_iter().map(pool).collect()
}

/// Returns the sum of the squares of all durations, from the deviation of their mean.
fn squares_of(row: &CallRow) -> f64 {
    let calls = row.calls as f64;
    let variance = (row.stddev_percent / 100.0 * row.avg).powi(2) * calls;
    (calls - 1.0) * variance + calls * row.avg * row.avg
}

/// Makes a value representable in every format: NaN (the spread of a single call) becomes zero, an
/// overflowed sum the largest finite number.
fn finite(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(f64::MIN, f64::MAX) }
}

/// Pools the transfer sizes of several trials: count, smallest, mean, largest. Percentiles cannot
/// be pooled and are left out.
pub(crate) fn sizes<'a>(parts: impl IntoIterator<Item = &'a SizeDistribution>) -> SizeDistribution {
    let mut sum = SizeDistribution::default();
    for part in parts.into_iter().filter(|p| p.count > 0) {
        sum.min = if sum.count == 0 { part.min } else { sum.min.min(part.min) };
        sum.max = sum.max.max(part.max);
        let before = sum.count as f64;
        sum.count = sum.count.saturating_add(part.count);
        let weight = part.count as f64 / (before + part.count as f64);
        sum.mean = finite(sum.mean + (part.mean - sum.mean) * weight);
    }
    sum
}

/// Fragments per receive over several trials: the counts, and shares computed from them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Fragments {
    #[serde(flatten)]
    pub counts: FragmentCounts,
    pub average: f64,
    /// Part of all calls that returned more than 1024, 0 to 1.
    pub above_share: f64,
    /// Of the calls after which more than 1024 were held, the part that returned more than 1024 by
    /// themselves, 0 to 1; `None` if there was no such call.
    pub above_share_of_gathered: Option<f64>,
    /// Part of all calls that returned fewer than 512, 0 to 1.
    pub below_share: f64,
}

/// Adds up fragment counts; `None` if there was no call.
pub(crate) fn fragments<'a>(
    parts: impl IntoIterator<Item = &'a FragmentCounts>,
) -> Option<Fragments> {
    let mut counts = FragmentCounts::default();
    parts.into_iter().for_each(|part| counts.add(part));
    Some(Fragments {
        average: counts.average()?,
        above_share: counts.above_share()?,
        above_share_of_gathered: counts.above_share_of_gathered(),
        below_share: counts.below_share()?,
        counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{CallRow, Ledger, Manner, SizeDistribution};

    #[test]
    fn one_line_for_the_same_kinds_of_events() {
        let events = ["CPU 1 lost 12%", "CPU 0 lost 20%; CPU 1 lost 31.5%", "the flow stalled"];
        let events = events.map(str::to_owned);
        let said = rejections(&events, 9);
        let expected = [
            "2 of 9 rejected, the first because CPU 1 lost 12%",
            "1 of 9 rejected: the flow stalled",
        ];
        assert_eq!(said, expected);
    }

    fn row(durations: &[f64]) -> CallRow {
        let n = durations.len() as f64;
        let total: f64 = durations.iter().sum();
        let avg = total / n;
        let squares: f64 = durations.iter().map(|d| (d - avg).powi(2)).sum();
        let variance = squares / (n - 1.0);
        CallRow {
            name: "recv".into(),
            calls: durations.len() as u64,
            errors: 1,
            bytes: 100,
            total,
            min: durations.iter().copied().fold(f64::INFINITY, f64::min),
            avg,
            max: durations.iter().copied().fold(0.0, f64::max),
            stddev_percent: 100.0 * (variance / n).sqrt() / avg,
        }
    }

    #[test]
    fn two_call_tables_pool_to_the_one_of_all_calls() {
        let (a, b) = ([1.0, 2.0, 4.0], [8.0, 3.0]);
        let pooled = calls([&[row(&a)][..], &[row(&b)][..]]);
        let whole = row(&[1.0, 2.0, 4.0, 8.0, 3.0]);
        assert_eq!(pooled.len(), 1);
        let (p, of_calls) = (&pooled[0].row, pooled[0].calls_percent);
        assert_eq!((p.calls, p.errors, p.bytes, p.total), (5, 2, 200, 18.0));
        assert_eq!((p.min, p.max), (1.0, 8.0));
        assert!((p.avg - whole.avg).abs() < 1e-12);
        assert!((of_calls - whole.stddev_percent).abs() < 1e-9, "as of one trial of all");
        // Means of 7/3 and 11/2: their deviation is 2.239, their mean 3.917.
        assert!((p.stddev_percent - 57.170).abs() < 0.001, "{}", p.stddev_percent);
        let single = calls([&[row(&[2.0, 9.0])][..]]);
        assert_eq!(single[0].row.stddev_percent, 0.0, "one trial has no spread, and no NaN");
        assert!((single[0].calls_percent - row(&[2.0, 9.0]).stddev_percent).abs() < 1e-9);
    }

    #[test]
    fn sizes_pool_by_weight() {
        let part = |count, min, mean, max| SizeDistribution {
            count,
            min,
            mean,
            max,
            percentiles: vec![(50.0, 7)],
        };
        let sum = sizes([&part(1, 10, 10.0, 10), &part(0, 0, 0.0, 0), &part(3, 2, 30.0, 60)]);
        assert_eq!((sum.count, sum.min, sum.mean, sum.max), (4, 2, 25.0, 60));
        assert!(sum.percentiles.is_empty());
    }

    #[test]
    fn sentences_are_the_same_but_for_their_numbers() {
        let said =
            ["steal 1.3 % on CPU 0", "tcp slow", "steal 12 % on CPU 1", "steal 2.25 % of it"];
        let counted = count(said);
        assert_eq!(counted.len(), 3);
        assert_eq!((counted[0].text.as_str(), counted[0].count), ("steal 1.3 % on CPU 0", 2));
    }

    #[test]
    fn shares_add_up_over_trials_and_bytes_weigh() {
        let (mut a, mut b) = (Ledger::default(), Ledger::default());
        a.enter(Manner::NotCopied, 90, 9, "mapped");
        a.enter(Manner::Copied, 10, 1, "recv");
        b.enter(Manner::NotCopied, 210, 2, "mapped");
        b.enter(Manner::Unknown, 90, 0, "no completion");
        let s = Shares::of([&a, &b]).unwrap();
        assert_eq!((s.delivered, s.not_copied, s.copied, s.unknown), (400, 0.75, 0.025, 0.225));
        let mut c = Ledger::default();
        c.enter(Manner::Discarded, 100, 1, "MSG_TRUNC");
        let with = Shares::of([&a, &b, &c]).unwrap();
        assert_eq!((with.not_copied, with.discarded, with.part(Manner::Unknown)), (0.6, 0.2, 0.18));
        let mapped = s.evidence_of(Manner::NotCopied);
        assert_eq!((mapped.len(), mapped[0].bytes, mapped[0].events), (1, 300, 11));
        assert_eq!(Shares::of([&Ledger::default()]), None);
    }
}
