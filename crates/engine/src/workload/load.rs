//! Unsolicited packets to the sender's end of a stream while it sends: datagrams of a
//! UDP socket of the receiver's host. A stream in the other direction would need a reader at
//! the sender; these packets are dropped by its host or its stack.

use super::{Gate, Phase};
use crate::connection::Connection;
use bytepath_record::{Cell, Fault, Reading, Role, Scope, Unit};
use bytepath_sys::tcp::unspecified;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Payload of a datagram in bytes: a packet of 1500 bytes with IPv4.
const SIZE: usize = 1472;

/// UDP port discard (RFC 863).
const DISCARD: u16 = 9;

/// Sleep while nothing is due; a datagram may be this late.
const NAP: Duration = Duration::from_millis(1);

/// Beyond this delay, overdue datagrams are skipped: those missed during a pause are not made up
/// for.
const MAX_LATENESS: Duration = Duration::from_millis(100);

/// Returns the time between datagrams, or `None` if the cell requests none: 160 per second, or as
/// many as possible.
pub(super) fn gap(cell: &Cell) -> Option<Duration> {
    match cell.workload.options.word("load") {
        "trickle" => Some(Duration::from_secs(1) / 160),
        "flood" => Some(Duration::ZERO),
        _ => None,
    }
}

/// A thread that sends the datagrams.
pub(super) struct Load {
    flow: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Load {
    /// Starts sending to the peer of a connection, which must be a kernel socket at this end. Sends
    /// only during warm-up and window, so that nothing disturbs the end of the stream.
    pub(super) fn start(
        gap: Duration,
        connection: &dyn Connection,
        gate: Arc<Gate>,
    ) -> Result<Load, Fault> {
        let kernel = connection
            .kernel()
            .map_err(|fault| fault.remedy("receive by the kernel's TCP, or leave load at none"))?;
        let peer = kernel.peer()?;
        let failed = |e| Fault::system(format!("a UDP socket towards {}", peer.ip()), &e);
        let socket = UdpSocket::bind((unspecified(peer.ip()), 0)).map_err(failed)?;
        socket.connect(SocketAddr::new(peer.ip(), DISCARD)).map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let flow = connection.index();
        // Its name makes it a helper of its flow, so its CPU time counts for this host.
        let thread = std::thread::Builder::new()
            .name(format!("{}/{flow} load", Role::Receiver))
            .spawn(move || send(&socket, gap, &gate, &stopped))
            .map_err(|e| Fault::not_started("a thread", &e))?;
        Ok(Load { flow, stop, thread: Some(thread) })
    }

    /// Stops the thread; returns how many datagrams were sent in total.
    pub(super) fn end(mut self) -> Reading {
        let scope = Scope::Flow(Role::Receiver, self.flow);
        Reading::sum("load.packets", Unit::Count, self.join() as f64, scope)
    }

    fn join(&mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(0)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.join();
    }
}

fn send(socket: &UdpSocket, gap: Duration, gate: &Gate, stop: &AtomicBool) -> u64 {
    let (mut due, mut sent) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if due > now || !matches!(gate.phase(), Phase::WarmUp | Phase::Window) {
            std::thread::sleep(NAP);
            continue;
        }
        // ECONNREFUSED is expected, since nothing listens on that port.
        let _ = socket.send(&[0; SIZE]);
        sent += 1;
        due = if now - due > MAX_LATENESS { now } else { due + gap };
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trickle_has_its_rate() {
        let [here, there] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        here.connect(there.local_addr().unwrap()).unwrap();
        let (stop, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(Gate::default()));
        let (stopped, steered) = (stop.clone(), gate.clone());
        let gap = Duration::from_secs(1) / 160;
        let sender = std::thread::spawn(move || send(&here, gap, &steered, &stopped));
        let begun = Instant::now();
        for _ in 0..17 {
            assert_eq!(there.recv(&mut [0; 2000]).unwrap(), SIZE);
        }
        let passed = begun.elapsed();
        gate.set(Phase::Drain);
        std::thread::sleep(50 * NAP);
        there.set_nonblocking(true).unwrap();
        while there.recv(&mut [0; 2000]).is_ok() {}
        std::thread::sleep(50 * NAP);
        assert!(there.recv(&mut [0; 2000]).is_err(), "it goes on after the window");
        stop.store(true, Ordering::Relaxed);
        assert!(sender.join().unwrap() >= 17);
        // The first one is sent at once.
        assert!(passed >= Duration::from_millis(90), "17 in {passed:?}");
    }
}
