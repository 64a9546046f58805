//! Runs one stream over a link that is up, from its handshake to its ledger.

use super::agents::PROMPT;
use super::clocks::{self, Apart, Appointment, Clock};
use super::frames;
use super::remote::{Remotes, new_secret, new_token};
use bytepath_engine::workload::{self, Workload};
use bytepath_meter::{Chosen, Reach};
use bytepath_record::wire::{
    Accept, AwaitWindow, CloseWindow, Connect, Finish, Listen, MeterRequest, OPENING, OpenWindow,
    Pace, Secret, Start, Stop, Token, WindowRecord,
};
use bytepath_record::{
    Cell, Fault, Hops, MOST_VALUES, Protocol, ProvenWitness, Reading, Role, RoleRecord, Schedule,
    Scope, Series, ThreadTime, TimeSpan, Tls, Trial,
};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a stream may take to drain after its sender was stopped.
const DRAIN: Duration = Duration::from_secs(10);

/// Time that each connection adds: thousands have full buffers at both ends.
const DRAIN_OF_FLOW: Duration = Duration::from_millis(20);

/// How long a workload that ends by itself may take, as long as something moves.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Runs one stream and enters its results in the trial.
pub(super) fn run(
    remotes: &mut Remotes,
    cell: &Cell,
    listening: Listening,
    meters: &[Chosen],
    schedule: &Schedule,
    trial: &mut Trial,
) -> Result<(), Fault> {
    let stream = Stream::begin(remotes, cell, listening, meters)?;
    let result = match (workload::of(cell)?.ends_by_itself)(cell) {
        true => run_to_completion(remotes)?,
        false => {
            start_senders(remotes)?;
            stream.measure(remotes, seconds(schedule.warm_up), schedule.window)?
        }
    };
    stream.end(remotes, cell, schedule, trial, result)
}

/// A receiver that listens for the flows of a cell.
pub(super) struct Listening {
    /// The addresses, by adapter index.
    pub peers: Vec<SocketAddr>,
    token: Token,
    secret: Option<Secret>,
}

/// Makes the receiver listen for the flows of a cell.
pub(super) fn listen(remotes: &mut Remotes, cell: &Cell) -> Result<Listening, Fault> {
    let token = new_token()?;
    let secret = (cell.stream.tls != Tls::None).then(new_secret).transpose()?;
    let listen = Listen {
        cell: Box::new(cell.clone()),
        address: remotes.listening_address(),
        devices: remotes.devices(Role::Receiver),
        token: token.clone(),
        ports: remotes.agents.hosts.ports.or(remotes.listen_on),
        secret: secret.clone(),
    };
    let listens = remotes.agents.call(Role::Receiver, listen)?;
    Ok(Listening { peers: remotes.addresses_of(listens), token, secret })
}

/// Connects every flow and opens both ends of the path; no byte flows yet.
pub(super) fn connect(
    remotes: &mut Remotes,
    cell: &Cell,
    listening: Listening,
) -> Result<(), Fault> {
    let Listening { peers, token, secret } = listening;
    let connect = Connect {
        cell: Box::new(cell.clone()),
        peers,
        devices: remotes.devices(Role::Sender),
        token,
        ports: remotes.connect_from,
        secret,
    };
    let timeout = |role| PROMPT + OPENING * cell.threads(role);
    remotes.agents.call_within(Role::Sender, connect, timeout(Role::Sender))?;
    remotes.agents.call_within(Role::Receiver, Accept {}, timeout(Role::Receiver))
}

/// Lets the sender send.
pub(super) fn start_senders(remotes: &mut Remotes) -> Result<(), Fault> {
    let mut start = |role| remotes.agents.call(role, Pace { hold: false });
    start(Role::Receiver).and_then(|()| start(Role::Sender))
}

/// An open stream, with what was read before its first byte.
pub(super) struct Stream {
    /// Counters of the link's devices; `None` unless the workload sends frames.
    frames: Option<Hops>,
    /// `None` unless each host has its own clock.
    clocks: Option<[Clock; 2]>,
}

impl Stream {
    /// Opens both ends and starts them, both at once; the sender does not send yet.
    pub(super) fn begin(
        remotes: &mut Remotes,
        cell: &Cell,
        listening: Listening,
        meters: &[Chosen],
    ) -> Result<Stream, Fault> {
        connect(remotes, cell, listening)?;
        let frames = match (workload::of(cell)?.protocol)(cell) {
            Protocol::Frames => {
                // An XDP program or socket may have restarted a NIC.
                remotes.await_carriers()?;
                Some(frames::count(remotes, cell)?)
            }
            _ => None,
        };
        let clocks = clocks::read(remotes)?;
        let apart = remotes.properties.hosts_apart;
        let qemus = Role::ALL.map(|role| remotes.qemu_of_peer(role));
        let start = |role| Start {
            meters: meters_of(role, meters, apart),
            alone: apart,
            qemu: qemus[role as usize],
        };
        remotes.agents.send_both(start)?;
        remotes.agents.receive_both::<Start>()?;
        Ok(Stream { frames, clocks })
    }

    /// Measures a window of `length` seconds of a flowing stream, after `before`, which is not
    /// measured. Ends with their own clocks get the opening and closing times in advance, so that
    /// the window does not depend on how long a request takes. While it is open, nothing is sent
    /// but the reply that it has opened.
    pub(super) fn measure(
        &self,
        remotes: &mut Remotes,
        before: Duration,
        length: f64,
    ) -> Result<WindowResult, Fault> {
        let length = seconds(length);
        let Some(clocks) = &self.clocks else {
            remotes.pass(before)?;
            remotes.agents.send_both(|_| OpenWindow { at: None })?;
            remotes.agents.receive_both::<OpenWindow>()?;
            let begin = now_seconds();
            remotes.pass(length)?;
            remotes.agents.send_both(|_| CloseWindow { at: None })?;
            return collect(remotes, begin).map(|(result, _)| result);
        };
        let Appointment { at, here: [opens, closes] } = Appointment::make(clocks, before, length);
        let agents = &mut remotes.agents;
        agents.send_both(|role| OpenWindow { at: Some(at[role as usize][0]) })?;
        agents.send_both(|role| CloseWindow { at: Some(at[role as usize][1]) })?;
        agents.pass_until(opens)?;
        agents.receive_both::<OpenWindow>()?;
        let begin = now_seconds();
        agents.pass_until(closes)?;
        let (mut result, edges) = collect(remotes, begin)?;
        result.apart = Apart::of(clocks, edges);
        Ok(result)
    }

    /// Ends a stream and enters the results in the trial.
    pub(super) fn end(
        &self,
        remotes: &mut Remotes,
        cell: &Cell,
        schedule: &Schedule,
        trial: &mut Trial,
        result: WindowResult,
    ) -> Result<(), Fault> {
        remotes.agents.call(Role::Sender, Stop {})?;
        trial.readings.extend(result.readings);
        trial.series.extend(result.series);
        Series::thin(&mut trial.series, Role::ALL.len() * MOST_VALUES);
        trial.warnings.extend(result.warnings);
        trial.spans.extend(result.spans);
        let witness = self.drain(remotes, cell, trial)?;
        let workload = workload::of(cell)?;
        reconcile(trial, workload, witness, remotes.properties.has_cable)?;
        match (workload.ends_by_itself)(cell) {
            true => take_sender_window(trial)?,
            false => check_window(trial, workload.work.counted_by(), schedule)?,
        }
        let mut threads = result.threads;
        for record in &mut trial.roles {
            record.threads = std::mem::take(&mut threads[record.role as usize]);
        }
        if let Some(before) = self.clocks
            && let Some(after) = clocks::read(remotes)?
        {
            trial.clocks = Some(clocks::record(&before, &after, result.apart));
        }
        Ok(())
    }

    /// Waits until both ends have ended, and enters their records; returns the witness page.
    fn drain(
        &self,
        remotes: &mut Remotes,
        cell: &Cell,
        trial: &mut Trial,
    ) -> Result<Option<ProvenWitness>, Fault> {
        // Slow hosts drain slowly, and are not stuck.
        let limit = DRAIN + DRAIN_OF_FLOW * cell.stream.flows;
        let timeout = remotes.agents.timeout(limit).as_secs_f64();
        remotes.agents.send(Role::Sender, Finish { timeout })?;
        if self.frames.is_none() {
            remotes.agents.send(Role::Receiver, Finish { timeout })?;
        }
        let (mut witness, mut left) = (None, Hops::default());
        for role in Role::ALL {
            // A sink cannot detect the end of frames: it is stopped once the generator has ended.
            if let (Role::Receiver, Some(before)) = (role, &self.frames) {
                left = frames::wait_until_forwarded(remotes, cell, before, &trial.roles)?;
                remotes.agents.call(role, Stop {})?;
                remotes.agents.send(role, Finish { timeout })?;
            }
            let end = remotes.agents.receive::<Finish>(role, limit + PROMPT)?;
            trial.readings.extend(end.readings);
            trial.roles.push(*end.record);
            witness = witness.or(end.witness);
        }
        if let Some(before) = self.frames {
            let after = frames::count(remotes, cell)?;
            trial.hops = Some(frames::account_for(&mut trial.roles, &[before, left, after]));
        }
        Ok(witness)
    }
}

/// Runs a workload that ends by itself in one window. The receiver's opens before the first unit of
/// work, which the sender begins with its own.
fn run_to_completion(remotes: &mut Remotes) -> Result<WindowResult, Fault> {
    let agents = &mut remotes.agents;
    agents.call(Role::Receiver, OpenWindow { at: None })?;
    agents.call(Role::Sender, OpenWindow { at: None })?;
    let begin = now_seconds();
    let timeout = agents.timeout(DRAIN).as_secs_f64();
    agents.call_within(Role::Sender, AwaitWindow { timeout }, LONGEST)?;
    agents.send_both(|_| CloseWindow { at: None })?;
    collect(remotes, begin).map(|(result, _)| result)
}

/// Collects the window that just ended from both agents, and when each was open by its host's
/// clock.
fn collect(remotes: &mut Remotes, begin: f64) -> Result<(WindowResult, [[u64; 2]; 2]), Fault> {
    let span = TimeSpan { begin, length: (now_seconds() - begin).max(0.0) };
    let mut result = WindowResult { spans: vec![span], ..WindowResult::default() };
    let mut edges_of = [[0; 2]; 2];
    let apart = remotes.properties.hosts_apart;
    // Machine-scoped readings refer to the agent's own host if the hosts are separate.
    let at = |scope: Scope, role| if apart { scope.at_host(role) } else { scope };
    let windows = remotes.agents.receive_both::<CloseWindow>()?;
    for (role, window) in Role::ALL.into_iter().zip(windows) {
        let WindowRecord { readings, series, threads, warnings, edges } = window;
        let readings = readings.into_iter();
        result.readings.extend(readings.map(|r| Reading { scope: at(r.scope, role), ..r }));
        let series = series.into_iter();
        result.series.extend(series.map(|s| Series { scope: at(s.scope, role), ..s }));
        result.threads[role as usize] = threads;
        result.warnings.extend(warnings.into_iter().map(|w| format!("{role}: {w}")));
        edges_of[role as usize] = edges;
    }
    Ok((result, edges_of))
}

/// A meter of the whole machine runs at the receiver alone if the hosts share one; otherwise
/// (`apart`) at both ends.
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

/// Sets count and window of a workload that ended by itself: everything that arrived, in the time
/// that the sender took.
fn take_sender_window(trial: &mut Trial) -> Result<(), Fault> {
    let [sender, receiver] = trial.roles.as_mut_slice() else { return Ok(()) };
    receiver.window = sender.window;
    receiver.count = trial.hops.map_or(receiver.count, |hops| hops.received);
    (trial.window, trial.count) = (receiver.window, receiver.count);
    let opened = trial.window > 0.0;
    if opened { Ok(()) } else { Err(Fault::failed("the generator's window never opened")) }
}

/// Reconciles the two ends: their byte counts must agree, and the witness
/// page has the last word on the sender's ledger, unless it went by a wire.
fn reconcile(
    trial: &mut Trial,
    workload: &Workload,
    witness: Option<ProvenWitness>,
    has_cable: bool,
) -> Result<(), Fault> {
    let [sender, receiver] = trial.roles.as_mut_slice() else {
        return Err(Fault::failed("a role has no record"));
    };
    (workload.settle)([&*sender, &*receiver], trial.hops.as_ref(), &trial.readings)?;
    sender.witness = witness.filter(|_| !has_cable);
    sender.ledger = match has_cable {
        true => workload::untested(&sender.ledger),
        false => workload::after_witness(&sender.ledger, witness),
    };
    trial.label = workload::label(trial.work, &sender.ledger, &receiver.ledger);
    let counts = match workload.work.counted_by() {
        Role::Sender => &mut *sender,
        Role::Receiver => &mut *receiver,
    };
    (trial.window, trial.count) = (counts.window, counts.count);
    if let Some(rate) = workload::both_ways(&trial.readings) {
        trial.count = (rate * trial.window) as u64;
    }
    trial.latency = counts.latency.take();
    for RoleRecord { role, notes, .. } in [&*sender, &*receiver] {
        trial.warnings.extend(notes.iter().map(|note| format!("{role}: {note}")));
    }
    Ok(())
}

/// Compares the measured window with the requested one. An engine notices the edges between two
/// calls, so a long call there makes the window longer: the rate is still true, but of another
/// window than requested, which is reported.
fn check_window(trial: &mut Trial, counted: Role, schedule: &Schedule) -> Result<(), Fault> {
    let (actor, seen, whole) = (trial.work.actor(counted), trial.window, schedule.window);
    if seen <= 0.0 {
        let text = format!("the {actor} did not see the window start and end: nothing moved");
        return Err(Fault::failed(text));
    }
    if seen < 0.5 * whole {
        let text = format!("the {actor} saw only {seen:.2} s of the {whole:.2} s window");
        return Err(Fault::failed(format!("{text}: nothing moved")));
    }
    // The count is all that moved in the requested window, so the idle rest is part of it.
    if seen < 0.8 * whole {
        trial.window = whole;
        let still = whole - seen;
        trial.warnings.push(format!("nothing moved for {still:.2} s of the {whole:.2} s window"));
    } else if (seen - whole).abs() > 0.1 * whole {
        trial.warnings.push(format!(
            "the window was {seen:.2} s long instead of {whole:.2} s: a call was in progress at its edge"
        ));
    }
    Ok(())
}

/// Converts seconds to a duration; zero if they are out of range.
pub(super) fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}

/// Returns seconds since the Unix epoch.
fn now_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// Meter results of both agents.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WindowResult {
    pub readings: Vec<Reading>,
    pub series: Vec<Series>,
    /// Thread times, in the order of `Role::ALL`.
    pub threads: [Vec<ThreadTime>; 2],
    /// Warnings for the report.
    pub warnings: Vec<String>,
    /// When the window was open.
    pub spans: Vec<TimeSpan>,
    /// How far the windows of both ends were apart.
    pub apart: Apart,
}

impl WindowResult {
    /// Returns the work per second of all flows as it arrived; `None` if no meter counted it.
    pub(super) fn rate(&self) -> Option<f64> {
        let of_flow = |reading: &&Reading| {
            reading.metric == "throughput.flow"
                && matches!(reading.scope, Scope::Flow(Role::Receiver, _))
        };
        self.readings.iter().filter(of_flow).map(|reading| reading.value).reduce(|a, b| a + b)
    }

    /// Merges all windows of a trial: readings are combined by their `Aggregation`, series
    /// are concatenated. (Latency needs none of this: its histogram continues from window to
    /// window in the engine.)
    pub(super) fn merge(windows: Vec<WindowResult>) -> WindowResult {
        let mut sum = WindowResult::default();
        let mut readings = Vec::new();
        for window in windows {
            sum.spans.extend(window.spans);
            sum.apart.add(window.apart);
            readings.extend(window.readings);
            for series in window.series {
                let same = |a: &Series, b: &Series| {
                    (&a.metric, &a.scope, a.step) == (&b.metric, &b.scope, b.step)
                };
                add(&mut sum.series, series, same, |known, more| known.values.extend(more.values));
            }
            for (all, some) in sum.threads.iter_mut().zip(window.threads) {
                let same = |a: &ThreadTime, b: &ThreadTime| (a.tid, &a.name) == (b.tid, &b.name);
                some.into_iter().for_each(|thread| add(all, thread, same, add_thread));
            }
            for warning in window.warnings {
                let kind = without_digits(&warning);
                if !sum.warnings.iter().any(|known| without_digits(known) == kind) {
                    sum.warnings.push(warning);
                }
            }
        }
        sum.readings = Reading::combined(readings);
        sum
    }
}

/// Combines an item with the matching one, or appends it.
fn add<T>(all: &mut Vec<T>, item: T, is_same: fn(&T, &T) -> bool, combine: fn(&mut T, T)) {
    match all.iter_mut().find(|known| is_same(known, &item)) {
        Some(known) => combine(known, item),
        None => all.push(item),
    }
}

fn add_thread(known: &mut ThreadTime, thread: ThreadTime) {
    known.run += thread.run;
    known.wait += thread.wait;
    known.user += thread.user;
    known.system += thread.system;
    known.voluntary += thread.voluntary;
    known.involuntary += thread.involuntary;
}

fn without_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{CellId, Scope, Unit};

    fn window(busy: f64, rtt: f64, warning: &str) -> WindowResult {
        let cpu = || Scope::Cpu(0);
        WindowResult {
            readings: vec![
                Reading::sum("cpu.busy", Unit::Seconds, busy, cpu()),
                Reading::mean("tcp.rtt", Unit::Seconds, rtt, cpu()),
                Reading::min("tcp.min_rtt", Unit::Seconds, rtt / 2.0, cpu()),
            ],
            warnings: vec![warning.into()],
            ..Default::default()
        }
    }

    #[test]
    fn readings_merge_by_their_aggregation() {
        let merged =
            WindowResult::merge(vec![window(0.2, 4.0, "CPU 0 1 %"), window(0.1, 2.0, "CPU 1 3 %")]);
        let values: Vec<f64> = merged.readings.iter().map(|r| r.value).collect();
        assert!((values[0] - 0.3).abs() < 1e-12 && values[1..] == [3.0, 1.0], "{values:?}");
        assert_eq!(merged.warnings, ["CPU 0 1 %"]);
        assert_eq!(WindowResult::merge(Vec::new()), WindowResult::default());
    }

    #[test]
    fn a_window_in_which_nothing_moved_for_a_while_is_counted_whole() {
        let schedule = Schedule::trials(1, 0.0, 2.0);
        let judge = |window: f64| {
            let mut trial = Trial { window, count: 1000, ..Trial::blank(CellId("a".into()), 0, 0) };
            let result = check_window(&mut trial, Role::Receiver, &schedule);
            (result.is_ok(), trial.window, trial.warnings)
        };
        assert_eq!(judge(2.0), (true, 2.0, Vec::new()));
        let (counts, window, warnings) = judge(1.39);
        assert_eq!((counts, window), (true, 2.0));
        assert_eq!(warnings, ["nothing moved for 0.61 s of the 2.00 s window"]);
        assert!(!judge(0.9).0 && !judge(0.0).0);
        assert!(judge(2.5).2[0].contains("a call was in progress at its edge"));
    }
}
