//! Profiles are taken in separate trials: the same stream once more, sampled. They follow the last
//! block, or come between blocks once there is a result to explain. They are stored in the study
//! next to the trials that count, each with the name of its file.

use super::metering;
use super::plan::Laboratory;
use super::remote::Remotes;
use super::run::{Countdown, Run, judged, lost_peer};
use super::stream::seconds;
use super::trial::{Position, TrialRunner, empty_trial, fail};
use crate::sampling_rate::{SHARE, affordable_rate};
use crate::store::{LARGEST_PROFILE, profile_file};
use bytepath_meter::Chosen;
use bytepath_profile::import::{PPROF, Times};
use bytepath_profile::{Profile, export};
use bytepath_record::wire::{FetchPart, PackProfile, PriceSample};
use bytepath_record::{
    Cell, CellId, CpuTurns, Design, Fault, FaultKind, Placement, ProfileRecord, ProfiledCells,
    Profiling, Role, SamplePrice, Sampling, Schedule, SoftirqCpu, Study, StudyHeader, Trial,
    TrialStatus, Work,
};
use bytepath_spec as spec;
use bytepath_stats as stats;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long an agent may take to symbolize a profile: programs with much debug information are
/// slow.
const SYMBOLIZING: Duration = Duration::from_secs(300);

/// The beginning of the remark with the reason why there are no profiles.
const NONE: &str = "no profiles: ";

/// Returns the profile trials that a study still lacks, in the order in which they are taken: as in
/// blocks, every cell once in random order, then every cell again; then those that replace rejected
/// ones.
pub(super) fn missing(study: &Study) -> Vec<(CellId, u32)> {
    let Some(profiling) = &study.header.profiling else { return Vec::new() };
    if study.remarks.iter().any(|remark| remark.starts_with(NONE)) {
        return Vec::new();
    }
    lacking(study, profiling, &stats::cells_to_profile(study, profiling.cells))
}

fn lacking(study: &Study, profiling: &Profiling, cells: &[CellId]) -> Vec<(CellId, u32)> {
    let taken = |cell: &CellId, number: u32| {
        let number_of = |trial: &Trial| trial.profile.as_ref().map(|profile| profile.number);
        study.profiles.iter().any(|trial| trial.cell == *cell && number_of(trial) == Some(number))
    };
    // A failed trial is not repeated: it would fail again.
    let is_rejected = |trial: &Trial| matches!(trial.status, TrialStatus::Rejected { .. });
    let turns = |cell: &CellId| {
        let of_cell = study.profiles.iter().filter(|trial| trial.cell == *cell);
        let rejected = of_cell.filter(|trial| is_rejected(trial)).count() as u32;
        profiling.trials + rejected.min(profiling.retakes)
    };
    // Differs from the order of the trials, and is the same after an interruption.
    let most = profiling.trials.saturating_add(profiling.retakes);
    let order = spec::order(cells.len(), most, !study.header.schedule.seed).into_iter();
    order
        .map(|(turn, index)| (cells[index].clone(), turn + 1))
        .filter(|(cell, number)| *number <= turns(cell) && !taken(cell, *number))
        .collect()
}

impl Run<'_, '_> {
    /// Takes every missing profile. If the host allows none, a remark of the study gives the
    /// reason, and the study is complete without.
    pub(super) fn profiles(&mut self) -> Result<(), Fault> {
        if self.has_nothing_to_profile() {
            return self.remark(format!("{NONE}too few cells were measured"));
        }
        self.profiles_up_to(u32::MAX, Duration::ZERO)
    }

    /// Takes one profile of each cell to explain, if a study that ends once it is sure already
    /// recommends one: the explanation is then complete when the answer is, or when someone
    /// interrupts. `left` is the time that the remaining blocks take.
    pub(super) fn profiles_between_blocks(&mut self, left: Duration) -> Result<(), Fault> {
        if !self.study.header.schedule.until_sure {
            return Ok(());
        }
        match missing(&self.study).first() {
            Some((_, number)) if stats::has_choice(&self.study) => {
                self.profiles_up_to(*number, left)
            }
            _ => Ok(()),
        }
    }

    /// Takes the missing profiles with numbers up to `last`.
    fn profiles_up_to(&mut self, last: u32, left: Duration) -> Result<(), Fault> {
        let missing = missing(&self.study);
        let header = self.study.header.clone();
        let (Some(profiling), false) = (&header.profiling, missing.is_empty()) else {
            return Ok(());
        };
        match self.sampling(&header, profiling, &missing) {
            Ok(sampling) => self.take_profiles(&header, profiling, &sampling, last, left),
            Err(fault) if fault.kind == FaultKind::Interrupted => Err(fault),
            Err(fault) => self.remark(format!("{NONE}{fault}")),
        }
    }

    fn take_profiles(
        &mut self,
        header: &StudyHeader,
        profiling: &Profiling,
        sampling: &Sampling,
        last: u32,
        left: Duration,
    ) -> Result<(), Fault> {
        let schedule = Schedule {
            blocks: profiling.trials,
            window: profiling.window,
            design: Design::Trials,
            stopping: None,
            budget: None,
            until_sure: false,
            ..header.schedule.clone()
        };
        let cells = stats::cells_to_profile(&self.study, profiling.cells);
        let lacking = |study: &Study| {
            let mut lacking = lacking(study, profiling, &cells);
            lacking.retain(|(_, number)| *number <= last);
            lacking
        };
        let mut missing = lacking(&self.study);
        let each = seconds(schedule.warm_up + schedule.window);
        self.observer.profiles_begin(missing.len(), each, left);
        let mut clock = Countdown { begin: Instant::now(), done: 0, total: missing.len() };
        while let Some((id, number)) = missing.first().cloned() {
            let cell = header.cells.iter().find(|cell| cell.id == id);
            let cell =
                cell.ok_or_else(|| Fault::storage(format!("'{id}' is not a cell of this study")))?;
            self.observer.profile_begins(clock.done + 1, clock.total, &id);
            let position = Position { block: number - 1, ..self.position(0) };
            let meters = self.sampling_meters(cell, sampling);
            let mut runner = self.runner(&meters, &schedule);
            let (mut trial, packed) = profile_trial(&mut runner, cell, sampling, number, position)?;
            self.wait_for_link(&trial)?;
            self.watch_host(std::slice::from_mut(&mut trial))?;
            let (before, functional) = (&self.study.profiles, header.functional.is_some());
            let mut trial = judged(trial, cell, &schedule, functional, before);
            let ran = !matches!(trial.status, TrialStatus::Failed { .. });
            if let Some(profile) = trial.profile.as_mut().filter(|_| ran) {
                profile.file = self.writer.profile(&profile_file(&id, number), &packed)?;
            }
            self.writer.append(std::slice::from_ref(&trial))?;
            let lost = lost_peer(&trial);
            self.study.profiles.push(trial);
            missing = lacking(&self.study);
            clock.done += 1;
            clock.total = clock.done + missing.len();
            if let Some(trial) = self.study.profiles.last() {
                self.observer.profile_ends(clock.done, trial, clock.left() + left);
            }
            self.wait_for_host(lost)?;
        }
        Ok(())
    }

    /// Returns the meters of the study, and those that sample the CPUs that a cell's stream runs
    /// on.
    fn sampling_meters(&self, cell: &Cell, sampling: &Sampling) -> Vec<Chosen> {
        let mut meters = self.meters();
        let apart = self.laboratory.testbed.properties().hosts_apart;
        for role in sampled_at(apart) {
            let cpus = cpus(cell, &self.study, *role, apart);
            let sampling = Sampling { cpus, ..sampling.clone() };
            meters.extend(metering::profile(self.laboratory.meters, *role, &sampling));
        }
        meters
    }

    /// True if profiles were requested but too few cells were measured to choose any.
    fn has_nothing_to_profile(&self) -> bool {
        let study = &self.study;
        let Some(profiling) = &study.header.profiling else { return false };
        let cells = study.header.cells.iter().filter(|cell| !cell.null).count();
        let is_requested = match profiling.cells {
            ProfiledCells::Leading | ProfiledCells::Largest => cells > 1,
            ProfiledCells::All => true,
        };
        let is_noted = study.remarks.iter().any(|remark| remark.starts_with(NONE));
        is_requested && !is_noted && stats::cells_to_profile(study, profiling.cells).is_empty()
    }

    /// Decides what to sample and how often, and writes the cost as a remark of the study.
    fn sampling(
        &mut self,
        header: &StudyHeader,
        profiling: &Profiling,
        missing: &[(CellId, u32)],
    ) -> Result<Sampling, Fault> {
        // A resumed study keeps the event and rate that it began with.
        let before = self.study.profiles.iter().find_map(|trial| trial.profile.as_ref());
        if let Some(ProfileRecord { event, rate, .. }) = before {
            return Ok(Sampling { event: event.clone(), rate: *rate, cpus: Vec::new() });
        }
        let cell = missing.first().and_then(|(id, _)| header.cells.iter().find(|c| c.id == *id));
        let price = price(self.laboratory, cell, profiling.event.clone())?;
        let rate = profiling.rate.unwrap_or_else(|| affordable_rate(price.seconds, SHARE));
        self.remark(describe(&price, rate))?;
        Ok(Sampling { event: price.event, rate, cpus: Vec::new() })
    }
}

/// Returns the remark on what a sample costs.
fn describe(price: &SamplePrice, rate: u64) -> String {
    let event = &price.event;
    match price.seconds {
        Some(seconds) => format!(
            "profiles: {event} at {rate} Hz; a sample takes {:.1} us, all together {:.1}% of a CPU",
            seconds * 1e6,
            seconds * rate as f64 * 100.0
        ),
        None => format!("profiles: {event} at {rate} Hz; the time per sample is unknown"),
    }
}

/// Returns the ends whose machines are sampled: only the receiver's if both share one.
fn sampled_at(apart: bool) -> &'static [Role] {
    if apart { &Role::ALL } else { &[Role::Receiver] }
}

/// Returns an event that every sampled host has, and the highest cost of a sample on any of them.
fn price(
    laboratory: &Laboratory,
    cell: Option<&Cell>,
    event: Option<String>,
) -> Result<SamplePrice, Fault> {
    let mut remotes = Remotes::raise(laboratory, cell)?;
    let apart = remotes.properties.hosts_apart;
    let mut at = |role, event| {
        let cpu = cell.and_then(|cell| cell.placement.cpu(role));
        remotes.agents.call(role, PriceSample { event, cpu })
    };
    let mut price = at(Role::Receiver, event)?;
    if apart {
        let event = Some(price.event.clone());
        let sender = at(Role::Sender, event).map_err(|fault| {
            fault.remedy("choose an event that both hosts have: --profile largest:event=cpu-clock")
        })?;
        let costs = price.seconds.zip(sender.seconds);
        price.seconds = costs.map(|(one, other)| one.max(other));
    }
    Ok(price)
}

/// Returns the CPUs of a role's host that a cell's stream runs on: those that the cell names and
/// those that ran softirqs in its trials. All of the host's CPUs if any part is left to the
/// scheduler, as the threads of a guest are.
fn cpus(cell: &Cell, study: &Study, role: Role, apart: bool) -> Vec<u32> {
    let here = || Role::ALL.into_iter().filter(move |of| !apart || *of == role);
    let placement = &cell.placement;
    let of_cell = || study.trials.iter().filter(|trial| trial.cell == cell.id);
    let free =
        here().any(|of| placement.cpu(of).is_none() || placement.softirq(of) == SoftirqCpu::Free);
    let facts = study.header.facts_of(cell);
    let is_guest = |role: Role| facts.get(role as usize).is_some_and(|of| of.booted.is_some());
    let runs_peer = is_guest(role.peer()) && !is_guest(role)
        || of_cell().any(|trial| stats::GuestCpu::of(trial, role.peer()).is_some());
    if free || runs_peer {
        let facts = facts.get(role as usize);
        return facts.map(|facts| facts.cpus.clone()).unwrap_or_default();
    }
    let named: Vec<u32> = match apart {
        true => placement.named_at(role).map(|(_, cpu)| cpu).collect(),
        false => placement.named().map(|(_, cpu)| cpu).collect(),
    };
    let rps = cell.link.rps.filter(|_| !apart || role == Role::Receiver);
    let softirqs =
        of_cell().flat_map(|trial| here().flat_map(|of| stats::softirq_cpus(cell, trial, of)));
    let all: BTreeSet<u32> = named.into_iter().chain(rps).chain(softirqs).collect();
    all.into_iter().collect()
}

/// Runs one profile trial, and returns it with its packed profile. If a flow dies, the trial is
/// failed and has no profile; only cancellation is an error.
fn profile_trial(
    runner: &mut TrialRunner,
    cell: &Cell,
    sampling: &Sampling,
    number: u32,
    position: Position,
) -> Result<(Trial, Vec<u8>), Fault> {
    let record = ProfileRecord {
        number,
        file: String::new(),
        event: sampling.event.clone(),
        rate: sampling.rate,
        samples: 0,
        lost: 0,
    };
    let mut trial = Trial { profile: Some(record), ..empty_trial(cell, position) };
    let measured = runner.measure(cell, &mut trial);
    let packed = measured.and_then(|mut remotes| fetch(&mut remotes, cell, &mut trial));
    match runner.restore(packed)? {
        Ok((packed, _)) => {
            trial.status = TrialStatus::Measured;
            Ok((trial, packed))
        }
        Err(fault) => {
            fail(&mut trial, fault, runner.laboratory.stop)?;
            Ok((trial, Vec::new()))
        }
    }
}

/// Fetches the samples of each sampled host, as one profile.
fn fetch(remotes: &mut Remotes, cell: &Cell, trial: &mut Trial) -> Result<Vec<u8>, Fault> {
    let roles = sampled_at(remotes.properties.hosts_apart).iter();
    let parts = roles.map(|role| fetch_from(remotes, *role, cell, trial));
    let mut parts = parts.collect::<Result<Vec<_>, Fault>>()?;
    if parts.len() == 1 {
        return Ok(parts.swap_remove(0));
    }
    let read = |packed: &Vec<u8>| (PPROF.read)("a profile", Times::LeftOut, &mut packed.as_slice());
    let parts = parts.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let mut packed = Vec::new();
    let written = export::PPROF.write(&Profile::joined(parts), &mut packed);
    written.map_err(|e| Fault::failed(format!("cannot pack the profiles: {e}")))?;
    Ok(packed)
}

/// Makes an agent symbolize its samples, and fetches them.
fn fetch_from(
    remotes: &mut Remotes,
    role: Role,
    cell: &Cell,
    trial: &mut Trial,
) -> Result<Vec<u8>, Fault> {
    let number = trial.profile.as_ref().map_or(0, |profile| profile.number);
    // Process ids and CPUs of the other machine mean nothing on this one.
    let apart = remotes.properties.hosts_apart;
    let agents = Role::ALL.map(|of| (!apart || of == role).then(|| remotes.pids[of as usize]));
    let placement = match (apart, role) {
        (false, _) => cell.placement,
        (true, Role::Sender) => {
            let Placement { sender, sender_turns, sender_softirq, io_wq, .. } = cell.placement;
            Placement { sender, sender_turns, sender_softirq, io_wq, ..Placement::default() }
        }
        (true, Role::Receiver) => Placement {
            sender: None,
            sender_turns: CpuTurns::NONE,
            sender_softirq: SoftirqCpu::Link,
            ..cell.placement
        },
    };
    let call = PackProfile {
        title: format!("{} ({number})", cell.id),
        bytes: if trial.work == Work::Bytes { trial.count } else { 0 },
        packets: match trial.work {
            Work::Packets => Some(trial.count as f64),
            Work::Bytes | Work::Exchanges => trial.packets(),
        },
        agents,
        guest: remotes.qemu_of_peer(role).map(|qemu| (role.peer(), qemu)),
        placement: Box::new(placement),
    };
    let size = remotes.agents.call_within(role, call, SYMBOLIZING)?;
    if let Some(profile) = &mut trial.profile {
        profile.samples = profile.samples.saturating_add(size.samples);
        profile.lost = profile.lost.saturating_add(size.lost);
    }
    trial.warnings.extend(size.notes.into_iter().map(|note| format!("profile: {note}")));
    if size.bytes > LARGEST_PROFILE {
        let text = format!("the profile takes {} MiB", size.bytes >> 20);
        return Err(Fault::failed(text).remedy("choose a lower rate or a shorter window"));
    }
    let mut packed = Vec::new();
    while (packed.len() as u64) < size.bytes {
        let part = remotes.agents.call(role, FetchPart { at: packed.len() as u64 })?;
        if part.0.is_empty() {
            return Err(Fault::failed("a part of the profile is missing"));
        }
        packed.extend(part.0);
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;
    use std::path::Path;

    #[test]
    fn retakes_rejected_profiles_but_not_failed_ones() {
        let data =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/studies/first-edition");
        let mut study = load(&data).unwrap();
        let profiling = spec::parse_profile("all:trials=2,retakes=1").unwrap().unwrap();
        let cells = ["a", "b"].map(|id| CellId(id.into()));
        // The numbers of the missing profile trials of each cell.
        let missing = |study: &Study| {
            let lacking = lacking(study, &profiling, &cells);
            let of = |cell: &CellId| -> Vec<u32> {
                lacking.iter().filter(|(id, _)| id == cell).map(|(_, number)| *number).collect()
            };
            [of(&cells[0]), of(&cells[1])]
        };
        let rejected = TrialStatus::Rejected { events: Vec::new() };
        let failed = TrialStatus::Failed { fault: Fault::failed("") };
        let any = study.trials[0].clone();
        let mut take = |cell: &str, number: u32, status: &TrialStatus| {
            let profile = ProfileRecord {
                number,
                file: String::new(),
                event: String::new(),
                rate: 99,
                samples: 0,
                lost: 0,
            };
            study.profiles.push(Trial {
                cell: CellId(cell.into()),
                profile: Some(profile),
                status: status.clone(),
                ..any.clone()
            });
            missing(&study)
        };
        assert_eq!(take("a", 1, &TrialStatus::Measured), [vec![2], vec![1, 2]]);
        assert_eq!(take("b", 1, &failed), [vec![2], vec![2]]);
        assert_eq!(take("a", 2, &rejected), [vec![3], vec![2]]);
        assert_eq!(take("a", 3, &rejected), [Vec::new(), vec![2]]);
        assert_eq!(take("b", 2, &failed), [Vec::<u32>::new(), Vec::new()]);
    }
}
