//! Streams over real connections on the loopback device, with a packet socket that checks whether
//! their bytes are on the wire in the clear.

use crate::ends::{End, Opens};
use bytepath::connection::{KERNEL_TCP, Terms};
use bytepath::path;
use bytepath::record::wire::{Secret, Token};
use bytepath::record::{Cell, Fault, Half, LinkSettings, Options, Role, Stream, Tls, Touch};
use bytepath::sys::netlink::Netlink;
use bytepath::workload::{Detail, Gate, Group, Pattern, Phase, Progress, Recorder};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType, recv, socket, sockopt};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Least number of bytes in a stream.
const BYTES: u64 = 4 << 20;

/// How long a stream may take before it counts as hung.
const TIMEOUT: Duration = Duration::from_secs(60);

const SECRET: Secret = Secret([[7; 28], [9; 28]]);

/// Runs a stream with each of these senders; then one whose ends have different secrets.
pub fn encrypted(who: &str, senders: &[&str]) {
    Netlink::new().set_up(1).unwrap();
    let tls = match who {
        "kernel" => Tls::Kernel,
        "user" => Tls::User,
        _ => Tls::None,
    };
    for sender in senders {
        let rx = if *sender == "uring" { "uring" } else { "socket" };
        let stream = Stream { touch: Touch::Verify, tls, ..Stream::default() };
        let cell = Cell { stream, ..Cell::new("test", half(sender, true), half(rx, false)) };
        let (arrived, seen) = moved(&cell, &SECRET);
        let frames = if seen > 0 { "in the clear" } else { "not to be found" };
        println!("{sender}: {} bytes intact, {frames}", arrived.unwrap());
    }
    if tls != Tls::None {
        let stream = Stream { tls, ..Stream::default() };
        let cell =
            Cell { stream, ..Cell::new("test", half("socket", true), half("socket", false)) };
        let (arrived, _) = moved(&cell, &Secret([[8; 28], [9; 28]]));
        println!("other secret: {}", arrived.unwrap_err());
    }
}

fn half(name: &str, sends: bool) -> Half {
    let role = if sends { Role::Sender } else { Role::Receiver };
    let path = path::find(path::CATALOG, name).unwrap();
    let default = |spec: &bytepath::record::OptionSpec| {
        (spec.name.into(), spec.kind.parse(spec.default).unwrap())
    };
    let options = Options(path.options(role).iter().map(default).collect());
    Half { path: name.into(), options }
}

/// Runs a stream to a receiver with [`SECRET`]; returns how many bytes arrived, all checked against
/// what was sent, and how many frames contained some of them in the clear.
fn moved(cell: &Cell, secret: &Secret) -> (Result<u64, Fault>, u64) {
    let link = LinkSettings::default();
    let terms = |secret| Terms {
        contract: &cell.stream,
        link: &link,
        device: None,
        ports: None,
        queues: &[],
        options: &cell.tx.options,
        secret: Some(secret),
    };
    let token = Token("0".repeat(32));
    let listener = (KERNEL_TCP.listen)(Ipv4Addr::LOCALHOST.into(), &terms(&SECRET)).unwrap();
    let address = listener.address;
    let look = Look::start(cell.stream.message_size, address.port());
    let tx = (KERNEL_TCP.connect)(&[address], &terms(secret), &token, 1).unwrap().remove(0);
    let rx = listener.accept(&token, 1).unwrap().remove(0);
    let gate = Arc::new(Gate::default());
    let [sender, receiver] = [(Role::Sender, &tx), (Role::Receiver, &rx)].map(|(role, flow)| {
        let (cell, gate, flow) = (cell.clone(), gate.clone(), flow.kernel().unwrap());
        let progress = Arc::new(Progress::default());
        let counted = progress.clone();
        let thread = thread::spawn(move || {
            let path = path::find(path::CATALOG, &cell.half(role).path).unwrap();
            let mut end: End = path.open_in(role, &cell, flow, &Group::default())?;
            let mut recorder = Recorder::new(role == Role::Sender, gate, counted, Detail::ALL);
            end.run(&mut recorder).map(|account| account.ledger.delivered)
        });
        (thread, progress)
    });
    let begin = Instant::now();
    let ended = || receiver.0.is_finished() || sender.0.is_finished();
    while receiver.1.total() < BYTES && !ended() && begin.elapsed() < TIMEOUT {
        thread::sleep(Duration::from_millis(1));
    }
    let early = ended() || begin.elapsed() > TIMEOUT;
    gate.set(Phase::Stop);
    if early {
        tx.cut();
    }
    let arrived = receiver.0.join().unwrap();
    rx.cut();
    let sent = sender.0.join().unwrap();
    match (&arrived, &sent) {
        (Ok(arrived), Ok(sent)) => assert_eq!(arrived, sent),
        (_, Err(fault)) => eprintln!("the sender: {fault}"),
        _ => {}
    }
    (arrived, look.end())
}

/// Reads all frames of one port.
struct Look {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<u64>,
}

impl Look {
    fn start(message_size: u64, port: u16) -> Look {
        // Big-endian: all protocols (packet(7)).
        let all = Protocol::from_raw(rustix::net::RawProtocol::new(0x0300).unwrap());
        let socket = socket(AddressFamily::PACKET, SocketType::RAW, Some(all)).unwrap();
        let timeout = Some(Duration::from_millis(200));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, timeout).unwrap();
        let mut piece = [0; 64];
        Pattern::new(message_size).fill(&mut piece, 4096);
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let thread = thread::spawn(move || {
            let (mut frame, mut found) = (vec![0; 1 << 17], 0);
            loop {
                match recv(&socket, &mut frame[..], RecvFlags::empty()) {
                    Ok((_, len)) => {
                        found += u64::from(is_of(&frame[..len], port) && has(&frame[..len], &piece))
                    }
                    Err(_) if ended.load(Relaxed) => return found,
                    Err(_) => {}
                }
            }
        });
        Look { over, thread }
    }

    fn end(self) -> u64 {
        self.over.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

/// Whether a frame is TCP over IPv4 from or to this port.
fn is_of(frame: &[u8], port: u16) -> bool {
    const ETHERNET: usize = 14;
    let Some(header) = frame.get(ETHERNET..ETHERNET + 20).filter(|header| header[9] == 6) else {
        return false;
    };
    let tcp = ETHERNET + 4 * usize::from(header[0] & 15);
    let ports = frame.get(tcp..tcp + 4).unwrap_or_default();
    ports.chunks(2).any(|own| own == port.to_be_bytes())
}

fn has(frame: &[u8], piece: &[u8]) -> bool {
    memchr::memmem::find(frame, piece).is_some()
}
