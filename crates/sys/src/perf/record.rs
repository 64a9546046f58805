//! The records that the kernel writes into a ring (perf_event_open(2), "MMAP layout";
//! `perf_event_type` in include/uapi/linux/perf_event.h), for the one layout that
//! [`Sampler`](super::Sampler) requests: `IP | TID | TIME | CPU | PERIOD | CALLCHAIN` with
//! `sample_id_all`.
//!
//! Pure: any bytes lead to records or an error, never a panic, and nothing is allocated.

use perf_event_open_sys::bindings as b;

#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    Sample(Sample<'a>),
    /// This many records did not fit in the ring.
    Lost(u64),
    /// A thread's name; true if it changed because the thread executed another program.
    Comm(Task, &'a [u8], bool),
    /// A process mapped a file as executable.
    Mmap(Mmap<'a>),
    /// A new thread, and the one that made it.
    Fork(Task, Task),
    Exit(Task),
    /// The kernel stopped the event because its interrupts took too long; until
    /// it resumes, nothing is sampled.
    Throttle,
    Unthrottle,
    /// Anything else, by its type.
    Other(u32),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    /// Address of the instruction.
    pub ip: u64,
    /// Whether the instruction is in the kernel.
    pub in_kernel: bool,
    pub task: Task,
    /// Time of the sample, in ns of the monotonic clock.
    pub time: u64,
    pub cpu: u32,
    /// Number of events that the sample represents.
    pub period: u64,
    pub chain: Chain<'a>,
}

/// A thread. Process and thread 0 are the idle task; both are `u32::MAX` for a task that another
/// PID namespace hides or that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Task {
    pub pid: u32,
    pub tid: u32,
}

/// An executable mapping of a file by a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Mmap<'a> {
    pub task: Task,
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Offset of its start in the file, in bytes.
    pub offset: u64,
    /// Path of the file, or a name like `[vdso]`.
    pub path: &'a [u8],
}

/// One entry of a call chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Address of an instruction.
    pub address: u64,
    /// Whether it is in the kernel.
    pub in_kernel: bool,
    /// Whether the instruction at the address itself was executed. Otherwise the address is the one
    /// that a call returns to, after the call instruction.
    pub exact: bool,
}

/// A call chain, leaf first: addresses, with marks (`PERF_CONTEXT_*`) between them that tell where
/// the following addresses are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chain<'a>(&'a [u8]);

impl<'a> Chain<'a> {
    /// Returns the addresses. Those that are neither kernel nor user (a guest's) are left out.
    pub fn calls(self) -> impl Iterator<Item = Call> + 'a {
        let (mut context, mut exact) = (None, false);
        self.0.chunks_exact(8).filter_map(move |bytes| {
            let address = u64::from_ne_bytes(bytes.try_into().ok()?);
            if address < b::PERF_CONTEXT_MAX {
                let call = context.map(|in_kernel| Call { address, in_kernel, exact });
                exact = false;
                return call;
            }
            exact = true;
            context = match address {
                b::PERF_CONTEXT_KERNEL => Some(true),
                b::PERF_CONTEXT_USER => Some(false),
                _ => None,
            };
            None
        })
    }
}

/// Bytes that are not valid records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record at byte {at} of a perf ring is malformed: {what}")]
pub struct Malformed {
    /// Offset of the record.
    pub at: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// `struct perf_event_header`: type, misc, size.
const HEADER: usize = 8;

/// Bytes that `sample_id_all` appends to every other record here: pid, tid, time, cpu and 4
/// reserved bytes.
const TRAILER: usize = 8 + 8 + 8;

/// Decodes the records in `bytes`, which must be whole and consecutive. Ends after the first error.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Record<'_>, Malformed>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let begin = at;
        let malformed = |what| Malformed { at: begin, what };
        let taken = take(rest).map_err(malformed);
        at = match &taken {
            Ok((_, size)) => begin + size,
            Err(_) => bytes.len(),
        };
        Some(taken.map(|(record, _)| record))
    })
}

fn take(bytes: &[u8]) -> Result<(Record<'_>, usize), &'static str> {
    let mut fields = Fields(bytes);
    let short = "its header is cut off";
    let (kind, misc, size) =
        (fields.u32().ok_or(short)?, fields.u16().ok_or(short)?, fields.u16().ok_or(short)?);
    let size = usize::from(size);
    if size < HEADER || !size.is_multiple_of(8) {
        return Err("its size is impossible");
    }
    let body = bytes.get(HEADER..size).ok_or("it is cut off")?;
    let record = parse(kind, u32::from(misc), body).ok_or("it is shorter than its type is")?;
    Ok((record, size))
}

fn parse(kind: u32, misc: u32, body: &[u8]) -> Option<Record<'_>> {
    let mut fields = Fields(body);
    Some(match kind {
        b::PERF_RECORD_SAMPLE => {
            let ip = fields.u64()?;
            let task = fields.task()?;
            let time = fields.u64()?;
            let cpu = fields.u32()?;
            fields.u32()?;
            let period = fields.u64()?;
            let length = usize::try_from(fields.u64()?).ok()?.checked_mul(8)?;
            let chain = Chain(fields.bytes(length)?);
            let mode = misc & b::PERF_RECORD_MISC_CPUMODE_MASK;
            let in_kernel = mode == b::PERF_RECORD_MISC_KERNEL;
            Record::Sample(Sample { ip, in_kernel, task, time, cpu, period, chain })
        }
        b::PERF_RECORD_LOST => {
            fields.u64()?;
            Record::Lost(fields.u64()?)
        }
        b::PERF_RECORD_LOST_SAMPLES => Record::Lost(fields.u64()?),
        b::PERF_RECORD_COMM => {
            let task = fields.task()?;
            let exec = misc & b::PERF_RECORD_MISC_COMM_EXEC != 0;
            Record::Comm(task, fields.text()?, exec)
        }
        b::PERF_RECORD_MMAP2 => {
            let task = fields.task()?;
            let (start, len, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
            // Device, inode and generation, or a build id; then protection and flags.
            fields.bytes(24 + 8)?;
            Record::Mmap(Mmap { task, start, len, offset, path: fields.text()? })
        }
        b::PERF_RECORD_FORK | b::PERF_RECORD_EXIT => {
            let (pid, parent) = (fields.u32()?, fields.u32()?);
            let (tid, parent_thread) = (fields.u32()?, fields.u32()?);
            fields.u64()?;
            let task = Task { pid, tid };
            match kind {
                b::PERF_RECORD_FORK => Record::Fork(task, Task { pid: parent, tid: parent_thread }),
                _ => Record::Exit(task),
            }
        }
        b::PERF_RECORD_THROTTLE => Record::Throttle,
        b::PERF_RECORD_UNTHROTTLE => Record::Unthrottle,
        other => Record::Other(other),
    })
}

/// The bytes of a record not yet decoded.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_ne_bytes(self.bytes(2)?.try_into().ok()?))
    }

    fn task(&mut self) -> Option<Task> {
        Some(Task { pid: self.u32()?, tid: self.u32()? })
    }

    /// Returns a text that ends at its first zero byte, before the trailer.
    fn text(&mut self) -> Option<&'a [u8]> {
        let text = self.0.get(..self.0.len().checked_sub(TRAILER)?)?;
        text.split(|byte| *byte == 0).next()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Builds a record, with its body padded to a multiple of eight bytes.
    pub(crate) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = (HEADER + body.len()).next_multiple_of(8);
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend((size as u16).to_ne_bytes());
        bytes.extend(body);
        bytes.resize(size, 0);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn halves(low: u32, high: u32) -> u64 {
        let [a, b] = [low.to_ne_bytes(), high.to_ne_bytes()];
        u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
    }

    pub(crate) fn sample(tid: u32, chain: &[u64]) -> Vec<u8> {
        let mut body = words(&[
            0xffff_ffff_8100_0000,
            halves(7, tid),
            123,
            halves(1, 0),
            1000,
            chain.len() as u64,
        ]);
        body.extend(words(chain));
        record(b::PERF_RECORD_SAMPLE, 1, &body)
    }

    #[test]
    fn a_sample_with_both_halves_of_its_chain() {
        let marks = (b::PERF_CONTEXT_KERNEL, b::PERF_CONTEXT_USER, b::PERF_CONTEXT_GUEST);
        let bytes =
            sample(9, &[5, marks.0, 0x000f_fff1, 0x000f_fff2, marks.1, 0x40, marks.2, 0x50]);
        let found: Vec<_> = records(&bytes).collect();
        let [Ok(Record::Sample(sample))] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((sample.task, sample.cpu, sample.time), (Task { pid: 7, tid: 9 }, 1, 123));
        assert_eq!((sample.period, sample.in_kernel), (1000, true));
        let call = |address, in_kernel, exact| Call { address, in_kernel, exact };
        let chain: Vec<_> = sample.chain.calls().collect();
        let expected = [
            call(0x000f_fff1, true, true),
            call(0x000f_fff2, true, false),
            call(0x40, false, true),
        ];
        assert_eq!(chain, expected);
    }

    #[test]
    fn the_side_band() {
        let trailer = words(&[halves(7, 8), 55, halves(1, 0)]);
        let mut comm = words(&[halves(7, 8)]);
        comm.extend(*b"sender/0");
        comm.extend([0; 8]);
        comm.extend(&trailer);
        let mut map = words(&[halves(7, 8), 0x1000, 0x2000, 0x3000, 1, 2, 3, 4]);
        map.extend(*b"/bin/cat");
        map.extend([0; 8]);
        map.extend(&trailer);
        let mut fork = words(&[halves(10, 7), halves(11, 8), 55]);
        fork.extend(&trailer);
        let mut lost = words(&[1, 42]);
        lost.extend(&trailer);
        let mut all = record(b::PERF_RECORD_COMM, b::PERF_RECORD_MISC_COMM_EXEC as u16, &comm);
        all.extend(record(b::PERF_RECORD_MMAP2, 2, &map));
        all.extend(record(b::PERF_RECORD_FORK, 0, &fork));
        all.extend(record(b::PERF_RECORD_EXIT, 0, &fork));
        all.extend(record(b::PERF_RECORD_LOST, 0, &lost));
        all.extend(record(b::PERF_RECORD_THROTTLE, 0, &trailer));
        all.extend(record(77, 0, &[]));
        let task = Task { pid: 7, tid: 8 };
        let path = &b"/bin/cat"[..];
        let child = Task { pid: 10, tid: 11 };
        let found: Vec<_> = records(&all).map(Result::unwrap).collect();
        let expected = [
            Record::Comm(task, b"sender/0", true),
            Record::Mmap(Mmap { task, start: 0x1000, len: 0x2000, offset: 0x3000, path }),
            Record::Fork(child, task),
            Record::Exit(child),
            Record::Lost(42),
            Record::Throttle,
            Record::Other(77),
        ];
        assert_eq!(found, expected);
    }

    /// Records that Linux 6.18 wrote on x86-64 while a program was started and ended.
    #[cfg(target_endian = "little")]
    const EXEC: &[u8] = include_bytes!("../../../../tests/data/perf/exec-6.18.records");

    #[test]
    #[cfg(target_endian = "little")]
    fn a_recorded_program_from_its_fork_to_its_end() {
        let found: Vec<_> = records(EXEC).map(Result::unwrap).collect();
        let task = Task { pid: 31913, tid: 31913 };
        assert_eq!(found[0], Record::Fork(task, Task { pid: 31911, tid: 31912 }));
        assert_eq!(found[1], Record::Comm(task, b"true", true));
        let path = &b"/usr/bin/true"[..];
        let (start, len, offset) = (0x55dc_586b_7000, 0x4000, 0x2000);
        assert_eq!(found[2], Record::Mmap(Mmap { task, start, len, offset, path }));
        let maps = found.iter().filter(|record| matches!(record, Record::Mmap(_))).count();
        assert_eq!(maps, 4);
        let Record::Sample(sample) = &found[6] else { panic!("{:?}", found[6]) };
        assert_eq!((sample.task, sample.cpu, sample.period), (task, 0, 2_004_008));
        assert_eq!(sample.chain.calls().count(), 10);
        assert_eq!(found[7..], [Record::Exit(task)]);
        // The same bytes wrapped around the end of a ring, at every position.
        for cut in 0..=EXEC.len() {
            let again = [&EXEC[..cut], &EXEC[cut..]].concat();
            assert_eq!(records(&again).count(), found.len());
            let part = records(&EXEC[..cut]).filter(Result::is_ok).count();
            assert!(part <= found.len() && (part < found.len() || cut == EXEC.len()));
        }
    }

    #[test]
    fn what_is_cut_off_or_impossible_ends_with_an_error() {
        let whole = sample(1, &[b::PERF_CONTEXT_KERNEL, 2]);
        for length in 1..whole.len() {
            let found: Vec<_> = records(&whole[..length]).collect();
            assert!(matches!(found.as_slice(), [Err(_)]), "{length}: {found:?}");
        }
        let mut second = whole.clone();
        second.extend(record(b::PERF_RECORD_LOST, 0, &[0; 8]));
        second.extend(&whole);
        let found: Vec<_> = records(&second).collect();
        assert_eq!(found.len(), 2);
        let what = "it is shorter than its type is";
        assert_eq!(found[1], Err(Malformed { at: whole.len(), what }));
        let mut zero = whole.clone();
        zero[6..8].fill(0);
        assert!(records(&zero).next().unwrap().is_err());
        // A chain that claims to be far longer than the record.
        let mut huge = whole;
        huge[48..56].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert!(records(&huge).next().unwrap().is_err());
    }
}
