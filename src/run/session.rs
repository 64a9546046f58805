//! One stream as an agent sees it: its connections, engines and meters.

use super::agent::Event;
use super::engine::{Assignment, Ended, Engine, FlowEnd};
use crate::meter::{self, Capture, Context, Meter, Output, Prepared, Running, ThreadTag};
use crate::path::{self, DataPath};
use crate::record::wire::{Reply, Token};
use crate::record::{
    Cell, Fault, FaultKind, Ledger, Power, Reading, Role, RoleRecord, Sampling, Scope, Unit,
};
use crate::sys::tcp::FlowOptions;
use crate::sys::{Roots, clock, tcp};
use crate::workload::{Gate, Phase, Progress};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// How long the peer may take to connect and to show its token.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long an engine may take to notice the end of a window.
const NOTICE: Duration = Duration::from_millis(250);

/// A stream in one of its states, from listening to finished.
pub(super) struct Session {
    cell: Arc<Cell>,
    role: Role,
    path: &'static dyn DataPath,
    listener: Option<(TcpListener, Token)>,
    gate: Arc<Gate>,
    progress: Arc<Vec<Arc<Progress>>>,
    sockets: Arc<Vec<OwnedFd>>,
    engines: Vec<Engine>,
    ends: Vec<Option<Result<FlowEnd, Fault>>>,
    meters: Vec<&'static dyn Meter>,
    device: Option<String>,
    last_look: meter::LastLook,
    sampling: Option<Sampling>,
    power: Power,
    prepared: Vec<(&'static str, Box<dyn Prepared>)>,
    running: Vec<(&'static str, Box<dyn Running>)>,
    costs: Vec<Reading>,
    capture: Option<Box<Capture>>,
}

impl Session {
    /// Receiver: listens for the cell's flows.
    pub fn listen(
        paths: &[&'static dyn DataPath],
        cell: Cell,
        address: IpAddr,
        token: Token,
    ) -> Result<Self, Fault> {
        let listener = tcp::listen(address, cell.stream.flows, &flow_options(&cell))
            .map_err(|e| socket_fault("listen", &cell, &e))?;
        let mut session = Session::new(paths, cell, Role::Receiver)?;
        session.listener = Some((listener, token));
        Ok(session)
    }

    /// The port it listens on.
    pub fn port(&self) -> Result<u16, Fault> {
        let (listener, _) = self.listener.as_ref().ok_or_else(|| wrong_state("not listening"))?;
        let address = listener.local_addr();
        Ok(address.map_err(|e| Fault::system("cannot read the port", &e))?.port())
    }

    /// Sender: connects all flows, opens the path, sends the witness page.
    pub fn connect(
        paths: &[&'static dyn DataPath],
        cell: Cell,
        peer: SocketAddr,
        token: &Token,
        events: Sender<Event>,
    ) -> Result<Self, Fault> {
        let mut sockets = Vec::new();
        for index in 0..cell.stream.flows {
            let mut socket = tcp::connect(peer, &flow_options(&cell))
                .map_err(|e| socket_fault(&format!("connect to {peer}"), &cell, &e))?;
            socket
                .write_all(&hello(token, index))
                .map_err(|e| Fault::system("cannot show the token to the receiver", &e))?;
            sockets.push(socket);
        }
        let mut session = Session::new(paths, cell, Role::Sender)?;
        session.open(sockets, events)?;
        Ok(session)
    }

    /// Receiver: takes the connections that show the token and opens the path.
    pub fn accept(&mut self, events: Sender<Event>) -> Result<(), Fault> {
        let (listener, token) = self.listener.take().ok_or_else(|| wrong_state("not listening"))?;
        let sockets = accept_all(&listener, &token, self.cell.stream.flows)?;
        self.open(sockets, events)
    }

    fn new(paths: &[&'static dyn DataPath], cell: Cell, role: Role) -> Result<Self, Fault> {
        let name = &cell.half(role).path;
        let path = path::find(paths, name)
            .ok_or_else(|| Fault::new(FaultKind::Usage, format!("there is no path '{name}'")))?;
        let flows = cell.stream.flows as usize;
        Ok(Session {
            cell: Arc::new(cell),
            role,
            path,
            listener: None,
            gate: Arc::default(),
            progress: Arc::new((0..flows).map(|_| Arc::default()).collect()),
            sockets: Arc::default(),
            engines: Vec::new(),
            ends: (0..flows).map(|_| None).collect(),
            meters: Vec::new(),
            device: None,
            last_look: meter::LastLook::default(),
            sampling: None,
            power: Power::default(),
            prepared: Vec::new(),
            running: Vec::new(),
            costs: Vec::new(),
            capture: None,
        })
    }

    fn open(&mut self, sockets: Vec<TcpStream>, events: Sender<Event>) -> Result<(), Fault> {
        let mut kept = Vec::new();
        for (index, socket) in sockets.into_iter().enumerate() {
            let duplicate = socket.try_clone();
            kept.push(
                duplicate.map_err(|e| Fault::system("cannot duplicate a socket", &e))?.into(),
            );
            self.engines.push(Engine::open(Assignment {
                path: self.path,
                role: self.role,
                cell: self.cell.clone(),
                index: index as u32,
                socket,
                gate: self.gate.clone(),
                progress: self.progress[index].clone(),
                events: events.clone(),
            })?);
        }
        self.sockets = Arc::new(kept);
        Ok(())
    }

    /// Gets the meters ready and lets the bytes flow.
    pub fn start(
        &mut self,
        meters: Vec<&'static dyn Meter>,
        device: Option<String>,
        (sampling, power): (Option<Sampling>, Power),
    ) -> Result<(), Fault> {
        let detailed = meters.iter().any(|meter| meter.reach() == meter::Reach::Engine);
        self.meters = meters;
        self.device = device;
        self.sampling = sampling;
        self.power = power;
        let context = self.context();
        for meter in &self.meters {
            let prepared = meter.prepare(&context);
            let prepared = prepared.map_err(|fault| cannot_start(*meter, fault))?;
            self.prepared.extend(prepared.map(|ready| (meter.name(), ready)));
        }
        for engine in &self.engines {
            engine.start(detailed);
        }
        Ok(())
    }

    /// Holds the sender, or lets it go on without counting.
    pub fn pace(&self, hold: bool) {
        self.gate.set(if hold { Phase::Hold } else { Phase::WarmUp });
    }

    /// Starts the meters, then the window.
    pub fn window_begin(&mut self) -> Result<(), Fault> {
        let context = self.context();
        for meter in &self.meters {
            let begin = Instant::now();
            let ready = self.prepared.iter().position(|(name, _)| *name == meter.name());
            let running = match ready {
                Some(at) => self.prepared.swap_remove(at).1.start(),
                None => meter.start(&context),
            };
            let running = running.map_err(|fault| cannot_start(*meter, fault))?;
            self.running.push((meter.name(), running));
            self.costs.push(cost(self.role, meter.name(), begin.elapsed()));
        }
        self.gate.set(Phase::Window);
        Ok(())
    }

    /// Ends the window, then the meters.
    pub fn window_end(&mut self) -> Result<Reply, Fault> {
        self.gate.set(Phase::Drain);
        let mut sum = Output::default();
        for (name, running) in std::mem::take(&mut self.running) {
            let begin = Instant::now();
            let output =
                running.stop().map_err(|fault| fault.context(format!("meter {name} failed")))?;
            sum.readings.extend(output.readings);
            sum.series.extend(output.series);
            sum.threads.extend(output.threads);
            sum.warnings.extend(output.warnings);
            self.capture = output.capture.or(self.capture.take());
            self.costs.push(cost(self.role, name, begin.elapsed()));
        }
        self.await_notice(Phase::Drain);
        sum.readings.extend(add_up(std::mem::take(&mut self.costs)));
        Ok(Reply::Window {
            readings: sum.readings,
            series: sum.series,
            threads: sum.threads,
            warnings: sum.warnings,
        })
    }

    /// What was sampled in the last window, once.
    pub fn take_capture(&mut self) -> Option<Box<Capture>> {
        self.capture.take()
    }

    /// Waits until every engine has noticed the end of its window. An engine
    /// looks when bytes come, so the sender must not be held before that: a
    /// window that ends in silence would last until the next slice. A stream
    /// that stands still is not waited for; the length of its window shows it.
    fn await_notice(&self, phase: Phase) {
        let deadline = Instant::now() + NOTICE;
        let noticed = || self.progress.iter().all(|flow| flow.has_noticed(phase));
        while !noticed() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Sender: ends the stream.
    pub fn stop(&self) {
        self.gate.set(Phase::Stop);
    }

    /// Called every [`meter::TICK`].
    pub fn tick(&mut self) {
        for (_, running) in &mut self.running {
            running.tick();
        }
    }

    /// An engine has returned. A fault if it was not meant to yet.
    pub fn ended(&mut self, ended: Ended) -> Option<Fault> {
        let early = !matches!(self.gate.phase(), Phase::Drain | Phase::Stop);
        let fault = match &ended.result {
            Err(fault) => Some(fault.clone()),
            Ok(_) if early => Some(Fault::new(
                FaultKind::PeerLost,
                format!("the {}'s stream ended before the window did", self.role),
            )),
            Ok(_) => None,
        };
        self.record_end(ended);
        fault
    }

    /// Notes how an engine ended.
    pub fn record_end(&mut self, ended: Ended) {
        if let Some(slot) = self.ends.get_mut(ended.flow as usize) {
            *slot = Some(ended.result);
        }
    }

    /// True when no engine runs any more.
    pub fn all_ended(&self) -> bool {
        self.ends.iter().all(Option::is_some)
    }

    /// Cuts all connections, so that every engine returns.
    pub fn cut(&self) {
        for socket in self.sockets.iter() {
            let _ = tcp::shutdown(socket.as_fd(), Shutdown::Both);
        }
    }

    /// The record of this role, once all engines have returned.
    pub fn finish(&mut self) -> Result<Reply, Fault> {
        let mut ledger = Ledger::default();
        let mut notes: Vec<String> = Vec::new();
        let mut readings = Vec::new();
        let mut witness = None;
        let mut sum = None;
        for end in self.ends.iter_mut().map(Option::take) {
            let end = end.ok_or_else(|| wrong_state("an engine still runs"))??;
            ledger.add(&end.account.ledger);
            notes.extend(end.account.notes);
            readings.extend(end.account.readings);
            witness = witness.or(end.witness);
            match &mut sum {
                None => sum = Some(end.tally),
                Some(sum) => sum.add(&end.tally),
            }
        }
        let tally = sum.ok_or_else(|| wrong_state("there are no flows"))?;
        let tick = clock::tick_seconds();
        let names = self.engines.first().map_or(&[][..], |engine| engine.calls);
        let calls = names
            .iter()
            .zip(&tally.calls)
            .map(|(name, stats)| stats.row(name, tick))
            .filter(|row| row.calls > 0)
            .collect();
        let record = RoleRecord {
            role: self.role,
            total_bytes: tally.total,
            count: tally.window_bytes,
            window: tally.window_ticks as f64 * tick,
            ledger,
            calls,
            sizes: tally.size_distribution(),
            fragments: (tally.fragments.calls > 0).then_some(tally.fragments),
            latency: None,
            threads: Vec::new(),
            witness: None,
            notes,
        };
        Ok(Reply::Finished { record: Box::new(record), witness, readings })
    }

    fn context(&self) -> Context {
        let progress = self.progress.clone();
        let threads = self.engines.iter().enumerate().map(|(index, engine)| ThreadTag {
            tid: engine.tid,
            name: format!("{}/{index}", self.role),
        });
        Context {
            roots: Roots::real(),
            role: self.role,
            threads: threads.collect(),
            flows: self.sockets.clone(),
            moved: Arc::new(move |flow| progress.get(flow as usize).map_or(0, |p| p.total())),
            device: self.device.clone(),
            last_look: self.last_look.clone(),
            sampling: self.sampling.clone(),
            power: self.power.clone(),
        }
    }
}

fn cannot_start(meter: &dyn Meter, fault: Fault) -> Fault {
    fault.context(format!("meter {} cannot start", meter.name()))
}

fn flow_options(cell: &Cell) -> FlowOptions {
    FlowOptions {
        send_buffer: cell.stream.send_buffer,
        receive_buffer: cell.stream.receive_buffer,
        congestion: Some(cell.stream.congestion.clone()),
    }
}

fn socket_fault(what: &str, cell: &Cell, error: &std::io::Error) -> Fault {
    let fault = Fault::system(format!("cannot {what}"), error);
    match error.raw_os_error() {
        Some(libc::ENOENT) => Fault::new(
            FaultKind::Unsupported,
            format!("this kernel has no congestion control '{}'", cell.stream.congestion),
        )
        .remedy("sysctl net.ipv4.tcp_available_congestion_control lists what it has"),
        Some(libc::EPERM) => {
            fault.remedy("is the congestion control in net.ipv4.tcp_allowed_congestion_control?")
        }
        _ => fault,
    }
}

/// What a connection shows first: the token's digits and its flow's index.
fn hello(token: &Token, index: u32) -> Vec<u8> {
    let mut bytes = token.0.clone().into_bytes();
    bytes.extend(index.to_le_bytes());
    bytes
}

/// Takes connections until every flow has shown the token; any other
/// connection is closed and forgotten.
fn accept_all(listener: &TcpListener, token: &Token, flows: u32) -> Result<Vec<TcpStream>, Fault> {
    let mut sockets: Vec<Option<TcpStream>> = (0..flows).map(|_| None).collect();
    let deadline = Instant::now() + HANDSHAKE;
    while sockets.iter().any(Option::is_none) {
        let socket = accept_one(listener, deadline)?;
        if let Some(index) = shown_index(&socket, token, deadline)
            && let Some(slot @ None) = sockets.get_mut(index as usize)
        {
            *slot = Some(socket);
        }
    }
    Ok(sockets.into_iter().flatten().collect())
}

fn accept_one(listener: &TcpListener, deadline: Instant) -> Result<TcpStream, Fault> {
    let left = deadline.saturating_duration_since(Instant::now());
    match tcp::wait_readable(listener.as_fd(), left) {
        Ok(true) => {}
        Ok(false) => {
            return Err(Fault::new(FaultKind::PeerLost, "the sender did not connect in time"));
        }
        Err(e) => return Err(Fault::system("cannot wait for the sender", &e)),
    }
    let accepted = listener.accept().map_err(|e| Fault::system("cannot accept the sender", &e))?;
    Ok(accepted.0)
}

fn shown_index(mut socket: &TcpStream, token: &Token, deadline: Instant) -> Option<u32> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    socket.set_read_timeout(Some(left)).ok()?;
    let mut shown = vec![0; token.0.len() + 4];
    socket.read_exact(&mut shown).ok()?;
    socket.set_read_timeout(None).ok()?;
    let (secret, index) = shown.split_at(token.0.len());
    (secret == token.0.as_bytes())
        .then(|| u32::from_le_bytes(index.try_into().expect("four bytes")))
}

fn cost(role: Role, meter: &str, time: Duration) -> Reading {
    Reading::sum(format!("cost.{meter}"), Unit::Seconds, time.as_secs_f64(), Scope::Role(role))
}

/// Adds up the readings of one metric.
fn add_up(readings: Vec<Reading>) -> Vec<Reading> {
    let mut sums: Vec<Reading> = Vec::new();
    for reading in readings {
        match sums.iter_mut().find(|sum| sum.metric == reading.metric) {
            Some(sum) => sum.value += reading.value,
            None => sums.push(reading),
        }
    }
    sums
}

fn wrong_state(what: &str) -> Fault {
    Fault::new(FaultKind::System, format!("controller and agent are out of step: {what}"))
}
