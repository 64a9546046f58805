//! Frames of a network device, sent one by one and received into a ring of buffers of
//! fixed number: packet(7), Documentation/networking/packet_mmap.rst (TPACKET_V2).
//!
//! The kernel fills the ring's frames in order and marks each with its status word;
//! who reads gives a frame back by clearing that word. A packet for which the next
//! frame has not been given back is dropped and counted (`tpacket_rcv`,
//! net/packet/af_packet.c).

use super::check;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Bytes of a ring's frame; holds the kernel's header and a packet of the least size.
const FRAME: u32 = 256;

/// Frames of a block, which is a page: the kernel allocates page by page.
const FRAMES_PER_BLOCK: u32 = 4096 / FRAME;

/// Frames that a ring may have: 64 MiB of memory.
pub const MOST_FRAMES: u32 = 1 << 18;

/// A ring of receive buffers at one device.
#[derive(Debug)]
pub struct PacketRing {
    socket: OwnedFd,
    start: NonNull<u8>,
    frames: u32,
    /// The first frame that has not been taken.
    next: u32,
    /// The first frame that has not been given back.
    oldest: u32,
    /// Frames taken and not given back.
    held: u32,
}

/// What came to a ring since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Packets, with those that were dropped.
    pub packets: u32,
    /// Packets that found no frame.
    pub dropped: u32,
}

impl PacketRing {
    /// A ring of at least so many frames for packets of this protocol (an ethertype)
    /// at the device of this index. EPERM: no CAP_NET_RAW; EINVAL: no or too many frames.
    pub fn new(device: u32, protocol: u16, frames: u32) -> io::Result<PacketRing> {
        if frames == 0 || frames > MOST_FRAMES {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let blocks = frames.div_ceil(FRAMES_PER_BLOCK);
        let frames = blocks * FRAMES_PER_BLOCK;
        let socket = raw_socket()?;
        set(&socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as u32))?;
        let request = libc::tpacket_req {
            tp_block_size: FRAME * FRAMES_PER_BLOCK,
            tp_block_nr: blocks,
            tp_frame_size: FRAME,
            tp_frame_nr: frames,
        };
        set(&socket, libc::PACKET_RX_RING, &request)?;
        let len = frames as usize * FRAME as usize;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping, at an address of the kernel's choice, of the ring
        // that the socket was just given; the kernel knows its length and checks it.
        let start = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, &socket, 0)? };
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null");
        let ring = PacketRing { socket, start, frames, next: 0, oldest: 0, held: 0 };
        bind(&ring.socket, device, protocol)?;
        Ok(ring)
    }

    /// Frames of the ring.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Whether the next so many frames are filled. More than are free never are.
    pub fn has(&self, count: u32) -> bool {
        if count == 0 || count > self.frames - self.held {
            return count == 0;
        }
        // The kernel fills in order, so that the last one tells of all before it.
        let last = (self.next + (count - 1)) % self.frames;
        self.status(last).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Takes the next so many frames, if they are filled.
    pub fn take(&mut self, count: u32) -> bool {
        let filled = self.has(count);
        if filled {
            self.next = (self.next + count) % self.frames;
            self.held += count;
        }
        filled
    }

    /// Gives the frames that were taken first back to the kernel: so many, or all.
    pub fn give_back(&mut self, count: u32) {
        for _ in 0..count.min(self.held) {
            self.status(self.oldest).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.oldest = (self.oldest + 1) % self.frames;
            self.held -= 1;
        }
    }

    /// What has come since the last call (`PACKET_STATISTICS`, which starts anew each time).
    pub fn counts(&self) -> io::Result<PacketCounts> {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: value and length describe one live structure of the type that this
        // option fills.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &mut len,
            )
        };
        check(result as libc::c_long)?;
        Ok(PacketCounts { packets: stats.tp_packets, dropped: stats.tp_drops })
    }

    /// Waits until a frame is filled that has not been taken, or for this long.
    pub fn wait(&self, patience: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) | Ok(_) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The status word of a frame, the first of its header (`struct tpacket2_hdr`).
    fn status(&self, frame: u32) -> &AtomicU32 {
        let offset = (frame % self.frames) as usize * FRAME as usize;
        // SAFETY: the offset lies within the mapping, which lives as long as self, and
        // is a multiple of the frame size, so aligned; kernel and process both access
        // the word as a whole.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        let len = self.frames as usize * FRAME as usize;
        // SAFETY: the mapping made in `new`, to which nothing refers any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), len) };
    }
}

/// Sends packets of the least size through a device.
#[derive(Debug)]
pub struct PacketSender {
    socket: OwnedFd,
    frame: [u8; 60],
}

impl PacketSender {
    /// For packets of this protocol (an ethertype) through the device of this index, to
    /// every station of its link.
    pub fn new(device: u32, protocol: u16) -> io::Result<PacketSender> {
        let socket = raw_socket()?;
        // Protocol 0 sends only: nothing is received into this socket (packet(7)).
        bind(&socket, device, 0)?;
        let mut frame = [0u8; 60];
        frame[..6].fill(0xff);
        frame[12..14].copy_from_slice(&protocol.to_be_bytes());
        Ok(PacketSender { socket, frame })
    }

    /// Sends one packet. ENOBUFS: the device's queue is full.
    pub fn send(&self) -> io::Result<()> {
        Ok(send(&self.socket, &self.frame, SendFlags::empty()).map(drop)?)
    }
}

fn raw_socket() -> io::Result<OwnedFd> {
    // Protocol 0: nothing is received before the socket is bound to a device.
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

fn set<T>(socket: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and length describe one live value, which the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result as libc::c_long).map(drop)
}

fn bind(socket: &OwnedFd, device: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: sockaddr_ll is integers and bytes, for which zeros are values.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = device as i32;
    let socket: BorrowedFd = socket.as_fd();
    // SAFETY: the pointer and length describe one live address, which the kernel only reads.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    check(result as libc::c_long).map(drop)
}
