//! Shared by tests that move frames: a network namespace for the calling thread, and sockets that
//! send and receive whole frames there (packet(7)).

use super::bpf::xdp::Mark;
use super::netlink::{Netlink, Veth};
use super::packet;
use bytepath_testing::skip;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::UnshareFlags;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The EtherType of frames sent by tests (IEEE 802, local experiments): the kernel sends other
/// frames on its own.
pub(crate) const PROTOCOL: [u8; 2] = [0x88, 0xb5];

/// Moves the calling thread into a new network namespace. `None`, with the reason printed, if that
/// is not allowed.
pub(crate) fn apart() -> Option<()> {
    // SAFETY: the thread of a test shares no descriptors that depend on a namespace.
    let apart = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
    apart.map_err(|e| skip!("no network namespace: {e}")).ok()
}

/// Identifies test frames with numbers below 65536.
pub(crate) const MARK: Mark = Mark { at: 12, bytes: [PROTOCOL[0], PROTOCOL[1], 0, 0] };

/// Makes a veth pair that is up, in a new namespace of the thread; returns the indices of both
/// ends.
pub(crate) fn pair() -> Option<[u32; 2]> {
    apart()?;
    let mut netlink = Netlink::new();
    let (name, peer) = ("one".to_owned(), "other".to_owned());
    let veth = Veth { name, peer, peer_process: None, mtu: None, queues: 1 };
    netlink.create_veth(&veth).map_err(|e| skip!("no veth: {e}")).ok()?;
    let indices = [&veth.name, &veth.peer].map(|name| netlink.link(name).unwrap().unwrap().index);
    indices.iter().for_each(|index| netlink.set_up(*index).unwrap());
    // The kernel raises the carrier asynchronously.
    while !netlink.link("other").unwrap().unwrap().operational {
        std::thread::sleep(Duration::from_millis(1));
    }
    Some(indices)
}

/// Makes a test frame with a number in it.
pub(crate) fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![number as u8; len];
    frame[..12].copy_from_slice(b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02");
    frame[12..14].copy_from_slice(&PROTOCOL);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Sends and receives test frames at one device.
pub(crate) struct Port(OwnedFd);

impl Port {
    pub(crate) fn of(index: u32) -> Port {
        // The protocol is set from the start, so that binding waits for a grace period of the
        // kernel: otherwise frames sent right after an XDP program was attached are lost.
        let protocol = u32::from(u16::from_ne_bytes(PROTOCOL)).try_into().ok();
        let kind = (AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC);
        let protocol = protocol.map(rustix::net::Protocol::from_raw);
        let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, protocol).unwrap();
        packet::bind(&socket, index, u16::from_be_bytes(PROTOCOL)).unwrap();
        Port(socket)
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        rustix::net::send(&self.0, frame, SendFlags::empty()).unwrap();
    }

    /// Returns the next frame, or `None` if there is none for a while.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        use std::os::fd::AsFd;
        let timeout = Duration::from_millis(500);
        if !crate::tcp::wait_readable(self.0.as_fd(), timeout).unwrap() {
            return None;
        }
        let mut frame = vec![0; 2048];
        let (len, _) = rustix::net::recv(&self.0, &mut frame[..], RecvFlags::empty()).unwrap();
        frame.truncate(len);
        Some(frame)
    }
}
