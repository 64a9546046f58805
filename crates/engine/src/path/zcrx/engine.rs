//! The receiving engine: one multishot receive; pieces of the area are delivered as they arrive,
//! and buffers are returned in batches.

use super::plan::Plan;
use super::setup::{self, Writer};
use super::shared::{Copied, SharedQueue, SharedQueues};
use crate::connection::Flow;
use crate::path::ring::{self, ENTER, REGISTER};
use crate::workload::{Account, Group, HalfConfig, Recorder, Rx, Toucher};
use bytepath_record::{Fault, Ledger, Manner, Role, Scope, Unit};
use bytepath_sys::uring;
use bytepath_sys::uring::Arrival;
use bytepath_sys::uring::zcrx::{self, RecvZcRing};
use std::io;
use std::sync::{Arc, PoisonError};

/// The receiving half of a flow.
pub(super) struct Receiver {
    flow: Flow,
    role: Role,
    ring: RecvZcRing,
    /// The queue that flows share, if they do.
    shared: Option<Arc<SharedQueue>>,
    writer: Writer,
    read_size: usize,
    toucher: Toucher,
}

impl Receiver {
    pub(super) fn open(job: &HalfConfig, flow: Flow, group: &Group) -> Result<Self, Fault> {
        let plan = Plan::of(job, rustix::param::page_size() as u64)?;
        let abilities = zcrx::abilities().ok();
        let toucher = Toucher::new(job.touch, job.message_size);
        let (read_size, role) = (plan.read_size, job.role);
        let number = flow.index % plan.queues;
        let all = group.share(|| Ok(SharedQueues::default()))?;
        let mut all = all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = all.get(&number).cloned() {
            let mut ring =
                RecvZcRing::import(flow.fd(), &shared.exported, plan.completions, plan.batch)
                    .map_err(|e| ring::fault("cannot import the queue of the first flow", &e))?;
            ring.count_iowait(ring::counts_iowait(job));
            ring::busy_poll(job, &[flow.fd()], |how| ring.busy_poll(how))?;
            let (writer, shared) = (shared.writer.clone(), Some(shared));
            return Ok(Receiver { flow, role, ring, shared, writer, read_size, toucher });
        }
        let (mut ring, writer) = setup::register(&plan, job, abilities, &flow)?;
        ring.count_iowait(ring::counts_iowait(job));
        ring::busy_poll(job, &[flow.fd()], |how| ring.busy_poll(how))?;
        let several = job.flows > number + plan.queues;
        let shared = if several && (plan.share || writer.is_device()) {
            let exported = setup::export(&mut ring, abilities)?;
            let shared = Arc::new(SharedQueue::new(exported, writer.clone()));
            all.insert(number, shared.clone());
            Some(shared)
        } else {
            None
        };
        Ok(Receiver { flow, role, ring, shared, writer, read_size, toucher })
    }

    /// Enters the ring and delivers everything that has arrived. False at the end of the stream.
    #[inline]
    fn turn(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let flushes = self.ring.flushes();
        if let Err(e) = recorder.timed(ENTER, || self.ring.enter())
            && !uring::is_transient(&e)
        {
            return Err(starved(e));
        }
        while let Some(arrival) = self.ring.arrival() {
            match arrival {
                Arrival::Bytes(bytes) => {
                    self.toucher.deliver(bytes, self.read_size, recorder)?;
                }
                Arrival::End => return self.flow.confirm_end().map(|()| false),
                Arrival::Failed(e) => return Err(receive_fault(&self.flow, &e)),
            }
            if self.ring.due() {
                let given = if flushes {
                    recorder.timed_with(REGISTER, || self.ring.give_back(), |()| 0)
                } else {
                    self.ring.give_back()
                };
                given.map_err(|e| ring::fault("cannot return buffers", &e))?;
            }
        }
        Ok(true)
    }

    fn sums(&mut self, total: u64) -> Account {
        let copied = self.ring.copied().map(|(fragments, bytes)| {
            let counted = Copied { fragments, bytes };
            match &self.shared {
                Some(shared) => shared.claim(counted, total),
                None => Copied { bytes: bytes.min(total), ..counted },
            }
        });
        let counts = self.ring.counts;
        let mut account = Account {
            ledger: ledger(
                total,
                counts.pieces,
                copied,
                self.writer.is_device(),
                self.shared.is_some(),
            ),
            ..Account::default()
        };
        let scope = Scope::Flow(self.role, self.flow.index);
        let events = [
            ("pieces", counts.pieces),
            ("arms", counts.arms),
            ("no_buffer", counts.no_buffer),
            ("queue_full", counts.queue_full),
            ("overflows", counts.overflows),
            ("alloc_failures", counts.alloc_failures),
            ("copy_events", counts.copy_events),
            ("returned", counts.returned),
            ("batches", counts.batches),
            ("flushes", counts.flushes),
            ("refill_full", counts.refill_full),
            ("contended", counts.contended),
        ];
        account.count("zcrx", &scope, Unit::Count, events);
        if let Some(Copied { fragments, bytes }) = copied {
            account.count("zcrx", &scope, Unit::Count, [("copied_fragments", fragments)]);
            account.count("zcrx", &scope, Unit::Bytes, [("copied_bytes", bytes)]);
        }
        account.notes = self.notes();
        account
    }

    fn notes(&mut self) -> Vec<String> {
        let (counts, lost) = (self.ring.counts, self.ring.lost());
        let mut notes = Vec::new();
        if let Writer::Kernel { unable } = &self.writer
            && self.flow.index == 0
        {
            let why = unable.as_ref().map_or(String::new(), |device| {
                format!(", because {device} has no memory-provider queues")
            });
            notes.push(format!(
                "zcrx ran on a queue without a device (NODEV){why}: the kernel copied every byte"
            ));
        }
        let mut event = |count: u64, what: &str| {
            if count > 0 {
                notes.push(format!("{count} times {what}"));
            }
        };
        event(
            counts.no_buffer,
            "no buffer of the area was free to copy into, and the receive was restarted; choose a larger area",
        );
        event(
            counts.alloc_failures,
            "the NIC found no free buffer in the area (counted at most once per turn), and may have dropped packets; choose a larger area, or a smaller NIC ring",
        );
        event(
            counts.queue_full,
            "the completion queue was full, and the receive was restarted; allow more completions",
        );
        event(u64::from(lost), "a completion was lost");
        event(
            counts.refill_full,
            "the refill ring had no room for all returned buffers; choose a larger rq",
        );
        notes
    }
}

/// Returns the ledger. A NIC's queue cannot be registered unless the device splits the headers off
/// all packets (net/core/netdev_rx_queue.c), so payload that is not in a counted fragment was
/// written by the device. But rings that share a queue overwrite each other's counts
/// (`zcrx_stat_add`, io_uring/zcrx.c): there, any count above zero is a lower bound, and only zero
/// is proof.
fn ledger(total: u64, pieces: u64, copied: Option<Copied>, device: bool, shared: bool) -> Ledger {
    let mut ledger = Ledger::default();
    match (device, copied) {
        (true, Some(copied)) => {
            let source = "zcrx_stats: fragments that the kernel copied into the area";
            ledger.enter(Manner::Copied, copied.bytes, copied.fragments, source);
            let rest = total.saturating_sub(copied.bytes);
            if shared && copied != Copied::default() {
                let source = "RECV_ZC completions; zcrx_stats of a shared queue misses copies";
                ledger.enter(Manner::Unknown, rest, pieces, source);
            } else {
                let source = "RECV_ZC completions that zcrx_stats does not call copied";
                ledger.enter(Manner::NotCopied, rest, pieces, source);
            }
        }
        (true, None) => {
            let source = "RECV_ZC completions; before Linux 7.2 the kernel does not report which were copied";
            ledger.enter(Manner::Unknown, total, pieces, source);
        }
        (false, Some(copied)) => {
            let source = "zcrx_stats: fragments that the kernel copied into the area (NODEV)";
            ledger.enter(Manner::Copied, copied.bytes, copied.fragments, source);
            let rest = total.saturating_sub(copied.bytes);
            if rest > 0 {
                let source = if shared {
                    "copied (NODEV) and not in zcrx_stats, which misses copies where rings share \
                     a queue"
                } else {
                    "linear parts of packets, copied (NODEV) and not in zcrx_stats"
                };
                ledger.enter(Manner::Copied, rest, pieces, source);
            }
        }
        (false, None) => {
            let source = "RECV_ZC without a device (NODEV) copies into the area";
            ledger.enter(Manner::Copied, total, pieces, source);
        }
    }
    if !device {
        ledger.mode = "NODEV".into();
    }
    ledger
}

/// The fault of a failed receive, with explanations for errors that have a special meaning here
/// (io_zcrx_recv(), io_uring/zcrx.c). Running out of buffers or completions is not a
/// failure: the receive is restarted.
fn receive_fault(flow: &Flow, error: &io::Error) -> Fault {
    let fault = flow.fault("RECV_ZC", error);
    match error.raw_os_error() {
        Some(libc::EFAULT) => fault
            .context(
                "bytes are in another queue's memory, or would have to \
                      be copied into a dmabuf",
            )
            .remedy(
                "steer the flow to its queue only ('bytepath settings --path zcrx' \
                     shows how), or choose memory=normal, into which the kernel can copy",
            ),
        Some(libc::EPROTONOSUPPORT) => fault
            .context("the socket is no longer plain kernel TCP (kTLS, a BPF sockmap)")
            .remedy("detach the program that attaches to sockets of this cgroup"),
        Some(libc::ENXIO | libc::ENODEV) => fault
            .context("the queue is gone: its device was removed")
            .remedy("see dmesg for what happened to the device"),
        _ => fault,
    }
}

fn starved(error: io::Error) -> Fault {
    if error.kind() == io::ErrorKind::TimedOut {
        return Fault::system("zcrx stalled", &error)
            .remedy("choose a larger area; other flows of the queue hold all of it");
    }
    ring::fault("io_uring_enter", &error)
}

impl Rx for Receiver {
    fn begin(&mut self) -> Result<(), Fault> {
        self.ring.activate().map_err(|e| ring::fault("cannot start the io_uring", &e))
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        self.turn(recorder)
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        Ok(self.sums(recorder.total()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_errors_have_remedies() {
        let (socket, _peer) = bytepath_sys::tcp::loopback_pair().unwrap();
        let flow = Flow::tcp(socket, 0);
        for (errno, cause, cure) in [
            (libc::EFAULT, "in another queue's memory", "memory=normal"),
            (libc::EPROTONOSUPPORT, "kTLS", "attaches"),
            (libc::ENODEV, "the queue is gone", "dmesg"),
        ] {
            let fault = receive_fault(&flow, &io::Error::from_raw_os_error(errno));
            assert!(fault.message.contains(cause), "{fault}");
            assert!(fault.remedy.unwrap().contains(cure), "{errno}");
        }
        let stalled = starved(io::Error::new(io::ErrorKind::TimedOut, "no buffer"));
        assert!(stalled.remedy.unwrap().contains("larger area"));
    }

    #[test]
    fn ledger_enters_only_proven_bytes() {
        let some = |fragments, bytes| Some(Copied { fragments, bytes });
        for (device, shared, copied, expected) in [
            (true, false, some(3, 10), (10, 90, 0)),
            (true, false, some(0, 0), (0, 100, 0)),
            (true, true, some(0, 0), (0, 100, 0)),
            (true, true, some(3, 10), (10, 0, 90)),
            (true, false, None, (0, 0, 100)),
            (false, false, some(3, 90), (100, 0, 0)),
            (false, true, some(3, 90), (100, 0, 0)),
            (false, false, some(3, 100), (100, 0, 0)),
            (false, false, None, (100, 0, 0)),
        ] {
            let ledger = ledger(100, 5, copied, device, shared);
            assert_eq!(ledger.delivered, 100, "{device} {copied:?}");
            assert_eq!((ledger.copied, ledger.not_copied, ledger.unknown), expected);
            assert_eq!(ledger.mode.is_empty(), device);
        }
    }
}
