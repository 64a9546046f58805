//! The tables in the kernel: creates the maps, loads and attaches the programs, reads the maps.

use super::layout::{self, copies, lost, row, socket, state, thread, used};
use super::observations::{Observations, Row, Socket, Thread};
use super::program::{Maps, Members, Slots, copy, end, enter, exit, fork};
use bytepath_meter::bpf;
use bytepath_record::{Fault, FaultKind};
use bytepath_sys::Roots;
use bytepath_sys::bpf::{Link, Map, MapKind, Program, Update, open_thread};
use bytepath_sys::btf::{Btf, Kind};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Capacity of the maps. Memory is allocated as needed, up to a few hundred MiB if a program really
/// creates that many threads.
const ROWS: u32 = 512 << 10;
const THREADS: u32 = 64 << 10;
const SOCKETS: u32 = 256 << 10;

/// Which calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountFrom {
    /// All from the next one on.
    Now,
    /// All from the next execve on, which is the first one counted.
    Exec,
}

/// Attached programs that count, for as long as this exists.
#[derive(Debug)]
pub(crate) struct Counting {
    maps: Maps,
    programs: Vec<Program>,
    links: Vec<Link>,
    /// Why copied bytes are not counted; `None` if they are.
    pub no_copies: Option<Fault>,
    /// Warnings for the reader of the figures.
    pub remarks: Vec<String>,
}

impl Counting {
    /// Uses typed tracepoints and task storage: Linux 5.12 and later with `CONFIG_DEBUG_INFO_BTF`.
    pub(crate) fn new(roots: &Roots) -> Result<Counting, Fault> {
        let btf = bpf::types(roots)?;
        let members = Members::of(&btf)
            .map_err(|missing| bpf::too_old(format!("this kernel has no {missing}")))?;
        let mut remarks = Vec::new();
        if !initial_pid_namespace(roots) {
            remarks.push(
                "inside a PID namespace: thread ids are the host's, so CPU time of \
                 running threads is missing"
                    .to_owned(),
            );
        }
        let maps =
            maps().map_err(|e| bpf::with_remedy(Fault::system("cannot create BPF maps", &e)))?;
        let (mut programs, mut links) = (Vec::new(), Vec::new());
        for (name, insns) in [
            ("sched_process_fork", fork::program(&members, &maps)),
            ("sched_process_exit", end::program(&members, &maps)),
            ("sys_exit", exit::program(&members, &maps)),
            ("sys_enter", enter::program(&members, &maps)),
        ] {
            let program = bpf::load_typed(&btf, name, insns)?;
            links.push(bpf::attach(&program, name)?);
            programs.push(program);
        }
        let copying = count_copies(&btf, &members, &maps);
        let mut counting = Counting { maps, programs, links, no_copies: None, remarks };
        match copying.and_then(|links| counting.try_copies().map(|()| links)) {
            Ok(copying) => counting.links.extend(copying),
            Err(why) => counting.no_copies = Some(why),
        }
        Ok(counting)
    }

    /// Moves a few bytes in each watched way, and checks that they are counted: a kernel may have
    /// the watched functions and not call them (`hardened_usercopy=off`). Leaves nothing behind in
    /// the maps.
    fn try_copies(&self) -> Result<(), Fault> {
        use std::os::fd::AsRawFd;
        const BYTES: usize = 4096;
        let own = bytepath_sys::thread::id();
        let tried = || -> io::Result<[u64; 2]> {
            let (mut one, mut other) = UnixStream::pair()?;
            // NETLINK_ROUTE: a message of length zero is not a request, and the kernel ignores it.
            let kind = (AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC);
            let kernel = socket_with(kind.0, kind.1, kind.2, None)?;
            let (sent, mut received) = ([0; BYTES], [0; BYTES]);
            self.follow(own, CountFrom::Now)?;
            let moved = one
                .write_all(&sent)
                .and_then(|()| other.read_exact(&mut received))
                .and_then(|()| Ok(send(&kernel, &sent, SendFlags::empty())?));
            self.maps.state.delete(&open_thread(own)?.as_raw_fd().to_ne_bytes())?;
            moved?;
            let count = |index: i32| {
                let value = self.maps.copies.lookup(&index.to_ne_bytes())?;
                Ok::<u64, io::Error>(layout::long(&value, 0))
            };
            let counts = [count(copies::FROM_PROGRAM)?, count(copies::TO_PROGRAM)?];
            self.maps.restart_counting()?;
            Ok(counts)
        };
        let seen = tried();
        let seen = seen.map_err(|e| Fault::system("cannot test whether copies are counted", &e))?;
        let moved = [2 * BYTES as u64, BYTES as u64];
        if seen == moved {
            return Ok(());
        }
        Err(Fault::unsupported(format!(
            "of {} bytes sent and {} received as a test, {} and {} were seen being copied",
            moved[0], moved[1], seen[0], seen[1]
        ))
        .remedy("boot a kernel with CONFIG_HARDENED_USERCOPY, and not with hardened_usercopy=off"))
    }

    /// Follows a thread, and threads that it creates: from now on, or from its next execve.
    pub(crate) fn follow(&self, tid: u32, from: CountFrom) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let mut fresh = [0; state::SIZE];
        fresh[state::UNTIL_EXEC as usize] = u8::from(from == CountFrom::Exec);
        let thread = open_thread(tid)?;
        match self.maps.state.update(&thread.as_raw_fd().to_ne_bytes(), &fresh, Update::IfNew) {
            // A thread that is already followed keeps its state.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    /// Reads everything counted until now.
    pub(crate) fn read(&self) -> Result<Observations, Fault> {
        let unread = |what: &str| {
            let what = format!("cannot read {what}");
            move |e: io::Error| Fault::system(what, &e)
        };
        let number = |map: &Map, index: i32| {
            let value = map.lookup(&index.to_ne_bytes()).map_err(unread("a count"))?;
            Ok::<u64, Fault>(layout::long(&value, 0))
        };
        let Maps { rows, threads, sockets, slots, copies, lost, .. } = &self.maps;
        let mut rows = rows.read(Row::decode).map_err(unread("the table of calls"))?;
        let threads = threads.read(Thread::decode).map_err(unread("the threads"))?;
        let mut sockets = sockets.read(Socket::decode).map_err(unread("the sockets"))?;
        let entry = |map: &Map, index: u32| {
            map.lookup(&index.to_ne_bytes()).map_err(unread(&format!("entry {index}")))
        };
        let taken = number(&slots.used, used::ROWS)?.min(u64::from(Slots::ROWS) - 1);
        for index in 1..=taken as u32 {
            rows.push(Row::decode_slot(&entry(&slots.rows, index)?));
        }
        for socket in sockets.iter_mut().filter(|socket| socket.slot != 0) {
            socket.add_slot(&entry(&slots.sockets, socket.slot)?);
        }
        let copies = match self.no_copies {
            Some(_) => None,
            None => {
                Some((number(copies, copies::TO_PROGRAM)?, number(copies, copies::FROM_PROGRAM)?))
            }
        };
        Ok(Observations {
            rows: Row::merged(rows),
            threads,
            sockets,
            lost_calls: number(lost, lost::CALLS)?,
            missed_runs: self.programs.iter().filter_map(|program| program.misses().ok()).sum(),
            lost_threads: number(lost, lost::THREADS)?,
            lost_sockets: number(lost, lost::SOCKETS)?,
            copies,
        })
    }
}

impl Maps {
    /// Deletes everything counted. No thread may be followed.
    fn restart_counting(&self) -> io::Result<()> {
        for map in [&self.rows, &self.threads, &self.sockets] {
            for (key, _) in map.entries()? {
                map.delete(&key)?;
            }
        }
        let clear = |map: &Map, size: usize, indices: std::ops::Range<u32>| {
            let zeros = vec![0; size];
            indices.into_iter().try_for_each(|i| map.update(&i.to_ne_bytes(), &zeros, Update::Any))
        };
        clear(&self.copies, 8, 0..copies::COUNT)?;
        clear(&self.lost, 8, 0..lost::COUNT)?;
        let slots = &self.slots;
        for (map, size, kind, limit) in [
            (&slots.rows, row::SLOT_SIZE, used::ROWS, Slots::ROWS),
            (&slots.sockets, socket::SLOT_SIZE, used::SOCKETS, Slots::SOCKETS),
        ] {
            let taken = layout::long(&slots.used.lookup(&kind.to_ne_bytes())?, 0);
            clear(map, size, 1..(taken.min(u64::from(limit) - 1) as u32 + 1))?;
        }
        clear(&slots.used, 8, 0..used::COUNT)
    }
}

/// True if thread ids mean the same here as in the kernel's programs, that is, in the initial PID
/// namespace, which has a fixed number (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
pub(crate) fn initial_pid_namespace(roots: &Roots) -> bool {
    let link = std::fs::read_link(roots.proc.join("self/ns/pid"));
    link.is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

fn maps() -> io::Result<Maps> {
    let array = |name, size, entries| Map::new(MapKind::Array, name, 4, size, entries);
    let kinds = layout::kinds();
    let maps = Maps {
        state: Map::new(MapKind::TaskStorage, "bytepath_state", 4, state::SIZE, 0)?,
        rows: Map::new(MapKind::Hash, "bytepath_rows", 8, row::SIZE, ROWS)?,
        zero: array("bytepath_zero", row::SIZE, 1)?,
        threads: Map::new(MapKind::Hash, "bytepath_thread", 4, thread::SIZE, THREADS)?,
        sockets: Map::new(MapKind::Hash, "bytepath_socket", 8, socket::SIZE, SOCKETS)?,
        kinds: array("bytepath_kinds", 4, kinds.len() as u32)?,
        lost: array("bytepath_lost", 8, lost::COUNT)?,
        copies: array("bytepath_copies", 8, copies::COUNT)?,
        slots: Slots {
            rows: array("bytepath_rows", row::SLOT_SIZE, Slots::ROWS)?,
            sockets: array("bytepath_socket", socket::SLOT_SIZE, Slots::SOCKETS)?,
            used: array("bytepath_used", 8, used::COUNT)?,
        },
    };
    for (number, kind) in (0u32..).zip(kinds) {
        maps.kinds.update(&number.to_ne_bytes(), &kind.to_ne_bytes(), Update::Any)?;
    }
    Ok(maps)
}

/// Tries to count what the kernel copies. It is all or nothing: an incomplete sum would be taken
/// for a complete one.
fn count_copies(btf: &Btf, members: &Members, maps: &Maps) -> Result<Vec<Link>, Fault> {
    let mut links = Vec::new();
    for function in copy::FUNCTIONS {
        let found = btf.id(Kind::Function, function.name).and_then(|id| {
            // No function to whose return a program can be attached has more than twelve.
            Some((id, i16::try_from(btf.arguments(id)?).ok()?))
        });
        let Some((id, arguments)) = found else {
            if function.needed {
                return Err(Fault::unsupported(format!("this kernel has no {}", function.name)).remedy(
                    "a kernel with CONFIG_HARDENED_USERCOPY and CONFIG_SECURITY_NETWORK has them",
                ));
            }
            continue;
        };
        let insns = copy::program(members, maps, function.effect, arguments);
        let program =
            bpf::load(function.effect.hook(id), function.name, insns).map_err(|fault| {
                // Our other programs were accepted before, so the cause is not a lack of
                // privileges.
                match fault.kind {
                    FaultKind::Permission => Fault { remedy: None, ..fault }.remedy(
                        "a kernel that is not locked down counts them: see kernel_lockdown(7)",
                    ),
                    _ => fault,
                }
            })?;
        match program.attach() {
            Ok(link) => links.push(link),
            // On this kernel it is still in lib/, and so not compiled for tracing.
            Err(e) if !function.needed && e.raw_os_error() == Some(libc::EBUSY) => {}
            Err(e) => return Err(bpf::attach_fault(function.name, &e)),
        }
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::super::layout::Way;
    use super::*;
    use bytepath_sys::bpf::Hook;
    use bytepath_sys::calls;
    use bytepath_testing::skip;
    use std::path::Path;

    #[test]
    fn the_copy_programs_pass_the_verifier() {
        let roots = Roots::real();
        let counting = match Counting::new(&roots) {
            Ok(counting) => counting,
            Err(fault) => {
                skip!("{fault}");
                assert!(fault.kind != FaultKind::System, "{fault}");
                return;
            }
        };
        // Attaching to functions may not be allowed here, so the program is loaded for a tracepoint
        // whose last four arguments are numbers, at the places of the function's arguments and
        // result.
        let btf = Btf::kernel(&roots.sys).unwrap();
        let members = Members::of(&btf).unwrap();
        let id = btf.id(Kind::Typedef, "btf_trace_mm_page_alloc_extfrag").unwrap();
        for function in copy::FUNCTIONS {
            let insns = copy::program(&members, &counting.maps, function.effect, 4);
            bpf::load(Hook::TypedTracepoint(id), function.name, insns).unwrap();
        }
    }

    #[test]
    fn trying_copies_leaves_the_maps_empty() {
        let Ok(counting) = Counting::new(&Roots::real()) else {
            skip!("no typed tracepoints");
            return;
        };
        // If no program can be attached to a function, nothing is counted, and that is reported.
        match counting.try_copies() {
            Ok(()) => assert!(counting.no_copies.is_none()),
            Err(fault) => {
                assert!(fault.message.contains("0 and 0 were seen being copied"), "{fault}")
            }
        }
        let seen = counting.read().unwrap();
        assert!(seen.rows.is_empty() && seen.sockets.is_empty(), "{seen:?}");
        assert_eq!(seen.copies.unwrap_or_default(), (0, 0));
    }

    #[test]
    fn calls_of_this_thread_are_in_its_rows_and_sockets() {
        let Ok(counting) = Counting::new(&Roots::real()) else {
            skip!("no typed tracepoints");
            return;
        };
        let own = bytepath_sys::thread::id();
        let (one, other) = UnixStream::pair().unwrap();
        counting.follow(own, CountFrom::Now).unwrap();
        for _ in 0..3 {
            assert_eq!(rustix::io::write(&one, &[1; 100]), Ok(100));
            assert_eq!(rustix::io::read(&other, &mut [0; 100]), Ok(100));
        }
        let seen = counting.read().unwrap();
        let write = seen.rows.iter().find(|row| Some(row.number) == calls::number("write"));
        assert_eq!(write.map(|row| (row.tid, row.calls, row.bytes)), Some((own, 3, 300)));
        let bytes = |way: Way| seen.sockets.iter().map(|s| s.bytes[way as usize]).sum::<u64>();
        assert_eq!((seen.sockets.len(), bytes(Way::Sent), bytes(Way::Received)), (2, 300, 300));
        // They alternate, and each has its own counts.
        assert!(seen.sockets.iter().all(|s| s.slot != 0 && s.calls.iter().sum::<u64>() == 3));
    }

    #[test]
    fn the_verifiers_reason_is_in_the_fault() {
        use bytepath_sys::bpf::asm::{Assembler, Reg};
        let Some(id) = Btf::kernel(Path::new("/sys"))
            .ok()
            .and_then(|btf| btf.id(Kind::Typedef, "btf_trace_sys_enter"))
        else {
            skip!("no types of the kernel");
            return;
        };
        let mut asm = Assembler::new();
        // R0 is the result, and nothing has been written to it.
        asm.mov(Reg::R1, 0).exit();
        let fault = match bpf::load(Hook::TypedTracepoint(id), "broken", asm.finish()) {
            Ok(_) => panic!("the verifier let it pass"),
            Err(fault) => fault,
        };
        match fault.kind {
            FaultKind::Permission => skip!("{fault}"),
            _ => assert!(fault.message.contains("R0 !read_ok"), "{fault}"),
        }
    }

    #[test]
    fn missing_btf_has_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let fault = Counting::new(&Roots::recorded(dir.path())).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unsupported);
        assert!(fault.message.contains("BTF") && fault.remedy.unwrap().contains("5.12"));
    }
}
