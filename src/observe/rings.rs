//! The table made from records: every begin and end of a system call of the
//! followed threads comes through perf's rings and is put together here. For
//! hosts where BPF is not permitted and perf is; it costs several times as
//! much, and knows nothing of what a descriptor is.

use super::kernel::{From, initial_pid_namespace};
use super::layout::{self, WAYS, Way, kind, socket};
use super::seen::{Row, Seen, Socket, Thread};
use crate::record::{Fault, FaultKind};
use crate::sys::Roots;
use crate::sys::procfs;
use crate::sys::trace_ring::{Record, TraceRing};
use crate::sys::tracefs::Event;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::time::Duration;

/// How long the rings may be left alone.
pub const PATIENCE: Duration = Duration::from_millis(10);

/// Records younger than this wait for the next round: one that was written on
/// another CPU before them may not have been read yet. Nanoseconds.
const SETTLE: u64 = 2_000_000;

/// Rings, and the table that is made from them.
#[derive(Debug)]
pub struct Rings {
    tracepoints: [u64; 2],
    /// Where the number and the arguments of a call are in the record of its
    /// begin, and the result in that of its end.
    offsets: Offsets,
    cpus: Vec<u32>,
    rings: Vec<TraceRing>,
    waiting: Vec<(u64, Record)>,
    table: Table,
}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    enter: u16,
    id: usize,
    arguments: usize,
    result: usize,
}

/// What the table cannot tell when it is made like this.
pub fn remarks() -> Vec<String> {
    vec![
        "system calls are counted from records: each call is slowed by microseconds".to_owned(),
        "sockets are not told apart, and read and write on them not from those on files".to_owned(),
        "bytes of recvmmsg, sendmmsg and TCP_ZEROCOPY_RECEIVE are not known".to_owned(),
    ]
}

impl Rings {
    /// Finds the tracepoints; nothing is opened before somebody is followed.
    pub fn new(roots: &Roots) -> Result<Rings, Fault> {
        if !initial_pid_namespace(roots) {
            let what = "thread ids differ inside and outside of this PID namespace";
            return Err(Fault::new(FaultKind::Unsupported, what)
                .remedy("run bytepath in the host's PID namespace"));
        }
        let event = |name: &str| {
            Event::open(&roots.sys, "raw_syscalls", name).map_err(|e| {
                Fault::system(format!("tracepoint raw_syscalls:{name}"), &e)
                    .remedy("mount tracefs and let this user read it, or run it as root")
            })
        };
        let (enter, exit) = (event("sys_enter")?, event("sys_exit")?);
        let offset = |event: &Event, field: &str| {
            event.offset(field).map(usize::from).ok_or_else(|| {
                Fault::new(FaultKind::Unsupported, format!("the tracepoint has no field {field}"))
            })
        };
        let stat = std::fs::read_to_string(roots.proc.join("stat"))
            .map_err(|e| Fault::system("/proc/stat", &e))?;
        let cpus = procfs::parse_stat(&stat)
            .map_err(|e| Fault::new(FaultKind::Unsupported, e.to_string()))?;
        Ok(Rings {
            tracepoints: [enter.id, exit.id],
            offsets: Offsets {
                // The number of the tracepoint begins every record.
                enter: u16::try_from(enter.id).unwrap_or(u16::MAX),
                id: offset(&enter, "id")?,
                arguments: offset(&enter, "args")?,
                result: offset(&exit, "ret")?,
            },
            cpus: cpus.iter().map(|cpu| cpu.cpu).collect(),
            rings: Vec::new(),
            waiting: Vec::new(),
            table: Table::new(),
        })
    }

    /// Follows a thread and all that it will make.
    pub fn follow(&mut self, tid: u32, from: From) -> io::Result<()> {
        if from == From::Exec {
            self.table.until_exec.insert(tid);
        }
        if self.rings.is_empty() {
            for cpu in &self.cpus {
                self.rings.push(TraceRing::open(&self.tracepoints, tid, *cpu)?);
            }
            return Ok(());
        }
        self.rings.iter_mut().try_for_each(|ring| ring.add(&self.tracepoints, tid))
    }

    /// Takes what has come in.
    pub fn tick(&mut self) {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        self.take(now.saturating_sub(SETTLE));
    }

    /// The table of everything that came in.
    pub fn seen(&mut self) -> Seen {
        self.take(u64::MAX);
        self.table.seen()
    }

    /// Reads all rings and counts what is older than `horizon`.
    fn take(&mut self, horizon: u64) {
        let (waiting, table) = (&mut self.waiting, &mut self.table);
        for ring in &mut self.rings {
            ring.drain(|record| match record {
                Record::Lost(count) => table.lost += count,
                Record::Event { time, .. }
                | Record::Fork { time, .. }
                | Record::Name { time, .. }
                | Record::Exit { time, .. } => waiting.push((time, record)),
            });
        }
        waiting.sort_by_key(|(time, _)| *time);
        let ripe = waiting.partition_point(|(time, _)| *time < horizon);
        for (time, record) in waiting.drain(..ripe) {
            match record {
                Record::Event { tid, raw, pid, .. } => {
                    table.event(&self.offsets, pid, tid, time, &raw);
                }
                Record::Fork { pid, tid, parent, .. } => table.fork(pid, tid, parent),
                Record::Exit { tid, .. } => table.exit(tid),
                Record::Name { pid, tid, name, .. } => table.name(pid, tid, name),
                Record::Lost(_) => {}
            }
        }
    }
}

/// The table as it grows.
#[derive(Debug, Default)]
struct Table {
    kinds: Vec<u32>,
    until_exec: HashSet<u32>,
    open: HashMap<u32, Call>,
    rows: BTreeMap<(u32, u32), Row>,
    threads: BTreeMap<u32, Thread>,
    sockets: BTreeMap<u64, Socket>,
    lost: u64,
}

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
struct Call {
    began: u64,
    number: u32,
    kind: u32,
    way: Way,
}

impl Table {
    fn new() -> Self {
        Table { kinds: layout::kinds(), ..Table::default() }
    }

    fn event(&mut self, offsets: &Offsets, pid: u32, tid: u32, time: u64, raw: &[u8]) {
        let at = |offset: usize| i16::try_from(offset).unwrap_or(i16::MAX);
        if layout::half(raw, 0) == offsets.enter {
            let number = layout::long(raw, at(offsets.id)) as u32;
            let argument = |n: usize| layout::long(raw, at(offsets.arguments + 8 * n)) as i32;
            self.enter(pid, tid, time, number, argument);
        } else {
            self.leave(pid, tid, time, layout::long(raw, at(offsets.result)) as i64);
        }
    }

    fn enter(
        &mut self,
        pid: u32,
        tid: u32,
        time: u64,
        number: u32,
        argument: impl Fn(usize) -> i32,
    ) {
        if self.until_exec.contains(&tid) {
            if i64::from(number) != libc::SYS_execve {
                return;
            }
            self.until_exec.remove(&tid);
        }
        let thread = self.thread(tid);
        thread.process = pid;
        let kind = self.kinds.get(number as usize).copied().unwrap_or(0);
        let way = Way::ALL[kind as usize % WAYS];
        let flags = if kind & kind::FLAGS_THIRD != 0 {
            argument(2)
        } else if kind & kind::FLAGS_FOURTH != 0 {
            argument(3)
        } else {
            0
        };
        let way = match way {
            Way::Sent if flags & libc::MSG_ZEROCOPY != 0 => Way::ZeroCopy,
            Way::Received if flags & libc::MSG_PEEK != 0 => Way::Peeked,
            Way::Received if flags & libc::MSG_TRUNC != 0 => Way::Discarded,
            other => other,
        };
        self.open.insert(tid, Call { began: time, number, kind, way });
    }

    fn leave(&mut self, pid: u32, tid: u32, time: u64, result: i64) {
        // One that began before we looked has no begin.
        let Some(call) = self.open.remove(&tid) else { return };
        let moved = call.kind & kind::BYTES != 0 && result > 0;
        let bytes = if moved { result as u64 } else { 0 };
        let row = self.rows.entry((tid, call.number)).or_insert_with(|| Row::new(tid, call.number));
        row.add(time.saturating_sub(call.began), result < 0, bytes);
        if call.kind & kind::DESCRIPTOR != 0 && call.kind & kind::BYTES != 0 && result >= 0 {
            let all = call.kind & kind::SOCKET != 0;
            let key = i64::from(if all { socket::ALL } else { socket::ANYTHING }) as u64;
            let socket = self.sockets.entry(key).or_insert_with(|| Socket::many(key, pid));
            socket.bytes[call.way as usize] += bytes;
            socket.calls[call.way as usize] += 1;
        }
    }

    fn fork(&mut self, pid: u32, tid: u32, parent: u32) {
        let name = self.threads.get(&parent).map(|t| t.name.clone()).unwrap_or_default();
        // A new thread may have the id of one that has ended.
        self.threads.insert(tid, Thread { tid, process: pid, parent, name, ..Thread::default() });
    }

    fn exit(&mut self, tid: u32) {
        self.thread(tid).ended = true;
        self.open.remove(&tid);
    }

    fn name(&mut self, pid: u32, tid: u32, name: String) {
        let thread = self.thread(tid);
        thread.process = pid;
        thread.name = name;
    }

    fn thread(&mut self, tid: u32) -> &mut Thread {
        self.threads.entry(tid).or_insert_with(|| Thread { tid, ..Thread::default() })
    }

    fn seen(&self) -> Seen {
        Seen {
            rows: self.rows.values().cloned().collect(),
            threads: self.threads.values().cloned().collect(),
            sockets: self.sockets.values().cloned().collect(),
            lost_calls: self.lost,
            ..Seen::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: Offsets = Offsets { enter: 9, id: 8, arguments: 16, result: 16 };

    fn begin(number: i64, flags: u64) -> Vec<u8> {
        let mut raw = 9u64.to_ne_bytes().to_vec();
        raw.extend(number.to_ne_bytes());
        [3, 0, 0, flags, 0, 0].iter().for_each(|argument: &u64| raw.extend(argument.to_ne_bytes()));
        raw
    }

    fn end(result: i64) -> Vec<u8> {
        let mut raw = 8u64.to_ne_bytes().to_vec();
        raw.extend(0u64.to_ne_bytes());
        raw.extend(result.to_ne_bytes());
        raw
    }

    #[test]
    fn begins_and_ends_make_calls() {
        let mut table = Table::new();
        // An end without a begin is of a call that we did not see begin.
        table.event(&OFFSETS, 1, 1, 5, &end(7));
        table.event(&OFFSETS, 1, 1, 10, &begin(libc::SYS_recvfrom, 0));
        // Another thread in between.
        table.event(&OFFSETS, 1, 2, 12, &begin(libc::SYS_read, 0));
        table.event(&OFFSETS, 1, 1, 30, &end(100));
        table.event(&OFFSETS, 1, 2, 40, &end(-11));
        table.event(&OFFSETS, 1, 1, 50, &begin(libc::SYS_recvfrom, libc::MSG_PEEK as u64));
        table.event(&OFFSETS, 1, 1, 60, &end(50));
        let seen = table.seen();
        assert_eq!(seen.rows.len(), 2);
        let recv = seen.rows.iter().find(|row| row.tid == 1).unwrap();
        assert_eq!((recv.calls, recv.total, recv.min, recv.max, recv.bytes), (2, 30, 10, 20, 150));
        let read = seen.rows.iter().find(|row| row.tid == 2).unwrap();
        assert_eq!((read.calls, read.errors, read.bytes), (1, 1, 0));
        assert_eq!(seen.sockets[0].bytes[Way::Received as usize], 100);
        assert_eq!(seen.sockets[0].bytes[Way::Peeked as usize], 50);
    }

    #[test]
    fn nothing_counts_before_exec() {
        let mut table = Table::new();
        table.until_exec.insert(4);
        for (number, time) in [(libc::SYS_close, 1), (libc::SYS_execve, 3), (libc::SYS_close, 5)] {
            table.event(&OFFSETS, 4, 4, time, &begin(number, 0));
            table.event(&OFFSETS, 4, 4, time + 1, &end(0));
        }
        let calls: Vec<_> =
            table.seen().rows.iter().map(|row| (i64::from(row.number), row.calls)).collect();
        assert_eq!(calls, [(libc::SYS_close, 1), (libc::SYS_execve, 1)]);
    }

    #[test]
    fn no_record_panics() {
        for length in 0..70 {
            Table::new().event(&OFFSETS, 1, 1, 1, &begin(0, 0)[..length.min(64)]);
            Table::new().event(&OFFSETS, 1, 1, 1, &vec![0xff; length]);
        }
    }
}
