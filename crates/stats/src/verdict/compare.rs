//! The comparisons of a study: every cell against the baseline, in every metric.

use super::contract::{other_load, trial_differences, undeclared_differences};
use super::judge::{Ceiling, Findings, Noise, Test, Verdict, judge, tests};
use crate::cell::rejections;
use crate::estimate::{Effect, Estimate, Looks, PairSpread};
use crate::metric::Metric;
use crate::rules::Rules;
use crate::trial::{CostRule, Costs, other_rules, why_not_measured};
use bytepath_record::{
    Cell, CopyCeiling, Load, Reading, Role, RoleRecord, Scope, Trial, TrialStatus, Work,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Name of the reading that gives the link's ceiling: its rate in bytes per second, of
/// `Scope::Link`. Links without a rate (veth) have no such reading.
const LINK_RATE: &str = "link.rate";

/// Bytes of a packet at full MTU that carry no payload: IPv4 and TCP with
/// timestamps.
const HEADERS: f64 = 20.0 + 20.0 + 12.0;

/// Bytes that a packet takes on Ethernet beyond its MTU: preamble, header, frame
/// check sequence, gap (IEEE 802.3).
const FRAMING: f64 = 8.0 + 14.0 + 4.0 + 12.0;

/// Returns the end that a device of the link belongs to, and the rate of the device.
fn link_rate(reading: &Reading) -> Option<(Role, f64)> {
    match reading.scope {
        Scope::Link(role, _) if reading.metric == LINK_RATE => Some((role, reading.value)),
        _ => None,
    }
}

/// A cell against the baseline, in one metric.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    pub question: Metric,
    /// Ratio, cell over baseline; `None` if no block has both.
    pub effect: Option<Effect>,
    /// The tests of a claim, corrected for all comparisons of the study; `None` without an
    /// interval.
    pub test: Option<Test>,
    pub verdict: Verdict,
    /// How far the ratio scatters between pairs of hosts, if the study has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairSpread>,
    /// Reasons why the two cannot be compared; empty if they can.
    pub reasons: Vec<String>,
}

/// A cell with all of its trials.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub cell: &'a Cell,
    /// Its trials, in the order run.
    pub trials: &'a [&'a Trial],
    /// The costs of the measured ones.
    pub costs: &'a [Costs],
}

impl Side<'_> {
    /// Returns the figure of every measured block. If a block has several trials of the cell, the
    /// last counts.
    pub(crate) fn figures(&self, question: Metric) -> BTreeMap<u32, f64> {
        match question {
            Metric::Rate => self.trials.iter().filter_map(|t| Some((t.block, t.rate()?))).collect(),
            Metric::Cpu | Metric::Instructions => {
                self.costs.iter().filter_map(|c| Some((c.block, c.answer(question)?))).collect()
            }
            Metric::Latency(percentile) => {
                let measured = self.trials.iter().filter(|t| t.rate().is_some());
                let all = measured.filter_map(|t| Some((t.block, t.latency.as_ref()?)));
                if all.clone().any(|(_, latency)| latency.has_lost(percentile)) {
                    return BTreeMap::new();
                }
                all.filter_map(|(block, l)| Some((block, l.percentile(percentile)?))).collect()
            }
        }
    }

    /// Returns the number of blocks that it was run in, whatever became of its trials.
    fn blocks(&self) -> usize {
        self.trials.iter().map(|trial| trial.block).collect::<BTreeSet<u32>>().len()
    }

    /// Returns the rules by which its CPU time was obtained; see [`Costs::rules`].
    pub(crate) fn cost_rules(&self) -> Option<[CostRule; 2]> {
        self.costs.iter().find_map(Costs::rules)
    }

    /// Returns whether at least one end copies most of the bytes, or may do so.
    fn copies(&self) -> bool {
        let passes = |role: &RoleRecord| role.ledger.not_copied > role.ledger.delivered / 2;
        let by_reference = |t: &&Trial| !t.roles.is_empty() && t.roles.iter().all(passes);
        !self.trials.iter().any(by_reference)
    }

    /// Returns the events that its rejected trials were rejected for.
    fn rejected(&self) -> Vec<String> {
        let is_rejected = |t: &&&Trial| matches!(t.status, TrialStatus::Rejected { .. });
        let rejected = self.trials.iter().filter(is_rejected);
        let events: Vec<String> = rejected.filter_map(|t| why_not_measured(t)).collect();
        let reasons = rejections(&events, self.trials.len());
        reasons.into_iter().map(|reason| format!("{}: {reason}", self.cell.id)).collect()
    }
}

/// What all comparisons of a study share.
pub(crate) struct Comparer<'a> {
    pub rules: &'a Rules,
    /// How often the study was looked at before it was complete.
    pub looks: Looks,
    /// Blocks that it was planned with.
    pub planned: u32,
    /// Copy bandwidth, if known.
    pub ceiling: Option<CopyCeiling>,
    /// Rates of cells whose load is defined as a part of their peak.
    pub loads: &'a [Load],
    /// Whether the study measured no speed: then it makes no claims and gives no ratios.
    pub functional: bool,
}

impl Comparer<'_> {
    /// Returns whether a metric is not judged: speed was not measured, and only instruction counts
    /// do not depend on it.
    pub(crate) fn is_silent(&self, question: Metric) -> bool {
        self.functional && question != Metric::Instructions
    }

    /// Returns the ratio of the second cell's figures to the first's, from every block that
    /// measured both.
    pub(crate) fn effect(&self, question: Metric, first: Side, second: Side) -> Option<Effect> {
        let figures = [first.figures(question), second.figures(question)];
        let pair = |(block, a): (&u32, &f64)| Some((*a, *figures[1].get(block)?));
        let pairs: Vec<_> = figures[0].iter().filter_map(pair).collect();
        Effect::looked_at(&pairs, self.rules.confidence, self.looks_at(first, second))
    }

    /// Returns how often the comparison of two cells was looked at.
    pub(crate) fn looks_at(&self, first: Side, second: Side) -> Looks {
        match self.looks {
            Looks::EachBlock { .. } => {
                let last =
                    [first, second].iter().all(|side| side.blocks() >= self.planned as usize);
                Looks::EachBlock { last }
            }
            looks => looks,
        }
    }

    /// Returns how far that effect scatters between pairs of hosts.
    fn pairs(&self, question: Metric, first: Side, second: Side) -> Option<PairSpread> {
        let named = second.trials.iter().filter_map(|t| Some((t.block, t.pair.as_deref()?)));
        let named: BTreeMap<u32, &str> = named.collect();
        let (first, second) = (first.figures(question), second.figures(question));
        let log = |(block, a): (&u32, &f64)| {
            let log = second.get(block)?.ln() - a.ln();
            Some((*named.get(block)?, log)).filter(|(_, log)| log.is_finite())
        };
        PairSpread::of(first.iter().filter_map(log))
    }

    /// Compares every cell with the baseline. `None` for a cell without measured trials, and, for
    /// CPU and latency, if either side lacks the figure.
    pub(crate) fn compare(
        &self,
        question: Metric,
        baseline: Option<Side>,
        cells: &[Side],
        noise: Option<&Noise>,
    ) -> Vec<Option<Comparison>> {
        let pairs: Vec<_> = cells.iter().map(|cell| (baseline, *cell)).collect();
        self.compare_pairs(question, &pairs, noise)
    }

    /// Like [`Self::compare`], with a baseline for each cell.
    pub(crate) fn compare_pairs(
        &self,
        question: Metric,
        pairs: &[(Option<Side>, Side)],
        noise: Option<&Noise>,
    ) -> Vec<Option<Comparison>> {
        let drafts: Vec<Option<Draft>> =
            pairs.iter().map(|(base, cell)| self.draft(question, *base, *cell)).collect();
        let estimate = |d: &Option<Draft>| d.as_ref().and_then(Draft::estimate);
        let estimates: Vec<Option<Estimate>> = drafts.iter().map(estimate).collect();
        let tests = tests(&estimates, self.rules);
        let all = drafts.into_iter().zip(estimates.iter().zip(tests));
        all.map(|(draft, claims)| Some(self.conclude(question, draft?, claims, noise))).collect()
    }

    fn draft(&self, question: Metric, baseline: Option<Side>, cell: Side) -> Option<Draft> {
        let measured = !cell.figures(question).is_empty();
        if !measured && (question != Metric::Rate || cell.rejected().is_empty()) {
            return None;
        }
        let mut draft = Draft::default();
        if self.is_silent(question) {
            return Some(draft);
        }
        let Some(baseline) = baseline else { return Some(draft) };
        if question != Metric::Rate && baseline.figures(question).is_empty() {
            return None;
        }
        draft.effect = self.effect(question, baseline, cell);
        draft.pairs = self.pairs(question, baseline, cell);
        let name = &baseline.cell.id.0;
        draft.reasons = undeclared_differences(name, baseline.cell, cell.cell);
        draft.reasons.extend(trial_differences(name, baseline.trials, cell.trials));
        draft.reasons.extend(other_load(self.loads, baseline.cell, cell.cell));
        let is_cost = matches!(question, Metric::Cpu | Metric::Instructions);
        let other = || other_rules("the baseline's", baseline.cost_rules(), cell.cost_rules());
        draft.reasons.extend(is_cost.then(other).flatten());
        if draft.effect.as_ref().is_none_or(|e| e.interval.is_none()) {
            draft.reasons.extend(baseline.rejected().into_iter().chain(cell.rejected()));
        }
        let ceiling = |side| self.ceiling_of(side);
        draft.ceiling =
            ceiling(baseline).filter(|c| question == Metric::Rate && ceiling(cell) == Some(*c));
        Some(draft)
    }

    fn conclude(
        &self,
        question: Metric,
        draft: Draft,
        (estimate, test): (&Option<Estimate>, Option<Test>),
        noise: Option<&Noise>,
    ) -> Comparison {
        let blocks = draft.effect.as_ref().map_or(0, |e| e.blocks);
        let findings = Findings {
            question,
            estimate: estimate.as_ref().zip(test.as_ref()),
            blocks,
            log_stddev: draft.effect.as_ref().and_then(|e| e.log_stddev),
            log_floor: noise.and_then(|n| n.log_floor(blocks)).unwrap_or(0.0),
        };
        let verdict = match draft.ceiling {
            _ if self.is_silent(question) => Verdict::Functional,
            _ if !draft.reasons.is_empty() => Verdict::NotComparable,
            Some(ceiling) if test.is_some() => Verdict::Saturated { ceiling },
            _ => judge(&findings, self.rules),
        };
        let Draft { effect, pairs, reasons, .. } = draft;
        Comparison { question, effect, test, verdict, pairs, reasons }
    }

    /// Returns the ceiling that a cell's mean rate reaches: within the margin of the copy
    /// bandwidth, or at most the margin below what the link can carry. Only rates of bytes have
    /// one, and only paths that copy are bound by copying.
    fn ceiling_of(&self, side: Side) -> Option<Ceiling> {
        if side.trials.iter().any(|t| t.work != Work::Bytes) {
            return None;
        }
        let margin = self.rules.margin;
        let figures = side.figures(Metric::Rate);
        let mean = figures.values().map(|t| t / figures.len() as f64).sum::<f64>();
        // If the link has several adapters, add up those of one end.
        let rate = side.trials.iter().find_map(|t| {
            let first = t.readings.iter().find_map(link_rate)?.0;
            let all = t.readings.iter().filter_map(link_rate);
            Some(all.filter(|(role, _)| *role == first).map(|(_, rate)| rate).sum::<f64>())
        });
        let mtu = f64::from(side.cell.link.mtu);
        let ways = if side.cell.goes_both_ways() { 2.0 } else { 1.0 };
        let carried = rate.map(|r| ways * r * (mtu - HEADERS) / (mtu + FRAMING));
        let copied = self.ceiling.map(|c| c.workload).filter(|_| side.copies());
        let reached = |ceiling: f64| mean > 0.0 && mean >= ceiling * (1.0 - margin);
        let link = carried.filter(|c| *c > 0.0 && reached(*c)).map(|_| Ceiling::Link);
        let copy = copied.filter(|c| reached(*c) && mean <= c * (1.0 + margin));
        link.or(copy.map(|_| Ceiling::Copy))
    }
}

/// A comparison before the correction for its family.
#[derive(Default)]
struct Draft {
    effect: Option<Effect>,
    pairs: Option<PairSpread>,
    ceiling: Option<Ceiling>,
    reasons: Vec<String>,
}

impl Draft {
    /// Returns the estimate; `None` if there are reasons against a comparison, which then makes no
    /// claim and is not part of the family.
    fn estimate(&self) -> Option<Estimate> {
        let usable = self.effect.as_ref().filter(|e| e.interval.is_some())?;
        self.reasons.is_empty().then(|| usable.estimate())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{cell, trial};
    use bytepath_record::{Latency, Ledger, OptionValue, Percentile, Reading, Role, Unit};
    use std::time::Duration;

    const GBIT: f64 = 1e9 / 8.0;

    /// Trials of one second with these rates in Gbit/s, block by block.
    fn trials(name: &str, rates: &[f64]) -> Vec<Trial> {
        let each = rates.iter().zip(0..);
        each.map(|(rate, block)| trial(name, block, 1.0, (rate * GBIT) as u64)).collect()
    }

    fn compared(
        first: (&Cell, &[Trial]),
        second: (&Cell, &[Trial]),
        question: Metric,
        ceiling: Option<f64>,
    ) -> Option<Comparison> {
        let (a, b): (Vec<&Trial>, Vec<&Trial>) =
            (first.1.iter().collect(), second.1.iter().collect());
        let costs = |cell: &Cell, trials: &[&Trial]| -> Vec<Costs> {
            let measured = trials.iter().filter(|t| t.rate().is_some());
            Costs::of_trials(cell, measured.copied(), None)
        };
        let (a_costs, b_costs) = (costs(first.0, &a), costs(second.0, &b));
        let comparer = Comparer {
            rules: &Rules::default(),
            looks: Looks::Once,
            planned: 0,
            loads: &[],
            functional: false,
            ceiling: ceiling.map(|gbit| CopyCeiling {
                workload: gbit * GBIT,
                workload_size: 1,
                memory: 1.0,
                memory_size: 1,
            }),
        };
        let baseline = Side { cell: first.0, trials: &a, costs: &a_costs };
        let side = Side { cell: second.0, trials: &b, costs: &b_costs };
        comparer.compare(question, Some(baseline), &[side], None).remove(0)
    }

    fn word(a: &[f64], b: &[f64], ceiling: Option<f64>) -> &'static str {
        let (a, b) = (trials("a", a), trials("b", b));
        let c = compared((&cell("a"), &a), (&cell("b"), &b), Metric::Rate, ceiling);
        c.unwrap().verdict.word()
    }

    const NEAR: [f64; 5] = [49.5, 49.6, 49.4, 49.6, 49.5];
    const BELOW: [f64; 5] = [40.1, 40.0, 39.9, 40.0, 40.1];

    #[test]
    fn saturated_requires_both_cells_at_the_ceiling() {
        assert_eq!(word(&NEAR, &NEAR, Some(50.0)), "SATURATED");
        assert_eq!(word(&BELOW, &NEAR, Some(50.0)), "FASTER");
        assert_eq!(word(&NEAR, &BELOW, Some(50.0)), "SLOWER");
        assert_eq!(word(&NEAR, &NEAR, None), "EQUIVALENT");
        // Far above the copy bandwidth, it is not a ceiling.
        assert_eq!(word(&NEAR, &NEAR, Some(30.0)), "EQUIVALENT");
        assert_eq!(word(&NEAR[..1], &NEAR[..1], Some(50.0)), "TOO FEW BLOCKS");
    }

    #[test]
    fn zero_copy_is_not_bound_by_the_copy_ceiling() {
        let with = |not_copied: u64| {
            let mut all = trials("a", &NEAR);
            for role in all.iter_mut().flat_map(|t| &mut t.roles) {
                role.ledger = Ledger { delivered: 100, not_copied, ..Ledger::default() };
                role.ledger.copied = 100 - not_copied;
            }
            assert!(all.iter().all(|t| !t.roles.is_empty()));
            let sides = ((&cell("a"), &all[..]), (&cell("a"), &all[..]));
            compared(sides.0, sides.1, Metric::Rate, Some(50.0)).unwrap().verdict.word()
        };
        assert_eq!((with(0), with(40), with(99)), ("SATURATED", "SATURATED", "EQUIVALENT"));
    }

    #[test]
    fn the_link_is_a_ceiling_by_its_payload() {
        // 10 Gbit/s at MTU 4148 carry 9.785 of payload.
        let with_rate = |name: &str, rates: &[f64]| {
            let mut trials = trials(name, rates);
            for t in &mut trials {
                let scope = Scope::Link(Role::Receiver, "eth0".into());
                t.readings.push(Reading::mean(LINK_RATE, Unit::BytesPerSecond, 10.0 * GBIT, scope));
            }
            trials
        };
        let both = |name: &str| {
            let mut cell = cell(name);
            let direction = ("direction".to_owned(), OptionValue::Word("both".into()));
            cell.workload.options.0.extend([direction]);
            cell
        };
        for (cell, rates, expected) in [
            (cell as fn(&str) -> Cell, [9.78, 9.77, 9.78], "SATURATED"),
            (cell, [9.5, 9.5, 9.51], "EQUIVALENT"),
            // A link carries as much in each direction.
            (both, [9.78, 9.77, 9.78], "EQUIVALENT"),
            (both, [19.56, 19.55, 19.56], "SATURATED"),
        ] {
            let (a, b) = (with_rate("a", &rates), with_rate("b", &rates));
            let c = compared((&cell("a"), &a), (&cell("b"), &b), Metric::Rate, None);
            let verdict = c.unwrap().verdict;
            assert_eq!(verdict.word(), expected, "{rates:?}: {verdict:?}");
        }
    }

    #[test]
    fn different_contracts_are_not_comparable() {
        let (a, b) = (trials("a", &BELOW), trials("b", &NEAR));
        let (first, mut second) = (cell("a"), cell("b"));
        second.stream.touch = bytepath_record::Touch::Read;
        let c = compared((&first, &a), (&second, &b), Metric::Rate, None).unwrap();
        assert_eq!(c.verdict, Verdict::NotComparable);
        assert_eq!(c.reasons, ["touch is none in a and read here"]);
        assert_eq!(c.test, None, "it is not part of the family");
        second.levels.insert("touch".into(), "read".into());
        let c = compared((&first, &a), (&second, &b), Metric::Rate, None).unwrap();
        assert_eq!((c.verdict, c.reasons.len()), (Verdict::Faster, 0));
    }

    #[test]
    fn not_comparable_names_the_events_that_left_too_few_blocks() {
        let (a, mut b) = (trials("a", &BELOW), trials("b", &NEAR));
        let events = vec!["CPU 1 lost 12 % to steal".to_owned()];
        for t in &mut b[..3] {
            t.status = TrialStatus::Rejected { events: events.clone() };
        }
        let compare =
            |b: &[Trial]| compared((&cell("a"), &a), (&cell("b"), b), Metric::Rate, None).unwrap();
        assert_eq!(compare(&b).verdict, Verdict::Faster, "two blocks are left");
        b[3].status = TrialStatus::Rejected { events: events.clone() };
        let c = compare(&b);
        assert_eq!(c.verdict, Verdict::NotComparable);
        assert_eq!(c.reasons, ["b: 4 of 5 rejected, the first because CPU 1 lost 12 % to steal"]);
        // Merely not having run is TOO FEW BLOCKS.
        assert_eq!(compare(&trials("b", &NEAR[..1])).verdict, Verdict::NotEnough { blocks: 1 });
    }

    #[test]
    fn cpu_is_compared_under_one_rule_only() {
        let busy = |name: &str, seconds: f64| {
            let mut trials = trials(name, &BELOW);
            for (i, t) in trials.iter_mut().enumerate() {
                let run = seconds * (1.0 + 0.001 * i as f64);
                for role in &mut t.roles {
                    role.threads = vec![crate::tests::thread("x", run, run, 0.0)];
                }
            }
            trials
        };
        let (a, b) = (busy("a", 0.5), busy("b", 0.4));
        let c = compared((&cell("a"), &a), (&cell("b"), &b), Metric::Cpu, None).unwrap();
        assert_eq!(c.verdict, Verdict::LessCpu);
        assert!((c.effect.unwrap().ratio - 0.8).abs() < 0.01);
        let mut whole = busy("b", 0.4);
        for t in &mut whole {
            let mut read = |metric: &str, scope| {
                t.readings.push(Reading::sum(metric, Unit::Seconds, 0.45, scope));
            };
            read("cpu.wall", Scope::Machine);
            read("cpu.busy", Scope::Cpu(0));
            read("cpu.busy", Scope::Cpu(1));
        }
        let c = compared((&cell("a"), &a), (&cell("b"), &whole), Metric::Cpu, None).unwrap();
        assert_eq!(c.verdict, Verdict::NotComparable);
        assert!(c.reasons[0].contains("a different rule"));
        let unseen = trials("b", &BELOW);
        let none = compared((&cell("a"), &a), (&cell("b"), &unseen), Metric::Cpu, None);
        assert_eq!(none, None, "where nothing was measured there is no question");
    }

    /// Trials of one second and 20,000 exchanges, each as long as its block's value in
    /// microseconds, and one in 50 ten times as long.
    fn exchanges(name: &str, typical: &[f64]) -> Vec<Trial> {
        let each = typical.iter().zip(0..);
        each.map(|(us, block)| {
            let mut latency = Latency::default();
            for i in 0..20_000 {
                let times = if i % 50 == 0 { 10.0 } else { 1.0 };
                latency.record(Duration::from_secs_f64(us * times * 1e-6));
            }
            let mut trial = trial(name, block, 1.0, 20_000);
            (trial.work, trial.latency) = (Work::Exchanges, Some(latency));
            trial
        })
        .collect()
    }

    #[test]
    fn a_percentile_is_judged_like_a_rate_and_lower_is_better() {
        let a = exchanges("a", &[50.0, 51.0, 50.5, 49.5, 50.0]);
        let word = |typical: &[f64], percentile| {
            let b = exchanges("b", typical);
            let question = Metric::Latency(percentile);
            let c = compared((&cell("a"), &a), (&cell("b"), &b), question, Some(1e-6))?;
            Some((c.verdict.word(), c.verdict.better()))
        };
        for percentile in [Percentile::P50, Percentile::P99] {
            let low = word(&[40.0, 40.5, 40.2, 39.8, 40.1], percentile).unwrap();
            assert_eq!(low, ("LOWER LATENCY", Some(true)));
            let high = word(&[60.0, 60.5, 60.2, 59.8, 60.1], percentile).unwrap();
            assert_eq!(high, ("HIGHER LATENCY", Some(false)));
            let same = word(&[50.1, 51.1, 50.4, 49.4, 50.1], percentile).unwrap();
            assert_eq!(same, ("EQUIVALENT", None));
        }
        // Only two exchanges lie above p99.99, so nothing is reported about it.
        assert_eq!(word(&[50.0; 5], Percentile::P9999), None);
        // A rate of exchanges has no copy ceiling, however fast a core copies.
        let b = exchanges("b", &[50.0; 5]);
        let c = compared((&cell("a"), &a), (&cell("b"), &b), Metric::Rate, Some(20_000.0 / GBIT));
        assert_eq!(c.unwrap().verdict, Verdict::Equivalent);
    }
}
