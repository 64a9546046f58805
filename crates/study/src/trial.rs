//! One trial, from a fresh testbed to its record.

use super::Laboratory;
use super::clocks::{self, Apart, Appointment};
use super::guard::Guard;
use super::preparation::{prepare, reach_namespaces};
use super::remote::{Remotes, opening, unexpected};
use super::seen::Seen;
use bytepath_engine::path;
use bytepath_engine::workload::{self, Workload};
use bytepath_meter::{Chosen, Reach};
use bytepath_record::wire::{LinkEnd, MeterRequest, Reply, Request, Secret, Token};
use bytepath_record::{
    Cell, Fault, FaultKind, Hops, ProfileRecord, Protocol, ProvenWitness, Reading, Restoration,
    RestorationRow, Role, RoleRecord, Schedule, Scope, Series, TimeSpan, Tls, Trial, TrialStatus,
    Work,
};
use rand::rngs::OsRng;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a stream may take to drain after its sender was asked to stop.
const DRAIN: Duration = Duration::from_secs(10);

/// How long frames may take that the sender's device has not sent on, and how often it is
/// looked.
const CARRIED: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);

/// How long a workload that ends by itself may take, as long as something moves.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Position of a trial in its study.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub block: u32,
    pub order: u32,
}

/// Runs one cell once, its cards prepared for it. A flow that dies is a failed trial, with
/// the reason and without a number; only the user's request to stop is an error.
pub(super) fn trial(
    laboratory: &Laboratory,
    guard: &mut Guard,
    cell: &Cell,
    meters: &[Chosen],
    schedule: &Schedule,
    position: Position,
) -> Result<Trial, Fault> {
    let mut trial = blank(cell, position);
    let measured = measure(laboratory, guard, cell, meters, schedule, &mut trial);
    match settled(guard, measured)? {
        Ok(((), rows)) => {
            trial.status = TrialStatus::Measured;
            trial.warnings.extend(not_restored(&rows));
        }
        Err(fault) => fail(&mut trial, fault),
    }
    Ok(trial)
}

/// The outcome of a trial once its cards are as they were before it. A host that was lost
/// restores itself and costs this trial; the user's request to stop, and a card that cannot be
/// restored, end the study.
pub(super) fn settled<T>(
    guard: &mut Guard,
    measured: Result<T, Fault>,
) -> Result<Result<(T, Vec<RestorationRow>), Fault>, Fault> {
    match (measured, guard.unprepare()) {
        (Err(fault), _) if fault.kind == FaultKind::Interrupted => Err(fault),
        (_, Err(fault)) if fault.kind != FaultKind::PeerLost => Err(fault),
        (Err(fault), _) | (Ok(_), Err(fault)) => Ok(Err(fault)),
        (Ok(measured), Ok(rows)) => Ok(Ok((measured, rows))),
    }
}

/// Marks a trial as failed. What was read during it does not count as measured.
pub(super) fn fail(trial: &mut Trial, fault: Fault) {
    let profile = trial.profile.take();
    *trial = Trial {
        started_ms: trial.started_ms,
        work: trial.work,
        profile: profile.map(|p| ProfileRecord { file: String::new(), samples: 0, lost: 0, ..p }),
        status: TrialStatus::Failed { fault },
        ..Trial::blank(trial.cell.clone(), trial.block, trial.order)
    };
}

/// Foreign changes to a card while it was prepared.
fn not_restored(rows: &[RestorationRow]) -> impl Iterator<Item = String> + '_ {
    let odd = |row: &&RestorationRow| {
        !matches!(row.outcome, Restoration::Restored | Restoration::AlreadyBack)
    };
    rows.iter().filter(odd).map(|row| format!("card: {row}"))
}

/// A trial of which nothing is known yet.
pub(super) fn blank(cell: &Cell, position: Position) -> Trial {
    Trial {
        started_ms: now_ms(),
        // A cell whose workload is not known never runs.
        work: workload::of(cell).map_or(Work::Bytes, |workload| workload.work()),
        ..Trial::blank(cell.id.clone(), position.block, position.order)
    }
}

/// Milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Seconds since the Unix epoch.
fn now_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

fn measure(
    laboratory: &Laboratory,
    guard: &mut Guard,
    cell: &Cell,
    meters: &[Chosen],
    schedule: &Schedule,
    trial: &mut Trial,
) -> Result<(), Fault> {
    let mut remotes = Remotes::raise(laboratory, cell.kernel.as_ref())?;
    reach_namespaces(&mut remotes, guard, cell)?;
    trial.warnings.extend(set_up_link(&mut remotes, cell)?);
    trial.warnings.extend(nothing_to_place(laboratory, cell));
    trial.prepared = prepare(laboratory, guard, &mut remotes, cell)?;
    stream(&mut remotes, cell, meters, schedule, trial)
}

/// A placement of workers that neither end has.
pub(super) fn nothing_to_place(laboratory: &Laboratory, cell: &Cell) -> Option<String> {
    let cpu = cell.placement.io_wq?;
    let works = |role| {
        let path = path::find(laboratory.paths, &cell.half(role).path);
        path.is_some_and(|path| path.uses_io_uring)
    };
    let none = !Role::ALL.into_iter().any(works);
    none.then(|| format!("io-wq={cpu} has no effect: neither end uses io_uring"))
}

/// One stream over a link that is up, from its handshake to its ledger.
pub(super) fn stream(
    remotes: &mut Remotes,
    cell: &Cell,
    meters: &[Chosen],
    schedule: &Schedule,
    trial: &mut Trial,
) -> Result<(), Fault> {
    begin(remotes, cell, meters)?;
    let seen = match workload::of(cell)?.ends_by_itself(cell) {
        true => whole(remotes)?,
        false => {
            let_flow(remotes)?;
            window(remotes, seconds(schedule.warm_up), schedule.window)?
        }
    };
    end(remotes, cell, schedule, trial, seen)
}

/// Opens both ends and starts them, both at once; the sender does not send yet.
pub(super) fn begin(remotes: &mut Remotes, cell: &Cell, meters: &[Chosen]) -> Result<(), Fault> {
    connect(remotes, cell)?;
    remotes.hops = match workload::of(cell)?.protocol(cell) {
        Protocol::Frames => Some(hops(remotes, cell)?),
        _ => None,
    };
    remotes.clocks = clocks::read(remotes)?;
    let apart = remotes.properties.hosts_apart;
    tell_both(remotes, |role| {
        let meters = meters_of(role, meters, apart);
        Request::Start { meters, alone: apart }
    })?;
    hear_both(remotes, done)
}

/// Lets the sender send.
pub(super) fn let_flow(remotes: &mut Remotes) -> Result<(), Fault> {
    let go = Request::Pace { hold: false };
    [Role::Receiver, Role::Sender].into_iter().try_for_each(|role| remotes.tell(role, &go))
}

/// A measured window of a stream that flows, after some time that is not measured. Ends that
/// have clocks of their own are given its opening and closing times in advance, so that it does not
/// depend on how long it takes to tell them, and nothing is said while it is open but that
/// it has opened.
pub(super) fn window(remotes: &mut Remotes, before: Duration, length: f64) -> Result<Seen, Fault> {
    let clocks = remotes.clocks;
    let length = seconds(length);
    let appointment = clocks.as_ref().map(|clocks| Appointment::make(clocks, before, length));
    let edge = |role: Role, edge: usize| appointment.as_ref().map(|a| a.at[role as usize][edge]);
    if appointment.is_none() {
        remotes.pass(before)?;
    }
    tell_both(remotes, |role| Request::WindowBegin { at: edge(role, 0) })?;
    if let Some(appointment) = &appointment {
        tell_both(remotes, |role| Request::WindowEnd { at: edge(role, 1) })?;
        remotes.pass_until(appointment.here[0])?;
    }
    hear_both(remotes, done)?;
    let begin = now_seconds();
    match &appointment {
        Some(appointment) => remotes.pass_until(appointment.here[1])?,
        None => {
            remotes.pass(length)?;
            tell_both(remotes, |_| Request::WindowEnd { at: None })?;
        }
    }
    let (mut seen, edges) = windows(remotes, begin)?;
    if let Some(clocks) = &clocks {
        seen.apart = Apart::of(clocks, edges);
    }
    Ok(seen)
}

/// A window as long as a workload that ends by itself: the receiver's is open before the first
/// unit of work, which the sender begins with its own.
fn whole(remotes: &mut Remotes) -> Result<Seen, Fault> {
    for role in [Role::Receiver, Role::Sender] {
        remotes.tell(role, &Request::WindowBegin { at: None })?;
    }
    let begin = now_seconds();
    let timeout = remotes.timeout(DRAIN).as_secs_f64();
    remotes.tell_within(Role::Sender, &Request::AwaitWindow { timeout }, LONGEST)?;
    tell_both(remotes, |_| Request::WindowEnd { at: None })?;
    windows(remotes, begin).map(|(seen, _)| seen)
}

/// Hears of both windows, which end now, and when each was open by its host's clock.
fn windows(remotes: &mut Remotes, begin: f64) -> Result<(Seen, [[u64; 2]; 2]), Fault> {
    let span = TimeSpan { begin, length: (now_seconds() - begin).max(0.0) };
    let mut seen = Seen { spans: vec![span], ..Seen::default() };
    let mut edges_of = [[0; 2]; 2];
    let apart = remotes.properties.hosts_apart;
    // What a meter says of a machine, it says of its own.
    let at = |scope: Scope, role| if apart { scope.at_host(role) } else { scope };
    hear_both(remotes, |role, reply| match reply {
        Reply::Window { readings, series, threads, warnings, edges } => {
            let readings = readings.into_iter();
            seen.readings.extend(readings.map(|r| Reading { scope: at(r.scope, role), ..r }));
            let series = series.into_iter();
            seen.series.extend(series.map(|s| Series { scope: at(s.scope, role), ..s }));
            seen.threads[role as usize] = threads;
            seen.warnings.extend(warnings.into_iter().map(|w| format!("{role}: {w}")));
            edges_of[role as usize] = edges;
            Ok(())
        }
        other => Err(unexpected(role, &other)),
    })?;
    Ok((seen, edges_of))
}

/// Ends a stream and enters what was seen of it.
pub(super) fn end(
    remotes: &mut Remotes,
    cell: &Cell,
    schedule: &Schedule,
    trial: &mut Trial,
    seen: Seen,
) -> Result<(), Fault> {
    remotes.tell(Role::Sender, &Request::Stop)?;
    trial.readings.extend(seen.readings);
    trial.series.extend(seen.series);
    trial.warnings.extend(seen.warnings);
    trial.spans.extend(seen.spans);
    finish(remotes, cell, workload::of(cell)?, schedule, trial)?;
    let mut threads = seen.threads;
    for record in &mut trial.roles {
        record.threads = std::mem::take(&mut threads[record.role as usize]);
    }
    if let Some(before) = remotes.clocks
        && let Some(after) = clocks::read(remotes)?
    {
        trial.clocks = Some(clocks::record(&before, &after, seen.apart));
    }
    Ok(())
}

/// Asks both agents for their end of the link, the one first that makes the devices: the
/// sender makes a veth pair, the receiver a tap. The answer names optional requests that failed.
pub(super) fn set_up_link(remotes: &mut Remotes, cell: &Cell) -> Result<Vec<String>, Fault> {
    let mut all = Vec::new();
    let is_tap = cell.link.tap.is_some_and(|tap| !tap.macvtap);
    let order = if is_tap { [Role::Receiver, Role::Sender] } else { Role::ALL };
    remotes.ends_in_descriptors = cell.link.tap.is_some();
    for role in order {
        let Some(end) = remotes.link_end(role, &cell.link, cell.softirq_cpu(role)) else {
            continue;
        };
        let softirq_required = cell.placement.softirq(role).cpu().is_some();
        // The steward has moved the interrupts of a card, or will.
        let interrupts_there =
            softirq_required && remotes.nic(role)?.is_some_and(|nic| !nic.interrupts.is_empty());
        let second = role == order[1];
        let end = LinkEnd { second, softirq_required, interrupts_there, ..end };
        match remotes.ask(role, &Request::Link(Box::new(end)))? {
            Reply::Linked { notes } => all.extend(notes),
            other => return Err(unexpected(role, &other)),
        }
    }
    Ok(all)
}

/// Connects every flow and opens both ends of the path; no byte flows yet.
pub(super) fn connect(remotes: &mut Remotes, cell: &Cell) -> Result<(), Fault> {
    let address = remotes.address(Role::Receiver);
    let token = new_token()?;
    let [device, own] = [Role::Sender, Role::Receiver].map(|role| remotes.device(role));
    let receiver = Box::new(cell.clone());
    let secret = (cell.stream.tls != Tls::None).then(new_secret).transpose()?;
    let ports = remotes.ports();
    let listen = Request::Listen {
        cell: receiver,
        address,
        device: own,
        token: token.clone(),
        ports,
        secret: secret.clone(),
    };
    let peer = match remotes.ask(Role::Receiver, &listen)? {
        Reply::Listening { address } => address,
        other => return Err(unexpected(Role::Receiver, &other)),
    };
    let timeout = opening(cell.stream.flows);
    let cell = Box::new(cell.clone());
    let ports = remotes.connect_from;
    let connect = Request::Connect { cell, peer, device, token, ports, secret };
    remotes.tell_within(Role::Sender, &connect, timeout)?;
    remotes.tell_within(Role::Receiver, &Request::Accept, timeout)
}

/// 128 bits that no one else knows.
pub(super) fn new_token() -> Result<Token, Fault> {
    let bytes = random::<16>()?;
    Ok(Token(bytes.iter().map(|b| format!("{b:02x}")).collect()))
}

/// What the two ends of a trial encrypt with.
fn new_secret() -> Result<Secret, Fault> {
    Ok(Secret([random()?, random()?]))
}

fn random<const N: usize>() -> Result<[u8; N], Fault> {
    use rand::TryRngCore;
    let mut bytes = [0; N];
    OsRng
        .unwrap_err()
        .try_fill_bytes(&mut bytes)
        .map_err(|e| Fault::new(FaultKind::System, format!("no random numbers: {e}")))?;
    Ok(bytes)
}

/// A meter that sees the whole machine runs at the receiver alone where the hosts share
/// one; where they do not (`apart`), at both ends.
fn meters_of(role: Role, meters: &[Chosen], apart: bool) -> Vec<MeterRequest> {
    let here = |chosen: &&Chosen| match chosen.role {
        Some(only) => only == role,
        None => chosen.meter.reach != Reach::Machine || role == Role::Receiver || apart,
    };
    let request = |Chosen { meter, options, .. }: &Chosen| MeterRequest {
        name: meter.name.to_owned(),
        options: options.clone(),
    };
    meters.iter().filter(here).map(request).collect()
}

/// Asks both agents at the same moment.
fn tell_both(remotes: &mut Remotes, request: impl Fn(Role) -> Request) -> Result<(), Fault> {
    Role::ALL.into_iter().try_for_each(|role| remotes.send(role, &request(role)))
}

/// An answer that says no more than that it is done.
fn done(role: Role, reply: Reply) -> Result<(), Fault> {
    match reply {
        Reply::Done => Ok(()),
        other => Err(unexpected(role, &other)),
    }
}

fn hear_both(
    remotes: &mut Remotes,
    mut each: impl FnMut(Role, Reply) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for role in Role::ALL {
        let reply = remotes.await_reply(role, super::remote::PROMPT)?;
        each(role, reply)?;
    }
    Ok(())
}

fn finish(
    remotes: &mut Remotes,
    cell: &Cell,
    workload: &dyn Workload,
    schedule: &Schedule,
    trial: &mut Trial,
) -> Result<(), Fault> {
    // What drains slowly because its hosts are slow is not stuck.
    let timeout = remotes.timeout(DRAIN).as_secs_f64();
    let finish = Request::Finish { timeout };
    let mut shown = None;
    let mut left = Hops::default();
    remotes.send(Role::Sender, &finish)?;
    // Frames have no end that a sink could see: it is notified once the generator has ended.
    let before = remotes.hops;
    if before.is_none() {
        remotes.send(Role::Receiver, &finish)?;
    }
    for role in Role::ALL {
        if let (Role::Receiver, Some(before)) = (role, &before) {
            left = carried(remotes, cell, before, &trial.roles)?;
            remotes.tell(role, &Request::Stop)?;
            remotes.send(role, &finish)?;
        }
        match remotes.await_reply(role, DRAIN + super::remote::PROMPT)? {
            Reply::Finished { record, witness, readings } => {
                trial.readings.extend(readings);
                trial.roles.push(*record);
                shown = shown.or(witness);
            }
            other => return Err(unexpected(role, &other)),
        }
    }
    if let Some(before) = before {
        let after = hops(remotes, cell)?;
        trial.hops = Some(found(&mut trial.roles, &[before, left, after]));
    }
    settle(trial, workload, shown, remotes.properties.has_cable)?;
    if workload.ends_by_itself(cell) {
        return take_whole(trial);
    }
    check_window(trial, workload.counted_by(), schedule)
}

/// What the devices of the link count of frames: the sender's what it sent and dropped, the
/// receiver's what it dropped on arrival. The two ends of a veth pair count the same drop.
fn hops(remotes: &mut Remotes, cell: &Cell) -> Result<Hops, Fault> {
    let is_macvtap = cell.link.tap.is_some_and(|tap| tap.macvtap);
    let counts_arrivals = is_macvtap || remotes.properties.has_cable;
    let mut of = |role| match remotes.count_frames(role)? {
        Reply::Hops(hops) => Ok(hops),
        other => Err(unexpected(role, &other)),
    };
    let sent = of(Role::Sender)?;
    let arrival_dropped = if counts_arrivals { of(Role::Receiver)?.arrival_dropped } else { 0 };
    Ok(Hops { arrival_dropped, ..sent })
}

/// What the devices count once the sender's has sent or dropped what its generator handed it,
/// or a while has passed: a process that forwards frames from there, as a guest's qemu, may have to
/// wait for a CPU, and a notified sink takes silence for the end.
fn carried(
    remotes: &mut Remotes,
    cell: &Cell,
    before: &Hops,
    roles: &[RoleRecord],
) -> Result<Hops, Fault> {
    let own = roles.first().and_then(|sender| sender.hops).unwrap_or_default();
    let end = Instant::now() + remotes.timeout(CARRIED);
    loop {
        let now = hops(remotes, cell)?;
        let Hops { qdisc_dropped, device_dropped, device_sent, .. } = since(before, &now, own);
        let dropped = Hops { qdisc_dropped, device_dropped, ..own };
        let is_carried = dropped.lost() + device_sent >= dropped.generated();
        if is_carried || own.drops_untold || !remotes.properties.has_cable || Instant::now() > end {
            return Ok(now);
        }
        remotes.pass(LOOK)?;
    }
}

/// What the devices have counted since before the first frame, and what waits there, in the
/// generator's frames.
fn since(before: &Hops, now: &Hops, own: Hops) -> Hops {
    let each = own.merged.max(1);
    Hops {
        qdisc_dropped: now.qdisc_dropped.saturating_sub(before.qdisc_dropped),
        qdisc_queued: now.qdisc_queued,
        device_sent: now.device_sent.saturating_sub(before.device_sent) * each,
        device_dropped: now.device_dropped.saturating_sub(before.device_dropped) * each,
        arrival_dropped: now.arrival_dropped.saturating_sub(before.arrival_dropped) * each,
        ..Hops::default()
    }
}

/// Where all frames are, from what both ends counted and what the devices did before the first
/// frame, after the generator's last, and after the sink's last.
fn found(roles: &mut [RoleRecord], [before, left, after]: &[Hops; 3]) -> Hops {
    let mut own = Hops::default();
    roles.iter_mut().filter_map(|role| role.hops.take()).for_each(|one| own.add(&one));
    let mut hops = since(before, after, own);
    hops.add(&own);
    hops.arrival_dropped = hops.arrival_dropped.saturating_sub(hops.dropped_as_asked);
    if hops.drops_untold {
        let sent = hops.device_sent.saturating_sub(hops.strays);
        hops.device_dropped = hops.offered.saturating_sub(sent);
    }
    // A sink that does not read is emptied to be counted, and what waited in the qdisc comes
    // after what was in the ring.
    let moved = hops.ring_queued.min(left.qdisc_queued.saturating_sub(after.qdisc_queued));
    hops.ring_queued -= moved;
    hops.qdisc_queued += moved;
    hops
}

/// The count and the window of a workload that ended by itself: everything that arrived, in
/// the time that its sender took.
fn take_whole(trial: &mut Trial) -> Result<(), Fault> {
    let [sender, receiver] = trial.roles.as_mut_slice() else { return Ok(()) };
    receiver.window = sender.window;
    receiver.count = trial.hops.map_or(receiver.count, |hops| hops.received);
    (trial.window, trial.count) = (receiver.window, receiver.count);
    match trial.window > 0.0 {
        true => Ok(()),
        false => Err(Fault::new(FaultKind::System, "the generator's window never opened")),
    }
}

/// Brings the two ends together: their byte counts must agree, and the witness
/// page has the last word on the sender's ledger, unless it went by a wire.
fn settle(
    trial: &mut Trial,
    workload: &dyn Workload,
    witness: Option<ProvenWitness>,
    wired: bool,
) -> Result<(), Fault> {
    let [sender, receiver] = trial.roles.as_mut_slice() else {
        return Err(Fault::new(FaultKind::System, "a role gave no record"));
    };
    workload.settle(sender, receiver, trial.hops.as_ref())?;
    sender.witness = witness.filter(|_| !wired);
    sender.ledger = match wired {
        true => workload::untested(&sender.ledger),
        false => workload::after_witness(&sender.ledger, witness),
    };
    trial.label = workload::label(trial.work, &sender.ledger, &receiver.ledger);
    let counts = match workload.counted_by() {
        Role::Sender => &mut *sender,
        Role::Receiver => &mut *receiver,
    };
    (trial.window, trial.count) = (counts.window, counts.count);
    trial.latency = counts.latency.take();
    for role in [&*sender, &*receiver] {
        trial.warnings.extend(notes(role));
    }
    Ok(())
}

fn notes(record: &RoleRecord) -> impl Iterator<Item = String> + '_ {
    record.notes.iter().map(move |note| format!("{}: {note}", record.role))
}

/// An engine notices the edges of the window between two calls. A call that
/// takes long there makes the window longer: still a true rate, but of another
/// window than requested, which is reported.
fn check_window(trial: &mut Trial, counted: Role, schedule: &Schedule) -> Result<(), Fault> {
    let actor = trial.work.actor(counted);
    if trial.window <= 0.0 {
        let text = format!("the {actor} did not see the window start and end: nothing moved");
        return Err(Fault::new(FaultKind::System, text));
    }
    if trial.window < 0.8 * schedule.window {
        let text = format!(
            "the {actor} saw only {:.2} s of the {:.2} s window: nothing moved",
            trial.window, schedule.window
        );
        return Err(Fault::new(FaultKind::System, text));
    }
    let off = (trial.window - schedule.window).abs();
    if off > 0.1 * schedule.window {
        trial.warnings.push(format!(
            "the window was {:.2} s long instead of {:.2} s: a call took long at its edge",
            trial.window, schedule.window
        ));
    }
    Ok(())
}

pub(super) fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}
