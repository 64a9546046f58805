//! `uring-zc`: a stream sent by reference through io_uring. The kernel takes references to the
//! pages of the message, and posts a notification when it releases them, which also reports whether
//! it copied after all.

use super::busy_poll;
use super::ring::{self, ENTER};
use super::{DataPath, HalfPath, Opened, Sum};
use crate::connection::{Flow, WITNESS_LEN};
use crate::workload::{Account, HalfConfig, Recorder, Tx};
use bytepath_record::{
    Attempt, COMPLETED_AS_COPIED, Facts, Fault, Ledger, Manner, OptionKind, OptionSpec, Support,
};
use bytepath_sys::memory::Region;
use bytepath_sys::uring::{self, SendEvent, SendRing};
use std::time::{Duration, Instant};

pub(super) static PATH: DataPath = DataPath {
    name: "uring-zc",
    summary: "io_uring: linked zero-copy sends from a registered buffer, usage reported",
    attempt,
    uses_io_uring: true,
    tx: Some(
        HalfPath::tx(check, |job, connection, _| Sender::open(job, connection.kernel()?))
            .with_options(OPTIONS),
    ),
    ..DataPath::EMPTY
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("depth", OptionKind::Count(1, 1024), "4")
        .help("messages per submission; at most 16M in total, or one message"),
    OptionSpec::new("fixed", OptionKind::Flag, "on")
        .help("send from a registered buffer, whose pages are looked up once"),
    busy_poll::MICROSECONDS,
    busy_poll::PREFER,
    busy_poll::TRACKING,
    ring::IOWAIT,
];

/// Maximum number of sends without notification. A socket rarely holds more; if it would, the
/// engine waits for notifications.
const OUTSTANDING: u32 = 4096;

/// Interval at which a wait for notifications checks the connection.
const GLANCE: Duration = Duration::from_millis(100);

/// How long to wait for the last notifications after the peer's kernel has acknowledged all bytes
/// (the pages may be held until the peer's application has read them), and for pages that other
/// processes hold.
const TIMEOUT: Duration = Duration::from_secs(5);

fn attempt(_: Option<&str>) -> Vec<Attempt> {
    match uring::features() {
        // Already reported by `uring`.
        Err(_) => Vec::new(),
        Ok(_) => vec![ring::attempt(ring::SEND_ZC, uring::try_send_zc(), "usage reported")],
    }
}

fn check(job: &HalfConfig, facts: &Facts) -> Support {
    let what = "zero-copy send that reports copies";
    super::fits(ring::message_size(job)).and(ring::support(job, facts)).and(ring::needs(
        facts,
        ring::SEND_ZC,
        what,
        "6.2",
    ))
}

/// The sending half of a flow.
struct Sender {
    flow: Flow,
    ring: SendRing,
    message: usize,
    chain: u32,
    fixed: bool,
    /// Position of the stream in the message.
    at: usize,
    /// Sends in flight or not notified yet.
    slots: Box<[Slot]>,
    /// Free slots. Never grows beyond its initial size.
    free: Vec<u32>,
    copied: Sum,
    passed: Sum,
    /// Sends that moved bytes but will never be notified.
    unproven: u64,
    /// Since when not even one message could be sent, or `None` if sends succeed.
    stalled: Option<Instant>,
    /// How often the kernel refused to pin more pages.
    refused: u64,
}

/// State of one send. Its two events arrive in either order.
#[derive(Clone, Copy, Default)]
struct Slot {
    bytes: Option<u32>,
    copied: Option<bool>,
}

impl Sender {
    fn open(job: &HalfConfig, flow: Flow) -> Opened<dyn Tx> {
        flow.reset_on_death()?;
        let message = ring::message_size(job)?;
        let (chain, fixed) = (ring::chain(job), job.options.flag("fixed"));
        let memory = super::message(job.message_size, false)?;
        let mut ring = Self::ring(&flow, memory, chain, fixed)?;
        ring.count_iowait(ring::counts_iowait(job));
        ring::busy_poll(job, &[flow.fd()], |how| ring.busy_poll(how))?;
        let slots = OUTSTANDING + chain;
        Ok(Box::new(Sender {
            flow,
            ring,
            message,
            chain,
            fixed,
            at: 0,
            slots: vec![Slot::default(); slots as usize].into(),
            free: (0..slots).collect(),
            copied: Sum::default(),
            passed: Sum::default(),
            unproven: 0,
            stalled: None,
            refused: 0,
        }))
    }

    fn ring(flow: &Flow, memory: Region, chain: u32, fixed: bool) -> Result<SendRing, Fault> {
        let len = memory.len();
        let mut made = SendRing::new(flow.fd(), memory, chain, OUTSTANDING)
            .map_err(|e| ring::fault("cannot set up a sending io_uring", &e))?;
        if fixed {
            made.fix_memory().map_err(|e| {
                let what = format!("cannot register a buffer of {len} bytes");
                ring::fault(what, &e).remedy(
                    "set fixed=off, or raise 'ulimit -l' (RLIMIT_MEMLOCK); at most 1G can be \
                     registered",
                )
            })?;
        }
        Ok(made)
    }

    fn turn(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        if self.free.len() < self.chain as usize {
            return self.await_notification(recorder, GLANCE);
        }
        let (held, before) = (self.ring.notifications(), recorder.total());
        self.queue_chain()?;
        while self.ring.operations() > 0 {
            let want = self.ring.operations();
            ring::entered(recorder.timed(ENTER, || self.ring.enter(want)))?;
            self.collect(recorder)?;
        }
        if recorder.total() > before {
            self.stalled = None;
            return Ok(());
        }
        self.make_room(recorder, held)
    }

    /// Queues a chain of linked sends, which keeps the order of the stream, as in `uring`.
    fn queue_chain(&mut self) -> Result<(), Fault> {
        let mut from = self.at;
        for left in (0..self.chain).rev() {
            let Some(slot) = self.free.pop() else { break };
            self.ring
                .send_zc(from..self.message, u64::from(slot), left > 0)
                .map_err(|e| ring::fault("cannot queue a send", &e))?;
            from = 0;
        }
        Ok(())
    }

    /// Handles the available completions.
    fn collect(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let mut failure = None;
        while let Some(event) = self.ring.event() {
            match event {
                SendEvent::Sent { tag, result, more } => {
                    let bytes = match result {
                        Ok(bytes) => bytes,
                        Err(e) => {
                            match e.raw_os_error() {
                                // The rest of a chain after a short send.
                                Some(libc::ECANCELED) => {}
                                // Limit of locked memory, or of the socket's own memory.
                                Some(libc::ENOMEM | libc::ENOBUFS) => self.refused += 1,
                                _ => failure = failure.or(Some(e)),
                            }
                            0
                        }
                    };
                    self.at = (self.at + bytes as usize) % self.message;
                    if bytes > 0 {
                        recorder.moved(bytes as usize);
                        recorder.piece(bytes as usize);
                    }
                    self.slots[tag as usize].bytes = Some(bytes);
                    self.settle(tag as u32, !more);
                }
                SendEvent::Notified { tag, copied } => {
                    self.slots[tag as usize].copied = Some(copied);
                    self.settle(tag as u32, false);
                }
            }
        }
        failure.map_or(Ok(()), |e| Err(ring::fault("cannot send", &e)))
    }

    /// Enters a send once all its events have arrived, and frees its slot. Bytes sent without a
    /// notification stay unproven; the account enters them as unknown.
    fn settle(&mut self, slot: u32, silent: bool) {
        let known = self.slots[slot as usize];
        let (Some(bytes), true) = (known.bytes, known.copied.is_some() || silent) else { return };
        // A failed send is notified too, but holds no pages.
        if bytes > 0 {
            match known.copied {
                Some(true) => self.copied.enter(bytes as usize),
                Some(false) => self.passed.enter(bytes as usize),
                None => self.unproven += 1,
            }
        }
        self.slots[slot as usize] = Slot::default();
        self.free.push(slot);
    }

    /// Nothing could be sent: pages have to be released first. These belong to `held` sends of our
    /// own or, if that is 0, to other processes of the same user, which share the limit and whose
    /// releases cause no event.
    fn make_room(&mut self, recorder: &mut Recorder, held: u32) -> Result<(), Fault> {
        if held > 0 {
            // Some may have arrived by now, together with the refusal.
            if self.ring.notifications() >= held {
                self.await_notification(recorder, GLANCE)?;
            }
            return Ok(());
        }
        let begin = *self.stalled.get_or_insert_with(Instant::now);
        if begin.elapsed() > TIMEOUT {
            let refused = std::io::Error::from_raw_os_error(libc::ENOMEM);
            return Err(ring::fault("cannot pin the pages of one message", &refused));
        }
        self.await_notification(recorder, Duration::from_millis(1))
    }

    /// Waits for a notification after checking that the connection was not cut: notifications of
    /// bytes that the peer does not accept would not arrive even then.
    fn await_notification(
        &mut self,
        recorder: &mut Recorder,
        timeout: Duration,
    ) -> Result<(), Fault> {
        self.flow.check_open()?;
        recorder
            .timed_with(ENTER, || self.ring.wait(timeout), |()| 0)
            .map_err(|e| ring::fault("io_uring_enter", &e))?;
        self.collect(recorder)
    }

    /// Waits for the outstanding notifications after the peer's kernel has acknowledged everything.
    fn drain(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let begin = Instant::now();
        while self.ring.notifications() > 0 && begin.elapsed() < TIMEOUT {
            self.ring
                .wait(TIMEOUT.saturating_sub(begin.elapsed()))
                .map_err(|e| ring::fault("io_uring_enter", &e))?;
            self.collect(recorder)?;
        }
        Ok(())
    }

    fn sums(&self, total: u64) -> Account {
        let mut ledger = Ledger::default();
        self.copied.report(&mut ledger, Manner::Copied, COMPLETED_AS_COPIED[1]);
        let source = "IORING_OP_SEND_ZC notification without ZC_COPIED";
        self.passed.report(&mut ledger, Manner::NotCopied, source);
        let silent = total.saturating_sub(ledger.delivered);
        let open =
            self.slots.iter().filter(|slot| slot.bytes.is_some_and(|b| b > 0)).count() as u64;
        let events = self.unproven + open;
        ledger.enter(Manner::Unknown, silent, events, "IORING_OP_SEND_ZC without a notification");
        let mut notes = Vec::new();
        if self.refused > 0 {
            notes.push(format!(
                "{} sends had to wait because no more pages could be pinned (RLIMIT_MEMLOCK)",
                self.refused
            ));
        }
        Account { ledger, notes, ..Account::default() }
    }
}

impl Tx for Sender {
    fn witness(&mut self) -> Result<(), Fault> {
        ring::witness(
            &self.flow,
            |page| Self::ring(&self.flow, page, 1, self.fixed),
            |ring| ring.send_zc(0..WITNESS_LEN, 0, false),
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
        self.drain(recorder)?;
        Ok(self.sums(recorder.total()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::Outcome;
    use bytepath_record::{Attempt, Role};

    fn facts(send_zc: Outcome) -> Facts {
        let works = Outcome::Works(String::new());
        let attempts = [(ring::SETUP, works), (ring::SEND_ZC, send_zc)]
            .map(|(name, outcome)| Attempt { name: name.into(), outcome });
        Facts {
            kernel_release: "6.1.0-18-amd64".into(),
            attempts: attempts.into(),
            ..Default::default()
        }
    }

    #[test]
    fn refuses_kernel_without_usage_reports() {
        let works = facts(Outcome::Works("usage reported".into()));
        assert_eq!(PATH.check(Role::Sender, &works).unwrap(), Support::Yes);
        assert!(PATH.check(Role::Receiver, &works).is_none());
        assert_eq!(
            PATH.check(Role::Sender, &facts(Outcome::Errno(libc::EINVAL))).unwrap(),
            Support::no(
                "Linux 6.1.0-18-amd64 has no zero-copy send that reports copies",
                "boot Linux 6.2 or later"
            )
        );
        assert_eq!(
            PATH.check(Role::Sender, &facts(Outcome::Errno(libc::ENOMEM))).unwrap(),
            Support::no(
                "not enough locked memory for zero-copy send that reports copies",
                "raise 'ulimit -l' (RLIMIT_MEMLOCK)"
            )
        );
    }

    #[test]
    fn every_default_is_a_value_of_its_option() {
        for option in OPTIONS {
            option.kind.parse(option.default).unwrap();
        }
    }
}
