//! `msg-zerocopy`: send(2) with MSG_ZEROCOPY pins the pages of the message, and a completion on the
//! error queue reports when the kernel has released them and whether it copied after all
//! (Documentation/networking/msg_zerocopy.rst).
//!
//! The ledger relies on the completions alone. A completion without the COPIED flag is not
//! proof: with XDP on a local peer the kernel copies later. So the witness page decides.

use super::zerocopy_send::{COMPLETIONS, Payload, WINDOW, ZerocopySender};
use super::{DataPath, HalfPath, Opened};
use crate::connection::{Connection, Flow, WITNESS_LEN, WitnessPage};
use crate::workload::{Call, Group, HalfConfig, Tx};
use bytepath_record::{Fault, OptionKind, OptionSpec};
use bytepath_sys::errqueue;
use bytepath_sys::memory::Region;
use bytepath_sys::tcp::{self, Ready};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};

pub(super) static PATH: DataPath = DataPath {
    name: "msg-zerocopy",
    summary: "send with MSG_ZEROCOPY: pages pinned, completions on the error queue",
    attempt: |_| vec![super::tried(ATTEMPT, attempt())],
    tx: Some(
        HalfPath::tx(
            |_, facts| facts.require(ATTEMPT, "needs Linux 4.14 and some locked memory"),
            open,
        )
        .with_options(OPTIONS),
    ),
    ..DataPath::EMPTY
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("huge", OptionKind::Flag, "off")
        .help("use transparent huge pages for the message"),
    OptionSpec::new("reap", OptionKind::Count(1, WINDOW as u64), "16")
        .help("sends between checks of the error queue"),
];

/// Name of the attempt.
const ATTEMPT: &str = "so-zerocopy";

fn open(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Tx> {
    let message = super::message(job.message_size, job.options.flag("huge"))?;
    let reap = job.options.number("reap").map_or(16, |n| n as u32);
    Ok(Box::new(ZerocopySender::new(connection.kernel()?, Message(message), reap)?))
}

/// The message in the process's own memory.
struct Message(Region);

impl Payload for Message {
    const SEND: Call = Call(0, "send");
    const CALL: &'static str = "send with MSG_ZEROCOPY";
    const REMEDY: &'static str = "raise sysctl net.core.optmem_max and the limit on locked memory \
                                  (ulimit -l), or choose a smaller message size";

    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn send(&self, flow: &Flow, at: usize, len: usize) -> io::Result<usize> {
        tcp::send(flow.fd(), &self.0[at..at + len], libc::MSG_ZEROCOPY)
    }

    fn witness(sender: &mut ZerocopySender<Message>) -> Result<(), Fault> {
        let mut page = super::witness_page()?;
        sender.send_aside(page.len(), |_, flow, at| {
            tcp::send(flow.fd(), &page[at..], libc::MSG_ZEROCOPY)
        })?;
        WitnessPage::settle(&sender.flow, |after| page.copy_from_slice(after))
    }
}

/// Sends a page over loopback, if that is up, and waits for its completion.
fn attempt() -> io::Result<String> {
    let enable = |fd: BorrowedFd| tcp::set_int(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1);
    let (tx, _rx) = match tcp::loopback_pair() {
        Ok(pair) => pair,
        Err(e) => {
            enable(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.as_fd())?;
            let text = "the option; not sent, because there is no loopback connection";
            return Ok(format!("{text}: {e}"));
        }
    };
    enable(tx.as_fd())?;
    let page = Region::new(WITNESS_LEN, false)?;
    tcp::send(tx.as_fd(), &page, libc::MSG_ZEROCOPY)?;
    tcp::wait(tx.as_fd(), Ready::empty(), Some(COMPLETIONS))?;
    match errqueue::completion(tx.as_fd())? {
        Some(c) if c.copied => Ok("completed as copied on the loopback device".into()),
        Some(_) => Ok("completed as not copied".into()),
        None => Err(io::Error::other("a send had no completion")),
    }
}
