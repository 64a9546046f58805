//! The meaning of well-known functions in a profile: a small table of symptoms (`symptoms.toml`),
//! the share of the time that each takes, and what to do about it.

use super::subsystem::{Classes, Subsystem, is_idle};
use super::{Frame, FrameKind, Profile, Sample, StackId, normalise};
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::sync::OnceLock;

/// The built-in table.
const BUILT_IN: &str = include_str!("symptoms.toml");

/// A symptom is left out if its part of the busy time is below this on every side, unless its row
/// has another limit.
const SMALL: f64 = 0.005;

/// Most functions that are named for a symptom.
const NAMED: usize = 4;

/// A symptom found in profiles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FoundSymptom {
    /// Its name, in a few words.
    pub name: String,
    /// Part of the busy time, 0 to 1, for each side in order. Idle samples and those of foreign
    /// threads are excluded. The mean if a side has several profiles.
    pub shares: Vec<f64>,
    /// The functions that took it, those that took most first; at most four.
    pub functions: Vec<String>,
    pub means: String,
    /// What to check, or to compare with.
    pub remedy: String,
}

/// Returns the symptoms of one profile.
pub fn symptoms(profile: &Profile, classes: &Classes) -> Vec<FoundSymptom> {
    let mut tally = Tally::new(1);
    tally.add(0, profile, classes);
    tally.into_symptoms()
}

/// Accumulates symptoms, over any number of sides with any number of profiles.
pub struct Tally {
    /// Number of profiles of each side.
    profiles: Vec<usize>,
    /// The shares of each symptom by side, summed over the profiles.
    shares: Vec<Vec<f64>>,
    functions: HashMap<(usize, String), f64>,
}

impl Tally {
    /// Creates a tally for this many sides.
    pub fn new(sides: usize) -> Tally {
        let shares = vec![vec![0.0; sides]; table().symptoms.len()];
        Tally { profiles: vec![0; sides], shares, functions: HashMap::new() }
    }

    /// Adds a profile to a side.
    pub fn add(&mut self, side: usize, profile: &Profile, classes: &Classes) {
        let table = table();
        let frames = table.frames(profile);
        let stack = |at: usize| table.stack(profile, &frames, StackId(at as u32));
        let stacks: Vec<Option<(usize, usize)>> = (0..profile.stacks()).map(stack).collect();
        // In a list without threads, the idle function is a row.
        let busy = |sample: &&Sample| {
            let idle = classes.sample(sample) == Subsystem::Idle;
            !idle && !sample.owner.is_apart() && !is_idle(profile, classes, sample)
        };
        let all: f64 = profile.samples().iter().filter(busy).map(|sample| sample.weight).sum();
        self.profiles[side] += 1;
        if !(all > 0.0 && all.is_finite()) {
            return;
        }
        for sample in profile.samples().iter().filter(busy) {
            let found = stacks.get(sample.stack.0 as usize).copied().flatten();
            let Some((symptom, frame)) = found else { continue };
            let share = sample.weight / all;
            self.shares[symptom][side] += share;
            let name = normalise::of_frame(&profile.frames()[frame]).into_owned();
            *self.functions.entry((symptom, name)).or_default() += share;
        }
    }

    /// Returns the symptoms above their limit, largest share first.
    pub fn into_symptoms(self) -> Vec<FoundSymptom> {
        let mean = |(sum, n): (&f64, &usize)| sum / (*n).max(1) as f64;
        let found = |(at, symptom): (usize, &Symptom)| {
            let shares: Vec<f64> = self.shares[at].iter().zip(&self.profiles).map(mean).collect();
            let own = self.functions.iter().filter(|((of, _), _)| *of == at);
            let mut functions: Vec<(&str, f64)> =
                own.map(|((_, name), share)| (name.as_str(), *share)).collect();
            functions.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
            let least = symptom.least.unwrap_or(SMALL);
            shares.iter().any(|share| *share >= least).then(|| FoundSymptom {
                name: symptom.name.clone(),
                shares,
                functions: functions.iter().take(NAMED).map(|(name, _)| (*name).into()).collect(),
                means: symptom.means.clone(),
                remedy: symptom.remedy.clone(),
            })
        };
        let mut all: Vec<FoundSymptom> =
            table().symptoms.iter().enumerate().filter_map(found).collect();
        let most = |symptom: &FoundSymptom| symptom.shares.iter().copied().fold(0.0, f64::max);
        all.sort_by(|a, b| most(b).total_cmp(&most(a)));
        all
    }
}

/// A row of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Symptom {
    name: String,
    #[serde(default)]
    exact: Vec<String>,
    #[serde(default)]
    prefix: Vec<String>,
    #[serde(default)]
    user: bool,
    #[serde(default)]
    called: bool,
    least: Option<f64>,
    #[serde(default)]
    beside: Vec<String>,
    means: String,
    remedy: String,
}

/// The table, prepared for lookups.
struct Table {
    symptoms: Vec<Symptom>,
    exact: HashMap<String, usize>,
    prefix: Vec<(String, usize)>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::parse(BUILT_IN).expect("a test reads it"))
}

impl Table {
    fn parse(text: &str) -> Result<Table, toml::de::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Document {
            symptom: Vec<Symptom>,
        }
        let symptoms = toml::from_str::<Document>(text)?.symptom;
        let named = |names: fn(&Symptom) -> &Vec<String>| {
            let each = |(at, s)| names(s).iter().map(move |name| (name.clone(), at));
            symptoms.iter().enumerate().flat_map(each).collect::<Vec<(String, usize)>>()
        };
        let exact = named(|s| &s.exact).into_iter().collect();
        let mut prefix = named(|s| &s.prefix);
        prefix.sort_by_key(|(text, _)| Reverse(text.len()));
        Ok(Table { symptoms, exact, prefix })
    }

    /// Returns the symptom of every function of a profile.
    fn frames(&self, profile: &Profile) -> Vec<Option<usize>> {
        let names: Vec<&str> =
            profile.frames().iter().map(|frame| normalise::function(&frame.function)).collect();
        let there = |symptom: &Symptom| {
            let beside = &symptom.beside;
            beside.is_empty() || names.iter().any(|name| beside.iter().any(|b| b == name))
        };
        let there: Vec<bool> = self.symptoms.iter().map(there).collect();
        let of = |(frame, name): (&Frame, &&str)| {
            let at = self.named(name).filter(|at| there[*at])?;
            let wrong = if self.symptoms[at].user { FrameKind::Kernel } else { FrameKind::User };
            (frame.kind != wrong).then_some(at)
        };
        profile.frames().iter().zip(&names).map(of).collect()
    }

    fn named(&self, name: &str) -> Option<usize> {
        let by_prefix = || self.prefix.iter().find(|(text, _)| name.starts_with(text.as_str()));
        self.exact.get(name).copied().or_else(|| by_prefix().map(|(_, at)| *at))
    }

    /// Returns the symptom of a stack, and the position of the function that shows it: the one that
    /// ran, or the nearest caller whose symptom includes its callees.
    fn stack(
        &self,
        profile: &Profile,
        frames: &[Option<usize>],
        stack: StackId,
    ) -> Option<(usize, usize)> {
        profile.stack(stack).iter().enumerate().find_map(|(depth, id)| {
            let at = frames.get(id.0 as usize).copied().flatten()?;
            (depth == 0 || self.symptoms[at].called).then_some((at, id.0 as usize))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subsystem::Rules;
    use crate::{Builder, Header, Owner, Thread};

    /// A profile from stacks, leaf first, with their weights.
    fn profile(stacks: &[(&[&str], FrameKind, f64)]) -> Profile {
        let mut builder = Builder::new(Header::default());
        let thread = builder.thread(Thread::default());
        for (names, kind, weight) in stacks {
            let frame =
                |name: &&str| Frame { function: (*name).into(), kind: *kind, ..Frame::default() };
            let frames: Vec<_> = names.iter().map(|name| builder.frame(frame(name))).collect();
            let stack = builder.stack(&frames);
            let owner = Owner::Unknown;
            builder.add(Sample {
                stack,
                thread,
                owner,
                cpu: None,
                time: None,
                count: 1,
                weight: *weight,
            });
        }
        builder.build()
    }

    fn seen(sides: &[Profile]) -> Vec<FoundSymptom> {
        let mut tally = Tally::new(sides.len());
        for (side, profile) in sides.iter().enumerate() {
            tally.add(side, profile, &Classes::of(profile, Rules::built_in()));
        }
        tally.into_symptoms()
    }

    #[test]
    fn every_symptom_is_found_by_each_of_its_functions_and_by_no_other() {
        let table = table();
        for (at, symptom) in table.symptoms.iter().enumerate() {
            let names = symptom.exact.iter().chain(&symptom.prefix);
            assert!(names.clone().next().is_some(), "{}", symptom.name);
            for name in names {
                assert_eq!(table.named(name), Some(at), "{name} is in two symptoms");
                assert_eq!(
                    normalise::function(name),
                    name,
                    "{name} is never looked up in this form"
                );
                let kind = if symptom.user { FrameKind::User } else { FrameKind::Kernel };
                let beside = symptom.beside.first().map_or("tcp_ack", String::as_str);
                let found = seen(&[profile(&[(&[name], kind, 1.0), (&[beside], kind, 3.0)])]);
                assert!(found.iter().any(|seen| seen.name == symptom.name), "{name}: {found:?}");
            }
            for text in [&symptom.name, &symptom.means, &symptom.remedy] {
                assert!(!text.is_empty() && text.is_ascii() && !text.ends_with('.'), "{text}");
            }
        }
    }

    /// Two tables contain the names, and each of them is used without the other.
    #[test]
    fn submitting_is_one_list_of_functions() {
        let rules: toml::Table = include_str!("subsystems.toml").parse().unwrap();
        let symptoms = &table().symptoms;
        let of = |list: &str| rules["copy-submission"][list].clone().try_into::<Vec<String>>();
        let submits = symptoms.iter().find(|s| s.name.starts_with("submitting copies")).unwrap();
        assert_eq!(of("exact").unwrap(), submits.exact);
        assert_eq!(of("prefix").unwrap(), submits.prefix);
    }

    /// The published sum of a library's functions is 0.2 % of the profile.
    #[test]
    fn what_submitting_to_an_engine_takes_is_added_up_however_small() {
        use FrameKind::User;
        let found = seen(&[profile(&[
            (&["sfifo_in"], User, 99.8),
            (&["movdir64b"], User, 0.14),
            (&["dsa_prep_desc_common", "mtcp_write_async"], User, 0.03),
            (&["store", "bytepath_sys::idxd::WorkQueue::post_batch"], User, 0.03),
        ])]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, "submitting copies to a DMA engine");
        assert!((found[0].shares[0] - 0.002).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn the_share_is_that_of_the_busy_time_on_each_side() {
        use FrameKind::Kernel;
        let before = profile(&[
            (&["srso_alias_safe_ret"], Kernel, 3.0),
            (&["srso_alias_return_thunk"], Kernel, 1.0),
            (&["tcp_ack"], Kernel, 16.0),
            (&["__check_object_size"], Kernel, 0.08),
        ]);
        let after = profile(&[(&["tcp_ack"], Kernel, 7.0)]);
        let found = seen(&[before, after]);
        assert_eq!(found.len(), 1, "0.4 % is not worth a line: {found:?}");
        assert_eq!(found[0].name, "SRSO mitigation");
        assert_eq!(found[0].functions, ["srso_alias_safe_ret", "srso_alias_return_thunk"]);
        assert!((found[0].shares[0] - 4.0 / 20.08).abs() < 1e-12 && found[0].shares[1] == 0.0);
    }

    #[test]
    fn idle_samples_are_not_part_of_it() {
        let mut builder = Builder::new(Header::default());
        let thread = builder.thread(Thread::default());
        for (name, owner, weight) in [
            ("mcount", Owner::Unknown, 1.0),
            ("tcp_ack", Owner::Unknown, 3.0),
            ("poll_idle", Owner::Unknown, 50.0),
            ("x", Owner::Idle, 96.0),
            ("mcount", Owner::Foreign, 9.0),
        ] {
            let frame = builder.frame(Frame {
                function: name.into(),
                kind: FrameKind::Kernel,
                ..Frame::default()
            });
            let stack = builder.stack(&[frame]);
            builder.add(Sample { stack, thread, owner, cpu: None, time: None, count: 1, weight });
        }
        assert_eq!(seen(&[builder.build()])[0].shares, [0.25]);
    }

    #[test]
    fn what_was_called_counts_where_the_table_says_so() {
        use FrameKind::{Kernel, User};
        let found = seen(&[profile(&[
            (&["memcpy", "skb_copy_ubufs", "veth_xmit"], Kernel, 1.0),
            (&["memcpy", "native_queued_spin_lock_slowpath"], Kernel, 1.0),
            (&["pthread_spin_lock"], User, 1.0),
            // A program's own function with such a name is not the kernel's.
            (&["csum_partial"], User, 1.0),
        ])]);
        let names: Vec<&str> = found.iter().map(|seen| seen.name.as_str()).collect();
        assert_eq!(names, ["spinning in the program", "zero-copy data copied anyway"]);
        assert_eq!(found[1].functions, ["skb_copy_ubufs"]);
    }

    #[test]
    fn msr_writes_alone_are_not_the_profiler() {
        use FrameKind::Kernel;
        let stack: (&[&str], _, _) = (&["native_write_msr"], Kernel, 1.0);
        assert!(seen(&[profile(&[stack])]).is_empty());
        let found = seen(&[profile(&[stack, (&["x86_pmu_del"], Kernel, 1.0)])]);
        assert_eq!(found[0].name, "the profiler itself");
        assert_eq!(found[0].shares, [1.0]);
    }
}
