//! Small programs that run in the kernel, and the maps they share with us: bpf(2). Programs are
//! written with [`asm`] and checked by the kernel's verifier when they are loaded; its log is part
//! of the error.
//!
//! Everything made here is a file descriptor: programs and maps are freed when the last one is
//! closed, however the process ends.

pub mod asm;
pub mod xdp;

use super::{btf, bytes, check};
use asm::Insn;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Values by key. Memory for an entry is allocated when the entry is made.
    Hash,
    /// Like `Hash`, with all memory allocated from the start: for programs that run where the
    /// kernel cannot allocate, in its allocators and under its locks.
    ReservedHash,
    /// Like `Hash`; when it is full, a new entry replaces the least recently used one.
    LruHash,
    /// Values by index; all exist from the start, zeroed.
    Array,
    /// Call stacks by the ids that [`asm::Helper::GetStackId`] returns; a value is as many return
    /// addresses of 8 bytes as fit, innermost first, padded with zeros.
    StackTrace,
    /// One value per thread, freed with the thread. User space uses pidfds as keys.
    TaskStorage,
    /// AF_XDP sockets by queue; a value is a socket's descriptor.
    Sockets,
}

impl MapKind {
    /// Its number in `enum bpf_map_type`, uapi/linux/bpf.h.
    fn number(self) -> u32 {
        match self {
            MapKind::Hash | MapKind::ReservedHash => 1,
            MapKind::Array => 2,
            MapKind::StackTrace => 7,
            MapKind::LruHash => 9,
            MapKind::Sockets => 17,
            MapKind::TaskStorage => 29,
        }
    }
}

#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
}

/// Kinds of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Attached to a raw tracepoint, with argument types known to the verifier. The number is the
    /// BTF id of the typedef `btf_trace_NAME`.
    TypedTracepoint(u32),
    /// Attached to the entry of a kernel function, by its BTF id.
    FunctionEntry(u32),
    /// Attached to the return of a kernel function, by its BTF id.
    FunctionExit(u32),
    /// Attached to nothing: runs on demand, on a CPU ([`Program::run_on`]).
    OnDemand,
    /// Attached to a network device: gets each frame before the kernel's stack does ([`xdp`]).
    Frames,
}

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

/// Keeps a program attached; dropping it detaches the program.
#[derive(Debug)]
pub struct Link {
    _fd: OwnedFd,
}

/// Why the kernel refused a program.
#[derive(Debug, thiserror::Error)]
#[error("{error}{}", verdict(.log))]
pub struct Refused {
    /// The error that bpf(2) returned.
    pub error: io::Error,
    /// The verifier's log, if it got that far; the reason is at its end.
    pub log: String,
}

/// Modes of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Update {
    Any = 0,
    /// Only if the key has no entry yet.
    IfNew = 1,
}

/// Licence of the programs. The kernel offers some helpers only to programs under the GPL or
/// compatible licences (`license_is_gpl_compatible`, linux/license.h).
const LICENCE: &CStr = c"Dual MIT/GPL";
/// Largest log size that can be requested, in bytes (`bpf_verifier_log_attr_valid`).
const LARGEST_LOG: usize = 16 << 20;

// Commands, `enum bpf_cmd`.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const MAP_GET_NEXT_KEY: libc::c_int = 4;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BTF_LOAD: libc::c_int = 18;
const ENABLE_STATS: libc::c_int = 32;

/// Allocate memory entry by entry; required for task storage.
const NO_PREALLOC: u32 = 1;

impl Map {
    /// Makes a map. Sizes are in bytes. Task storage requires keys of 4 bytes, values whose size is
    /// a multiple of 8, and no limit of entries.
    pub fn new(
        kind: MapKind,
        name: &str,
        key_size: usize,
        value_size: usize,
        entries: u32,
    ) -> io::Result<Map> {
        let mut attr = MapAttr {
            kind: kind.number(),
            key_size: small(key_size)?,
            value_size: small(value_size)?,
            entries,
            name: object_name(name),
            ..MapAttr::default()
        };
        if kind == MapKind::Hash {
            attr.flags = NO_PREALLOC;
        }
        // Described only for task storage; the kernel needs the descriptor only during the call.
        let types;
        if kind == MapKind::TaskStorage {
            types = load_types(&btf::describe_value(attr.value_size / 8))?;
            attr.flags = NO_PREALLOC;
            attr.types_fd = types.as_raw_fd() as u32;
            (attr.key_type, attr.value_type) = (1, btf::VALUE_TYPE);
        }
        // SAFETY: MAP_CREATE reads the structure only.
        let fd = unsafe { make(MAP_CREATE, &attr) }?;
        Ok(Map { fd, key_size, value_size })
    }

    pub fn update(&self, key: &[u8], value: &[u8], mode: Update) -> io::Result<()> {
        if value.len() != self.value_size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let attr = self.element(Some(key), value.as_ptr(), mode as u64)?;
        // SAFETY: the kernel reads key_size bytes at the key and value_size bytes at the value, and
        // both are that long by the check above.
        unsafe { call(MAP_UPDATE_ELEM, &attr) }.map(drop)
    }

    /// Returns the value of a key. ENOENT: there is none.
    pub fn lookup(&self, key: &[u8]) -> io::Result<Vec<u8>> {
        let mut value = vec![0u8; self.value_size];
        let attr = self.element(Some(key), value.as_mut_ptr(), 0)?;
        // SAFETY: the kernel reads key_size bytes at the key and writes value_size bytes at the
        // value, and both are that long.
        unsafe { call(MAP_LOOKUP_ELEM, &attr) }?;
        Ok(value)
    }

    /// Removes an entry. ENOENT: there is none. Entries of arrays cannot be removed.
    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        let attr = self.element(Some(key), std::ptr::null(), 0)?;
        // SAFETY: the kernel reads key_size bytes at the key, which is that long.
        unsafe { call(MAP_DELETE_ELEM, &attr) }.map(drop)
    }

    /// Returns all keys with their values. Entries made meanwhile may be missing.
    pub fn entries(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.read(|key, value| (key.to_vec(), value.to_vec()))
    }

    /// Returns what `make` makes of each key and its value, without keeping them.
    pub fn read<T>(&self, make: impl Fn(&[u8], &[u8]) -> T) -> io::Result<Vec<T>> {
        let mut entries = Vec::new();
        let mut key: Option<Vec<u8>> = None;
        loop {
            let mut next = vec![0u8; self.key_size];
            let attr = self.element(key.as_deref(), next.as_mut_ptr(), 0)?;
            // SAFETY: the kernel reads key_size bytes at the key, unless it is
            // null, and writes key_size bytes at the other.
            match unsafe { call(MAP_GET_NEXT_KEY, &attr) } {
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(entries),
                other => other?,
            };
            match self.lookup(&next) {
                Ok(value) => entries.push(make(&next, &value)),
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                Err(e) => return Err(e),
            }
            key = Some(next);
        }
    }

    /// Errors with EINVAL if the key's length is not that of the map's keys.
    fn element(&self, key: Option<&[u8]>, value: *const u8, flags: u64) -> io::Result<ElementAttr> {
        if key.is_some_and(|key| key.len() != self.key_size) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let key = key.map_or(0, |key| key.as_ptr() as u64);
        let map = self.fd.as_raw_fd() as u32;
        Ok(ElementAttr { map, pad: 0, key, value: value as u64, flags })
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Program {
    /// Loads a program. The maps it refers to must be open.
    pub fn load(hook: Hook, name: &str, insns: &[Insn]) -> Result<Program, Refused> {
        match load(hook, name, insns, &mut []) {
            Ok(fd) => Ok(Program { fd }),
            Err(error) => Err(Refused { log: explain(hook, name, insns), error }),
        }
    }

    /// Attaches the program to what it was loaded for.
    pub fn attach(&self) -> io::Result<Link> {
        let attr = TracepointAttr { name: 0, program: self.fd.as_raw_fd() as u32, pad: 0 };
        // SAFETY: the kernel reads the structure, and no name.
        let fd = unsafe { make(RAW_TRACEPOINT_OPEN, &attr) }?;
        Ok(Link { _fd: fd })
    }

    /// Returns how often the kernel skipped the program because it, or something it needs, was in
    /// use on the same CPU: `recursion_misses` of /proc/PID/fdinfo. 0 before Linux 5.12, which did
    /// not count it.
    pub fn misses(&self) -> io::Result<u64> {
        let file = format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd());
        let text = std::fs::read_to_string(file)?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("recursion_misses:"));
        Ok(lines.next().and_then(|count| count.trim().parse().ok()).unwrap_or(0))
    }

    /// Runs a program loaded with [`Hook::OnDemand`] once on a CPU, by an interrupt there, and
    /// waits for its end: a few microseconds. ENXIO: the CPU is not online. Since Linux 5.10.
    pub fn run_on(&self, cpu: u32) -> io::Result<()> {
        /// `BPF_F_TEST_RUN_ON_CPU`, uapi/linux/bpf.h.
        const ON_CPU: u32 = 1;
        self.run(ON_CPU, cpu)
    }

    /// Runs a program loaded with [`Hook::OnDemand`] once in this thread. Since Linux 5.10.
    pub fn run_here(&self) -> io::Result<()> {
        self.run(0, 0)
    }

    fn run(&self, flags: u32, cpu: u32) -> io::Result<()> {
        let program = self.fd.as_raw_fd() as u32;
        let mut attr = TestAttr { program, flags, cpu, ..TestAttr::default() };
        // SAFETY: every address is null.
        unsafe { test_run(&mut attr) }
    }
}

/// Runs a program once.
///
/// # Safety
/// Every address in the structure is valid for what the kernel does with it.
unsafe fn test_run(attr: &mut TestAttr) -> io::Result<()> {
    let size = size_of::<TestAttr>();
    // SAFETY: the kernel reads and writes the structure; the rest is promised by the caller.
    check(unsafe { libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, attr, size) }).map(drop)
}

/// Opens a thread as a key for task storage maps (`PIDFD_THREAD`, pidfd_open(2), Linux 6.9). On
/// older kernels this works only for the first thread of a process.
pub fn open_thread(tid: u32) -> io::Result<OwnedFd> {
    let thread = Pid::from_raw(tid as i32).ok_or(io::ErrorKind::InvalidInput)?;
    match pidfd_open(thread, PidfdFlags::from_bits_retain(libc::O_EXCL as u32)) {
        Err(Errno::INVAL) => Ok(pidfd_open(thread, PidfdFlags::empty())?),
        other => Ok(other?),
    }
}

/// Makes the kernel count the runs of every program and their time, for as long as the returned
/// descriptor is open: `run_cnt` and `run_time_ns` of /proc/PID/fdinfo. Since Linux 5.8.
pub fn time_programs() -> io::Result<OwnedFd> {
    /// `BPF_STATS_RUN_TIME`, uapi/linux/bpf.h.
    const RUN_TIME: u32 = 0;
    // SAFETY: the kernel reads a number.
    unsafe { make(ENABLE_STATS, &RUN_TIME) }
}

/// `BPF_MAP_CREATE`.
#[derive(Default)]
#[repr(C)]
struct MapAttr {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
    device: u32,
    types_fd: u32,
    key_type: u32,
    value_type: u32,
}

/// `BPF_MAP_*_ELEM` and `BPF_MAP_GET_NEXT_KEY`.
#[repr(C)]
struct ElementAttr {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `BPF_PROG_LOAD`, up to the fields of Linux 5.5.
#[derive(Default)]
#[repr(C)]
struct LoadAttr {
    kind: u32,
    insn_count: u32,
    insns: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach_type: u32,
    types_fd: u32,
    function_size: u32,
    functions: u64,
    function_count: u32,
    line_size: u32,
    lines: u64,
    line_count: u32,
    attach_type_id: u32,
}

/// `BPF_PROG_TEST_RUN`.
#[derive(Default)]
#[repr(C)]
struct TestAttr {
    program: u32,
    result: u32,
    sizes: [u32; 2],
    data: [u64; 2],
    repeat: u32,
    duration: u32,
    context_sizes: [u32; 2],
    contexts: [u64; 2],
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

/// `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
struct TracepointAttr {
    name: u64,
    program: u32,
    pad: u32,
}

/// `BPF_BTF_LOAD`.
#[derive(Default)]
#[repr(C)]
struct TypesAttr {
    types: u64,
    log: u64,
    types_size: u32,
    log_size: u32,
    log_level: u32,
    pad: u32,
}

fn load(hook: Hook, name: &str, insns: &[Insn], log: &mut [u8]) -> io::Result<OwnedFd> {
    // Numbers of enum bpf_prog_type and enum bpf_attach_type.
    const RAW_TRACEPOINT: u32 = 17;
    const TRACING: u32 = 26;
    const XDP: u32 = 6;
    let (kind, attach_type, attach_type_id) = match hook {
        Hook::TypedTracepoint(id) => (TRACING, 23, id),
        Hook::FunctionEntry(id) => (TRACING, 24, id),
        Hook::FunctionExit(id) => (TRACING, 25, id),
        Hook::OnDemand => (RAW_TRACEPOINT, 0, 0),
        Hook::Frames => (XDP, xdp::ATTACH_TYPE, 0),
    };
    let attr = LoadAttr {
        kind,
        insn_count: small(insns.len())?,
        insns: insns.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: small(log.len())?,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        name: object_name(name),
        attach_type,
        attach_type_id,
        ..LoadAttr::default()
    };
    // SAFETY: the kernel reads insn_count instructions and a string, and
    // writes at most log_size bytes to the log; all outlive the call.
    unsafe { make(PROG_LOAD, &attr) }
}

/// Loads the program once more for the verifier's log; if the log does not fit, repeats with more
/// room.
fn explain(hook: Hook, name: &str, insns: &[Insn]) -> String {
    let mut room = 64 << 10;
    loop {
        let mut log = vec![0u8; room];
        let full = match load(hook, name, insns, &mut log) {
            Err(e) => e.raw_os_error() == Some(libc::ENOSPC),
            Ok(_) => false,
        };
        if !full || room >= LARGEST_LOG {
            return bytes::text(&log).trim_end().to_owned();
        }
        room *= 4;
    }
}

/// Returns the end of a log, which contains the reason.
fn verdict(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.starts_with("processed ")).collect();
    match lines.as_slice() {
        [] => String::new(),
        lines => {
            format!("; the verifier says: {}", lines[lines.len().saturating_sub(3)..].join(" | "))
        }
    }
}

fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    let (address, types_size) = (types.as_ptr() as u64, small(types.len())?);
    let attr = TypesAttr { types: address, types_size, ..TypesAttr::default() };
    // SAFETY: the kernel reads types_size bytes.
    unsafe { make(BTF_LOAD, &attr) }
}

/// Runs a command that returns a descriptor.
///
/// # Safety
/// As for [`call`].
unsafe fn make<T>(command: libc::c_int, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: promised by the caller.
    let fd = unsafe { call(command, attr) }?;
    // SAFETY: the descriptor was just created and has no other owner. All descriptors from bpf(2)
    // are close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// bpf(2). The kernel treats a structure shorter than its own as padded with zeros.
///
/// # Safety
/// The structure must be the command's, and every address in it valid for what the command does
/// with it.
unsafe fn call<T>(command: libc::c_int, attr: &T) -> io::Result<usize> {
    // The verifier aborts with EAGAIN if a signal is pending.
    for _ in 0..8 {
        // SAFETY: promised by the caller; the size is that of the structure.
        let result = check(unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<T>()) });
        match result {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {}
            other => return other,
        }
    }
    Err(io::Error::from_raw_os_error(libc::EAGAIN))
}

fn small(value: usize) -> io::Result<u32> {
    u32::try_from(value).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Makes an object name: at most 15 bytes; all but ASCII letters, digits and dots become
/// underscores.
fn object_name(name: &str) -> [u8; 16] {
    let mut field = [0; 16];
    for (slot, byte) in field.iter_mut().take(15).zip(name.bytes()) {
        *slot = if byte.is_ascii_alphanumeric() || byte == b'.' { byte } else { b'_' };
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_the_kernel_s() {
        assert_eq!(size_of::<MapAttr>(), 60);
        assert_eq!(size_of::<ElementAttr>(), 32);
        assert_eq!(std::mem::offset_of!(LoadAttr, attach_type_id), 108);
        assert_eq!(size_of::<TracepointAttr>(), 16);
        assert_eq!(std::mem::offset_of!(TestAttr, contexts), 48);
        assert_eq!(size_of::<TestAttr>(), 80);
    }

    #[test]
    fn names_are_cut_to_what_the_kernel_takes() {
        assert_eq!(&object_name("a-b c.d"), b"a_b_c.d\0\0\0\0\0\0\0\0\0");
        assert_eq!(object_name(&"x".repeat(40))[15], 0);
    }

    #[test]
    fn the_reason_is_taken_from_the_end_of_the_log() {
        let log = "0: r1 = 1\n1: r2 = 2\n2: exit\nR0 !read_ok\nprocessed 3 insns";
        assert_eq!(verdict(log), "; the verifier says: 1: r2 = 2 | 2: exit | R0 !read_ok");
        assert_eq!(verdict(""), "");
    }
}
