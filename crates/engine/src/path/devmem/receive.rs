//! The receiver: fragments are taken where the device has put them, and their
//! tokens are returned to the kernel, at once or in batches.
//!
//! Gathering saves calls and costs buffers: a receiver that holds so many that the device
//! has none left waits for bytes that cannot come. So a receive waits for
//! [`TIMEOUT`] only, and then everything held goes back.

use super::area::Area;
use crate::connection::Flow;
use crate::path::buffer;
use crate::workload::{Account, Job, Recorder, Rx, Toucher};
use bytepath_record::{Fault, FaultKind, Manner, Touch};
use bytepath_sys::devmem::{self, Arrived, Control, Freer, Held, Lent, Received, TokenRange};
use bytepath_sys::dmabuf::Memory;
use bytepath_sys::memory::Region;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// A socket that receives into device memory, or who plays one.
pub(super) trait Receiver: Freer + Send {
    /// Receives; see [`devmem::Socket::receive`]. WouldBlock: nothing came for
    /// [`TIMEOUT`].
    fn receive(&mut self, linear: &mut [u8], control: &mut Control) -> io::Result<Received>;

    /// Called before the first receive.
    fn prepare(&mut self) -> Result<(), Fault>;

    /// Called after a receive of 0 bytes: whether that was the end of the stream.
    fn confirm_end(&self) -> Result<(), Fault>;

    /// The fault of a call.
    fn fault(&self, call: &str, error: &io::Error) -> Fault;
}

/// How long tokens are gathered while nothing arrives.
pub(super) const TIMEOUT: Duration = Duration::from_millis(20);

/// Smallest fragment that room is made for, bytes: packets of an ordinary MTU
/// carry more. With smaller ones a receive brings less than it was asked for.
const SMALL: u64 = 1024;

/// Bytes that are copied at once from memory that the CPU cannot look at.
const COPIED_AT_ONCE: u64 = 256 << 10;

pub(super) struct Live(pub Flow);

impl Freer for Live {
    #[inline]
    fn free(&mut self, ranges: &[TokenRange]) -> io::Result<usize> {
        devmem::Socket(self.0.fd()).free(ranges)
    }
}

impl Receiver for Live {
    #[inline]
    fn receive(&mut self, linear: &mut [u8], control: &mut Control) -> io::Result<Received> {
        devmem::Socket(self.0.fd()).receive(linear, control)
    }

    fn prepare(&mut self) -> Result<(), Fault> {
        let set = devmem::Socket(self.0.fd()).set_timeout(TIMEOUT);
        set.map_err(|e| self.0.fault("SO_RCVTIMEO", &e))
    }

    fn confirm_end(&self) -> Result<(), Fault> {
        self.0.confirm_end()
    }

    fn fault(&self, call: &str, error: &io::Error) -> Fault {
        self.0.fault(call, error)
    }
}

pub(super) struct Receiving<R> {
    receiver: R,
    area: Arc<Area>,
    control: Control,
    /// Where the kernel copies what is not in device memory.
    linear: Region,
    inspection: Inspection,
    held: Held,
    batch: u64,
    counts: Counts,
}

/// What the application does with what it gets.
struct Inspection {
    toucher: Toucher,
    /// Where bytes are copied to be looked at; none where they can be seen.
    window: Option<Region>,
    /// Bytes and copies of it.
    copied: (u64, u64),
}

impl Inspection {
    /// Does with a fragment what the contract says. False: it is not within the
    /// memory.
    #[inline]
    fn look(&mut self, memory: &dyn Memory, lent: &Lent) -> Result<bool, Fault> {
        let size = lent.len as usize;
        let offset = usize::try_from(lent.offset).unwrap_or(usize::MAX);
        if offset.checked_add(size).is_none_or(|end| end > memory.size()) {
            return Ok(false);
        }
        if !self.toucher.looks() {
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
            self.copied.0 += part.len() as u64;
            self.copied.1 += 1;
        }
        Ok(true)
    }
}

/// What came which way: bytes and pieces.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    device: (u64, u64),
    linear: (u64, u64),
    ordinary: (u64, u64),
    /// Times that everything held went back because nothing arrived.
    starved: u64,
}

/// Slots of the calls.
const RECEIVE: usize = 0;
const FREE: usize = 1;
const SYNC: usize = 2;

impl<R: Receiver> Receiving<R> {
    /// An engine over an area; all memory is taken here.
    pub(super) fn new(receiver: R, area: Arc<Area>, job: &Job) -> Result<Self, Fault> {
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
                copied: (0, 0),
            },
            // Each call may bring a row of its own to every fragment.
            held: Held::with_room(most.saturating_add(batch as usize)),
            batch,
            counts: Counts::default(),
            receiver,
            area,
        })
    }

    /// Takes what a receive has brought.
    fn deliver(&mut self, received: Received, recorder: &mut Recorder) -> Result<(), Fault> {
        if received.truncated {
            let text = "the kernel truncated the control messages of a receive \
                        (MSG_CTRUNC), so fragments of the stream were lost";
            return Err(Fault::new(FaultKind::System, text).remedy("choose a smaller read size"));
        }
        let looks = self.inspection.toucher.looks();
        if looks {
            self.sync(recorder, |memory| memory.begin_read())?;
        }
        let (mut described, mut copied, mut pieces) = (0u64, 0usize, 0u64);
        let mut ordinary = true;
        for arrived in self.control.arrived() {
            let arrived =
                arrived.map_err(|e| Fault::new(FaultKind::System, format!("receiving: {e}")))?;
            ordinary = false;
            match arrived {
                Arrived::Linear(len) => {
                    let end = copied.saturating_add(len as usize);
                    let bytes = self.linear.get(copied..end).ok_or_else(|| beyond(&arrived))?;
                    self.inspection.toucher.take(bytes)?;
                    copied = end;
                    described += u64::from(len);
                    add(&mut self.counts.linear, len);
                }
                Arrived::Lent(lent) => {
                    if lent.dmabuf != self.area.dmabuf {
                        return Err(foreign(lent.dmabuf, self.area.dmabuf));
                    }
                    pieces += 1;
                    described += u64::from(lent.len);
                    add(&mut self.counts.device, lent.len);
                    if !self.inspection.look(self.area.memory.as_ref(), &lent)? {
                        return Err(beyond(&lent));
                    }
                    self.held.take(lent);
                }
            }
        }
        if ordinary {
            // By a queue without a dmabuf: an ordinary receive.
            let bytes = self.linear.get(..received.bytes).unwrap_or_default();
            self.inspection.toucher.take(bytes)?;
            self.counts.ordinary.0 += received.bytes as u64;
            self.counts.ordinary.1 += 1;
        } else if described != received.bytes as u64 {
            let text = format!(
                "a receive brought {} bytes and described {described} of them",
                received.bytes
            );
            return Err(Fault::new(FaultKind::System, text).remedy("report this with the kernel"));
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

    /// Makes what the device has written visible to the CPU, or ends that. Memory out of its reach
    /// has nothing to synchronise, and takes no call.
    fn sync(
        &self,
        recorder: &mut Recorder,
        call: impl FnOnce(&dyn Memory) -> io::Result<()>,
    ) -> Result<(), Fault> {
        if self.inspection.window.is_some() {
            return Ok(());
        }
        let memory = self.area.memory.as_ref();
        recorder.timed(SYNC, || call(memory).map(|()| 0)).map(drop).map_err(|e| sync_fault(&e))
    }

    /// Gives all tokens back, in as many calls as it takes.
    fn give_all_back(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        while !self.held.is_empty() {
            let (held, receiver) = (&mut self.held, &mut self.receiver);
            match recorder.timed(FREE, || held.give_back(receiver).map(|_| 0)) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::EBADMSG) => {
                    let text = format!(
                        "the kernel did not accept {} returned fragments (SO_DEVMEM_DONTNEED)",
                        self.held.len()
                    );
                    return Err(Fault::new(FaultKind::System, text)
                        .remedy("report this with the kernel version"));
                }
                Err(e) => return Err(self.receiver.fault("SO_DEVMEM_DONTNEED", &e)),
            }
        }
        Ok(())
    }

    fn sums(&self) -> Account {
        let Counts { device, linear, ordinary, starved } = self.counts;
        let looked_at = self.inspection.copied;
        let mut account = Account::default();
        let ledger = &mut account.ledger;
        ledger.enter(
            Manner::NotCopied,
            device.0,
            device.1,
            "fragments that the NIC put in a dmabuf",
        );
        let source = "SO_DEVMEM_LINEAR: the NIC did not split these from their headers";
        ledger.enter(Manner::Copied, linear.0, linear.1, source);
        let source = "recvmsg without fragments: bytes of a queue without a dmabuf";
        ledger.enter(Manner::Copied, ordinary.0, ordinary.1, source);
        let notes = &mut account.notes;
        if linear.0 > 0 {
            notes.push(format!(
                "{} bytes in {} fragments were in host memory: the buffers ran out, or the NIC \
                 could not split the headers off",
                linear.0, linear.1
            ));
        }
        if device.0 == 0 && ordinary.0 > 0 {
            notes.push("no byte arrived on the bound queue: the flow was not steered to it".into());
        }
        if looked_at.1 > 0 {
            notes.push(format!(
                "{} bytes were copied out of device memory in {} copies for \
                 inspection; the ledger does not count these",
                looked_at.0, looked_at.1
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
    fn calls(&self) -> &'static [&'static str] {
        &["recvmsg(devmem)", "setsockopt(dontneed)", "ioctl(dma-buf sync)"]
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.receiver.prepare()
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let mut received = Received { bytes: 0, truncated: false };
        let (receiver, linear, control) = (&mut self.receiver, &mut self.linear, &mut self.control);
        let result = recorder.timed(RECEIVE, || {
            received = receiver.receive(linear, control)?;
            Ok(received.bytes)
        });
        match result {
            Ok(0) => {
                self.give_all_back(recorder)?;
                return self.receiver.confirm_end().map(|()| false);
            }
            Ok(_) => self.deliver(received, recorder)?,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.counts.starved += u64::from(!self.held.is_empty());
                self.give_all_back(recorder)?;
            }
            Err(e) => return Err(receive_fault(&self.receiver, &e)),
        }
        Ok(true)
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        Ok(self.sums())
    }
}

#[inline]
fn add(count: &mut (u64, u64), bytes: u32) {
    count.0 += u64::from(bytes);
    count.1 += 1;
}

/// The errors that mean something else here than elsewhere (tcp_recvmsg_dmabuf(),
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
    Fault::new(FaultKind::System, text).remedy("bind one dmabuf to the queue, and steer to it")
}

fn beyond(fragment: &impl std::fmt::Debug) -> Fault {
    let text = format!("a fragment lies outside of its memory: {fragment:?}");
    Fault::new(FaultKind::System, text).remedy("report this with the kernel version")
}

fn sync_fault(error: &io::Error) -> Fault {
    Fault::system("DMA_BUF_IOCTL_SYNC", error).remedy("choose touch=none, or other memory")
}
