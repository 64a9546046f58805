//! From a study to its analysis.

use super::analysis::{
    ANALYSIS_VERSION, Analysis, CpuCost, End, Failure, LatencyRow, Pace, PercentileRow, Row, Rules,
    Status, StoppingNote, Witness,
};
use super::budget;
use super::compare::{Frame, Side};
use super::cpu::RoleCpu;
use super::factors::factor_view;
use super::frames;
use super::hops::HopsRow;
use super::idle::idle;
use super::offloading::offloading;
use super::order;
use super::placement::{ReceiveWork, collisions};
use super::pool::{self, Counted, Shares, count, shape};
use super::profiling::profiling_note;
use super::summary::Summary;
use super::verdict::{Noise, Question};
use super::worth::{self, Costs};
use crate::record::{
    Cell, CellId, Latency, Percentile, ProvenWitness, Role, RoleRecord, Scope, Series, Study,
    StudyHeader, Trial, TrialStatus, Work,
};
use std::collections::{BTreeSet, HashMap};

/// A step slower than this part of its trial's mean is a stall.
const STALL: f64 = 0.05;

/// Analyses a study. Rules that differ from [`Rules::of`] its header were made up
/// after the fact; a report that prints them says so.
pub fn analyse(study: &Study, rules: &Rules) -> Analysis {
    let header = &study.header;
    let known = known(study);
    let first_pass = header.schedule.first_pass();
    let each = first_pass.map_or(*rules, |_| rules.in_two_passes());
    let (nulls, cells): (Vec<&Known>, Vec<&Known>) = known.iter().partition(|k| k.cell.null);
    let frame = Frame {
        rules: &each,
        opening: header.schedule.stopping.map(|s| s.at_least as usize),
        ceiling: header.ceiling,
        functional: header.functional.is_some(),
    };
    let original = nulls.first().and_then(|null| original(null.cell, &cells, &header.baseline));
    let noise = |question| {
        if frame.is_silent(question) {
            return None;
        }
        let effect = frame.effect(question, original?.side(), nulls.first()?.side())?;
        Noise::of(question, effect, rules.confidence)
    };
    let noises: Vec<Noise> = Question::ALL.into_iter().filter_map(noise).collect();
    let mut rows: Vec<Row> = cells.iter().map(|k| row(study, rules, k)).collect();
    let baseline = cells.iter().find(|k| k.cell.id == header.baseline).map(|k| k.side());
    let (others, sides): (Vec<usize>, Vec<Side>) = cells
        .iter()
        .enumerate()
        .filter(|(_, k)| k.cell.id != header.baseline)
        .map(|(at, k)| (at, k.side()))
        .unzip();
    for question in Question::ALL {
        let noise = noises.iter().find(|noise| noise.question == question);
        let comparisons = frame.compare(question, baseline, &sides, noise);
        for (at, comparison) in others.iter().zip(comparisons) {
            rows[*at].comparisons.extend(comparison);
        }
    }
    let base = cells.iter().find(|k| k.cell.id == header.baseline).map(|k| k.cell);
    let factors = match first_pass {
        None => {
            let all: Vec<Side> = cells.iter().map(|k| k.side()).collect();
            factor_view(&frame, &all, base, &noises)
        }
        // Nothing was chosen in the blocks that all cells have.
        Some(first) => {
            let known = grouped(study, |_, trials| {
                trials.into_iter().filter(|trial| trial.block < first).collect()
            });
            let all: Vec<Side> = known.iter().filter(|k| !k.cell.null).map(|k| k.side()).collect();
            factor_view(&Frame { rules, ..frame }, &all, base, &noises)
        }
    };
    let sides: Vec<Side> = cells.iter().map(|k| k.side()).collect();
    let warnings = warnings(study, &rows);
    let remarks = remarks(study).into_iter().chain(in_order(&rows)).collect();
    Analysis {
        schema: ANALYSIS_VERSION,
        rules: *rules,
        baseline: header.baseline.clone(),
        rows,
        null: nulls.first().map(|k| row(study, rules, k)),
        noise_of: original.map(|k| k.cell.id.clone()),
        noises,
        factors,
        offloading: offloading(&frame, &sides, &header.baseline),
        functional: header.functional.clone(),
        instructions_per_second: header.instructions_per_second,
        stopping: stopping(study),
        profiling: profiling_note(study, rules),
        warnings,
        remarks,
    }
}

/// Every cell with what it is judged by.
pub(crate) fn known(study: &Study) -> Vec<Known<'_>> {
    grouped(study, |cell, trials| budget::counted(&study.header, cell, trials))
}

/// Every cell with those of its trials that count.
fn grouped<'a>(
    study: &'a Study,
    count: impl Fn(&Cell, Vec<&'a Trial>) -> Vec<&'a Trial>,
) -> Vec<Known<'a>> {
    let header = &study.header;
    let mut by_cell: HashMap<&CellId, Vec<&Trial>> = HashMap::new();
    for trial in &study.trials {
        by_cell.entry(&trial.cell).or_default().push(trial);
    }
    let mut of = |cell: &'a Cell| {
        let trials = by_cell.remove(&cell.id).unwrap_or_default();
        Known::of(header, cell, count(cell, trials))
    };
    header.cells.iter().map(&mut of).collect()
}

/// A cell and the trials that it is judged by.
pub(crate) struct Known<'a> {
    pub cell: &'a Cell,
    trials: Vec<&'a Trial>,
    measured: Vec<&'a Trial>,
    costs: Vec<Costs>,
}

impl<'a> Known<'a> {
    fn of(header: &StudyHeader, cell: &'a Cell, trials: Vec<&'a Trial>) -> Self {
        let measured: Vec<&Trial> = trials.iter().copied().filter(|t| t.rate().is_some()).collect();
        let instructions = header.instructions_per_second;
        let costs = measured.iter().map(|t| Costs::of(cell, t, instructions)).collect();
        Known { cell, trials, measured, costs }
    }

    /// As one side of a comparison.
    pub(crate) fn side(&self) -> Side<'_> {
        Side { cell: self.cell, trials: &self.trials, costs: &self.costs }
    }
}

/// The cell that the null cell is a second copy of; the baseline if that is one
/// of several.
fn original<'a>(null: &Cell, cells: &[&'a Known], baseline: &CellId) -> Option<&'a Known<'a>> {
    let same = |c: &Cell| {
        (&c.stream, &c.tx, &c.rx, &c.link, c.placement, &c.kernel)
            == (&null.stream, &null.tx, &null.rx, &null.link, null.placement, &null.kernel)
    };
    let twins = || cells.iter().copied().filter(|k| same(k.cell));
    twins().find(|k| k.cell.id == *baseline).or_else(|| twins().next())
}

fn stopping(study: &Study) -> Option<StoppingNote> {
    let rule = study.header.schedule.stopping?;
    let ran = |t: &&Trial| !matches!(t.status, TrialStatus::Unavailable { .. });
    let blocks: BTreeSet<u32> = study.trials.iter().filter(ran).map(|t| t.block).collect();
    Some(StoppingNote {
        within: rule.within,
        at_least: rule.at_least,
        most: study.header.schedule.blocks,
        run: blocks.len() as u32,
    })
}

fn remarks(study: &Study) -> Vec<String> {
    let mut remarks = study.remarks.clone();
    let cells = &study.header.cells;
    if !cells.iter().any(|c| c.id == study.header.baseline) {
        remarks
            .push(format!("the baseline '{}' is not a cell of this study", study.header.baseline));
    }
    let stray = study.trials.iter().filter(|t| !cells.iter().any(|c| c.id == t.cell)).count();
    if stray > 0 {
        remarks.push(format!("{stray} trials belong to no cell of this study and are left out"));
    }
    remarks
}

/// Comparisons whose blocks do not look independent.
fn in_order(rows: &[Row]) -> Vec<String> {
    let comparisons = rows.iter().flat_map(|row| row.comparisons.iter().map(move |c| (row, c)));
    let orders: Vec<_> = comparisons
        .filter_map(|(row, c)| Some((&row.cell, c.question, c.effect.as_ref()?.order?)))
        .collect();
    let level = order::LEVEL / orders.len() as f64;
    let line = |(cell, question, order): &(&CellId, Question, order::Order)| {
        let order::Order { neighbours, trend, p } = order;
        (*p <= level).then(|| {
            format!(
                "{cell}, {}: the ratios depend on the order of the blocks (correlation of \
                 neighbours {neighbours:.2}, with time {trend:.2}), but the interval assumes \
                 independent blocks: it may be too narrow",
                question.name()
            )
        })
    };
    orders.iter().filter_map(line).collect()
}

/// Warnings of all trials, without the notes of engines, which are shown with their row.
fn warnings(study: &Study, rows: &[Row]) -> Vec<Counted> {
    let ends = rows.iter().flat_map(|row| Role::ALL.map(|role| row.end(role)));
    let notes = ends.flat_map(|end| {
        end.notes.iter().map(move |note| shape(&format!("{}: {}", end.role, note.text)))
    });
    let notes: BTreeSet<String> = notes.collect();
    let mut all = count(study.trials.iter().flat_map(|t| &t.warnings).map(String::as_str));
    all.retain(|warning| !notes.contains(&shape(&warning.text)));
    all
}

fn row(study: &Study, rules: &Rules, known: &Known) -> Row {
    let Known { cell, trials, measured, costs } = known;
    let work = measured.first().or(trials.first()).map_or(Work::Bytes, |t| t.work);
    let apart = measured.iter().any(|trial| trial.has_hosts_apart());
    let rate = Summary::of(measured.iter().filter_map(|t| t.rate()));
    let rate = rate.map(|s| s.at(rules.confidence));
    let ceiling = study.header.ceiling.map(|c| c.workload);
    let ceiling = ceiling.filter(|c| *c > 0.0 && work == Work::Bytes);
    let share = rate.zip(ceiling).map(|(rate, ceiling)| rate.mean / ceiling);
    let over = |figure: &dyn Fn(&Costs) -> Option<f64>| {
        let values = costs.iter().filter_map(figure);
        Summary::of(values).map(|s| s.at(rules.confidence))
    };
    let end = |role| End {
        watts: over(&|c| c.watts[role as usize]),
        joules_per_unit: over(&|c| c.joules_per_unit()[role as usize]),
        ..end(role, work, cell, measured, costs)
    };
    // Where speed was not measured, nothing is known to come back for what was spent.
    let returns: &[Costs] = if study.header.functional.is_none() { costs } else { &[] };
    Row {
        cell: cell.id.clone(),
        tx: cell.tx.path.clone(),
        rx: cell.rx.path.clone(),
        baseline: cell.id == study.header.baseline,
        status: status(trials),
        work,
        rate,
        latency: latency(measured, rules),
        hops: HopsRow::of(cell, measured, rules.confidence),
        facts: frames::facts(cell, measured, &study.profiles, rules.confidence),
        ceiling_share: share.filter(|share| share.is_finite()),
        labels: pool::count_exact(measured.iter().map(|t| t.label.as_str())),
        sender: end(Role::Sender),
        receiver: end(Role::Receiver),
        cpu_per_unit: over(&Costs::cpu_per_unit),
        cpu_per_packet: over(&Costs::cpu_per_packet),
        roi: worth::roi(returns, rules),
        roi_power: worth::roi_power(returns, rules),
        watts: over(&|c| c.watts[2]),
        joules_per_unit: over(&|c| c.joules_per_unit()[2]),
        service_demand: worth::service_demand(returns, rules),
        headline: worth::headline(measured),
        retransmits: retransmits(measured),
        // The meter counts bytes, whatever the trial counts.
        pace: if work == Work::Bytes { pace(measured) } else { None },
        receive_work: ReceiveWork::of(cell, measured),
        sender_work: ReceiveWork::of_sender(cell, measured),
        collisions: collisions(cell, &study.header.facts, apart),
        comparisons: Vec::new(),
        warnings: count(trials.iter().flat_map(|t| &t.warnings).map(String::as_str)),
    }
}

fn status(trials: &[&Trial]) -> Status {
    let mut status = Status::default();
    for trial in trials {
        match &trial.status {
            TrialStatus::Measured => status.measured += 1,
            TrialStatus::Unavailable { reason, remedy } => {
                status.unavailable.get_or_insert_with(|| (reason.clone(), remedy.clone()));
            }
            TrialStatus::Rejected { events } => status.rejected.push(events.join("; ")),
            TrialStatus::Failed { fault } => {
                match status.failed.iter_mut().find(|f| f.fault == *fault) {
                    Some(known) => known.count += 1,
                    None => status.failed.push(Failure { fault: fault.clone(), count: 1 }),
                }
            }
        }
    }
    status
}

fn end(role: Role, work: Work, cell: &Cell, measured: &[&Trial], costs: &[Costs]) -> End {
    let records: Vec<&RoleRecord> = measured.iter().filter_map(|t| t.role(role)).collect();
    // The witness page is recorded with the sender; it refers to that end only.
    let seen = |what| records.iter().filter(|r| r.witness == Some(what)).count() as u32;
    End {
        role,
        cpu: cpu_cost(role, costs),
        watts: None,
        joules_per_unit: None,
        calls_per_unit: Summary::of(records.iter().filter_map(|r| calls_per_unit(work, r))),
        ledger: Shares::of(records.iter().map(|r| &r.ledger)),
        witness: Witness {
            shared: seen(ProvenWitness::Shared),
            copied: seen(ProvenWitness::Copied),
        },
        calls: pool::calls(records.iter().map(|r| r.calls.as_slice())),
        sizes: pool::sizes(records.iter().map(|r| &r.sizes)),
        idle: idle(role, cell, measured),
        fragments: pool::fragments(records.iter().filter_map(|r| r.fragments.as_ref())),
        notes: count(records.iter().flat_map(|r| &r.notes).map(String::as_str)),
    }
}

fn calls_per_unit(work: Work, record: &RoleRecord) -> Option<f64> {
    let counted = !record.calls.is_empty() && record.count > 0;
    let calls: f64 = record.calls.iter().map(|c| c.calls as f64).sum();
    counted.then(|| calls / (record.count as f64 / work.terms().unit_size))
}

/// The latency of all trials together, and of each by itself.
fn latency(measured: &[&Trial], rules: &Rules) -> Option<LatencyRow> {
    let each = || measured.iter().filter_map(|t| t.latency.as_ref());
    let mut all = Latency::new();
    each().for_each(|latency| all.add(latency));
    let row = |percentile: Percentile| {
        let trials = Summary::of(each().filter_map(|latency| latency.percentile(percentile)));
        Some(PercentileRow {
            percentile,
            pooled: all.percentile(percentile)?,
            trials: trials.map(|s| s.at(rules.confidence)),
        })
    };
    Some(LatencyRow {
        count: all.count(),
        mean: all.mean()?,
        max: all.max()?,
        percentiles: Percentile::ALL.into_iter().filter_map(row).collect(),
    })
}

fn cpu_cost(role: Role, costs: &[Costs]) -> Option<CpuCost> {
    let at = Role::ALL.iter().position(|r| *r == role)?;
    let seen =
        |c: &Costs| Some((c.roles[at]?, c.units_per_second())).filter(|(_, work)| *work > 0.0);
    let all: Vec<(RoleCpu, f64)> = costs.iter().filter_map(seen).collect();
    // Two rules give figures that do not compare; a trial by another rule than
    // the first (a meter failed in between) is left out.
    let RoleCpu { rule, exact, .. } = all.first()?.0;
    let alike = |(cpu, _): &(RoleCpu, f64)| (cpu.rule, cpu.exact) == (rule, exact);
    let all: Vec<_> = all.into_iter().filter(alike).collect();
    let per_unit = |part: fn(&RoleCpu) -> f64| Summary::of(all.iter().map(|(c, w)| part(c) / w));
    let mean = |part| per_unit(part).map_or(0.0, |s| s.mean);
    let total = per_unit(|c| c.total)?;
    Some(CpuCost {
        rule,
        exact,
        total,
        user: mean(|c| c.user),
        system: mean(|c| c.system),
        softirq: mean(|c| c.softirq),
        unsplit: mean(|c| c.unsplit),
        cores: Summary::of(all.iter().map(|(c, _)| c.total))?,
        iowait: Summary::of(all.iter().filter_map(|(c, _)| c.iowait)).map(|s| s.mean),
        other: if total.mean > 0.0 { mean(|c| c.other) / total.mean } else { 0.0 },
    })
}

fn retransmits(measured: &[&Trial]) -> Option<f64> {
    let sent = measured.iter().flat_map(|t| &t.readings).filter(|r| {
        r.metric == "tcp.retransmits" && matches!(r.scope, Scope::Flow(Role::Sender, _))
    });
    let values: Vec<f64> = sent.map(|r| r.value).filter(|v| v.is_finite()).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>()).filter(|sum| sum.is_finite())
}

fn pace(measured: &[&Trial]) -> Option<Pace> {
    let mut paced: Vec<(f64, f64, Vec<f64>)> = measured
        .iter()
        .filter_map(|t| {
            let (step, steps) = receiver_steps(&t.series)?;
            Some((t.rate()?, step, steps))
        })
        .collect();
    paced.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all = || paced.iter().flat_map(|(_, _, steps)| steps.iter().copied());
    let range = Summary::of(all())?;
    let (mut stalled, mut stalled_trials) = (0.0, 0);
    for (_, step, steps) in &paced {
        let mean = Summary::of(steps.iter().copied()).map_or(0.0, |s| s.mean);
        let stalls = steps.iter().filter(|s| **s < mean * STALL).count();
        // A damaged record may hold any step; the sum stays a number.
        stalled = (stalled + stalls as f64 * step).clamp(f64::MIN, f64::MAX);
        stalled_trials += u32::from(stalls > 0);
    }
    let (_, step, typical) = paced.swap_remove((paced.len() - 1) / 2);
    Some(Pace { step, min: range.min, max: range.max, stalled, stalled_trials, typical })
}

/// Length of a step, and the receiver's bytes per second step by step, all flows
/// together. Steps that not all flows have are cut off.
fn receiver_steps(series: &[Series]) -> Option<(f64, Vec<f64>)> {
    let of_receiver =
        |s: &&Series| s.metric == "throughput" && matches!(s.scope, Scope::Flow(Role::Receiver, _));
    let flows: Vec<&Series> = series.iter().filter(of_receiver).collect();
    let step = flows.first()?.step;
    let steps = flows.iter().map(|s| s.values.len()).min()?;
    let sum = |i: usize| flows.iter().map(|s| s.values[i]).sum::<f64>();
    let steps: Vec<f64> = (0..steps).map(sum).collect();
    let sound = step.is_finite() && step > 0.0 && steps.iter().all(|s| s.is_finite());
    (sound && !steps.is_empty()).then_some((step, steps))
}
