//! `socket`: send(2) and recv(2), as in almost every program. The kernel copies at both ends.

mod tls;

use super::busy_poll::{self, BusyPoll, Waiter};
use super::common::{self, Epoll, LOWAT, ReadBuffer, clamp};
use super::{DataPath, HalfPath, Opened, event_loop};
use crate::connection::{Connection, Flow, WitnessPage};
use crate::workload::{Account, Call, Group, HalfConfig, Recorder, Rx, Toucher, Tx};
use bytepath_record::{Facts, Fault, Manner, OptionKind, OptionSpec, Support};
use bytepath_sys::memory::Region;
use bytepath_sys::tcp;
use std::io::ErrorKind;
use std::time::Duration;

pub(super) static PATH: DataPath = DataPath {
    name: "socket",
    summary: "send and recv: copied from and to user memory",
    attempt: |_| busy_poll::socket_attempts(),
    tx: Some(HalfPath::tx(check_tx, open_tx).with_options(SEND_OPTIONS).over_kernel()),
    rx: Some(HalfPath::rx(check_rx, open_rx).with_options(RECEIVE_OPTIONS).over_kernel()),
    one_at_a_time: Some(event_loop::blocking::open),
    ..DataPath::EMPTY
};

const SEND_OPTIONS: &[OptionSpec] =
    &[OptionSpec::new("notsent-lowat", OptionKind::AutoSize(1, 1 << 30), "auto")
        .help("TCP_NOTSENT_LOWAT: bytes that may wait unsent before send blocks")];

const RECEIVE_OPTIONS: &[OptionSpec] = &[
    LOWAT,
    busy_poll::MICROSECONDS,
    busy_poll::PREFER,
    busy_poll::BUDGET,
    OptionSpec::new("waitall", OptionKind::Flag, "off")
        .help("MSG_WAITALL: every recv fills the whole read size"),
    OptionSpec::new("wait", OptionKind::Choice(&["block", "epoll", "spin"]), "block")
        .help("when nothing is queued: sleep in recv, sleep in epoll_wait, or poll again"),
];

fn check_tx(job: &HalfConfig, _: &Facts) -> Support {
    super::needs_stream(job, "notsent-lowat", job.options.number("notsent-lowat").is_some())
        .and(suits_passing(job))
}

/// Refuses options other than the defaults for connections that come and go.
fn suits_passing(job: &HalfConfig) -> Support {
    if job.passing.is_none() {
        return Support::Yes;
    }
    let options = [SEND_OPTIONS, RECEIVE_OPTIONS].concat();
    let usual = |spec: &&OptionSpec| {
        let set = job.options.0.get(spec.name);
        set.is_none_or(|set| spec.kind.parse(spec.default).is_ok_and(|default| default == *set))
    };
    match options.iter().find(|spec| !usual(spec)) {
        None => event_loop::check(job, &Facts::default()),
        Some(spec) => Support::no(
            format!("{} is not set on connections that come and go", spec.name),
            format!("leave {} at {}", spec.name, spec.default),
        ),
    }
}

fn open_tx(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Tx> {
    let flow = connection.kernel()?;
    flow.reset_on_death()?;
    if let Some(bytes) = job.options.number("notsent-lowat") {
        tcp::set_int(flow.fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, clamp(bytes))
            .map_err(|e| flow.fault("TCP_NOTSENT_LOWAT", &e))?;
    }
    if let Some(keys) = flow.keys {
        return Ok(Box::new(tls::Sender::open(job, flow, &keys)?));
    }
    let message = super::message(job.message_size, false)?;
    Ok(Box::new(Sender { flow, message, at: 0, calls: 0 }))
}

fn check_rx(job: &HalfConfig, facts: &Facts) -> Support {
    let lowat = job.options.number("lowat");
    let waitall = job.options.flag("waitall").then_some(job.read_size);
    super::needs_stream(job, "lowat", lowat.is_some())
        .and(super::needs_stream(job, "waitall", waitall.is_some()))
        .and(super::waits_within_messages(job, lowat.max(waitall)))
        .and(suits_passing(job))
        .and(busy_poll::support(job, facts, waiter(job)))
}

/// Returns what waits if nothing is queued.
fn waiter(job: &HalfConfig) -> Waiter {
    if job.options.word("wait") == "epoll" { Waiter::Epoll } else { Waiter::Call }
}

fn open_rx(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Rx> {
    let (flow, options) = (connection.kernel()?, &job.options);
    let polling = BusyPoll::of(options);
    if let Some(polling) = polling.filter(|_| waiter(job) == Waiter::Call) {
        polling.set_on_socket(&flow)?;
    }
    if let Some(keys) = flow.keys {
        return Ok(Box::new(tls::Receiver::open(job, flow, &keys)?));
    }
    let wait = match options.word("wait") {
        "epoll" => Wait::Epoll(Epoll::of(&flow, polling)?),
        "spin" => Wait::Spin,
        _ => Wait::Block,
    };
    let waitall = if options.flag("waitall") { libc::MSG_WAITALL } else { 0 };
    let dontwait = if matches!(wait, Wait::Block) { 0 } else { libc::MSG_DONTWAIT };
    Ok(Box::new(Receiver {
        buffer: ReadBuffer::of(job)?,
        toucher: Toucher::new(job.touch, job.message_size),
        flags: waitall | dontwait,
        wait,
        lowat: options.number("lowat").map(|bytes| bytes.min(job.read_size)),
        calls: 0,
        flow,
    }))
}

struct Sender {
    flow: Flow,
    message: Region,
    /// Position of the stream in the message.
    at: usize,
    calls: u64,
}

const SEND: Call = Call(0, "send");

impl Tx for Sender {
    fn witness(&mut self) -> Result<(), Fault> {
        let mut page = common::witness_page()?;
        let send = |at: usize| tcp::send(self.flow.fd(), &page[at..], 0);
        common::send_page(&self.flow, "send of the witness page", send)?;
        WitnessPage::settle(&self.flow, |after| page.copy_from_slice(after))
    }

    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let rest = &self.message[self.at..];
        let sent = recorder.timed(SEND, || tcp::send(self.flow.fd(), rest, 0));
        if let Some(n) = self.flow.completed("send", sent)? {
            recorder.moved(n);
            self.calls += 1;
            self.at = if n == rest.len() { 0 } else { self.at + n };
        }
        Ok(())
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let source = "send(2): copied from user memory";
        Ok(Account::of(Manner::Copied, recorder.total(), self.calls, source))
    }
}

struct Receiver {
    flow: Flow,
    buffer: ReadBuffer,
    toucher: Toucher,
    flags: i32,
    wait: Wait,
    lowat: Option<u64>,
    calls: u64,
}

/// What to do if nothing is queued.
enum Wait {
    Block,
    /// Sleep in epoll_wait, as event loops do.
    Epoll(Epoll),
    Spin,
}

const RECV: Call = Call(0, "recv");
const EPOLL: Call = Call(1, "epoll_wait");

impl Rx for Receiver {
    fn begin(&mut self) -> Result<(), Fault> {
        common::set_lowat(&self.flow, self.lowat)
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let (fd, flags) = (self.flow.fd(), self.flags);
        let room = self.buffer.room();
        match recorder.timed(RECV, || tcp::recv(fd, room, flags)) {
            Ok(0) => return self.flow.confirm_end().map(|()| false),
            Ok(n) => {
                self.toucher.deliver(&room[..n], n, recorder)?;
                self.calls += 1;
                self.buffer.advance();
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => match &mut self.wait {
                Wait::Epoll(epoll) => drop(epoll.wait(None, recorder, EPOLL)?),
                Wait::Spin => std::hint::spin_loop(),
                // The socket of a blocking receiver never returns EAGAIN.
                Wait::Block => return Err(self.flow.fault("recv", &e)),
            },
            Err(e) => return Err(self.flow.fault("recv", &e)),
        }
        Ok(true)
    }

    fn wait(&mut self, timeout: Duration) -> Option<Result<bool, Fault>> {
        let spins = matches!(self.wait, Wait::Spin);
        Some(self.flow.wait(if spins { Duration::ZERO } else { timeout }))
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let source = "recv(2): copied to user memory";
        Ok(Account::of(Manner::Copied, recorder.total(), self.calls, source))
    }
}
