//! Checks before the first trial what each host can run: by facts, by what its paths report, and
//! by actually trying links and preparations.

use super::guard::Guard;
use super::nics::{Common, Nics, common_setup, halves};
use super::plan::{Laboratory, Plan};
use super::preparation::{of_workload, sysctls};
use super::stream::connect;
use super::trial::deploy;
use super::{clocks, metering, power, preparation, reach};
use crate::survey_this_host;
use bytepath_engine::connection::limits;
use bytepath_engine::path::{self, DataPath, HalfPath, PagesTaken};
use bytepath_engine::workload::{self, HalfConfig};
use bytepath_host::testbed::Testbed;
use bytepath_meter::Meter;
use bytepath_record::wire::{MeasureCeiling, Survey};
use bytepath_record::{
    Cell, CellId, CopyCeiling, Facts, Fault, FaultKind, FlowRule, Kernel, KernelHosts,
    LinkSettings, NumaNode, Placement, Protocol, Role, SSH_CONNECTION, Setting, SettingRecord,
    SoftirqCpu, Stream, Support, WantedSetting, distinct, free_huge_pages, huge_pages, joined,
};
use bytepath_spec::usage;
use bytepath_sys::memory::HUGE_PAGE;
use std::net::SocketAddr;

/// Largest message and read of a probe, bytes: what is tried is the link
/// and the sockets, not the memory.
const PROBE_SIZE: u64 = 64 << 10;

/// Surveys both hosts of a testbed over the devices of each end, with a link of these settings; with
/// `meters` also what meters need.
pub(super) fn survey(
    laboratory: &Laboratory,
    cell: &Cell,
    meters: bool,
) -> Result<(Vec<Facts>, Vec<OtherDevice>), Fault> {
    let HostSurvey { facts, others, .. } = survey_host_pair(laboratory, cell, meters, false)?;
    Ok((facts, others))
}

/// Both hosts.
#[derive(Clone, Debug)]
pub(super) struct HostSurvey {
    /// Over the first device of each end.
    pub facts: Vec<Facts>,
    others: Vec<OtherDevice>,
    nics: Nics,
    /// Memory-copy bandwidth of the receiver, if it was requested.
    ceiling: Option<CopyCeiling>,
    /// Remarks for the report.
    pub remarks: Vec<String>,
}

/// A further device of an end, and what is known over it.
#[derive(Clone, Debug)]
pub(super) struct OtherDevice {
    pub role: Role,
    /// The number of the adapter, from 1 on.
    pub adapter: u32,
    pub device: String,
    pub facts: Facts,
}

/// Surveys this machine over the devices of each end: over the first, and over the others.
pub(super) fn survey_devices(
    devices: &[Vec<String>; 2],
    survey: impl Fn(&str) -> Facts,
) -> (Vec<Facts>, Vec<OtherDevice>) {
    let first = devices.iter().flat_map(|of_end| of_end.first());
    let first = first.map(|device| survey(device)).collect();
    let others = Role::ALL.into_iter().zip(devices).flat_map(|(role, of_end)| {
        let survey = &survey;
        (1..).zip(of_end.iter().skip(1)).map(move |(adapter, device)| {
            let facts = survey(device);
            OtherDevice { role, adapter, device: device.clone(), facts }
        })
    });
    (first, others.collect())
}

fn survey_host_pair(
    laboratory: &Laboratory,
    cell: &Cell,
    meters: bool,
    measure: bool,
) -> Result<HostSurvey, Fault> {
    let (mut remotes, _) = deploy(laboratory, None, &without_softirqs(cell))?;
    let route = reach::examine(&mut remotes)?;
    let mut remarks = route.remarks;
    remarks.extend(clocks::read(&mut remotes)?.iter().flat_map(clocks::remarks));
    let (mut all, mut others) = (Vec::new(), Vec::new());
    for (role, of_route) in Role::ALL.into_iter().zip(route.facts) {
        let device = remotes.device(role);
        let mut facts = *remotes.agents.call(role, Survey { device, meters })?;
        let deployment = &remotes.agents.hosts;
        let link = deployment.link_facts.iter();
        facts.settings.extend(link.map(|(name, value)| ((*name).to_owned(), value.clone())));
        facts.settings.extend(of_route);
        facts.booted = deployment.hosts[role as usize].booted().map(|time| time.as_secs_f64());
        all.push(facts);
        for (adapter, end) in (0..).zip(remotes.ends(role)).skip(1) {
            let Some(device) = end.device else { continue };
            let call = Survey { device: Some(device.clone()), meters: false };
            let facts = *remotes.agents.call(role, call)?;
            others.push(OtherDevice { role, adapter, device, facts });
        }
    }
    let nics = Nics::of(&mut remotes)?;
    let size = cell.stream.message_size.max(cell.stream.read_memory());
    let call = MeasureCeiling { cpu: cell.placement.receiver, size };
    let ceiling = match measure.then(|| remotes.agents.call(Role::Receiver, call)).transpose() {
        // Without memory for it the study goes on: it is a yardstick only.
        Err(fault) if fault.kind == FaultKind::System => {
            remarks.push(format!("how fast a core copies is not known: {fault}"));
            None
        }
        ceiling => ceiling?,
    };
    Ok(HostSurvey { facts: all, others, nics, ceiling, remarks })
}

/// The cell over as many NICs as any of these crosses, where a testbed makes them: they can be asked
/// about only while they are there.
fn with_all_nics(testbed: &dyn Testbed, cell: &Cell, cells: &[Cell]) -> Cell {
    let (mut cell, properties) = (cell.clone(), testbed.properties());
    if properties.nics_are_new {
        let most = cells.iter().map(|cell| cell.link.adapters).max();
        cell.link.adapters = most.unwrap_or(1).min(properties.adapters);
    }
    cell
}

/// A cell whose softirqs are wherever the kernel has them: who may not place them can still find
/// out what the hosts are.
fn without_softirqs(cell: &Cell) -> Cell {
    let (sender_softirq, softirq) = (SoftirqCpu::Link, SoftirqCpu::Link);
    Cell { placement: Placement { sender_softirq, softirq, ..cell.placement }, ..cell.clone() }
}

/// Why a cell cannot run here.
type Obstacle = Fault;

/// The obstacle that a fault is; the error is cancellation.
fn obstacle_of(fault: Fault) -> Result<Obstacle, Fault> {
    if fault.kind == FaultKind::Interrupted { Err(fault) } else { Ok(fault) }
}

/// The obstacle of a cell, if there is one. The error is cancellation.
type Outcome = Result<Option<Obstacle>, Fault>;

/// Why each cell of a plan cannot run, as its study finds it, but that nothing of a host is changed:
/// links that the testbed makes are made, and guests boot; settings are only looked at, and
/// `settings` are what those of the study come to. With `over`, this device of this machine is to be
/// the link of both ends. And what the NICs of all cells have in common. The error is why there would
/// be no study at all.
pub(super) fn obstacles(
    laboratory: &Laboratory,
    plan: &Plan,
    settings: Vec<SettingRecord>,
    over: Option<&str>,
) -> Result<(Vec<Option<Fault>>, Common), Fault> {
    let bare = |cell: &Cell| Cell { settings: Vec::new(), ..cell.clone() };
    let cells = &plan.cells;
    let baseline = cells.iter().find(|cell| cell.id == plan.baseline).map(bare);
    let baseline = baseline.ok_or_else(|| usage("there is nothing to run"))?;
    let (testbed, needed) = (laboratory.testbed, needed_meters(laboratory, plan));
    let devices = match over {
        Some(device) => Some([vec![device.to_owned()], vec![device.to_owned()]]),
        None => testbed.devices(),
    };
    let is_made = devices.is_none() && !testbed.properties().link_is_given;
    let mut surveyed = match devices {
        Some(devices) => {
            if over.is_none() {
                testbed.probe().refusal().map_or(Ok(()), Err)?;
            }
            let survey = |device: &str| survey_this_host(laboratory.paths, &needed, Some(device));
            let (facts, others) = survey_devices(&devices, survey);
            let nics = Nics::at(testbed, &devices)?;
            let hosts = HostSurvey { facts, others, nics, ceiling: None, remarks: Vec::new() };
            let kernels = distinct(cells.iter().map(|cell| cell.kernel.clone())).into_iter();
            kernels.map(|kernel| Surveyed { kernel, hosts: Ok(hosts.clone()) }).collect()
        }
        None => survey_hosts(laboratory, cells, &baseline, !needed.is_empty(), false)?.0,
    };
    let facts = facts_for_header(&surveyed).0;
    needed.into_iter().try_for_each(|meter| refuse_without(meter, &facts))?;
    let (_, requested) = metering::meters_for_header(&plan.meters)?;
    power::check(&requested, &facts, testbed.properties().hosts_apart)?;
    // Guests have pages of their own, which no setting of this machine reserves.
    if !testbed.properties().boots_kernels {
        surveyed.iter_mut().for_each(|one| one.reserve_pages(&settings));
    }
    let mut guard = Guard::idle(laboratory, settings)?;
    let mut feasibility = Feasibility::of(laboratory, surveyed, &baseline, plan.schedule.force);
    feasibility.means = if is_made { Means::Links } else { Means::Looks };
    guard.common = feasibility.common_nic_setup(&mut guard, cells)?;
    let found = cells.iter().map(|cell| feasibility.obstacle(&mut guard, cell));
    let found = found.collect::<Result<_, Fault>>()?;
    Ok((found, guard.common))
}

/// The meters of a study without which its trials fail.
pub(super) fn needed_meters(laboratory: &Laboratory, plan: &Plan) -> Vec<&'static Meter> {
    let is_requested = |meter: &&Meter| plan.meters.iter().any(|one| one.name == meter.name);
    let meters = laboratory.meters.iter().copied();
    meters.filter(|meter| meter.needed).filter(is_requested).collect()
}

/// Refuses hosts on which a meter does not work.
pub(super) fn refuse_without(meter: &Meter, facts: &[Facts]) -> Result<(), Fault> {
    let mut refusals = facts.iter().filter_map(|host| (meter.probe)(host).refusal());
    refusals.next().map_or(Ok(()), |refusal| {
        Err(refusal.context(format!("meter {} cannot run here", meter.name)))
    })
}

/// The fault of a study that needs this cell.
pub(super) fn cannot_run(cell: &CellId, obstacle: Fault) -> Fault {
    obstacle.context(format!("path {cell} cannot run here"))
}

/// What is set at the NICs, and under which kernel and link.
type PreparationKey = (Option<Kernel>, LinkSettings, Vec<WantedSetting>);

/// Determines the obstacles of cells. Links and congestion controls are
/// actually tried, each combination once, with the baseline's path, because the
/// result depends on devices, modules and privileges in ways that no fact shows.
pub(super) struct Feasibility<'r, 'a> {
    laboratory: &'r Laboratory<'a>,
    surveyed: Vec<Surveyed>,
    baseline: Cell,
    /// By the cell that was tried: one for all with the same kernel, link, softirqs and
    /// congestion control, and each that only its driver can judge.
    probed: Vec<(Cell, Option<Obstacle>)>,
    prepared: Vec<(PreparationKey, Option<Obstacle>)>,
    means: Means,
    /// Whether cells run that a probe of their hosts refuses.
    force: bool,
}

/// What is done to find an obstacle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// Links are set up and NICs prepared, and all is restored.
    Settings,
    /// Links that the testbed makes are set up, and what they are between goes with them.
    Links,
    /// Nothing is set up.
    Looks,
}

/// The hosts under one kernel, or why they cannot be surveyed.
#[derive(Clone, Debug)]
pub(super) struct Surveyed {
    pub kernel: Option<Kernel>,
    pub hosts: Result<HostSurvey, Obstacle>,
}

impl Surveyed {
    /// Enters the huge pages that are free once the settings of the study are made.
    fn reserve_pages(&mut self, settings: &[SettingRecord]) {
        let Ok(HostSurvey { facts, others, .. }) = &mut self.hosts else { return };
        let others = others.iter_mut().map(|other| (other.role, &mut other.facts));
        for (role, facts) in Role::ALL.into_iter().zip(facts).chain(others) {
            for record in settings.iter().filter(|record| record.skipped.is_none()) {
                if record.host.is_none_or(|host| host == role) {
                    enter_pages(facts, &record.setting);
                }
            }
        }
    }
}

/// Enters the huge pages that are free once a setting of a host is made, if it reserves any.
fn enter_pages(facts: &mut Facts, setting: &Setting) {
    match setting {
        Setting::HugePages { size, node, count } if *size == HUGE_PAGE as u64 => {
            let node = match node {
                Some(NumaNode::Of(device)) => match facts.number(&format!("nic.{device}.node")) {
                    None => return,
                    node => node,
                },
                Some(NumaNode::Number(node)) => Some(*node),
                None => None,
            };
            free_pages(facts, node, *count);
        }
        Setting::Sysctl { name, value } if name.as_str() == "vm.nr_hugepages" => {
            if let Ok(count) = value.parse() {
                free_pages(facts, None, count);
            }
        }
        _ => {}
    }
}

/// Enters how many huge pages are free once there are so many of a node, or of the machine.
fn free_pages(facts: &mut Facts, node: Option<u32>, count: u64) {
    // A machine of one node shows only its own.
    let node = node.filter(|node| facts.setting(&free_huge_pages(Some(*node))).is_some());
    let Some(before) = facts.number::<u64>(&huge_pages(node)) else { return };
    let (new, gone) = (count.saturating_sub(before), before.saturating_sub(count));
    // Those of a node are among the machine's, which the kernel takes and frees of each node in turn
    // (mm/hugetlb.c, `set_max_huge_pages`); which node is the first is not known before.
    let mut changes = vec![(None, new, gone)];
    match node {
        Some(_) => changes.push((node, new, gone)),
        None => {
            let nodes = nodes_with_pages(facts);
            let parts = nodes.len().max(1) as u64;
            let part = |node| (Some(node), new / parts, gone.div_ceil(parts));
            changes.extend(nodes.into_iter().map(part));
        }
    }
    for name in [huge_pages, free_huge_pages] {
        let mut most = u64::MAX;
        for (place, new, gone) in &changes {
            let Some(now) = facts.number::<u64>(&name(*place)) else { continue };
            let then = now.saturating_add(*new).saturating_sub(*gone).min(most);
            facts.settings.insert(name(*place), then.to_string());
            most = if place.is_none() { then } else { most };
        }
    }
}

/// The NUMA nodes of a host that show their huge pages.
fn nodes_with_pages(facts: &Facts) -> Vec<u32> {
    let all = facts.settings.keys().filter_map(|name| name.strip_prefix("numa.node"));
    all.filter_map(|name| name.strip_suffix(".hugepages.2M.free")?.parse().ok()).collect()
}

/// Surveys the hosts under every kernel that cells name, the baseline's first.
/// A kernel that does not come up is an obstacle of its cells, unless it is the
/// baseline's, without which there is nothing to compare. With `meters` also what those need is
/// tried under the baseline's.
pub(super) fn survey_hosts(
    laboratory: &Laboratory,
    cells: &[Cell],
    baseline: &Cell,
    meters: bool,
    measure: bool,
) -> Result<(Vec<Surveyed>, Option<CopyCeiling>), Fault> {
    let baseline = &with_all_nics(laboratory.testbed, baseline, cells);
    let hosts = survey_host_pair(laboratory, baseline, meters, measure)?;
    let ceiling = hosts.ceiling;
    let mut all = vec![Surveyed { kernel: baseline.kernel.clone(), hosts: Ok(hosts) }];
    for Cell { kernel, .. } in cells {
        if all.iter().any(|surveyed| surveyed.kernel == *kernel) {
            continue;
        }
        let cell = Cell { kernel: kernel.clone(), ..baseline.clone() };
        let hosts = match survey_host_pair(laboratory, &cell, false, false) {
            Err(fault) => Err(obstacle_of(fault)?),
            hosts => hosts,
        };
        all.push(Surveyed { kernel: kernel.clone(), hosts });
    }
    Ok((all, ceiling))
}

/// What a study's header stores: the baseline's facts, and those of every
/// kernel that has a name.
pub(super) fn facts_for_header(surveyed: &[Surveyed]) -> (Vec<Facts>, Vec<KernelHosts>) {
    let facts = |one: &Surveyed| one.hosts.as_ref().ok().map(|hosts| hosts.facts.clone());
    let named =
        |one: &Surveyed| Some(KernelHosts { kernel: one.kernel.clone()?, facts: facts(one)? });
    let baseline = surveyed.first().and_then(facts).unwrap_or_default();
    (baseline, surveyed.iter().filter_map(named).collect())
}

impl<'r, 'a> Feasibility<'r, 'a> {
    /// Of cells on hosts that have been surveyed.
    pub(super) fn of(
        laboratory: &'r Laboratory<'a>,
        surveyed: Vec<Surveyed>,
        baseline: &Cell,
        force: bool,
    ) -> Self {
        let (baseline, probed, prepared) = (baseline.clone(), Vec::new(), Vec::new());
        let means = Means::Settings;
        Feasibility { laboratory, surveyed, baseline, probed, prepared, means, force }
    }

    /// What those of these cells that can run require of the NICs their flows come by: all others get
    /// the same.
    pub(super) fn common_nic_setup(
        &mut self,
        guard: &mut Guard,
        cells: &[Cell],
    ) -> Result<Common, Fault> {
        common_setup(cells, |cell, known, part| {
            let Some(Ok(HostSurvey { nics, .. })) = self.hosts(cell) else {
                return Ok(Common::default());
            };
            let requested = nics.requested(self.laboratory.paths, cell, known, part);
            match requested.is_empty() || self.obstacle(guard, cell)?.is_none() {
                true => Ok(requested),
                false => Ok(Common::default()),
            }
        })
    }

    /// The hosts under the kernel of a cell.
    fn hosts(&self, cell: &Cell) -> Option<&Result<HostSurvey, Obstacle>> {
        let surveyed = self.surveyed.iter().find(|one| one.kernel == cell.kernel);
        surveyed.map(|one| &one.hosts)
    }

    /// The obstacle of a cell.
    pub(super) fn obstacle(&mut self, guard: &mut Guard, cell: &Cell) -> Outcome {
        let laboratory = self.laboratory;
        let facts = match self.hosts(cell) {
            Some(Err(obstacle)) => return Ok(Some(obstacle.clone())),
            Some(Ok(hosts)) => hosts.facts.as_slice(),
            None => &[],
        };
        let facts = with_settings(laboratory, facts, guard, cell);
        for role in Role::ALL {
            let refusal = probe(laboratory, cell, role, &facts, self.force).refusal();
            if refusal.is_some() {
                return Ok(refusal);
            }
        }
        if let Some(obstacle) = self.other_device(guard, cell, &facts) {
            return Ok(Some(obstacle));
        }
        if let Some(obstacle) = self.missing_pages(guard, cell, &facts) {
            return Ok(Some(obstacle));
        }
        if let Some(obstacle) = other_link(laboratory, cell) {
            return Ok(Some(obstacle));
        }
        if let Some(obstacle) = self.steered_connection(cell) {
            return Ok(Some(obstacle));
        }
        let wanted = match self.means {
            Means::Settings => return self.tried_obstacle(guard, cell),
            Means::Links => {
                let bare = Cell { settings: Vec::new(), ..cell.clone() };
                match self.tried_obstacle(guard, &bare)? {
                    None => Ok(cell.settings.clone()),
                    obstacle => return Ok(obstacle),
                }
            }
            Means::Looks => match self.hosts(cell) {
                Some(Ok(hosts)) => hosts.nics.wanted(laboratory.paths, cell, &guard.common, None),
                _ => Ok(Vec::new()),
            },
        };
        let looked_at = wanted.and_then(|wanted| guard.feasible(&wanted));
        looked_at.err().map(obstacle_of).transpose()
    }

    /// The further devices of both ends that a cell's flows cross, with the cell's settings.
    fn further_devices(&self, guard: &Guard, cell: &Cell, first: &[Facts]) -> Vec<OtherDevice> {
        let Some(Ok(HostSurvey { others, .. })) = self.hosts(cell) else { return Vec::new() };
        let crossed = others.iter().filter(|other| other.adapter < cell.link.adapters);
        let with_settings = |other: &OtherDevice| {
            let (mut both, role) = (first.to_vec(), other.role as usize);
            *both.get_mut(role)? = other.facts.clone();
            let facts = with_settings(self.laboratory, &both, guard, cell).swap_remove(role);
            Some(OtherDevice { facts, ..other.clone() })
        };
        crossed.filter_map(with_settings).collect()
    }

    /// Why a cell cannot run over the further devices of an end that its flows cross.
    fn other_device(&self, guard: &Guard, cell: &Cell, first: &[Facts]) -> Option<Obstacle> {
        let others = self.further_devices(guard, cell, first);
        others.into_iter().find_map(|OtherDevice { role, device, facts, .. }| {
            let mut both = first.to_vec();
            *both.get_mut(role as usize)? = facts;
            let refusal = probe(self.laboratory, cell, role, &both, self.force).refusal()?;
            Some(refusal.context(format!("over {device}")))
        })
    }

    /// The huge pages that are missing of those that a cell takes at both ends, over all devices that
    /// its flows cross.
    fn missing_pages(&self, guard: &Guard, cell: &Cell, first: &[Facts]) -> Option<Obstacle> {
        if self.force {
            return None;
        }
        let others = self.further_devices(guard, cell, first);
        let mut taken = Vec::new();
        for (role, of_host) in Role::ALL.into_iter().zip(first) {
            let halves = halves(self.laboratory.paths, cell, role).ok()?;
            for adapter in 0..cell.link.adapters {
                let is_it = |other: &&OtherDevice| (other.role, other.adapter) == (role, adapter);
                let facts = others.iter().find(is_it).map_or(of_host, |other| &other.facts);
                let pages = halves.iter().map(|(half, job)| (half.huge_pages)(job, facts, adapter));
                taken.extend(pages.map(|pages| PagesTaken { role, facts, pages }));
            }
        }
        path::check_huge_pages(&taken).refusal()
    }

    /// An ssh connection to a host that a rule would take along: what arrives there goes where no
    /// socket can read it. Rules of paths name the port that the receiver listens on, and no
    /// connection has that; which of several ports it is makes no difference.
    fn steered_connection(&self, cell: &Cell) -> Option<Obstacle> {
        let Some(Ok(HostSurvey { facts, nics, .. })) = self.hosts(cell) else { return None };
        let port = Some(path::STEERED_PORTS.low);
        let wanted = nics.wanted(self.laboratory.paths, cell, &Common::default(), port).ok()?;
        wanted.iter().find_map(|wanted| {
            let Setting::Flow { device, rule } = &wanted.setting else { return None };
            let connection = facts.get(wanted.host? as usize)?.setting(SSH_CONNECTION)?;
            steered(rule, connection).then(|| {
                let text = format!(
                    "the rule that steers flows to queue {} of {device} would take the ssh connection \
                     {connection} along, and break it",
                    rule.queue
                );
                Fault::unsupported(text)
                    .remedy("reach the host by another address than that of the data")
            })
        })
    }

    /// The obstacle that shows when a link is set up and its NICs are prepared. A queue of a card
    /// is asked for once the flows are elsewhere: only the driver knows whether there is one.
    fn tried_obstacle(&mut self, guard: &mut Guard, cell: &Cell) -> Outcome {
        match self.link_obstacle(guard, cell)? {
            None if opens_in_driver(self.laboratory, cell)? || self.takes_queue(cell) => {
                let attempt = |cell: &Cell| attempt(self.laboratory, guard, cell, true);
                remembered(&mut self.probed, cell.clone(), attempt)
            }
            None => self.preparation_obstacle(guard, cell),
            obstacle => Ok(obstacle),
        }
    }

    /// Whether a path of a cell takes a receive queue of a card that was there before.
    fn takes_queue(&self, cell: &Cell) -> bool {
        let Some(Ok(HostSurvey { nics, .. })) = self.hosts(cell) else { return false };
        let is_new = self.laboratory.testbed.properties().nics_are_new;
        let (paths, none) = (self.laboratory.paths, Common::default());
        let mut requested = nics.requested(paths, cell, &none, |whole| whole).into_values();
        !is_new && requested.any(|shared| shared.has_queues())
    }

    /// Why the link of a cell cannot be set up or connected over, by a small stream of the
    /// baseline's path.
    fn link_obstacle(&mut self, guard: &mut Guard, cell: &Cell) -> Outcome {
        let [sender_softirq, softirq] = Role::ALL.map(|role| cell.placement.softirq(role));
        let stream = &self.baseline.stream;
        let small = Cell {
            kernel: cell.kernel.clone(),
            link: cell.link.clone(),
            placement: Placement { sender_softirq, softirq, ..self.baseline.placement },
            stream: Stream {
                flows: cell.link.adapters,
                message_size: stream.message_size.min(PROBE_SIZE),
                read_size: stream.read_size.min(PROBE_SIZE),
                read_memory: None,
                congestion: cell.stream.congestion.clone(),
                ..stream.clone()
            },
            ..self.baseline.clone()
        };
        let attempt = |small: &Cell| attempt(self.laboratory, guard, small, true);
        remembered(&mut self.probed, small, attempt)
    }

    /// Why the NICs cannot be prepared for a cell: what its paths require of
    /// them is set and restored once, because only the driver knows.
    fn preparation_obstacle(&mut self, guard: &mut Guard, cell: &Cell) -> Outcome {
        let Some(Ok(HostSurvey { nics, .. })) = self.hosts(cell) else { return Ok(None) };
        let wanted = match nics.wanted(self.laboratory.paths, cell, &guard.common, None) {
            Ok(wanted) if wanted.is_empty() => return Ok(None),
            Ok(wanted) => wanted,
            Err(fault) => return obstacle_of(fault).map(Some),
        };
        let key = (cell.kernel.clone(), cell.link.clone(), wanted);
        remembered(&mut self.prepared, key, |_| attempt(self.laboratory, guard, cell, false))
    }
}

/// Whether a rule selects a connection: `CLIENT PORT SERVER PORT`, of which it sees what the client
/// sends.
fn steered(rule: &FlowRule, connection: &str) -> bool {
    let words: Vec<&str> = connection.split_whitespace().collect();
    let end = |at: usize| {
        let (address, port) = (words.get(at)?.parse().ok()?, words.get(at + 1)?.parse().ok()?);
        Some(SocketAddr::new(address, port))
    };
    end(0).zip(end(2)).is_some_and(|(client, server)| rule.selects(client, server))
}

/// What came of an attempt like this one before, or comes of it now.
fn remembered<K: PartialEq>(
    known: &mut Vec<(K, Option<Obstacle>)>,
    key: K,
    attempt: impl FnOnce(&K) -> Outcome,
) -> Outcome {
    if let Some((_, obstacle)) = known.iter().find(|(other, _)| *other == key) {
        return Ok(obstacle.clone());
    }
    let obstacle = attempt(&key)?;
    known.push((key, obstacle.clone()));
    Ok(obstacle)
}

/// The facts of the hosts with the kernel parameters that the study and a cell set there, and the
/// cell's workload where the link is not given; and with the huge pages that the cell reserves.
fn with_settings(
    laboratory: &Laboratory,
    facts: &[Facts],
    guard: &Guard,
    cell: &Cell,
) -> Vec<Facts> {
    let properties = laboratory.testbed.properties();
    let given = properties.link_is_given;
    let mut all = facts.to_vec();
    for (role, facts) in Role::ALL.into_iter().zip(&mut all) {
        let of_workload = of_workload(cell, role).ok().filter(|_| !given).unwrap_or_default();
        let of_workload = of_workload.into_iter().map(|(name, value)| (name.to_string(), value));
        facts.settings.extend(of_workload);
        let sysctls = sysctls(guard, cell, role);
        facts.settings.extend(sysctls.map(|(name, value)| (name.to_string(), value.clone())));
        let of_host = |wanted: &&WantedSetting| wanted.host.is_none_or(|host| host == role);
        // Guests have pages of their own, which no setting of this machine reserves.
        let of_cell = cell.settings.iter().filter(|_| !properties.boots_kernels);
        of_cell.filter(of_host).for_each(|wanted| enter_pages(facts, &wanted.setting));
    }
    all
}

/// Whether only the driver of a NIC knows if the paths of a cell can be opened: it takes programs
/// and sockets of XDP, or not.
fn opens_in_driver(laboratory: &Laboratory, cell: &Cell) -> Result<bool, Fault> {
    let frames = (workload::of(cell)?.protocol)(cell) == Protocol::Frames;
    Ok(frames && laboratory.testbed.properties().has_cable && cell.link.descriptors().is_none())
}

/// Sets up the link of a cell and prepares its NICs, and connects over it if requested.
fn attempt(laboratory: &Laboratory, guard: &mut Guard, cell: &Cell, connects: bool) -> Outcome {
    let attempt = deploy(laboratory, None, cell).and_then(|(mut remotes, _)| {
        let (_, listening) = preparation::prepare(laboratory, guard, &mut remotes, cell)?;
        if connects { connect(&mut remotes, cell, listening) } else { Ok(()) }
    });
    guard.undo_prepared()?;
    attempt.err().map(obstacle_of).transpose()
}

/// A link that already exists is not created from a preset, and no other link can be left as it is.
fn other_link(laboratory: &Laboratory, cell: &Cell) -> Option<Obstacle> {
    let (testbed, preset) = (laboratory.testbed, &cell.link.preset);
    let properties = testbed.properties();
    if cell.link.descriptors().is_some() && !properties.holds_taps {
        let fault = usage(format!("testbed {} has no tap between its hosts", testbed.name()));
        return Some(fault.remedy("choose --testbed netns, or vm with one guest and no NICs"));
    }
    if cell.link.adapters > properties.adapters {
        let (name, wanted, most) = (testbed.name(), cell.link.adapters, properties.adapters);
        let has = if most == 1 { "one adapter" } else { &format!("{most} adapters") };
        let text = format!("testbed {name} has {has} at each end, not {wanted}");
        let remedy = "choose --testbed netns, vm or vm:nic=zcnic, name more devices of the testbed ports \
                      (sender=eth1+eth2,receiver=eth3+eth4) or hosts (sender-device=eth1+eth2, \
                      receiver-device=eth1+eth2), or leave out adapters";
        return Some(usage(text).remedy(remedy));
    }
    if cell.link.tap.is_some_and(|tap| tap.guest) && !properties.has_guest_tap {
        let text = format!("testbed {} has no guest behind a tap of the sender's", testbed.name());
        return Some(usage(text).remedy("choose --testbed vm:host=sender, or --link tap"));
    }
    let given = properties.link_is_given;
    let (verb, usual) = if given { ("takes", "given") } else { ("makes", "wire") };
    (given != cell.link.asked.is_some()).then(|| {
        usage(format!("testbed {} {verb} its link, which is not '{preset}'", testbed.name()))
            .remedy(format!("choose only what is to be set, such as --link {usual}:mtu=4148"))
    })
}

/// A vhost worker is placed only where the path has one.
fn no_worker(cell: &Cell) -> Option<Obstacle> {
    let of_guest = cell.link.tap.is_some_and(|tap| tap.vhost);
    let has_worker = of_guest || path::has_vhost_worker(&cell.rx.path);
    let vhost = cell.placement.vhost.filter(|_| !has_worker)?;
    let text = format!("vhost={vhost}: no path of this cell has a vhost thread to place");
    let remedy =
        "leave out vhost, or receive by the path vhost, or behind --link guest-tap:vhost=on";
    Some(Fault::unsupported(text).remedy(remedy))
}

fn probe(
    laboratory: &Laboratory,
    cell: &Cell,
    role: Role,
    facts: &[Facts],
    force: bool,
) -> Support {
    let Some(facts) = facts.get(role as usize) else {
        return Support::no("there are no facts about its host", "report this as a bug");
    };
    if let Some(obstacle) = no_worker(cell) {
        return obstacle.into();
    }
    let mut named = cell.placement.named_at(role);
    if let Some((part, cpu)) = named.find(|(_, cpu)| !facts.cpus.contains(cpu)) {
        return Support::no(
            format!("the {part}'s CPU {cpu} does not exist or may not be used"),
            format!("this process may use {}", joined(&facts.cpus, ", ")),
        );
    }
    match force {
        true => halves(laboratory.paths, cell, role).map_or_else(Support::from, |_| Support::Yes),
        false => check(laboratory.paths, cell, role, facts),
    }
}

/// Whether the halves that the actor of a role opens can do their jobs on this host.
pub fn check(paths: &[&'static DataPath], cell: &Cell, role: Role, facts: &Facts) -> Support {
    let supports = |halves: Vec<(HalfPath, HalfConfig)>| {
        let all = halves.iter().map(|(half, job)| (half.check)(job, facts));
        all.fold(Support::Yes, Support::and)
            .and(path::encrypts(cell, facts))
            .and(connections(cell, role, facts))
    };
    halves(paths, cell, role).map_or_else(Support::from, supports)
}

/// Whether a host can have the connections of a cell.
fn connections(cell: &Cell, role: Role, facts: &Facts) -> Support {
    let Ok(workload) = workload::of(cell) else { return Support::Yes };
    let open = limits::check(cell, workload.most_open(cell, role), role, facts);
    let open = match cell.workload.options.flag(workload::FAST_OPEN) {
        true => open.and(limits::check_fast_open(role, facts)),
        false => open,
    };
    match workload.reconnects && role == Role::Sender {
        true => open.and(limits::check_reconnecting(facts)),
        false => open,
    }
}

#[cfg(test)]
mod tests {
    use super::super::deployment::Deployment;
    use super::super::nics;
    use super::*;
    use bytepath_record::{Attempt, DeviceName, LINK_NODE, Outcome};
    use bytepath_sys::Roots;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_cell_is_refused_if_one_of_its_devices_cannot() {
        let deployment = Deployment::parse("netns").unwrap();
        let stop = AtomicBool::new(false);
        let laboratory = deployment.laboratory(&stop).unwrap();
        let devices = ["eth1", "eth2"].map(str::to_owned).to_vec();
        let (facts, others) = survey_devices(&[devices.clone(), devices], |device| {
            let outcome = match device {
                "eth1" => Outcome::Works(String::new()),
                _ => Outcome::Missing("it is made up".into()),
            };
            let attempts = vec![Attempt { name: "memfd".into(), outcome }];
            Facts { attempts, ..Facts::default() }
        });
        assert_eq!((facts.len(), others.len()), (2, 2));
        let nics = Nics::at(laboratory.testbed, &Default::default()).unwrap();
        let hosts = HostSurvey { facts, others, nics, ceiling: None, remarks: Vec::new() };
        let sends = cell_of("sendfile");
        let guard = Guard::idle(&laboratory, Vec::new()).unwrap();
        let surveyed = vec![Surveyed { kernel: None, hosts: Ok(hosts.clone()) }];
        let feasibility = Feasibility::of(&laboratory, surveyed, &sends, false);
        let refused = |adapters: u32| {
            let mut cell = sends.clone();
            (cell.link.adapters, cell.stream.flows) = (adapters, adapters);
            feasibility.other_device(&guard, &cell, &hosts.facts)
        };
        assert_eq!(refused(1), None, "no flow crosses the other one");
        let why = refused(2).unwrap().message;
        assert!(why.starts_with("over eth2: ") && why.contains("it is made up"), "{why}");
    }

    #[test]
    fn hosts_are_surveyed_over_all_nics_that_a_testbed_makes_for_any_cell() {
        let surveyed = |testbed: &str, most: u32| {
            let deployment = Deployment::parse(testbed).unwrap();
            let stop = AtomicBool::new(false);
            let laboratory = deployment.laboratory(&stop).unwrap();
            let (baseline, mut other) = (cell_of("socket"), cell_of("socket"));
            other.link.adapters = most;
            with_all_nics(laboratory.testbed, &baseline, &[baseline.clone(), other]).link.adapters
        };
        assert_eq!(surveyed("vm:nic=zcnic", 4), 4);
        assert_eq!(
            surveyed("vm:nic=igb", 4),
            1,
            "more is an obstacle of the cell, not of the study"
        );
        assert_eq!(surveyed("netns", 4), 1, "a veth pair has nothing to ask about");
    }

    #[test]
    fn a_rule_that_takes_an_ssh_connection_by_a_further_device_is_refused() {
        let deployment = Deployment::parse("netns").unwrap();
        let stop = AtomicBool::new(false);
        let laboratory = deployment.laboratory(&stop).unwrap();
        let mut facts = vec![Facts::default(); 2];
        let connection = "10.0.1.1 40000 10.0.1.2 22";
        facts[1].settings.insert(SSH_CONNECTION.into(), connection.into());
        let (nics, others, remarks) = (nics::tests::two_nics(8), Vec::new(), Vec::new());
        let hosts = Ok(HostSurvey { facts, others, nics, ceiling: None, remarks });
        let mut cell = nics::tests::cell("zcrx");
        (cell.link.adapters, cell.stream.flows) = (2, 2);
        let surveyed = vec![Surveyed { kernel: None, hosts }];
        let feasibility = Feasibility::of(&laboratory, surveyed, &cell, false);
        assert_eq!(feasibility.steered_connection(&cell), None, "rules of paths name a port");
        let rule = FlowRule { destination: Some([10, 0, 1, 2].into()), ..FlowRule::default() };
        let setting = Setting::Flow { device: DeviceName::new("eth2").unwrap(), rule };
        cell.settings = vec![WantedSetting { host: Some(Role::Receiver), ..setting.into() }];
        let why = feasibility.steered_connection(&cell).unwrap().message;
        assert!(why.contains("of eth2 would take the ssh connection 10.0.1.1 40000"), "{why}");
    }

    /// A cell of this pair, with the placement left to the scheduler.
    fn cell_of(pair: &str) -> Cell {
        let cores = bytepath_spec::parse_cores("none", [0]).unwrap();
        let pairs = [pair.to_owned()];
        let ask = bytepath_spec::CellRequest::of(&pairs, &cores);
        let spec = crate::path_spec(path::CATALOG, path::PAIRS);
        bytepath_spec::cells(&ask, &spec).unwrap().0.swap_remove(0)
    }

    #[test]
    fn pages_that_a_setting_will_reserve_are_free() {
        let mut facts = Facts::default();
        free_pages(&mut facts, None, 128);
        assert_eq!(facts.setting(&free_huge_pages(None)), None, "a host that shows none");
        facts.settings.insert(huge_pages(None), "20".into());
        facts.settings.insert(free_huge_pages(None), "5".into());
        free_pages(&mut facts, None, 128);
        assert_eq!(facts.number(&free_huge_pages(None)), Some(113), "15 are taken");
        let mut of_one_node = facts.clone();
        free_pages(&mut of_one_node, Some(0), 28);
        assert_eq!(of_one_node.number(&free_huge_pages(None)), Some(13), "its node is the machine");
        for (node, all, free) in [(0, "118", "105"), (1, "10", "8")] {
            facts.settings.insert(huge_pages(Some(node)), all.into());
            facts.settings.insert(free_huge_pages(Some(node)), free.into());
        }
        let record = |line: &str, skipped: Option<&str>| {
            let wanted = WantedSetting::from(line.parse::<Setting>().unwrap());
            SettingRecord { skipped: skipped.map(str::to_owned), ..SettingRecord::from(&wanted) }
        };
        let surveyed = |records: &[SettingRecord]| {
            let facts = vec![facts.clone(), facts.clone()];
            let bed = Deployment::parse("netns").unwrap();
            let nics = Nics::at(bed.testbed(), &Default::default()).unwrap();
            let hosts =
                HostSurvey { facts, others: Vec::new(), nics, ceiling: None, remarks: Vec::new() };
            let mut one = Surveyed { kernel: None, hosts: Ok(hosts) };
            one.reserve_pages(records);
            let facts = one.hosts.unwrap().facts.remove(0);
            [None, Some(1)].map(|node| facts.number::<u64>(&free_huge_pages(node)).unwrap())
        };
        let of_node = record("hugepages 2M node=1 256", None);
        assert_eq!(surveyed(&[of_node]), [359, 254], "two of it are taken, and the rest is new");
        let of_machine = record("hugepages 2M 192", None);
        assert_eq!(surveyed(&[of_machine]), [177, 40], "half of those that are new");
        let fewer = record("hugepages 2M 64", None);
        assert_eq!(surveyed(&[fewer]), [49, 0], "each loses some in turn");
        let without = record("hugepages 2M node=eth1 256", Some("eth1 reports no NUMA node"));
        assert_eq!(surveyed(&[without]), [113, 8]);
    }

    #[test]
    fn pages_that_a_cell_will_reserve_are_free_for_it() {
        let deployment = Deployment::parse("netns").unwrap();
        let stop = AtomicBool::new(false);
        let laboratory = deployment.laboratory(&stop).unwrap();
        let guard = Guard::idle(&laboratory, Vec::new()).unwrap();
        let names = [
            huge_pages(None),
            free_huge_pages(None),
            huge_pages(Some(1)),
            free_huge_pages(Some(1)),
        ];
        let mut facts = Facts::default();
        facts.settings.extend(names.map(|name| (name, "0".to_owned())));
        facts.settings.insert("nic.eth1.node".into(), "1".into());
        for (line, free) in [
            ("hugepages 2M 64", [64, 64]),
            ("hugepages 2M node=1 64", [64, 64]),
            ("hugepages 2M node=eth1 64", [64, 64]),
            ("hugepages 2M node=eth2 64", [0, 0]),
            ("hugepages 1G 64", [0, 0]),
            ("sysctl vm.nr_hugepages=64", [64, 64]),
        ] {
            let mut cell = cell_of("sendfile");
            let wanted = WantedSetting::from(line.parse::<Setting>().unwrap());
            cell.settings = vec![WantedSetting { host: Some(Role::Receiver), ..wanted }];
            let all = with_settings(&laboratory, &[facts.clone(), facts.clone()], &guard, &cell);
            let free_at = |role: Role| {
                let facts = &all[role as usize];
                [None, Some(1)].map(|node| facts.number::<u64>(&free_huge_pages(node)).unwrap())
            };
            assert_eq!(free_at(Role::Receiver), free, "{line}");
            assert_eq!(free_at(Role::Sender), [0, 0], "{line}: of the other host");
        }
    }

    /// What a machine shows, by its `/sys`: so many huge pages of each of two NUMA nodes, all free,
    /// and these NICs on these nodes.
    fn recorded(pages: [u64; 2], nics: &[(&str, u32)]) -> Facts {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: String, text: String| {
            let file = dir.path().join("sys").join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let reserve = |folder: &str, count: u64| {
            for name in ["nr_hugepages", "free_hugepages"] {
                write(format!("{folder}/hugepages-2048kB/{name}"), format!("{count}\n"));
            }
        };
        write("devices/system/node/online".into(), "0-1\n".into());
        reserve("kernel/mm/hugepages", pages.iter().sum());
        for (node, count) in pages.into_iter().enumerate() {
            write(format!("devices/system/node/node{node}/cpulist"), format!("{node}\n"));
            reserve(&format!("devices/system/node/node{node}/hugepages"), count);
        }
        for (nic, node) in nics {
            write(format!("class/net/{nic}/device/numa_node"), format!("{node}\n"));
        }
        bytepath_host::survey(&Roots::recorded(dir.path()))
    }

    /// Why the huge pages are missing of a cell that receives by `zcrx` and sends by `devmem`, 64 MiB
    /// each over each adapter, on a machine with these NICs: of these names are those of the ends.
    fn missing(machine: &Facts, ends: [&[&str]; 2], settings: &[SettingRecord]) -> Option<String> {
        let deployment = Deployment::parse("netns").unwrap();
        let stop = AtomicBool::new(false);
        let laboratory = deployment.laboratory(&stop).unwrap();
        let over = |device: &str| {
            let mut facts = machine.clone();
            let node = machine.settings[&format!("nic.{device}.node")].clone();
            facts.settings.insert(LINK_NODE.into(), node);
            facts
        };
        let devices = ends.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let (facts, others) = survey_devices(&devices, over);
        let nics = Nics::at(laboratory.testbed, &Default::default()).unwrap();
        let hosts = HostSurvey { facts, others, nics, ceiling: None, remarks: Vec::new() };
        let mut surveyed = Surveyed { kernel: None, hosts: Ok(hosts) };
        surveyed.reserve_pages(settings);
        let facts = surveyed.hosts.as_ref().unwrap().facts.clone();
        let mut cell = cell_of("devmem:memory=udmabuf-huge+zcrx:memory=huge");
        let adapters = ends[0].len() as u32;
        (cell.link.adapters, cell.stream.flows) = (adapters, adapters);
        cell.stream.message_size = 64 << 20;
        let guard = Guard::idle(&laboratory, Vec::new()).unwrap();
        let feasibility = Feasibility::of(&laboratory, vec![surveyed], &cell, false);
        feasibility.missing_pages(&guard, &cell, &facts).map(|obstacle| obstacle.to_string())
    }

    #[test]
    fn both_ends_and_all_devices_of_a_node_need_huge_pages_of_it() {
        let nics = [("eth1", 1), ("eth2", 1), ("eth3", 0), ("eth4", 0)];
        let with = |pages, ends| missing(&recorded(pages, &nics), ends, &[]);
        // One node serves both ends.
        assert_eq!(with([0, 64], [&["eth1"], &["eth2"]]), None);
        let why = with([64, 63], [&["eth1"], &["eth2"]]).unwrap();
        let words =
            "the memory of both ends takes 32 + 32 huge pages of 2 MiB of NUMA node 1, and 63";
        assert!(why.contains(words) && why.contains("hugepages 2M node=1 64"), "{why}");
        assert_eq!(with([32, 32], [&["eth1"], &["eth3"]]), None, "each has a node of its own");
        let why = with([31, 96], [&["eth1"], &["eth3"]]).unwrap();
        assert!(
            why.contains("the receiver's memory takes 32 huge pages of 2 MiB of NUMA node 0"),
            "{why}"
        );
        // Two devices of one end are on one node.
        assert_eq!(with([64, 64], [&["eth1", "eth2"], &["eth3", "eth4"]]), None);
        let why = with([64, 63], [&["eth1", "eth2"], &["eth3", "eth4"]]).unwrap();
        assert!(why.contains("the sender's memory takes 32 + 32 huge pages"), "{why}");
    }

    #[test]
    fn a_dry_run_counts_on_each_nodes_part_of_the_pages_that_the_machine_will_reserve() {
        let machine = recorded([0, 0], &[("eth1", 1), ("eth2", 1)]);
        let with = |lines: &[&str]| {
            let record = |line: &&str| {
                SettingRecord::from(&WantedSetting::from(line.parse::<Setting>().unwrap()))
            };
            let records: Vec<SettingRecord> = lines.iter().map(record).collect();
            missing(&machine, [&["eth1"], &["eth2"]], &records)
        };
        assert!(with(&["hugepages 2M 64"]).unwrap().contains("of NUMA node 1, and 32 are free"));
        assert_eq!(with(&["hugepages 2M 128"]), None);
        assert_eq!(with(&["hugepages 2M node=eth1 64"]), None);
        assert!(with(&["hugepages 2M node=0 128"]).unwrap().contains("and 0 are free"));
        assert_eq!(with(&["hugepages 2M 2", "hugepages 2M node=eth2 64"]), None);
    }

    #[test]
    fn a_rule_without_a_port_takes_an_ssh_connection_between_the_same_addresses_along() {
        let rule = FlowRule {
            source: Some([10, 0, 0, 1].into()),
            destination: Some([10, 0, 0, 2].into()),
            queue: 7,
            ..FlowRule::default()
        };
        assert!(steered(&rule, "10.0.0.1 40000 10.0.0.2 22"));
        for other in [
            "192.0.2.9 40000 10.0.0.2 22",
            "10.0.0.1 40000 192.0.2.2 22",
            "",
            "10.0.0.1 40000",
            "x",
        ] {
            assert!(!steered(&rule, other), "{other}");
        }
        let of_port = FlowRule { destination_port: Some(5201), ..rule.clone() };
        assert!(!steered(&of_port, "10.0.0.1 40000 10.0.0.2 22"));
        let v6 = FlowRule { source: None, destination: None, ipv6: true, ..rule };
        assert!(steered(&v6, "fd00::1 40000 fd00::2 22"));
        assert!(!steered(&v6, "10.0.0.1 40000 10.0.0.2 22"));
    }
}
