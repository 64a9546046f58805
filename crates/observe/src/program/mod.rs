//! The programs that run in the kernel, one per file, and what they share: finding the state of a
//! thread, reading an argument of a system call, reading kernel memory.
//!
//! They are attached to typed tracepoints: the verifier knows the kernel's types, a thread's state
//! is stored with its task (task storage, about 10 ns), and the kernel's own BTF gives the offsets
//! of members.
//!
//! Everything observed pays their cost, most of which is calls of helpers: each ends in a return
//! that is slow on processors with mitigations. Look-ups in arrays are a few instructions, and so
//! are loads that the verifier can check; the programs prefer both.
//!
//! Above each program is the equivalent C. The modules of the layout are its structures: `state` is
//! `struct state`.

pub(crate) mod copy;
pub(crate) mod end;
pub(crate) mod enter;
pub(crate) mod exit;
pub(crate) mod fork;

use super::layout::{socket, used};
use Reg::*;
use bytepath_sys::bpf::Map;
use bytepath_sys::bpf::asm::{Assembler, Helper, If, Reg, Size};
use bytepath_sys::btf::{Btf, Kind};
use std::os::fd::AsFd;

#[derive(Debug)]
pub(crate) struct Maps {
    /// Threads that are followed: [`state`](super::layout::state).
    pub state: Map,
    /// The table: [`row`](super::layout::row) by thread id and call number.
    pub rows: Map,
    /// A row of zeros, from which new ones are initialized.
    pub zero: Map,
    /// Every thread that was followed: [`thread`](super::layout::thread) by id.
    pub threads: Map,
    /// [`socket`](super::layout::socket) by inode number.
    pub sockets: Map,
    /// Kind of each call: [`kind`](super::layout::kind) by number.
    pub kinds: Map,
    /// Counts of what was [`lost`](super::layout::lost).
    pub lost: Map,
    /// Bytes [copied](super::layout::copies).
    pub copies: Map,
    /// Rows and counts that are found by index.
    pub slots: Slots,
}

/// The first rows and sockets are found by an index in the thread's state: looking up an array
/// takes three instructions, a hash several calls. Arrays are allocated in full from the start, so
/// their size is limited; later rows and sockets are in the hashes.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Rows, each with its key. The first one is unused.
    pub rows: Map,
    /// Bytes and calls of sockets. The first entry is unused.
    pub sockets: Map,
    /// Number of each in use: [`used`](super::layout::used).
    pub used: Map,
}

impl Slots {
    /// Number of rows, which fits in 16 bits; 6 MiB.
    pub(crate) const ROWS: u32 = 16 << 10;
    /// Number of sockets; 2 MiB.
    pub(crate) const SOCKETS: u32 = 16 << 10;
}

/// Offsets of members of the kernel's structures, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    /// `task_struct`: the task storage of BPF programs.
    pub storage: i16,
    /// Id of the thread.
    pub pid: i16,
    /// Id of its process.
    pub tgid: i16,
    pub utime: i16,
    pub stime: i16,
    pub run: i16,
    /// Time it waited for a CPU; `None` without `CONFIG_SCHED_INFO`.
    pub wait: Option<i16>,
    pub nvcsw: i16,
    pub nivcsw: i16,
    /// The member in which [`COMPAT_BIT`] marks calls of 32-bit code; `None` if there are no such
    /// calls.
    pub compat: Option<i16>,
    /// The path from a descriptor to a socket.
    pub sockets: SocketMembers,
}

/// The path from a task and a descriptor to a socket and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) struct SocketMembers {
    pub task_files: i16,
    pub files_fdt: i16,
    pub fdt_max: i16,
    pub fdt_fd: i16,
    pub file_inode: i16,
    pub file_private: i16,
    pub inode_mode: i16,
    pub inode_number: i16,
    pub socket_sk: i16,
    pub sk_protocol: i16,
    pub sk_family: i16,
    pub sk_remote: i16,
    pub sk_local: i16,
    pub sk_remote_port: i16,
    pub sk_local_port: i16,
    /// `None` in a kernel without IPv6.
    pub sk_remote6: Option<i16>,
    pub sk_local6: Option<i16>,
    /// `None` if loads from untyped memory need a helper.
    pub cast: Option<Cast>,
}

/// Casts an address to a type, after which the verifier lets a program load from it; a load from
/// unmapped memory gives zero. Since Linux 6.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cast {
    /// BTF id of `bpf_rdonly_cast(address, type)`, which costs nothing: the verifier turns it into
    /// a move.
    pub function: u32,
    /// BTF id of `struct list_head`, which begins with a pointer.
    pub pointer: u32,
    /// BTF id of `struct file`.
    pub file: u32,
}

impl Cast {
    fn of(btf: &Btf) -> Option<Cast> {
        Some(Cast {
            function: btf.id(Kind::Function, "bpf_rdonly_cast")?,
            pointer: btf.id(Kind::Struct, "list_head")?,
            file: btf.id(Kind::Struct, "file")?,
        })
    }
}

impl Members {
    /// Looks up all offsets; the error names what this kernel lacks.
    pub(crate) fn of(btf: &Btf) -> Result<Members, String> {
        let at = |structure: &str, path: &str| {
            let offset = btf.offset(structure, path).and_then(|at| i16::try_from(at).ok());
            offset.ok_or_else(|| format!("{structure}.{path}"))
        };
        Ok(Members {
            storage: at("task_struct", "bpf_storage")?,
            pid: at("task_struct", "pid")?,
            tgid: at("task_struct", "tgid")?,
            utime: at("task_struct", "utime")?,
            stime: at("task_struct", "stime")?,
            run: at("task_struct", "se.sum_exec_runtime")?,
            wait: at("task_struct", "sched_info.run_delay").ok(),
            nvcsw: at("task_struct", "nvcsw")?,
            nivcsw: at("task_struct", "nivcsw")?,
            compat: at("task_struct", COMPAT_MEMBER).ok(),
            sockets: socket_members(&at, Cast::of(btf))?,
        })
    }
}

fn socket_members(
    at: &dyn Fn(&str, &str) -> Result<i16, String>,
    cast: Option<Cast>,
) -> Result<SocketMembers, String> {
    Ok(SocketMembers {
        task_files: at("task_struct", "files")?,
        files_fdt: at("files_struct", "fdt")?,
        fdt_max: at("fdtable", "max_fds")?,
        fdt_fd: at("fdtable", "fd")?,
        file_inode: at("file", "f_inode")?,
        file_private: at("file", "private_data")?,
        inode_mode: at("inode", "i_mode")?,
        inode_number: at("inode", "i_ino")?,
        socket_sk: at("socket", "sk")?,
        sk_protocol: at("sock", "sk_protocol")?,
        sk_family: at("sock_common", "skc_family")?,
        sk_remote: at("sock_common", "skc_daddr")?,
        sk_local: at("sock_common", "skc_rcv_saddr")?,
        sk_remote_port: at("sock_common", "skc_dport")?,
        sk_local_port: at("sock_common", "skc_num")?,
        sk_remote6: at("sock_common", "skc_v6_daddr").ok(),
        sk_local6: at("sock_common", "skc_v6_rcv_saddr").ok(),
        cast,
    })
}

/// Whether the arguments of system calls can be read on this architecture.
pub(crate) const ARGUMENTS: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Returns the offset in bytes of argument `n` of a system call in `struct pt_regs`
/// (uapi/asm/ptrace.h of the architecture).
fn argument_offset(n: usize) -> i16 {
    const X86_64: [i16; 6] = [112, 104, 96, 56, 72, 64];
    if cfg!(target_arch = "x86_64") { X86_64[n] } else { 8 * n as i16 }
}

/// The same for 32-bit code (arch/x86/include/asm/syscall_wrapper.h).
fn compat_argument_offset(n: usize) -> i16 {
    const I386: [i16; 6] = [40, 88, 96, 104, 112, 32];
    if cfg!(target_arch = "x86_64") { I386[n] } else { 8 * n as i16 }
}

/// `TS_COMPAT` of arch/x86/include/asm/thread_info.h; `TIF_32BIT` of arm64's.
const COMPAT_MEMBER: &str =
    if cfg!(target_arch = "x86_64") { "thread_info.status" } else { "thread_info.flags" };
const COMPAT_BIT: i32 = if cfg!(target_arch = "x86_64") { 1 << 1 } else { 1 << 22 };

/// `R0` = the state of this thread; goes to `out` if it is not followed. Changes R1 to R5. If
/// `task` is given, the task is stored at that offset on the stack.
///
/// ```c
/// struct state *find_state(void)
/// {
///         struct task_struct *task = bpf_get_current_task_btf();
///
///         /*
///          * Most threads of a machine have nothing stored with them, and should not pay for
///          * the look-up. No value to begin with, no flag to make one.
///          */
///         return task->bpf_storage ? bpf_task_storage_get(&state, task, NULL, 0) : NULL;
/// }
/// ```
fn find_state(asm: &mut Assembler, members: &Members, maps: &Maps, task: Option<i16>, out: &str) {
    asm.call(Helper::GetCurrentTaskBtf);
    asm.load(Size::Double, R1, R0, members.storage).jump_if(If::Eq, R1, 0, out);
    if let Some(task) = task {
        asm.store(Size::Double, R10, task, R0);
    }
    asm.mov(R2, R0);
    asm.map(R1, maps.state.as_fd()).mov(R3, 0).mov(R4, 0).call(Helper::TaskStorageGet);
    asm.jump_if(If::Eq, R0, 0, out);
}

/// `R0` = the value in a map for the key on the stack at this offset, or null.
fn lookup(asm: &mut Assembler, map: &Map, key: i16) {
    asm.map(R1, map.as_fd()).mov(R2, R10).add(R2, i32::from(key)).call(Helper::MapLookup);
}

/// `dst` = the next free index of a kind; goes to `none` if all are in use. Changes R0 to R5 and
/// the last 4 bytes of the stack.
///
/// ```c
/// u32 take_slot(u32 kind)
/// {
///         u64 next, *used = bpf_map_lookup_elem(&slots.used, &kind);
///
///         /* It is not counted on forever, so that it does not wrap. */
///         if (!used || *used >= LIMIT - 1)
///                 return 0;
///         next = __sync_fetch_and_add(used, 1) + 1;
///         return next < LIMIT ? next : 0;
/// }
/// ```
fn take_slot(asm: &mut Assembler, slots: &Slots, kind: i32, dst: Reg, none: &str) {
    let limit = match kind {
        used::ROWS => Slots::ROWS,
        _ => Slots::SOCKETS,
    };
    asm.store(Size::Word, R10, -4, kind);
    lookup(asm, &slots.used, -4);
    asm.jump_if(If::Eq, R0, 0, none);
    asm.load(Size::Double, R1, R0, 0).jump_if(If::Ge, R1, limit as i32 - 1, none);
    asm.mov(R1, 1).atomic_fetch_add(R0, 0, R1).add(R1, 1);
    asm.jump_if(If::Ge, R1, limit as i32, none).mov(dst, R1);
}

/// Zeroes `size` bytes, a multiple of 8, at `base + offset`.
fn clear(asm: &mut Assembler, (base, offset): (Reg, i16), size: usize) {
    for at in (0..size as i16).step_by(8) {
        asm.store(Size::Double, base, offset + at, 0);
    }
}

/// Stores the value at a stack offset into a map, under the key at another stack offset. `R0` = 0
/// or an error.
fn update(asm: &mut Assembler, map: &Map, key: i16, value: i16, flags: i32) {
    asm.map(R1, map.as_fd()).mov(R2, R10).add(R2, i32::from(key));
    asm.mov(R3, R10).add(R3, i32::from(value)).mov(R4, flags).call(Helper::MapUpdate);
}

/// Increments a counter of [`lost`](super::layout::lost). Changes R0 to R5 and the last 4 bytes of
/// the stack.
///
/// ```c
/// void count_lost(u32 which)
/// {
///         u64 *count = bpf_map_lookup_elem(&lost, &which);
///
///         if (count)
///                 __sync_fetch_and_add(count, 1);
/// }
/// ```
fn count_lost(asm: &mut Assembler, maps: &Maps, which: i32, out: &str) {
    asm.store(Size::Word, R10, -4, which);
    lookup(asm, &maps.lost, -4);
    asm.jump_if(If::Eq, R0, 0, out).mov(R1, 1).atomic_add(R0, 0, R1);
}

/// Reads `size` bytes of kernel memory at `base + offset` to the stack. Unmapped memory reads as
/// zeros. Changes R0 to R5.
fn read_kernel(asm: &mut Assembler, to: i16, size: i32, base: Reg, offset: i16) {
    read_kernel_to(asm, (R10, to), size, (base, offset));
}

/// The same to where a register points, plus an offset.
fn read_kernel_to(asm: &mut Assembler, to: (Reg, i16), size: i32, from: (Reg, i16)) {
    asm.mov(R3, from.0).add(R3, i32::from(from.1));
    asm.mov(R1, to.0).add(R1, i32::from(to.1)).mov(R2, size).call(Helper::ProbeReadKernel);
}

/// Fills in the current family, protocol and addresses of a socket at `to`, from its file at `FILE`
/// on the stack. Changes R0 to R5 and R7.
///
/// ```c
/// void read_addresses(struct socket *to, struct file *file)
/// {
///         struct sock *sk = ((struct socket *)file->private_data)->sk;
///
///         to->family = sk->__sk_common.skc_family;
///         to->protocol = sk->sk_protocol;
///         to->local_port = sk->__sk_common.skc_num;
///         to->remote_port = sk->__sk_common.skc_dport;
///         to->local = sk->__sk_common.skc_rcv_saddr;
///         to->remote = sk->__sk_common.skc_daddr;
///         to->local6 = sk->__sk_common.skc_v6_rcv_saddr; /* CONFIG_IPV6 */
///         to->remote6 = sk->__sk_common.skc_v6_daddr;
/// }
/// ```
fn read_addresses(a: &mut Assembler, m: &SocketMembers, to: (Reg, i16), file: i16, scratch: i16) {
    a.load(Size::Double, R1, R10, file);
    read_kernel(a, scratch, 8, R1, m.file_private);
    a.load(Size::Double, R1, R10, scratch);
    read_kernel(a, scratch, 8, R1, m.socket_sk);
    // R7 is the kernel's struct sock; it begins with its sock_common.
    a.load(Size::Double, R7, R10, scratch);
    let mut field = |member: i16, size: i32, from: i16| {
        read_kernel_to(a, (to.0, to.1 + member), size, (R7, from));
    };
    field(socket::FAMILY, 2, m.sk_family);
    field(socket::PROTOCOL, 2, m.sk_protocol);
    field(socket::LOCAL_PORT, 2, m.sk_local_port);
    field(socket::REMOTE_PORT, 2, m.sk_remote_port);
    field(socket::LOCAL, 4, m.sk_local);
    field(socket::REMOTE, 4, m.sk_remote);
    if let (Some(local), Some(remote)) = (m.sk_local6, m.sk_remote6) {
        field(socket::LOCAL6, 16, local);
        field(socket::REMOTE6, 16, remote);
    }
}

/// Ends a program. The return value of a tracing program does not matter.
fn leave(asm: &mut Assembler) {
    asm.label("out").mov(R0, 0).exit();
}
