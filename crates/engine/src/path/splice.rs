//! `splice`: pipes filled once hold the message; each turn, tee(2) puts references to their pages
//! into a second pipe and splice(2) moves those into the socket. No byte is touched, and because
//! the pages are whole, single and not page cache, a receiver with TCP_ZEROCOPY_RECEIVE can map
//! them.
//!
//! A pipe can only be read from its front, so each source pipe is used from its
//! start: the pattern repeats every [`PATTERN_PERIOD`] bytes within a message,
//! and as many pipes as cover one period (one, at the default size) serve a
//! message of any length. The end of a message that is not a whole number of
//! pages is sent from the front part of a page; those bytes cannot be mapped.
//!
//! Segments and pages become misaligned if the peer's window ends inside a page: the kernel cuts
//! the segment there and fills the next ones to full length from the following pages. Until they
//! happen to realign, every packet begins and ends inside a page, which a receiver cannot map. So
//! TCP_CORK keeps the kernel from cutting segments short, and the last byte of each 1 MiB record is
//! sent by send(2) with MSG_EOR, after which the kernel begins a new packet. That byte is copied
//! and its page cannot be mapped: 0.4 % of the stream, instead of 3 to 7 % and many more calls at a
//! receiver that is slower than the sender. The option `align` turns this off.
//!
//! The kernel still copies if the device does not support scatter-gather. The calls do not show it;
//! the witness page does.

use super::{DataPath, HalfPath, Opened};
use crate::connection::{Connection, Flow, WITNESS_LEN, WitnessPage};
use crate::workload::{Account, Call, Group, HalfConfig, PATTERN_PERIOD, Pattern, Recorder, Tx};
use bytepath_record::{Fault, Manner, OptionKind, OptionSpec, Tls, unit};
use bytepath_sys::pipe::Pipe;
use bytepath_sys::tcp;
use std::io;
use std::os::fd::AsFd;

pub(super) static PATH: DataPath = DataPath {
    name: "splice",
    summary: "tee and splice from pipes filled once: their pages are sent by reference",
    attempt: |_| vec![super::tried(ATTEMPT, attempt())],
    tx: Some(HalfPath::tx(|_, facts| facts.require(ATTEMPT, REMEDY), open).with_options(OPTIONS)),
    ..DataPath::EMPTY
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("pipe", OptionKind::Size(64 << 10, 256 << 20), "1M")
        .help("size of each pipe: the maximum that one tee and splice moves"),
    OptionSpec::new("align", OptionKind::Flag, "on")
        .help("TCP_CORK and an end of record every MiB: segments remain whole pages"),
];

/// Name of the attempt.
const ATTEMPT: &str = "splice";

/// Default pipe size in bytes.
const DEFAULT_PIPE: usize = 1 << 20;

const REMEDY: &str = "choose a smaller pipe or fewer flows, or raise sysctl fs.pipe-max-size \
                      and fs.pipe-user-pages-soft";

fn open(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Tx> {
    let flow = connection.kernel()?;
    flow.reset_on_death()?;
    let wanted = job.options.number("pipe").map_or(DEFAULT_PIPE, |n| n as usize);
    let refused = |e: io::Error| {
        let size = unit::bytes(wanted as u64);
        Fault::system(format_args!("a pipe of {size} bytes"), &e).remedy(REMEDY)
    };
    let through = Pipe::new(wanted).map_err(refused)?;
    let sources = Sources::new(job.message_size, wanted).map_err(refused)?;
    let pattern = Pattern::new(job.message_size);
    // If the peer answers each message, waiting for more bytes would deadlock. TLS fills its
    // records by itself, would hold back the last one, and no receiver maps ciphertext.
    let bulk = job.batch > 1 && job.tls == Tls::None;
    let align = bulk && job.options.flag("align");
    let stand = StreamPosition::default();
    Ok(Box::new(Sender { flow, sources, through, pattern, bulk, align, stand }))
}

/// Pipes that hold the pattern of one message.
struct Sources {
    pipes: Vec<Pipe>,
    /// Bytes of the message from the start of one pipe to the start of the next.
    stride: u64,
    message_size: u64,
}

impl Sources {
    fn new(message_size: u64, capacity: usize) -> io::Result<Self> {
        let mut pipes = vec![Pipe::new(capacity)?];
        let stride = pipes[0].capacity() as u64;
        // All these sizes are powers of two, so whole pipes make up whole periods.
        let span = message_size.min(stride.max(PATTERN_PERIOD as u64));
        while (pipes.len() as u64) * stride < span {
            pipes.push(Pipe::new(capacity)?);
        }
        let pattern = Pattern::new(message_size);
        let mut bytes = vec![0; stride.min(span) as usize];
        for (index, pipe) in pipes.iter_mut().enumerate() {
            let offset = index as u64 * stride;
            let len = stride.min(span - offset) as usize;
            pattern.fill(&mut bytes[..len], offset);
            pipe.fill(&bytes[..len])?;
        }
        Ok(Sources { pipes, stride, message_size })
    }

    /// Returns the pipe whose front holds the bytes of the message from `offset` on, and how many
    /// bytes to take from it. `offset` must be a multiple of the stride.
    #[inline]
    fn at(&self, offset: u64) -> (&Pipe, usize) {
        let index = (offset / self.stride) as usize % self.pipes.len();
        (&self.pipes[index], self.stride.min(self.message_size - offset) as usize)
    }

    /// Returns the offset `by` bytes later; these bytes must not exceed the message.
    #[inline]
    fn advance(&self, offset: u64, by: usize) -> u64 {
        (offset + by as u64) % self.message_size
    }
}

struct Sender {
    flow: Flow,
    sources: Sources,
    /// The pipe between the sources and the socket, empty between turns.
    through: Pipe,
    pattern: Pattern,
    bulk: bool,
    align: bool,
    stand: StreamPosition,
}

/// Position of the stream.
#[derive(Debug, Default)]
struct StreamPosition {
    /// Offset within the message.
    at: u64,
    /// Bytes sent of the current record.
    record: u64,
    /// Whether the last byte of the record is still to be sent.
    eor_pending: bool,
    splices: u64,
    ends: u64,
}

/// Minimum length of a record in bytes.
const RECORD: u64 = 1 << 20;

const TEE: Call = Call(0, "tee");
const SPLICE: Call = Call(1, "splice");
const SEND: Call = Call(2, "send");

impl Tx for Sender {
    /// The witness page is user memory lent to a pipe (vmsplice), because no one can write to a
    /// page that a pipe owns. From the pipe on, it takes the same route as the stream.
    fn witness(&mut self) -> Result<(), Fault> {
        const CALL: &str = "splice of the witness page";
        let failed = |e: io::Error| self.flow.fault(CALL, &e);
        let mut page = super::witness_page()?;
        let mut source = Pipe::new(WITNESS_LEN).map_err(failed)?;
        source.lend(&page).map_err(failed)?;
        let len = source.tee(&mut self.through, WITNESS_LEN).map_err(failed)?;
        while self.through.held() > 0 {
            self.flow.completed(CALL, self.through.splice(self.flow.fd(), len, false))?;
        }
        WitnessPage::settle(&self.flow, |after| page.copy_from_slice(after))
    }

    fn begin(&mut self) -> Result<(), Fault> {
        if self.align {
            tcp::set_int(self.flow.fd(), libc::IPPROTO_TCP, libc::TCP_CORK, 1)
                .map_err(|e| self.flow.fault("TCP_CORK", &e))?;
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let stand = &mut self.stand;
        if self.through.held() == 0 && !stand.eor_pending {
            let (source, len) = self.sources.at(stand.at);
            stand.eor_pending = self.align && len > 1 && stand.record + len as u64 >= RECORD;
            let len = len - usize::from(stand.eor_pending);
            let teed = recorder.timed(TEE, || source.tee(&mut self.through, len));
            match self.flow.completed("tee", teed)? {
                Some(n) if n == len => {
                    stand.record += n as u64;
                    stand.at = self.sources.advance(stand.at, n);
                }
                // The kernel fills an empty pipe of the same size completely (`link_pipe`,
                // fs/splice.c); bytes left out could not be reached any more.
                Some(n) => return Err(Fault::failed(format!("tee: {n} of {len} bytes"))),
                None => {
                    stand.eor_pending = false;
                    return Ok(());
                }
            }
        }
        let (fd, held, more) = (self.flow.fd(), self.through.held(), self.bulk);
        if held > 0 {
            let spliced = recorder.timed(SPLICE, || self.through.splice(fd, held, more));
            if let Some(n) = self.flow.completed("splice", spliced)? {
                recorder.moved(n);
                stand.splices += 1;
            }
            return Ok(());
        }
        let mut last = [0];
        self.pattern.fill(&mut last, stand.at);
        let sent = recorder.timed(SEND, || tcp::send(fd, &last, libc::MSG_EOR));
        if let Some(n) = self.flow.completed("send", sent)? {
            recorder.moved(n);
            stand.ends += 1;
            stand.at = self.sources.advance(stand.at, n);
            (stand.eor_pending, stand.record) = (false, 0);
        }
        Ok(())
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let StreamPosition { splices, ends, .. } = self.stand;
        let mut account = Account::default();
        let source = "splice(2): references to pages of a pipe";
        account.ledger.enter(Manner::NotCopied, recorder.total() - ends, splices, source);
        let source = "send(2) of the last byte of a record";
        account.ledger.enter(Manner::Copied, ends, ends, source);
        Ok(account)
    }
}

/// Creates both pipes at the default size and sends a page over loopback, if that is up.
fn attempt() -> io::Result<String> {
    let (mut source, mut through) = (Pipe::new(DEFAULT_PIPE)?, Pipe::new(DEFAULT_PIPE)?);
    source.fill(&[1; WITNESS_LEN])?;
    let len = source.tee(&mut through, WITNESS_LEN)?;
    match tcp::loopback_pair() {
        Ok((tx, _rx)) => through.splice(tx.as_fd(), len, false).map(|n| format!("{n} bytes sent")),
        Err(e) => Ok(format!("the pipes; not sent, because there is no loopback connection: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_match_message_at_each_offset() {
        let sizes = [1, 5000, 65536, 100_000, 1 << 20, (1 << 20) + 1, 3 << 20, (5 << 20) + 777];
        for message_size in sizes {
            for capacity in [64 << 10, 1 << 20] {
                let sources = Sources::new(message_size, capacity).unwrap();
                let pattern = Pattern::new(message_size);
                let mut through = Pipe::new(capacity).unwrap();
                let (mut offset, mut messages) = (0, 0);
                while messages < 2 {
                    let (pipe, len) = sources.at(offset);
                    assert_eq!(pipe.tee(&mut through, len).unwrap(), len);
                    let bytes = drain(&mut through);
                    let checked = pattern.check(&bytes, messages * message_size + offset);
                    assert_eq!(checked, Ok(()), "{message_size} by {capacity}");
                    offset += len as u64;
                    if offset == message_size {
                        (offset, messages) = (0, messages + 1);
                    }
                }
            }
        }
    }

    /// Reads all bytes of a pipe, through a socket.
    fn drain(pipe: &mut Pipe) -> Vec<u8> {
        use std::io::Read;
        use std::os::unix::net::UnixStream;
        let (tx, mut rx) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            rx.read_to_end(&mut bytes).unwrap();
            bytes
        });
        while pipe.held() > 0 {
            pipe.splice(tx.as_fd(), pipe.held(), false).unwrap();
        }
        drop(tx);
        reader.join().unwrap()
    }
}
