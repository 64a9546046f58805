//! `socket`: send(2) and recv(2), what almost every program does. The kernel
//! copies at both ends.

use super::{Account, DataPath, Endpoint, Flow, Recorder, WITNESS_LEN, WitnessPage};
use crate::record::{Cell, Facts, Fault, Manner, OptionKind, OptionSpec, Options, Role, Support};
use crate::sys::memory::Region;
use crate::sys::tcp;
use crate::workload::{Phase, Toucher};
use std::io::{self, ErrorKind};

/// The `socket` path.
pub struct Socket;

const SEND_OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "notsent-lowat",
    kind: OptionKind::AutoSize(1, 1 << 30),
    default: "auto",
    help: "TCP_NOTSENT_LOWAT: bytes that may wait unsent before send blocks",
}];

const RECEIVE_OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "lowat",
        kind: OptionKind::AutoSize(1, 1 << 30),
        default: "auto",
        help: "SO_RCVLOWAT: bytes to wait for, at most the read size (auto: any)",
    },
    OptionSpec {
        name: "busy-poll",
        kind: OptionKind::Count(0, 1_000_000),
        default: "0",
        help: "SO_BUSY_POLL: microseconds to poll the device before sleeping",
    },
    OptionSpec {
        name: "waitall",
        kind: OptionKind::Flag,
        default: "off",
        help: "MSG_WAITALL: every recv fills the whole read size",
    },
];

impl DataPath for Socket {
    fn name(&self) -> &'static str {
        "socket"
    }

    fn summary(&self) -> &'static str {
        "send and recv: copied from and to user memory"
    }

    fn roles(&self) -> &'static [Role] {
        &Role::ALL
    }

    fn options(&self, role: Role) -> &'static [OptionSpec] {
        match role {
            Role::Sender => SEND_OPTIONS,
            Role::Receiver => RECEIVE_OPTIONS,
        }
    }

    fn probe(&self, _: Role, _: &Facts) -> Support {
        Support::Yes
    }

    fn open(&self, role: Role, cell: &Cell, flow: Flow) -> Result<Box<dyn Endpoint>, Fault> {
        let options = &cell.half(role).options;
        Ok(match role {
            Role::Sender => Box::new(Sender::open(cell, options, flow)?),
            Role::Receiver => Box::new(Receiver::open(cell, options, flow)?),
        })
    }
}

struct Sender {
    flow: Flow,
    message: Region,
}

/// Slot of the sender's only call.
const SEND: usize = 0;

impl Sender {
    fn open(cell: &Cell, options: &Options, flow: Flow) -> Result<Self, Fault> {
        flow.reset_on_death()?;
        if let Some(bytes) = options.number("notsent-lowat") {
            tcp::set_int(flow.fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, clamp(bytes))
                .map_err(|e| flow.fault("TCP_NOTSENT_LOWAT", &e))?;
        }
        Ok(Sender { message: super::message(&cell.stream, false)?, flow })
    }
}

impl Endpoint for Sender {
    fn calls(&self) -> &'static [&'static str] {
        &["send"]
    }

    fn witness(&mut self) -> Result<(), Fault> {
        let mut page = super::buffer("the witness page", WITNESS_LEN as u64, false)?;
        WitnessPage::before(&mut page);
        let mut sent = 0;
        while sent < page.len() {
            match tcp::send(self.flow.fd(), &page[sent..], 0) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.flow.fault("send of the witness page", &e)),
            }
        }
        WitnessPage::settle(&self.flow, |after| page.copy_from_slice(after))
    }

    fn run(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let (mut at, mut calls) = (0, 0);
        while recorder.phase() != Phase::Stop {
            let rest = &self.message[at..];
            match recorder.timed(SEND, || tcp::send(self.flow.fd(), rest, 0)) {
                Ok(n) => {
                    recorder.moved(n);
                    calls += 1;
                    at = if n == rest.len() { 0 } else { at + n };
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.flow.fault("send", &e)),
            }
        }
        self.flow.end_stream()?;
        let mut account = Account::default();
        account.ledger.enter(
            Manner::Copied,
            recorder.total(),
            calls,
            "send(2): copied from user memory",
        );
        Ok(account)
    }
}

struct Receiver {
    flow: Flow,
    buffer: Region,
    toucher: Toucher,
    flags: i32,
    lowat: Option<u64>,
}

/// Slot of the receiver's only call.
const RECV: usize = 0;

impl Receiver {
    fn open(cell: &Cell, options: &Options, flow: Flow) -> Result<Self, Fault> {
        match options.number("busy-poll") {
            None | Some(0) => {}
            Some(microseconds) => busy_poll(&flow, microseconds)?,
        }
        Ok(Receiver {
            flow,
            buffer: super::buffer("the read buffer", cell.stream.read_size, false)?,
            toucher: Toucher::new(cell.stream.touch, cell.stream.message_size),
            flags: if options.flag("waitall") { libc::MSG_WAITALL } else { 0 },
            lowat: options.number("lowat").map(|bytes| bytes.min(cell.stream.read_size)),
        })
    }
}

impl Endpoint for Receiver {
    fn calls(&self) -> &'static [&'static str] {
        &["recv"]
    }

    fn witness(&mut self) -> Result<(), Fault> {
        Err(super::lacks("socket", Role::Sender))
    }

    fn run(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        if let Some(bytes) = self.lowat {
            // Not earlier: it would also hold up who reads the witness page.
            tcp::set_int(self.flow.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, clamp(bytes))
                .map_err(|e| self.flow.fault("SO_RCVLOWAT", &e))?;
        }
        let (fd, flags, buffer) = (self.flow.fd(), self.flags, &mut self.buffer);
        let mut calls = 0;
        loop {
            recorder.phase();
            match recorder.timed(RECV, || tcp::recv(fd, buffer, flags)) {
                Ok(0) => break,
                Ok(n) => {
                    self.toucher.take(&buffer[..n])?;
                    recorder.moved(n);
                    recorder.piece(n);
                    calls += 1;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.flow.fault("recv", &e)),
            }
        }
        self.flow.confirm_end()?;
        let mut account = Account::default();
        account.ledger.enter(
            Manner::Copied,
            recorder.total(),
            calls,
            "recv(2): copied to user memory",
        );
        Ok(account)
    }
}

fn busy_poll(flow: &Flow, microseconds: u64) -> Result<(), Fault> {
    let set: io::Result<()> =
        tcp::set_int(flow.fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, clamp(microseconds));
    set.map_err(|e| {
        flow.fault("SO_BUSY_POLL", &e)
            .remedy("run with CAP_NET_ADMIN, or raise sysctl net.core.busy_read, or busy-poll=0")
    })
}

/// A number as a socket option takes it.
fn clamp(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
