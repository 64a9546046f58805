//! Small programs that move one stream, as written by a programmer who knows the calls of a path
//! and only wants the bytes moved. No meters, no ledger, no options; one message in memory that is
//! sent repeatedly, as `bytepath` does, and a receiver that reads no byte of it. One file per data
//! path.
//!
//! Each end runs as a separate process: the bench starts itself again with the arguments that
//! [`played`] reads. The receiver prints the port on which it listens, and after its window `BYTES
//! SECONDS`. Then it closes the connection, and the reset ends the sender.

pub mod crr;
pub mod epoll;
pub mod frames;
pub mod msg_zerocopy;
pub mod sendfile;
pub mod smoltcp;
pub mod socket;
pub mod splice;
pub mod tcp_zerocopy_receive;
pub mod uring;
pub mod uring_loop;
pub mod uring_zc;

use anyhow::{Context, Result, bail};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::net::{AddressFamily, SocketType, bind, connect, listen, socket, sockopt};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::slice;
use std::time::{Duration, Instant};

/// Bytes of the message, and most bytes of one read: the defaults of `bytepath run`.
pub const MESSAGE: usize = 1 << 20;

/// Most seconds that either end lives, whatever happens to the other.
const LIFE: u32 = 60;

/// Sends until the connection has ended.
type Sender = fn(&TcpStream) -> io::Result<()>;

/// Receives until the window is over or the stream ends.
type Receiver = fn(&TcpStream, &mut Window) -> io::Result<()>;

const SENDERS: &[(&str, Sender)] = &[
    ("socket", socket::send),
    ("sendfile", sendfile::send),
    ("splice", splice::send),
    ("msg-zerocopy", msg_zerocopy::send),
    ("uring", uring::send),
    ("uring-zc", uring_zc::send),
];

const RECEIVERS: &[(&str, Receiver)] = &[
    ("socket", socket::receive),
    ("tcp-zerocopy-receive", tcp_zerocopy_receive::receive),
    ("uring", uring::receive),
];

/// A program that exchanges messages over many connections: its server, and its client.
type Pair = (
    fn(&[TcpStream], epoll::Load) -> Result<()>,
    fn(&[TcpStream], epoll::Load, &mut Window) -> Result<(u64, f64)>,
);

const SERVERS: &[(&str, Pair)] = &[
    ("epoll", (epoll::serve, epoll::request)),
    ("uring-loop", (uring_loop::serve, uring_loop::request)),
];

/// The argument with which a bench starts itself as one end.
pub const PLAIN: &str = "plain";

/// Plays one end, or returns `None` if this process was not started for that.
pub fn played(arguments: &[String]) -> Option<Result<()>> {
    let (first, rest) = arguments.split_first()?;
    (first == PLAIN).then(|| run(rest))
}

/// Plays one end: `send PATH CONGESTION ADDRESS` or `receive PATH CONGESTION ADDRESS WARM-UP
/// WINDOW`, in seconds; of frames `generate DEVICE` or `take DEVICE PROCESS WARM-UP WINDOW`, which
/// prints the device once it exists. `smoltcp in|out MTU CPU CPU WARM-UP WINDOW` is both ends.
/// `serve PROGRAM CONGESTION ADDRESS REQUEST RESPONSE CONNECTIONS` and `request` with the same and
/// `WARM-UP WINDOW` exchange messages; the latter prints their number. `serve-each` and
/// `request-each` do so by a connection for each, without a PROGRAM.
fn run(arguments: &[String]) -> Result<()> {
    // SAFETY: alarm(2) takes no pointer. Nothing handles SIGALRM, so it ends this process: an end
    // whose peer died must not stay around.
    unsafe { libc::alarm(LIFE) };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["send", path, congestion, address] => {
            let send = find(SENDERS, path)?;
            let socket = prepared(congestion)?;
            connect(&socket, &address.parse::<SocketAddr>()?).context("connect")?;
            match send(&socket.into()) {
                Err(e) if !is_the_end(&e) => Err(e).with_context(|| format!("{path}: send")),
                _ => Ok(()),
            }
        }
        ["receive", path, congestion, address, warm_up, window] => {
            let receive = find(RECEIVERS, path)?;
            let socket = prepared(congestion)?;
            bind(&socket, &address.parse::<SocketAddr>()?).context("bind")?;
            listen(&socket, 1).context("listen")?;
            let listener = TcpListener::from(socket);
            println!("{}", listener.local_addr()?.port());
            let (stream, _) = listener.accept().context("accept")?;
            let mut window = Window::new(warm_up.parse()?, window.parse()?);
            receive(&stream, &mut window).with_context(|| format!("{path}: receive"))?;
            let (bytes, seconds) = window.measured().context("the stream ended too early")?;
            println!("{bytes} {seconds}");
            Ok(())
        }
        ["generate", device] => frames::generate(device),
        ["take", device, process, warm_up, window] => {
            let mut window = Window::new(warm_up.parse()?, window.parse()?);
            frames::receive(device, process.parse()?, &mut window)?;
            let (frames, seconds) = window.measured().context("no frames")?;
            println!("{frames} {seconds}");
            Ok(())
        }
        ["smoltcp", direction, mtu, stack, client, warm_up, window] => {
            let mut window = Window::new(warm_up.parse()?, window.parse()?);
            let cpus = [stack.parse()?, client.parse()?];
            smoltcp::run(*direction == "in", mtu, cpus, &mut window)?;
            let (bytes, seconds) = window.measured().context("the stream ended too early")?;
            println!("{bytes} {seconds}");
            Ok(())
        }
        ["serve", program, congestion, address, request, response, connections] => {
            let load = load([request, response, connections])?;
            let (serve, _) = find(SERVERS, program)?;
            serve(&epoll::accepted(congestion, address.parse()?, load)?, load)
        }
        ["request", program, congestion, address, rest @ ..] => {
            let [request, response, connections, warm_up, window] = rest else {
                bail!("not a client: {rest:?}")
            };
            let load = load([request, response, connections])?;
            let mut window = Window::new(warm_up.parse()?, window.parse()?);
            let (_, request) = find(SERVERS, program)?;
            let streams = epoll::connected(congestion, address.parse()?, load)?;
            let (count, seconds) = request(&streams, load, &mut window)?;
            println!("{count} {seconds}");
            Ok(())
        }
        ["serve-each" | "request-each", ..] => run_each(&arguments),
        other => bail!("not an end of a stream: {other:?}"),
    }
}

/// Runs an end of the connections that come and go.
fn run_each(arguments: &[&str]) -> Result<()> {
    let [kind, congestion, address, request, response, connections, times @ ..] = arguments else {
        bail!("not an end of connections: {arguments:?}")
    };
    let (address, load) = (address.parse()?, load([request, response, connections])?);
    match (*kind, times) {
        ("serve-each", []) => crr::serve(congestion, address, load),
        ("request-each", [warm_up, window]) => {
            let mut window = Window::new(warm_up.parse()?, window.parse()?);
            let (count, seconds) = crr::request(congestion, address, load, &mut window)?;
            println!("{count} {seconds}");
            Ok(())
        }
        other => bail!("not an end of connections: {other:?}"),
    }
}

fn load(numbers: [&str; 3]) -> Result<epoll::Load> {
    let [request, response, connections] = numbers.map(str::parse);
    Ok(epoll::Load { request: request?, response: response?, connections: connections? })
}

fn find<T: Copy>(programs: &[(&str, T)], path: &str) -> Result<T> {
    let program = programs.iter().find(|(name, _)| *name == path);
    program.map(|(_, program)| *program).with_context(|| format!("no small program for {path}"))
}

/// A socket with its congestion control chosen before the handshake: once a flow has begun as bbr,
/// it is always paced.
fn prepared(congestion: &str) -> Result<rustix::fd::OwnedFd> {
    let made = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_tcp_congestion(&made, congestion).context("TCP_CONGESTION")?;
    Ok(made)
}

/// True if the receiver is done and has closed. In a chain of sends the first then comes short, and
/// the others are cancelled.
fn is_the_end(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE | libc::ECANCELED))
}

/// The time in which bytes count: it begins one warm-up after the first bytes.
pub struct Window {
    warm_up: Duration,
    length: Duration,
    first: Option<Instant>,
    begin: Option<(Instant, u64)>,
    end: Option<(Instant, u64)>,
    total: u64,
}

impl Window {
    fn new(warm_up: f64, length: f64) -> Self {
        let (warm_up, length) = (Duration::from_secs_f64(warm_up), Duration::from_secs_f64(length));
        Window { warm_up, length, first: None, begin: None, end: None, total: 0 }
    }

    /// Counts received bytes; false if no more are needed, or the stream has ended.
    pub fn count(&mut self, bytes: usize) -> bool {
        let now = Instant::now();
        self.total += bytes as u64;
        let first = *self.first.get_or_insert(now);
        match self.begin {
            None if now - first >= self.warm_up => self.begin = Some((now, self.total)),
            Some((begin, _)) if now - begin >= self.length => self.end = Some((now, self.total)),
            _ => {}
        }
        bytes > 0 && self.end.is_none()
    }

    /// Bytes and seconds between the begin and the end, if both were reached.
    fn measured(&self) -> Option<(u64, f64)> {
        let ((begin, before), (end, after)) = (self.begin?, self.end?);
        Some((after - before, (end - begin).as_secs_f64()))
    }
}

/// Returns page-aligned memory, with every page present, for as long as this process lives.
pub fn memory(len: usize) -> io::Result<&'static mut [u8]> {
    // SAFETY: a new mapping at an address of the kernel's choice, which is never unmapped and
    // handed out once.
    let memory = unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let start = mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE)?;
        slice::from_raw_parts_mut(start.cast::<u8>(), len)
    };
    memory.fill(0x5a);
    Ok(memory)
}

/// Sets a socket option of type `int`.
pub fn set_option(stream: &TcpStream, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the value lives until the call returns.
    let result = unsafe {
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
