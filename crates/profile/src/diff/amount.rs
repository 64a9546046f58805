//! The unit in which profiles are compared: their weights, or weights divided by the work that was
//! done.

use crate::conventions::counted;
use crate::{Profile, Weight};
use bytepath_record::Fault;
use bytepath_record::unit::GIB;
use schemars::JsonSchema;
use serde::Serialize;

/// What weights are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    Gib,
    /// Packets delivered.
    Packet,
    /// Seconds of wall time.
    Second,
    /// Profiles: the mean over those of a side, each taken over one run of the same work.
    Run,
    /// All samples that are compared: shares in percent.
    Sample,
    None,
}

/// Summary of all profiles of one side.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Side {
    /// Titles of the profiles, in the order given.
    pub profiles: Vec<String>,
    /// Sampled event; empty if unknown, or if they differ.
    pub event: String,
    pub samples: u64,
    /// Samples that were lost.
    pub lost: u64,
    /// Weight of all samples, including idle ones, in the unit of the profiles.
    pub weight: f64,
    /// Bytes delivered meanwhile, if every profile records them.
    pub bytes: Option<f64>,
    /// Packets delivered meanwhile, if every profile records them.
    pub packets: Option<f64>,
    /// Wall time in seconds, if every profile records it.
    pub seconds: Option<f64>,
    /// The unit of a weight.
    #[serde(skip)]
    pub counts: Weight,
}

impl Side {
    /// Summarises all profiles of a side; errors if they cannot be combined.
    pub fn of(name: &str, profiles: &[Profile]) -> Result<Side, Fault> {
        let Some(first) = profiles.first() else {
            return Err(Fault::usage(format!("there is no profile {name}")));
        };
        let counts = first.header.weight;
        let mut side = Side {
            profiles: profiles.iter().map(|p| p.header.title.clone()).collect(),
            event: first.header.event.clone(),
            samples: 0,
            lost: 0,
            weight: 0.0,
            bytes: sum(profiles, |p| p.header.work.bytes),
            packets: sum(profiles, |p| p.header.work.packets),
            seconds: sum(profiles, |p| p.header.seconds),
            counts,
        };
        for profile in profiles {
            if profile.header.weight != counts
                || counted(&profile.header.event) != counted(&side.event)
            {
                let what = format!(
                    "the profiles {name} are of different kinds: {} and {}",
                    kind(counts, &side.event),
                    kind(profile.header.weight, &profile.header.event)
                );
                return Err(Fault::usage(what).remedy("put only profiles of one event on a side"));
            }
            side.samples = side.samples.saturating_add(profile.count());
            side.lost = side.lost.saturating_add(profile.header.lost);
            side.weight += profile.total();
        }
        if !side.weight.is_finite() || side.weight < 0.0 {
            let what = format!("the weights of the samples {name} cannot be added up");
            return Err(Fault::usage(what));
        }
        Ok(side)
    }
}

/// Returns the factors for the weights of each profile of a side, from its own work. Shares of all
/// samples are scaled later, once the total is known.
pub(super) fn scales(name: &str, profiles: &[Profile], per: Per) -> Result<Vec<f64>, Fault> {
    profiles.iter().map(|profile| scale(name, profile, per)).collect()
}

fn scale(name: &str, profile: &Profile, per: Per) -> Result<f64, Fault> {
    let header = &profile.header;
    let lacks = |what: &str| {
        let title = &header.title;
        Fault::usage(format!("{title}: the profile {name} {what}"))
            .remedy("compare with --per sample or --per none")
    };
    if header.weight == Weight::Percent && !matches!(per, Per::None | Per::Run | Per::Sample) {
        return Err(lacks("has only percentages of an unknown total"));
    }
    let by = |amount: Option<f64>, what: &str| {
        amount
            .filter(|a| *a > 0.0 && a.is_finite())
            .ok_or_else(|| lacks(&format!("does not record how many {what} it was taken over")))
    };
    // Nanoseconds are shown as seconds, except per packet.
    let is_time = matches!(header.weight, Weight::Nanoseconds | Weight::Delay);
    let unit = if is_time { 1e-9 } else { 1.0 };
    Ok(match per {
        Per::None | Per::Run => unit,
        Per::Gib => unit * GIB / by(header.work.bytes, "bytes")?,
        Per::Packet => 1.0 / by(header.work.packets, "packets")?,
        Per::Second => unit / by(header.seconds, "seconds")?,
        Per::Sample => 1.0,
    })
}

/// Returns the default unit for comparing two sides: by the bytes delivered if both record them,
/// else by run if one side has several profiles, else unscaled.
pub(super) fn natural(sides: [&Side; 2]) -> Per {
    let known = |side: &Side| {
        side.counts != Weight::Percent && side.bytes.is_some_and(|b| b > 0.0 && b.is_finite())
    };
    match sides.into_iter().any(|side| side.profiles.len() > 1) {
        _ if sides.into_iter().all(known) => Per::Gib,
        true => Per::Run,
        false => Per::None,
    }
}

/// Errors if the two sides have weights of different kinds.
pub(super) fn comparable(sides: [&Side; 2], per: Per) -> Result<(), Fault> {
    let [a, b] = sides;
    let same_event =
        counted(&a.event) == counted(&b.event) || a.event.is_empty() || b.event.is_empty();
    if per == Per::Sample || a.counts == b.counts && same_event {
        return Ok(());
    }
    let what = format!(
        "the profiles count different things: {} before, {} after",
        kind(a.counts, &a.event),
        kind(b.counts, &b.event)
    );
    Err(Fault::usage(what).remedy("compare their shares with --per sample"))
}

/// Returns the name of the unit in which amounts are shown.
pub(super) fn unit(side: &Side, per: Per) -> String {
    let event = if side.event.is_empty() { "events" } else { &side.event };
    let counted = match side.counts {
        Weight::Nanoseconds => "CPU-s",
        Weight::Delay => "s",
        Weight::Events => event,
        Weight::Percent => "% of the whole",
        counted => counted.into(),
    };
    match per {
        Per::None => counted.to_owned(),
        Per::Run => format!("{counted}/run"),
        Per::Gib => format!("{counted}/GiB"),
        Per::Packet if side.counts == Weight::Nanoseconds => "CPU-ns/packet".to_owned(),
        Per::Packet if side.counts == Weight::Delay => "ns/packet".to_owned(),
        Per::Packet => format!("{counted}/packet"),
        Per::Second => format!("{counted}/s"),
        Per::Sample => "% of the samples".to_owned(),
    }
}

fn kind(counts: Weight, event: &str) -> String {
    if event.is_empty() { counts.to_string() } else { format!("{counts} of {event}") }
}

/// Returns the sum over all profiles; `None` if one does not record it.
fn sum(profiles: &[Profile], of: impl Fn(&Profile) -> Option<f64>) -> Option<f64> {
    profiles.iter().map(of).sum()
}
