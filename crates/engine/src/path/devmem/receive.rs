//! The receiver: fragments are read where the device has put them, and their tokens are returned to
//! the kernel, at once or in batches.
//!
//! Batches save calls and cost buffers: if a receiver holds so many that the device has none left,
//! it waits for bytes that cannot arrive. So a receive waits for [`TIMEOUT`] only, and then all
//! tokens are returned.

use super::area::Area;
use crate::connection::Flow;
use crate::path::{Epoll, Sum, buffer};
use crate::workload::{Account, Call, HalfConfig, Recorder, Rx, Toucher};
use bytepath_record::{Fault, Manner, Touch};
use bytepath_sys::devmem::{self, Arrived, Control, Freer, Held, Lent, Received, TokenRange};
use bytepath_sys::dmabuf::Memory;
use bytepath_sys::memory::Region;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// A socket that receives into device memory, or a fake of one.
pub(super) trait Receiver: Freer + Send {
    /// Receives; see [`devmem::Socket::receive`]. Errors with `WouldBlock` if nothing arrived for
    /// [`TIMEOUT`].
    fn receive(&mut self, linear: &mut [u8], control: &mut Control) -> io::Result<Received>;

    /// The epoll instance to wait with before each receive; `None` if the receive itself waits.
    fn epoll(&self) -> Option<&Epoll> {
        None
    }

    /// Called before the first receive.
    fn prepare(&mut self) -> Result<(), Fault>;

    /// Called after a receive of 0 bytes. Errors if that was not the end of the stream.
    fn confirm_end(&self) -> Result<(), Fault>;

    /// Returns the fault of a failed call.
    fn fault(&self, call: &str, error: &io::Error) -> Fault;
}

/// How long tokens are held while nothing arrives.
pub(super) const TIMEOUT: Duration = Duration::from_millis(20);

/// Smallest fragment that room is reserved for, bytes: packets of an ordinary MTU carry more. If
/// fragments are smaller, a receive returns less than requested.
const SMALL: u64 = 1024;

/// Bytes copied at once from memory that the CPU cannot access.
const COPIED_AT_ONCE: u64 = 256 << 10;

pub(super) struct Live {
    pub flow: Flow,
    /// The epoll instance to wait with; `None` if the receive itself waits.
    pub epoll: Option<Epoll>,
}

impl Freer for Live {
    #[inline]
    fn free(&mut self, ranges: &[TokenRange]) -> io::Result<usize> {
        devmem::Socket(self.flow.fd()).free(ranges)
    }
}

impl Receiver for Live {
    #[inline]
    fn receive(&mut self, linear: &mut [u8], control: &mut Control) -> io::Result<Received> {
        devmem::Socket(self.flow.fd()).receive(linear, control)
    }

    fn epoll(&self) -> Option<&Epoll> {
        self.epoll.as_ref()
    }

    fn prepare(&mut self) -> Result<(), Fault> {
        let set = devmem::Socket(self.flow.fd()).set_timeout(TIMEOUT);
        set.map_err(|e| self.flow.fault("SO_RCVTIMEO", &e))
    }

    fn confirm_end(&self) -> Result<(), Fault> {
        self.flow.confirm_end()
    }

    fn fault(&self, call: &str, error: &io::Error) -> Fault {
        self.flow.fault(call, error)
    }
}

pub(super) struct Receiving<R> {
    receiver: R,
    area: Arc<Area>,
    control: Control,
    /// Where the kernel copies payload that is not in device memory.
    linear: Region,
    inspection: Inspection,
    held: Held,
    batch: u64,
    counts: Counts,
}

/// How the application touches what it receives.
struct Inspection {
    toucher: Toucher,
    /// Buffer to which bytes are copied for verification, or `None` if the CPU can read the memory.
    window: Option<Region>,
    copied: Sum,
}

impl Inspection {
    /// Touches a fragment as the contract requires. False if it is not within the memory.
    #[inline]
    fn look(&mut self, memory: &dyn Memory, lent: &Lent) -> Result<bool, Fault> {
        let size = lent.len as usize;
        let offset = usize::try_from(lent.offset).unwrap_or(usize::MAX);
        if offset.checked_add(size).is_none_or(|end| end > memory.size()) {
            return Ok(false);
        }
        if !self.toucher.reads_bytes() {
            self.toucher.pass(u64::from(lent.len));
            return Ok(true);
        }
        let Some(window) = &mut self.window else {
            return lent
                .bytes(memory)
                .map_or(Ok(false), |bytes| self.toucher.take(bytes).map(|()| true));
        };
        let mut done = 0;
        while done < size {
            let part = (size - done).min(window.len());
            let part = &mut window[..part];
            memory
                .read(offset + done, part)
                .map_err(|e| Fault::system("copying bytes out of device memory", &e))?;
            self.toucher.take(part)?;
            done += part.len();
            self.copied.enter(part.len());
        }
        Ok(true)
    }
}

/// Bytes received, by the way they came.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    device: Sum,
    linear: Sum,
    ordinary: Sum,
    /// Times that all tokens were returned because nothing arrived.
    starved: u64,
}

const RECEIVE: Call = Call(0, "recvmsg(devmem)");
const FREE: Call = Call(1, "setsockopt(dontneed)");
const SYNC: Call = Call(2, "ioctl(dma-buf sync)");
const WAIT: Call = Call(3, "epoll_wait");

impl<R: Receiver> Receiving<R> {
    /// Creates a receiver over an area, and allocates all memory.
    pub(super) fn new(receiver: R, area: Arc<Area>, job: &HalfConfig) -> Result<Self, Fault> {
        let size = job.read_size;
        let most = usize::try_from(size / SMALL + 64).unwrap_or(usize::MAX);
        let batch = job.options.number("recycle-batch").unwrap_or(1);
        let looks = job.touch != Touch::None;
        let blind = !area.memory.is_visible();
        let window = (looks && blind).then(|| buffer("the copy buffer", COPIED_AT_ONCE, false));
        Ok(Receiving {
            control: Control::new(most),
            linear: buffer("the read buffer", size, false)?,
            inspection: Inspection {
                toucher: Toucher::new(job.touch, job.message_size),
                window: window.transpose()?,
                copied: Sum::default(),
            },
            // In the worst case, each fragment of a call begins a token range of its own.
            held: Held::with_room(most.saturating_add(batch as usize)),
            batch,
            counts: Counts::default(),
            receiver,
            area,
        })
    }

    /// Processes the result of a receive.
    fn deliver(&mut self, received: Received, recorder: &mut Recorder) -> Result<(), Fault> {
        if received.truncated {
            let text = "the kernel truncated the control messages of a receive \
                        (MSG_CTRUNC), so fragments of the stream were lost";
            return Err(Fault::failed(text).remedy("choose a smaller read size"));
        }
        let looks = self.inspection.toucher.reads_bytes();
        if looks {
            self.sync(recorder, |memory| memory.begin_read())?;
        }
        let (mut described, mut copied, mut pieces) = (0u64, 0usize, 0u64);
        let mut ordinary = true;
        for arrived in self.control.arrived() {
            let arrived = arrived.map_err(|e| Fault::failed(format!("receiving: {e}")))?;
            ordinary = false;
            match arrived {
                Arrived::Linear(len) => {
                    let end = copied.saturating_add(len as usize);
                    let bytes = self.linear.get(copied..end).ok_or_else(|| beyond(&arrived))?;
                    self.inspection.toucher.take(bytes)?;
                    copied = end;
                    described += u64::from(len);
                    self.counts.linear.enter(len as usize);
                }
                Arrived::Lent(lent) => {
                    if lent.dmabuf != self.area.dmabuf {
                        return Err(foreign(lent.dmabuf, self.area.dmabuf));
                    }
                    pieces += 1;
                    described += u64::from(lent.len);
                    self.counts.device.enter(lent.len as usize);
                    if !self.inspection.look(self.area.memory.as_ref(), &lent)? {
                        return Err(beyond(&lent));
                    }
                    self.held.take(lent);
                }
            }
        }
        if ordinary {
            // The queue has no dmabuf: this was an ordinary receive.
            let bytes = self.linear.get(..received.bytes).unwrap_or_default();
            self.inspection.toucher.take(bytes)?;
            self.counts.ordinary.enter(received.bytes);
        } else if described != received.bytes as u64 {
            let text = format!(
                "a receive brought {} bytes and described {described} of them",
                received.bytes
            );
            return Err(Fault::failed(text).remedy("report this with the kernel"));
        }
        if looks {
            self.sync(recorder, |memory| memory.end_read())?;
        }
        recorder.moved(received.bytes);
        recorder.piece(received.bytes);
        let full = self.held.len() >= self.batch;
        recorder.fragments(pieces, self.held.len(), full);
        if full { self.give_all_back(recorder) } else { Ok(()) }
    }

    /// Begins or ends access of the CPU to what the device has written. Does nothing for memory
    /// that the CPU cannot access.
    fn sync(
        &self,
        recorder: &mut Recorder,
        call: impl FnOnce(&dyn Memory) -> io::Result<()>,
    ) -> Result<(), Fault> {
        if self.inspection.window.is_some() {
            return Ok(());
        }
        let memory = self.area.memory.as_ref();
        recorder.timed_with(SYNC, || call(memory), |()| 0).map_err(|e| {
            let fault = Fault::system("DMA_BUF_IOCTL_SYNC", &e);
            fault.remedy("choose touch=none, or other memory")
        })
    }

    /// Returns all tokens, in as many calls as necessary.
    fn give_all_back(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        while !self.held.is_empty() {
            let (held, receiver) = (&mut self.held, &mut self.receiver);
            match recorder.timed_with(FREE, || held.give_back(receiver), |_| 0) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::EBADMSG) => {
                    let text = format!(
                        "the kernel did not accept {} returned fragments (SO_DEVMEM_DONTNEED)",
                        self.held.len()
                    );
                    return Err(Fault::failed(text).remedy("report this with the kernel version"));
                }
                Err(e) => return Err(self.receiver.fault("SO_DEVMEM_DONTNEED", &e)),
            }
        }
        Ok(())
    }

    /// Returns all tokens, because the device may have no free buffer left.
    fn starve(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        self.counts.starved += u64::from(!self.held.is_empty());
        self.give_all_back(recorder)
    }

    fn sums(&self) -> Account {
        let Counts { device, linear, ordinary, starved } = self.counts;
        let looked_at = self.inspection.copied;
        let mut account = Account::default();
        let ledger = &mut account.ledger;
        device.report(ledger, Manner::NotCopied, "fragments that the NIC put in a dmabuf");
        let source = "SO_DEVMEM_LINEAR: the NIC did not split these from their headers";
        linear.report(ledger, Manner::Copied, source);
        let source = "recvmsg without fragments: bytes of a queue without a dmabuf";
        ordinary.report(ledger, Manner::Copied, source);
        let notes = &mut account.notes;
        if linear.bytes > 0 {
            notes.push(format!(
                "{} bytes in {} fragments were in host memory: the buffers ran out, or the NIC \
                 could not split the headers off",
                linear.bytes, linear.events
            ));
        }
        if device.bytes == 0 && ordinary.bytes > 0 {
            notes.push("no byte arrived on the bound queue: the flow was not steered to it".into());
        }
        if looked_at.events > 0 {
            notes.push(format!(
                "{} bytes were copied out of device memory in {} copies for \
                 inspection; the ledger does not count these",
                looked_at.bytes, looked_at.events
            ));
        }
        if starved > 0 {
            notes.push(format!(
                "{starved} times nothing arrived for {} ms while fragments were held: \
                 recycle-batch is too large for the area",
                TIMEOUT.as_millis()
            ));
        }
        let (calls, short) = self.held.calls();
        if short > 0 {
            notes.push(format!(
                "{short} of {calls} times the kernel freed fewer fragments than requested"
            ));
        }
        account
    }
}

impl<R: Receiver> Rx for Receiving<R> {
    fn begin(&mut self) -> Result<(), Fault> {
        self.receiver.prepare()
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        if let Some(epoll) = self.receiver.epoll()
            && !epoll.wait(Some(TIMEOUT), recorder, WAIT)?
        {
            return self.starve(recorder).map(|()| true);
        }
        let (receiver, linear, control) = (&mut self.receiver, &mut self.linear, &mut self.control);
        let receive = || receiver.receive(linear, control);
        match recorder.timed_with(RECEIVE, receive, |received| received.bytes) {
            Ok(Received { bytes: 0, .. }) => {
                self.give_all_back(recorder)?;
                return self.receiver.confirm_end().map(|()| false);
            }
            Ok(received) => self.deliver(received, recorder)?,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => self.starve(recorder)?,
            Err(e) => return Err(receive_fault(&self.receiver, &e)),
        }
        Ok(true)
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        Ok(self.sums())
    }
}

/// Returns the fault of a receive. Some errors have a special meaning here (tcp_recvmsg_dmabuf(),
/// net/ipv4/tcp.c).
fn receive_fault(receiver: &impl Receiver, error: &io::Error) -> Fault {
    let fault = receiver.fault("recvmsg with MSG_SOCK_DEVMEM", error);
    match error.raw_os_error() {
        Some(libc::EFAULT) => fault
            .context("bytes are in device memory that the kernel cannot describe")
            .remedy("receiving into device memory requires Linux 6.12 with CONFIG_NET_DEVMEM"),
        Some(libc::ENODEV) => fault
            .context("bytes are in memory that another program has bound to the queue")
            .remedy("free the queue of other programs (io_uring zero-copy receive, ncdevmem)"),
        Some(libc::ENOMEM | libc::EBUSY) => fault
            .context("the kernel had no token left for a fragment")
            .remedy("return fragments earlier (a smaller recycle-batch), or free memory"),
        Some(devmem::ETOOSMALL) => fault
            .context("the control buffer has no room for one fragment")
            .remedy("choose a larger read size"),
        _ => fault,
    }
}

fn foreign(found: u32, ours: u32) -> Fault {
    let text = format!("a fragment is in dmabuf {found}, but the bound one is {ours}");
    Fault::failed(text).remedy("bind one dmabuf to the queue, and steer to it")
}

fn beyond(fragment: &impl std::fmt::Debug) -> Fault {
    let text = format!("a fragment lies outside of its memory: {fragment:?}");
    Fault::failed(text).remedy("report this with the kernel version")
}

#[cfg(test)]
mod tests {
    //! Tests the receiver against a fake kernel and NIC: whole streams run through the same loop as
    //! on a connection.

    use super::*;
    use crate::connection::{Connection, Flow};
    use crate::path::devmem::area::Area;
    use crate::workload::{
        Account, Detail, FlowEnd, Gate, HalfConfig, Pattern, Phase, Progress, Recorder, Rx,
    };
    use bytepath_record::{Cell, Fault, FaultKind, Half, OptionValue, Role, Touch};
    use bytepath_sys::devmem::{Control, Fragment, Freer, Received, TokenRange, message};
    use bytepath_sys::dmabuf::FakeDmabuf;
    use bytepath_sys::tcp;
    use proptest::prelude::*;
    use std::collections::{BTreeSet, VecDeque};
    use std::fs::File;
    use std::io::{self, Write};
    use std::os::unix::fs::FileExt;
    use std::sync::{Arc, Mutex};

    const PAGE: usize = 4096;
    const DMABUF: u32 = 3;
    const MESSAGE: u64 = 40_000;

    #[derive(Clone, Debug)]
    enum Arrival {
        /// A receive that returns fragments: true in device memory, false linear.
        Pieces(Vec<(bool, u16)>),
        /// A receive without fragments.
        Ordinary(u16),
        Interrupted,
        /// Nothing arrives for a while.
        Silence,
        /// A receive that fails with this errno.
        Error(i32),
        /// The raw result of a receive: bytes, truncated, messages.
        Raw(usize, bool, Vec<Fragment>),
    }

    /// A fake NIC and kernel: writes the stream into free buffers, assigns tokens, and takes them
    /// back, at most `most` in a call.
    struct Kernel {
        arrivals: VecDeque<Arrival>,
        memory: File,
        pattern: Pattern,
        /// Bytes of the stream written so far.
        at: Arc<Mutex<u64>>,
        free: VecDeque<usize>,
        /// The buffer of each assigned token.
        out: Arc<Mutex<Vec<Option<usize>>>>,
        most: usize,
        calls: Arc<Mutex<Vec<u32>>>,
    }

    impl Kernel {
        fn deal(&mut self, buffer: usize) -> u32 {
            let mut out = self.out.lock().unwrap();
            // Like xa_alloc: the lowest free number.
            let token = out.iter().position(Option::is_none).unwrap_or(out.len());
            if token == out.len() {
                out.push(None);
            }
            out[token] = Some(buffer);
            token as u32
        }

        fn bytes(&mut self, len: usize) -> Vec<u8> {
            let mut bytes = vec![0; len];
            let mut at = self.at.lock().unwrap();
            self.pattern.fill(&mut bytes, *at);
            *at += len as u64;
            bytes
        }

        /// Receives fragments, as many as there are free buffers.
        fn pieces(
            &mut self,
            pieces: &[(bool, u16)],
            linear: &mut [u8],
            control: &mut Control,
        ) -> io::Result<Received> {
            let mut messages = Vec::new();
            let (mut total, mut copied, mut taken) = (0, 0, 0);
            for (in_device, len) in pieces {
                let len = *len as usize;
                if total + len > linear.len() {
                    break;
                }
                let fragment = if *in_device {
                    let Some(buffer) = self.free.pop_front() else { break };
                    let bytes = self.bytes(len);
                    let offset = buffer * PAGE + (PAGE - len);
                    self.memory.write_all_at(&bytes, offset as u64).unwrap();
                    let token = self.deal(buffer);
                    let (offset, len) = (offset as u64, len as u32);
                    Fragment::Dmabuf { dmabuf: DMABUF, offset, len, token }
                } else {
                    let bytes = self.bytes(len);
                    linear[copied..copied + len].copy_from_slice(&bytes);
                    copied += len;
                    Fragment::Linear { len: len as u32 }
                };
                message::encode(&[fragment], &mut messages);
                total += len;
                taken += 1;
            }
            if taken < pieces.len() {
                // The rest arrives with a later call, once buffers are free.
                self.arrivals.push_front(Arrival::Pieces(pieces[taken..].to_vec()));
            }
            if total == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            assert!(control.fill(&messages), "more fragments than there is room for");
            Ok(Received { bytes: total, truncated: false })
        }
    }

    impl Freer for Kernel {
        fn free(&mut self, ranges: &[TokenRange]) -> io::Result<usize> {
            let mut out = self.out.lock().unwrap();
            assert!(ranges.len() <= 128);
            let asked: u32 = ranges.iter().map(|range| range.count).sum();
            assert!(asked <= 1024, "{asked} fragments at once");
            self.calls.lock().unwrap().push(asked);
            let tokens = ranges.iter().flat_map(|range| range.start..range.start + range.count);
            let mut freed = 0;
            for token in tokens.take(self.most) {
                let buffer = out[token as usize].take().expect("freed twice, or never dealt out");
                // The device overwrites free buffers, so late reads are detected.
                self.memory.write_all_at(&[0xee; PAGE], (buffer * PAGE) as u64).unwrap();
                self.free.push_back(buffer);
                freed += 1;
            }
            Ok(freed)
        }
    }

    impl Receiver for Kernel {
        fn receive(&mut self, linear: &mut [u8], control: &mut Control) -> io::Result<Received> {
            control.fill(&[]);
            let Some(arrival) = self.arrivals.pop_front() else {
                return Ok(Received { bytes: 0, truncated: false });
            };
            match arrival {
                Arrival::Interrupted => Err(io::ErrorKind::Interrupted.into()),
                Arrival::Silence => Err(io::ErrorKind::WouldBlock.into()),
                Arrival::Error(errno) => Err(io::Error::from_raw_os_error(errno)),
                Arrival::Ordinary(len) => {
                    let bytes = self.bytes(len.into());
                    linear[..bytes.len()].copy_from_slice(&bytes);
                    Ok(Received { bytes: bytes.len(), truncated: false })
                }
                Arrival::Raw(bytes, truncated, fragments) => {
                    let mut messages = Vec::new();
                    message::encode(&fragments, &mut messages);
                    control.fill(&messages);
                    Ok(Received { bytes, truncated })
                }
                Arrival::Pieces(pieces) => self.pieces(&pieces, linear, control),
            }
        }

        fn prepare(&mut self) -> Result<(), Fault> {
            Ok(())
        }

        fn confirm_end(&self) -> Result<(), Fault> {
            Ok(())
        }

        fn fault(&self, call: &str, error: &io::Error) -> Fault {
            Fault::system(call, error)
        }
    }

    /// The result of a run.
    struct Run {
        result: Result<Account, Fault>,
        tally: FlowEnd,
        /// Tokens that were assigned and not returned.
        leaked: usize,
        /// Fragments returned, call by call.
        calls: Vec<u32>,
        sent: u64,
    }

    struct Scene {
        arrivals: Vec<Arrival>,
        batch: Option<u64>,
        touch: Touch,
        /// Whether the CPU can access the memory.
        seen: bool,
        buffers: usize,
        /// Most tokens that the kernel frees with one call.
        most: usize,
    }

    impl Default for Scene {
        fn default() -> Self {
            let touch = Touch::Verify;
            Scene { arrivals: vec![], batch: None, touch, seen: true, buffers: 4096, most: 1024 }
        }
    }

    fn play(scene: Scene) -> Run {
        let memory = FakeDmabuf::new(scene.buffers * PAGE, scene.seen).unwrap();
        let (out, calls) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let sent = Arc::<Mutex<u64>>::default();
        let kernel = Kernel {
            arrivals: scene.arrivals.into(),
            memory: memory.file().unwrap(),
            pattern: Pattern::new(MESSAGE),
            at: sent.clone(),
            free: (0..scene.buffers).collect(),
            out: out.clone(),
            most: scene.most,
            calls: calls.clone(),
        };
        let mut cell = Cell::new("devmem", Half::plain("devmem"), Half::plain("devmem"));
        cell.stream.touch = scene.touch;
        cell.stream.message_size = MESSAGE;
        cell.stream.read_size = 8 << 20;
        let batch = scene.batch.map_or(OptionValue::Word("each".into()), OptionValue::Number);
        cell.rx.options.0.insert("recycle-batch".into(), batch);
        let area = Area::unbound(DMABUF, Box::new(memory));
        let mut engine = Receiving::new(kernel, area, &job(&cell)).unwrap();
        let gate = Arc::new(Gate::default());
        gate.set(Phase::Window);
        let progress = Arc::new(Progress::default());
        let mut recorder = Recorder::new(false, gate.clone(), progress, Detail::ALL);
        let result = run(&mut engine, &mut recorder);
        gate.set(Phase::Stop);
        let tally = recorder.finish();
        let leaked = out.lock().unwrap().iter().flatten().count();
        let calls = calls.lock().unwrap().clone();
        let sent = *sent.lock().unwrap();
        Run { result, tally, leaked, calls, sent }
    }

    fn job(cell: &Cell) -> HalfConfig {
        HalfConfig::stream(cell, Role::Receiver)
    }

    fn run<R: Receiver>(
        engine: &mut Receiving<R>,
        recorder: &mut Recorder,
    ) -> Result<Account, Fault> {
        engine.begin()?;
        engine.receive_to_end(recorder)?;
        engine.account(recorder)
    }

    fn pages(count: usize) -> Arrival {
        Arrival::Pieces(vec![(true, PAGE as u16); count])
    }

    /// The same loop on a real connection, with real calls. No queue is bound, so the kernel can
    /// only copy, and the ledger shows it.
    #[test]
    fn on_a_connection_without_a_bound_queue_every_byte_is_copied() {
        assert!(!copied_by_the_kernel(false).contains(&WAIT.1));
        assert!(copied_by_the_kernel(true).contains(&WAIT.1));
    }

    /// Returns the calls of such a receiver. It waits in epoll_wait if `waits` is true, otherwise
    /// in the receive.
    fn copied_by_the_kernel(waits: bool) -> Vec<&'static str> {
        const LEN: usize = 3_000_000;
        let (tx, rx) = tcp::loopback_pair().unwrap();
        let sender = std::thread::spawn(move || {
            let flow = Flow::tcp(tx, 0);
            let mut stream = vec![0; LEN];
            Pattern::new(MESSAGE).fill(&mut stream, 0);
            (&*flow.socket).write_all(&stream).unwrap();
            flow.end_stream().unwrap();
        });
        let mut cell = Cell::new("devmem", Half::plain("devmem"), Half::plain("devmem"));
        cell.stream.touch = Touch::Verify;
        cell.stream.message_size = MESSAGE;
        let area = Area::unbound(DMABUF, Box::new(FakeDmabuf::new(PAGE, true).unwrap()));
        let flow = Flow::tcp(rx, 0);
        let epoll = waits.then(|| Epoll::of(&flow, None).unwrap());
        let live = Live { flow, epoll };
        let mut engine = Receiving::new(live, area, &job(&cell)).unwrap();
        let gate = Arc::new(Gate::default());
        gate.set(Phase::Window);
        let mut recorder = Recorder::new(false, gate, Arc::default(), Detail::ALL);
        let account = run(&mut engine, &mut recorder).unwrap();
        sender.join().unwrap();
        assert_eq!((account.ledger.delivered, account.ledger.copied), (LEN as u64, LEN as u64));
        assert!(account.notes[0].contains("not steered to it"), "{:?}", account.notes);
        let calls = recorder.finish().calls;
        calls
            .into_iter()
            .filter(|(_, stats)| stats.row("", 1.0).calls > 0)
            .map(|(n, _)| n)
            .collect()
    }

    #[test]
    fn returns_fragments_after_each_call() {
        let run =
            play(Scene { arrivals: vec![pages(3), pages(600), pages(1)], ..Scene::default() });
        let account = run.result.unwrap();
        assert_eq!((run.leaked, run.calls), (0, vec![3, 600, 1]));
        assert_eq!(account.ledger.not_copied, 604 * PAGE as u64);
        assert_eq!((account.ledger.copied, account.notes), (0, vec![]));
        let counts = run.tally.fragments;
        assert_eq!((counts.calls, counts.fragments, counts.min, counts.max), (3, 604, 1, 600));
        assert_eq!((counts.below_512, counts.from_512_to_1024, counts.frees_avoided), (2, 1, 0));
    }

    #[test]
    fn returns_fragments_in_batches() {
        let arrivals = vec![pages(300), pages(300), pages(500), pages(300)];
        let run = play(Scene { arrivals, batch: Some(1024), ..Scene::default() });
        run.result.unwrap();
        // 1100 tokens take two calls; 300 are left for the end.
        assert_eq!((run.leaked, run.calls), (0, vec![1024, 76, 300]));
        let counts = run.tally.fragments;
        assert_eq!(
            (counts.frees_avoided, counts.gathered_above_1024, counts.above_1024),
            (3, 1, 0)
        );
        assert_eq!(counts.above_share_of_gathered(), Some(0.0));
    }

    #[test]
    fn enters_linear_fragments_as_copied() {
        let mixed = vec![(false, 100), (true, 4000), (false, 50), (true, 8)];
        let arrivals = vec![Arrival::Ordinary(33), Arrival::Pieces(mixed), Arrival::Interrupted];
        let run = play(Scene { arrivals, ..Scene::default() });
        let account = run.result.unwrap();
        assert_eq!((account.ledger.copied, account.ledger.not_copied), (183, 4008));
        let sources: Vec<(u64, u64)> =
            account.ledger.evidence.iter().map(|e| (e.bytes, e.events)).collect();
        assert_eq!(sources, [(4008, 2), (150, 2), (33, 1)]);
        assert!(account.notes[0].contains("150 bytes in 2 fragments"), "{:?}", account.notes);
        assert_eq!((run.tally.fragments.calls, run.leaked), (1, 0));
    }

    #[test]
    fn oversized_batch_times_out() {
        let arrivals = vec![pages(100), pages(100), pages(100)];
        let run = play(Scene { arrivals, batch: Some(5000), buffers: 128, ..Scene::default() });
        let account = run.result.unwrap();
        assert_eq!(account.ledger.delivered, 300 * PAGE as u64);
        assert_eq!(run.leaked, 0);
        assert!(
            account.notes.iter().any(|n| n.contains("too large for the area")),
            "{:?}",
            account.notes
        );
    }

    #[test]
    fn timeout_without_held_tokens_is_idle() {
        let arrivals = vec![Arrival::Silence, pages(2), Arrival::Silence, Arrival::Silence];
        let run = play(Scene { arrivals, ..Scene::default() });
        assert_eq!((run.result.unwrap().notes, run.calls), (vec![], vec![2]));
    }

    #[test]
    fn retries_unfreed_tokens() {
        let run = play(Scene { arrivals: vec![pages(1000)], most: 300, ..Scene::default() });
        let account = run.result.unwrap();
        assert_eq!((run.leaked, run.calls), (0, vec![1000, 700, 400, 100]));
        assert!(account.notes[0].contains("3 of 4 times the kernel freed fewer"), "{account:?}");
    }

    #[test]
    fn unfreed_tokens_are_a_fault() {
        let run = play(Scene { arrivals: vec![pages(10)], most: 0, ..Scene::default() });
        let fault = run.result.unwrap_err();
        assert!(fault.message.contains("did not accept 10 returned fragments"), "{fault}");
    }

    #[test]
    fn counts_copies_of_unmapped_memory_apart() {
        let scene = || Scene { arrivals: vec![pages(7)], seen: false, ..Scene::default() };
        let account = play(scene()).result.unwrap();
        assert_eq!((account.ledger.copied, account.ledger.not_copied), (0, 7 * PAGE as u64));
        assert!(
            account.notes[0].contains("28672 bytes were copied out of device memory in 7 copies")
        );
        let untouched = play(Scene { touch: Touch::None, ..scene() }).result.unwrap();
        assert_eq!(untouched.notes, Vec::<String>::new());
    }

    #[test]
    fn counts_sync_calls() {
        let called = |touch, seen| {
            let scene =
                Scene { arrivals: vec![pages(3), pages(2)], touch, seen, ..Scene::default() };
            let calls = play(scene).tally.calls;
            calls
                .iter()
                .find(|(name, _)| name.contains("dma-buf sync"))
                .map_or(0, |(name, of)| of.row(name, 1.0).calls)
        };
        assert_eq!(called(Touch::Read, true), 4, "a begin and an end for each receive");
        assert_eq!(called(Touch::None, true), 0);
        assert_eq!(called(Touch::Read, false), 0, "memory that the CPU cannot look at");
    }

    #[test]
    fn detects_overwritten_bytes() {
        let wrong = Fragment::Dmabuf { dmabuf: DMABUF, offset: 0, len: 16, token: 0 };
        for seen in [true, false] {
            let arrivals = vec![Arrival::Raw(16, false, vec![wrong])];
            let run = play(Scene { arrivals, seen, ..Scene::default() });
            assert_eq!(run.result.unwrap_err().kind, FaultKind::Corrupt);
        }
    }

    #[test]
    fn impossible_control_message_is_a_fault() {
        let piece = |dmabuf, offset, len| Fragment::Dmabuf { dmabuf, offset, len, token: 0 };
        for (arrival, words) in [
            (Arrival::Raw(16, true, vec![]), "MSG_CTRUNC"),
            (Arrival::Raw(16, false, vec![piece(9, 0, 16)]), "dmabuf 9, but the bound one is 3"),
            (Arrival::Raw(16, false, vec![piece(3, u64::MAX, 16)]), "outside of its memory"),
            (
                Arrival::Raw(16, false, vec![piece(3, 4096 * 4096 - 15, 16)]),
                "outside of its memory",
            ),
            (Arrival::Raw(16, false, vec![piece(3, 0, 15)]), "16 bytes and described 15"),
            (
                Arrival::Raw(16, false, vec![Fragment::Linear { len: 0 }]),
                "16 bytes and described 0",
            ),
            (Arrival::Raw(16, false, vec![Fragment::Linear { len: u32::MAX }]), "outside"),
            (Arrival::Error(libc::EFAULT), "cannot describe"),
            (Arrival::Error(libc::ENODEV), "another program has bound"),
            (Arrival::Error(bytepath_sys::devmem::ETOOSMALL), "no room for one fragment"),
            (Arrival::Error(libc::ENOMEM), "no token left"),
            (Arrival::Error(libc::ECONNRESET), "recvmsg with MSG_SOCK_DEVMEM"),
        ] {
            let scene = Scene { arrivals: vec![arrival], touch: Touch::None, ..Scene::default() };
            let fault = play(scene).result.unwrap_err();
            assert!(fault.message.contains(words), "'{fault}' lacks '{words}'");
        }
    }

    #[test]
    fn reads_token_and_index() {
        // The kernel assigns the lowest free numbers again as soon as they are free.
        let run =
            play(Scene { arrivals: (0..50).map(|_| pages(40)).collect(), ..Scene::default() });
        run.result.unwrap();
        let asked: BTreeSet<u32> = run.calls.into_iter().collect();
        assert_eq!((run.leaked, asked), (0, BTreeSet::from([40])));
    }

    fn arrival() -> impl Strategy<Value = Arrival> {
        let piece = (prop::bool::weighted(0.9), 1..=PAGE as u16);
        prop_oneof![
            8 => prop::collection::vec(piece, 1..200).prop_map(Arrival::Pieces),
            1 => (1..5000u16).prop_map(Arrival::Ordinary),
            1 => Just(Arrival::Interrupted),
            1 => Just(Arrival::Silence),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Whatever the kernel does, unless it lies: every byte is verified, every token is
        /// returned once, and the ledger accounts for the whole stream.
        #[test]
        fn loses_no_token_and_no_byte(
            arrivals in prop::collection::vec(arrival(), 0..20),
            batch in prop::option::of(1u64..3000),
            most in 1usize..1500,
            buffers in 32usize..2000,
            seen in any::<bool>(),
        ) {
            let touch = Touch::Verify;
            let run = play(Scene { arrivals, batch, touch, seen, buffers, most });
            let account = run.result.unwrap();
            prop_assert_eq!(run.leaked, 0);
            prop_assert_eq!(account.ledger.delivered, run.sent);
            prop_assert_eq!(run.tally.total, run.sent);
            let counts = run.tally.fragments;
            prop_assert_eq!(
                counts.calls,
                counts.above_1024 + counts.from_512_to_1024 + counts.below_512
            );
        }
    }
}
