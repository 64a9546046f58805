//! Studies that no run would write but that a disk can contain: any number and any text, in the
//! shape of the made-up study.

use super::made_up::{bare, study};
use bytepath::record::{
    CellId, Fault, FaultKind, FragmentCounts, Latency, Placement, Study, TrialStatus, Work,
};
use proptest::prelude::*;
use std::time::Duration;

/// Any number that a record on disk can contain.
fn figure() -> impl Strategy<Value = f64> {
    use proptest::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
    prop_oneof![
        3 => 0.0..100.0f64,
        1 => NORMAL | SUBNORMAL | ZERO | POSITIVE | NEGATIVE,
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-e +/,0-9-]{0,40}",
        1 => "[<>&\"'`=/!a-e -]{0,40}",
        1 => "[\\x00-\\x1f\\x7fa-e\u{e9}\u{202e}\u{1f4a9} ]{0,60}",
    ]
}

/// Replaces the figures and texts of a well-formed study by arbitrary ones.
pub fn any_study() -> impl Strategy<Value = Study> {
    let figures = proptest::collection::vec(figure(), 1..40);
    let texts = proptest::collection::vec(name(), 1..12);
    let counts = proptest::collection::vec(any::<u64>(), 1..12);
    (figures, texts, counts, 0..45usize, any::<[bool; 4]>()).prop_map(
        |(figures, texts, counts, length, [free, no_facts, no_ceiling, rename])| {
            let mut figures = figures.into_iter().cycle();
            let mut texts = texts.into_iter().cycle();
            let mut counts = counts.into_iter().cycle();
            let mut study = study();
            study.trials.truncate(length);
            for (i, trial) in study.trials.iter_mut().enumerate() {
                let mut figure = || figures.next().unwrap();
                let mut count = || counts.next().unwrap() >> (i % 64);
                trial.window = figure();
                trial.count = count();
                trial.work = Work::ALL[i % 3];
                trial.block = (count() % 4) as u32;
                trial.label = texts.next().unwrap();
                trial.warnings.push(texts.next().unwrap());
                trial.readings.iter_mut().for_each(|r| r.value = figure());
                for series in &mut trial.series {
                    series.step = figure();
                    series.values.iter_mut().for_each(|v| *v = figure());
                }
                for role in &mut trial.roles {
                    (role.window, role.count) = (figure(), count());
                    role.notes.push(texts.next().unwrap());
                    role.threads.iter_mut().for_each(|t| (t.run, t.user) = (figure(), figure()));
                    role.sizes.mean = figure();
                    role.sizes.count = count();
                    role.fragments = Some(FragmentCounts {
                        calls: count(),
                        fragments: count(),
                        max: count(),
                        above_1024: count(),
                        ..FragmentCounts::default()
                    });
                    role.ledger.copied = count();
                    role.ledger.discarded = count() >> 1;
                    role.ledger.not_copied = count();
                    for call in &mut role.calls {
                        (call.calls, call.bytes, call.errors) = (count(), count(), count());
                        (call.total, call.min, call.avg) = (figure(), figure(), figure());
                        call.stddev_percent = figure();
                    }
                }
                if i % 4 == 1 {
                    let mut latency = Latency::default();
                    (0..count() % 99).for_each(|_| latency.record(Duration::from_nanos(count())));
                    trial.latency = Some(latency);
                }
                if i % 7 == 3 {
                    let fault = Fault::new(FaultKind::System, texts.next().unwrap());
                    *trial = bare(trial.clone(), TrialStatus::Failed { fault });
                }
            }
            if free {
                study.header.cells.iter_mut().for_each(|c| c.placement = Placement::default());
            }
            if no_facts {
                study.header.facts.clear();
            }
            if no_ceiling {
                study.header.ceiling = None;
            } else if let Some(c) = &mut study.header.ceiling {
                c.workload = figures.next().unwrap();
            }
            if rename {
                study.header.cells.iter_mut().for_each(|c| c.id = CellId(texts.next().unwrap()));
            }
            study.header.schedule.window = figures.next().unwrap();
            study.header.started_ms = counts.next().unwrap();
            study
        },
    )
}
