//! One session as an agent sees it: its connections, engines and meters.

use super::encryption::Encryption;
use super::engine::{Assignment, Engine, EngineResult, Event, Halves};
use super::pauses::Pauses;
use bytepath_engine::connection::{Connection, Listener, Terms, Transport, limits};
use bytepath_engine::path::{self, DataPath, FixedQueues};
use bytepath_engine::workload::{
    self, Account, Detail, Direction, Gate, Group, HalfConfig, Phase, Progress, Shares,
};
use bytepath_meter::{
    self as meter, Capture, Chosen, Context, Meter, Prepared, Running, ThreadTag,
};
use bytepath_record::wire::{Connect, Listen, RoleEnd, Secret, Token, WindowRecord};
use bytepath_record::{
    Cell, Fault, Ledger, Protocol, Reading, Role, RoleRecord, Scope, ThreadCalls, Tls, Unit, Work,
    grouped,
};
use bytepath_stats::{ENGINE_RUN, PAUSED};
use bytepath_sys::{Roots, clock, process};
use serde_json::Value;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// How long an engine may take to notice the end of a window.
const NOTICE: Duration = Duration::from_millis(250);

/// Time that meters are assumed to need before a window opens, until it was measured.
const STARTING: Duration = Duration::from_millis(3);

/// Meters read the state of at most this many connections, the first ones.
const MOST_WATCHED: usize = 256;

/// A session in one of its states, from listening to finished.
pub(super) struct Session {
    cell: Arc<Cell>,
    role: Role,
    halves: Halves,
    listener: Option<(Listener, Token)>,
    secret: Option<Secret>,
    /// Counters of the kernel's TLS, if the kernel encrypts.
    encryption: Option<Encryption>,
    gate: Arc<Gate>,
    progress: Arc<Vec<Arc<Progress>>>,
    /// Number of connections that last as long as the session.
    lasting: u32,
    connections: Vec<Arc<dyn Connection>>,
    /// The kernel's sockets among the connections, for meters.
    sockets: Arc<Vec<OwnedFd>>,
    engines: Vec<Engine>,
    /// Those of each thread whose ring has some.
    fixed_queues: Vec<FixedQueues>,
    ends: Vec<Option<EngineResult>>,
    meters: Vec<Chosen>,
    /// The network devices of the link at this end.
    devices: Vec<String>,
    /// Whether this is the only role on the host.
    alone: bool,
    /// Process ID of the qemu that runs the peer, if the peer is a guest of this host.
    qemu: Option<u32>,
    last_look: meter::PreviousSnapshot,
    memory_traffic: meter::SessionTraffic,
    prepared: Vec<(&'static str, Prepared)>,
    running: Vec<(&'static str, Box<dyn Running>)>,
    /// Time that starting or stopping each meter took.
    costs: Vec<(&'static str, Duration)>,
    /// Samples of the last window.
    pub capture: Option<Box<Capture>>,
    /// When the last window was opened, by [`clock::monotonic`].
    opened: u64,
    /// Time that meters need before a window opens.
    starting: Duration,
    /// While a window is open.
    pauses: Option<Pauses>,
}

impl Session {
    /// Receiver: listens for the cell's flows. `queues` are those of the tap, if the link has one.
    pub(super) fn listen(
        paths: &[&'static DataPath],
        call: Listen,
        queues: &[Arc<OwnedFd>],
    ) -> Result<Self, Fault> {
        let mut session =
            Session::new(paths, *call.cell, Role::Receiver, call.devices, call.secret)?;
        let terms = Terms { ports: call.ports, queues, ..session.terms() };
        let listener = (session.transport()?.listen)(call.address, &terms)?;
        session.listener = Some((listener, call.token));
        Ok(session)
    }

    pub(super) fn address(&self) -> Result<SocketAddr, Fault> {
        let listener = self.listener.as_ref().ok_or_else(|| protocol_error("not listening"))?;
        Ok(listener.0.address)
    }

    /// Sender: connects all flows to a peer, opens the path and sends the witness page.
    pub(super) fn connect(
        paths: &[&'static DataPath],
        call: Connect,
        events: Sender<Event>,
    ) -> Result<Self, Fault> {
        let Connect { cell, peers, devices, token, ports, secret } = call;
        let mut session = Session::new(paths, *cell, Role::Sender, devices, secret)?;
        let (transport, terms) = (session.transport()?, Terms { ports, ..session.terms() });
        let connections = (transport.connect)(&peers, &terms, &token, session.lasting)?;
        session.open(connections, events)?;
        Ok(session)
    }

    /// Receiver: accepts the connections that send the token, and opens the path.
    pub(super) fn accept(&mut self, events: Sender<Event>) -> Result<(), Fault> {
        let (listener, token) =
            self.listener.take().ok_or_else(|| protocol_error("not listening"))?;
        let connections = listener.accept(&token, self.lasting)?;
        // This frees the port for a listening socket of the workload.
        drop(listener);
        self.open(connections, events)
    }

    fn new(
        paths: &[&'static DataPath],
        cell: Cell,
        role: Role,
        devices: Vec<String>,
        secret: Option<Secret>,
    ) -> Result<Self, Fault> {
        // Computed from the paths of both ends: the cell for one end may name only that end's.
        let workload = workload::of(&cell)?;
        let (lasting, files) = (workload.lasting(&cell), workload.most_open(&cell, role));
        let cell = path::cell_for_end(paths, &cell, role);
        let find = |role: Role| {
            let name = &cell.half(role).path;
            path::find(paths, name)
                .ok_or_else(|| Fault::usage(format!("there is no path '{name}'")))
        };
        let halves = Halves { workload, tx: find(Role::Sender)?, rx: find(Role::Receiver)? };
        path::suits_workload(halves.workload, halves.tx)?;
        if let Some(files) = limits::files(files) {
            process::allow_files(files).map_err(|e| {
                Fault::system(format!("cannot be allowed {files} open files"), &e)
                    .remedy("raise 'ulimit -Hn' (RLIMIT_NOFILE), or choose fewer flows")
            })?;
        }
        let by_kernel = cell.stream.tls == Tls::Kernel;
        Ok(Session {
            encryption: by_kernel.then(Encryption::before).transpose()?,
            secret,
            cell: Arc::new(cell),
            role,
            halves,
            listener: None,
            gate: Arc::default(),
            progress: Arc::default(),
            lasting,
            connections: Vec::new(),
            sockets: Arc::default(),
            engines: Vec::new(),
            fixed_queues: Vec::new(),
            ends: Vec::new(),
            meters: Vec::new(),
            devices,
            alone: false,
            qemu: None,
            last_look: meter::PreviousSnapshot::default(),
            memory_traffic: meter::SessionTraffic::default(),
            prepared: Vec::new(),
            running: Vec::new(),
            costs: Vec::new(),
            capture: None,
            opened: 0,
            starting: STARTING,
            pauses: None,
        })
    }

    fn transport(&self) -> Result<&'static Transport, Fault> {
        let Halves { workload, tx, rx } = self.halves;
        path::transport(workload, &self.cell, self.role, [tx, rx])
    }

    fn terms(&self) -> Terms<'_> {
        let (contract, link) = (&self.cell.stream, &self.cell.link);
        let (device, options) =
            (self.devices.first().map(String::as_str), &self.cell.half(self.role).options);
        let secret = self.secret.as_ref();
        Terms { contract, link, device, ports: None, queues: &[], options, secret }
    }

    fn open(
        &mut self,
        connections: Vec<Arc<dyn Connection>>,
        events: Sender<Event>,
    ) -> Result<(), Fault> {
        if let Some(encryption) = &mut self.encryption {
            encryption.begun()?;
        }
        let groups: [Arc<Group>; 2] = Default::default();
        let threads = self.deal(&connections);
        // Sized by the threads, because a transport whose flows end in a device accepts no
        // connections.
        self.progress = Arc::new(threads.iter().map(|_| Arc::default()).collect());
        self.ends = threads.iter().map(|_| None).collect();
        for (index, dealt) in threads.into_iter().enumerate() {
            self.engines.push(Engine::open(Assignment {
                halves: self.halves,
                role: self.role,
                cell: self.cell.clone(),
                connections: dealt.clone(),
                all: connections.len(),
                groups: groups.clone(),
                gate: self.gate.clone(),
                progress: self.progress[index].clone(),
                events: events.clone(),
            })?);
            let fixed = self.jobs().find_map(|job| FixedQueues::of(&job.options, &dealt));
            self.fixed_queues.extend(fixed);
        }
        // If the workload opens new connections, the state of those opened first is of no interest.
        let of_interest = if self.halves.workload.reconnects { 0 } else { MOST_WATCHED };
        let sockets = connections.iter().filter_map(|connection| connection.socket());
        let sockets = sockets.take(of_interest);
        let sockets = sockets.map(|socket| socket.try_clone_to_owned()).collect::<Result<_, _>>();
        let sockets = sockets.map_err(|e| Fault::system("cannot duplicate a socket", &e))?;
        (self.connections, self.sockets) = (connections, Arc::new(sockets));
        Ok(())
    }

    /// Distributes the connections over threads: one each, or those of an event loop.
    fn deal(&self, connections: &[Arc<dyn Connection>]) -> Vec<Vec<Arc<dyn Connection>>> {
        let threads = match self.halves.tx.loop_of(self.halves.workload) {
            Some(_) => connections.len().min(self.cell.threads(self.role) as usize),
            None => connections.len(),
        };
        let mut dealt = vec![Vec::new(); threads];
        for (index, connection) in connections.iter().enumerate() {
            dealt[index % threads].push(connection.clone());
        }
        dealt
    }

    /// Prepares the meters and starts the engines.
    pub(super) fn start(
        &mut self,
        meters: Vec<Chosen>,
        alone: bool,
        qemu: Option<u32>,
    ) -> Result<(), Fault> {
        (self.alone, self.qemu) = (alone, qemu);
        let requested = |name| meters.iter().any(|chosen| chosen.meter.name == name);
        let detail =
            Detail { calls: requested(meter::SYSCALLS.name), sizes: requested(meter::SIZES.name) };
        self.meters = meters;
        let mut context = self.context();
        for Chosen { meter, options, .. } in &self.meters {
            context.options.clone_from(options);
            let prepared = (meter.prepare)(&context);
            let prepared = prepared.map_err(|fault| cannot_start(meter, fault))?;
            self.prepared.extend(prepared.map(|ready| (meter.name, ready)));
        }
        for engine in &self.engines {
            engine.start(detail);
        }
        Ok(())
    }

    /// Holds the sender, or lets it continue without counting.
    pub(super) fn pace(&self, hold: bool) {
        self.gate.set(if hold { Phase::Hold } else { Phase::WarmUp });
    }

    /// Starts the meters in reverse order, then the window, so that the readings of the first
    /// meters are closest to it. Returns the CLOCK_MONOTONIC time at which the window opened, in
    /// ns.
    pub(super) fn window_begin(&mut self) -> Result<u64, Fault> {
        let begun = Instant::now();
        let mut context = self.context();
        for Chosen { meter, options, .. } in self.meters.iter().rev() {
            context.options.clone_from(options);
            let begin = Instant::now();
            let ready = self.prepared.iter().position(|(name, _)| *name == meter.name);
            let running = match ready {
                Some(at) => (self.prepared.swap_remove(at).1)(),
                None => (meter.start)(&context),
            };
            let running = running.map_err(|fault| cannot_start(meter, fault))?;
            self.running.push((meter.name, running));
            self.costs.push((meter.name, begin.elapsed()));
        }
        self.pauses = Some(Pauses::begin());
        self.gate.set(Phase::Window);
        self.opened = clock::monotonic();
        // Averaged, so that a single delayed start does not determine the next one.
        self.starting = (self.starting + begun.elapsed()) / 2;
        Ok(self.opened)
    }

    /// Returns when to begin so that the window opens at `opens`, both in ns of CLOCK_MONOTONIC.
    pub(super) fn begin_for(&self, opens: u64) -> u64 {
        opens.saturating_sub(self.starting.as_nanos() as u64)
    }

    /// Ends the window, then the meters, in their order.
    pub(super) fn window_end(&mut self) -> Result<WindowRecord, Fault> {
        self.gate.set(Phase::Drain);
        let edges = [self.opened, clock::monotonic()];
        let mut window = WindowRecord { edges, ..WindowRecord::default() };
        let paused = self.pauses.take().map(Pauses::end).unwrap_or_default().as_secs_f64();
        if paused > 0.0 {
            let scope = Scope::Role(self.role);
            window.readings.push(Reading::sum(PAUSED, Unit::Seconds, paused, scope));
        }
        for (name, running) in std::mem::take(&mut self.running).into_iter().rev() {
            let begin = Instant::now();
            let output =
                running.stop().map_err(|fault| fault.context(format!("meter {name} failed")))?;
            window.readings.extend(output.readings);
            window.series.extend(output.series);
            window.threads.extend(output.threads);
            window.warnings.extend(output.warnings);
            self.capture = output.capture.or(self.capture.take());
            self.costs.push((name, begin.elapsed()));
        }
        self.await_notice(Phase::Drain);
        let cost = |(meter, times): (&str, Vec<Duration>)| {
            let seconds = times.iter().sum::<Duration>().as_secs_f64();
            Reading::sum(format!("cost.{meter}"), Unit::Seconds, seconds, Scope::Role(self.role))
        };
        window.readings.extend(grouped(self.costs.drain(..)).into_iter().map(cost));
        Ok(window)
    }

    /// Waits until every engine has noticed the end of its window. An engine checks only when bytes
    /// arrive, so the sender must not be held before that: a window without bytes after its end
    /// would last until the next slice. A stalled stream is not waited for; its window is recorded
    /// longer.
    fn await_notice(&self, phase: Phase) {
        let deadline = Instant::now() + NOTICE;
        let noticed = || self.progress.iter().all(|flow| flow.has_noticed(phase));
        while !noticed() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Returns whether every engine has closed its window, and how much all have moved so far.
    pub(super) fn is_done(&self) -> (bool, u64) {
        let done = self.progress.iter().all(|flow| flow.has_noticed(Phase::Drain));
        (done, self.progress.iter().map(|flow| flow.total()).sum())
    }

    /// Sender: ends the stream. A sink of frames: takes what is left.
    pub(super) fn stop(&self) {
        self.gate.set(Phase::Stop);
    }

    /// Called every [`meter::TICK`].
    pub(super) fn tick(&mut self) {
        self.pauses.iter_mut().for_each(Pauses::tick);
        for (_, running) in &mut self.running {
            running.tick();
        }
        self.pauses.iter_mut().for_each(Pauses::skip);
    }

    /// Records how the engine of a flow ended. Errors if it failed or ended too early.
    pub(super) fn engine_ended(&mut self, flow: u32, result: EngineResult) -> Result<(), Fault> {
        let early = !matches!(self.gate.phase(), Phase::Drain | Phase::Stop);
        let text = || format!("the {}'s stream ended before the window did", self.role);
        let fault = match &result {
            Err(fault) => Err(fault.clone()),
            Ok(_) if early => Err(Fault::peer_lost(text())),
            Ok(_) => Ok(()),
        };
        if let Some(slot) = self.ends.get_mut(flow as usize) {
            *slot = Some(result);
        }
        fault
    }

    /// True when no engine runs any more.
    pub(super) fn all_ended(&self) -> bool {
        self.ends.iter().all(Option::is_some)
    }

    /// Cuts all connections, so that every engine returns.
    pub(super) fn cut(&self) {
        self.connections.iter().for_each(|connection| connection.cut());
    }

    /// Returns the connections that must stay open until their peers have ended, too.
    pub(super) fn parting(&self) -> Vec<Arc<dyn Connection>> {
        self.connections.iter().filter(|connection| connection.answers_late()).cloned().collect()
    }

    /// Returns the record of this role, once all engines have returned.
    pub(super) fn finish(&mut self) -> Result<RoleEnd, Fault> {
        let (mut all, mut witness) = (workload::FlowEnd::default(), None);
        let mut calls_by_thread = Vec::new();
        for (index, end) in self.ends.iter_mut().map(Option::take).enumerate() {
            let (end, page) = *end.ok_or_else(|| protocol_error("an engine still runs"))??;
            witness = witness.or(page);
            let thread = thread_name(self.role, index);
            calls_by_thread.push(ThreadCalls { thread, calls: end.rows() });
            all.add(end);
        }
        let (calls, sizes) = (all.rows(), all.size_distribution());
        let workload::FlowEnd { account, bytes, window, fragments, latency, shares, .. } = all;
        let Account { mut ledger, hops, mut notes, mut readings } = account;
        readings.extend(fairness(self.role, self.halves.workload.work, &shares));
        notes.extend(workload::failures(&readings));
        notes.extend(self.jobs().find_map(|job| path::unpolled(&job.options, &self.connections)));
        notes.extend(FixedQueues::unpolled_note(&self.fixed_queues));
        let mut context = self.context();
        for Chosen { meter, options, .. } in &self.meters {
            context.options.clone_from(options);
            let output = (meter.finish)(&context);
            readings.extend(output.readings);
            notes.extend(output.warnings);
        }
        let (watched, connections) = (self.sockets.len(), self.connections.len());
        if watched == MOST_WATCHED && watched < connections {
            notes.push(format!("TCP_INFO is of {watched} of the {connections} connections"));
        }
        readings.extend(self.account_for_encryption(&mut ledger)?);
        let run = Duration::from_nanos(window.run).as_secs_f64();
        let scope = Scope::Role(self.role);
        readings.push(Reading::sum(ENGINE_RUN.to_owned(), Unit::Seconds, run, scope));
        let record = RoleRecord {
            role: self.role,
            total_bytes: bytes,
            count: window.count,
            window: window.seconds(),
            ledger,
            calls,
            calls_by_thread: ThreadCalls::select_tables(calls_by_thread),
            sizes,
            fragments: (fragments.calls > 0).then_some(fragments),
            latency,
            hops: ((self.halves.workload.protocol)(&self.cell) == Protocol::Frames).then_some(hops),
            threads: Vec::new(),
            witness: None,
            notes,
        };
        Ok(RoleEnd { record: Box::new(record), witness, readings })
    }

    /// Returns the configurations of this end's halves.
    fn jobs(&self) -> impl Iterator<Item = HalfConfig> {
        let Halves { workload, .. } = self.halves;
        let job = move |direction: &Direction| (workload.job)(&self.cell, self.role, *direction);
        (workload.halves)(self.role).iter().map(job)
    }

    /// Enters in the ledger who encrypted. Returns readings of the kernel's counters.
    fn account_for_encryption(&self, ledger: &mut Ledger) -> Result<Vec<Reading>, Fault> {
        let sends = (self.halves.workload.halves)(self.role).contains(&Direction::Send);
        if let Some(encryption) = &self.encryption {
            return encryption.ended(self.role, sends, self.connections.len(), ledger);
        }
        let by_program =
            self.cell.stream.tls == Tls::User || workload::handshake(&self.cell).is_some();
        if by_program && self.role == Role::Sender {
            ledger.mode = "TLS by the program".into();
        }
        Ok(Vec::new())
    }

    fn context(&self) -> Context {
        let progress = self.progress.clone();
        let threads = self.engines.iter().enumerate().map(|(index, engine)| ThreadTag {
            tid: engine.tid,
            name: thread_name(self.role, index),
            cpu: self.cell.placement.of_thread(self.role, index as u32),
        });
        Context {
            roots: Roots::real(),
            role: self.role,
            threads: threads.collect(),
            flows: self.sockets.clone(),
            work: self.halves.workload.work,
            moved: Arc::new(move |flow| progress.get(flow as usize).map_or(0, |p| p.total())),
            devices: self.devices.clone(),
            alone: self.alone,
            qemu: self.qemu,
            last_look: self.last_look.clone(),
            memory_traffic: self.memory_traffic.clone(),
            options: Value::Null,
        }
    }
}

/// Returns the name of an engine's thread.
fn thread_name(role: Role, index: usize) -> String {
    format!("{role}/{index}")
}

/// Returns how evenly a role's connections shared the work of the window, if there are several.
fn fairness(role: Role, work: Work, shares: &Shares) -> Vec<Reading> {
    let Some(index) = shares.fairness().filter(|_| shares.connections > 1) else {
        return Vec::new();
    };
    let scope = || Scope::Role(role);
    let unit = if work == Work::Bytes { Unit::Bytes } else { Unit::Count };
    vec![
        Reading::mean("connections.fairness", Unit::Ratio, index, scope()),
        Reading::sum("connections.least", unit, shares.least as f64, scope()),
        Reading::sum("connections.most", unit, shares.most as f64, scope()),
    ]
}

fn cannot_start(meter: &Meter, fault: Fault) -> Fault {
    fault.context(format!("meter {} cannot start", meter.name))
}

/// Returns the fault of a request that cannot arrive in this state unless controller and agent are
/// out of step.
pub(super) fn protocol_error(what: &str) -> Fault {
    Fault::failed(format!("controller and agent are out of step: {what}"))
}
