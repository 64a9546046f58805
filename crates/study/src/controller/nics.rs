//! The NICs of a deployment, and the settings that a cell's paths require of them. Pure, once
//! the devices are known.

use super::queues::{
    Common, Part, Receiving, Shared, among, changes_queues, most_channels, of_wanted, steered,
    too_few_queues,
};
use super::remote::{DeviceEnd, Remotes, each};
use bytepath_engine::path::{self, DataPath, FlowNic, HalfPath};
use bytepath_engine::workload::{self, Direction, HalfConfig};
use bytepath_host as host;
use bytepath_host::testbed::Testbed;
use bytepath_record::wire::Nic;
use bytepath_record::{
    Cell, Cpus, DeviceName, Fault, GRO, HW_GRO, PacketLimits, Protocol, Rings, Role, Setting,
    SettingRecord, Split, SysctlName, WantedSetting, Word,
};
use std::net::IpAddr;

/// The devices of a deployment, the NICs among them, and the addresses that flows go
/// between.
#[derive(Clone, Debug)]
pub(super) struct Nics {
    /// The sender's and the receiver's, by adapter index.
    ends: [Vec<NicEnd>; 2],
    /// Whether the link existed before the study.
    given: bool,
    /// Whether the link options of a cell are made as settings. If the testbed makes the link, its
    /// agents apply them instead; a preview before that lists them as settings.
    sets_link: bool,
}

/// A device of one host on the link.
#[derive(Clone, Debug)]
struct NicEnd {
    device: Option<String>,
    nic: Option<Nic>,
    address: IpAddr,
}

impl NicEnd {
    fn interrupts(&self) -> &[u32] {
        self.nic.as_ref().map_or(&[], |nic| &nic.interrupts)
    }
}

/// A role, an adapter index, the role's device there, and the peer's.
type Joined<'a> = (Role, u32, &'a NicEnd, &'a NicEnd);

impl Nics {
    /// Returns the NICs of a deployment that is up.
    pub(super) fn of(remotes: &mut Remotes) -> Result<Nics, Fault> {
        let ends = each(|role| {
            let ends = remotes.ends(role).into_iter();
            let end = |DeviceEnd { device, address }| {
                Ok(NicEnd { nic: remotes.nic(role, device.as_deref())?, device, address })
            };
            ends.map(end).collect()
        })?;
        Ok(Nics {
            ends,
            given: remotes.properties.link_is_given,
            sets_link: remotes.properties.link_is_given,
        })
    }

    /// Returns the NICs among a testbed's devices before the testbed is set up.
    pub(super) fn at(testbed: &dyn Testbed, devices: &[Vec<String>; 2]) -> Result<Nics, Fault> {
        let ends = each(|role| {
            let end = |(adapter, device): (u32, &String)| {
                let address = testbed.address(role, adapter);
                Ok(NicEnd { nic: host::nic(device)?, device: Some(device.clone()), address })
            };
            (0..).zip(&devices[role as usize]).map(end).collect()
        })?;
        Ok(Nics { ends, given: false, sets_link: true })
    }

    /// Returns the queues that the settings of the study give each NIC.
    pub(super) fn queues_given(&self, records: &[SettingRecord]) -> Common {
        let made = || {
            let made = records.iter().filter(|record| record.skipped.is_none());
            made.map(|record| (&record.setting, record.host))
        };
        let all = self.joined().filter_map(|(role, adapter, own, _)| {
            let nic = own.nic.as_ref()?;
            let given = Some(Receiving::of(nic).once_set(made(), role, &nic.device)?);
            Some(((role, adapter), Shared { given, ..Shared::default() }))
        });
        all.collect()
    }

    /// Returns the settings that a cell requires, in the order in which to make them: numbers of
    /// queues first, since other settings depend on them. Errors if the cell's paths can never run
    /// over these NICs. `port` is the port that the receiver listens on, once it does.
    pub(super) fn wanted(
        &self,
        paths: &[&'static DataPath],
        cell: &Cell,
        common: &Common,
        port: Option<u16>,
    ) -> Result<Vec<WantedSetting>, Fault> {
        let mut all = cell.settings.clone();
        for at in self.joined().filter(|(_, adapter, ..)| *adapter < cell.link.adapters) {
            for setting in self.wanted_at(paths, cell, common, port, at)? {
                let wanted = WantedSetting { host: Some(at.0), ..path::to_requested(setting) };
                // Kernel parameters are per host, so several adapters may require the same one.
                if !all.contains(&wanted) {
                    all.push(wanted);
                }
            }
        }
        all.sort_by_key(|wanted| !changes_queues(wanted));
        Ok(all)
    }

    /// Returns notes on what a preview of these settings cannot show: the interrupts that a NIC has
    /// once its number of queues has changed.
    pub(super) fn unseen(
        &self,
        cell: &Cell,
        common: &Common,
        wanted: &[WantedSetting],
    ) -> Vec<String> {
        let here = self.joined().filter(|(_, adapter, ..)| *adapter < cell.link.adapters);
        let unseen = here.filter_map(|(role, adapter, own, _)| {
            let nic = own.nic.as_ref()?;
            let Nic { device, queues, .. } = nic;
            let of_study = common.get(&(role, adapter)).and_then(|shared| shared.given);
            let count = given(nic, of_study, of_wanted(wanted), role)?.all();
            let is_placed = |one: &WantedSetting| match &one.setting {
                Setting::IrqAffinity { irq, .. } => own.interrupts().contains(irq),
                Setting::Rps { device: of, queue: None, .. } => of.as_str() == device,
                _ => false,
            };
            let mut placed = wanted.iter().filter(|one| one.host == Some(role));
            (count != *queues && placed.any(is_placed)).then(|| {
                format!(
                    "softirqs of {device}: placed by interrupt or RPS of each of the {count} queues \
                     that it gets, of which only those of the {queues} that it has are known here"
                )
            })
        });
        unseen.collect()
    }

    /// True if every NIC has the receive queues that these settings gave it.
    pub(super) fn have(&self, made: &[WantedSetting]) -> bool {
        self.joined().all(|(role, _, own, _)| {
            let nic = own.nic.as_ref();
            let given = nic.and_then(|nic| Some((nic, given(nic, None, of_wanted(made), role)?)));
            given.is_none_or(|(nic, given)| nic.queues >= given.all())
        })
    }

    /// Returns each adapter of each role, with the one at the other end.
    fn joined(&self) -> impl Iterator<Item = Joined<'_>> {
        Role::ALL.into_iter().flat_map(|role| {
            let [own, peers] = [role, role.peer()].map(|role| &self.ends[role as usize]);
            let pairs = (0..).zip(own.iter().zip(peers));
            pairs.map(move |(adapter, (own, peer))| (role, adapter, own, peer))
        })
    }

    /// Returns the settings that one adapter of a role requires: `own`, joined with `peer`.
    fn wanted_at(
        &self,
        paths: &[&'static DataPath],
        cell: &Cell,
        common: &Common,
        port: Option<u16>,
        (role, adapter, own, peer): Joined,
    ) -> Result<Vec<Setting>, Fault> {
        let mut all = Vec::new();
        if let Some(device) = own.device.as_ref().filter(|_| self.sets_link) {
            all.extend(settings(cell, role, device, own.address.is_ipv6())?);
        }
        all.extend(self.interrupts(cell, role, adapter, own)?);
        let Some(nic) = &own.nic else {
            return match cell.link.hds == Some(true) && receives(cell, role)? {
                true => Err(no_nic_to_split(own.device.as_deref())),
                false => Ok(all),
            };
        };
        let common = common.get(&(role, adapter)).copied().unwrap_or_default();
        // A number that the user set is kept, and dedicated queues are numbered by it.
        let given = given(nic, common.given, of_wanted(&cell.settings), role).map(Receiving::all);
        let wire = FlowNic {
            device: &nic.device,
            queues: given.unwrap_or_else(|| nic.queues.max(common.fewest())),
            given: given.is_some(),
            own: own.address,
            peer: peer.address,
            port,
            flows: cell.stream.flows,
            // For an adapter that the cell does not use, as if all flows arrived on it.
            adapter: adapter % cell.link.adapters,
            adapters: cell.link.adapters,
            connects: role == Role::Sender,
        };
        let mut settings = Vec::new();
        for (half, job) in halves(paths, cell, role)? {
            settings.extend((half.nic_settings)(&job.options, &wire)?);
        }
        // The number that paths request is a total.
        let needed = common.fewest().max(most_channels(&settings).unwrap_or(0));
        settings.retain(|setting| !matches!(setting, Setting::Channels { .. }));
        if given.is_some_and(|given| given < needed) {
            return Err(too_few_queues(&wire, needed));
        }
        let splits = common.splits[usize::from(cell.link.hw_gro)];
        split_headers(cell, role, splits, &wire, &mut settings)?;
        if let Some((own, of)) = common.queues.filter(|_| steered(&settings).is_none()) {
            settings.extend(path::steering(among(own, of, wire.queues), &wire)?);
        }
        if given.is_none() && needed > nic.queues {
            let pairs = Receiving::of(nic).pairs_of(needed);
            settings.insert(0, path::channels(&nic.device, pairs)?);
        }
        all.extend(settings);
        Ok(all)
    }

    /// Returns what the paths of a cell require of each NIC and all of its flows must get, reduced
    /// to `part`, given the numbers of queues in `common`. NICs that this cell does not use are
    /// included, since other cells use them.
    pub(super) fn requested(
        &self,
        paths: &[&'static DataPath],
        cell: &Cell,
        common: &Common,
        part: Part,
    ) -> Common {
        let mut cell = cell.clone();
        // The cell's link requests that for this cell alone.
        cell.link.hds = None;
        cell.link.adapters = 1;
        let known = common.iter().map(|(at, shared)| (*at, shared.channels_alone()));
        let (known, port) = (known.collect::<Common>(), None);
        let asked = self.joined().map(|joined| {
            let at = (joined.0, joined.1);
            let here = self.wanted_at(paths, &cell, &known, port, joined).unwrap_or_default();
            let splits = here.iter().any(splits);
            let splits = [splits && !cell.link.hw_gro, splits];
            let known = known.get(&at).copied().unwrap_or_default();
            let nic = joined.2.nic.as_ref();
            let more = most_channels(&here).zip(nic);
            let channels = more.map(|(pairs, nic)| Receiving::of(nic).with_pairs(pairs).all());
            let queues = steered(&here).zip(nic).map(|(own, nic)| {
                let given = given(nic, known.given, of_wanted(&cell.settings), joined.0);
                (own, given.map(Receiving::all).or(channels).unwrap_or(nic.queues))
            });
            let channels = channels.filter(|count| Some(*count) > known.channels);
            (at, part(Shared { queues, channels, splits, ..Shared::default() }))
        });
        asked.filter(|(_, shared)| *shared != Shared::default()).collect()
    }

    /// Returns the settings that move the softirqs of a role's adapter to the CPU that the cell
    /// names: the affinity of the interrupts of all of the NIC's queues, since acknowledgements and
    /// transmit completions choose theirs by a hash. A device without interrupts gets RPS; on a
    /// link that bytepath makes, the agent sets that up with the link.
    fn interrupts(
        &self,
        cell: &Cell,
        role: Role,
        adapter: u32,
        own: &NicEnd,
    ) -> Result<Vec<Setting>, Fault> {
        let Some(cpu) = cell.placement.softirq(role).of_adapter(adapter) else {
            return Ok(Vec::new());
        };
        if cell.link.threaded_napi && cell.link.is_requested("threaded-napi") {
            return if self.given { Err(no_polling_thread(cpu)) } else { Ok(Vec::new()) };
        }
        let interrupts = own.interrupts();
        if let (true, true, Some(device)) = (interrupts.is_empty(), self.sets_link, &own.device) {
            return Ok(vec![receive_on(DeviceName::new(device)?, cpu)?]);
        }
        let at = |irq: &u32| Ok(Setting::IrqAffinity { irq: *irq, cpus: Cpus::new([cpu])? });
        interrupts.iter().map(at).collect()
    }
}

/// Returns the queues that a NIC of `role` gets from the settings of the study and then from these,
/// or `None` if neither names any.
fn given<'s>(
    nic: &Nic,
    of_study: Option<Receiving>,
    settings: impl Iterator<Item = (&'s Setting, Option<Role>)>,
    role: Role,
) -> Option<Receiving> {
    let before = of_study.unwrap_or_else(|| Receiving::of(nic));
    before.once_set(settings, role, &nic.device).or(of_study)
}

fn splits(setting: &Setting) -> bool {
    matches!(setting, Setting::Rings { rings, .. } if rings.tcp_data_split == Some(Split::On))
}

fn receives(cell: &Cell, role: Role) -> Result<bool, Fault> {
    Ok((workload::of(cell)?.halves)(role).contains(&Direction::Receive))
}

/// Adds the settings that turn header split of a NIC on or off, as the cell's link requests; if it
/// requests neither, as the study's other cells need it (`common`).
fn split_headers(
    cell: &Cell,
    role: Role,
    common: bool,
    wire: &FlowNic,
    settings: &mut Vec<Setting>,
) -> Result<(), Fault> {
    let split_already = settings.iter().any(splits);
    if !receives(cell, role)? {
        return Ok(());
    }
    match cell.link.hds.filter(|_| cell.link.is_requested("hds")) {
        Some(false) if split_already => Err(Fault::unsupported(
            "the path requires header split, and the cell's link has hds=off",
        )
        .remedy("leave hds at auto for this path, or compare paths with hds=on")),
        Some(false) => {
            let rings = Rings { tcp_data_split: Some(Split::Off), ..Rings::default() };
            settings.insert(0, Setting::Rings { device: DeviceName::new(wire.device)?, rings });
            Ok(())
        }
        None if !common => Ok(()),
        _ if split_already => Ok(()),
        _ => {
            settings.splice(0..0, path::header_split(wire)?);
            Ok(())
        }
    }
}

fn no_nic_to_split(device: Option<&str>) -> Fault {
    let device = device.unwrap_or("the device");
    Fault::unsupported(format!("hds=on: {device} is not a NIC that splits headers"))
        .remedy("leave hds at auto; `--testbed vm:nic=zcnic` has software NICs that can")
}

/// Returns the halves of a cell's paths that the actor of a role opens, each with its
/// configuration.
pub(super) fn halves(
    paths: &[&'static DataPath],
    cell: &Cell,
    role: Role,
) -> Result<Vec<(HalfPath, HalfConfig)>, Fault> {
    let workload = workload::of(cell)?;
    // Checked with the paths of both ends: the cell for one end may name only that end's.
    (workload.check)(cell)?;
    let cell = &path::cell_for_end(paths, cell, role);
    let protocol = (workload.protocol)(cell);
    if cell.link.descriptors().is_some() && protocol != Protocol::Frames {
        let text = format!("a tap does not carry {protocol}: its other end is descriptors");
        let remedy = "choose another --link, or --workload packets";
        return Err(Fault::usage(text).remedy(remedy));
    }
    let find = |role: Role| path::find(paths, &cell.half(role).path);
    if let (Some(tx), Some(rx)) = (find(Role::Sender), find(Role::Receiver)) {
        path::suits_workload(workload, tx).and_then(|()| path::suits_workload(workload, rx))?;
        let transport = path::transport(workload, cell, role, [tx, rx])?;
        (transport.check)(cell)?;
        if cell.link.adapters > 1 {
            path::crosses_adapters(workload, transport)?;
        }
    }
    let open = (workload.halves)(role).iter().map(|&direction| {
        let name = &cell.half(direction.role()).path;
        let half = find(direction.role()).and_then(|path| path.half(direction.role()));
        let lacks = || {
            let text = format!("path '{name}' has no {} half", direction.role());
            Fault::usage(text).remedy("'bytepath paths' lists the halves")
        };
        Ok((half.ok_or_else(lacks)?, (workload.job)(cell, role, direction)))
    });
    open.collect()
}

/// Returns the settings that a cell's link requires of `device` on the host of a role.
pub(super) fn settings(
    cell: &Cell,
    role: Role,
    device: &str,
    ipv6: bool,
) -> Result<Vec<Setting>, Fault> {
    let link = &cell.link;
    let device = || DeviceName::new(device);
    let feature = |name: &str, on: bool| {
        Ok(Setting::Feature { device: device()?, feature: Word::new(name)?, on })
    };
    let tso = if ipv6 { "tx-tcp6-segmentation" } else { "tx-tcp-segmentation" };
    let limits = PacketLimits {
        gso: link.gso_max.filter(|_| ipv6),
        gro: link.gro_max.filter(|_| ipv6),
        gso_ipv4: link.gso_max.filter(|_| !ipv6),
        gro_ipv4: link.gro_max.filter(|_| !ipv6),
    };
    let receives = role == Role::Receiver;
    let mut all = Vec::new();
    let mut put = |name: &str, setting: Result<Setting, Fault>| -> Result<(), Fault> {
        if link.is_requested(name) {
            all.push(setting?.checked()?);
        }
        Ok(())
    };
    put("mtu", device().map(|device| Setting::Mtu { device, bytes: link.mtu }))?;
    put("tso", feature(tso, link.tso))?;
    put("gro", feature(GRO, link.gro))?;
    put("hw-gro", feature(HW_GRO, link.hw_gro))?;
    if limits != PacketLimits::default() {
        let limits =
            || device().map(|device| Setting::PacketLimits { device, limits: limits.clone() });
        put(if link.gso_max.is_some() { "gso-max" } else { "gro-max" }, limits())?;
    }
    if link.qdisc != "none" {
        let discipline = Word::new(&link.qdisc);
        put(
            "qdisc",
            device().and_then(|device| Ok(Setting::Qdisc { device, discipline: discipline? })),
        )?;
    }
    if let Some(most) = link.wmem {
        let name = SysctlName::new("net.ipv4.tcp_wmem");
        // The minimum and initial size are the kernel's defaults (tcp(7)); only the maximum is the
        // link's.
        let value = format!("4096 16384 {most}");
        put("wmem", name.map(|name| Setting::Sysctl { name, value }))?;
    }
    if receives {
        let on = link.threaded_napi;
        put("threaded-napi", device().map(|device| Setting::ThreadedNapi { device, on }))?;
    }
    if let Some(cpu) = link.rps.filter(|_| receives) {
        put("rps", receive_on(device()?, cpu))?;
    }
    Ok(all)
}

/// Returns the setting (RPS) that hands packets of a device without interrupts to a CPU.
pub(super) fn receive_on(device: DeviceName, cpu: u32) -> Result<Setting, Fault> {
    Ok(Setting::Rps { device, queue: None, cpus: Cpus::new([cpu])? })
}

/// The polling threads of a device can be placed only by whoever makes its link.
pub(super) fn no_polling_thread(cpu: u32) -> Fault {
    let text = format!("softirq={cpu}: polling threads of a device of yours are not placed");
    Fault::unsupported(text).remedy("leave out threaded-napi: its interrupts are moved to that CPU")
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::queues::common_setup;
    use super::*;
    use bytepath_engine::path::OwnQueues;
    use bytepath_record::{CpuTurns, FlowRule, Half, OptionValue, Options, SoftirqCpu};
    use bytepath_spec::resolve;
    use std::net::SocketAddr;

    /// A receiver's NIC with eight queues.
    fn nics() -> Nics {
        one_nic(8, Vec::new())
    }

    /// A receiver's NIC `eth1` with this many queues and these interrupts.
    pub(in super::super) fn one_nic(queues: u32, interrupts: Vec<u32>) -> Nics {
        let nic = Nic { device: "eth1".into(), queues, unpaired: 0, interrupts };
        let end = |device: &str, nic, address: [u8; 4]| {
            vec![NicEnd { device: Some(device.into()), nic, address: address.into() }]
        };
        Nics {
            ends: [end("eth0", None, [10, 0, 0, 1]), end("eth1", Some(nic), [10, 0, 0, 2])],
            given: true,
            sets_link: true,
        }
    }

    /// A cell that receives by this path over this many queues of each NIC.
    pub(in super::super) fn cell_over(path: &str, queues: u64) -> Cell {
        let mut cell = cell(path);
        cell.rx.options.0.insert("queues".into(), OptionValue::Number(queues));
        cell
    }

    /// A cell that receives by this path.
    pub(in super::super) fn cell(path: &str) -> Cell {
        let rx = path::find(path::CATALOG, path).unwrap().half(Role::Receiver).unwrap();
        let options = resolve(path, rx.options, &[]).unwrap();
        let half = |path: &str, options| Half { path: path.into(), options };
        Cell::new(path, half("socket", Options::default()), half(path, options))
    }

    fn rules(port: Option<u16>) -> Vec<FlowRule> {
        let cell = cell("zcrx");
        let wanted = nics().wanted(path::CATALOG, &cell, &Common::default(), port).unwrap();
        let rules = wanted.into_iter().filter_map(|wanted| match wanted.setting {
            Setting::Flow { rule, .. } => Some(rule),
            _ => None,
        });
        rules.collect()
    }

    #[test]
    fn a_rule_takes_what_goes_to_the_receivers_port_and_no_ssh_connection() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let [from, ours, ssh] = ["10.0.0.1:21000", "10.0.0.2:20900", "10.0.0.2:22"].map(end);
        let [rule] = rules(Some(20_900)).try_into().unwrap();
        assert_eq!(
            (rule.queue, rule.selects(from, ours), rule.selects(from, ssh)),
            (7, true, false)
        );
        let [early] = rules(None).try_into().unwrap();
        assert!(early.selects(from, ssh), "before the port is known");
    }

    /// A receiver's NICs: `eth1` with eight queues and `eth2` with this many.
    pub(in super::super) fn two_nics(queues: u32) -> Nics {
        let mut nics = nics();
        let [sender, receiver] = &mut nics.ends;
        sender.push(NicEnd { address: [10, 0, 1, 1].into(), ..sender[0].clone() });
        let nic = |device: &str, queues, irq| {
            Some(Nic { device: device.into(), queues, unpaired: 0, interrupts: vec![irq] })
        };
        receiver[0].nic = nic("eth1", 8, 70);
        let (device, address) = (Some("eth2".into()), [10, 0, 1, 2].into());
        receiver.push(NicEnd { device, nic: nic("eth2", queues, 80), address });
        nics
    }

    /// The rules of a cell that receives by sockets, with one flow over each adapter.
    fn rules_over(nics: &Nics, adapters: u32, common: &Common) -> Vec<String> {
        let mut cell = cell("socket");
        (cell.link.adapters, cell.stream.flows) = (adapters, adapters);
        let wanted = nics.wanted(path::CATALOG, &cell, common, Some(20_900)).unwrap();
        let rules = wanted.iter().filter(|one| matches!(one.setting, Setting::Flow { .. }));
        rules.map(|one| one.setting.to_string()).collect()
    }

    /// The rule that steers all flows of a receiver's NIC to one queue.
    fn rule(device: &str, network: u32, queue: u32) -> String {
        let ends = format!("src=10.0.{network}.1 dst=10.0.{network}.2");
        format!("flow {device} {ends} dst-port=20900 queue={queue}")
    }

    /// The common setup of cells that can all run.
    pub(in super::super) fn common_of(nics: &Nics, cells: &[Cell]) -> Common {
        common_from(Common::default(), nics, cells)
    }

    fn common_from(given: Common, nics: &Nics, cells: &[Cell]) -> Common {
        let requested = |cell: &Cell, known: &Common, part| {
            Ok(nics.requested(path::CATALOG, cell, known, part))
        };
        common_setup(given, cells, requested).unwrap()
    }

    #[test]
    fn all_cells_meet_a_nic_with_the_queues_that_the_one_with_most_needs() {
        // One of its two queues is left for other traffic.
        let nics = two_nics(2);
        let cell_with = |path: &str, queues: Option<u64>| {
            let mut cell = cell(path);
            let option = queues.map(|count| ("queues".to_owned(), OptionValue::Number(count)));
            cell.rx.options.0.extend(option);
            (cell.link.adapters, cell.stream.flows) = (2, 6);
            cell
        };
        let cells = [("socket", None), ("zcrx", None), ("zcrx", Some(2)), ("devmem", Some(3))];
        let cells = cells.map(|(path, queues)| cell_with(path, queues));
        let settings = |cell: &Cell, common: &Common| -> Vec<String> {
            let wanted = nics.wanted(path::CATALOG, cell, common, Some(20_900)).unwrap();
            let all = wanted.iter().map(|wanted| wanted.setting.to_string());
            let is_shared = |text: &String| {
                ["channels eth2", "spread eth2", "flow eth2"]
                    .iter()
                    .any(|words| text.starts_with(words))
            };
            all.filter(is_shared).collect()
        };
        let common = common_of(&nics, &cells);
        for (cell, spread) in cells.iter().zip([3, 3, 2, 1]) {
            let all = settings(cell, &common);
            let expected =
                ["channels eth2 combined=4".to_owned(), format!("spread eth2 queues={spread}")];
            assert_eq!(all[..2], expected, "{}", cell.rx.path);
        }
        // A path without dedicated queues gets those of the first path that has some.
        assert_eq!(settings(&cells[0], &common), settings(&cells[1], &common));
        let two = [&cells[0], &cells[2]].map(Clone::clone);
        let common = common_of(&nics, &two);
        let [gets, asks] = two.each_ref().map(|cell| settings(cell, &common));
        assert_eq!((&gets, gets[0].as_str()), (&asks, "channels eth2 combined=3"));
    }

    /// The settings of a cell that concern the queues of `eth1`.
    fn queues_of(nics: &Nics, cell: &Cell, common: &Common) -> Result<Vec<String>, Fault> {
        let wanted = nics.wanted(path::CATALOG, cell, common, Some(20_900))?;
        let all = wanted.iter().map(|wanted| wanted.setting.to_string());
        let words = ["channels eth1", "spread eth1", "flow eth1", "irq", "rps"];
        Ok(all.filter(|text| words.iter().any(|words| text.starts_with(words))).collect())
    }

    #[test]
    fn queues_are_counted_by_the_number_that_a_cells_own_setting_gives() {
        let nics = one_nic(2, Vec::new());
        let set = |cell: &Cell, line: &str| {
            let mut cell = cell.clone();
            cell.stream.flows = 6;
            let settings = line.parse::<Setting>().ok().map(WantedSetting::from);
            cell.settings.extend(settings);
            cell
        };
        let paths = [cell("socket"), cell_over("zcrx", 3)];
        let [none, eight] = ["none", "channels eth1 combined=8"]
            .map(|line| paths.each_ref().map(|cell| set(cell, line)));
        // The order of the cells makes no difference.
        for cells in [[&none, &eight], [&eight, &none]] {
            let cells: Vec<Cell> = cells.into_iter().flatten().cloned().collect();
            let common = common_of(&nics, &cells);
            for (level, count, spread) in [(&none, 4, 1), (&eight, 8, 5)] {
                let [socket, zcrx] =
                    level.each_ref().map(|cell| queues_of(&nics, cell, &common).unwrap());
                let head = [
                    format!("channels eth1 combined={count}"),
                    format!("spread eth1 queues={spread}"),
                ];
                assert_eq!((&socket[..2], &socket), (&head[..], &zcrx));
                let of = |queue: u32| {
                    socket.iter().filter(|text| text.ends_with(&format!("queue={queue}"))).count()
                };
                assert_eq!([spread, spread + 1, spread + 2].map(of), [2, 2, 2], "{socket:?}");
            }
            // A cell whose setting gives too few queues for the others is not compared with them.
            for cell in &paths {
                let cell = set(cell, "channels eth1 combined=3");
                let why = queues_of(&nics, &cell, &common).unwrap_err();
                assert!(why.message.contains("'channels eth1' gives it 3 receive queues"), "{why}");
                assert!(why.remedy.unwrap().contains("set 4 or more"));
            }
            let of_sender =
                WantedSetting { host: Some(Role::Sender), ..eight[0].settings[0].clone() };
            let other_host = Cell { settings: vec![of_sender], ..none[0].clone() };
            let all = queues_of(&nics, &other_host, &common).unwrap();
            assert!(all.contains(&"channels eth1 combined=4".to_owned()), "{all:?}");
        }
    }

    #[test]
    fn queues_are_counted_by_the_number_that_the_studys_settings_will_have_given() {
        // A dry run sees the NIC before the setting is made.
        let nics = one_nic(2, Vec::new());
        let given = |line: &str, skipped: Option<&str>| {
            let wanted = WantedSetting::from(line.parse::<Setting>().unwrap());
            let skipped = skipped.map(str::to_owned);
            nics.queues_given(&[SettingRecord { skipped, ..SettingRecord::from(&wanted) }])
        };
        let cells = [cell("socket"), cell_over("zcrx", 3)];
        let all = |given: Common| {
            let common = common_from(given, &nics, &cells);
            cells.each_ref().map(|cell| queues_of(&nics, cell, &common))
        };
        for gets in all(given("channels eth1 combined=8", None)) {
            assert_eq!(gets.unwrap()[0], "spread eth1 queues=5", "it has eight by then");
        }
        let [socket, zcrx] = all(given("channels eth1 combined=3", None));
        assert_eq!(socket.unwrap(), [""; 0], "what cannot run asks for nothing");
        assert!(zcrx.unwrap_err().message.contains("gives it 3 receive queues"));
        for other in [
            given("channels eth1 combined=8", Some("not there")),
            given("channels eth2 combined=8", None),
            given("channels eth1 tx=8", None),
        ] {
            let [socket, _] = all(other);
            assert_eq!(socket.unwrap()[0], "channels eth1 combined=4");
        }
    }

    #[test]
    fn a_setting_of_one_kind_of_queues_leaves_those_of_the_other_to_the_nic() {
        let mut nics = one_nic(6, Vec::new());
        nics.ends[1][0].nic.as_mut().unwrap().unpaired = 2;
        let records = |lines: &[&str]| -> Vec<SettingRecord> {
            let record =
                |line: &&str| (&WantedSetting::from(line.parse::<Setting>().unwrap())).into();
            lines.iter().map(record).collect()
        };
        let all = |lines: &[&str]| {
            let given = nics.queues_given(&records(lines));
            given.get(&(Role::Receiver, 0)).and_then(|shared| shared.given).map(Receiving::all)
        };
        for (lines, count) in [
            (&["channels eth1 combined=8"][..], Some(10)),
            (&["channels eth1 rx=3"], Some(7)),
            (&["channels eth1 rx=0 combined=8"], Some(8)),
            (&["channels eth1 rx=1", "channels eth1 combined=2"], Some(3)),
            (&["channels eth1 tx=8"], None),
        ] {
            assert_eq!(all(lines), count, "{lines:?}");
        }
        // The cell's settings apply after the study's; the number that paths need is a total.
        let mut cell = cell_over("zcrx", 3);
        cell.stream.flows = 6;
        let of = |cell: &Cell, lines: &[&str]| {
            let common =
                common_from(nics.queues_given(&records(lines)), &nics, std::slice::from_ref(cell));
            queues_of(&nics, cell, &common).unwrap()
        };
        assert_eq!(of(&cell, &["channels eth1 rx=1"])[0], "spread eth1 queues=2");
        cell.settings = vec!["channels eth1 combined=8".parse::<Setting>().unwrap().into()];
        assert_eq!(of(&cell, &["channels eth1 rx=1"])[1], "spread eth1 queues=6");
        cell = Cell { settings: Vec::new(), ..cell_over("zcrx", 7) };
        cell.stream.flows = 7;
        let more = of(&cell, &[]);
        assert_eq!(more[..2], ["channels eth1 combined=6", "spread eth1 queues=1"], "{more:?}");
    }

    #[test]
    fn who_gave_a_nic_too_few_queues_is_told_to_give_it_more() {
        let nics = one_nic(4, Vec::new());
        let mut cell = cell("zcrx");
        cell.settings = vec!["channels eth1 combined=1".parse::<Setting>().unwrap().into()];
        let why = queues_of(&nics, &cell, &Common::default()).unwrap_err();
        assert!(why.message.contains("queue 0 of the 1 of eth1"), "{why}");
        assert!(why.remedy.unwrap().ends_with("or set more: channels eth1 combined=N"));
        cell.settings.clear();
        let why = queues_of(&one_nic(1, Vec::new()), &cell, &Common::default()).unwrap_err();
        assert!(why.remedy.unwrap().ends_with("or give it more: ethtool -L eth1 combined N"));
    }

    #[test]
    fn a_preview_names_what_shows_only_once_a_nic_has_its_queues() {
        let unseen = |nics: &Nics, queues: u64, placed: bool| {
            let mut cell = cell_over("zcrx", queues);
            cell.link.threaded_napi = false;
            cell.stream.flows = 4;
            if placed {
                cell.placement.softirq = SoftirqCpu::Cpu(1);
            }
            let none = Common::default();
            let wanted = nics.wanted(path::CATALOG, &cell, &none, None).unwrap();
            assert_eq!(changes_queues(&wanted[0]), queues == 3, "{wanted:?}");
            nics.unseen(&cell, &none, &wanted)
        };
        for interrupts in [vec![70, 71], Vec::new()] {
            let nics = one_nic(2, interrupts);
            let [text] = unseen(&nics, 3, true).try_into().unwrap();
            let words = ["softirqs of eth1", "the 4 queues", "those of the 2 that it has"];
            assert!(words.iter().all(|words| text.contains(words)), "{text}");
            assert_eq!(unseen(&nics, 3, false), [""; 0]);
            assert_eq!(unseen(&nics, 1, true), [""; 0], "it has enough");
        }
    }

    #[test]
    fn a_nic_that_a_path_does_not_cross_gets_queues_of_its_own_number() {
        let common = |nics: &Nics| common_of(nics, &[cell("zcrx")]);
        let differing = two_nics(4);
        let [one, two] = [1, 2].map(|number| rules_over(&differing, number, &common(&differing)));
        assert_eq!(one, [rule("eth1", 0, 7)]);
        assert_eq!(two, [rule("eth1", 0, 7), rule("eth2", 1, 3)]);
        let single = two_nics(1);
        let only = rules_over(&single, 2, &common(&single));
        assert_eq!(only, [rule("eth1", 0, 7)], "the other's only queue carries everything else");
    }

    #[test]
    fn flows_over_several_nics_have_a_queue_of_the_one_that_they_cross() {
        for path in ["zcrx", "devmem"] {
            let mut cell = cell(path);
            (cell.link.adapters, cell.stream.flows) = (2, 4);
            cell.rx.options.0.insert("queues".into(), OptionValue::Number(2));
            let none = Common::default();
            let wanted = two_nics(4).wanted(path::CATALOG, &cell, &none, Some(20_900)).unwrap();
            let rules = wanted.iter().filter_map(|wanted| match &wanted.setting {
                Setting::Flow { device, rule } => {
                    Some((device.as_str(), rule.source_port?, rule.queue))
                }
                _ => None,
            });
            let first = path::spread_ports(4).low;
            let expected = [("eth1", 0, 6), ("eth1", 2, 7), ("eth2", 1, 2), ("eth2", 3, 3)];
            let expected = expected.map(|(device, flow, queue)| (device, first + flow, queue));
            assert_eq!(rules.collect::<Vec<_>>(), expected, "{path}");
        }
    }

    #[test]
    fn each_adapter_of_a_cell_is_set_up_and_no_other() {
        let nics = two_nics(8);
        let wanted = |adapters| -> Vec<String> {
            let mut cell = cell("socket");
            (cell.link.adapters, cell.link.hds, cell.link.threaded_napi) =
                (adapters, Some(true), false);
            cell.stream.flows = 2;
            cell.placement.softirq = SoftirqCpu::Turns(CpuTurns::try_from(vec![0, 1]).unwrap());
            let wanted = nics.wanted(path::CATALOG, &cell, &Common::default(), None).unwrap();
            let here = wanted.iter().filter(|wanted| wanted.host == Some(Role::Receiver));
            here.map(|wanted| wanted.setting.to_string()).collect()
        };
        let (one, two) = (wanted(1), wanted(2));
        let has =
            |all: &[String], words: &str| all.iter().filter(|text| text.contains(words)).count();
        assert_eq!(
            [has(&one, "irq 70 0"), has(&one, "eth2"), has(&one, "irq 80")],
            [1, 0, 0],
            "{one:?}"
        );
        assert_eq!([has(&two, "irq 70 0"), has(&two, "irq 80 1")], [1, 1], "{two:?}");
        for words in
            ["mtu eth1", "mtu eth2", "rings eth1 tcp-data", "rings eth2 tcp-data", "tcp_wmem"]
        {
            assert_eq!(has(&two, words), 1, "{words}: {two:?}");
        }
        // Flows with a dedicated queue get one on each NIC, with rules for that NIC's addresses.
        let queues = Some((OwnQueues { first: 7, count: 1 }, 8));
        let shared = Shared { queues, ..Shared::default() };
        let common = [0, 1].map(|adapter| ((Role::Receiver, adapter), shared)).into();
        assert_eq!(rules_over(&nics, 2, &common), [rule("eth1", 0, 7), rule("eth2", 1, 7)]);
    }

    /// Whether headers are split for a cell, with the receiver's hardware GRO or without.
    fn is_split(path: &str, hw_gro: bool, common: &Common) -> bool {
        let mut cell = cell(path);
        cell.link.hw_gro = hw_gro;
        let wanted = nics().wanted(path::CATALOG, &cell, common, None).unwrap();
        wanted.iter().any(|wanted| splits(&wanted.setting))
    }

    #[test]
    fn what_splits_headers_only_where_it_merges_does_so_for_cells_that_have_both() {
        let requested = |hw_gro| {
            let mut cell = cell("zcrx");
            cell.link.hw_gro = hw_gro;
            let none = Common::default();
            nics().requested(path::CATALOG, &cell, &none, |whole| whole)[&(Role::Receiver, 0)]
        };
        assert_eq!(requested(false).splits, [true, true], "a NIC that can without can with it");
        let merging = requested(true);
        assert_eq!(merging.splits, [false, true]);
        let of = |shared| Common::from([((Role::Receiver, 0), shared)]);
        let common = of(merging);
        assert_eq!([false, true].map(|gro| is_split("socket", gro, &common)), [false, true]);
        let both = of(merging.and(requested(false)));
        assert_eq!([false, true].map(|gro| is_split("socket", gro, &both)), [true, true]);
        // A path's requirements apply to any NIC: the kernel decides what it refuses, not a list of
        // drivers.
        assert!(is_split("zcrx", false, &Common::default()));
    }
}
