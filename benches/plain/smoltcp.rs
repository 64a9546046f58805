//! smoltcp as its authors measure it (`examples/benchmark.rs` of the crate): its own tap device,
//! buffers of 64 KiB, one thread that polls, and a client of the kernel's TCP on the other side of
//! the tap, in a thread of the same program. A frame is no larger than the tap's MTU, and smoltcp
//! computes every checksum.

use super::{MESSAGE, Window};
use anyhow::{Context, Result, ensure};
use bytepath::sys::thread;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Medium, TunTapInterface, wait};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const DEVICE: &str = "smol0";
const PORT: u16 = 1234;
const OWN: [u8; 4] = [192, 0, 2, 2];

/// Measures what the stack receives, or what it sends, in a private network namespace. The stack
/// has the first CPU, the client the second.
pub fn run(comes_in: bool, mtu: &str, cpus: [u32; 2], window: &mut Window) -> Result<()> {
    ip(&["tuntap", "add", "name", DEVICE, "mode", "tap"])?;
    ip(&["link", "set", DEVICE, "up", "mtu", mtu])?;
    ip(&["addr", "add", "192.0.2.1/24", "dev", DEVICE])?;
    let mut device = TunTapInterface::new(DEVICE, Medium::Ethernet).context("a tap")?;
    let (at_stack, at_client) = if comes_in { (Some(window), None) } else { (None, Some(window)) };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let pinned = thread::pin(cpus[1]).map_err(Into::into);
            let moved = pinned.and_then(|()| client(at_client, &over));
            over.store(true, Ordering::Relaxed);
            moved
        });
        let moved = thread::pin(cpus[0])
            .map_err(Into::into)
            .and_then(|()| stack(&mut device, at_stack, &over));
        over.store(true, Ordering::Relaxed);
        client.join().expect("the client panicked")?;
        moved
    })
}

fn ip(words: &[&str]) -> Result<()> {
    let status = Command::new("ip").args(words).status().context("cannot start ip")?;
    ensure!(status.success(), "ip {} failed", words.join(" "));
    Ok(())
}

/// Reads until its window is over, or, without one, writes until the stack's is.
fn client(window: Option<&mut Window>, over: &AtomicBool) -> Result<()> {
    let mut stream = TcpStream::connect((std::net::Ipv4Addr::from(OWN), PORT))?;
    let memory = super::memory(MESSAGE)?;
    let Some(window) = window else {
        stream.set_write_timeout(Some(std::time::Duration::from_millis(100)))?;
        while !over.load(Ordering::Relaxed) {
            // A timeout is an error, too.
            let _ = stream.write(memory);
        }
        return Ok(());
    };
    while window.count(stream.read(memory)?) {}
    Ok(())
}

/// Receives until its window is over, or, without one, sends until the client is done.
fn stack(
    device: &mut TunTapInterface,
    mut window: Option<&mut Window>,
    over: &AtomicBool,
) -> Result<()> {
    let descriptor = device.as_raw_fd();
    let address = EthernetAddress([2, 0, 0, 0, 0, 1]);
    let mut interface = Interface::new(Config::new(address.into()), device, Instant::now());
    interface.update_ip_addrs(|all| {
        let own = IpAddress::v4(OWN[0], OWN[1], OWN[2], OWN[3]);
        all.push(IpCidr::new(own, 24)).expect("there is room for one");
    });
    let buffer = || tcp::SocketBuffer::new(vec![0; 65_535]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.listen(PORT)?;
    let mut sockets = SocketSet::new(Vec::new());
    let handle = sockets.add(socket);
    while !over.load(Ordering::Relaxed) {
        let now = Instant::now();
        interface.poll(now, device, &mut sockets);
        let socket = sockets.get_mut::<tcp::Socket>(handle);
        match &mut window {
            Some(window) => {
                while socket.can_recv() {
                    if !window.count(socket.recv(|bytes| (bytes.len(), bytes.len()))?) {
                        return Ok(());
                    }
                }
            }
            None => {
                while socket.can_send() {
                    socket.send(|bytes| (bytes.len(), ()))?;
                }
            }
        }
        let most = Duration::from_millis(100);
        let pause = interface.poll_delay(now, &sockets).map_or(most, |delay| delay.min(most));
        wait(descriptor, Some(pause))?;
    }
    Ok(())
}
