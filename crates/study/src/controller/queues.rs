//! How many receive queues the NICs of a study are to have, and which of them flows have to
//! themselves: all cells get the same, whichever of them asks for it. Pure.

use bytepath_engine::path::{FlowNic, OwnQueues};
use bytepath_record::wire::Nic;
use bytepath_record::{Cell, Channels, Fault, Role, Setting, WantedSetting};
use std::collections::{BTreeMap, BTreeSet};

/// What the paths of a study ask of the NICs, by role and number of the adapter, that changes how any
/// flow comes by them: all of its cells get it, or a difference between paths would be one of queues
/// or of headers. NICs of one end may differ in their number of queues.
pub(super) type Common = BTreeMap<(Role, u32), Shared>;

/// Receive queues of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Receiving {
    /// Those that only receive.
    alone: u32,
    /// Those that are paired with one that sends.
    paired: u32,
}

impl Receiving {
    /// Those that a NIC has.
    pub(super) fn of(nic: &Nic) -> Receiving {
        Receiving { alone: nic.unpaired, paired: nic.queues.saturating_sub(nic.unpaired) }
    }

    pub(super) fn all(self) -> u32 {
        self.alone.saturating_add(self.paired)
    }

    /// With so many pairs.
    pub(super) fn with_pairs(self, paired: u32) -> Receiving {
        Receiving { paired, ..self }
    }

    /// How many pairs it needs to have so many in all.
    pub(super) fn pairs_of(self, all: u32) -> u32 {
        all.saturating_sub(self.alone)
    }

    /// Those that a device of a role's has once these settings are made, each of a host or of both: what
    /// one does not name stays. `None` if none of them names any.
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

/// What they ask of one NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// Receive queues that all flows come by, and of how many; none leaves it to the NIC.
    pub queues: Option<(OwnQueues, u32)>,
    /// How many queues it is to have, where that is more than it has.
    pub channels: Option<u32>,
    /// Those that a setting of the study gives it, which it keeps.
    pub given: Option<Receiving>,
    /// Headers are in buffers of their own, in cells with software GRO and in cells with the NIC's:
    /// some NICs split them only where they merge, which trying shows.
    pub splits: [bool; 2],
}

impl Shared {
    /// Whether flows have receive queues to themselves.
    pub(super) fn has_queues(&self) -> bool {
        self.queues.is_some()
    }

    /// What both ask.
    pub(super) fn and(self, other: Shared) -> Shared {
        let [software, nic] = self.splits;
        let splits = [software || other.splits[0], nic || other.splits[1]];
        let channels = self.channels.max(other.channels);
        let (queues, given) = (self.queues.or(other.queues), self.given.or(other.given));
        Shared { queues, channels, given, splits }
    }

    /// Its number of queues, and nothing else.
    pub(super) fn channels_alone(self) -> Shared {
        Shared { channels: self.channels, given: self.given, ..Shared::default() }
    }

    /// How many queues it has to have, one for everything else among them.
    pub(super) fn fewest(&self) -> u32 {
        let of_flows = self.queues.map_or(0, |(own, of)| match is_last(own, of) {
            true => own.count + 1,
            false => own.first.max(1) + own.count,
        });
        self.channels.unwrap_or(0).max(of_flows)
    }
}

/// What is looked at of what a NIC is asked.
pub(super) type Part = fn(Shared) -> Shared;

/// What cells of a study have in common: of each NIC as many queues as any of them needs, by whose
/// number the own ones are counted; then what the first of them requires. Asked of cells with
/// software GRO, then of those with the NIC's, as some NICs split headers with the latter only.
/// `requested` is what a cell that can run requires beyond what is known so far, `common` at first.
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

/// The queues that these settings steer flows to.
pub(super) fn steered(settings: &[Setting]) -> Option<OwnQueues> {
    let queues = settings.iter().filter_map(|setting| match setting {
        Setting::Flow { rule, .. } => Some(rule.queue),
        _ => None,
    });
    let queues: BTreeSet<u32> = queues.collect();
    queues.first().map(|first| OwnQueues { first: *first, count: queues.len() as u32 })
}

/// Whether these queues are the last of so many.
fn is_last(own: OwnQueues, of: u32) -> bool {
    own.first + own.count == of
}

/// What queues of so many are on a NIC with another number: the last ones stay the last.
pub(super) fn among(own: OwnQueues, of: u32, has: u32) -> OwnQueues {
    match is_last(own, of) {
        true => OwnQueues { first: has.saturating_sub(own.count), ..own },
        false => own,
    }
}

/// Whether this changes the number of queues of a NIC, and with it what else there is to set.
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

/// The largest number of queues that these settings give a device.
pub(super) fn most_channels(settings: &[Setting]) -> Option<u32> {
    let counts = settings.iter().filter_map(|setting| match setting {
        Setting::Channels { channels, .. } => channels.combined,
        _ => None,
    });
    counts.max()
}
