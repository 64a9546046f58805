//! Prepares the NICs of a cell's flows as its paths require: after the link is up and before the
//! ends are opened. Undone when the agents are gone.
//!
//! This is done for each trial, not once for a block: the next cell in the random order may be one
//! that runs unprepared, and a link's settings may contradict a preparation (hardware GRO, without
//! which some NICs do not split headers). If the NIC loses its carrier, the run waits for it.

use super::guard::Guard;
use super::nics::Nics;
use super::plan::Laboratory;
use super::queues::{Common, changes_queues};
use super::remote::Remotes;
use super::stewards::Stewards;
use super::stream::{Listening, listen};
use bytepath_engine::path::{self, FlowNic};
use bytepath_engine::workload;
use bytepath_host::testbed::Site;
use bytepath_host::{self as host, Attachment};
use bytepath_record::wire::{Nic, SetSysctls, TrySysctls};
use bytepath_record::{
    Cell, Fault, Ports, Role, Setting, SettingRecord, SysctlName, WantedSetting, joined,
};
use bytepath_spec::{resolve, split, usage};
use bytepath_sys::device;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Returns the settings that the trials of each cell would change, with old and new values, or why
/// they cannot, given the NIC setup that all cells share. Empty if the testbed creates its devices.
/// Changes nothing.
pub(super) fn previewed(
    laboratory: &Laboratory,
    cells: &[Cell],
    common: &Common,
) -> Result<Vec<Result<Previewed, Fault>>, Fault> {
    let Laboratory { paths, testbed, program, .. } = laboratory;
    let nics = match testbed.devices() {
        Some(devices) => Nics::at(*testbed, &devices)?,
        None if testbed.properties().link_is_given => {
            Nics::of(&mut Remotes::raise(laboratory, None)?)?
        }
        None => return Ok(Vec::new()),
    };
    let mut stewards = Stewards::at(*testbed, &Site::of(program))?;
    let preview = |cell| {
        let wanted = nics.wanted(paths, cell, common, None)?;
        let unseen = nics.unseen(cell, common, &wanted);
        Ok(Previewed { records: stewards.preview(&wanted)?, unseen })
    };
    Ok(cells.iter().map(preview).collect())
}

/// The settings that the trials of a cell would change.
pub(super) struct Previewed {
    pub records: Vec<SettingRecord>,
    /// Notes on what is unknown until some of the settings are made.
    pub unseen: Vec<String>,
}

/// Sets the network's kernel parameters that the workload, the study or the cell requests, for
/// agents in a namespace of their own or in a guest; on the hosts themselves the stewards have set
/// them. Optional ones that a host's steward may not set are tried in the agent's namespace, since
/// a plain user is root there; the returned notes name those that were set. Called before the link
/// is set up, since that may change them.
pub(super) fn set_sysctls(
    remotes: &mut Remotes,
    guard: Option<&Guard>,
    cell: &Cell,
) -> Result<Vec<String>, Fault> {
    let mut notes = Vec::new();
    if remotes.properties.link_is_given {
        return Ok(notes);
    }
    for role in Role::ALL {
        let host = &remotes.agents.hosts.hosts[role as usize];
        let mut values = match host.attachment() {
            Attachment::Made(..) | Attachment::Beside { .. } => of_workload(cell, role)?,
            // This may be the machine's own network.
            Attachment::Given(_) => Vec::new(),
        };
        let of_study = guard.into_iter().flat_map(|guard| sysctls(guard, cell, role));
        let of_network = of_study.filter(|(name, _)| name.is_of_namespace());
        values.extend(of_network.map(|(name, value)| (name.clone(), value.clone())));
        if !values.is_empty() {
            remotes.agents.call(role, SetSysctls { values })?;
        }
        let records = guard.into_iter().flat_map(|guard| &guard.records);
        let skipped = records.filter(|record| record.skipped.is_some());
        let values: Vec<_> = skipped
            .filter_map(|record| sysctl(&record.setting, record.host, role))
            .filter(|(name, _)| name.is_of_namespace())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !values.is_empty() {
            let set = remotes.agents.call(role, TrySysctls { values })?;
            let names = (!set.is_empty()).then(|| joined(&set, ", "));
            notes.extend(names.map(|names| {
                format!("{role}: set in the testbed's namespace, not on the host: {names}")
            }));
        }
    }
    Ok(notes)
}

/// Returns the kernel parameters that a cell's workload needs in a network that only bytepath uses.
/// Those of the study and of the cell are set after them.
pub(super) fn of_workload(cell: &Cell, role: Role) -> Result<Vec<(SysctlName, String)>, Fault> {
    let all = workload::of(cell)?.sysctls(role).iter();
    all.map(|(name, value)| Ok((SysctlName::new(name)?, (*value).to_owned()))).collect()
}

/// Returns the kernel parameters that the study and a cell set on a role's host.
pub(super) fn sysctls<'a>(
    guard: &'a Guard,
    cell: &'a Cell,
    role: Role,
) -> impl Iterator<Item = (&'a SysctlName, &'a String)> {
    let of_study = guard.records.iter().filter(|record| record.skipped.is_none());
    let of_study = of_study.map(|record| (&record.setting, record.host));
    let of_cell = cell.settings.iter().map(|wanted| (&wanted.setting, wanted.host));
    of_study.chain(of_cell).filter_map(move |(setting, host)| sysctl(setting, host, role))
}

/// Returns name and value of a setting, if it is a kernel parameter of a role's host.
fn sysctl(setting: &Setting, host: Option<Role>, role: Role) -> Option<(&SysctlName, &String)> {
    match setting {
        Setting::Sysctl { name, value } if host.is_none_or(|host| host == role) => {
            Some((name, value))
        }
        _ => None,
    }
}

/// Prepares the NICs of a deployment whose link is up, and makes the receiver listen. Numbers of
/// queues come first, and last the rules that steer flows, since they contain the receiver's port.
/// The caller has the guard restore everything once the link is down: a queue cannot be returned
/// while an agent holds it.
pub(super) fn prepare(
    laboratory: &Laboratory,
    guard: &mut Guard,
    remotes: &mut Remotes,
    cell: &Cell,
) -> Result<(Vec<SettingRecord>, Listening), Fault> {
    let common = guard.common.clone();
    let wanted =
        |nics: &Nics, cell: &Cell, port| nics.wanted(laboratory.paths, cell, &common, port);
    let is_rule = |wanted: &WantedSetting| matches!(wanted.setting, Setting::Flow { .. });
    let mut set =
        |remotes: &mut Remotes, wanted: &[WantedSetting]| match remotes.properties.nics_are_new {
            true => remotes.prepare(wanted),
            false => guard.prepare(wanted),
        };
    let give = |remotes: &mut Remotes, wanted: &[WantedSetting]| {
        let records = set(remotes, wanted)?;
        // Some drivers have their new queues only once the carrier is back.
        remotes.await_carriers().map(|()| records)
    };
    let pause = |remotes: &mut Remotes| remotes.pass(PAUSE);
    let Queued { nics, cell, mut records, rest } =
        give_queues(remotes, cell, Nics::of, pause, give, |nics, cell| wanted(nics, cell, None))?;
    let (rules, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_rule);
    remotes.connect_from = connect_from(&rules, &cell);
    // Flows from fixed ports would collide with those of the previous trial, which the kernel keeps
    // for a while (TIME-WAIT), unless the receiver listens on another port each time.
    let alike = !rules.is_empty() && remotes.connect_from.is_none();
    remotes.listen_on = alike.then_some(path::STEERED_PORTS);
    records.extend(set(remotes, &others)?);
    if !records.is_empty() || !remotes.properties.link_is_given {
        remotes.await_carriers()?;
    }
    if !records.is_empty() && !remotes.properties.link_is_given {
        remotes.steer_again()?;
    }
    let listening = listen(remotes, &cell)?;
    if !rules.is_empty() {
        let port = listening.peers.first().map(SocketAddr::port);
        let rules = wanted(&nics, &cell, port)?.into_iter().filter(is_rule);
        records.extend(set(remotes, &rules.collect::<Vec<_>>())?);
    }
    Ok((records, listening))
}

/// NICs with the requested numbers of queues.
struct Queued {
    nics: Nics,
    /// The cell, without optional settings that could not be made.
    cell: Cell,
    /// The settings that changed the numbers of queues.
    records: Vec<SettingRecord>,
    /// The settings that remain to be made.
    rest: Vec<WantedSetting>,
}

/// Gives NICs the requested numbers of queues, then surveys them again: new queues bring their
/// interrupts, and a driver may renumber those of the others. If an optional number cannot be set,
/// the cell gets its settings without it.
fn give_queues<H>(
    hosts: &mut H,
    cell: &Cell,
    ask: impl Fn(&mut H) -> Result<Nics, Fault>,
    pause: impl Fn(&mut H) -> Result<(), Fault>,
    mut set: impl FnMut(&mut H, &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault>,
    wanted: impl Fn(&Nics, &Cell) -> Result<Vec<WantedSetting>, Fault>,
) -> Result<Queued, Fault> {
    let (mut cell, mut records, mut is_given) = (cell.clone(), Vec::new(), false);
    let mut nics = ask(hosts)?;
    loop {
        let all = wanted(&nics, &cell)?.into_iter();
        let (mut queues, rest): (Vec<_>, Vec<_>) = all.partition(changes_queues);
        if is_given || queues.is_empty() {
            return Ok(Queued { nics, cell, records, rest });
        }
        let made = set(hosts, &queues)?;
        let is_made = |wanted: &WantedSetting| {
            let mut skipped = made.iter().filter(|record| record.skipped.is_some());
            !skipped.any(|record| record.setting == wanted.setting)
        };
        is_given = queues.iter().all(is_made);
        queues.retain(is_made);
        cell.settings.retain(is_made);
        records.extend(made);
        nics = ask(hosts)?;
        for _ in 0..PAUSES {
            if nics.have(&queues) {
                break;
            }
            pause(hosts)?;
            nics = ask(hosts)?;
        }
    }
}

/// How often NICs that still have fewer queues than requested are surveyed again: some drivers
/// create queues in the background (hv_netvsc).
const PAUSES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// Returns the ports that flows must connect from, if rules distinguish flows by them.
fn connect_from(wanted: &[WantedSetting], cell: &Cell) -> Option<Ports> {
    let spread = wanted.iter().any(|wanted| match (&wanted.setting, wanted.host) {
        (Setting::Flow { rule, .. }, Some(Role::Receiver)) => rule.source_port.is_some(),
        (Setting::Flow { rule, .. }, Some(Role::Sender)) => rule.destination_port.is_some(),
        _ => false,
    });
    spread.then(|| path::spread_ports(cell.stream.flows))
}

/// Settings that a path requires, in this order.
pub struct NicSettings {
    pub device: String,
    pub wanted: Vec<WantedSetting>,
}

/// Returns what `PATH[:key=value,...]` requires for a flow between this host's address and the
/// peer's, to a port (`None`: all TCP from the peer). Changes nothing.
pub fn nic_settings(
    text: &str,
    role: Role,
    [own, peer]: [IpAddr; 2],
    port: Option<u16>,
) -> Result<NicSettings, Fault> {
    let (name, given) = split(text)?;
    let path = path::find(path::CATALOG, &name).ok_or_else(|| {
        let fault = usage(format!("there is no path '{name}'"));
        fault.remedy("'bytepath paths' lists them")
    })?;
    let half = path.half(role).ok_or_else(|| {
        usage(format!("path '{name}' has no {role} half"))
            .remedy("'bytepath paths' lists the halves")
    })?;
    let options = resolve(&format!("path {name}"), half.options, &given)?;
    let name = device::of_address(own)
        .map_err(|e| Fault::system(format!("cannot find the device with address {own}"), &e))?;
    let Some(Nic { queues, .. }) = host::nic(&name)? else {
        let text = format!("{name}, which has the address {own}, is a software device");
        let fault = Fault::unsupported(text);
        return Err(fault.remedy("there is nothing to prepare; only NICs need that"));
    };
    let (flows, adapter, adapters) = (1, 0, 1);
    let (given, connects) = (false, false);
    let wire = FlowNic {
        device: &name,
        queues,
        given,
        own,
        peer,
        port,
        flows,
        adapter,
        adapters,
        connects,
    };
    let settings = (half.nic_settings)(&options, &wire)?;
    let wanted = settings.into_iter().map(path::to_requested).collect();
    Ok(NicSettings { device: name, wanted })
}

#[cfg(test)]
mod tests {
    use super::super::nics::tests::{cell, cell_over, one_nic};
    use super::*;
    use bytepath_record::SoftirqCpu;

    /// A NIC with one interrupt per queue, all renumbered when their number changes, as some
    /// drivers do.
    #[derive(Default)]
    struct Card {
        queues: u32,
        /// The largest number it accepts; `None` accepts any.
        most: Option<u32>,
        /// How many surveys show too few queues after a change.
        late: u32,
        shows_late: u32,
        log: Vec<String>,
    }

    impl Card {
        fn ask(&mut self) -> Result<Nics, Fault> {
            let shown = if self.shows_late > 0 { 1 } else { self.queues };
            self.shows_late = self.shows_late.saturating_sub(1);
            self.log.push(format!("asked with {shown} queues"));
            let first = 10 * self.queues;
            Ok(one_nic(shown, (first..first + shown).collect()))
        }

        fn set(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
            let set = |one: &WantedSetting| {
                self.log.push(one.setting.to_string());
                let Setting::Channels { channels, .. } = &one.setting else { panic!("{one:?}") };
                let count = channels.combined.unwrap();
                let is_had = self.most.is_none_or(|most| count <= most);
                if is_had {
                    (self.queues, self.shows_late) = (count, self.late);
                }
                assert!(is_had || one.optional, "{one:?}");
                let skipped = (!is_had).then(|| "it has not as many".to_owned());
                SettingRecord { skipped, ..SettingRecord::from(one) }
            };
            Ok(wanted.iter().map(set).collect())
        }

        /// Gives the NIC its queues for a cell.
        fn give(&mut self, cell: &Cell) -> Queued {
            let none = Common::default();
            let wanted = |nics: &Nics, cell: &Cell| nics.wanted(path::CATALOG, cell, &none, None);
            let pause = |card: &mut Card| {
                card.log.push("paused".into());
                Ok(())
            };
            give_queues(self, cell, Card::ask, pause, Card::set, wanted).unwrap()
        }
    }

    /// The interrupts that are placed once the NIC has its queues.
    fn irqs(queued: &Queued) -> Vec<String> {
        let rest = queued.rest.iter().map(|wanted| wanted.setting.to_string());
        rest.filter(|text| text.starts_with("irq")).collect()
    }

    #[test]
    fn interrupts_are_placed_once_a_nic_has_its_queues() {
        let mut cell = cell_over("zcrx", 3);
        cell.link.threaded_napi = false;
        cell.placement.softirq = SoftirqCpu::Cpu(1);
        let prepared = |queues: u32, cell: &Cell| {
            let mut card = Card { queues, ..Card::default() };
            let queued = card.give(cell);
            let Queued { nics, records, rest, .. } = &queued;
            assert_eq!(nics.unseen(cell, &Common::default(), rest), [""; 0]);
            assert!(!rest.iter().any(changes_queues), "{rest:?}");
            (card.log, records.len(), irqs(&queued))
        };
        let (log, count, irqs) = prepared(2, &cell);
        let expected = ["asked with 2 queues", "channels eth1 combined=4", "asked with 4 queues"];
        assert_eq!((log, count), (expected.map(str::to_owned).to_vec(), 1));
        assert_eq!(irqs, ["irq 40 1", "irq 41 1", "irq 42 1", "irq 43 1"]);
        let (log, count, irqs) = prepared(4, &cell);
        assert_eq!((log, count), (vec!["asked with 4 queues".to_owned()], 0));
        assert_eq!(irqs, ["irq 40 1", "irq 41 1", "irq 42 1", "irq 43 1"]);
        // A setting of the cell counts as well.
        cell.settings = vec!["channels eth1 combined=6".parse::<Setting>().unwrap().into()];
        let (log, count, irqs) = prepared(2, &cell);
        assert_eq!((log[1].as_str(), log.len(), count), ("channels eth1 combined=6", 3, 1));
        assert_eq!((irqs.len(), irqs[5].as_str()), (6, "irq 65 1"));
    }

    #[test]
    fn queues_that_come_late_are_waited_for_and_no_longer() {
        let mut cell = cell_over("zcrx", 3);
        cell.link.threaded_napi = false;
        cell.placement.softirq = SoftirqCpu::Cpu(1);
        let mut card = Card { queues: 2, late: 3, ..Card::default() };
        assert_eq!(irqs(&card.give(&cell)).len(), 4);
        assert_eq!(card.log.iter().filter(|line| *line == "paused").count(), 3, "{:?}", card.log);
        let mut card = Card { queues: 2, late: u32::MAX, ..Card::default() };
        assert_eq!(irqs(&card.give(&cell)).len(), 1, "of those that are there");
        assert_eq!(card.log.iter().filter(|line| *line == "paused").count(), PAUSES as usize);
    }

    #[test]
    fn an_optional_number_of_queues_that_cannot_be_had_does_not_count() {
        let mut cell = cell("zcrx");
        let wanted = WantedSetting::from("channels eth1 combined=8".parse::<Setting>().unwrap());
        cell.settings = vec![WantedSetting { optional: true, ..wanted }];
        let rule = |card: &mut Card| {
            let queued = card.give(&cell);
            let rules = queued.rest.iter().filter_map(|wanted| match &wanted.setting {
                Setting::Flow { rule, .. } => Some(rule.queue),
                _ => None,
            });
            (queued.records.len(), rules.collect::<Vec<_>>())
        };
        assert_eq!(rule(&mut Card { queues: 4, ..Card::default() }), (1, vec![7]));
        let mut card = Card { queues: 4, most: Some(4), ..Card::default() };
        assert_eq!(rule(&mut card), (1, vec![3]), "the last of those that it has");
    }
}
