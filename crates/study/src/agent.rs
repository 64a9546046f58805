//! The agent: one process per role, controlled over its standard input and
//! output. It holds nothing that outlives it, so it ends when the pipe does.

use super::ceiling;
use super::engine::Ended;
use super::samples::{self, Packed};
use super::session::Session;
use bytepath_engine::connection::reach::{self, Meeting};
use bytepath_engine::connection::tls;
use bytepath_engine::path::DataPath;
use bytepath_host::{self as host, Steward, own_build};
use bytepath_meter::{self as meter, Capture, Meter};
use bytepath_profile::Work;
use bytepath_profile::attribution::Stream;
use bytepath_record::wire::{HostAddress, LARGEST_PART, MAX_LINE, Reply, Request, SYNC};
use bytepath_record::{
    Bytes, Facts, Fault, FaultKind, LINK_DEVICE, LINK_NODE, ReachReply, ReachRequest,
    SCHEMA_VERSION,
};
use bytepath_sys::{Roots, clock, device};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it looks whether a workload that ends by itself has ended.
const LOOK: Duration = Duration::from_millis(5);

/// What reaches the agent's main loop.
pub(super) enum Event {
    /// A line from the controller.
    Request(Result<Request, Fault>),
    /// The controller is gone.
    HungUp,
    /// An engine has returned.
    Ended(Box<Ended>),
}

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
    output.line(SYNC.as_bytes())?;
    let (pongs, gone) = (output.clone(), hung_up.clone());
    let read = move || {
        read_requests(input, &lines, &pongs);
        gone.store(true, Ordering::Relaxed);
        // The receiver may be gone already, and then no one needs to know.
        let _ = lines.send(Event::HungUp);
    };
    std::thread::Builder::new().name("controller".into()).spawn(read)?;
    let agent = Agent {
        paths,
        meters,
        events,
        inbox,
        hung_up,
        due: VecDeque::new(),
        session: None,
        queues: Vec::new(),
        capture: None,
        packed: None,
        steward: None,
        meeting: None,
    };
    agent.serve(&output)
}

fn read_requests(input: impl Read, events: &Sender<Event>, output: &Output<impl Write>) {
    let mut input = BufReader::new(input);
    while let Ok(Some(line)) = read_line(&mut input) {
        let request = serde_json::from_slice(&line).map_err(|e| {
            Fault::new(FaultKind::System, format!("the controller sent no valid request: {e}"))
        });
        // Answered here, because the main loop may be at work for long.
        let at_once = match request {
            Ok(Request::Ping) => Some(Reply::Pong),
            Ok(Request::Clock) => Some(clocks()),
            _ => None,
        };
        if let Some(reply) = at_once {
            // A pipe that is closed is noticed there.
            let _ = output.say(&reply);
            continue;
        }
        if events.send(Event::Request(request)).is_err() {
            return;
        }
    }
}

fn clocks() -> Reply {
    Reply::Clock { monotonic: clock::monotonic(), realtime: clock::realtime() }
}

/// One line without its end, at most [`MAX_LINE`] bytes; none at end of file.
pub(super) fn read_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)?;
    if line.len() > MAX_LINE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "line too long"));
    }
    match line.pop() {
        Some(b'\n') => Ok(Some(line)),
        // A torn line says that the writer died in the middle of it.
        Some(_) | None => Ok(None),
    }
}

struct Agent {
    paths: &'static [&'static DataPath],
    meters: &'static [&'static Meter],
    events: Sender<Event>,
    inbox: Receiver<Event>,
    /// Set when the controller is gone, for work that does not look at the inbox.
    hung_up: Arc<AtomicBool>,
    /// Requests whose moment has not come, in the order of their moments.
    due: VecDeque<(u64, Result<Request, Fault>)>,
    session: Option<Session>,
    /// Queues of the tap whose device is at the other end, as long as there is such a link.
    queues: Vec<Arc<OwnedFd>>,
    /// What was sampled in the last window.
    capture: Option<Box<Capture>>,
    /// The same, named and packed.
    packed: Option<Packed>,
    /// Keeps the settings of this host, once it was asked for something.
    steward: Option<Steward>,
    /// Answers who tries whether bytes arrive.
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
                output.say(&self.reply(request))?;
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
                Event::Request(request) => match request.as_ref().ok().and_then(Request::moment) {
                    Some(at) => self.due.push_back((self.begin_for(at, &request), request)),
                    None => output.say(&self.reply(request))?,
                },
                Event::Ended(ended) => {
                    let lost = self.session.as_mut().and_then(|session| session.ended(*ended));
                    if let Some(fault) = lost {
                        output.say(&Reply::Lost(fault))?;
                    }
                }
            }
        }
    }

    /// When to begin with a request for a moment.
    fn begin_for(&self, at: u64, request: &Result<Request, Fault>) -> u64 {
        match (&self.session, request) {
            (Some(session), Ok(Request::WindowBegin { .. })) => session.begin_for(at),
            _ => at,
        }
    }

    /// Time until the moment of the next request that waits for one.
    fn until_due(&self) -> Option<Duration> {
        let (at, _) = self.due.front()?;
        Some(Duration::from_nanos(at.saturating_sub(clock::monotonic())))
    }

    fn reply(&mut self, request: Result<Request, Fault>) -> Reply {
        request.and_then(|request| self.answer(request)).unwrap_or_else(Reply::Failed)
    }

    fn answer(&mut self, request: Request) -> Result<Reply, Fault> {
        match request {
            Request::Hello => Ok(Reply::Hello {
                schema: SCHEMA_VERSION,
                build: own_build().to_owned(),
                pid: std::process::id(),
            }),
            Request::Ping => Ok(Reply::Pong),
            Request::Clock => Ok(clocks()),
            Request::Route { to } => reach::route(to).map(Reply::Route),
            Request::Reach(request) => self.reach(request).map(Reply::Reach),
            Request::Steward(request) => {
                let steward = self.steward.get_or_insert_with(Steward::standard);
                steward.answer(request).map(Reply::Steward)
            }
            Request::Device { address } => {
                let name = device::of_address(address).map_err(|e| {
                    Fault::system(format!("cannot find the device with address {address}"), &e)
                })?;
                Ok(Reply::Device { name })
            }
            Request::Addresses => {
                let all = device::addresses()
                    .map_err(|e| Fault::system("cannot list the addresses of this host", &e))?;
                let address = |(device, address, prefix)| HostAddress { device, address, prefix };
                Ok(Reply::Addresses { all: all.into_iter().map(address).collect() })
            }
            Request::Nic { device } => host::nic(&device).map(|nic| Reply::Nic { nic }),
            Request::AwaitCarrier { device, timeout } => {
                host::await_carrier(&device, timeout)?;
                Ok(Reply::Done)
            }
            Request::Link(end) => {
                // An earlier tap goes first: it has the name.
                self.queues.clear();
                let (queues, notes) = host::link_end(&end)?;
                self.queues = queues.into_iter().map(Arc::new).collect();
                Ok(Reply::Linked { notes })
            }
            Request::Sysctls { values } => {
                host::set_sysctls(&values)?;
                Ok(Reply::Done)
            }
            Request::Facts => Ok(Reply::Facts(Box::new(host::survey(&Roots::real())))),
            Request::Survey { device, meters } => {
                let meters = if meters { self.meters } else { &[] };
                Ok(Reply::Facts(Box::new(survey(self.paths, meters, device.as_deref()))))
            }
            Request::Ceiling { cpu, size } => {
                ceiling::measure(cpu, size, &self.hung_up).map(Reply::Ceiling)
            }
            Request::Listen { cell, address, device, token, ports, secret } => {
                let (ends, shown) = ((address, ports), (token, secret));
                let queues = &self.queues;
                let session = Session::listen(self.paths, *cell, ends, device, queues, shown)?;
                let address = session.address()?;
                self.session = Some(session);
                Ok(Reply::Listening { address })
            }
            Request::Connect { cell, peer, device, token, ports, secret } => {
                let (ends, shown) = ((peer, ports), (token, secret));
                let events = self.events.clone();
                let session = Session::connect(self.paths, *cell, ends, device, shown, events)?;
                self.session = Some(session);
                Ok(Reply::Done)
            }
            Request::Accept => {
                let events = self.events.clone();
                self.session()?.accept(events)?;
                Ok(Reply::Done)
            }
            Request::Start { meters, alone } => {
                let chosen = meter::chosen(self.meters, &meters);
                let session = self.session()?;
                session.pace(true);
                session.start(chosen, alone)?;
                Ok(Reply::Done)
            }
            Request::Pace { hold } => {
                self.session()?.pace(hold);
                Ok(Reply::Done)
            }
            Request::Pass { seconds } => {
                let end = Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or_default();
                while Instant::now() < end {
                    let left = end.saturating_duration_since(Instant::now());
                    std::thread::sleep(left.min(meter::TICK));
                    if let Some(session) = &mut self.session {
                        session.tick();
                    }
                }
                Ok(Reply::Done)
            }
            Request::WindowBegin { at } => {
                let opened = self.session()?.window_begin()?;
                // It stays open as long as it was meant to, however late it opened.
                if let (Some(at), Some((end, _))) = (at, self.due.front_mut()) {
                    *end = end.saturating_add(opened).saturating_sub(at);
                }
                Ok(Reply::Done)
            }
            Request::WindowEnd { .. } => self.session()?.window_end(),
            Request::AwaitWindow { timeout } => self.await_window(timeout),
            Request::Hops { device } => host::hops(&device).map(Reply::Hops),
            Request::Stop => {
                self.session()?.stop();
                Ok(Reply::Done)
            }
            Request::Finish { timeout } => self.finish(timeout),
            Request::SamplePrice { event, cpu } => {
                let cpu = match cpu {
                    Some(cpu) => cpu,
                    None => any_cpu()?,
                };
                let price = meter::sample_price(event.as_deref(), cpu, &Roots::real());
                price.map(Reply::SamplePrice)
            }
            Request::Profile { title, bytes, packets, agents, placement } => {
                let stream = Stream { agents, placement };
                let capture = self.capture.take();
                let capture = capture.ok_or_else(|| out_of_turn("nothing was sampled"))?;
                let work = Work { bytes: Some(bytes as f64), packets };
                let packed = samples::pack(&capture, title, work, &stream)?;
                let (size, notes) = (packed.bytes.len() as u64, packed.notes.clone());
                let (samples, lost) = (packed.samples, packed.lost);
                self.packed = Some(packed);
                Ok(Reply::Profile { size, samples, lost, notes })
            }
            Request::Part { at } => {
                let packed = self.packed.as_ref().ok_or_else(|| out_of_turn("no profile"))?;
                let rest = usize::try_from(at).ok().and_then(|at| packed.bytes.get(at..));
                let rest = rest.ok_or_else(|| out_of_turn("a part past the end"))?;
                let part = &rest[..rest.len().min(LARGEST_PART)];
                Ok(Reply::Part { bytes: Bytes(part.to_vec()) })
            }
        }
    }

    fn reach(&mut self, request: ReachRequest) -> Result<ReachReply, Fault> {
        match request {
            ReachRequest::Listen { address, ports, token } => {
                let meeting = self.meeting.insert(Meeting::listen(address, ports, token)?);
                Ok(ReachReply::Listening { port: meeting.port() })
            }
            ReachRequest::Connect { address, port, token, mtu } => {
                Ok(ReachReply::Contact(reach::connect((address, port).into(), &token, mtu)))
            }
            ReachRequest::Met => {
                let meeting = self.meeting.take().ok_or_else(|| out_of_turn("no meeting"))?;
                meeting.met().map(ReachReply::Met)
            }
        }
    }

    /// Waits until the engines have closed their windows, as long as something moves.
    fn await_window(&mut self, timeout: f64) -> Result<Reply, Fault> {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(meter::TICK);
        let (mut moved, mut since) = (0, Instant::now());
        loop {
            let session = self.session()?;
            session.tick();
            let (done, total) = session.is_done();
            if done {
                return Ok(Reply::Done);
            }
            if total > moved {
                (moved, since) = (total, Instant::now());
            }
            if since.elapsed() > timeout {
                let text = format!("nothing moved for {} s after {moved}", timeout.as_secs());
                return Err(Fault::new(FaultKind::PeerLost, text)
                    .remedy("check whether the sink still reads"));
            }
            match self.inbox.recv_timeout(LOOK) {
                Ok(Event::Ended(ended)) => {
                    if let Some(fault) = self.session()?.ended(*ended) {
                        return Err(fault);
                    }
                }
                Ok(Event::Request(_)) => {
                    return Err(out_of_turn("a request arrived during a window"));
                }
                Ok(Event::HungUp) | Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.events.send(Event::HungUp);
                    return Err(Fault::new(FaultKind::PeerLost, "the controller is gone"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Waits for the engines, cutting the connections when the timeout expires.
    fn finish(&mut self, timeout: f64) -> Result<Reply, Fault> {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::from_secs(10));
        let mut deadline = Instant::now() + timeout;
        let mut cut = false;
        while !self.session()?.all_ended() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(Event::Ended(ended)) => self.session()?.record_end(*ended),
                Ok(Event::Request(_)) => {
                    return Err(out_of_turn("a request arrived while the stream drained"));
                }
                Ok(Event::HungUp) | Err(RecvTimeoutError::Disconnected) => {
                    // Whether the answer can still be written or not, it ends the agent.
                    let _ = self.events.send(Event::HungUp);
                    return Err(Fault::new(FaultKind::PeerLost, "the controller is gone"));
                }
                Err(RecvTimeoutError::Timeout) if cut => {
                    return Err(Fault::new(
                        FaultKind::System,
                        "an engine did not end even after its connection was cut",
                    ));
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.session()?.cut();
                    cut = true;
                    deadline = Instant::now() + Duration::from_secs(5);
                }
            }
        }
        let session = self.session()?;
        let reply = session.finish();
        self.capture = session.take_capture();
        self.session = None;
        match reply {
            Err(fault) if cut => Err(fault.context("the stream did not drain in time")),
            other => other,
        }
    }

    fn session(&mut self) -> Result<&mut Session, Fault> {
        self.session.as_mut().ok_or_else(|| out_of_turn("there is no stream yet"))
    }
}

/// Facts of this host as this process sees it, with the attempts of all paths
/// over a network device of its namespace, and those of these meters.
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
    facts.attempts = paths.iter().flat_map(|path| (path.attempt)(device)).collect();
    facts.attempts.extend(tls::attempts());
    facts.attempts.extend(meters.iter().filter_map(|meter| (meter.attempt)(&roots)));
    facts
}

fn any_cpu() -> Result<u32, Fault> {
    let allowed = bytepath_sys::thread::allowed();
    let allowed = allowed.map_err(|e| Fault::system("cannot read the CPUs of this process", &e))?;
    Ok(allowed.first().copied().unwrap_or_default())
}

fn out_of_turn(what: &str) -> Fault {
    Fault::new(FaultKind::System, format!("controller and agent are out of step: {what}"))
}

/// The pipe to the controller, for two threads.
struct Output<W>(Arc<Mutex<W>>);

impl<W> Clone for Output<W> {
    fn clone(&self) -> Self {
        Output(self.0.clone())
    }
}

impl<W: Write> Output<W> {
    fn say(&self, reply: &Reply) -> io::Result<()> {
        self.line(&serde_json::to_vec(reply)?)
    }

    fn line(&self, text: &[u8]) -> io::Result<()> {
        let mut pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pipe.write_all(&[text, b"\n"].concat())?;
        pipe.flush()
    }
}
