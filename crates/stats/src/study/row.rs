//! One row of an analysis: a cell over all of its measured trials.

use super::analysis::{
    CpuCost, End, Failure, GuestCost, LatencyRow, Pace, PercentileRow, Row, Status, Witness,
};
use super::cell_trials::CellTrials;
use crate::cell::{self, HopsRow, ReceiveWork, Shares, collisions, count, idle};
use crate::estimate::Summary;
use crate::rules::Rules;
use crate::trial::{self, Costs, GuestCpu, RoleCpu};
use bytepath_record::{
    Cell, Latency, Percentile, ProvenWitness, Role, RoleRecord, Scope, Series, Study, Trial,
    TrialStatus, Work,
};

/// A step slower than this part of its trial's mean is a stall.
const STALL: f64 = 0.05;

pub(crate) fn row(study: &Study, rules: &Rules, of: &CellTrials) -> Row {
    let CellTrials { cell, trials, measured, costs } = of;
    let work = measured.first().or(trials.first()).map_or(Work::Bytes, |t| t.work);
    let apart = measured.iter().any(|trial| trial.has_hosts_apart());
    let rate = Summary::with_interval(measured.iter().filter_map(|t| t.rate()), rules.confidence);
    let ceiling = study.header.ceiling.map(|c| c.workload);
    let ceiling = ceiling.filter(|c| *c > 0.0 && work == Work::Bytes);
    let share = rate.zip(ceiling).map(|(rate, ceiling)| rate.mean / ceiling);
    let over = |figure: &dyn Fn(&Costs) -> Option<f64>| {
        Summary::with_interval(costs.iter().filter_map(figure), rules.confidence)
    };
    let end = |role| End {
        watts: over(&|c| c.watts[role as usize]),
        joules_per_unit: over(&|c| c.joules_per_unit()[role as usize]),
        ..end(role, work, cell, measured, costs)
    };
    // If speed was not measured, there is no return on what was spent.
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
        offered: Summary::of(measured.iter().filter_map(|t| t.offered)).map(|s| s.mean),
        hops: HopsRow::of(cell, measured, rules.confidence),
        facts: cell::facts(cell, measured, &study.profiles, rules.confidence),
        ceiling_share: share.filter(|share| share.is_finite()),
        labels: cell::count_exact(measured.iter().map(|t| t.label.as_str())),
        sender: end(Role::Sender),
        receiver: end(Role::Receiver),
        cpu_per_unit: over(&Costs::cpu_per_unit),
        cpu_per_packet: over(&Costs::cpu_per_packet),
        roi: trial::roi(returns, rules),
        roi_power: trial::roi_power(returns, rules),
        watts: over(&|c| c.watts[2]),
        joules_per_unit: over(&|c| c.joules_per_unit()[2]),
        service_demand: trial::service_demand(returns, rules),
        headline: trial::headline(measured),
        retransmits: retransmits(measured),
        // The meter counts bytes, whatever the trial counts.
        pace: if work == Work::Bytes { pace(measured) } else { None },
        receive_work: ReceiveWork::of(cell, measured, Role::Receiver),
        sender_work: ReceiveWork::of(cell, measured, Role::Sender),
        collisions: collisions(cell, &study.header.facts, apart),
        comparisons: Vec::new(),
        warnings: count(trials.iter().flat_map(|t| &t.warnings).map(String::as_str)),
    }
}

fn status(trials: &[&Trial]) -> Status {
    let mut status = Status::default();
    for trial in trials {
        match &trial.status {
            TrialStatus::Measured => {
                status.measured += 1;
                let disturbances = &trial.disturbances;
                let disturbed = (!disturbances.is_empty()).then(|| disturbances.join("; "));
                status.disturbed.extend(disturbed);
            }
            TrialStatus::Unavailable { reason, remedy } => {
                status.unavailable.get_or_insert_with(|| (reason.clone(), remedy.clone()));
            }
            TrialStatus::Rejected { events } => status.rejected.push(events.join("; ")),
            TrialStatus::Failed { fault } => {
                match status.failed.iter_mut().find(|f| f.fault == *fault) {
                    Some(same) => same.count += 1,
                    None => status.failed.push(Failure { fault: fault.clone(), count: 1 }),
                }
            }
        }
    }
    let rejected = trials.iter().filter(|t| matches!(t.status, TrialStatus::Rejected { .. }));
    status.rejected_rate =
        Summary::of(rejected.filter_map(|t| t.rate_even_if_rejected())).map(|s| s.mean);
    status
}

fn end(role: Role, work: Work, cell: &Cell, measured: &[&Trial], costs: &[Costs]) -> End {
    let records: Vec<&RoleRecord> = measured.iter().filter_map(|t| t.role(role)).collect();
    // The witness page is recorded with the sender and refers only to that end.
    let count_of = |what| records.iter().filter(|r| r.witness == Some(what)).count() as u32;
    End {
        role,
        cpu: cpu_cost(role, costs),
        guest: guest_cost(role, costs),
        watts: None,
        joules_per_unit: None,
        calls_per_unit: Summary::of(records.iter().filter_map(|r| calls_per_unit(work, r))),
        ledger: Shares::of(records.iter().map(|r| &r.ledger)),
        witness: Witness {
            shared: count_of(ProvenWitness::Shared),
            copied: count_of(ProvenWitness::Copied),
        },
        calls: cell::calls(records.iter().map(|r| r.calls.as_slice())),
        calls_by_thread: cell::calls_by_thread(&records),
        sizes: cell::sizes(records.iter().map(|r| &r.sizes)),
        idle: idle(role, cell, measured),
        fragments: cell::fragments(records.iter().filter_map(|r| r.fragments.as_ref())),
        notes: count(records.iter().flat_map(|r| &r.notes).map(String::as_str)),
    }
}

fn calls_per_unit(work: Work, record: &RoleRecord) -> Option<f64> {
    let counted = !record.calls.is_empty() && record.count > 0;
    let calls: f64 = record.calls.iter().map(|c| c.calls as f64).sum();
    counted.then(|| calls / (record.count as f64 / work.terms().unit_size))
}

/// Returns the latency of all trials together, and of each by itself.
fn latency(measured: &[&Trial], rules: &Rules) -> Option<LatencyRow> {
    let each = || measured.iter().filter_map(|t| t.latency.as_ref());
    let mut all = Latency::default();
    each().for_each(|latency| all.add(latency));
    if all == Latency::default() {
        return None;
    }
    let row = |percentile: Percentile| {
        let lost = each().any(|latency| latency.has_lost(percentile));
        let values = each().filter_map(|latency| latency.percentile(percentile).filter(|_| !lost));
        let trials = Summary::with_interval(values, rules.confidence);
        Some(PercentileRow { percentile, pooled: all.percentile(percentile)?, trials })
    };
    Some(LatencyRow {
        count: all.count(),
        unanswered: Some(all.unanswered()).filter(|n| *n > 0),
        mean: all.mean(),
        max: all.max(),
        percentiles: Percentile::ALL.into_iter().filter_map(row).collect(),
    })
}

fn cpu_cost(role: Role, costs: &[Costs]) -> Option<CpuCost> {
    let cpu = |costs: &Costs| Some((costs.roles[role as usize]?, costs.units_per_second()));
    let all = costs.iter().filter_map(cpu).filter(|(_, work)| *work > 0.0);
    // All by one rule, see `Costs::of_trials`.
    let all: Vec<(RoleCpu, f64)> = all.collect();
    let RoleCpu { rule, exact, .. } = all.first()?.0;
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

fn guest_cost(role: Role, costs: &[Costs]) -> Option<GuestCost> {
    let all: Vec<GuestCpu> = costs.iter().filter_map(|c| c.guests[role as usize]).collect();
    let over = |part: fn(&GuestCpu) -> f64| Summary::of(all.iter().map(part));
    let mean = |part| over(part).map_or(0.0, |s| s.mean);
    Some(GuestCost {
        vcpu: mean(|guest| guest.vcpu),
        qemu: mean(|guest| guest.qemu),
        vhost: mean(|guest| guest.vhost),
        total: over(GuestCpu::total)?,
        user: mean(|guest| guest.user),
        seconds: over(|guest| guest.total() * guest.wall)?,
    })
}

fn retransmits(measured: &[&Trial]) -> Option<f64> {
    let sent = measured.iter().flat_map(|t| &t.readings).filter(|r| {
        r.metric == "tcp.retransmits" && matches!(r.scope, Scope::Flow(..) | Scope::Role(_))
    });
    let values: Vec<f64> = sent.map(|r| r.value).filter(|v| v.is_finite()).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>()).filter(|sum| sum.is_finite())
}

fn pace(measured: &[&Trial]) -> Option<Pace> {
    let paced = measured.iter().filter_map(|trial| Some((trial.rate()?, receiver_steps(trial)?)));
    let mut paced: Vec<(f64, (f64, Vec<f64>))> = paced.collect();
    paced.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all = || paced.iter().flat_map(|(_, (_, steps))| steps.iter().copied());
    let range = Summary::of(all())?;
    let (mut stalled, mut stalled_trials) = (0.0, 0);
    for (_, (step, steps)) in &paced {
        let mean = Summary::of(steps.iter().copied()).map_or(0.0, |s| s.mean);
        let stalls = steps.iter().filter(|s| **s < mean * STALL).count();
        // A damaged record may contain any step; keep the sum finite.
        stalled = (stalled + stalls as f64 * step).clamp(f64::MIN, f64::MAX);
        stalled_trials += u32::from(stalls > 0);
    }
    let (_, (step, typical)) = paced.swap_remove((paced.len() - 1) / 2);
    Some(Pace { step, min: range.min, max: range.max, stalled, stalled_trials, typical })
}

/// Returns the length of a step in seconds, and the receiver's bytes per second step by step, all
/// flows together. Steps that some flow lacks are cut off. `None` for a trial that does not count.
pub fn receiver_steps(trial: &Trial) -> Option<(f64, Vec<f64>)> {
    trial.rate()?;
    let of_receiver =
        |s: &&Series| s.metric == "throughput" && matches!(s.scope, Scope::Flow(Role::Receiver, _));
    let flows: Vec<&Series> = trial.series.iter().filter(of_receiver).collect();
    let step = flows.first()?.step;
    let steps = flows.iter().map(|s| s.values.len()).min()?;
    let sum = |i: usize| flows.iter().map(|s| s.values[i]).sum::<f64>();
    let steps: Vec<f64> = (0..steps).map(sum).collect();
    let sound = step.is_finite() && step > 0.0 && steps.iter().all(|s| s.is_finite());
    (sound && !steps.is_empty()).then_some((step, steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{read, study, trial};
    use crate::{Metric, analyse};
    use bytepath_record::{REVERSE, RX_PACKETS};

    /// Which end sends depends on the workload, and for many connections there is one reading per
    /// end.
    #[test]
    fn segments_are_sent_again_by_either_end() {
        let mut first = trial("a", 0, 1.0, 1);
        assert_eq!(retransmits(&[&first]), None);
        read(&mut first, "tcp.retransmits", Scope::Flow(Role::Sender, 0), 2.0);
        read(&mut first, "tcp.retransmits", Scope::Flow(Role::Receiver, 0), 3.0);
        let mut second = trial("a", 1, 1.0, 1);
        read(&mut second, "tcp.retransmits", Scope::Role(Role::Receiver), 5.0);
        assert_eq!(retransmits(&[&first, &second]), Some(10.0));
    }

    #[test]
    fn packets_of_both_ways_are_those_that_either_end_took_in() {
        let mut trial = trial("a", 0, 1.0, 1);
        read(&mut trial, RX_PACKETS, Scope::Link(Role::Receiver, "b".into()), 100.0);
        read(&mut trial, RX_PACKETS, Scope::Link(Role::Sender, "a".into()), 7.0);
        assert_eq!(trial.packets(), Some(100.0), "acknowledgements");
        read(&mut trial, REVERSE, Scope::Role(Role::Sender), 1.0);
        assert_eq!(trial.packets(), Some(107.0));
    }

    #[test]
    fn an_open_loop_is_behind_by_more_than_chance() {
        let mut study = study(0.1, &[[9_000, 10_000, 1], [9_100, 9_990, 1], [9_050, 10_010, 1]]);
        for trial in &mut study.trials {
            trial.offered = Some(10_000.0);
            trial.latency = Some(Latency::of([(50_000, trial.count)]));
        }
        let analysis = analyse(&study, &Rules::of(&study.header));
        let behind: Vec<bool> = analysis.rows.iter().map(|row| row.behind().is_some()).collect();
        assert_eq!(behind, [true, false, true], "a tenth, nothing, nearly all");
    }

    /// A block whose p99 lies among lost exchanges would drop out and leave those that lost least.
    #[test]
    fn percentiles_of_a_cell_that_lost_more_are_not_compared() {
        let mut study = study(0.1, &[[5_000, 5_000, 5_000]; 4]);
        for trial in &mut study.trials {
            let lost = if trial.cell.0 == "b" && trial.block == 0 { 100 } else { 0 };
            trial.latency = Some(Latency::of([(50_000, trial.count)]).with_unanswered(lost));
        }
        let analysis = analyse(&study, &Rules::of(&study.header));
        let compared = |percentile, cell: &str| {
            let row = analysis.rows.iter().find(|row| row.cell.0 == cell).unwrap();
            let comparison = row.comparison(Metric::Latency(percentile));
            comparison.is_some_and(|comparison| comparison.effect.is_some())
        };
        assert!(compared(Percentile::P99, "c") && compared(Percentile::P50, "b"));
        assert!(!compared(Percentile::P99, "b"));
    }

    #[test]
    fn a_cell_that_lost_all_has_a_count_of_them() {
        let mut study = study(0.1, &[[5_000, 5_000, 5_000]; 2]);
        for trial in &mut study.trials {
            let lost = if trial.cell.0 == "b" { std::mem::take(&mut trial.count) } else { 0 };
            trial.latency = Some(Latency::of([(50_000, trial.count)]).with_unanswered(lost));
        }
        let analysis = analyse(&study, &Rules::of(&study.header));
        let row = analysis.rows.iter().find(|row| row.cell.0 == "b").unwrap();
        let latency = row.latency.as_ref().unwrap();
        assert_eq!((latency.count, latency.unanswered), (0, Some(10_000)));
        assert_eq!((latency.mean, latency.max, latency.percentiles.len()), (None, None, 0));
    }
}
