//! What can run on the given hosts: facts, probes, and what is actually tried
//! before the first trial.

use super::Laboratory;
use super::clocks;
use super::guard::Guard;
use super::preparation::{self, Alike, Cards};
use super::reach;
use super::remote::{Remotes, unexpected};
use super::trial::{connect, set_up_link};
use bytepath_engine::path::{self, DataPath};
use bytepath_record::wire::{Reply, Request};
use bytepath_record::{
    Cell, CopyCeiling, Facts, Fault, FaultKind, Kernel, KernelHosts, LinkSettings, Placement, Role,
    SoftirqCpu, Stream, Support, WantedSetting,
};

/// Largest message and read of a rehearsal, bytes: what is tried is the link
/// and the sockets, not the memory.
const REHEARSED_SIZE: u64 = 64 << 10;

/// Looks at both hosts of a testbed, with a link of these settings; with `meters` also at
/// what meters need.
pub fn survey(laboratory: &Laboratory, cell: &Cell, meters: bool) -> Result<Vec<Facts>, Fault> {
    Ok(look(laboratory, cell, meters, false)?.facts)
}

/// What was seen of both hosts.
struct Seen {
    facts: Vec<Facts>,
    cards: Cards,
    /// Memory-copy bandwidth of the receiver, if it was requested.
    ceiling: Option<CopyCeiling>,
    /// What the reader of a study should know.
    remarks: Vec<String>,
}

fn look(laboratory: &Laboratory, cell: &Cell, meters: bool, measure: bool) -> Result<Seen, Fault> {
    let mut remotes = Remotes::raise(laboratory, cell.kernel.as_ref())?;
    set_up_link(&mut remotes, cell)?;
    let way = reach::examine(&mut remotes)?;
    let mut remarks = way.remarks;
    remarks.extend(clocks::read(&mut remotes)?.iter().flat_map(clocks::remarks));
    let mut facts = Vec::new();
    for role in Role::ALL {
        let device = remotes.device(role);
        match remotes.ask(role, &Request::Survey { device, meters })? {
            Reply::Facts(mut found) => {
                let link = remotes.link_facts().iter();
                found
                    .settings
                    .extend(link.map(|(name, value)| ((*name).to_owned(), value.clone())));
                found.settings.extend(way.facts[role as usize].iter().cloned());
                let booted = remotes.booted(role).map(|time| time.as_secs_f64());
                facts.push(Facts { booted, ..*found });
            }
            other => return Err(unexpected(role, &other)),
        }
    }
    let cards = Cards::of(&mut remotes)?;
    if !measure {
        return Ok(Seen { facts, cards, ceiling: None, remarks });
    }
    let size = cell.stream.message_size.max(cell.stream.read_memory());
    let request = Request::Ceiling { cpu: cell.placement.receiver, size };
    match remotes.ask(Role::Receiver, &request)? {
        Reply::Ceiling(ceiling) => Ok(Seen { facts, cards, ceiling: Some(ceiling), remarks }),
        other => Err(unexpected(Role::Receiver, &other)),
    }
}

/// Why a cell cannot run here.
#[derive(Clone, Debug)]
pub(super) struct Obstacle {
    pub kind: FaultKind,
    pub reason: String,
    pub remedy: String,
}

impl Obstacle {
    fn of(fault: Fault) -> Obstacle {
        let Fault { kind, message, remedy } = fault;
        Obstacle { kind, reason: message, remedy: remedy.unwrap_or_default() }
    }

    /// The fault of requesting such a cell by name.
    pub(crate) fn fault(self, cell: &Cell) -> Fault {
        let message = format!("path {} cannot run here: {}", cell.id, self.reason);
        let fault = Fault::new(self.kind, message);
        if self.remedy.is_empty() { fault } else { fault.remedy(self.remedy) }
    }
}

/// What is tried once for all cells that share it.
#[derive(PartialEq)]
struct Rehearsed {
    kernel: Option<Kernel>,
    link: LinkSettings,
    softirqs: [SoftirqCpu; 2],
    congestion: String,
}

/// Determines the obstacles of cells. Links and congestion controls are
/// actually tried, each combination once, with the baseline's path, because the
/// answer depends on devices, modules and privileges in ways that no fact shows.
pub(super) struct Outlook {
    surveyed: Vec<Surveyed>,
    baseline: Cell,
    rehearsed: Vec<(Rehearsed, Option<Obstacle>)>,
    prepared: Vec<(Prepared, Option<Obstacle>)>,
}

/// What is asked of the cards, and under which kernel and link.
type Prepared = (Option<Kernel>, LinkSettings, Vec<WantedSetting>);

/// The hosts under one kernel: their facts, or why there are none.
#[derive(Clone, Debug)]
pub(super) struct Surveyed {
    pub kernel: Option<Kernel>,
    pub facts: Result<Vec<Facts>, Obstacle>,
    /// Cards and addresses; none where there are no facts.
    pub cards: Option<Cards>,
    /// What the reader of the study should know.
    pub remarks: Vec<String>,
}

/// Looks at the hosts under every kernel that cells name, the baseline's first.
/// A kernel that does not come up is an obstacle of its cells, unless it is the
/// baseline's, without which there is nothing to compare.
pub(super) fn look_at_all(
    laboratory: &Laboratory,
    cells: &[Cell],
    baseline: &Cell,
    measure: bool,
) -> Result<(Vec<Surveyed>, Option<CopyCeiling>), Fault> {
    let Seen { facts, cards, ceiling, remarks } = look(laboratory, baseline, false, measure)?;
    let kernel = baseline.kernel.clone();
    let mut all = vec![Surveyed { kernel, facts: Ok(facts), cards: Some(cards), remarks }];
    for cell in cells {
        if all.iter().any(|known| known.kernel == cell.kernel) {
            continue;
        }
        let alike = Cell { kernel: cell.kernel.clone(), ..baseline.clone() };
        let (facts, cards, remarks) = match look(laboratory, &alike, false, false) {
            Ok(seen) => (Ok(seen.facts), Some(seen.cards), seen.remarks),
            Err(fault) if fault.kind == FaultKind::Interrupted => return Err(fault),
            Err(fault) => (Err(Obstacle::of(fault)), None, Vec::new()),
        };
        all.push(Surveyed { kernel: cell.kernel.clone(), facts, cards, remarks });
    }
    Ok((all, ceiling))
}

/// What a study's header keeps of it: the baseline's facts, and those of every
/// kernel that has a name.
pub(super) fn recorded(surveyed: &[Surveyed]) -> (Vec<Facts>, Vec<KernelHosts>) {
    let facts = surveyed.first().and_then(|first| first.facts.clone().ok()).unwrap_or_default();
    let named = |one: &Surveyed| {
        let (kernel, facts) = (one.kernel.clone()?, one.facts.clone().ok()?);
        Some(KernelHosts { kernel, facts })
    };
    (facts, surveyed.iter().filter_map(named).collect())
}

impl Outlook {
    /// The outlook of cells on hosts that have been surveyed.
    pub(crate) fn of(surveyed: Vec<Surveyed>, baseline: &Cell) -> Self {
        let (rehearsed, prepared) = (Vec::new(), Vec::new());
        Outlook { surveyed, baseline: baseline.clone(), rehearsed, prepared }
    }

    /// What the first of these cells that can run asks of the cards its flows come by: all others
    /// get theirs likewise.
    pub(crate) fn alike(
        &mut self,
        laboratory: &Laboratory,
        guard: &mut Guard,
        cells: &[Cell],
    ) -> Result<Alike, Fault> {
        for cell in cells {
            let surveyed = self.surveyed.iter().find(|one| one.kernel == cell.kernel);
            let Some(cards) = surveyed.and_then(|one| one.cards.as_ref()) else { continue };
            let asked = cards.asked(laboratory.paths, cell);
            if asked != Alike::default() && self.obstacle(laboratory, guard, cell)?.is_none() {
                return Ok(asked);
            }
        }
        Ok(Alike::default())
    }

    /// The obstacle of a cell, if there is one. The error is the
    /// user's request to stop.
    pub(crate) fn obstacle(
        &mut self,
        laboratory: &Laboratory,
        guard: &mut Guard,
        cell: &Cell,
    ) -> Result<Option<Obstacle>, Fault> {
        let facts = match self.facts(cell) {
            Ok(facts) => facts,
            Err(obstacle) => return Ok(Some(obstacle)),
        };
        for role in Role::ALL {
            let support = probe(laboratory, cell, role, facts);
            if let Support::No { reason, remedy } = support {
                return Ok(Some(Obstacle { kind: FaultKind::Unsupported, reason, remedy }));
            }
        }
        if let Some(obstacle) = other_link(laboratory, cell) {
            return Ok(Some(obstacle));
        }
        let this = Rehearsed {
            kernel: cell.kernel.clone(),
            link: cell.link.clone(),
            softirqs: Role::ALL.map(|role| cell.placement.softirq(role)),
            congestion: cell.stream.congestion.clone(),
        };
        let known = self.rehearsed.iter().find(|(known, _)| *known == this);
        let obstacle = match known {
            Some((_, obstacle)) => obstacle.clone(),
            None => {
                let obstacle = self.rehearse(laboratory, guard, &this)?;
                self.rehearsed.push((this, obstacle.clone()));
                obstacle
            }
        };
        match obstacle {
            None => self.unprepared(laboratory, guard, cell),
            Some(obstacle) => Ok(Some(obstacle)),
        }
    }

    /// Why the cards cannot be prepared for a cell, if they cannot: what its paths ask of
    /// them is made and restored once, because only the driver knows.
    fn unprepared(
        &mut self,
        laboratory: &Laboratory,
        guard: &mut Guard,
        cell: &Cell,
    ) -> Result<Option<Obstacle>, Fault> {
        let surveyed = self.surveyed.iter().find(|one| one.kernel == cell.kernel);
        let Some(cards) = surveyed.and_then(|one| one.cards.as_ref()) else { return Ok(None) };
        let wanted = match cards.wanted(laboratory.paths, cell, &guard.alike) {
            Ok(wanted) if wanted.is_empty() => return Ok(None),
            Ok(wanted) => wanted,
            Err(fault) => return Ok(Some(Obstacle::of(fault))),
        };
        let this = (cell.kernel.clone(), cell.link.clone(), wanted);
        if let Some((_, obstacle)) = self.prepared.iter().find(|(known, _)| *known == this) {
            return Ok(obstacle.clone());
        }
        let attempt = Remotes::raise(laboratory, cell.kernel.as_ref()).and_then(|mut remotes| {
            set_up_link(&mut remotes, cell)?;
            preparation::prepare(laboratory, guard, &mut remotes, cell)
        });
        guard.unprepare()?;
        let obstacle = match attempt {
            Ok(_) => None,
            Err(fault) if fault.kind == FaultKind::Interrupted => return Err(fault),
            Err(fault) => Some(Obstacle::of(fault)),
        };
        self.prepared.push((this, obstacle.clone()));
        Ok(obstacle)
    }

    /// Facts of the hosts that a cell runs on.
    fn facts(&self, cell: &Cell) -> Result<&[Facts], Obstacle> {
        match self.surveyed.iter().find(|one| one.kernel == cell.kernel) {
            Some(one) => one.facts.as_deref().map_err(Obstacle::clone),
            None => Ok(&[]),
        }
    }

    fn rehearse(
        &self,
        lab: &Laboratory,
        guard: &mut Guard,
        wanted: &Rehearsed,
    ) -> Result<Option<Obstacle>, Fault> {
        let stream = &self.baseline.stream;
        let [sender_softirq, softirq] = wanted.softirqs;
        let cell = Cell {
            kernel: wanted.kernel.clone(),
            link: wanted.link.clone(),
            placement: Placement { sender_softirq, softirq, ..self.baseline.placement },
            stream: Stream {
                flows: 1,
                message_size: stream.message_size.min(REHEARSED_SIZE),
                read_size: stream.read_size.min(REHEARSED_SIZE),
                read_memory: None,
                congestion: wanted.congestion.clone(),
                ..stream.clone()
            },
            ..self.baseline.clone()
        };
        let attempt = Remotes::raise(lab, cell.kernel.as_ref()).and_then(|mut remotes| {
            set_up_link(&mut remotes, &cell)?;
            preparation::prepare(lab, guard, &mut remotes, &cell)?;
            connect(&mut remotes, &cell)
        });
        guard.unprepare()?;
        match attempt {
            Ok(()) => Ok(None),
            Err(fault) if fault.kind == FaultKind::Interrupted => Err(fault),
            Err(fault) => Ok(Some(Obstacle::of(fault))),
        }
    }
}

/// A link that already exists is not made as a preset says, and no other link has
/// anything to be left as it is.
fn other_link(laboratory: &Laboratory, cell: &Cell) -> Option<Obstacle> {
    let (testbed, preset) = (laboratory.testbed, &cell.link.preset);
    if cell.link.tap.is_some() && !testbed.properties().holds_taps {
        return Some(Obstacle {
            kind: FaultKind::Usage,
            reason: format!("testbed {} has no tap between its hosts", testbed.name()),
            remedy: "choose --testbed netns, or vm with one guest and no cards".into(),
        });
    }
    let given = testbed.properties().link_is_given;
    let (does, usual) = if given { ("takes", "given") } else { ("makes", "wire") };
    (given != cell.link.asked.is_some()).then(|| Obstacle {
        kind: FaultKind::Usage,
        reason: format!("testbed {} {does} its link, which is not '{preset}'", testbed.name()),
        remedy: format!("choose only what is to be set, such as --link {usual}:mtu=4148"),
    })
}

fn probe(laboratory: &Laboratory, cell: &Cell, role: Role, facts: &[Facts]) -> Support {
    let Some(facts) = facts.get(role as usize) else {
        return Support::no("there are no facts about its host", "report this as a bug");
    };
    if let Some(vhost) = cell.placement.vhost.filter(|_| !path::has_vhost_worker(&cell.rx.path)) {
        return Support::no(
            format!("vhost={vhost}: no path of this cell has a vhost thread to place"),
            "leave out vhost, or receive by the path vhost; vhost threads \
             of guests are not pinned",
        );
    }
    let mut named = cell.placement.named_at(role);
    if let Some((part, cpu)) = named.find(|(_, cpu)| !facts.cpus.contains(cpu)) {
        let usable: Vec<String> = facts.cpus.iter().map(u32::to_string).collect();
        return Support::no(
            format!("the {part}'s CPU {cpu} does not exist or may not be used"),
            format!("this process may use {}", usable.join(", ")),
        );
    }
    check(laboratory.paths, cell, role, facts)
}

/// Whether the halves that the actor of a role opens can do their jobs on this host.
pub fn check(paths: &[&'static DataPath], cell: &Cell, role: Role, facts: &Facts) -> Support {
    match preparation::halves(paths, cell, role) {
        Ok(halves) => halves
            .iter()
            .fold(Support::Yes, |so_far, (half, job)| so_far.and((half.check)(job, facts)))
            .and(path::encrypts(cell, facts)),
        Err(fault) => Support::no(fault.message, fault.remedy.unwrap_or_default()),
    }
}
