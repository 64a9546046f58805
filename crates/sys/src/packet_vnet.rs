//! Packet sockets for a protocol stack in this process: whole frames with their own hardware
//! address, each after a `struct virtio_net_hdr` (`PACKET_VNET_HDR`, packet(7),
//! linux/virtio_net.h). That header states what the kernel still has to do for a sent frame,
//! segmentation and checksum, and what is known about a received one.

use super::packet::{self, bind, join, there};
use super::tcp;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// linux/if_packet.h.
const PACKET_MR_UNICAST: u16 = 3;

/// Bytes of the header before each frame.
pub const HEADER: usize = 10;

// linux/virtio_net.h.
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;

/// The content of a frame's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The checksum of a received frame need not be verified: it is not filled in, or the kernel
    /// has found it correct.
    pub checksum_trusted: bool,
    /// For a frame to be sent: the offset at which the checksummed bytes begin, and the checksum's
    /// offset from there. The sum of the pseudo header is already filled in.
    pub checksum: Option<[u16; 2]>,
    /// Set if the frame represents several segments.
    pub segments: Option<Segments>,
}

/// How a frame is cut into TCP segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Bytes of payload of each segment but the last.
    pub size: u16,
    /// Bytes of all headers, which each segment gets.
    pub headers: u16,
    /// Whether it is IPv6.
    pub v6: bool,
}

impl Offload {
    #[inline]
    pub fn write(&self, header: &mut [u8; HEADER]) {
        *header = [0; HEADER];
        if let Some([start, offset]) = self.checksum {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&start.to_ne_bytes());
            header[8..10].copy_from_slice(&offset.to_ne_bytes());
        }
        if let Some(Segments { size, headers, v6 }) = self.segments {
            header[1] = if v6 { GSO_TCPV6 } else { GSO_TCPV4 };
            header[2..4].copy_from_slice(&headers.to_ne_bytes());
            header[4..6].copy_from_slice(&size.to_ne_bytes());
        }
    }

    /// Parses the header of a received frame.
    #[inline]
    pub fn read(header: &[u8; HEADER]) -> Offload {
        let number = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let waits = header[0] & NEEDS_CSUM != 0;
        let merged = header[1] != GSO_NONE;
        let segments =
            Segments { size: number(4), headers: number(2), v6: header[1] & !0x80 == GSO_TCPV6 };
        Offload {
            checksum_trusted: waits || header[0] & DATA_VALID != 0,
            checksum: waits.then(|| [number(6), number(8)]),
            segments: merged.then_some(segments),
        }
    }
}

/// A packet socket with its own hardware address.
#[derive(Debug)]
pub struct Port {
    socket: OwnedFd,
    dropped: u64,
}

/// The outcome of a frame to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The kernel took it.
    Whole,
    /// There was no room for it, or it was dropped for lack of space (EAGAIN, ENOBUFS).
    NoRoom,
}

impl Port {
    /// Opens it at the device with this interface index. It receives frames for `hardware`,
    /// broadcast ARP and neighbour discovery, and nothing that this host sends; the kernel queues
    /// up to `room` bytes for it. EPERM: no CAP_NET_RAW over the network namespace; ENODEV: no such
    /// device.
    pub fn open(index: u32, hardware: [u8; 6], room: usize) -> io::Result<Port> {
        let socket = packet::open(SocketFlags::NONBLOCK)?;
        for option in [libc::PACKET_VNET_HDR, libc::PACKET_IGNORE_OUTGOING] {
            tcp::set_int(socket.as_fd(), libc::SOL_PACKET, option, 1)?;
        }
        filter(&socket, hardware)?;
        let room = i32::try_from(room).unwrap_or(i32::MAX);
        for (forced, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // Forced if privileged; otherwise limited by net.core.rmem_max.
            tcp::set_int(socket.as_fd(), libc::SOL_SOCKET, forced, room)
                .or_else(|_| tcp::set_int(socket.as_fd(), libc::SOL_SOCKET, plain, room))?;
        }
        bind(&socket, index, libc::ETH_P_ALL as u16)?;
        join(&socket, index, PACKET_MR_UNICAST, &hardware)?;
        join(&socket, index, libc::PACKET_MR_ALLMULTI as u16, &[0; 6])?;
        Ok(Port { socket, dropped: 0 })
    }

    /// Receives the next frame with its header, without waiting; returns their length in bytes. A
    /// frame longer than `room` is truncated. ENETDOWN: the device went down or was removed.
    #[inline]
    pub fn receive(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        there(rustix::net::recv(&self.socket, room, RecvFlags::empty()).map(|(length, _)| length))
    }

    /// Sends a frame that follows its header, without waiting. ENETDOWN, ENXIO: the device is down,
    /// or was removed.
    #[inline]
    pub fn send(&self, frame: &[u8]) -> io::Result<Sent> {
        match rustix::net::send(&self.socket, frame, SendFlags::empty()) {
            Ok(_) => Ok(Sent::Whole),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(Sent::NoRoom),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the number of frames for which the socket had no room since it was opened.
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.dropped += packet::dropped(self.socket.as_fd())?;
        Ok(self.dropped)
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Accepts frames for this address, and broadcast requests of ARP and neighbour discovery
/// (Documentation/networking/filter.rst).
fn filter(socket: &OwnedFd, hardware: [u8; 6]) -> io::Result<()> {
    let [a, b, c, d, e, f] = hardware;
    let load = |size, at| (libc::BPF_LD | size | libc::BPF_ABS, 0, 0, at);
    let equal = |value, yes, no| (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value);
    let any_bit = |bits, yes, no| (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, yes, no, bits);
    let give = |bytes| (libc::BPF_RET | libc::BPF_K, 0, 0, bytes);
    // Jump offsets are numbers of instructions to skip.
    let program = [
        load(libc::BPF_W, 0),
        equal(u32::from_be_bytes([a, b, c, d]), 0, 2),
        load(libc::BPF_H, 4),
        equal(u32::from(u16::from_be_bytes([e, f])), 5, 6),
        load(libc::BPF_B, 0),
        any_bit(1, 0, 4),
        load(libc::BPF_H, 12),
        equal(libc::ETH_P_ARP as u32, 1, 0),
        equal(libc::ETH_P_IPV6 as u32, 0, 1),
        give(u32::MAX),
        give(0),
    ];
    let mut program =
        program.map(|(code, jt, jf, k)| libc::sock_filter { code: code as u16, jt, jf, k });
    let attached =
        libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: the kernel reads the structure, and as many instructions as given; both live.
    unsafe { tcp::set_value(socket.as_fd(), level, option, &attached) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_net::{self, Port as Peer};
    use std::time::{Duration, Instant};

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];

    /// Makes a frame for an address.
    fn to(hardware: [u8; 6], ethertype: u16) -> Vec<u8> {
        let mut frame = test_net::frame(7, 60);
        frame[..6].copy_from_slice(&hardware);
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        frame
    }

    #[test]
    fn a_header_says_what_was_written() {
        let whole = Offload {
            checksum_trusted: true,
            checksum: Some([34, 16]),
            segments: Some(Segments { size: 8948, headers: 54, v6: false }),
        };
        for written in [whole, Offload { segments: None, ..whole }, Offload::default()] {
            let mut header = [0xff; HEADER];
            written.write(&mut header);
            assert_eq!(Offload::read(&header), written);
        }
    }

    #[test]
    fn it_takes_in_what_is_for_its_address_and_questions_to_everyone() {
        let Some([one, other]) = test_net::pair() else { return };
        let port = Port::open(one, OWN, 1 << 20).unwrap();
        let peer = Peer::of(other);
        let others = [2, 0, 0, 0, 0, 8];
        let everyone = [0xff; 6];
        peer.send(&to(others, 0x0800));
        peer.send(&to(everyone, 0x0800));
        peer.send(&to(everyone, 0x0806));
        peer.send(&to(OWN, 0x0800));
        let mut room = [0; 256];
        let deadline = Instant::now() + Duration::from_secs(5);
        for wanted in [everyone, OWN] {
            let length = loop {
                assert!(Instant::now() < deadline, "nothing came for {wanted:?}");
                // The kernel resolves neighbours on its own; those frames are skipped.
                match port.receive(&mut room).unwrap() {
                    Some(length) if room[HEADER + 12..][..2] != [0x86, 0xdd] => break length,
                    _ => {}
                }
            };
            assert_eq!((length, &room[HEADER..HEADER + 6]), (HEADER + 60, &wanted[..]));
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_refused() {
        let Some(()) = test_net::apart() else { return };
        let refused = Port::open(4711, OWN, 1 << 20).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
    }
}
