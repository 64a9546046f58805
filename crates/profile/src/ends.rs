//! The cost of each end of a stream by itself. For frames these are the generator and the sink,
//! with the kernel threads that work for them.

use super::WorkUnit;
use super::subsystem::{Rules, Subsystem};
use super::waterfall::{Cost, Costs, Metered, Trials, Waterfall, waterfall};
use bytepath_record::{Fault, Role};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most functions named for an end.
const FUNCTIONS: usize = 5;

/// The costs of both ends, apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ends {
    /// Costs of each cell, the baseline first.
    pub cells: Vec<CellEnds>,
    /// From the baseline to each other cell, first for the sender, then for the receiver.
    pub steps: Vec<[Waterfall; 2]>,
}

/// Costs of a cell's ends, in the order of [`Role::ALL`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellEnds {
    pub cell: String,
    /// Unit of all amounts, as in a waterfall.
    pub unit: String,
    pub trials: usize,
    pub total: [Metered; 2],
    /// By subsystem, those with the highest cost at either end first.
    pub parts: Vec<EndPart>,
    /// The functions with the highest cost.
    pub functions: [Vec<(String, f64)>; 2],
}

/// Costs of both ends in one subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndPart {
    pub subsystem: Subsystem,
    pub amounts: [Metered; 2],
}

impl Ends {
    /// Computes the costs per unit of work from the cells, the baseline first. Samples that belong
    /// to no known end are left out.
    pub fn of(all: &[Trials], rules: &Rules, unit: WorkUnit) -> Result<Ends, Fault> {
        let cells = all.iter().map(|trials| CellEnds::of(trials, rules, unit));
        let mut ends = Ends { cells: cells.collect::<Result<_, _>>()?, steps: Vec::new() };
        let Some((baseline, others)) = all.split_first() else { return Ok(ends) };
        for other in others {
            let [sender, receiver] =
                Role::ALL.map(|role| waterfall(baseline, other, rules, (unit, Some(role))));
            ends.steps.push([sender?, receiver?]);
        }
        Ok(ends)
    }

    /// Returns whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

impl CellEnds {
    fn of(trials: &Trials, rules: &Rules, unit: WorkUnit) -> Result<CellEnds, Fault> {
        let [sender, receiver] = Role::ALL.map(|role| Costs::of(trials, rules, (unit, Some(role))));
        let costs = [sender?, receiver?];
        let mut parts: Vec<EndPart> = Subsystem::ALL
            .iter()
            .map(|subsystem| EndPart {
                subsystem: *subsystem,
                amounts: costs.each_ref().map(|costs| {
                    let of = costs.trials.iter().map(|cost| cost.by.get(subsystem));
                    Metered::of(of.map(|part| part.copied().unwrap_or(0.0)))
                }),
            })
            .filter(|part| part.amounts.iter().any(|amount| amount.mean > 0.0))
            .collect();
        let most = |part: &EndPart| part.amounts[0].mean.max(part.amounts[1].mean);
        parts.sort_by(|a, b| most(b).total_cmp(&most(a)));
        Ok(CellEnds {
            cell: trials.cell.to_owned(),
            unit: costs[0].unit.clone(),
            trials: trials.profiles.len(),
            total: costs.each_ref().map(|costs| Metered::of(costs.trials.iter().map(Cost::total))),
            parts,
            functions: costs.each_ref().map(functions),
        })
    }
}

/// Returns the functions of an end with the highest cost, on average over the trials.
fn functions(costs: &Costs) -> Vec<(String, f64)> {
    let mut all: BTreeMap<&str, f64> = BTreeMap::new();
    for ((_, name), amount) in costs.trials.iter().flat_map(|trial| &trial.functions) {
        *all.entry(name).or_default() += amount / costs.trials.len() as f64;
    }
    let mut all: Vec<(String, f64)> = all.into_iter().map(|(f, a)| (f.to_owned(), a)).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all.truncate(FUNCTIONS);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Frame, FrameKind, Header, Owner, Profile, Sample, Thread, Weight, Work};

    /// A made-up trial of a thousand packets, from owner, function, nanoseconds per packet.
    fn trial(samples: &[(Owner, &str, f64)]) -> Profile {
        let mut builder = Builder::new(Header {
            weight: Weight::Nanoseconds,
            work: Work { bytes: None, packets: Some(1000.0) },
            ..Header::default()
        });
        for (owner, function, nanoseconds) in samples {
            let frame = builder.frame(Frame {
                function: (*function).into(),
                kind: FrameKind::Kernel,
                ..Frame::default()
            });
            let sample = Sample {
                stack: builder.stack(&[frame]),
                thread: builder.thread(Thread { name: "t".into(), pid: 1, tid: 1 }),
                owner: *owner,
                cpu: Some(0),
                time: None,
                count: 1,
                weight: nanoseconds * 1000.0,
            };
            builder.add(sample);
        }
        builder.build()
    }

    #[test]
    fn made_up_ends_are_apart_with_the_threads_in_their_place() {
        let (tx, rx) = (Owner::Role(Role::Sender), Owner::Role(Role::Receiver));
        let before = [
            trial(&[(tx, "packet_snd", 400.0), (rx, "tun_do_read", 300.0)]),
            trial(&[(tx, "packet_snd", 402.0), (rx, "tun_do_read", 300.0)]),
        ];
        let after: Vec<Profile> = [700.0, 704.0]
            .map(|spin| {
                trial(&[
                    (Owner::Pktgen, "native_queued_spin_lock_slowpath", spin),
                    (Owner::Vhost(Role::Receiver), "tun_do_read", 200.0),
                    (Owner::Softirq(Some(Role::Receiver)), "net_rx_action", 50.0),
                    (Owner::Foreign, "packet_snd", 9e9),
                    (Owner::Napi, "packet_snd", 77.0),
                ])
            })
            .into();
        let of = |cell, profiles| Trials { cell, profiles, metered: &[] };
        let ends =
            Ends::of(&[of("a", &before), of("b", &after)], Rules::built_in(), WorkUnit::Packet)
                .unwrap();
        let [a, b] = ends.cells.as_slice() else { panic!("two cells") };
        assert_eq!(a.total.map(|end| end.mean), [401.0, 300.0]);
        assert_eq!(b.total.map(|end| end.mean), [702.0, 250.0]);
        assert_eq!(b.unit, "CPU-ns/packet");
        assert_eq!(b.parts[0].subsystem, Subsystem::Locks);
        assert_eq!(b.parts[0].amounts.map(|amount| amount.mean), [702.0, 0.0]);
        assert_eq!(b.functions[1][0], ("tun_do_read".to_owned(), 200.0));
        let [generator, sink] = &ends.steps[0];
        assert!((generator.sampled.mean - 301.0).abs() < 1e-9, "{:?}", generator.sampled);
        assert!((sink.sampled.mean + 50.0).abs() < 1e-9 && sink.check.is_none());
        assert!(generator.parts[0].change.half_width.is_some());
    }
}
