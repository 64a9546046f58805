//! Reads requests, replies to them, and watches the engines meanwhile.

use super::ceiling;
use super::engine::{EngineResult, Event};
use super::samples;
use super::session::{Session, protocol_error};
use bytepath_engine::connection::reach::{self, Meeting};
use bytepath_engine::connection::{Connection, tls};
use bytepath_engine::path::DataPath;
use bytepath_host::{self as host, LocalSteward, StewardCall, own_build};
use bytepath_meter::{self as meter, Capture, Meter};
use bytepath_profile::Work;
use bytepath_profile::attribution::Stream;
use bytepath_record::wire::{
    Call, ClockReading, HostAddress, Identity, LARGEST_PART, PackProfile, ProfileSize, Reply,
    Request, RoleEnd, SYNC, line_of, read_line,
};
use bytepath_record::{
    Bytes, Facts, Fault, LINK_DEVICE, LINK_NODE, SCHEMA_VERSION, SSH_CONNECTION,
};
use bytepath_sys::{Roots, clock, device};
use std::collections::VecDeque;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the agent checks whether a workload that ends by itself has ended.
const POLL: Duration = Duration::from_millis(5);

/// Serves one controller until its pipe closes. `paths` and `meters` are the
/// catalogues that cells may name.
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    paths: &'static [&'static DataPath],
    meters: &'static [&'static Meter],
) -> io::Result<()> {
    let (events, inbox) = channel();
    let (lines, hung_up) = (events.clone(), Arc::new(AtomicBool::new(false)));
    let output = Output(Arc::new(Mutex::new(output)));
    output.line(format!("{SYNC}\n").as_bytes())?;
    let (pongs, gone) = (output.clone(), hung_up.clone());
    let read = move || {
        read_requests(input, &lines, &pongs);
        gone.store(true, Ordering::Relaxed);
        // Fails only if the main loop has ended already.
        let _ = lines.send(Event::HungUp);
    };
    let started = std::thread::Builder::new().name("controller".into()).spawn(read);
    started.map_err(|e| io::Error::new(e.kind(), Fault::not_started("a thread", &e)))?;
    let agent = Agent {
        paths,
        meters,
        events,
        inbox,
        hung_up,
        due: VecDeque::new(),
        session: None,
        parting: Vec::new(),
        queues: Vec::new(),
        capture: None,
        packed: Vec::new(),
        steward: None,
        meeting: None,
    };
    agent.serve(&output)
}

fn read_requests(input: impl Read, events: &Sender<Event>, output: &Output<impl Write>) {
    let mut input = BufReader::new(input);
    while let Ok(Some(line)) = read_line(&mut input) {
        let request = serde_json::from_slice(&line)
            .map_err(|e| Fault::failed(format!("the controller sent no valid request: {e}")));
        // These are answered here, because the main loop may be busy for long.
        let at_once = match request {
            Ok(Request::Ping(_)) => Reply::Ping(()),
            Ok(Request::ReadClock(_)) => Reply::ReadClock(read_clock()),
            request => match events.send(Event::Request(request)) {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        // If the pipe is closed, the next read reports it.
        let _ = output.send(&at_once);
    }
}

fn read_clock() -> ClockReading {
    ClockReading { monotonic: clock::monotonic(), realtime: clock::realtime() }
}

struct Agent {
    paths: &'static [&'static DataPath],
    meters: &'static [&'static Meter],
    events: Sender<Event>,
    inbox: Receiver<Event>,
    /// Set when the controller is gone, for work that does not read the inbox.
    hung_up: Arc<AtomicBool>,
    /// Requests to be run at a given time, in order of that time.
    due: VecDeque<(u64, Result<Request, Fault>)>,
    session: Option<Session>,
    /// Connections of the last finished session that still have to answer the peers' ends, which
    /// may be lost on the way or yet to arrive. Kept until the next request.
    parting: Vec<Arc<dyn Connection>>,
    /// Queues of the tap whose device is at the other end, as long as there is such a link.
    queues: Vec<Arc<OwnedFd>>,
    /// Samples of the last window.
    capture: Option<Box<Capture>>,
    /// The samples as a packed profile.
    packed: Vec<u8>,
    /// The steward of this host's settings, created by the first call that needs it.
    steward: Option<LocalSteward>,
    /// Answers the peer's [`Probe`](bytepath_record::wire::Probe).
    meeting: Option<Meeting>,
}

impl Agent {
    fn serve(mut self, output: &Output<impl Write>) -> io::Result<()> {
        let mut next_tick = Instant::now() + meter::TICK;
        loop {
            let due = self.until_due();
            if due == Some(Duration::ZERO)
                && let Some((_, request)) = self.due.pop_front()
            {
                output.send(&self.reply(request))?;
                continue;
            }
            let tick = next_tick.saturating_duration_since(Instant::now());
            let event = match self.inbox.recv_timeout(due.map_or(tick, |due| due.min(tick))) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) if Instant::now() < next_tick => continue,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(session) = &mut self.session {
                        session.tick();
                    }
                    next_tick = Instant::now() + meter::TICK;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            match event {
                Event::HungUp => return Ok(()),
                Event::Request(request) => match request.as_ref().ok().and_then(Request::at) {
                    Some(at) => self.due.push_back((self.begin_for(at, &request), request)),
                    None => output.send(&self.reply(request))?,
                },
                Event::EngineEnded { flow, result } => {
                    if let Some(session) = &mut self.session
                        && let Err(fault) = session.engine_ended(flow, result)
                    {
                        output.send(&Reply::Lost(fault))?;
                    }
                }
            }
        }
    }

    /// Returns when to begin with a request so that it takes effect at `at`.
    fn begin_for(&self, at: u64, request: &Result<Request, Fault>) -> u64 {
        match (&self.session, request) {
            (Some(session), Ok(Request::OpenWindow(_))) => session.begin_for(at),
            _ => at,
        }
    }

    /// Returns the time until the next delayed request is due, or `None` if there is none.
    fn until_due(&self) -> Option<Duration> {
        let (at, _) = self.due.front()?;
        Some(Duration::from_nanos(at.saturating_sub(clock::monotonic())))
    }

    fn reply(&mut self, request: Result<Request, Fault>) -> Reply {
        // The controller sends its next request only after both ends have ended.
        self.parting.clear();
        request.and_then(|request| self.answer(request)).unwrap_or_else(Reply::Failed)
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm per call")]
    fn answer(&mut self, request: Request) -> Result<Reply, Fault> {
        match request {
            Request::Hello(call) => answer(call, |_| Ok(identity())),
            Request::Ping(call) => answer(call, |_| Ok(())),
            Request::ReadClock(call) => answer(call, |_| Ok(read_clock())),
            Request::FindRoute(call) => answer(call, |call| reach::route(call.to)),
            Request::ListenForProbe(call) => answer(call, |call| {
                let meeting = Meeting::listen(call.address, call.ports, call.token)?;
                Ok(self.meeting.insert(meeting).port())
            }),
            Request::Probe(call) => answer(call, |call| {
                Ok(reach::connect((call.address, call.port).into(), &call.token, call.mtu))
            }),
            Request::EndProbe(call) => answer(call, |_| {
                let meeting = self.meeting.take();
                meeting.ok_or_else(|| protocol_error("nothing was probed"))?.met()
            }),
            Request::FindDevice(call) => answer(call, |call| {
                let text = format!("cannot find the device with address {}", call.address);
                device::of_address(call.address).map_err(|e| Fault::system(text, &e))
            }),
            Request::CheckDevice(call) => answer(call, |call| {
                let text = format!("cannot find the network device {}", call.device);
                let found = device::index(&call.device).map(drop);
                found.map_err(|e| Fault::system(text, &e).remedy("`ip link` there lists them all"))
            }),
            Request::ListAddresses(call) => answer(call, |_| list_addresses()),
            Request::FindNic(call) => answer(call, |call| host::nic(&call.device)),
            Request::AwaitCarrier(call) => {
                answer(call, |call| host::await_carrier(&call.device, call.timeout))
            }
            Request::SetUpLink(call) => answer(call, |call| {
                // An earlier tap is removed first: it has the same name.
                self.queues.clear();
                let (queues, notes) = host::link_end(&call.end)?;
                self.queues = queues.into_iter().map(Arc::new).collect();
                Ok(notes)
            }),
            Request::SteerLink(call) => answer(call, |call| host::steer_link(&call.end)),
            Request::SetSysctls(call) => answer(call, |call| host::set_sysctls(&call.values)),
            Request::TrySysctls(call) => answer(call, |call| Ok(host::try_sysctls(&call.values))),
            Request::ReadFacts(call) => answer(call, |_| Ok(host::survey(&Roots::real()).into())),
            Request::Survey(call) => answer(call, |call| {
                let meters = if call.meters { self.meters } else { &[] };
                Ok(survey(self.paths, meters, call.device.as_deref()).into())
            }),
            Request::MeasureCeiling(call) => {
                answer(call, |call| ceiling::measure(call.cpu, call.size, &self.hung_up))
            }
            Request::Listen(call) => answer(call, |call| {
                let session = Session::listen(self.paths, call, &self.queues)?;
                self.session.insert(session).address()
            }),
            Request::Connect(call) => answer(call, |call| {
                self.session = Some(Session::connect(self.paths, call, self.events.clone())?);
                Ok(())
            }),
            Request::Accept(call) => answer(call, |_| {
                let events = self.events.clone();
                self.session()?.accept(events)
            }),
            Request::Start(call) => answer(call, |call| {
                let chosen = meter::chosen(self.meters, &call.meters);
                let session = self.session()?;
                session.pace(true);
                session.start(chosen, call.alone, call.qemu)
            }),
            Request::Pace(call) => {
                answer(call, |call| self.session().map(|session| session.pace(call.hold)))
            }
            Request::Pass(call) => answer(call, |call| {
                self.pass(call.seconds);
                Ok(())
            }),
            Request::OpenWindow(call) => answer(call, |call| {
                let opened = self.session()?.window_begin()?;
                // If it opens late, it closes later by the same amount.
                if let (Some(at), Some((end, _))) = (call.at, self.due.front_mut()) {
                    *end = end.saturating_add(opened).saturating_sub(at);
                }
                Ok(())
            }),
            Request::CloseWindow(call) => answer(call, |_| self.session()?.window_end()),
            Request::AwaitWindow(call) => answer(call, |call| self.await_window(call.timeout)),
            Request::CountFrames(call) => {
                answer(call, |call| host::hops(&call.device).map(Box::new))
            }
            Request::Stop(call) => answer(call, |_| self.session().map(|session| session.stop())),
            Request::Finish(call) => answer(call, |call| self.finish(call.timeout)),
            Request::PriceSample(call) => answer(call, |call| {
                let any = || samples::allowed_cpus().map(|all| all.first().copied());
                let cpu = call.cpu.map_or_else(any, |cpu| Ok(Some(cpu)))?.unwrap_or_default();
                meter::sample_price(call.event.as_deref(), cpu, meter::SAMPLE_TURN, &Roots::real())
            }),
            Request::PackProfile(call) => answer(call, |call| self.pack_profile(call)),
            Request::FetchPart(call) => answer(call, |call| {
                let rest = usize::try_from(call.at).ok().and_then(|at| self.packed.get(at..));
                let rest = rest.ok_or_else(|| protocol_error("a part past the end"))?;
                Ok(Bytes(rest[..rest.len().min(LARGEST_PART)].to_vec()))
            }),
            Request::ApplySettings(call) => self.settle(call),
            Request::PrepareSettings(call) => self.settle(call),
            Request::UndoPrepared(call) => self.settle(call),
            Request::UndoAll(call) => self.settle(call),
            Request::RestoreLeftBehind(call) => self.settle(call),
            Request::CheckSettings(call) => self.settle(call),
            Request::PreviewSettings(call) => self.settle(call),
            Request::ReadFingerprint(call) => self.settle(call),
            Request::Examine(call) => self.settle(call),
            Request::HoldGpu(call) => self.settle(call),
        }
    }

    /// Passes a call to the steward of this host.
    fn settle<C: StewardCall>(&mut self, call: C) -> Result<Reply, Fault> {
        C::ANSWER(call, self.steward.get_or_insert_with(LocalSteward::standard)).map(C::reply)
    }

    fn session(&mut self) -> Result<&mut Session, Fault> {
        self.session.as_mut().ok_or_else(|| protocol_error("there is no stream yet"))
    }

    fn pass(&mut self, seconds: f64) {
        let end = Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or_default();
        while Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(meter::TICK));
            if let Some(session) = &mut self.session {
                session.tick();
            }
        }
    }

    fn pack_profile(&mut self, call: PackProfile) -> Result<ProfileSize, Fault> {
        let PackProfile { title, bytes, packets, agents, guest, placement } = call;
        let capture = self.capture.take();
        let capture = capture.ok_or_else(|| protocol_error("nothing was sampled"))?;
        let work = Work { bytes: Some(bytes as f64), packets };
        let stream = Stream { agents, guest, placement: *placement };
        let (packed, size) = samples::pack(&capture, title, work, &stream)?;
        self.packed = packed;
        Ok(size)
    }

    /// Waits until the engines have closed their windows, as long as something moves.
    fn await_window(&mut self, timeout: f64) -> Result<(), Fault> {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(meter::TICK);
        let (mut moved, mut since) = (0, Instant::now());
        loop {
            let session = self.session()?;
            session.tick();
            let (done, total) = session.is_done();
            if done {
                return Ok(());
            }
            if total > moved {
                (moved, since) = (total, Instant::now());
            }
            if since.elapsed() > timeout {
                let text = format!("nothing moved for {} s after {moved}", timeout.as_secs());
                return Err(Fault::peer_lost(text).remedy("check whether the sink still reads"));
            }
            if let Some((flow, result)) = self.await_engine(POLL)? {
                self.session()?.engine_ended(flow, result)?;
            }
        }
    }

    /// Waits for the engines, cutting the connections when the timeout expires.
    fn finish(&mut self, timeout: f64) -> Result<RoleEnd, Fault> {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::from_secs(10));
        let mut deadline = Instant::now() + timeout;
        let mut cut = false;
        while !self.session()?.all_ended() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.await_engine(left)? {
                // The role's record contains the fault.
                Some((flow, result)) => drop(self.session()?.engine_ended(flow, result)),
                None if cut => {
                    return Err(Fault::failed(
                        "an engine did not end even after its connection was cut",
                    ));
                }
                None => {
                    self.session()?.cut();
                    cut = true;
                    deadline = Instant::now() + Duration::from_secs(5);
                }
            }
        }
        let session = self.session()?;
        let end = session.finish();
        let (capture, parting) = (session.capture.take(), session.parting());
        (self.capture, self.parting, self.session) = (capture, parting, None);
        match end {
            Err(fault) if cut => Err(fault.context("the stream did not drain in time")),
            other => other,
        }
    }

    /// Waits for the next engine to end; `None` if the timeout expires. The controller sends
    /// nothing meanwhile.
    fn await_engine(&mut self, timeout: Duration) -> Result<Option<(u32, EngineResult)>, Fault> {
        match self.inbox.recv_timeout(timeout) {
            Ok(Event::EngineEnded { flow, result }) => Ok(Some((flow, result))),
            Ok(Event::Request(_)) => Err(protocol_error("a request arrived during another")),
            Ok(Event::HungUp) | Err(RecvTimeoutError::Disconnected) => {
                // This ends the agent, even if the reply can still be written.
                let _ = self.events.send(Event::HungUp);
                Err(Fault::peer_lost("the controller is gone"))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }
}

fn answer<C: Call>(
    call: C,
    work: impl FnOnce(C) -> Result<C::Reply, Fault>,
) -> Result<Reply, Fault> {
    work(call).map(C::reply)
}

fn identity() -> Identity {
    Identity { schema: SCHEMA_VERSION, build: own_build().to_owned(), pid: std::process::id() }
}

fn list_addresses() -> Result<Vec<HostAddress>, Fault> {
    let all = device::addresses();
    let all = all.map_err(|e| Fault::system("cannot list the addresses of this host", &e))?;
    let address = |(device, address, prefix)| HostAddress { device, address, prefix };
    Ok(all.into_iter().map(address).collect())
}

/// Returns the facts of this host as this process sees it, including the attempts of all paths over
/// a network device of its namespace, and those of these meters.
pub fn survey(
    paths: &[&'static DataPath],
    meters: &[&'static Meter],
    device: Option<&str>,
) -> Facts {
    let roots = Roots::real();
    let mut facts = host::survey(&roots);
    let node = device.and_then(|device| bytepath_sys::device::node(device).ok().flatten());
    if let Some((device, node)) = device.zip(node.filter(|node| facts.nodes.contains_key(node))) {
        facts.settings.insert(LINK_DEVICE.into(), device.to_owned());
        facts.settings.insert(LINK_NODE.into(), node.to_string());
    }
    let ssh = std::env::var("SSH_CONNECTION").ok();
    facts.settings.extend(ssh.map(|connection| (SSH_CONNECTION.to_owned(), connection)));
    facts.attempts = paths.iter().flat_map(|path| (path.attempt)(device)).collect();
    facts.attempts.extend(tls::attempts());
    facts.attempts.extend(meters.iter().filter_map(|meter| (meter.attempt)(&roots)));
    facts
}

/// The pipe to the controller, shared by two threads.
struct Output<W>(Arc<Mutex<W>>);

impl<W> Clone for Output<W> {
    fn clone(&self) -> Self {
        Output(self.0.clone())
    }
}

impl<W: Write> Output<W> {
    /// Sends a reply. If it cannot be encoded, or not as a line that the controller accepts, sends
    /// the fault instead.
    fn send(&self, reply: &Reply) -> io::Result<()> {
        let line = line_of("a reply", reply);
        let line = line.or_else(|fault| line_of("a fault", &Reply::Failed(fault)));
        self.line(&line.map_err(io::Error::other)?)
    }

    fn line(&self, line: &[u8]) -> io::Result<()> {
        let mut pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pipe.write_all(line)?;
        pipe.flush()
    }
}
