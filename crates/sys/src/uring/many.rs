//! Many stream sockets by one ring: a multishot receive on each, all from one group of provided
//! buffers, and a send at a time on each. io_uring_prep_recv_multishot(3), io_uring_prep_send(3).

use super::buffers::{Buffers, RecvShape};
use super::group::GROUP;
use super::{Completion, Core, RingMode, Wait, is_transient};
use crate::memory::Region;
use io_uring::{cqueue, opcode, squeue, types};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

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
    /// A receive or a send has failed.
    Failed { socket: usize, error: io::Error },
}

/// A ring that receives from many stream sockets into buffers that they share, and sends parts of
/// one message to them.
pub struct ManyRing {
    core: Core,
    buffers: Buffers,
    bundle: bool,
    /// Whose bytes the current completion has.
    current: usize,
    sockets: usize,
    /// Bytes of the message.
    len: usize,
}

/// Place of the message in `Core::kept`.
const MESSAGE: usize = 0;

/// Mark in the user data of sends; the rest is the socket's place.
const SEND: u64 = 1 << 61;

/// Most submissions at once: the rest of a batch is submitted by a call of its own.
const MOST_ENTRIES: u32 = 4096;

/// Completions there is room for: of a larger number the kernel keeps the rest in memory of its
/// own (`IORING_FEAT_NODROP`).
const MOST_COMPLETIONS: u32 = 1 << 16;

impl ManyRing {
    /// A ring for these sockets which sends from `message`, with all memory taken and touched.
    /// EINVAL: the shape is out of range, or the kernel has no such buffer ring. EMFILE: more
    /// sockets than may be registered (`RLIMIT_NOFILE`).
    pub fn new(
        sockets: &[BorrowedFd],
        message: Region,
        shape: RecvShape,
        mode: RingMode,
    ) -> io::Result<Self> {
        shape.check()?;
        if sockets.is_empty() || message.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let operations = u32::try_from(sockets.len()).unwrap_or(u32::MAX).saturating_mul(2);
        let completions = operations.saturating_add(shape.buffers.into()).min(MOST_COMPLETIONS);
        let mut core = Core::new(sockets, operations.min(MOST_ENTRIES), completions, mode)?;
        let len = message.len();
        let place = core.keep(message);
        debug_assert_eq!(place, MESSAGE);
        let buffers = Buffers::new(&mut core, shape)?;
        let (bundle, current, sockets) = (shape.bundle, 0, sockets.len());
        Ok(ManyRing { core, buffers, bundle, current, sockets, len })
    }

    /// Whether the kernel is to count waits as iowait; otherwise it is left out where the kernel
    /// can (Linux 6.15).
    pub fn count_iowait(&mut self, wanted: bool) {
        self.core.ring.count_iowait(wanted);
    }

    /// Has waits poll the device queues that its sockets receive from, for so long before they
    /// sleep; `prefer`: their interrupts stay off meanwhile (`IORING_REGISTER_NAPI`). EINVAL:
    /// before Linux 6.9; EOPNOTSUPP: without `CONFIG_NET_RX_BUSY_POLL`.
    pub fn busy_poll(&mut self, microseconds: u32, prefer: bool) -> io::Result<()> {
        super::busy_poll(&self.core.ring.uring, microseconds, prefer)
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
        kept + queues + gathered
    }

    /// Queues the send of a part of the message, whose bytes go out whole or not at all. A socket
    /// has one at a time, or their order is not known. EINVAL: the part is not within the message,
    /// or there is no such socket.
    pub fn send(&mut self, socket: usize, part: Range<usize>) -> io::Result<()> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        if socket >= self.sockets || part.start > part.end || part.end > self.len {
            return Err(invalid());
        }
        let len = u32::try_from(part.len()).map_err(|_| invalid())?;
        let address = self.core.kept[MESSAGE].as_ptr().wrapping_add(part.start);
        let entry = opcode::Send::new(types::Fixed(socket as u32), address, len)
            .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
            .build()
            .user_data(socket as u64 | SEND);
        // SAFETY: the part lies within the region, which the core keeps, and is only read.
        unsafe { self.push(&entry) }
    }

    /// Submits what is queued, and waits (io_uring_enter(2)). The value is the bytes that came in
    /// and went out; [`ManyRing::event`] hands the events out.
    pub fn enter(&mut self, wait: &Wait) -> io::Result<usize> {
        self.buffers.take_back(&self.core);
        match wait {
            Wait { want, limit: None, gather } if gather.is_zero() => self.core.enter(*want),
            limited => self.core.enter_within(limited),
        }
    }

    /// Whether something that came in has not been handed out. Where a thread of the kernel submits
    /// ([`RingMode::Polled`]), that is what it has completed, too, unless it has to be woken.
    #[inline]
    pub fn pending(&mut self) -> bool {
        self.core.poll();
        self.buffers.pending() || !self.core.gathered.is_empty()
    }

    /// The next event; none when `enter` has to be called again.
    #[inline]
    pub fn event(&mut self) -> Option<ManyEvent<'_>> {
        self.buffers.take_back(&self.core);
        if !self.buffers.pending() {
            let completion = self.core.take()?;
            self.current = (completion.data & !SEND) as usize;
            if let Some(event) = self.without_bytes(&completion) {
                return Some(event);
            }
        }
        // SAFETY: the next call of `take_back` needs the exclusive borrow that the bytes hold.
        let bytes = unsafe { self.buffers.piece(&self.core) };
        Some(ManyEvent::Received { socket: self.current, bytes })
    }

    /// The event of a completion; none if it has bytes, which the buffers then hand out.
    #[inline]
    fn without_bytes(&mut self, completion: &Completion) -> Option<ManyEvent<'static>> {
        let socket = self.current;
        if completion.data & SEND != 0 {
            return Some(match completion.bytes() {
                Ok(bytes) => ManyEvent::Sent { socket, bytes },
                Err(error) => ManyEvent::Failed { socket, error },
            });
        }
        let again = |ring: &mut Self| match completion.more() {
            true => Ok(()),
            false => ring.receive(socket),
        };
        let event = match completion.bytes() {
            Ok(0) => Ok(Some(ManyEvent::Ended { socket })),
            Ok(_) => again(self).and_then(|()| self.buffers.begin(completion)).map(|()| None),
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                again(self).map(|()| Some(ManyEvent::Short { socket }))
            }
            Err(error) => Err(error),
        };
        event.unwrap_or_else(|error| Some(ManyEvent::Failed { socket, error }))
    }

    fn receive(&mut self, socket: usize) -> io::Result<()> {
        let file = types::Fixed(socket as u32);
        let entry = match self.bundle {
            true => opcode::RecvMultiBundle::new(file, GROUP).build(),
            false => opcode::RecvMulti::new(file, GROUP).build(),
        };
        // SAFETY: the operation writes only to buffers of the group, which the kernel was given.
        unsafe { self.push(&entry.user_data(socket as u64)) }
    }

    /// Queues an operation; where the queue is full, after what is in it was submitted.
    ///
    /// # Safety
    ///
    /// As of [`Core::push`].
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        let mut entered = false;
        loop {
            // SAFETY: by the caller's promise.
            let pushed = unsafe { self.core.push(entry) };
            let is_full = pushed.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY));
            // The wait until a thread of the kernel has made room ends early by any notification;
            // the other modes have submitted all.
            if !is_full || (entered && !self.core.ring.polled) {
                return pushed;
            }
            match self.core.enter(0) {
                Err(e) if !is_transient(&e) => return Err(e),
                _ => entered = true,
            }
        }
    }

    /// Ends all operations; to be called by the ring's thread before it gives up streams that
    /// have not ended.
    pub fn cancel(&mut self) {
        self.core.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uring::features;
    use bytepath_testing::skip;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
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

    /// Every mode with every use of these buffers.
    fn variants(shape: RecvShape) -> impl Iterator<Item = (RecvShape, RingMode)> {
        let uses = [(false, false), (true, false), (false, true), (true, true)];
        let shapes = uses.map(|(bundle, incremental)| RecvShape { bundle, incremental, ..shape });
        shapes.into_iter().flat_map(|shape| MODES.map(|mode| (shape, mode)))
    }

    /// A ring for so many sockets, and their peers. `None`, with the reason printed, where this
    /// host has no io_uring that can do so.
    fn ring(
        sockets: usize,
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
        let mut ring = ManyRing::new(&fds, message, shape, mode).unwrap();
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

    /// Streams stay apart and in order where they share buffers, and even a buffer.
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
            // A thread of the kernel may receive no faster than buffers go back.
            let is_polled = matches!(variant.1, RingMode::Polled { .. });
            assert!(short > 0 || is_polled, "eight sockets and three buffers: {variant:?}");
        }
    }

    /// The thread of the kernel sleeps after a second; what is queued then wakes it.
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
            // Named after the thread that has made the ring.
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
}
