//! A TCP stack in this process, over the device of this end, with its own address on the link. The
//! kernel ignores the stack's segments, because it drops frames for a hardware address other than
//! the device's. The peer may be any TCP.
//!
//! The thread that moves bytes polls the stack: for one connection or, in an event loop, for many.
//! While no mover does, a separate thread keeps the stack alive: it answers requests for the
//! stack's hardware address, acknowledges and retransmits.

mod address;
mod device;
mod frame;
mod loss;
mod probe;
mod stack;
mod trace;

pub use device::Counts;
pub use frame::Tcp;
pub use stack::{Received, Stack};

use super::transport::peer_of_flow;
use super::{AllConnected, Connected, Connection, Flow, Listener, Terms, Transport, hello, ports};
use bytepath_record::wire::Token;
use bytepath_record::{Cell, Fault, FaultKind, OptionKind, OptionSpec, Protocol, Role};
use bytepath_sys::tcp::{self, Ready};
use loss::LossConfig;
use rand::Rng;
use stack::{Congestion, StackConfig, Stage};
use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const USERSPACE_TCP: &Transport =
    &Transport { name: "the user-space TCP", protocol: Protocol::Tcp, check, listen, connect };

/// Options of the halves that use the stack.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("address", OptionKind::Text, "auto").help(
        "the stack's own address, free on the link; auto: 64 after the host's, on links for tests",
    ),
    OptionSpec::new("wait", OptionKind::Choice(&["block", "spin"]), "block")
        .help("when nothing can be moved: sleep until something arrives, or poll again"),
    OptionSpec::new("loss", OptionKind::Count(0, 500), "0")
        .help("segments per thousand dropped on purpose, in each direction"),
    OptionSpec::new("reorder", OptionKind::Count(0, 500), "0")
        .help("segments per thousand reordered on purpose, in each direction"),
];

/// Most connections of a stack.
pub const MOST: u32 = 1024;

/// Least and most bytes of a connection's buffer if the contract does not set it, and most bytes of
/// all such buffers together. Bytes in flight must fit into the link's queues
/// (`net.core.netdev_max_backlog`), because smoltcp recovers slowly from losses there.
const BUFFER: [u64; 2] = [16 << 10, 1 << 20];
const BUFFERS: u64 = 16 << 20;

/// Most bytes of all buffers together.
const MEMORY: u64 = 2 << 30;

/// Largest packets sent and received, bytes.
const PACKET: u32 = 65_536;

/// Longest sleep of a thread that waits for a stack, and so the longest time until it notices a
/// cut.
const NAP: Duration = Duration::from_millis(10);

/// Longest time that a stack lives on after its connections were dropped, until both streams of
/// each have ended. After that, it does not answer a peer that resends its FIN: see
/// [`Connection::answers_late`].
const FAREWELL: Duration = Duration::from_secs(5);

/// Longest time for the end of a stream if nothing at all comes from the peer.
const SILENCE: Duration = Duration::from_secs(30);

/// Local ports, if the user names none: above the default of net.ipv4.ip_local_port_range.
const OWN_PORTS: std::ops::Range<u16> = 61_000..65_535;

fn check(cell: &Cell) -> Result<(), Fault> {
    let (contract, link) = (&cell.stream, &cell.link);
    let usage = |text: String, remedy: &str| Err(Fault::usage(text).remedy(remedy));
    Congestion::of(contract)?;
    if contract.flows > MOST {
        let text =
            format!("the user-space TCP has at most {MOST} connections, not {}", contract.flows);
        return usage(text, "choose fewer flows, or an event loop over the kernel's TCP");
    }
    let buffers = [contract.send_buffer, contract.receive_buffer].map(|bytes| bytes.unwrap_or(0));
    if buffers.iter().sum::<u64>() * u64::from(contract.flows) > MEMORY {
        let text =
            format!("the buffers of {} connections would take more than 2 GiB", contract.flows);
        return usage(text, "choose fewer flows, or smaller send-buffer and receive-buffer");
    }
    match link.gso_max.max(link.gro_max) {
        Some(bytes) if bytes > PACKET => {
            let text = format!("the user-space TCP does not support packets of {bytes} bytes");
            usage(text, "choose a link without BIG TCP, such as --link offload")
        }
        _ => Ok(()),
    }
}

fn listen(address: IpAddr, terms: &Terms) -> Result<Listener, Fault> {
    let config = config(address, terms)?;
    let port = terms.ports.map_or_else(|| own_ports(1), |ports| ports.low);
    let mut stack = open(&config)?;
    stack.listen(port)?;
    let stack = OwnedStack::keep(stack)?;
    Ok(Listener::new((config.place.address, port).into(), move |token, flows| {
        let mut taken = BTreeSet::new();
        let next = |deadline| stack.next_shown(token, port, &mut taken, deadline);
        let shown = hello::accept_all(flows, next)?;
        let connection = |(index, place)| -> Arc<dyn Connection> {
            Arc::new(Userspace { stack: stack.clone(), place, index })
        };
        Ok((0..).zip(shown).map(connection).collect())
    }))
}

fn connect(peers: &[SocketAddr], terms: &Terms, token: &Token, flows: u32) -> AllConnected {
    let peer = peer_of_flow(peers, 0)?;
    let config = config(address::towards(peer.ip(), terms.device)?, terms)?;
    let mut stack = open(&config)?;
    let own = own_ports(flows);
    for flow in 0..flows {
        let port = match terms.ports {
            Some(ports) => ports::of_flow(ports, flow)?,
            None => own + flow as u16,
        };
        stack.connect(flow as usize, peer, port)?;
    }
    let stack = OwnedStack::keep(stack)?;
    let show = |index: u32| -> Connected {
        let connection = Userspace { stack: stack.clone(), place: index as usize, index };
        let what = || format!("cannot connect to {peer} from {}", config.place.address);
        connection.establish().map_err(|fault| fault.context(what()))?;
        connection.write_all(&hello::of(token, index))?;
        Ok(Arc::new(connection))
    };
    (0..flows).map(show).collect()
}

/// Returns the first of `flows` consecutive local ports.
fn own_ports(flows: u32) -> u16 {
    let last = OWN_PORTS.end - u16::try_from(flows).unwrap_or(0);
    rand::rng().random_range(OWN_PORTS.start..last)
}

fn config(host: IpAddr, terms: &Terms) -> Result<StackConfig, Fault> {
    let contract = terms.contract;
    let most = (BUFFERS / u64::from(contract.flows.max(1))).clamp(BUFFER[0], BUFFER[1]);
    let tuned = terms.link.wmem.map_or(most, u64::from);
    let number = |name| terms.options.number(name).unwrap_or(0);
    Ok(StackConfig {
        place: address::of_stack(host, terms.device, terms.options.word("address"))?,
        connections: contract.flows.max(1) as usize,
        send_buffer: contract.send_buffer.unwrap_or(tuned.min(most)) as usize,
        receive_buffer: contract.receive_buffer.unwrap_or(most) as usize,
        congestion: Congestion::of(contract)?,
        loss: LossConfig { loss: number("loss"), reorder: number("reorder") },
    })
}

fn open(config: &StackConfig) -> Result<Stack, Fault> {
    Stack::open(config).map_err(|e| {
        Fault::system("cannot open a packet socket for the user-space TCP", &e)
            .remedy("run as root, or with CAP_NET_RAW")
    })
}

/// A connection of a user-space stack.
#[derive(Clone)]
pub struct Userspace {
    stack: Arc<OwnedStack>,
    /// Its place in the stack.
    pub place: usize,
    /// Its index among the flows of the session.
    index: u32,
}

impl std::ops::Deref for Userspace {
    type Target = SharedStack;

    fn deref(&self) -> &SharedStack {
        &self.stack.shared
    }
}

/// A stack and the thread that keeps it alive, which ends with the stack.
struct OwnedStack {
    shared: Arc<SharedStack>,
    keeper: Option<JoinHandle<()>>,
}

impl OwnedStack {
    fn keep(stack: Stack) -> Result<Arc<OwnedStack>, Fault> {
        let came = stack.as_fd().try_clone_to_owned();
        let came = came.map_err(|e| Fault::system("cannot duplicate a packet socket", &e))?;
        let stack = Mutex::new(stack);
        let attended = AtomicU32::new(0);
        let [reported, over] = [(); 2].map(|()| AtomicBool::new(false));
        let shared = Arc::new(SharedStack { stack, came, attended, reported, over });
        let kept = shared.clone();
        let keeper = std::thread::Builder::new().name("userspace-tcp".into());
        let keeper = keeper.spawn(move || kept.keep_alive());
        let keeper = keeper.map_err(|e| Fault::not_started("a thread", &e))?;
        Ok(Arc::new(OwnedStack { shared, keeper: Some(keeper) }))
    }

    /// Waits for a connection that presents the token; returns the index of its flow and its place.
    /// `None` if a connection presents something else: its place listens again at the port. Ignores
    /// what arrives on the connections in `taken`, which belong to their users.
    fn next_shown(
        &self,
        token: &Token,
        port: u16,
        taken: &mut BTreeSet<usize>,
        deadline: Instant,
    ) -> Result<Option<(u32, usize)>, Fault> {
        let mut shown = vec![0; hello::of(token, 0).len()];
        while Instant::now() < deadline {
            {
                let mut stack = self.shared.stack();
                stack.poll().map_err(|e| self.shared.fault(&e))?;
                while let Some(place) = stack.next_arrived() {
                    if taken.contains(&place) {
                        continue;
                    }
                    let is_whole = stack.received(place) >= shown.len();
                    if is_whole {
                        stack.receive(place, &mut shown);
                        if let Some(index) = hello::read(&shown, token) {
                            taken.insert(place);
                            return Ok(Some((index, place)));
                        }
                    }
                    if is_whole || stack.stage(place) != Stage::Opening && stack.can_receive(place)
                    {
                        stack.relisten(place, port)?;
                        return Ok(None);
                    }
                }
            }
            self.shared.wait(NAP)?;
        }
        Err(Fault::peer_lost("the peer did not connect in time"))
    }
}

impl Drop for OwnedStack {
    /// Waits until the stack is gone and its address is free.
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(keeper) = self.keeper.take() {
            // If the thread panicked, it has printed why.
            let _ = keeper.join();
        }
    }
}

/// A stack and its users.
pub struct SharedStack {
    stack: Mutex<Stack>,
    /// Readable when a frame has arrived.
    came: OwnedFd,
    /// Number of movers that poll the stack.
    attended: AtomicU32,
    /// Whether its counters were reported.
    reported: AtomicBool,
    /// Whether its last connection was dropped.
    over: AtomicBool,
}

impl Userspace {
    /// Waits until the connection is established.
    fn establish(&self) -> Result<(), Fault> {
        let lost = |text| Fault::peer_lost(text);
        let late = || lost("the peer did not connect in time");
        self.until(hello::TIMEOUT, late, |stack| match stack.stage(self.place) {
            Stage::Opening => Ok(false),
            Stage::Open | Stage::Ended => Ok(true),
            Stage::Gone => Err(lost("the peer refused the connection")),
        })
    }

    /// Sends all bytes.
    pub fn write_all(&self, mut bytes: &[u8]) -> Result<(), Fault> {
        let cut_off = || self.cut_off();
        self.until(SILENCE, cut_off, |stack| {
            bytes = &bytes[stack.send(self.place, bytes).ok_or_else(cut_off)?..];
            Ok(bytes.is_empty())
        })
    }

    /// Polls the stack until `done` returns true. Errors with `late` after `timeout`.
    fn until(
        &self,
        timeout: Duration,
        late: impl Fn() -> Fault,
        mut done: impl FnMut(&mut Stack) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let begun = Instant::now();
        loop {
            {
                let mut stack = self.stack();
                let is_done = done(&mut stack)?;
                stack.poll().map_err(|e| self.fault(&e))?;
                if is_done {
                    return Ok(());
                }
            }
            if begun.elapsed() > timeout {
                return Err(late());
            }
            self.wait(NAP)?;
        }
    }

    /// Returns the fault of a connection that was cut.
    pub fn cut_off(&self) -> Fault {
        Fault::peer_lost(format!("flow {}: the connection was cut in the middle", self.index))
    }
}

/// A mover's handle of a connection's stack.
pub struct Hold {
    pub connection: Userspace,
    attends: bool,
    /// Role of the mover.
    pub role: Role,
    /// Whether the mover polls again instead of sleeping if nothing can be moved.
    pub spins: bool,
}

impl std::ops::Deref for Hold {
    type Target = Userspace;

    fn deref(&self) -> &Userspace {
        &self.connection
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.attends {
            self.attended.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Hold {
    /// Returns the handle of a connection whose transport is [`USERSPACE_TCP`].
    pub fn of(connection: &dyn Connection, role: Role, spins: bool) -> Result<Hold, Fault> {
        let any: &dyn Any = connection;
        let connection = any.downcast_ref::<Userspace>().cloned().ok_or_else(|| {
            Fault::failed("a path of the user-space TCP over another transport")
                .remedy("report this as a bug")
        })?;
        Ok(Hold { connection, attends: false, role, spins })
    }

    /// Marks the stack as polled by its owner for as long as this handle lives.
    pub fn attend(&mut self) {
        if !std::mem::replace(&mut self.attends, true) {
            self.attended.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl SharedStack {
    /// Polls the stack while no mover does, until its connections are dropped. Then, as the kernel
    /// would, goes on until their streams have ended, because a FIN may be lost, but for at most
    /// `FAREWELL`.
    fn keep_alive(&self) {
        while !self.over.load(Ordering::Relaxed) {
            let attended = self.attended.load(Ordering::Relaxed) > 0;
            let polled = if attended { Ok(()) } else { self.stack().poll() };
            // The next user of the connection gets the same fault.
            if attended || polled.is_err() || self.wait(NAP).is_err() {
                std::thread::sleep(NAP);
            }
        }
        let begun = Instant::now();
        while begun.elapsed() < FAREWELL && self.stack().is_closing() {
            if self.stack().poll().is_err() || self.wait(NAP).is_err() {
                return;
            }
        }
    }

    /// Locks the stack for a turn. The lock is contended only while a connection begins or is cut.
    #[inline]
    pub fn stack(&self) -> MutexGuard<'_, Stack> {
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the stack's counters to the first caller, and `None` to all others.
    pub fn counts(&self) -> Result<Option<Counts>, Fault> {
        if self.reported.swap(true, Ordering::Relaxed) {
            return Ok(None);
        }
        let counts = self.stack().counts();
        counts.map(Some).map_err(|e| self.fault(&e))
    }

    /// Sleeps until a frame arrives or the kernel has room, at most for `timeout`, and never so
    /// long that a cut goes unnoticed. The caller must not hold the lock. True if either happened.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Fault> {
        let (full, quiet) = {
            let stack = self.stack();
            (stack.is_full(), stack.quiet_for())
        };
        let (timeout, wanted) = match full {
            true => (timeout.min(NAP), Ready::IN | Ready::OUT),
            false => (quiet.min(timeout).min(NAP), Ready::IN),
        };
        match tcp::wait(self.came.as_fd(), wanted, Some(timeout)) {
            Ok(ready) => Ok(!ready.is_empty()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(self.fault(&e)),
        }
    }

    /// Returns the fault of a failed poll. If the device went down or was removed, the peer counts
    /// as lost.
    pub fn fault(&self, error: &io::Error) -> Fault {
        let fault = Fault::system("the packet socket of the user-space TCP", error);
        match error.raw_os_error() {
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                let remedy = "the device went down or was removed: find out why";
                Fault { kind: FaultKind::PeerLost, ..fault }.remedy(remedy)
            }
            _ => fault,
        }
    }
}

impl Connection for Userspace {
    fn index(&self) -> u32 {
        self.index
    }

    fn kernel(&self) -> Result<Flow, Fault> {
        Err(Fault::usage("the user-space TCP has no kernel socket")
            .remedy("choose the path userspace at that end, or another one at both"))
    }

    fn send_at_once(&self) -> Result<(), Fault> {
        self.stack().send_at_once(self.place);
        Ok(())
    }

    fn end_stream(&self) -> Result<(), Fault> {
        self.stack().end(self.place);
        let mut last = (usize::MAX, Instant::now());
        let cut_off = || self.cut_off();
        self.until(Duration::MAX, cut_off, |stack| {
            let left = stack.unacknowledged(self.place);
            if left < last.0 {
                last = (left, Instant::now());
            }
            match stack.stage(self.place) {
                Stage::Ended => Ok(true),
                Stage::Gone => Err(cut_off()),
                _ if last.1.elapsed() > SILENCE => Err(cut_off()),
                _ => Ok(false),
            }
        })
    }

    fn answers_late(&self) -> bool {
        true
    }

    fn wait_acknowledged(&self, timeout: Duration) -> Result<(), Fault> {
        let late = || {
            let text = format!("flow {}: no acknowledgement within {timeout:?}", self.index);
            Fault::peer_lost(text)
        };
        self.until(timeout, late, |stack| match stack.unacknowledged(self.place) {
            0 => Ok(true),
            _ if stack.stage(self.place) == Stage::Gone => Err(self.cut_off()),
            _ => Ok(false),
        })
    }

    fn read_exact(&self, buffer: &mut [u8]) -> Result<(), Fault> {
        let mut got = 0;
        let cut_off = || self.cut_off();
        self.until(Duration::MAX, cut_off, |stack| {
            match stack.receive(self.place, &mut buffer[got..]) {
                Received::Bytes(bytes) => got += bytes,
                Received::End | Received::Cut => return Err(cut_off()),
            }
            Ok(got == buffer.len())
        })
    }

    fn cut(&self) {
        let mut stack = self.stack();
        stack.abort(self.place);
        // A device that is gone cannot send the reset.
        let _ = stack.poll();
    }

    fn close(&self) {
        let mut stack = self.stack();
        stack.end(self.place);
        let _ = stack.poll();
    }
}
