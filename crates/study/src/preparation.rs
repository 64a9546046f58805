//! What a cell's paths require of the cards that its flows use: made when the link is
//! up, before the ends are opened, and restored when the agents are gone.
//!
//! Made for each trial, not once for a block: the next cell in the random order
//! may be one that runs unprepared, and a link's settings may contradict a preparation
//! (hardware GRO, which some cards split headers by). If the card loses its carrier,
//! the run waits for it.

use super::Laboratory;
use super::given;
use super::guard::Guard;
use super::remote::Remotes;
use super::stewards::Stewards;
use bytepath_engine::path::{self, DataPath, HalfPath, OwnQueues, Wire};
use bytepath_engine::workload::{self, Direction, Job};
use bytepath_host as host;
use bytepath_host::testbed::{Site, Testbed};
use bytepath_record::wire::{Nic, Request};
use bytepath_record::{
    Cell, DeviceName, Fault, FaultKind, HW_GRO, Ports, Protocol, Rings, Role, Setting,
    SettingRecord, Split, WantedSetting,
};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

/// The devices of a deployment, the cards among them, and the addresses that flows go
/// between.
#[derive(Clone, Debug)]
pub(super) struct Cards {
    devices: [Option<String>; 2],
    nics: [Option<Nic>; 2],
    addresses: [IpAddr; 2],
    /// Whether the link was there before.
    given: bool,
    /// Whether what a cell asks of the link is set like other settings. Where the link is
    /// made, its ends do it; before it is, a preview shows it so.
    sets_link: bool,
}

/// What the paths of a study ask of the card of each role that changes how any flow comes by it:
/// all of its cells get it, or a difference between paths would be one of queues or of headers.
pub(super) type Alike = [Shared; 2];

/// What they ask of one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// Receive queues that all flows come by; none leaves it to the card.
    queues: Option<OwnQueues>,
    /// Headers are in buffers of their own.
    splits: bool,
}

impl Cards {
    /// Those of a deployment that is up.
    pub(crate) fn of(remotes: &mut Remotes) -> Result<Cards, Fault> {
        Ok(Cards {
            devices: Role::ALL.map(|role| remotes.device(role)),
            nics: [remotes.nic(Role::Sender)?, remotes.nic(Role::Receiver)?],
            addresses: Role::ALL.map(|role| remotes.address(role)),
            given: remotes.properties.link_is_given,
            sets_link: remotes.properties.link_is_given,
        })
    }

    /// Those of a testbed's devices that are where they are found, before it is raised.
    fn at(testbed: &dyn Testbed, [sender, receiver]: [String; 2]) -> Result<Cards, Fault> {
        Ok(Cards {
            nics: [host::nic(&sender)?, host::nic(&receiver)?],
            devices: [Some(sender), Some(receiver)],
            addresses: Role::ALL.map(|role| testbed.address(role)),
            given: false,
            sets_link: false,
        })
    }

    /// What has to be set for a cell, in this order. The fault is why its paths can
    /// never run over these cards. The listening port is not known before the ends are
    /// opened; no other flows are on the link that could be taken for ours.
    pub(crate) fn wanted(
        &self,
        paths: &[&'static DataPath],
        cell: &Cell,
        alike: &Alike,
    ) -> Result<Vec<WantedSetting>, Fault> {
        let mut all = cell.settings.clone();
        for role in Role::ALL {
            let here = |setting| WantedSetting { host: Some(role), ..WantedSetting::from(setting) };
            let address = self.addresses[role as usize];
            if let Some(device) = self.devices[role as usize].as_ref().filter(|_| self.sets_link) {
                let link = given::settings(cell, role, device, address.is_ipv6())?;
                all.extend(link.into_iter().map(here));
            }
            all.extend(self.interrupts(cell, role)?.into_iter().map(here));
            let Some(nic) = &self.nics[role as usize] else {
                match cell.link.hds == Some(true) && receives(cell, role)? {
                    true => return Err(no_card_to_split(self.devices[role as usize].as_deref())),
                    false => continue,
                }
            };
            let alike = &alike[role as usize];
            let wire = Wire {
                device: &nic.device,
                driver: &nic.driver,
                queues: nic.queues,
                own: address,
                peer: self.addresses[role.peer() as usize],
                port: None,
                flows: cell.stream.flows,
                connects: role == Role::Sender,
            };
            let mut settings = Vec::new();
            for (half, job) in halves(paths, cell, role)? {
                settings.extend((half.prepare)(&job.options, &wire)?);
            }
            split_headers(cell, role, alike.splits, &wire, &mut settings)?;
            let meant = cell.link.hw_gro && cell.link.is_asked("hw-gro");
            if !meant && settings.iter().any(turns_merging_on) {
                return Err(splits_by_merging(nic));
            }
            if let Some(queues) = alike.queues.filter(|_| steered(&settings).is_none()) {
                settings.extend(path::steering(queues, &wire)?);
            }
            all.extend(settings.into_iter().map(here));
        }
        Ok(all)
    }

    /// What the paths of a cell ask of the cards that its flows come by.
    pub(crate) fn asked(&self, paths: &[&'static DataPath], cell: &Cell) -> Alike {
        let mut cell = cell.clone();
        // That is asked by the cell, for itself.
        cell.link.hds = None;
        let wanted = self.wanted(paths, &cell, &Alike::default()).unwrap_or_default();
        Role::ALL.map(|role| {
            let here = wanted.iter().filter(|wanted| wanted.host == Some(role));
            let here: Vec<Setting> = here.map(|wanted| wanted.setting.clone()).collect();
            Shared { queues: steered(&here), splits: here.iter().any(splits) }
        })
    }

    /// What brings the softirqs of a role's device to the CPU that its cell names: the
    /// interrupts of all queues of a card, since acknowledgements and the end of
    /// transmissions choose theirs by a hash. Where there are none it is RPS, which the agent
    /// of a link that is ours to make sets up with it.
    fn interrupts(&self, cell: &Cell, role: Role) -> Result<Vec<Setting>, Fault> {
        let Some(cpu) = cell.placement.softirq(role).cpu() else { return Ok(Vec::new()) };
        if cell.link.threaded_napi && cell.link.is_asked("threaded-napi") {
            return if self.given { Err(given::no_polling_thread(cpu)) } else { Ok(Vec::new()) };
        }
        let interrupts = self.nics[role as usize].as_ref().map_or(&[][..], |nic| &nic.interrupts);
        if let (true, true, Some(device)) =
            (interrupts.is_empty(), self.sets_link, &self.devices[role as usize])
        {
            return Ok(vec![given::receive_on(DeviceName::new(device)?, cpu)?]);
        }
        let at = |irq: &u32| Ok(Setting::IrqAffinity { irq: *irq, cpus: given::one(cpu)? });
        interrupts.iter().map(at).collect()
    }
}

/// The queues that these settings steer flows to.
fn steered(settings: &[Setting]) -> Option<OwnQueues> {
    let queues = settings.iter().filter_map(|setting| match setting {
        Setting::Flow { rule, .. } => Some(rule.queue),
        _ => None,
    });
    let queues: BTreeSet<u32> = queues.collect();
    queues.first().map(|first| OwnQueues { first: *first, count: queues.len() as u32 })
}

fn splits(setting: &Setting) -> bool {
    matches!(setting, Setting::Rings { rings, .. } if rings.tcp_data_split == Some(Split::On))
}

fn receives(cell: &Cell, role: Role) -> Result<bool, Fault> {
    Ok(workload::of(cell)?.halves(role).contains(&Direction::Receive))
}

/// Adds what makes a card split headers, or not, as the cell's link has it; where that says
/// nothing, as the study's other cells need it (`alike`).
fn split_headers(
    cell: &Cell,
    role: Role,
    alike: bool,
    wire: &Wire,
    settings: &mut Vec<Setting>,
) -> Result<(), Fault> {
    let split_already = settings.iter().any(splits);
    if !receives(cell, role)? {
        return Ok(());
    }
    match cell.link.hds.filter(|_| cell.link.is_asked("hds")) {
        Some(false) if split_already => {
            let text = "the path requires header split, and the cell's link has hds=off";
            Err(Fault::new(FaultKind::Unsupported, text)
                .remedy("leave hds at auto for this path, or compare paths with hds=on"))
        }
        Some(false) => {
            let rings = Rings { tcp_data_split: Some(Split::Off), ..Rings::default() };
            settings.insert(0, Setting::Rings { device: DeviceName::new(wire.device)?, rings });
            Ok(())
        }
        // Where it takes hardware GRO, it is left to cells that have that.
        None if !alike || (path::splits_by_merging(wire.driver) && !cell.link.hw_gro) => Ok(()),
        _ if split_already => Ok(()),
        _ => {
            settings.splice(0..0, path::header_split(wire)?);
            Ok(())
        }
    }
}

/// The ports that flows have to connect from, if settings distinguish them by these.
fn connect_from(wanted: &[WantedSetting], cell: &Cell) -> Option<Ports> {
    let spread = wanted.iter().any(|wanted| match (&wanted.setting, wanted.host) {
        (Setting::Flow { rule, .. }, Some(Role::Receiver)) => rule.source_port.is_some(),
        (Setting::Flow { rule, .. }, Some(Role::Sender)) => rule.destination_port.is_some(),
        _ => false,
    });
    spread.then(|| path::spread_ports(cell.stream.flows))
}

fn no_card_to_split(device: Option<&str>) -> Fault {
    let device = device.unwrap_or("the device");
    let text = format!("hds=on: {device} is not a card that splits headers");
    Fault::new(FaultKind::Unsupported, text)
        .remedy("leave hds at auto; `--testbed vm:nic=zcnic` has software cards that can")
}

/// Whether it makes a card merge received packets.
fn turns_merging_on(setting: &Setting) -> bool {
    match setting {
        Setting::Feature { feature, on, .. } => *on && feature.as_str() == HW_GRO,
        _ => false,
    }
}

/// A cell that says "software GRO" must not run with the card's.
fn splits_by_merging(nic: &Nic) -> Fault {
    let text = format!(
        "{} splits headers only by hardware GRO ({}), which the cell does not request",
        nic.driver, nic.device
    );
    Fault::new(FaultKind::Unsupported, text)
        .remedy("add hw-gro=on to the link, also for the cells it is compared with")
}

/// The halves of a cell's paths that the actor of a role opens, each with its job.
pub(super) fn halves(
    paths: &[&'static DataPath],
    cell: &Cell,
    role: Role,
) -> Result<Vec<(HalfPath, Job)>, Fault> {
    let cell = &path::of_end(paths, cell, role);
    let workload = workload::of(cell)?;
    workload.check(cell)?;
    let protocol = workload.protocol(cell);
    if cell.link.tap.is_some() && protocol != Protocol::Frames {
        let text = format!("a tap does not carry {protocol}: its other end is descriptors");
        let remedy = "choose another --link, or --workload packets";
        return Err(Fault::new(FaultKind::Usage, text).remedy(remedy));
    }
    let find = |role: Role| path::find(paths, &cell.half(role).path);
    if let (Some(tx), Some(rx)) = (find(Role::Sender), find(Role::Receiver)) {
        path::transport(workload, cell, role, [tx, rx])?.check(cell)?;
    }
    let open = workload.halves(role).iter().map(|&direction| {
        let name = &cell.half(direction.role()).path;
        let half = find(direction.role()).and_then(|path| path.half(direction.role()));
        let lacks = || {
            let text = format!("path '{name}' has no {} half", direction.role());
            Fault::new(FaultKind::Usage, text).remedy("'bytepath paths' lists the halves")
        };
        Ok((half.ok_or_else(lacks)?, workload.job(cell, role, direction)))
    });
    open.collect()
}

/// Whether the devices of a testbed could be prepared for a cell, as far as a look at them
/// shows where they are. Nothing is changed.
pub fn preparable(
    paths: &[&'static DataPath],
    testbed: &dyn Testbed,
    program: &Path,
    cell: &Cell,
) -> Result<(), Fault> {
    let Some(devices) = testbed.devices() else { return Ok(()) };
    let wanted = Cards::at(testbed, devices)?.wanted(paths, cell, &Alike::default())?;
    Stewards::at(testbed, &Site::of(program))?.feasible(&wanted)
}

/// What would be set for the trials of each cell, from what to what, or why it cannot. None
/// where the testbed makes its devices. Nothing is changed.
pub fn previewed(
    laboratory: &Laboratory,
    cells: &[Cell],
) -> Result<Vec<Result<Vec<SettingRecord>, Fault>>, Fault> {
    let Laboratory { paths, testbed, program, .. } = laboratory;
    let cards = match testbed.devices() {
        Some(devices) => Cards { sets_link: true, ..Cards::at(*testbed, devices)? },
        None if testbed.properties().link_is_given => {
            Cards::of(&mut Remotes::raise(laboratory, None)?)?
        }
        None => return Ok(Vec::new()),
    };
    let asked =
        |cell: &Cell| Some(cards.asked(paths, cell)).filter(|asked| asked != &Alike::default());
    let alike = cells.iter().find_map(asked).unwrap_or_default();
    let mut stewards = Stewards::at(*testbed, &Site::of(program))?;
    let preview = |cell| stewards.preview(&cards.wanted(paths, cell, &alike)?);
    Ok(cells.iter().map(preview).collect())
}

/// Kernel parameters of the network that the study or the cell sets: where an agent is in a
/// namespace of its own, or in a guest, they are to hold there. The hosts' stewards have
/// set them where those are. Before the link is set up, which may say otherwise.
pub(super) fn reach_namespaces(
    remotes: &mut Remotes,
    guard: &Guard,
    cell: &Cell,
) -> Result<(), Fault> {
    if remotes.properties.link_is_given {
        return Ok(());
    }
    for role in Role::ALL {
        let of_study = guard.records().iter().filter(|record| record.skipped.is_none());
        let of_study = of_study.map(|record| (&record.setting, record.host));
        let of_cell = cell.settings.iter().map(|wanted| (&wanted.setting, wanted.host));
        let mut values = Vec::new();
        for (setting, host) in of_study.chain(of_cell) {
            if let Setting::Sysctl { name, value } = setting
                && name.is_of_namespace()
                && host.is_none_or(|host| host == role)
            {
                values.push((name.clone(), value.clone()));
            }
        }
        if !values.is_empty() {
            remotes.tell(role, &Request::Sysctls { values })?;
        }
    }
    Ok(())
}

/// Prepares the cards of a deployment whose link is up. The caller has the guard restore
/// them once it is down: a queue cannot be returned while an agent holds it.
pub(super) fn prepare(
    laboratory: &Laboratory,
    guard: &mut Guard,
    remotes: &mut Remotes,
    cell: &Cell,
) -> Result<Vec<SettingRecord>, Fault> {
    let wanted = Cards::of(remotes)?.wanted(laboratory.paths, cell, &guard.alike)?;
    remotes.connect_from = connect_from(&wanted, cell);
    let records = match remotes.properties.cards_are_new {
        true => remotes.prepare(&wanted)?,
        false => guard.prepare(&wanted)?,
    };
    if !records.is_empty() || !remotes.properties.link_is_given {
        remotes.await_carriers()?;
    }
    Ok(records)
}
