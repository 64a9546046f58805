//! Decides how many receive queues the NICs of a study get, and which of them are dedicated to
//! flows. All cells get the same, whichever of them requires it. Pure.

use bytepath_engine::path::{FlowNic, OwnQueues};
use bytepath_record::wire::Nic;
use bytepath_record::{Cell, Channels, Fault, Role, Setting, WantedSetting};
use std::collections::{BTreeMap, BTreeSet};

/// What the paths of a study require of the NICs, by role and adapter index, if it changes how
/// flows arrive. All cells get it; otherwise a difference between paths could be one of queues or
/// of header split. NICs of one end may differ in their number of queues.
pub(super) type Common = BTreeMap<(Role, u32), Shared>;

/// Numbers of receive queues of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Receiving {
    /// Queues that only receive.
    alone: u32,
    /// Queues that are paired with a transmit queue.
    paired: u32,
}

impl Receiving {
    /// Returns the current numbers of queues of `nic`.
    pub(super) fn of(nic: &Nic) -> Receiving {
        Receiving { alone: nic.unpaired, paired: nic.queues.saturating_sub(nic.unpaired) }
    }

    pub(super) fn all(self) -> u32 {
        self.alone.saturating_add(self.paired)
    }

    /// Replaces the number of pairs.
    pub(super) fn with_pairs(self, paired: u32) -> Receiving {
        Receiving { paired, ..self }
    }

    /// Returns the number of pairs with which the total is `all`.
    pub(super) fn pairs_of(self, all: u32) -> u32 {
        all.saturating_sub(self.alone)
    }

    /// Returns the queues that `device` of `role` has once these settings (each for one host or for
    /// both) are made. Kinds of queues that no setting names stay as they are. `None` if no setting
    /// names any.
    pub(super) fn once_set<'s>(
        self,
        settings: impl Iterator<Item = (&'s Setting, Option<Role>)>,
        role: Role,
        device: &str,
    ) -> Option<Receiving> {
        let here = settings.filter(|(_, host)| host.is_none_or(|host| host == role));
        let named = here.filter_map(|(setting, _)| match setting {
            Setting::Channels { device: of, channels: Channels { rx, combined, .. } }
                if of.as_str() == device && rx.or(*combined).is_some() =>
            {
                Some((*rx, *combined))
            }
            _ => None,
        });
        named.fold(None, |set, (rx, combined)| {
            let Receiving { alone, paired } = set.unwrap_or(self);
            Some(Receiving { alone: rx.unwrap_or(alone), paired: combined.unwrap_or(paired) })
        })
    }
}

/// What the paths of a study require of one NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// Receive queues that all flows are steered to, and the total that they are numbered by;
    /// `None` leaves the choice to the NIC.
    pub queues: Option<(OwnQueues, u32)>,
    /// Number of queues that the NIC must get, if it has fewer.
    pub channels: Option<u32>,
    /// Queues that a setting of the study gives the NIC; this number is kept.
    pub given: Option<Receiving>,
    /// Whether headers go to separate buffers, in cells with software GRO and in cells with the
    /// NIC's: some NICs split headers only while they merge packets, which only trying shows.
    pub splits: [bool; 2],
}

impl Shared {
    /// True if flows have dedicated receive queues.
    pub(super) fn has_queues(&self) -> bool {
        self.queues.is_some()
    }

    /// Combines the requirements of both.
    pub(super) fn and(self, other: Shared) -> Shared {
        let [software, nic] = self.splits;
        let splits = [software || other.splits[0], nic || other.splits[1]];
        let channels = self.channels.max(other.channels);
        let (queues, given) = (self.queues.or(other.queues), self.given.or(other.given));
        Shared { queues, channels, given, splits }
    }

    /// Keeps only the numbers of queues.
    pub(super) fn channels_alone(self) -> Shared {
        Shared { channels: self.channels, given: self.given, ..Shared::default() }
    }

    /// Returns the number of queues that the NIC needs at least, including one for all other
    /// traffic.
    pub(super) fn fewest(&self) -> u32 {
        let of_flows = self.queues.map_or(0, |(own, of)| match is_last(own, of) {
            true => own.count + 1,
            false => own.first.max(1) + own.count,
        });
        self.channels.unwrap_or(0).max(of_flows)
    }
}

/// Selects the requirements of a NIC to consider.
pub(super) type Part = fn(Shared) -> Shared;

/// Returns the NIC setup that all cells of a study share. First the number of queues of each NIC,
/// which is the largest that any cell needs, since dedicated queues are numbered by it. Then the
/// other requirements of the first cell that has any, among the cells with software GRO and again
/// among those with the NIC's, since some NICs split headers only with the latter. `requested`
/// returns what a cell that can run requires beyond the setup so far, which begins as `common`.
pub(super) fn common_setup(
    mut common: Common,
    cells: &[Cell],
    mut requested: impl FnMut(&Cell, &Common, Part) -> Result<Common, Fault>,
) -> Result<Common, Fault> {
    let mut add = |cell: &Cell, part: Part| -> Result<bool, Fault> {
        let all = requested(cell, &common, part)?;
        let is_any = !all.is_empty();
        for (at, asked) in all {
            let shared = common.entry(at).or_default();
            *shared = shared.and(asked);
        }
        Ok(is_any)
    };
    for cell in cells {
        add(cell, Shared::channels_alone)?;
    }
    for hw_gro in [false, true] {
        for cell in cells.iter().filter(|cell| cell.link.hw_gro == hw_gro) {
            if add(cell, |whole| whole)? {
                break;
            }
        }
    }
    Ok(common)
}

/// Returns the queues that these settings steer flows to, or `None` if they steer none.
pub(super) fn steered(settings: &[Setting]) -> Option<OwnQueues> {
    let queues = settings.iter().filter_map(|setting| match setting {
        Setting::Flow { rule, .. } => Some(rule.queue),
        _ => None,
    });
    let queues: BTreeSet<u32> = queues.collect();
    queues.first().map(|first| OwnQueues { first: *first, count: queues.len() as u32 })
}

/// True if these are the last of `of` queues.
fn is_last(own: OwnQueues, of: u32) -> bool {
    own.first + own.count == of
}

/// Translates queues of a NIC with `of` queues to a NIC that has `has`: the last ones stay the
/// last.
pub(super) fn among(own: OwnQueues, of: u32, has: u32) -> OwnQueues {
    match is_last(own, of) {
        true => OwnQueues { first: has.saturating_sub(own.count), ..own },
        false => own,
    }
}

/// True if this setting changes the number of queues of a NIC, on which other settings depend.
pub(super) fn changes_queues(wanted: &WantedSetting) -> bool {
    matches!(wanted.setting, Setting::Channels { .. })
}

pub(super) fn of_wanted(all: &[WantedSetting]) -> impl Iterator<Item = (&Setting, Option<Role>)> {
    all.iter().map(|wanted| (&wanted.setting, wanted.host))
}

pub(super) fn too_few_queues(FlowNic { device, queues, .. }: &FlowNic, needed: u32) -> Fault {
    let text = format!(
        "the setting 'channels {device}' gives it {queues} receive queues, and paths of this study \
         need {needed}"
    );
    Fault::usage(text)
        .remedy(format!("set {needed} or more, or leave it out: {device} then gets what they need"))
}

/// Returns the largest number of combined queues that these settings give a device, or `None` if
/// they give none.
pub(super) fn most_channels(settings: &[Setting]) -> Option<u32> {
    let counts = settings.iter().filter_map(|setting| match setting {
        Setting::Channels { channels, .. } => channels.combined,
        _ => None,
    });
    counts.max()
}
