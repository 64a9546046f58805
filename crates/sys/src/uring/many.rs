//! Many stream sockets by one ring: a multishot receive on each, all from one group of provided
//! buffers, and a send at a time on each. io_uring_prep_recv_multishot(3), io_uring_prep_send(3).

mod passing;

use super::group::{BufferGroup, GROUP};
use super::{Completion, Core, Wait, is_transient};
use crate::memory::Region;
use io_uring::{cqueue, opcode, squeue, types};
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::slice;

/// The buffers of a ring for many sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManyShape {
    /// Number of provided buffers, 1 to 32768.
    pub buffers: u16,
    /// Bytes of each, 1 to 1 GiB.
    pub buffer_size: u32,
}

/// What came of an operation on one of the sockets, which is named by its place among them.
#[derive(Debug)]
pub enum ManyEvent<'a> {
    /// The next bytes of its stream. They go back to the kernel at the next call.
    Received { socket: usize, bytes: &'a [u8] },
    /// Its receive direction is shut: by the peer, or by ourselves.
    Ended { socket: usize },
    /// So many bytes of the part given to [`ManyRing::send`] are queued at the socket.
    Sent { socket: usize, bytes: u32 },
    /// No buffer was free (ENOBUFS). The receive is started again.
    Short { socket: usize },
    /// A receive, a send or a connect has failed.
    Failed { socket: usize, error: io::Error },
    /// A connection was accepted. `last`: no more will be, before [`ManyRing::accept`].
    Accepted { connection: OwnedFd, last: bool },
    /// An accept has failed, and no more will be accepted.
    NotAccepted { error: io::Error },
}

/// A ring that receives from many stream sockets into buffers that they share, and sends parts of
/// one message to them.
pub struct ManyRing {
    core: Core,
    group: BufferGroup,
    shape: ManyShape,
    sockets: usize,
    /// Places of sockets that come and go, after those of the others.
    slots: Box<[passing::Slot]>,
    /// Whom those that are connected here are connected to.
    peer: Option<passing::Peer>,
    /// Bytes of the message.
    len: usize,
    /// The buffer whose bytes the caller was given last.
    lent: Option<u16>,
}

/// Places of the memory in `Core::kept`.
const BUFFERS: usize = 0;
const MESSAGE: usize = 1;

/// Mark in the user data of sends. The socket's place is in its lower half.
const SEND: u64 = 1 << 61;

/// Most submissions at once: the rest of a batch is submitted by a call of its own.
const MOST_ENTRIES: u32 = 4096;

/// Completions there is room for: of a larger number the kernel keeps the rest in memory of its
/// own (`IORING_FEAT_NODROP`).
const MOST_COMPLETIONS: u32 = 1 << 16;

impl ManyRing {
    /// A ring for these sockets, and `passing` places for others that come and go, which sends from
    /// `message`, with all memory taken and touched. EINVAL: the shape is out of range, or the kernel has no such buffer ring. EMFILE: more
    /// sockets than may be registered (`RLIMIT_NOFILE`).
    pub fn new(
        sockets: &[BorrowedFd],
        passing: usize,
        message: Region,
        shape: ManyShape,
    ) -> io::Result<Self> {
        let sized =
            (1..=1 << 15).contains(&shape.buffers) && (1..=1 << 30).contains(&shape.buffer_size);
        if !sized || sockets.is_empty() || message.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // Of one that comes and goes: connect, send, receive, close.
        let operations = 2 * sockets.len() + 4 * passing;
        let operations = u32::try_from(operations).unwrap_or(u32::MAX);
        let completions = operations.saturating_add(shape.buffers.into()).min(MOST_COMPLETIONS);
        let mut core = Core::new(sockets, operations.min(MOST_ENTRIES), completions)?;
        let bytes = usize::from(shape.buffers) * shape.buffer_size as usize;
        let place = core.keep(Region::new(bytes, false)?);
        debug_assert_eq!(place, BUFFERS);
        let len = message.len();
        let place = core.keep(message);
        debug_assert_eq!(place, MESSAGE);
        let group = BufferGroup::new(&mut core, shape.buffers, false)?;
        let (slots, sockets) = (vec![passing::EMPTY; passing].into(), sockets.len());
        let mut ring = ManyRing { core, group, shape, sockets, slots, peer: None, len, lent: None };
        for id in 0..shape.buffers {
            ring.give_back(id);
        }
        Ok(ring)
    }

    /// Whether the kernel is to count waits as iowait; otherwise it is left out where the kernel
    /// can (Linux 6.15).
    pub fn count_iowait(&mut self, wanted: bool) {
        self.core.ring.count_iowait(wanted);
    }

    /// Binds the ring to the calling thread, and queues a receive on each socket; see the
    /// module's documentation.
    pub fn activate(&mut self) -> io::Result<()> {
        self.core.ring.activate()?;
        (0..self.sockets).try_for_each(|socket| self.receive(socket))
    }

    /// Bytes of memory that the ring owns and shares with the kernel, its queues included.
    pub fn memory(&self) -> usize {
        let kept: usize = self.core.kept.iter().map(|region| region.len()).sum();
        let params = self.core.ring.uring.params();
        let queues = params.sq_entries() as usize * size_of::<squeue::Entry>()
            + params.cq_entries() as usize * size_of::<cqueue::Entry>();
        let gathered = self.core.gathered.capacity() * size_of::<Completion>();
        kept + queues + gathered + size_of_val(&self.slots[..])
    }

    /// Queues the send of a part of the message, whose bytes go out whole or not at all. A socket
    /// has one at a time, or their order is not known. EINVAL: the part is not within the message,
    /// or there is no such socket.
    pub fn send(&mut self, socket: usize, part: Range<usize>) -> io::Result<()> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let places = self.sockets + self.slots.len();
        if socket >= places || part.start > part.end || part.end > self.len {
            return Err(invalid());
        }
        let len = u32::try_from(part.len()).map_err(|_| invalid())?;
        let address = self.core.kept[MESSAGE].as_ptr().wrapping_add(part.start);
        let send = match self.descriptor(socket) {
            Some(fd) => opcode::Send::new(fd, address, len),
            None => opcode::Send::new(types::Fixed(socket as u32), address, len),
        };
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let entry = send.flags(flags).build().user_data(self.data(socket) | SEND);
        // SAFETY: the part lies within the region, which the core keeps, and is only read.
        unsafe { self.push(&entry) }
    }

    /// Submits what is queued, and waits (io_uring_enter(2)). The value is the bytes that came in
    /// and went out; [`ManyRing::event`] hands the events out.
    pub fn enter(&mut self, wait: &Wait) -> io::Result<usize> {
        self.take_back();
        match wait {
            Wait { want, limit: None, gather } if gather.is_zero() => self.core.enter(*want),
            limited => self.core.enter_within(limited),
        }
    }

    /// Whether something that came in has not been handed out.
    #[inline]
    pub fn pending(&self) -> bool {
        !self.core.gathered.is_empty()
    }

    /// The next event; none when `enter` has to be called again.
    #[inline]
    pub fn event(&mut self) -> Option<ManyEvent<'_>> {
        self.take_back();
        let completion = self.next_of_interest()?;
        if completion.data & passing::ACCEPT != 0 {
            return Some(accepted(&completion));
        }
        let socket = completion.data as u32 as usize;
        if let Some(slot) = self.slot_mut(socket).filter(|_| completion.data & SEND == 0) {
            slot.receives = completion.more();
        }
        if completion.data & SEND != 0 {
            return Some(match completion.bytes() {
                Ok(bytes) => ManyEvent::Sent { socket, bytes },
                Err(error) => ManyEvent::Failed { socket, error },
            });
        }
        let again = |ring: &mut Self| match completion.more() {
            true => Ok(()),
            // What was connected here is received from on request.
            false if ring.peer.is_some() && socket >= ring.sockets => Ok(()),
            false => ring.receive(socket),
        };
        match completion.bytes() {
            Ok(0) => Some(ManyEvent::Ended { socket }),
            Ok(bytes) => {
                if let Err(error) = again(self) {
                    return Some(ManyEvent::Failed { socket, error });
                }
                match self.filled(&completion, bytes) {
                    Ok(bytes) => Some(ManyEvent::Received { socket, bytes }),
                    Err(error) => Some(ManyEvent::Failed { socket, error }),
                }
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => match self.receive(socket) {
                Ok(()) => Some(ManyEvent::Short { socket }),
                Err(error) => Some(ManyEvent::Failed { socket, error }),
            },
            Err(error) => Some(ManyEvent::Failed { socket, error }),
        }
    }

    /// The bytes of a completion, which the kernel has put into a buffer of the group.
    fn filled(&mut self, completion: &Completion, bytes: u32) -> io::Result<&[u8]> {
        let id = cqueue::buffer_select(completion.flags);
        let Some(id) = id.filter(|id| *id < self.shape.buffers && bytes <= self.shape.buffer_size)
        else {
            let text = format!("the kernel reports {bytes} bytes in buffer {id:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        };
        self.lent = Some(id);
        let at = usize::from(id) * self.shape.buffer_size as usize;
        // SAFETY: the buffer lies within the region. The kernel has filled these bytes and writes
        // to them again only after `give_back`, which needs the exclusive borrow that this
        // reference holds.
        Ok(unsafe {
            slice::from_raw_parts(self.core.kept[BUFFERS].as_ptr().add(at), bytes as usize)
        })
    }

    fn receive(&mut self, socket: usize) -> io::Result<()> {
        let receive = match self.descriptor(socket) {
            Some(_) if self.peer.is_some() => return self.receive_once(socket),
            Some(fd) => opcode::RecvMulti::new(fd, GROUP),
            None => opcode::RecvMulti::new(types::Fixed(socket as u32), GROUP),
        };
        let entry = receive.build().user_data(self.data(socket));
        if let Some(slot) = self.slot_mut(socket) {
            slot.receives = true;
        }
        // SAFETY: the operation writes only to buffers of the group, which `give_back` put there.
        unsafe { self.push(&entry) }
    }

    /// The next completion of a socket that is there, which is not that of a close, nor of a connect
    /// that has worked. Buffers of others go back.
    fn next_of_interest(&mut self) -> Option<Completion> {
        loop {
            let completion = self.core.take()?;
            let (data, place) = (completion.data, completion.data as u32 as usize);
            let is_over = data & passing::CLOSE != 0
                || data & passing::ACCEPT == 0 && !self.is_current(place, data);
            if is_over && let Some(id) = cqueue::buffer_select(completion.flags) {
                self.give_back(id);
            }
            let connected = data & passing::CONNECT != 0 && completion.result == 0;
            if !is_over && !connected {
                return Some(completion);
            }
        }
    }

    /// Queues an operation; where the queue is full, after what is in it was submitted.
    ///
    /// # Safety
    ///
    /// As of [`Core::push`].
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: by the caller's promise.
        match unsafe { self.core.push(entry) } {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
            other => return other,
        }
        self.submit()?;
        // SAFETY: as above.
        unsafe { self.core.push(entry) }
    }

    /// Submits what is queued, and waits for nothing.
    pub fn submit(&mut self) -> io::Result<()> {
        match self.core.enter(0) {
            Err(e) if !is_transient(&e) => Err(e),
            _ => Ok(()),
        }
    }

    fn take_back(&mut self) {
        if let Some(id) = self.lent.take() {
            self.give_back(id);
        }
    }

    fn give_back(&mut self, id: u16) {
        let size = self.shape.buffer_size;
        let at = usize::from(id) * size as usize;
        let address = self.core.kept[BUFFERS].as_ptr() as u64 + at as u64;
        // SAFETY: the buffer lies within the region, and the caller of `event` no longer borrows
        // it.
        unsafe { self.group.provide(&self.core, address, size, id) };
    }

    /// Ends all operations; to be called by the ring's thread before it gives up streams that
    /// have not ended.
    pub fn cancel(&mut self) {
        self.core.cancel();
    }
}

fn accepted<'a>(completion: &Completion) -> ManyEvent<'a> {
    if let Err(error) = completion.bytes() {
        return ManyEvent::NotAccepted { error };
    }
    // SAFETY: the kernel has opened this descriptor for the one who takes the completion.
    let connection = unsafe { OwnedFd::from_raw_fd(completion.result) };
    ManyEvent::Accepted { connection, last: !completion.more() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{self, FlowOptions};
    use crate::uring::features;
    use bytepath_testing::skip;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    const SHAPE: ManyShape = ManyShape { buffers: 2, buffer_size: 4096 };

    /// A ring for so many sockets, and their peers. `None`, with the reason printed, where this
    /// host has no io_uring with multishot receives.
    fn ring(
        sockets: usize,
        shape: ManyShape,
    ) -> Option<(ManyRing, Vec<UnixStream>, Vec<UnixStream>)> {
        ring_with(sockets, 0, shape)
    }

    /// The same with places for sockets that come and go.
    fn ring_with(
        sockets: usize,
        passing: usize,
        shape: ManyShape,
    ) -> Option<(ManyRing, Vec<UnixStream>, Vec<UnixStream>)> {
        if let Err(e) = crate::uring::try_recv_multishot(false) {
            skip!("a multishot receive: {e}");
            return None;
        }
        let pairs: Vec<_> = (0..sockets).map(|_| UnixStream::pair().unwrap()).collect();
        let (here, there): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut message = Region::new(3000, false).unwrap();
        message.fill(7);
        let fds: Vec<BorrowedFd> = here.iter().map(UnixStream::as_fd).collect();
        let mut ring = ManyRing::new(&fds, passing, message, shape).unwrap();
        ring.activate().unwrap();
        Some((ring, here, there))
    }

    /// What has come in by socket, until `done` is content with it.
    fn collect(ring: &mut ManyRing, sockets: usize, done: impl Fn(&[Vec<u8>]) -> bool) -> usize {
        let (mut all, mut short) = (vec![Vec::new(); sockets], 0);
        while !done(&all) {
            ring.enter(&Wait { want: 1, ..Wait::default() }).unwrap();
            while let Some(event) = ring.event() {
                match event {
                    ManyEvent::Received { socket, bytes } => all[socket].extend_from_slice(bytes),
                    ManyEvent::Short { .. } => short += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        short
    }

    #[test]
    fn refuses_what_is_not_of_the_ring() {
        let Some((mut ring, ..)) = ring(2, SHAPE) else { return };
        let invalid = |result: io::Result<()>| {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        };
        invalid(ring.send(2, 0..1));
        invalid(ring.send(0, 0..3001));
        #[allow(clippy::reversed_empty_ranges)]
        invalid(ring.send(0, 2..1));
    }

    #[test]
    fn every_socket_gets_its_own_bytes() {
        let Some((mut ring, _here, mut there)) = ring(5, SHAPE) else { return };
        for (socket, peer) in there.iter_mut().enumerate() {
            peer.write_all(&[socket as u8; 100]).unwrap();
        }
        collect(&mut ring, 5, |all| {
            let whole = |(socket, bytes): (usize, &Vec<u8>)| *bytes == [socket as u8; 100];
            all.iter().enumerate().all(whole)
        });
        ring.send(3, 10..2010).unwrap();
        ring.enter(&Wait { want: 1, ..Wait::default() }).unwrap();
        assert!(matches!(ring.event(), Some(ManyEvent::Sent { socket: 3, bytes: 2000 })));
        let mut got = [0; 2000];
        there[3].read_exact(&mut got).unwrap();
        assert_eq!(got, [7; 2000]);
    }

    #[test]
    fn short_buffers_delay_and_lose_nothing() {
        let Some((mut ring, _here, mut there)) = ring(8, ManyShape { buffers: 1, buffer_size: 64 })
        else {
            return;
        };
        for peer in &mut there {
            peer.write_all(&[1; 1000]).unwrap();
        }
        let short = collect(&mut ring, 8, |all| all.iter().all(|bytes| bytes.len() == 1000));
        assert!(short > 0, "eight sockets and one buffer");
    }

    #[test]
    fn an_end_and_the_end_of_a_wait_are_no_errors() {
        let Some((mut ring, _here, mut there)) = ring(2, SHAPE) else { return };
        let limit = Some(Duration::from_millis(1));
        ring.enter(&Wait { want: 1, limit, ..Wait::default() }).unwrap();
        assert!(ring.event().is_none());
        drop(there.remove(1));
        ring.enter(&Wait { want: 1, ..Wait::default() }).unwrap();
        assert!(matches!(ring.event(), Some(ManyEvent::Ended { socket: 1 })));
        assert!(features().is_ok());
    }

    #[test]
    fn fewer_events_than_wanted_end_a_wait_that_gathers() {
        let Some((mut ring, _here, mut there)) = ring(2, SHAPE) else { return };
        if !features().is_ok_and(|features| features.min_timeout) {
            skip!("this kernel's io_uring has no minimum wait");
            return;
        }
        there[0].write_all(&[1]).unwrap();
        let gather = Duration::from_millis(2);
        ring.enter(&Wait { want: 2, limit: None, gather }).unwrap();
        assert!(matches!(ring.event(), Some(ManyEvent::Received { socket: 0, .. })));
    }

    /// The next event of a ring, waited for.
    fn next(ring: &mut ManyRing) -> String {
        loop {
            if !ring.pending() {
                ring.enter(&Wait { want: 1, ..Wait::default() }).unwrap();
            }
            match ring.event() {
                Some(ManyEvent::Received { socket, bytes }) => {
                    return format!("{socket} received {}", bytes.len());
                }
                Some(ManyEvent::Failed { socket, error }) => {
                    return format!("{socket} failed: {:?}", error.raw_os_error());
                }
                Some(event) => return format!("{event:?}"),
                None => {}
            }
        }
    }

    fn blocking() -> std::os::fd::OwnedFd {
        tcp::unconnected(LOCALHOST, false, &FlowOptions::default()).unwrap()
    }

    const LOCALHOST: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn connections_come_and_go_at_the_same_place() {
        let Some((mut server, _kept, _peers)) = ring_with(1, 2, SHAPE) else { return };
        let Some((mut client, _kept_too, _others)) = ring_with(1, 1, SHAPE) else { return };
        let listener = std::net::TcpListener::bind((LOCALHOST, 0)).unwrap();
        let peer = listener.local_addr().unwrap();
        server.accept(listener.as_fd()).unwrap();
        for place in [1, 2, 1] {
            let socket = blocking();
            client.connect(1, socket.as_fd(), &peer, 0..100).unwrap();
            let taken = client.connect(1, socket.as_fd(), &peer, 0..100).unwrap_err();
            assert_eq!(taken.raw_os_error(), Some(libc::EINVAL), "the place is taken");
            client.submit().unwrap();
            server.enter(&Wait { want: 1, ..Wait::default() }).unwrap();
            let Some(ManyEvent::Accepted { connection, last: false }) = server.event() else {
                panic!("no connection")
            };
            server.take_in(place, connection.as_fd()).unwrap();
            // The rest of a chain may be issued only while its own ring is waited for.
            assert_eq!(next(&mut client), "Sent { socket: 1, bytes: 100 }");
            assert_eq!(next(&mut server), format!("{place} received 100"));
            server.send(place, 0..70).unwrap();
            assert_eq!(next(&mut server), format!("Sent {{ socket: {place}, bytes: 70 }}"));
            assert_eq!(next(&mut client), "1 received 70");
            client.receive_more(1).unwrap();
            server.send(place, 0..30).unwrap();
            assert_eq!(next(&mut server), format!("Sent {{ socket: {place}, bytes: 30 }}"));
            assert_eq!(next(&mut client), "1 received 30");
            // Nothing is received any more, so the peer's end follows at once.
            client.close(1, socket).unwrap();
            client.submit().unwrap();
            assert_eq!(next(&mut server), format!("Ended {{ socket: {place} }}"));
            server.close(place, connection).unwrap();
            server.submit().unwrap();
        }
    }

    #[test]
    fn what_was_under_way_on_a_closed_socket_is_not_of_the_next() {
        let Some((mut client, _kept, _peers)) = ring_with(1, 1, SHAPE) else { return };
        let listener = std::net::TcpListener::bind((LOCALHOST, 0)).unwrap();
        let peer = listener.local_addr().unwrap();
        let socket = blocking();
        client.connect(1, socket.as_fd(), &peer, 0..10).unwrap();
        assert_eq!(next(&mut client), "Sent { socket: 1, bytes: 10 }");
        // The receive is still under way; the peer gets its end all the same.
        client.close(1, socket).unwrap();
        client.submit().unwrap();
        let mut accepted = listener.accept().unwrap().0;
        let mut all = Vec::new();
        accepted.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 10);
        drop(listener);
        let socket = blocking();
        client.connect(1, socket.as_fd(), &peer, 0..10).unwrap();
        assert_eq!(next(&mut client), format!("1 failed: {:?}", Some(libc::ECONNREFUSED)));
        client.close(1, socket).unwrap();
        client.submit().unwrap();
        // Neither the cancelled rest of the chain nor the close is an event.
        client.enter(&Wait { want: 0, ..Wait::default() }).unwrap();
        assert!(client.event().is_none());
    }
}
