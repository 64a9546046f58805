//! Many stream sockets on one ring: a multishot receive on each, all from one group of provided
//! buffers, and at most one send at a time on each. io_uring_prep_recv_multishot(3),
//! io_uring_prep_send(3).

mod passing;

use super::buffers::{Buffers, RecvShape};
use super::group::GROUP;
use super::{BusyPoll, Completion, Core, RingMode, Wait, is_transient};
use crate::memory::Region;
use io_uring::{cqueue, opcode, squeue, types};
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The outcome of an operation on one of the sockets, which is identified by its index.
#[derive(Debug)]
pub enum ManyEvent<'a> {
    /// The next bytes of its stream. Their buffer goes back to the kernel at the next call.
    Received { socket: usize, bytes: &'a [u8] },
    /// Its receive direction is shut down: by the peer, or by us.
    Ended { socket: usize },
    /// This many bytes of the part given to [`ManyRing::send`] are queued at the socket.
    Sent { socket: usize, bytes: u32 },
    /// No buffer was free (ENOBUFS). The receive is started again.
    OutOfBuffers { socket: usize },
    /// A receive, a send or a connect failed.
    Failed { socket: usize, error: io::Error },
    /// A connection was accepted. `last`: no more will be until [`ManyRing::accept`] is called
    /// again.
    Accepted { connection: OwnedFd, last: bool },
    /// An accept failed; no more connections will be accepted.
    NotAccepted { error: io::Error },
}

/// A ring that receives from many stream sockets into shared buffers, and sends parts of one
/// message to them.
pub struct ManyRing {
    core: Core,
    buffers: Buffers,
    bundle: bool,
    /// The socket that the current completion belongs to.
    current: usize,
    sockets: usize,
    /// Slots for sockets that come and go; their indices follow those of the others.
    slots: Box<[passing::Slot]>,
    /// The peer of the sockets that are connected here.
    peer: Option<passing::Peer>,
    /// Length of the message in bytes.
    len: usize,
}

/// Index of the message in `Core::kept`.
const MESSAGE: usize = 0;

/// Set in the user data of sends. The lower half contains the socket's index.
const SEND: u64 = 1 << 61;

/// Most submissions at once: the rest of a larger batch takes another call.
const MOST_ENTRIES: u32 = 4096;

/// Most completions to reserve room for; if there are more, the kernel keeps them in memory of its
/// own (`IORING_FEAT_NODROP`).
const MOST_COMPLETIONS: u32 = 1 << 16;

impl ManyRing {
    /// Makes a ring for `sockets`, with `passing` slots for others that come and go, which sends
    /// from `message`. All memory is allocated and touched now. EINVAL: the shape is out of range,
    /// or the kernel has no such buffer ring. EMFILE: more sockets than may be registered
    /// (`RLIMIT_NOFILE`).
    pub fn new(
        sockets: &[BorrowedFd],
        passing: usize,
        message: Region,
        shape: RecvShape,
        mode: RingMode,
    ) -> io::Result<Self> {
        shape.check()?;
        if sockets.is_empty() || message.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // For a socket that comes and goes: connect, send, receive, a last send, close.
        let operations = 2 * sockets.len() + 5 * passing;
        let operations = u32::try_from(operations).unwrap_or(u32::MAX);
        let completions = operations.saturating_add(shape.buffers.into()).min(MOST_COMPLETIONS);
        let mut core = Core::new(sockets, operations.min(MOST_ENTRIES), completions, mode)?;
        let len = message.len();
        let place = core.keep(message);
        debug_assert_eq!(place, MESSAGE);
        let buffers = Buffers::new(&mut core, shape)?;
        core.closing.reserve(core.ring.uring.params().sq_entries() as usize);
        let (bundle, current, sockets) = (shape.bundle, 0, sockets.len());
        let slots = vec![passing::EMPTY; passing].into();
        Ok(ManyRing { core, buffers, bundle, current, sockets, slots, peer: None, len })
    }

    /// Has the kernel count waits as iowait if `wanted`; otherwise they are left out, if the kernel
    /// supports that (Linux 6.15).
    pub fn count_iowait(&mut self, wanted: bool) {
        self.core.ring.count_iowait(wanted);
    }

    /// Makes waits poll devices. EINVAL: before Linux 6.9, or 6.13 with a list of queues;
    /// EOPNOTSUPP: without `CONFIG_NET_RX_BUSY_POLL`.
    pub fn busy_poll(&mut self, polling: &BusyPoll) -> io::Result<()> {
        self.core.ring.busy_poll(polling)
    }

    /// Binds the ring to the calling thread, and queues a receive on each socket; see the
    /// module's documentation.
    pub fn activate(&mut self) -> io::Result<()> {
        self.core.ring.activate()?;
        (0..self.sockets).try_for_each(|socket| self.receive(socket))
    }

    /// Bytes of memory that the ring owns or shares with the kernel, including its queues.
    pub fn memory(&self) -> usize {
        let kept: usize = self.core.kept.iter().map(|region| region.len()).sum();
        let params = self.core.ring.uring.params();
        let queues = params.sq_entries() as usize * size_of::<squeue::Entry>()
            + params.cq_entries() as usize * size_of::<cqueue::Entry>();
        let gathered = self.core.gathered.capacity() * size_of::<Completion>();
        let closing = self.core.closing.capacity() * size_of::<(u64, OwnedFd)>();
        kept + queues + gathered + closing + size_of_val(&self.slots[..])
    }

    /// Queues the send of a part of the message; all of it is sent unless the socket fails. Call
    /// this for one send per socket at a time, or their order is undefined. On a socket that was
    /// connected here a receive follows, if none is in flight. EINVAL: the part is not within the
    /// message, or there is no such socket.
    pub fn send(&mut self, socket: usize, part: Range<usize>) -> io::Result<()> {
        if self.peer.is_some() && self.slot(socket).is_some_and(|slot| !slot.receives) {
            let both = self.exchange(socket, part)?;
            // SAFETY: as below. The receive writes only to buffers of the group, which belong to
            // the kernel.
            return unsafe { self.push(&both) };
        }
        let send = self.one_send(socket, part, libc::MSG_WAITALL)?;
        // SAFETY: the part lies within the region, which the core keeps, and is only read.
        unsafe { self.push(&[send]) }
    }

    /// Like [`Self::send`], but sends only as many of the bytes as there is room for, once there is
    /// any.
    pub fn send_some(&mut self, socket: usize, part: Range<usize>) -> io::Result<()> {
        let send = self.one_send(socket, part, 0)?;
        // SAFETY: as above.
        unsafe { self.push(&[send]) }
    }

    /// Returns the length of a part in bytes. EINVAL: it is not within the message.
    fn part_len(&self, part: &Range<usize>) -> io::Result<u32> {
        let is_within = part.start <= part.end && part.end <= self.len;
        let len = is_within.then(|| u32::try_from(part.len()).ok()).flatten();
        len.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }

    fn one_send(&self, socket: usize, part: Range<usize>, flags: i32) -> io::Result<squeue::Entry> {
        let len = self.part_len(&part)?;
        if socket >= self.sockets + self.slots.len() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let address = self.core.kept[MESSAGE].as_ptr().wrapping_add(part.start);
        let send = match self.descriptor(socket) {
            Some(fd) => opcode::Send::new(fd, address, len),
            None => opcode::Send::new(types::Fixed(socket as u32), address, len),
        };
        let flags = flags | libc::MSG_NOSIGNAL;
        Ok(send.flags(flags).build().user_data(self.data(socket) | SEND))
    }

    /// Memory of the message, to be written before it is sent: if a send in flight still reads the
    /// part, it is undefined which bytes it sends. EINVAL: the part is not within the message.
    pub fn message(&mut self, part: Range<usize>) -> io::Result<&mut [u8]> {
        self.part_len(&part)?;
        Ok(&mut self.core.kept[MESSAGE][part])
    }

    /// Submits what is queued, and waits (io_uring_enter(2)). Returns the number of bytes received
    /// and sent; [`ManyRing::event`] hands out the events.
    pub fn enter(&mut self, wait: &Wait) -> io::Result<usize> {
        self.buffers.take_back(&self.core);
        match wait {
            Wait { want, limit: None, gather } if gather.is_zero() => self.core.enter(*want),
            limited => self.core.enter_within(limited),
        }
    }

    /// Whether an event has not been handed out yet. With a submitting kernel thread
    /// ([`RingMode::Polled`]), this includes what it has completed since, unless it has to be
    /// woken.
    #[inline]
    pub fn pending(&mut self) -> bool {
        self.core.poll();
        self.buffers.pending() || !self.core.gathered.is_empty()
    }

    /// Returns the next event, or `None` if `enter` has to be called again.
    #[inline]
    pub fn event(&mut self) -> Option<ManyEvent<'_>> {
        self.buffers.take_back(&self.core);
        if !self.buffers.pending() {
            let completion = match self.next_of_interest()? {
                Ok(completion) => completion,
                Err(error) => return Some(ManyEvent::Failed { socket: self.current, error }),
            };
            if completion.data & passing::ACCEPT != 0 {
                return Some(accepted(&completion));
            }
            if let Some(event) = self.without_bytes(&completion) {
                return Some(event);
            }
        }
        // SAFETY: `take_back` needs the exclusive borrow of `self` that `bytes` holds.
        let bytes = unsafe { self.buffers.piece(&self.core) };
        Some(ManyEvent::Received { socket: self.current, bytes })
    }

    /// Returns the event of a completion, or `None` if it has bytes, which the buffers then hand
    /// out.
    #[inline]
    fn without_bytes(&mut self, completion: &Completion) -> Option<ManyEvent<'static>> {
        let socket = self.current;
        if let Some(slot) = self.slot_mut(socket).filter(|_| completion.data & SEND == 0) {
            slot.receives = completion.more();
        }
        if completion.data & SEND != 0 {
            return Some(match self.sent(completion) {
                Ok(bytes) => ManyEvent::Sent { socket, bytes },
                Err(error) => ManyEvent::Failed { socket, error },
            });
        }
        let again = |ring: &mut Self, wanted: bool| match wanted && !completion.more() {
            true => ring.receive(socket),
            false => Ok(()),
        };
        // Sockets that were connected here receive only on request.
        let lasts = self.peer.is_none() || socket < self.sockets;
        let event = match completion.bytes() {
            Ok(0) => Ok(Some(ManyEvent::Ended { socket })),
            Ok(_) => {
                again(self, lasts).and_then(|()| self.buffers.begin(completion)).map(|()| None)
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                again(self, true).map(|()| Some(ManyEvent::OutOfBuffers { socket }))
            }
            Err(error) => Err(error),
        };
        event.unwrap_or_else(|error| Some(ManyEvent::Failed { socket, error }))
    }

    fn receive(&mut self, socket: usize) -> io::Result<()> {
        let file = types::Fixed(socket as u32);
        let entry = match (self.descriptor(socket), self.bundle) {
            (Some(_), _) if self.peer.is_some() => return self.receive_once(socket),
            (Some(fd), true) => opcode::RecvMultiBundle::new(fd, GROUP).build(),
            (Some(fd), false) => opcode::RecvMulti::new(fd, GROUP).build(),
            (None, true) => opcode::RecvMultiBundle::new(file, GROUP).build(),
            (None, false) => opcode::RecvMulti::new(file, GROUP).build(),
        };
        let entry = entry.user_data(self.data(socket));
        if let Some(slot) = self.slot_mut(socket) {
            slot.receives = true;
        }
        // SAFETY: the operation writes only to buffers of the group, which belong to the kernel.
        unsafe { self.push(&[entry]) }
    }

    /// Returns the next completion for a socket that is still there, skipping closes and successful
    /// connects. Buffers of skipped completions are given back.
    fn next_of_interest(&mut self) -> Option<io::Result<Completion>> {
        loop {
            let completion = self.core.take()?;
            let (data, place) = (completion.data, completion.data as u32 as usize);
            self.current = place;
            let is_over = data & passing::CLOSE != 0
                || data & passing::ACCEPT == 0 && !self.is_current(place, data);
            if is_over && let Err(error) = self.buffers.discard(&self.core, &completion) {
                return Some(Err(error));
            }
            let connected = data & passing::CONNECT != 0 && completion.result == 0;
            if !is_over && !connected {
                return Some(Ok(completion));
            }
        }
    }

    /// Queues operations, which the kernel sees all at once, so that a chain stays whole. If the
    /// queue is full, its content is submitted first.
    ///
    /// # Safety
    ///
    /// Same as for [`Core::push`].
    unsafe fn push(&mut self, entries: &[squeue::Entry]) -> io::Result<()> {
        let mut entered = false;
        loop {
            // SAFETY: by the caller's promise.
            let pushed = unsafe { self.core.push_all(entries) };
            let is_full = pushed.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY));
            // Any notification ends the wait for a kernel thread to make room; in the other modes
            // everything has been submitted.
            if !is_full || (entered && !self.core.ring.polled) {
                return pushed;
            }
            self.submit()?;
            entered = true;
        }
    }

    /// Submits what is queued, without waiting.
    pub fn submit(&mut self) -> io::Result<()> {
        match self.core.enter(0) {
            Err(e) if !is_transient(&e) => Err(e),
            _ => Ok(()),
        }
    }

    /// Cancels all operations; to be called by the ring's thread before it abandons streams that
    /// have not ended.
    pub fn cancel(&mut self) {
        self.core.cancel();
    }
}

fn accepted<'a>(completion: &Completion) -> ManyEvent<'a> {
    // SAFETY: the completion is that of an accept, and is handed out once.
    match unsafe { completion.descriptor() } {
        Ok(connection) => ManyEvent::Accepted { connection, last: !completion.more() },
        Err(error) => ManyEvent::NotAccepted { error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{self, FlowOptions};
    use crate::uring::features;
    use bytepath_testing::skip;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::time::{Duration, Instant};

    const SHAPE: RecvShape =
        RecvShape { buffers: 2, buffer_size: 4096, bundle: false, incremental: false };

    const MODES: [RingMode; 5] = [
        RingMode::Best,
        RingMode::Deferred,
        RingMode::Cooperative,
        RingMode::Interrupted,
        RingMode::Polled { cpu: None },
    ];

    /// Returns each use of these buffers with each mode.
    fn variants(shape: RecvShape) -> impl Iterator<Item = (RecvShape, RingMode)> {
        let uses = [(false, false), (true, false), (false, true), (true, true)];
        let shapes = uses.map(|(bundle, incremental)| RecvShape { bundle, incremental, ..shape });
        shapes.into_iter().flat_map(|shape| MODES.map(|mode| (shape, mode)))
    }

    /// A ring for `sockets` sockets, and their peers. `None`, with the reason printed, if this
    /// host's io_uring cannot do it.
    fn ring(
        sockets: usize,
        variant: (RecvShape, RingMode),
    ) -> Option<(ManyRing, Vec<UnixStream>, Vec<UnixStream>)> {
        ring_with(sockets, 0, variant)
    }

    /// Like [`ring`], with slots for sockets that come and go.
    fn ring_with(
        sockets: usize,
        passing: usize,
        (shape, mode): (RecvShape, RingMode),
    ) -> Option<(ManyRing, Vec<UnixStream>, Vec<UnixStream>)> {
        let refused = crate::uring::try_recv_multishot(shape.bundle)
            .and_then(|()| crate::uring::try_buffer_ring(shape.incremental))
            .and_then(|()| crate::uring::setup(1, 1, mode).map(drop));
        if let Err(e) = refused {
            skip!("{shape:?}, {mode:?}: {e}");
            return None;
        }
        let pairs: Vec<_> = (0..sockets).map(|_| UnixStream::pair().unwrap()).collect();
        let (here, there): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut message = Region::new(3000, false).unwrap();
        message.fill(7);
        let fds: Vec<BorrowedFd> = here.iter().map(UnixStream::as_fd).collect();
        let mut ring = ManyRing::new(&fds, passing, message, shape, mode).unwrap();
        ring.activate().unwrap();
        Some((ring, here, there))
    }

    /// Collects the received bytes by socket until `done` returns true; returns how often buffers
    /// ran out.
    fn collect(ring: &mut ManyRing, sockets: usize, done: impl Fn(&[Vec<u8>]) -> bool) -> usize {
        let (mut all, mut short) = (vec![Vec::new(); sockets], 0);
        while !done(&all) {
            ring.enter(&Wait { want: 1, ..Wait::default() }).unwrap();
            while let Some(event) = ring.event() {
                match event {
                    ManyEvent::Received { socket, bytes } => all[socket].extend_from_slice(bytes),
                    ManyEvent::OutOfBuffers { .. } => short += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        short
    }

    #[test]
    fn refuses_what_is_not_of_the_ring() {
        let Some((mut ring, ..)) = ring(2, (SHAPE, RingMode::Best)) else { return };
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
        for variant in variants(SHAPE) {
            let Some((mut ring, _here, mut there)) = ring(5, variant) else { continue };
            for (socket, peer) in there.iter_mut().enumerate() {
                peer.write_all(&[socket as u8; 100]).unwrap();
            }
            collect(&mut ring, 5, |all| {
                let whole = |(socket, bytes): (usize, &Vec<u8>)| *bytes == [socket as u8; 100];
                all.iter().enumerate().all(whole)
            });
            ring.send(3, 10..2010).unwrap();
            while !ring.pending() {
                ring.enter(&Wait { want: 1, ..Wait::default() }).unwrap();
            }
            assert!(matches!(ring.event(), Some(ManyEvent::Sent { socket: 3, bytes: 2000 })));
            let mut got = [0; 2000];
            there[3].read_exact(&mut got).unwrap();
            assert_eq!(got, [7; 2000], "{variant:?}");
        }
    }

    /// Streams stay separate and in order even if they share buffers, or one buffer.
    #[test]
    fn short_buffers_delay_and_lose_nothing() {
        for variant in variants(RecvShape { buffers: 3, buffer_size: 64, ..SHAPE }) {
            let Some((mut ring, _here, mut there)) = ring(8, variant) else { continue };
            let stream = |socket: usize| (0..1000).map(move |at| (at * 7 + socket * 31) as u8);
            for (socket, peer) in there.iter_mut().enumerate() {
                peer.write_all(&stream(socket).collect::<Vec<_>>()).unwrap();
            }
            let short = collect(&mut ring, 8, |all| {
                let whole = |(socket, bytes): (usize, &Vec<u8>)| {
                    let came = bytes.iter().copied().eq(stream(socket).take(bytes.len()));
                    assert!(came, "{variant:?}: the bytes of socket {socket} are others");
                    bytes.len() == 1000
                };
                all.iter().enumerate().all(whole)
            });
            // A kernel thread may receive no faster than buffers are given back.
            let is_polled = matches!(variant.1, RingMode::Polled { .. });
            assert!(short > 0 || is_polled, "eight sockets and three buffers: {variant:?}");
        }
    }

    /// The kernel thread sleeps after a second; newly queued operations then wake it.
    #[test]
    fn a_submitting_thread_that_sleeps_is_woken() {
        let Some((mut ring, _here, mut there)) = ring(2, (SHAPE, RingMode::Polled { cpu: None }))
        else {
            return;
        };
        let limit = Some(Duration::from_millis(100));
        let begin = Instant::now();
        while !ring.core.ring.uring.submission().need_wakeup() {
            assert!(begin.elapsed() < Duration::from_secs(20), "it has had nothing to do");
            ring.enter(&Wait { want: 1, limit, ..Wait::default() }).unwrap();
        }
        ring.send(1, 0..10).unwrap();
        if !ring.pending() {
            let limit = Some(Duration::from_secs(20));
            ring.enter(&Wait { want: 1, limit, ..Wait::default() }).unwrap();
        }
        assert!(matches!(ring.event(), Some(ManyEvent::Sent { socket: 1, bytes: 10 })));
        there[1].read_exact(&mut [0; 10]).unwrap();
    }

    #[test]
    fn a_submitting_thread_stays_on_the_cpu_that_was_named() {
        let Some(_) = ring(1, (SHAPE, RingMode::Polled { cpu: None })) else { return };
        for cpu in crate::thread::allowed().unwrap() {
            // Named after the thread that made the ring.
            let allowed = std::thread::spawn(move || {
                let mode = RingMode::Polled { cpu: Some(cpu) };
                let (mut ring, _here, mut there) = ring(1, (SHAPE, mode)).unwrap();
                ring.send(0, 0..1).unwrap();
                there[0].read_exact(&mut [0]).expect("it has run");
                let name = format!("iou-sqp-{}", crate::thread::id());
                let tasks = std::fs::read_dir("/proc/self/task").unwrap();
                let mut tasks = tasks.map(|task| task.unwrap().path());
                let dir = tasks.find(|dir| crate::procfs::name(dir).is_some_and(|c| c == name));
                let status = std::fs::read_to_string(dir.expect(&name).join("status")).unwrap();
                let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
                list.unwrap().trim().to_owned()
            });
            assert_eq!(allowed.join().unwrap(), cpu.to_string());
        }
    }

    /// More operations than the queue has room for.
    #[test]
    fn a_full_queue_is_submitted() {
        for mode in MODES {
            let Some((mut ring, _here, mut there)) = ring(3, (SHAPE, mode)) else { continue };
            let room = ring.core.ring.uring.params().sq_entries();
            for _ in 0..room * 3 {
                ring.send(0, 0..1).unwrap();
            }
            let mut got = vec![0; room as usize * 3];
            let reader = std::thread::spawn(move || there[0].read_exact(&mut got).map(|()| there));
            for _ in 0..room * 3 {
                while !ring.pending() {
                    ring.enter(&Wait { want: 1, ..Wait::default() }).unwrap();
                }
                assert!(matches!(ring.event(), Some(ManyEvent::Sent { socket: 0, bytes: 1 })));
            }
            reader.join().unwrap().unwrap();
        }
    }

    #[test]
    fn an_end_and_the_end_of_a_wait_are_no_errors() {
        let Some((mut ring, _here, mut there)) = ring(2, (SHAPE, RingMode::Best)) else { return };
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
        let Some((mut ring, _here, mut there)) = ring(2, (SHAPE, RingMode::Best)) else { return };
        if !features().is_ok_and(|features| features.min_timeout) {
            skip!("this kernel's io_uring has no minimum wait");
            return;
        }
        there[0].write_all(&[1]).unwrap();
        let gather = Duration::from_millis(2);
        ring.enter(&Wait { want: 2, limit: None, gather }).unwrap();
        assert!(matches!(ring.event(), Some(ManyEvent::Received { socket: 0, .. })));
    }

    /// Waits for the next event of a ring.
    fn next<T>(ring: &mut ManyRing, what: impl Fn(ManyEvent) -> T) -> T {
        loop {
            if !ring.pending() {
                let limit = Some(Duration::from_secs(20));
                ring.enter(&Wait { want: 1, limit, ..Wait::default() }).unwrap();
                assert!(ring.pending(), "nothing comes any more");
            }
            if let Some(event) = ring.event() {
                return what(event);
            }
        }
    }

    fn text(event: ManyEvent) -> String {
        match event {
            ManyEvent::Received { socket, bytes } => format!("{socket} received {}", bytes.len()),
            ManyEvent::Failed { socket, error } => {
                format!("{socket} failed: {:?}", error.raw_os_error())
            }
            event => format!("{event:?}"),
        }
    }

    fn blocking() -> OwnedFd {
        tcp::unconnected(LOCALHOST, false, &FlowOptions::default()).unwrap()
    }

    const LOCALHOST: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn connections_come_and_go_at_the_same_place() {
        for variant in variants(SHAPE) {
            let Some((mut server, _kept, _peers)) = ring_with(1, 2, variant) else { continue };
            let Some((mut client, _kept_too, _others)) = ring_with(1, 1, variant) else { continue };
            let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
            let peer = listener.local_addr().unwrap();
            server.accept(listener.as_fd()).unwrap();
            for place in [1, 2, 1] {
                let socket = blocking();
                client.connect(1, socket.as_fd(), &peer, 0..100).unwrap();
                let taken = client.connect(1, socket.as_fd(), &peer, 0..100).unwrap_err();
                assert_eq!(taken.raw_os_error(), Some(libc::EINVAL), "the place is taken");
                client.submit().unwrap();
                let connection = next(&mut server, |event| match event {
                    ManyEvent::Accepted { connection, last: false } => connection,
                    other => panic!("{variant:?}: no connection, but {other:?}"),
                });
                server.add_accepted(place, connection.as_fd()).unwrap();
                // The rest of a chain may be issued only while its ring is being waited for.
                assert_eq!(next(&mut client, text), "Sent { socket: 1, bytes: 100 }");
                assert_eq!(next(&mut server, text), format!("{place} received 100"));
                server.send(place, 0..70).unwrap();
                assert_eq!(
                    next(&mut server, text),
                    format!("Sent {{ socket: {place}, bytes: 70 }}")
                );
                assert_eq!(next(&mut client, text), "1 received 70");
                client.receive_more(1).unwrap();
                server.send(place, 0..30).unwrap();
                assert_eq!(
                    next(&mut server, text),
                    format!("Sent {{ socket: {place}, bytes: 30 }}")
                );
                assert_eq!(next(&mut client, text), "1 received 30");
                // The receive is over, so the peer sees the end of the stream at once.
                client.close(1, socket).unwrap();
                client.submit().unwrap();
                assert_eq!(next(&mut server, text), format!("Ended {{ socket: {place} }}"));
                server.close(place, connection).unwrap();
                server.submit().unwrap();
            }
        }
    }

    /// The SYN of a send that connects (TCP Fast Open) carries no data if the peer's cookie has
    /// been lost since the connect before it.
    #[test]
    fn what_a_syn_did_not_take_goes_out_once_connected() {
        let Some(()) = crate::test_net::apart() else { return };
        crate::netlink::Netlink::new().set_up(1).unwrap();
        std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3").unwrap();
        let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
        tcp::set_fast_open_backlog(listener.as_fd(), 8).unwrap();
        let peer = listener.local_addr().unwrap();
        let early = || {
            let options = FlowOptions { fast_open: true, ..FlowOptions::default() };
            tcp::unconnected(LOCALHOST, false, &options).unwrap()
        };
        for variant in variants(SHAPE) {
            let Some((mut client, _kept, _peers)) = ring_with(1, 1, variant) else { continue };
            let answered = |client: &mut ManyRing| {
                assert_eq!(next(client, text), "Sent { socket: 1, bytes: 10 }", "{variant:?}");
                let mut accepted = listener.accept().unwrap().0;
                accepted.write_all(&[1; 5]).unwrap();
                assert_eq!(next(client, text), "1 received 5", "{variant:?}");
            };
            // The first connection obtains the cookie.
            for _ in 0..2 {
                let socket = early();
                client.connect(1, socket.as_fd(), &peer, 0..10).unwrap();
                answered(&mut client);
                client.close(1, socket).unwrap();
            }
            // A chain in which time passes after the connect.
            let socket = early();
            assert!(tcp::connect_socket(socket.as_fd(), &peer).unwrap(), "it waits for a send");
            let flushed = Command::new("ip").args(["tcp_metrics", "flush"]).status();
            if !flushed.is_ok_and(|status| status.success()) {
                return skip!("no ip tcp_metrics");
            }
            client.fill(1, socket.as_fd()).unwrap();
            client.send(1, 0..10).unwrap();
            assert_eq!(next(&mut client, text), "Sent { socket: 1, bytes: 0 }", "{variant:?}");
            client.send(1, 0..10).unwrap();
            answered(&mut client);
            client.close(1, socket).unwrap();
            client.submit().unwrap();
        }
    }

    /// A peer sees that its connection is closed, whatever became of the ring.
    #[test]
    fn what_was_accepted_and_not_handed_out_is_closed_with_the_ring() {
        for mode in MODES {
            for elsewhere in [false, true] {
                let ring = ring_with(1, 2, (SHAPE, mode));
                let Some((mut ring, _kept, _peers)) = ring else { continue };
                let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
                ring.accept(listener.as_fd()).unwrap();
                let peers = [(); 3].map(|()| {
                    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                    ring.enter(&Wait { want: 1, ..Wait::default() }).unwrap();
                    peer
                });
                let first = next(&mut ring, |event| match event {
                    ManyEvent::Accepted { connection, .. } => connection,
                    other => panic!("{mode:?}: no connection, but {other:?}"),
                });
                if !elsewhere {
                    ring.cancel();
                }
                // A thread that cannot cancel the ring's operations.
                std::thread::spawn(move || drop(ring)).join().unwrap();
                drop(first);
                peers.iter().for_each(|peer| assert!(is_over(peer), "{mode:?}, {elsewhere}"));
            }
        }
    }

    #[test]
    fn a_close_that_was_never_submitted_is_made_up_for() {
        for mode in MODES {
            let ring = ring_with(1, 2, (SHAPE, mode));
            let Some((mut ring, _kept, _peers)) = ring else { continue };
            let peers = [1, 2].map(|place| {
                let (here, there) = UnixStream::pair().unwrap();
                ring.add_accepted(place, here.as_fd()).unwrap();
                // There is no receive left that close() would have to end by a shutdown.
                there.shutdown(Shutdown::Write).unwrap();
                assert_eq!(next(&mut ring, text), format!("Ended {{ socket: {place} }}"));
                ring.close(place, here.into()).unwrap();
                if place == 1 {
                    ring.submit().unwrap();
                }
                there
            });
            drop(ring);
            for mut peer in peers {
                peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                // Unlike read(2), this is not interrupted by work that the kernel still does for
                // the ring.
                assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap(), 0, "{mode:?}");
            }
        }
    }

    /// Whether the other end of a connection is closed.
    fn is_over(mut connection: &TcpStream) -> bool {
        connection.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let read = connection.read_to_end(&mut Vec::new());
        matches!(read, Ok(0)) || read.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset)
    }

    #[test]
    fn what_was_under_way_on_a_closed_socket_is_not_of_the_next() {
        for variant in variants(SHAPE) {
            let Some((mut client, _kept, _peers)) = ring_with(1, 1, variant) else { continue };
            let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
            let peer = listener.local_addr().unwrap();
            let socket = blocking();
            client.connect(1, socket.as_fd(), &peer, 0..10).unwrap();
            assert_eq!(next(&mut client, text), "Sent { socket: 1, bytes: 10 }");
            // The receive is still in flight; the peer sees the end of the stream all the same.
            client.close(1, socket).unwrap();
            client.submit().unwrap();
            let mut accepted = listener.accept().unwrap().0;
            let mut all = Vec::new();
            accepted.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), 10);
            drop(listener);
            let socket = blocking();
            client.connect(1, socket.as_fd(), &peer, 0..10).unwrap();
            let refused = format!("1 failed: {:?}", Some(libc::ECONNREFUSED));
            assert_eq!(next(&mut client, text), refused, "{variant:?}");
            client.close(1, socket).unwrap();
            // Neither the cancelled rest of the chain nor the close is an event; what remains in
            // flight is the receive of the permanent socket.
            client.submit().unwrap();
            while client.core.operations > 1 {
                assert!(client.event().is_none(), "{variant:?}");
                let limit = Some(Duration::from_millis(10));
                client.enter(&Wait { want: 1, limit, ..Wait::default() }).unwrap();
            }
            assert!(client.event().is_none(), "{variant:?}");
        }
    }

    /// Buffers of a closed socket are given back whether their bytes were handed out, in part or
    /// not at all, and none of those bytes appear at the next socket with its index.
    #[test]
    fn bytes_of_a_closed_socket_are_dropped() {
        for variant in variants(RecvShape { buffers: 3, buffer_size: 64, ..SHAPE }) {
            let Some((mut ring, _kept, _peers)) = ring_with(1, 2, variant) else { continue };
            let fill = |ring: &mut ManyRing, place: usize, bytes: &[u8]| {
                let (here, mut there) = UnixStream::pair().unwrap();
                there.write_all(bytes).unwrap();
                ring.add_accepted(place, here.as_fd()).unwrap();
                (OwnedFd::from(here), there)
            };
            let came = |event: ManyEvent| match event {
                ManyEvent::Received { socket, bytes } => Some((socket, bytes.to_vec())),
                ManyEvent::OutOfBuffers { .. } => None,
                other => panic!("{variant:?}: {other:?}"),
            };
            for _ in 0..10 {
                let mut places = [1, 2].map(|place| Some(fill(&mut ring, place, &[1; 150])));
                let first = loop {
                    if let Some((socket, _)) = next(&mut ring, came) {
                        break socket;
                    }
                };
                for place in [first, 3 - first] {
                    ring.close(place, places[place - 1].take().unwrap().0).unwrap();
                }
                let (here, _there) = fill(&mut ring, first, &[2; 150]);
                let mut got = Vec::new();
                while got.len() < 150 {
                    if let Some((socket, bytes)) = next(&mut ring, came) {
                        assert_eq!(socket, first, "{variant:?}");
                        got.extend(bytes);
                    }
                }
                assert_eq!(got, [2; 150], "{variant:?}");
                ring.close(first, here).unwrap();
            }
        }
    }

    #[test]
    fn connections_made_here_wait_for_a_buffer() {
        for variant in variants(RecvShape { buffers: 1, buffer_size: 64, ..SHAPE }) {
            let Some((mut client, _kept, _peers)) = ring_with(1, 2, variant) else { continue };
            let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
            let peer = listener.local_addr().unwrap();
            let sockets = [1, 2].map(|place| {
                let socket = TcpStream::from(blocking());
                client.connect(place, socket.as_fd(), &peer, 0..10).unwrap();
                assert_eq!(
                    next(&mut client, text),
                    format!("Sent {{ socket: {place}, bytes: 10 }}")
                );
                socket
            });
            let _accepted = [(); 2].map(|()| {
                let mut accepted = listener.accept().unwrap().0;
                accepted.write_all(&[1; 64]).unwrap();
                accepted
            });
            // In the other modes the kernel may receive before the wait.
            let is_deferred = variant.1 == RingMode::Deferred;
            if is_deferred {
                // Both messages have arrived before a buffer is given back.
                sockets.iter().for_each(|socket| assert_eq!(socket.peek(&mut [0]).unwrap(), 1));
            }
            let (mut received, mut short) = (0, 0);
            while received < 2 {
                match next(&mut client, text).as_str() {
                    "1 received 64" | "2 received 64" => received += 1,
                    "OutOfBuffers { socket: 1 }" | "OutOfBuffers { socket: 2 }" => short += 1,
                    other => panic!("{variant:?}: {other}"),
                }
            }
            assert!(short > 0 || !is_deferred, "{variant:?}: two connections and one buffer");
        }
    }
}
