//! Checks before the first trial what each host can run, from its facts, from what its paths
//! report, and by trying out links and preparations.

use super::gpus::{self, UsedGpu};
use super::guard::Guard;
use super::nics::{Nics, halves};
use super::plan::{Laboratory, Plan};
use super::preparation::{of_workload, sysctls};
use super::queues::{Common, changes_queues, common_setup};
use super::stream::connect;
use super::trial::deploy;
use super::{clocks, huge_pages, metering, power, preparation, reach};
use crate::survey_this_host;
use bytepath_engine::connection::limits;
use bytepath_engine::path::{self, DataPath, HalfPath};
use bytepath_engine::workload::{self, HalfConfig};
use bytepath_host::testbed::Testbed;
use bytepath_meter::Meter;
use bytepath_record::wire::{MeasureCeiling, Survey};
use bytepath_record::{
    Cell, CellId, CopyCeiling, Facts, Fault, FaultKind, FlowRule, Kernel, KernelHosts,
    LinkSettings, Placement, Protocol, Role, SSH_CONNECTION, Setting, SettingRecord, SoftirqCpu,
    Stream, Support, WantedSetting, distinct, joined,
};
use bytepath_spec::usage;
use std::net::SocketAddr;

/// Largest message and read of a probe, bytes: a probe tests the link and the sockets, not the
/// memory.
const PROBE_SIZE: u64 = 64 << 10;

/// Surveys both hosts of a testbed over the devices of each end, with the link of `cell`; with
/// `meters` also what meters need.
pub(super) fn survey(
    laboratory: &Laboratory,
    cell: &Cell,
    meters: bool,
) -> Result<(Vec<Facts>, Vec<OtherDevice>), Fault> {
    let HostSurvey { facts, others, .. } = survey_host_pair(laboratory, cell, meters, false)?;
    Ok((facts, others))
}

/// Result of surveying both hosts.
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

/// A further device of an end, and the host's facts over it.
#[derive(Clone, Debug)]
pub(super) struct OtherDevice {
    pub role: Role,
    /// Adapter index, from 1.
    pub adapter: u32,
    pub device: String,
    pub facts: Facts,
}

/// Returns the facts over an adapter of an end, or `None` if it is the first or there is none.
pub(super) fn facts_over(role: Role, adapter: u32, others: &[OtherDevice]) -> Option<&Facts> {
    let mut all = others.iter();
    Some(&all.find(|other| (other.role, other.adapter) == (role, adapter))?.facts)
}

/// Surveys this machine over the devices of each end. Returns the facts over the first device of
/// each, and those over the others.
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
        // The ceiling is only a yardstick, so the study continues if there is no memory to measure
        // it.
        Err(fault) if fault.kind == FaultKind::System => {
            remarks.push(format!("how fast a core copies is not known: {fault}"));
            None
        }
        ceiling => ceiling?,
    };
    Ok(HostSurvey { facts: all, others, nics, ceiling, remarks })
}

/// Returns the cell with as many adapters as any of `cells` uses, if the testbed creates the NICs:
/// they can be surveyed only while they exist.
fn with_all_nics(testbed: &dyn Testbed, cell: &Cell, cells: &[Cell]) -> Cell {
    let (mut cell, properties) = (cell.clone(), testbed.properties());
    if properties.nics_are_new {
        let most = cells.iter().map(|cell| cell.link.adapters).max();
        cell.link.adapters = most.unwrap_or(1).min(properties.adapters);
    }
    cell
}

/// Returns the cell without placement of softirqs, so that a user who may not place them can still
/// survey the hosts.
fn without_softirqs(cell: &Cell) -> Cell {
    let (sender_softirq, softirq) = (SoftirqCpu::Link, SoftirqCpu::Link);
    Cell { placement: Placement { sender_softirq, softirq, ..cell.placement }, ..cell.clone() }
}

/// Why a cell cannot run here.
type Obstacle = Fault;

/// Turns a fault into an obstacle. Errors on cancellation.
fn obstacle_of(fault: Fault) -> Result<Obstacle, Fault> {
    if fault.kind == FaultKind::Interrupted { Err(fault) } else { Ok(fault) }
}

/// Why a cell cannot run here, or `None` if it can. The error is cancellation.
type Outcome = Result<Option<Obstacle>, Fault>;

/// Feasibility of the cells of a plan.
#[derive(Default)]
pub(super) struct Judged {
    /// One per cell, in order.
    pub obstacles: Vec<Option<Obstacle>>,
    /// The NIC setup that all cells share.
    pub common: Common,
    pub gpus: Vec<UsedGpu>,
}

/// Determines why cells of a plan cannot run, as its study would, but without changing a host:
/// links that the testbed makes are made and guests boot, but settings are only checked. `settings`
/// are the records that the study's settings are expected to have. With `over`, this device of this
/// machine is the link of both ends. Errors if there could be no study at all.
pub(super) fn obstacles(
    laboratory: &Laboratory,
    plan: &Plan,
    settings: Vec<SettingRecord>,
    over: Option<&str>,
) -> Result<Judged, Fault> {
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
    // Guests have their own pages, which no setting of this machine reserves.
    if !testbed.properties().boots_kernels {
        let all = surveyed.iter_mut().flat_map(Surveyed::facts_mut);
        all.for_each(|(role, facts)| huge_pages::reserve(role, facts, &settings));
    }
    let mut guard = Guard::idle(laboratory, settings)?;
    let mut feasibility = Feasibility::of(laboratory, surveyed, &baseline, plan.schedule.force);
    feasibility.means = if is_made { Means::Links } else { Means::Looks };
    guard.common = feasibility.common_nic_setup(&mut guard, cells)?;
    let found = cells.iter().map(|cell| feasibility.obstacle(&mut guard, cell));
    let found = found.collect::<Result<_, Fault>>()?;
    Ok(Judged { obstacles: found, gpus: feasibility.gpus(cells), common: guard.common })
}

/// Returns the meters of a study without which its trials fail.
pub(super) fn needed_meters(laboratory: &Laboratory, plan: &Plan) -> Vec<&'static Meter> {
    let is_requested = |meter: &&Meter| plan.meters.iter().any(|one| one.name == meter.name);
    let meters = laboratory.meters.iter().copied();
    meters.filter(|meter| meter.needed).filter(is_requested).collect()
}

/// Errors if a meter does not work on one of the hosts.
pub(super) fn refuse_without(meter: &Meter, facts: &[Facts]) -> Result<(), Fault> {
    let mut refusals = facts.iter().filter_map(|host| (meter.probe)(host).refusal());
    refusals.next().map_or(Ok(()), |refusal| {
        Err(refusal.context(format!("meter {} cannot run here", meter.name)))
    })
}

/// Returns the fault of a study that requires a cell that cannot run.
pub(super) fn cannot_run(cell: &CellId, obstacle: Fault) -> Fault {
    obstacle.context(format!("path {cell} cannot run here"))
}

/// A cell, and the settings that give NICs their queues for it.
type ProbeKey = (Cell, Vec<WantedSetting>);

/// Kernel, link, and the settings of the NICs.
type PreparationKey = (Option<Kernel>, LinkSettings, Vec<WantedSetting>);

/// Determines why cells cannot run. Links and congestion controls are actually tried, each
/// combination once, with the baseline's path, because the result depends on devices, modules and
/// privileges in ways that no fact shows.
pub(super) struct Feasibility<'r, 'a> {
    laboratory: &'r Laboratory<'a>,
    surveyed: Vec<Surveyed>,
    baseline: Cell,
    /// Results by the cell that was tried: one for all cells with the same kernel, link, softirqs
    /// and congestion control, and one for each cell that only its driver can judge. Cells are
    /// tried again when their number of queues changes, which is final only after all cells were
    /// considered.
    probed: Vec<(ProbeKey, Option<Obstacle>)>,
    prepared: Vec<(PreparationKey, Option<Obstacle>)>,
    means: Means,
    /// Whether cells run although a probe of their hosts refuses them.
    force: bool,
}

/// How far a feasibility check may go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// Links are set up and NICs prepared, and all is restored.
    Settings,
    /// Links that the testbed makes are set up, with hosts that are removed along with them.
    Links,
    /// Nothing is set up.
    Looks,
}

/// Survey of the hosts under one kernel, or why they cannot be surveyed.
#[derive(Clone, Debug)]
pub(super) struct Surveyed {
    pub kernel: Option<Kernel>,
    pub hosts: Result<HostSurvey, Obstacle>,
}

impl Surveyed {
    /// Returns the facts of both ends, over the first device of each and over the others.
    fn facts_mut(&mut self) -> impl Iterator<Item = (Role, &mut Facts)> {
        self.hosts.as_mut().ok().into_iter().flat_map(|HostSurvey { facts, others, .. }| {
            let others = others.iter_mut().map(|other| (other.role, &mut other.facts));
            Role::ALL.into_iter().zip(facts).chain(others)
        })
    }
}

/// Surveys the hosts under every kernel that cells name, the baseline's first. A kernel that does
/// not boot prevents only its cells, unless it is the baseline's, without which there is nothing to
/// compare. With `meters`, also tries what those need, under the baseline's kernel.
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

/// Returns the facts that a study's header stores: the baseline's, and those of every kernel that
/// has a name.
pub(super) fn facts_for_header(surveyed: &[Surveyed]) -> (Vec<Facts>, Vec<KernelHosts>) {
    let facts = |one: &Surveyed| one.hosts.as_ref().ok().map(|hosts| hosts.facts.clone());
    let named =
        |one: &Surveyed| Some(KernelHosts { kernel: one.kernel.clone()?, facts: facts(one)? });
    let baseline = surveyed.first().and_then(facts).unwrap_or_default();
    (baseline, surveyed.iter().filter_map(named).collect())
}

impl<'r, 'a> Feasibility<'r, 'a> {
    /// Checks cells on hosts that have been surveyed.
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

    /// Returns what the cells that can run require of the NICs that their flows use. All other
    /// cells get the same.
    pub(super) fn common_nic_setup(
        &mut self,
        guard: &mut Guard,
        cells: &[Cell],
    ) -> Result<Common, Fault> {
        let mut nics = self.surveyed.iter().filter_map(|one| Some(&one.hosts.as_ref().ok()?.nics));
        // Guests have their own NICs, which settings of this machine do not affect.
        let nics = nics.next().filter(|_| !self.laboratory.testbed.properties().boots_kernels);
        let given = nics.map(|nics| nics.queues_given(&guard.records)).unwrap_or_default();
        common_setup(given, cells, |cell, known, part| {
            let Some(Ok(HostSurvey { nics, .. })) = self.hosts(cell) else {
                return Ok(Common::default());
            };
            let requested = nics.requested(self.laboratory.paths, cell, known, part);
            // The cell is judged on NICs with the setup that it would get.
            guard.common.clone_from(known);
            match requested.is_empty() || self.obstacle(guard, cell)?.is_none() {
                true => Ok(requested),
                false => Ok(Common::default()),
            }
        })
    }

    /// Returns the survey of the hosts under the kernel of a cell.
    fn hosts(&self, cell: &Cell) -> Option<&Result<HostSurvey, Obstacle>> {
        let surveyed = self.surveyed.iter().find(|one| one.kernel == cell.kernel);
        surveyed.map(|one| &one.hosts)
    }

    /// Returns the GPUs whose memory these cells take.
    pub(super) fn gpus(&self, cells: &[Cell]) -> Vec<UsedGpu> {
        let of_cell = |cell: &Cell| match self.hosts(cell) {
            Some(Ok(HostSurvey { facts, others, .. })) => {
                gpus::used(self.laboratory.paths, cell, facts, others)
            }
            _ => Vec::new(),
        };
        distinct(cells.iter().flat_map(of_cell))
    }

    /// Returns why a cell cannot run here, or `None` if it can.
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
        let others = self.further_devices(guard, cell, &facts);
        if let Some(obstacle) = self.other_device(cell, &facts, &others) {
            return Ok(Some(obstacle));
        }
        let missing = || huge_pages::missing(laboratory.paths, cell, &facts, &others);
        if let Some(obstacle) = (!self.force).then(missing).flatten() {
            return Ok(Some(obstacle));
        }
        if let Some(obstacle) = other_link(laboratory, cell) {
            return Ok(Some(obstacle));
        }
        if let Some(obstacle) = self.steered_connection(guard, cell) {
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

    /// Returns the further devices that a cell's flows cross, with the cell's settings in their
    /// facts.
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

    /// Returns why a cell cannot run over the further devices that its flows cross.
    fn other_device(
        &self,
        cell: &Cell,
        first: &[Facts],
        others: &[OtherDevice],
    ) -> Option<Obstacle> {
        others.iter().find_map(|OtherDevice { role, device, facts, .. }| {
            let mut both = first.to_vec();
            *both.get_mut(*role as usize)? = facts.clone();
            let refusal = probe(self.laboratory, cell, *role, &both, self.force).refusal()?;
            Some(refusal.context(format!("over {device}")))
        })
    }

    /// Returns an obstacle if a rule would also steer an ssh connection to its host: what arrives
    /// on the rule's queue goes where no socket can read it. Rules of paths contain the port that
    /// the receiver listens on, which no ssh connection uses, so any port of the range serves for
    /// this check.
    fn steered_connection(&self, guard: &Guard, cell: &Cell) -> Option<Obstacle> {
        let Some(Ok(HostSurvey { facts, nics, .. })) = self.hosts(cell) else { return None };
        let port = Some(path::STEERED_PORTS.low);
        let wanted = nics.wanted(self.laboratory.paths, cell, &guard.common, port).ok()?;
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

    /// Returns why a link cannot be set up or its NICs cannot be prepared. If the cell's paths open
    /// in the driver, or take a queue of an existing NIC, the cell itself is connected, with flows
    /// steered to other queues first: only the driver knows whether it can.
    fn tried_obstacle(&mut self, guard: &mut Guard, cell: &Cell) -> Outcome {
        match self.link_obstacle(guard, cell)? {
            None if opens_in_driver(self.laboratory, cell)? || self.takes_queue(guard, cell) => {
                self.probed_obstacle(guard, cell.clone())
            }
            None => self.preparation_obstacle(guard, cell),
            obstacle => Ok(obstacle),
        }
    }

    /// True if a path of a cell takes a receive queue of a NIC that existed before the study.
    fn takes_queue(&self, guard: &Guard, cell: &Cell) -> bool {
        let Some(Ok(HostSurvey { nics, .. })) = self.hosts(cell) else { return false };
        let is_new = self.laboratory.testbed.properties().nics_are_new;
        let (paths, common) = (self.laboratory.paths, &guard.common);
        let mut requested = nics.requested(paths, cell, common, |whole| whole).into_values();
        !is_new && requested.any(|shared| shared.has_queues())
    }

    /// Returns why the link of a cell cannot be set up or connected over, found with a small stream
    /// of the baseline's path.
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
        self.probed_obstacle(guard, small)
    }

    /// Returns why a cell cannot connect over its link, once its NICs have their queues.
    fn probed_obstacle(&mut self, guard: &mut Guard, cell: Cell) -> Outcome {
        let key = self.probe_key(guard, cell);
        let attempt = |(cell, _): &ProbeKey| attempt(self.laboratory, guard, cell, true);
        remembered(&mut self.probed, key, attempt)
    }

    fn probe_key(&self, guard: &Guard, cell: Cell) -> ProbeKey {
        let Some(Ok(HostSurvey { nics, .. })) = self.hosts(&cell) else {
            return (cell, Vec::new());
        };
        // A fault is ignored here, since the attempt reports it.
        let wanted = nics.wanted(self.laboratory.paths, &cell, &guard.common, None);
        let queues = wanted.unwrap_or_default().into_iter().filter(changes_queues).collect();
        (cell, queues)
    }

    /// Returns why the NICs cannot be prepared for a cell: what its paths require of them is set
    /// and restored once, because only the driver knows.
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

/// True if a rule selects a connection, given as `CLIENT PORT SERVER PORT`, by the packets that the
/// client sends.
fn steered(rule: &FlowRule, connection: &str) -> bool {
    let words: Vec<&str> = connection.split_whitespace().collect();
    let end = |at: usize| {
        let (address, port) = (words.get(at)?.parse().ok()?, words.get(at + 1)?.parse().ok()?);
        Some(SocketAddr::new(address, port))
    };
    end(0).zip(end(2)).is_some_and(|(client, server)| rule.selects(client, server))
}

/// Returns the result of an earlier attempt with the same key, or makes the attempt now.
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

/// Returns the facts of the hosts with the kernel parameters that the study and a cell set there,
/// with those of the cell's workload unless the link is given, and with the huge pages that the
/// cell reserves.
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
        // Guests have their own pages, which no setting of this machine reserves.
        let of_cell = cell.settings.iter().filter(|_| !properties.boots_kernels);
        of_cell.filter(of_host).for_each(|wanted| huge_pages::enter(facts, &wanted.setting));
    }
    all
}

/// True if only the driver of a NIC knows whether the paths of a cell can be opened: whether it
/// accepts XDP programs and sockets.
fn opens_in_driver(laboratory: &Laboratory, cell: &Cell) -> Result<bool, Fault> {
    let frames = (workload::of(cell)?.protocol)(cell) == Protocol::Frames;
    Ok(frames && laboratory.testbed.properties().has_cable && cell.link.descriptors().is_none())
}

/// Sets up the link of a cell, prepares its NICs, and connects over it if requested.
fn attempt(laboratory: &Laboratory, guard: &mut Guard, cell: &Cell, connects: bool) -> Outcome {
    let attempt = deploy(laboratory, None, cell).and_then(|(mut remotes, _)| {
        let (_, listening) = preparation::prepare(laboratory, guard, &mut remotes, cell)?;
        if connects { connect(&mut remotes, cell, listening) } else { Ok(()) }
    });
    guard.undo_prepared()?;
    attempt.err().map(obstacle_of).transpose()
}

/// Returns an obstacle if the testbed cannot have the link of a cell. An existing link is not
/// created from a preset, and a link that the testbed makes needs one.
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

/// Returns an obstacle if a vhost worker is placed but no path of the cell has one.
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

/// Checks whether the halves that the actor of a role opens can do their jobs on this host.
pub fn check(paths: &[&'static DataPath], cell: &Cell, role: Role, facts: &Facts) -> Support {
    let supports = |halves: Vec<(HalfPath, HalfConfig)>| {
        let all = halves.iter().map(|(half, job)| (half.check)(job, facts));
        all.fold(Support::Yes, Support::and)
            .and(path::encrypts(cell, facts))
            .and(connections(cell, role, facts))
    };
    halves(paths, cell, role).map_or_else(Support::from, supports)
}

/// Checks whether a host can open the connections of a cell.
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
pub(super) mod tests {
    use super::super::deployment::Deployment;
    use super::super::nics;
    use super::*;
    use bytepath_record::{Attempt, DeviceName, Options, Outcome, free_huge_pages, huge_pages};
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
            let others = feasibility.further_devices(&guard, &cell, &hosts.facts);
            feasibility.other_device(&cell, &hosts.facts, &others)
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
        let guard = Guard::idle(&laboratory, Vec::new()).unwrap();
        let steered_connection = |cell: &Cell| feasibility.steered_connection(&guard, cell);
        assert_eq!(steered_connection(&cell), None, "rules of paths name a port");
        let rule = FlowRule { destination: Some([10, 0, 1, 2].into()), ..FlowRule::default() };
        let setting = Setting::Flow { device: DeviceName::new("eth2").unwrap(), rule };
        cell.settings = vec![WantedSetting { host: Some(Role::Receiver), ..setting.into() }];
        let why = steered_connection(&cell).unwrap().message;
        assert!(why.contains("of eth2 would take the ssh connection 10.0.1.1 40000"), "{why}");
    }

    /// A survey of both hosts, the receiver with these NICs.
    fn with_nics(nics: Nics, facts: Vec<Facts>) -> Vec<Surveyed> {
        let (others, remarks) = (Vec::new(), Vec::new());
        let hosts = HostSurvey { facts, others, nics, ceiling: None, remarks };
        vec![Surveyed { kernel: None, hosts: Ok(hosts) }]
    }

    #[test]
    fn a_cell_is_judged_on_nics_as_those_of_all_cells_are() {
        let deployment = Deployment::parse("netns").unwrap();
        let stop = AtomicBool::new(false);
        let laboratory = deployment.laboratory(&stop).unwrap();
        let [plain, many] = [nics::tests::cell("zcrx"), nics::tests::cell_over("zcrx", 3)];
        let nics = nics::tests::one_nic(1, Vec::new());
        let mut guard = Guard::idle(&laboratory, Vec::new()).unwrap();
        let mut facts = vec![Facts::default(); 2];
        let port = path::STEERED_PORTS.low;
        facts[1].settings.insert(SSH_CONNECTION.into(), format!("10.0.0.1 40000 10.0.0.2 {port}"));
        let surveyed = with_nics(nics.clone(), facts);
        let feasibility = Feasibility::of(&laboratory, surveyed, &plain, false);
        let socket = nics::tests::cell("socket");
        assert!(!feasibility.takes_queue(&guard, &plain), "its only queue is for everything else");
        assert_eq!(feasibility.steered_connection(&guard, &socket), None);
        guard.common = nics::tests::common_of(&nics, &[plain.clone(), many]);
        assert!(feasibility.takes_queue(&guard, &plain));
        let why = feasibility.steered_connection(&guard, &socket).unwrap().message;
        assert!(why.contains("would take the ssh connection 10.0.0.1 40000"), "{why}");
    }

    #[test]
    fn a_cell_is_tried_once_more_with_the_queues_that_a_later_one_needs() {
        let deployment = Deployment::parse("netns").unwrap();
        let stop = AtomicBool::new(false);
        let laboratory = deployment.laboratory(&stop).unwrap();
        let [plain, many] = [nics::tests::cell("zcrx"), nics::tests::cell_over("zcrx", 3)];
        let nics = nics::tests::one_nic(2, Vec::new());
        let mut guard = Guard::idle(&laboratory, Vec::new()).unwrap();
        let surveyed = with_nics(nics.clone(), vec![Facts::default(); 2]);
        let feasibility = Feasibility::of(&laboratory, surveyed, &plain, false);
        let alone = feasibility.probe_key(&guard, plain.clone());
        guard.common = nics::tests::common_of(&nics, std::slice::from_ref(&plain));
        assert!(alone == feasibility.probe_key(&guard, plain.clone()), "with its own queue");
        guard.common = nics::tests::common_of(&nics, &[plain.clone(), many]);
        let (_, queues) = feasibility.probe_key(&guard, plain);
        assert_eq!(queues[0].setting.to_string(), "channels eth1 combined=4");
    }

    /// A guest's NIC may have the same name as one of this machine's.
    #[test]
    fn settings_of_this_machine_give_a_guests_nic_no_queues() {
        for (testbed, given) in [("netns", true), ("vm:nic=igb", false)] {
            let deployment = Deployment::parse(testbed).unwrap();
            let stop = AtomicBool::new(false);
            let laboratory = deployment.laboratory(&stop).unwrap();
            let wanted: WantedSetting =
                "channels eth1 combined=8".parse::<Setting>().unwrap().into();
            let mut guard = Guard::idle(&laboratory, vec![SettingRecord::from(&wanted)]).unwrap();
            let nics = nics::tests::one_nic(2, Vec::new());
            let surveyed = with_nics(nics, vec![Facts::default(); 2]);
            let socket = nics::tests::cell("socket");
            let mut feasibility = Feasibility::of(&laboratory, surveyed, &socket, false);
            let common = feasibility.common_nic_setup(&mut guard, &[]).unwrap();
            assert_eq!(!common.is_empty(), given, "{testbed}");
        }
    }

    thread_local! {
        /// The number of queues in each call of a path's `nic_settings`.
        static SEEN: std::cell::RefCell<Vec<u32>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    /// The path `socket`, changed to require header split.
    fn splitting() -> &'static [&'static DataPath] {
        let socket = path::find(path::CATALOG, "socket").unwrap();
        let nic_settings = |_: &Options, wire: &path::FlowNic| {
            SEEN.with_borrow_mut(|seen| seen.push(wire.queues));
            path::header_split(wire)
        };
        let rx = socket.rx.map(|half| HalfPath { nic_settings, ..half });
        Box::leak(Box::new([&*Box::leak(Box::new(DataPath { rx, ..*socket }))]))
    }

    #[test]
    fn what_cells_have_in_common_is_found_on_nics_with_what_is_known_of_it() {
        let deployment = Deployment::parse("netns").unwrap();
        let stop = AtomicBool::new(false);
        let laboratory = Laboratory { paths: splitting(), ..deployment.laboratory(&stop).unwrap() };
        let wanted: WantedSetting = "channels eth1 combined=8".parse::<Setting>().unwrap().into();
        let mut guard = Guard::idle(&laboratory, vec![SettingRecord::from(&wanted)]).unwrap();
        let cell = nics::tests::cell("socket");
        let surveyed = with_nics(nics::tests::one_nic(2, Vec::new()), vec![Facts::default(); 2]);
        let mut feasibility = Feasibility::of(&laboratory, surveyed, &cell, false);
        feasibility.means = Means::Looks;
        feasibility.common_nic_setup(&mut guard, &[cell]).unwrap();
        let seen = SEEN.take();
        assert!(seen.len() > 3 && seen.iter().all(|count| *count == 8), "{seen:?}");
    }

    /// A cell of this pair, with the placement left to the scheduler.
    pub(in super::super) fn cell_of(pair: &str) -> Cell {
        let cores = bytepath_spec::parse_cores("none", [0]).unwrap();
        let pairs = [pair.to_owned()];
        let ask = bytepath_spec::CellRequest::of(&pairs, &cores);
        let spec = crate::path_spec(path::CATALOG, path::PAIRS);
        bytepath_spec::cells(&ask, &spec).unwrap().0.swap_remove(0)
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
