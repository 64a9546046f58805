//! The functions of one profile with their costs.

use super::subsystem::{Class, Rules};
use super::{Frame, FrameId, FrameKind, Owner, Profile, StackId};
use bytepath_record::{ProfileSummary, ProfiledFunction};
use std::collections::{BTreeMap, HashMap};

/// A function of a profile and its weights.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    pub frame: &'a Frame,
    /// Weight of its own code.
    pub own: f64,
    /// Weight of its own code and its callees. A recursive function counts once.
    pub total: f64,
    /// Weight of its own code, by the owner of the time.
    pub owners: BTreeMap<Owner, f64>,
}

/// Returns all functions, those with the highest own weight first.
pub fn functions(profile: &Profile) -> Vec<Function<'_>> {
    let blank = |frame| Function { frame, own: 0.0, total: 0.0, owners: BTreeMap::new() };
    let mut functions: Vec<Function> = profile.frames().iter().map(blank).collect();
    let mut stacks: HashMap<StackId, f64> = HashMap::new();
    for sample in profile.samples() {
        *stacks.entry(sample.stack).or_default() += sample.weight;
        let leaf = profile.stack(sample.stack).first();
        if let Some(function) = leaf.and_then(|id| functions.get_mut(id.0 as usize)) {
            function.own += sample.weight;
            *function.owners.entry(sample.owner).or_default() += sample.weight;
        }
    }
    for (stack, weight) in stacks {
        let mut frames: Vec<FrameId> = profile.stack(stack).to_vec();
        frames.sort_unstable();
        frames.dedup();
        for id in frames {
            if let Some(function) = functions.get_mut(id.0 as usize) {
                function.total += weight;
            }
        }
    }
    // Stable, so that equals keep the order of first occurrence.
    functions.sort_by(|a, b| b.own.total_cmp(&a.own).then(b.total.total_cmp(&a.total)));
    functions
}

/// Returns the summary of a profile for a record: all of its functions, without stacks.
pub fn summarise(profile: &Profile, rules: &Rules) -> ProfileSummary {
    let header = &profile.header;
    let named = |(owner, weight): (&Owner, &f64)| (owner.name().to_owned(), *weight);
    let record = |function: Function| {
        let Frame { function: name, module, kind, inlined, .. } = function.frame;
        ProfiledFunction {
            function: name.clone(),
            module: module.clone(),
            kernel: match kind {
                FrameKind::Kernel => Some(true),
                FrameKind::User => Some(false),
                FrameKind::Unknown => None,
            },
            inlined: *inlined,
            subsystem: match rules.class(function.frame) {
                Some(Class::Is(subsystem)) => Some(subsystem.name().to_owned()),
                _ => None,
            },
            own: function.own,
            total: function.total,
            owners: function.owners.iter().map(named).collect(),
        }
    };
    ProfileSummary {
        event: header.event.clone(),
        unit: header.weight.to_string(),
        seconds: header.seconds,
        samples: profile.count(),
        lost: header.lost,
        total: profile.total(),
        notes: header.notes.clone(),
        functions: functions(profile).into_iter().map(record).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Weight;
    use crate::{Builder, Header, Sample, Thread};

    fn profile() -> Profile {
        let header = Header { weight: Weight::Nanoseconds, ..Header::default() };
        let mut builder = Builder::new(header);
        let mut frame = |function: &str, kind| {
            builder.frame(Frame { function: function.into(), kind, ..Frame::default() })
        };
        let main = frame("main", FrameKind::User);
        let copy = frame("rep_movs_alternative", FrameKind::Kernel);
        let thread = builder.thread(Thread::default());
        for (frames, owner, weight) in [
            (vec![copy, main], Owner::Program, 3.0),
            (vec![copy, main], Owner::Softirq(None), 1.0),
            // It calls itself, but counts once.
            (vec![main, main], Owner::Program, 2.0),
        ] {
            let stack = builder.stack(&frames);
            builder.add(Sample { stack, thread, owner, cpu: None, time: None, count: 1, weight });
        }
        builder.build()
    }

    #[test]
    fn own_weights_add_up_and_totals_hold_what_is_called() {
        let profile = profile();
        let functions = functions(&profile);
        let of = |name: &str| functions.iter().find(|f| f.frame.function == name).unwrap();
        let (main, copy) = (of("main"), of("rep_movs_alternative"));
        assert_eq!((main.own, main.total, copy.own, copy.total), (2.0, 6.0, 4.0, 4.0));
        assert_eq!(copy.owners[&Owner::Softirq(None)], 1.0);
        assert_eq!(functions[0].frame.function, "rep_movs_alternative");
    }

    #[test]
    fn a_record_has_what_the_profile_has() {
        let summary = summarise(&profile(), Rules::built_in());
        assert_eq!(
            (summary.unit.as_str(), summary.samples, summary.total),
            ("nanoseconds", 3, 6.0)
        );
        let first = &summary.functions[0];
        assert_eq!((first.kernel, first.subsystem.as_deref()), (Some(true), Some("copy")));
        assert_eq!(first.owners.values().sum::<f64>(), first.own);
        let own: f64 = summary.functions.iter().map(|function| function.own).sum();
        assert_eq!(own, summary.total);
    }
}
