//! At the start of a system call: records its number, its socket and the direction of its bytes,
//! and reads the clock last.

use super::super::layout::{
    COMPAT, COMPAT_KINDS, SOCKETCALL_KINDS, SOCKETCALLS, WAYS, Way, kind, lost, socket, state, used,
};
use super::{
    ARGUMENTS, COMPAT_BIT, Maps, Members, SocketMembers, argument_offset, clear,
    compat_argument_offset, count_lost, find_state, leave, lookup, read_addresses, read_kernel,
    take_slot, update,
};
use Reg::*;
use bytepath_sys::bpf::asm::{Alu, AsmError, Assembler, Helper, If, Insn, Reg, Size};
use bytepath_sys::calls;

// Offsets on the stack, from its end. Functions such as `take_slot` overwrite the last 4 bytes.
const NUMBER: i16 = -8;
const SCRATCH: i16 = -16;
const FILE: i16 = -32;
const INODE: i16 = -40;
const KEY: i16 = -48;
const TASK: i16 = -56;
/// The arguments of the call, 64 bits each, and those of socketcall(2), 32 bits each.
const ARGUMENT: i16 = TASK - 8 * ARGUMENT_COUNT as i16;
const WORDS: i16 = ARGUMENT - 24;
const VALUE: i16 = WORDS - socket::SIZE as i16;

/// Number of arguments that are read.
const ARGUMENT_COUNT: usize = 5;

/// Flags of calls on sockets, linux/socket.h.
const MSG_PEEK: i32 = libc::MSG_PEEK;
const MSG_TRUNC: i32 = libc::MSG_TRUNC;
const MSG_ZEROCOPY: i32 = libc::MSG_ZEROCOPY;

/// ```c
/// int sys_enter(struct pt_regs *regs, long id)
/// {
///         struct state *s = find_state();
///         u32 kind;
///
///         if (!s)
///                 return 0;
///         if (s->until_exec) {
///                 if (id != __NR_execve)
///                         return 0;
///                 s->until_exec = 0;
///         }
///         s->number = is_compat() ? COMPAT + id : id;
///         s->kind = 0;
///         s->socket = 0;
///         kind = find_kind(s, id, regs);
///         if (kind && find_way(s, kind))
///                 find_socket(s, kind);
///         /* Last, so that the time of this program is not the call's. */
///         s->start = bpf_ktime_get_ns();
///         return 0;
/// }
/// ```
pub(crate) fn program(members: &Members, maps: &Maps) -> Result<Vec<Insn>, AsmError> {
    let mut asm = Assembler::new();
    let a = &mut asm;
    a.mov(R6, R1);
    find_state(a, members, maps, Some(TASK), "out");
    // R9 is the state from here on.
    a.mov(R9, R0);
    a.load(Size::Double, R8, R6, 8);
    a.load(Size::Double, R1, R9, state::UNTIL_EXEC).jump_if(If::Eq, R1, 0, "counted");
    a.jump_if(If::Ne, R8, libc::SYS_execve as i32, "out");
    a.store(Size::Double, R9, state::UNTIL_EXEC, 0);
    a.label("counted").store(Size::Word, R9, state::NUMBER, R8);
    a.store(Size::Word, R9, state::KIND, 0);
    a.store(Size::Double, R9, state::SOCKET, 0);
    if ARGUMENTS {
        find_kind(a, members, maps);
        find_way(a);
        find_socket(a, &members.sockets, maps);
    }
    a.label("started").call(Helper::KtimeGetNs).store(Size::Double, R9, state::START, R0);
    leave(a);
    if ARGUMENTS {
        a.label("full");
        count_lost(a, maps, lost::SOCKETS, "started");
        a.jump("started");
    }
    asm.finish()
}

/// R8 = the kind of the call, whose arguments are on the stack from here on; continues at `started`
/// if it moves no bytes.
///
/// ```c
/// u32 find_kind(struct state *s, u32 id, struct pt_regs *regs)
/// {
///         bool compat = current->thread_info.status & TS_COMPAT;
///         u32 index = id, words[6], *kind;
///
///         if (id >= LIMIT)
///                 return 0;
///         if (compat) {
///                 s->number = COMPAT + id;
///                 read_arguments(regs, I386);
///                 index += COMPAT_KINDS;
///                 if (id == I386_socketcall) {
///                         if (argument(0) >= ARRAY_SIZE(SOCKETCALLS)
///                             || bpf_probe_read_user(words, sizeof(words), argument(1)))
///                                 return 0;
///                         index = SOCKETCALL_KINDS + argument(0);
///                         read_words(words);
///                 }
///         }
///         kind = bpf_map_lookup_elem(&kinds, &index);
///         if (!kind || !*kind)
///                 return 0;
///         if (!compat)
///                 read_arguments(regs, X86_64);
///         s->kind = *kind;
///         s->data = 0;
///         s->way = *kind & (WAYS - 1);
///         return *kind;
/// }
/// ```
fn find_kind(a: &mut Assembler, members: &Members, maps: &Maps) {
    let look_up = |a: &mut Assembler| {
        a.store(Size::Word, R10, NUMBER, R8);
        lookup(a, &maps.kinds, NUMBER);
        a.jump_if(If::Eq, R0, 0, "started").load(Size::Word, R8, R0, 0);
        a.jump_if(If::Eq, R8, 0, "started");
    };
    let save = |a: &mut Assembler, size: Size, offset: fn(usize) -> i16| {
        for n in 0..ARGUMENT_COUNT {
            a.load(size, R1, R7, offset(n));
            a.store(Size::Double, R10, ARGUMENT + 8 * n as i16, R1);
        }
    };
    a.load(Size::Double, R7, R6, 0);
    if let Some(compat) = members.compat {
        a.load(Size::Double, R1, R10, TASK).load(Size::Word, R1, R1, compat);
        a.alu(Alu::And, R1, COMPAT_BIT).jump_if(If::Ne, R1, 0, "32-bit");
    }
    // Most calls move no bytes, and their arguments are not read.
    a.jump_if(If::Ge, R8, calls::LIMIT as i32, "started");
    look_up(a);
    save(a, Size::Double, argument_offset);
    if members.compat.is_some() {
        a.jump("arguments").label("32-bit").mov(R1, R8).add(R1, COMPAT as i32);
        a.store(Size::Word, R9, state::NUMBER, R1);
        a.jump_if(If::Ge, R8, calls::LIMIT as i32, "started").add(R8, COMPAT_KINDS as i32);
        save(a, Size::Word, compat_argument_offset);
        if let Some(number) = calls::compat_number("socketcall") {
            socketcall(a, COMPAT_KINDS + number);
        }
        a.label("kind");
        look_up(a);
    }
    a.label("arguments").store(Size::Word, R9, state::KIND, R8);
    a.store(Size::Word, R9, state::DATA, 0);
    a.mov(R1, R8).alu(Alu::And, R1, WAYS as i32 - 1);
    a.store(Size::Double, R9, state::WAY, R1);
}

/// The part of `find_kind` for socketcall(2), whose number is `index` here.
fn socketcall(a: &mut Assembler, index: u32) {
    a.jump_if(If::Ne, R8, index as i32, "kind");
    argument(a, Size::Double, R8, 0);
    a.jump_if(If::Ge, R8, SOCKETCALLS.len() as i32, "started").add(R8, SOCKETCALL_KINDS as i32);
    argument(a, Size::Double, R3, 1);
    a.mov(R1, R10).add(R1, i32::from(WORDS)).mov(R2, 24).call(Helper::ProbeReadUser);
    a.jump_if(If::Ne, R0, 0, "started");
    for n in 0..ARGUMENT_COUNT as i16 {
        a.load(Size::Word, R1, R10, WORDS + 4 * n);
        a.store(Size::Double, R10, ARGUMENT + 8 * n, R1);
    }
}

/// `dst` = the low 32 bits of argument `n`, or all 64.
fn argument(a: &mut Assembler, size: Size, dst: Reg, n: i16) {
    let low = if cfg!(target_endian = "big") && matches!(size, Size::Word) { 4 } else { 0 };
    a.load(size, dst, R10, ARGUMENT + 8 * n + low);
}

/// Reads the flags and options that determine what happens to the bytes; goes to `started` if
/// getsockopt(2) moves none.
///
/// ```c
/// bool find_way(struct state *s, u32 kind)
/// {
///         u32 flags = 0;
///
///         if (kind & OPTION) {
///                 if ((u32)argument(1) != IPPROTO_TCP
///                     || (u32)argument(2) != TCP_ZEROCOPY_RECEIVE) {
///                         s->kind = 0;
///                         return false;
///                 }
///                 s->pointer = argument(3);
///                 s->length = argument(4);
///                 return true;
///         }
///         if (kind & MESSAGES)
///                 s->pointer = argument(1);
///         if (kind & FLAGS_THIRD)
///                 flags = argument(2);
///         else if (kind & FLAGS_FOURTH)
///                 flags = argument(3);
///         if (s->way == SENT && flags & MSG_ZEROCOPY)
///                 s->way = ZERO_COPY;
///         else if (s->way != SENT && flags & MSG_PEEK)
///                 s->way = PEEKED;
///         else if (s->way != SENT && flags & MSG_TRUNC)
///                 s->way = DISCARDED;
///         return true;
/// }
/// ```
fn find_way(a: &mut Assembler) {
    let argument32 = |a: &mut Assembler, dst, n| argument(a, Size::Word, dst, n);
    let argument64 = |a: &mut Assembler, dst, n| argument(a, Size::Double, dst, n);
    let way = |a: &mut Assembler, way: Way| _ = a.store(Size::Double, R9, state::WAY, way as i32);

    a.jump_if(If::Set, R8, kind::OPTION as i32, "option");
    a.jump_if(If::Set, R8, kind::MESSAGES as i32, "messages");
    a.label("flags");
    a.jump_if(If::Set, R8, kind::FLAGS_THIRD as i32, "third");
    a.jump_if(If::Set, R8, kind::FLAGS_FOURTH as i32, "fourth");
    a.jump("descriptor");

    // getsockopt(fd, level, name, value, length): only TCP_ZEROCOPY_RECEIVE moves bytes. It writes
    // their number into the value.
    a.label("option");
    argument32(a, R1, 1);
    a.jump_if(If::Ne, R1, libc::IPPROTO_TCP, "nothing");
    argument32(a, R1, 2);
    a.jump_if(If::Ne, R1, libc::TCP_ZEROCOPY_RECEIVE, "nothing");
    argument64(a, R1, 3);
    a.store(Size::Double, R9, state::POINTER, R1);
    argument64(a, R1, 4);
    a.store(Size::Double, R9, state::LENGTH, R1);
    a.jump("descriptor");
    a.label("nothing").store(Size::Word, R9, state::KIND, 0).jump("started");

    // recvmmsg and sendmmsg write the length of each message into the vector.
    a.label("messages");
    argument64(a, R1, 1);
    a.store(Size::Double, R9, state::POINTER, R1).jump("flags");

    a.label("third");
    argument32(a, R1, 2);
    a.jump("judge");
    a.label("fourth");
    argument32(a, R1, 3);
    a.label("judge").load(Size::Double, R2, R9, state::WAY);
    a.jump_if(If::Ne, R2, Way::Sent as i32, "receiving");
    a.jump_if(If::Set, R1, MSG_ZEROCOPY, "zero-copy").jump("descriptor");
    a.label("zero-copy");
    way(a, Way::ZeroCopy);
    a.jump("descriptor");
    a.label("receiving");
    a.jump_if(If::Set, R1, MSG_PEEK, "peek");
    a.jump_if(If::Set, R1, MSG_TRUNC, "discard").jump("descriptor");
    a.label("discard");
    way(a, Way::Discarded);
    a.jump("descriptor");
    a.label("peek");
    way(a, Way::Peeked);
}

/// Finds the socket of the call, if it concerns one.
///
/// ```c
/// void find_socket(struct state *s, u32 kind)
/// {
///         u64 inode = 0;
///
///         if (!(kind & DESCRIPTOR))
///                 return;
///         /* splice(from, ., to, ...): into a socket, or out of one. */
///         if (kind & SPLICE && (inode = socket_of(argument(2))))
///                 s->way = INTO;
///         if (!inode && !(inode = socket_of(argument(kind & MAPS ? 4 : 0))))
///                 return;
///         s->socket = inode;
///         /* A thread that keeps using the same socket needs no further look-up. */
///         if (s->last == inode && !(kind & MAPS))
///                 return;
///         if (s->last != inode)
///                 s->fresh = NULL;
///         s->last = inode;
///         s->slot = 0;
///         describe(s, kind, inode);
/// }
/// ```
fn find_socket(a: &mut Assembler, members: &SocketMembers, maps: &Maps) {
    a.label("descriptor").jump_if(If::Set, R8, kind::MAPS as i32, "maps");
    a.mov(R1, R8).alu(Alu::And, R1, kind::DESCRIPTOR as i32);
    a.jump_if(If::Eq, R1, 0, "started");
    a.mov(R1, R8).alu(Alu::And, R1, kind::SPLICE as i32);
    a.jump_if(If::Eq, R1, 0, "first");
    argument(a, Size::Word, R7, 2);
    socket_of(a, members, "into", "first");
    a.store(Size::Double, R9, state::WAY, Way::Into as i32).jump("found");
    a.label("maps");
    argument(a, Size::Word, R7, 4);
    a.jump("of");
    a.label("first");
    argument(a, Size::Word, R7, 0);
    a.label("of");
    socket_of(a, members, "of", "started");
    a.label("found");
    a.load(Size::Double, R7, R10, KEY);
    a.store(Size::Double, R9, state::SOCKET, R7);
    a.load(Size::Double, R1, R9, state::LAST);
    a.jump_if(If::Ne, R1, R7, "another").jump_if(If::Set, R8, kind::MAPS as i32, "describe");
    a.jump("started").label("another").store(Size::Double, R9, state::FRESH, 0);
    a.label("describe").store(Size::Double, R9, state::LAST, R7);
    a.store(Size::Word, R9, state::SLOT, 0);
    describe(a, members, maps);
}

/// Stores the inode number of the socket with the descriptor in R7 at `KEY`, and its file at
/// `FILE`; goes to `not` if it is not a socket.
///
/// It follows the same pointers as the kernel: `task->files->fdt->fd[n]->f_inode`
/// (`files_lookup_fd_raw`, include/linux/fdtable.h). The first steps are loads that the verifier
/// checks by type. A table of pointers has no type that it could follow, so from there on addresses
/// are cast to one (`bpf_rdonly_cast`), or memory is read by a helper (`bpf_probe_read_kernel`).
/// Neither can fault.
///
/// ```c
/// u64 socket_of(u32 fd)
/// {
///         struct files_struct *files = bpf_get_current_task_btf()->files;
///         struct inode *inode;
///
///         if (!files || !files->fdt || fd >= files->fdt->max_fds)
///                 return 0;
///         file = files->fdt->fd[fd]; /* used by describe() */
///         if (!file)
///                 return 0;
///         inode = file->f_inode;
///         return S_ISSOCK(inode->i_mode) ? inode->i_ino : 0;
/// }
/// ```
fn socket_of(a: &mut Assembler, m: &SocketMembers, tag: &str, not: &str) {
    a.load(Size::Double, R1, R10, TASK);
    a.load(Size::Double, R1, R1, m.task_files).jump_if(If::Eq, R1, 0, not);
    a.load(Size::Double, R1, R1, m.files_fdt).jump_if(If::Eq, R1, 0, not);
    a.load(Size::Word, R2, R1, m.fdt_max).jump_if(If::Ge, R7, R2, not);
    a.load(Size::Double, R1, R1, m.fdt_fd);
    a.alu(Alu::Lsh, R7, 3).add(R7, R1);
    if let Some(cast) = m.cast {
        a.mov(R1, R7).mov(R2, cast.pointer as i32).call_function(cast.function);
        a.load(Size::Double, R1, R0, 0).store(Size::Double, R10, FILE, R1);
        a.mov(R2, cast.file as i32).call_function(cast.function);
        a.load(Size::Double, R1, R0, m.file_inode);
        a.load(Size::Half, R2, R1, m.inode_mode).alu(Alu::And, R2, libc::S_IFMT as i32);
        a.jump_if(If::Ne, R2, libc::S_IFSOCK as i32, not);
        a.load(Size::Double, R1, R1, m.inode_number).store(Size::Double, R10, KEY, R1);
        return;
    }
    read_kernel(a, FILE, 8, R7, 0);
    a.load(Size::Double, R1, R10, FILE).jump_if(If::Eq, R1, 0, not);
    read_kernel(a, INODE, 8, R1, m.file_inode);
    a.load(Size::Double, R7, R10, INODE);
    // The mode has 16 bits.
    a.store(Size::Double, R10, SCRATCH, 0);
    read_kernel(a, SCRATCH, 2, R7, m.inode_mode);
    a.load(Size::Double, R1, R10, SCRATCH).alu(Alu::And, R1, libc::S_IFMT as i32);
    a.jump_if(If::Eq, R1, libc::S_IFSOCK as i32, format!("socket {tag}")).jump(not);
    a.label(format!("socket {tag}"));
    read_kernel(a, KEY, 8, R7, m.inode_number);
}

/// Creates an entry for a new socket: family, protocol, addresses. The state gets the index of its
/// counts.
///
/// ```c
/// void describe(struct state *s, u32 kind, u64 inode)
/// {
///         struct socket *known = bpf_map_lookup_elem(&sockets, &inode), new = {};
///
///         if (!known) {
///                 new.process = bpf_get_current_pid_tgid() >> 32;
///                 new.slot = take_slot(SOCKETS);
///                 read_addresses(&new, file);
///                 s->fresh = file;
///                 /* If another thread was quicker, its index counts. */
///                 if (bpf_map_update_elem(&sockets, &inode, &new, BPF_NOEXIST) == -E2BIG) {
///                         count_lost(SOCKETS);
///                         return;
///                 }
///                 known = bpf_map_lookup_elem(&sockets, &inode);
///                 if (!known)
///                         return;
///         }
///         s->slot = known->slot;
///         if (kind & MAPS)
///                 known->mapped = 1;
/// }
/// ```
fn describe(a: &mut Assembler, m: &SocketMembers, maps: &Maps) {
    lookup(a, &maps.sockets, KEY);
    a.jump_if(If::Ne, R0, 0, "described");
    clear(a, (R10, VALUE), socket::SIZE);
    a.call(Helper::GetCurrentPidTgid).alu(Alu::Rsh, R0, 32);
    a.store(Size::Word, R10, VALUE + socket::PROCESS, R0);
    take_slot(a, &maps.slots, used::SOCKETS, R1, "no slot");
    a.store(Size::Word, R10, VALUE + socket::SLOT, R1).label("no slot");
    read_addresses(a, m, (R10, VALUE), FILE, SCRATCH);
    a.load(Size::Double, R1, R10, FILE).store(Size::Double, R9, state::FRESH, R1);
    update(a, &maps.sockets, KEY, VALUE, 1);
    a.jump_if(If::Eq, R0, -libc::E2BIG, "full");
    lookup(a, &maps.sockets, KEY);
    a.jump_if(If::Eq, R0, 0, "started");
    a.label("described").load(Size::Word, R1, R0, socket::SLOT);
    a.store(Size::Word, R9, state::SLOT, R1);
    a.alu(Alu::And, R8, kind::MAPS as i32).jump_if(If::Eq, R8, 0, "started");
    a.store(Size::Word, R0, socket::MAPPED, 1);
}
