//! `uring`: a stream through io_uring with ordinary (copying) sends and receives. Compared with
//! `socket` it saves system calls: a chain or bundle of sends is one io_uring_enter, and a
//! multishot receive delivers everything that has arrived, into buffers picked by the kernel,
//! without being queued again.

use super::busy_poll;
use super::ring::{self, ENTER};
use super::{DataPath, HalfPath, Opened};
use crate::connection::{Flow, WITNESS_LEN};
use crate::workload::{Account, HalfConfig, Recorder, Rx, Toucher, Tx};
use bytepath_record::{Facts, Fault, Manner, OptionKind, OptionSpec, Protocol, Support, Tls};
use bytepath_sys::memory::Region;
use bytepath_sys::uring::{self, Arrival, RecvRing, RecvShape, SendEvent, SendRing};
use std::time::Duration;

pub(super) static PATH: DataPath = DataPath {
    name: "uring",
    summary: "io_uring: linked or bundled sends; multishot receive into provided buffers",
    attempt: |_| ring::attempts(),
    uses_io_uring: true,
    tx: Some(
        HalfPath::tx(check_tx, |job, connection, _| Sender::open(job, connection.kernel()?))
            .with_options(TX_OPTIONS)
            .over_kernel(),
    ),
    rx: Some(
        HalfPath::rx(check_rx, |job, connection, _| Receiver::open(job, connection.kernel()?))
            .with_options(RX_OPTIONS)
            .over_kernel(),
    ),
    ..DataPath::EMPTY
};

const TX_OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("mode", OptionKind::Choice(&["send", "bundle"]), "send")
        .help("a chain of linked sends, or one send of a bundle of buffers (Linux 6.10)"),
    OptionSpec::new("depth", OptionKind::Count(1, 1024), "4")
        .help("messages per submission; at most 16M in total, or one message"),
    busy_poll::MICROSECONDS,
    busy_poll::PREFER,
    busy_poll::TRACKING,
    ring::IOWAIT,
];

const RX_OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("buffers", OptionKind::Count(0, 32768), "0")
        .help("buffers in the ring; 0: as many as fill the read memory, or 64K if that is more"),
    OptionSpec::new("buffer-size", OptionKind::AutoSize(512, 64 << 20), "auto")
        .help("bytes of a buffer; auto: the read size, at most 1M"),
    OptionSpec::new("bundle", OptionKind::Flag, "off")
        .help("one completion may fill several buffers (Linux 6.10)"),
    OptionSpec::new("incremental", OptionKind::Flag, "off")
        .help("several completions may fill one buffer (Linux 6.12)"),
    busy_poll::MICROSECONDS,
    busy_poll::PREFER,
    busy_poll::TRACKING,
    ring::IOWAIT,
];

fn check_tx(job: &HalfConfig, facts: &Facts) -> Support {
    super::fits(ring::message_size(job)).and(ring::support(job, facts))
}

fn check_rx(job: &HalfConfig, facts: &Facts) -> Support {
    super::fits(shape(job))
        .and(super::needs_stream(job, "bundle", job.options.flag("bundle")))
        .and(super::needs_stream(job, "incremental", job.options.flag("incremental")))
        .and(ring::support(job, facts))
        .and(ring::needs(facts, ring::BUFFER_RING, "rings of provided buffers", "5.19"))
        .and(ring::needs(facts, ring::RECV_MULTISHOT, "multishot receive", "6.0"))
}

/// Kernels before 6.10 ignore the flag and would treat a bundle as an ordinary operation.
fn require_bundles(option: &str) -> Result<(), Fault> {
    let features = uring::features().map_err(|e| ring::fault("io_uring_setup", &e))?;
    if features.bundle {
        return Ok(());
    }
    let fault = Fault::unsupported("this kernel's io_uring has no bundles");
    Err(fault.remedy(format!("boot Linux 6.10 or later, or leave {option} at its default")))
}

/// The sending half of a flow.
struct Sender {
    flow: Flow,
    ring: SendRing,
    message: usize,
    chain: u32,
    bundle: bool,
    tls: Tls,
    /// Position of the stream in the message.
    at: usize,
    completions: u64,
}

impl Sender {
    fn open(job: &HalfConfig, flow: Flow) -> Opened<dyn Tx> {
        flow.reset_on_death()?;
        let message = ring::message_size(job)?;
        let bundle = job.options.word("mode") == "bundle";
        if bundle {
            require_bundles("mode")?;
        }
        // Linked sends keep their order only if each sends everything or fails.
        let chain = if job.tls == Tls::Kernel { 1 } else { ring::chain(job) };
        let memory = super::message(job.message_size, false)?;
        let mut ring = Self::ring(&flow, memory, chain, bundle, job.tls)?;
        ring.count_iowait(ring::counts_iowait(job));
        ring::busy_poll(job, &[flow.fd()], |how| ring.busy_poll(how))?;
        let tls = job.tls;
        Ok(Box::new(Sender { flow, ring, message, chain, bundle, tls, at: 0, completions: 0 }))
    }

    fn ring(
        flow: &Flow,
        memory: Region,
        chain: u32,
        bundle: bool,
        tls: Tls,
    ) -> Result<SendRing, Fault> {
        let message = memory.len();
        let mut made = SendRing::new(flow.fd(), memory, chain, 0)
            .map_err(|e| ring::fault("cannot set up a sending io_uring", &e))?;
        if tls == Tls::Kernel {
            made.send_in_parts();
        }
        if bundle {
            made.make_group(chain as u16, 0..message)
                .map_err(|e| ring::fault("cannot register a buffer ring", &e))?;
        }
        Ok(made)
    }

    fn turn(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        if self.bundle {
            self.queue_bundle()?;
        } else {
            self.queue_chain()?;
        }
        self.complete(recorder)
    }

    /// Queues a chain of linked sends. The kernel issues each when the previous one has queued all
    /// of its bytes, so they keep the order of the stream.
    fn queue_chain(&mut self) -> Result<(), Fault> {
        let mut from = self.at;
        for left in (0..self.chain).rev() {
            self.ring
                .send(from..self.message, 0, left > 0)
                .map_err(|e| ring::fault("cannot queue a send", &e))?;
            from = 0;
        }
        Ok(())
    }

    /// Queues a bundle. All buffers of the ring are the one message, so a partly sent message is
    /// first completed by a separate send.
    fn queue_bundle(&mut self) -> Result<(), Fault> {
        let queued = if self.at > 0 {
            self.ring.send(self.at..self.message, 0, false)
        } else {
            self.ring.send_bundle(BUNDLE)
        };
        queued.map_err(|e| ring::fault("cannot queue a bundle", &e))
    }

    /// Waits for everything that is queued, and counts what was sent.
    fn complete(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let mut failure = None;
        let before = recorder.total();
        while self.ring.operations() > 0 {
            let want = self.ring.operations();
            ring::entered(recorder.timed(ENTER, || self.ring.enter(want)))?;
            while let Some(event) = self.ring.event() {
                let SendEvent::Sent { tag, result, .. } = event else { continue };
                match result {
                    Ok(bytes) => self.count(bytes as usize, recorder),
                    // The rest of a chain after a short send; and the end of a bundle that has used
                    // up the buffer ring.
                    Err(e) if e.raw_os_error() == Some(libc::ECANCELED) => {}
                    Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) && tag == BUNDLE => {}
                    Err(e) => failure = failure.or(Some(e)),
                }
            }
        }
        match failure {
            Some(e) => Err(ring::fault("cannot send", &e)),
            None if recorder.total() == before => {
                Err(Fault::failed("io_uring sent nothing and reported no error"))
            }
            None => Ok(()),
        }
    }

    fn count(&mut self, bytes: usize, recorder: &mut Recorder) {
        recorder.moved(bytes);
        recorder.piece(bytes);
        self.completions += 1;
        self.at = (self.at + bytes) % self.message;
    }
}

/// Tag of a bundle's operation.
const BUNDLE: u64 = 1;

impl Tx for Sender {
    fn witness(&mut self) -> Result<(), Fault> {
        let (bundle, tls) = (self.bundle, self.tls);
        ring::witness(
            &self.flow,
            |page| Self::ring(&self.flow, page, 1, bundle, tls),
            |ring| match bundle {
                true => ring.send_bundle(BUNDLE),
                false => ring.send(0..WITNESS_LEN, 0, false),
            },
        )
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.ring.activate().map_err(|e| ring::fault("cannot start the io_uring", &e))
    }

    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        self.turn(recorder).inspect_err(|_| self.ring.cancel())
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let source = match self.bundle {
            true => "IORING_OP_SEND with a bundle copies into socket buffers",
            false => "IORING_OP_SEND copies into socket buffers",
        };
        Ok(Account::of(Manner::Copied, recorder.total(), self.completions, source))
    }
}

/// The receiving half of a flow.
struct Receiver {
    flow: Flow,
    ring: RecvRing,
    read_size: usize,
    toucher: Toucher,
    /// Buffers that were filled completely or partly.
    fillings: u64,
}

/// Minimum memory of the provided buffers by default. The default is the memory that any receiver
/// uses: a working set that exceeds the cache costs a stream a sixth of its rate.
const POOL: u64 = 64 << 10;
/// Largest default buffer. A completion is never larger than what the socket holds, so larger
/// buffers would spread the same bytes over more memory.
const BUFFER: u64 = 1 << 20;
/// Maximum number of bytes that buffers may take.
const MOST: u64 = 4 << 30;

impl Receiver {
    fn open(job: &HalfConfig, flow: Flow) -> Opened<dyn Rx> {
        let shape = shape(job)?;
        if shape.bundle {
            require_bundles("bundle")?;
        }
        let mut ring = RecvRing::new(flow.fd(), shape).map_err(|e| {
            let fault = ring::fault("cannot set up a receiving io_uring", &e);
            if shape.incremental {
                fault.remedy("incremental buffers came with Linux 6.12; leave them off")
            } else {
                fault
            }
        })?;
        ring.count_iowait(ring::counts_iowait(job));
        ring::busy_poll(job, &[flow.fd()], |how| ring.busy_poll(how))?;
        let toucher = Toucher::new(job.touch, job.message_size);
        let read_size = job.read_size as usize;
        Ok(Box::new(Receiver { flow, ring, read_size, toucher, fillings: 0 }))
    }

    /// Enters the ring and delivers everything that has arrived. False at the end of the stream.
    fn turn(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        if !self.ring.pending() {
            ring::entered(recorder.timed(ENTER, || self.ring.enter()))?;
        }
        while let Some(arrival) = self.ring.arrival() {
            match arrival {
                Arrival::Bytes(bytes) => {
                    self.fillings += 1;
                    self.toucher.deliver(bytes, self.read_size, recorder)?;
                }
                Arrival::End => return self.flow.confirm_end().map(|()| false),
                Arrival::Failed(e) => return Err(ring::fault("cannot receive", &e)),
            }
        }
        Ok(true)
    }
}

/// Returns the shape of the requested buffers.
fn shape(job: &HalfConfig) -> Result<RecvShape, Fault> {
    let (options, read_size) = (&job.options, job.read_size);
    if read_size == 0 {
        return Err(Fault::usage("a read size of 0 bytes delivers nothing"));
    }
    let memory = job.read_memory.max(POOL);
    // At least two: one is filled while another is read. A datagram must fit into one.
    let largest = match job.protocol {
        Protocol::Tcp => BUFFER.min(memory / 2),
        Protocol::Udp | Protocol::Frames => BUFFER,
    };
    let buffer_size = options.number("buffer-size").unwrap_or(read_size.min(largest));
    let buffers = match options.number("buffers").unwrap_or(0) {
        0 => (memory / buffer_size).clamp(2, 1 << 15),
        n => n,
    };
    if buffers > 1 << 15 || buffers * buffer_size > MOST {
        return Err(Fault::usage(format!("{buffers} buffers of {buffer_size} bytes are too many"))
            .remedy("choose fewer or smaller ones: at most 32768, and at most 4G in total"));
    }
    if job.protocol == Protocol::Udp && buffer_size < job.message_size {
        let text = format!("buffers of {buffer_size} bytes would cut datagrams short");
        let remedy = format!("choose a buffer-size of at least {}", job.message_size);
        return Err(Fault::usage(text).remedy(remedy));
    }
    Ok(RecvShape {
        buffers: buffers as u16,
        buffer_size: buffer_size as u32,
        bundle: options.flag("bundle"),
        incremental: options.flag("incremental"),
    })
}

impl Rx for Receiver {
    fn begin(&mut self) -> Result<(), Fault> {
        self.ring.activate().map_err(|e| ring::fault("cannot start the io_uring", &e))
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        self.turn(recorder).inspect_err(|_| self.ring.cancel())
    }

    fn wait(&mut self, timeout: Duration) -> Option<Result<bool, Fault>> {
        Some(self.ring.wait(timeout).map_err(|e| ring::fault("io_uring_enter", &e)))
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let source = "IORING_OP_RECV copies into provided buffers";
        let mut account = Account::of(Manner::Copied, recorder.total(), self.fillings, source);
        let (again, starved) = (self.ring.arms.saturating_sub(1), self.ring.starved);
        if again > 0 {
            account.notes.push(format!(
                "the multishot receive was armed again {again} times, {starved} of them because no \
                 buffer was free (ENOBUFS)"
            ));
        }
        Ok(account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Attempt, Cell, Half, Outcome, Role};

    fn facts(attempts: &[(&str, Outcome)]) -> Facts {
        let attempts = attempts
            .iter()
            .map(|(name, outcome)| Attempt { name: (*name).into(), outcome: outcome.clone() });
        Facts {
            kernel_release: "5.10.0".into(),
            attempts: attempts.collect(),
            ..Default::default()
        }
    }

    fn check(role: Role, facts: &Facts) -> Support {
        let cell = Cell::new("test", Half::plain("uring"), Half::plain("uring"));
        (PATH.half(role).unwrap().check)(&HalfConfig::stream(&cell, role), facts)
    }

    #[test]
    fn buffers_fill_read_memory() {
        let of = |protocol, read_size, read_memory| {
            let mut cell = Cell::new("test", Half::plain("socket"), Half::plain("uring"));
            (cell.stream.protocol, cell.stream.read_size) = (protocol, read_size);
            (cell.stream.message_size, cell.stream.read_memory) = (read_size, read_memory);
            let shape = shape(&HalfConfig::stream(&cell, Role::Receiver)).unwrap();
            (u64::from(shape.buffers), u64::from(shape.buffer_size))
        };
        assert_eq!(of(Protocol::Tcp, 1 << 20, None), (2, 512 << 10));
        assert_eq!(of(Protocol::Tcp, 1 << 20, Some(16 << 20)), (16, 1 << 20));
        assert_eq!(of(Protocol::Tcp, 4096, None), (16, 4096), "64K at least");
        assert_eq!(of(Protocol::Udp, 64000, None), (2, 64000), "a datagram fits");
    }

    #[test]
    fn requires_what_role_uses() {
        let works = Outcome::Works(String::new());
        let old = facts(&[
            (ring::SETUP, works.clone()),
            (ring::BUFFER_RING, Outcome::Errno(libc::EINVAL)),
            (ring::RECV_MULTISHOT, Outcome::Errno(libc::EINVAL)),
        ]);
        assert_eq!(check(Role::Sender, &old), Support::Yes);
        assert_eq!(
            check(Role::Receiver, &old),
            Support::no(
                "Linux 5.10.0 has no rings of provided buffers",
                "boot Linux 5.19 or later"
            )
        );
        let new = facts(&[
            (ring::SETUP, works.clone()),
            (ring::BUFFER_RING, works.clone()),
            (ring::RECV_MULTISHOT, works),
        ]);
        assert_eq!(check(Role::Receiver, &new), Support::Yes);
        let none = facts(&[(ring::SETUP, Outcome::Errno(libc::ENOSYS))]);
        for role in Role::ALL {
            assert!(!check(role, &none).is_yes());
        }
    }

    #[test]
    fn every_default_is_a_value_of_its_option() {
        for role in Role::ALL {
            for option in PATH.half(role).unwrap().options {
                option.kind.parse(option.default).unwrap();
            }
        }
    }
}
