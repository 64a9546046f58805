//! Sockets of a ring that come and go, used by their descriptors: multishot accept on one end;
//! connect, send and receive in one chain at the other. io_uring_prep_multishot_accept(3),
//! io_uring_prep_connect(3), `IOSQE_IO_LINK` of io_uring_enter(2).

use super::{Completion, GROUP, ManyRing};
use crate::memory::Region;
use io_uring::{opcode, squeue, types};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Set in the user data of operations that permanent sockets do not have.
pub(super) const ACCEPT: u64 = super::super::DESCRIPTOR;
pub(super) const CONNECT: u64 = 1 << 59;
pub(super) const CLOSE: u64 = 1 << 58;

/// The slot of a socket that comes and goes.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    /// The socket; -1 if there is none.
    fd: RawFd,
    /// Counts the sockets that had this slot, and the chains of one: completions of earlier ones
    /// are ignored.
    generation: u16,
    /// Whether a receive is in flight.
    pub(super) receives: bool,
    /// Bytes of the send in flight that is followed by a receive.
    sends: u32,
}

pub(super) const EMPTY: Slot = Slot { fd: -1, generation: 0, receives: false, sends: 0 };

/// The destination of a chain's connect; the kernel reads the address when the chain is submitted.
pub(super) struct Peer {
    /// Index of the address in `Core::kept`.
    place: usize,
    len: u32,
}

impl ManyRing {
    /// Queues a multishot accept; to be called again once it has ended.
    pub fn accept(&mut self, listener: BorrowedFd) -> io::Result<()> {
        let entry = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd()))
            .flags(libc::SOCK_CLOEXEC)
            .build();
        // SAFETY: the operation refers to no memory.
        unsafe { self.push(&[entry.user_data(ACCEPT)]) }
    }

    /// Adds an accepted socket, and queues a multishot receive on it. EINVAL: there is no such
    /// slot, or it is taken.
    pub fn add_accepted(&mut self, place: usize, socket: BorrowedFd) -> io::Result<()> {
        self.fill(place, socket)?;
        self.receive(place)
    }

    /// Queues the connect of a blocking socket, then the send of a part of the message, and then
    /// one receive. EINVAL: as for [`ManyRing::add_accepted`] and [`ManyRing::send`].
    pub fn connect(
        &mut self,
        place: usize,
        socket: BorrowedFd,
        peer: &SocketAddr,
        part: Range<usize>,
    ) -> io::Result<()> {
        self.part_len(&part)?;
        let (address, address_len) = self.address_of(peer)?;
        self.fill(place, socket)?;
        let fd = types::Fd(socket.as_raw_fd());
        let connect = opcode::Connect::new(fd, address.cast(), address_len).build();
        let connect = connect.flags(squeue::Flags::IO_LINK).user_data(self.data(place) | CONNECT);
        let [send, receive] = self.exchange(place, part)?;
        let chain = [connect, send, receive];
        // SAFETY: the core keeps the address and the message, which are only read. The receive
        // writes only to buffers of the group, which belong to the kernel.
        unsafe { self.push(&chain) }
    }

    /// Builds the send of a part of the message, and one receive after it.
    pub(super) fn exchange(
        &mut self,
        place: usize,
        part: Range<usize>,
    ) -> io::Result<[squeue::Entry; 2]> {
        let sends = self.part_len(&part)?;
        let send = self.one_send(place, part, libc::MSG_WAITALL)?.flags(squeue::Flags::IO_LINK);
        let receive = self.one_receive(place)?;
        if let Some(slot) = self.slot_mut(place) {
            slot.sends = sends;
        }
        Ok([send, receive])
    }

    /// Returns the number of bytes sent. If a send was short, the receive linked to it was
    /// cancelled; that completion is ignored.
    pub(super) fn sent(&mut self, completion: &Completion) -> io::Result<u32> {
        let (place, connects) = (self.current, self.peer.is_some());
        let Some(slot) = self.slot_mut(place).filter(|_| connects) else {
            return completion.bytes();
        };
        let bytes = match completion.bytes() {
            // A send that connects by TCP Fast Open, whose SYN carried no data.
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => 0,
            taken => taken?,
        };
        if bytes < slot.sends {
            slot.generation = slot.generation.wrapping_add(1);
            slot.receives = false;
        }
        slot.sends = 0;
        Ok(bytes)
    }

    /// Queues another receive on a socket that was connected here, if none is in flight.
    pub fn receive_more(&mut self, place: usize) -> io::Result<()> {
        match self.slot(place) {
            Some(slot) if slot.fd >= 0 && !slot.receives => self.receive_once(place),
            _ => Ok(()),
        }
    }

    /// Queues the close of a socket. Operations in flight on it are ended first, and not reported.
    pub fn close(&mut self, place: usize, socket: OwnedFd) -> io::Result<()> {
        self.close_after(place, socket, 0..0)
    }

    /// Like [`Self::close`], after the send of a part of the message, which is not reported either.
    pub fn close_after(
        &mut self,
        place: usize,
        socket: OwnedFd,
        last: Range<usize>,
    ) -> io::Result<()> {
        let send = match last.is_empty() {
            true => None,
            // It is closed even if the send fails.
            false => Some(self.one_send(place, last, 0)?.flags(squeue::Flags::IO_HARDLINK)),
        };
        let Some(slot) = self.slot_mut(place) else { return Ok(()) };
        let receives = slot.receives;
        *slot = Slot { generation: slot.generation.wrapping_add(1), ..EMPTY };
        if receives {
            // The receive holds a reference to the socket, so close alone would not notify the
            // peer.
            let _ = crate::tcp::shutdown(socket.as_fd(), crate::tcp::Shutdown::Both);
        }
        if place == self.current {
            // These bytes must not be taken for those of the next socket here.
            self.buffers.discard_rest(&self.core);
        }
        let entry = opcode::Close::new(types::Fd(socket.as_raw_fd())).build();
        let close = entry.user_data(CLOSE);
        match send {
            // SAFETY: the operation refers to no memory.
            None => unsafe { self.push(&[close]) },
            // SAFETY: the part lies within the region, which the core keeps, and is only read.
            Some(send) => unsafe { self.push(&[send, close]) },
        }?;
        self.core.defer_close(socket);
        Ok(())
    }

    pub(super) fn fill(&mut self, place: usize, socket: BorrowedFd) -> io::Result<()> {
        match self.slot_mut(place) {
            Some(slot) if slot.fd < 0 => {
                slot.fd = socket.as_raw_fd();
                Ok(())
            }
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    pub(super) fn receive_once(&mut self, place: usize) -> io::Result<()> {
        let receive = self.one_receive(place)?;
        // SAFETY: the operation writes only to buffers of the group, which belong to the kernel.
        unsafe { self.push(&[receive]) }
    }

    /// A receive that takes its buffers from the group and ends with them: no receive holds the
    /// socket when it is closed.
    fn one_receive(&mut self, place: usize) -> io::Result<squeue::Entry> {
        let (data, bundle) = (self.data(place), self.bundle);
        let Some(slot) = self.slot_mut(place) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        slot.receives = true;
        let fd = types::Fd(slot.fd);
        let entry = match bundle {
            true => opcode::RecvBundle::new(fd, GROUP).build(),
            false => opcode::Recv::new(fd, std::ptr::null_mut(), 0)
                .buf_group(GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT),
        };
        Ok(entry.user_data(data))
    }

    pub(super) fn slot(&self, place: usize) -> Option<&Slot> {
        self.slots.get(place.checked_sub(self.sockets)?)
    }

    pub(super) fn slot_mut(&mut self, place: usize) -> Option<&mut Slot> {
        self.slots.get_mut(place.checked_sub(self.sockets)?)
    }

    /// The descriptor of a socket that comes and goes; `None` for permanent ones.
    pub(super) fn descriptor(&self, place: usize) -> Option<types::Fd> {
        self.slot(place).map(|slot| types::Fd(slot.fd))
    }

    /// Whether a completion belongs to the socket that has the slot now.
    pub(super) fn is_current(&self, place: usize, data: u64) -> bool {
        self.slot(place).is_none_or(|slot| slot.generation == (data >> 32) as u16)
    }

    /// User data of an operation on a socket.
    pub(super) fn data(&self, place: usize) -> u64 {
        let generation = self.slot(place).map_or(0, |slot| slot.generation);
        place as u64 | u64::from(generation) << 32
    }

    /// Returns where the kernel reads the address of the one peer.
    fn address_of(&mut self, peer: &SocketAddr) -> io::Result<(*const u8, u32)> {
        if self.peer.is_none() {
            let (bytes, len) = crate::tcp::address_bytes(peer);
            let mut region = Region::new(bytes.len(), false)?;
            region[..bytes.len()].copy_from_slice(&bytes);
            self.peer = Some(Peer { place: self.core.keep(region), len });
        }
        let peer = self.peer.as_ref().map(|peer| (self.core.kept[peer.place].as_ptr(), peer.len));
        peer.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }
}
