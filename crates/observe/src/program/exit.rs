//! At the end of a system call: adds it to the table, and its bytes to their socket.

use super::super::layout::{COMPAT, WAYS, Way, kind, lost, row, socket, state, used};
use super::{
    ARGUMENTS, Maps, Members, Slots, SocketMembers, clear, count_lost, find_state, leave, lookup,
    read_addresses, read_kernel, take_slot,
};
use Reg::*;
use bytepath_sys::bpf::asm::{Alu, AsmError, Assembler, Helper, If, Insn, Reg, Size};
use bytepath_sys::calls;
use std::os::fd::AsFd;

// Offsets on the stack.
const KEY: i16 = -16;
const SCRATCH: i16 = -24;
const SUM: i16 = -32;
const SOCKET_KEY: i16 = -40;
const FILE: i16 = -48;

/// Largest number of messages of one call that are added up; the kernel accepts no more per call
/// (`UIO_MAXIOV`).
const MESSAGES: i32 = 1024;
/// Size of `struct mmsghdr` as a power of two, and the offset of the message's length in it.
const MESSAGE: (i32, i32) = (6, 56);
/// The same in 32-bit programs.
const COMPAT_MESSAGE: (i32, i32) = (5, 28);
/// Members of `struct tcp_zerocopy_receive`, uapi/linux/tcp.h.
const ZEROCOPY_LENGTH: i32 = 8;
const ZEROCOPY_COPIED: i32 = 32;

/// ```c
/// int sys_exit(struct pt_regs *regs, long result)
/// {
///         struct state *s = find_state();
///         struct row *row;
///         u64 start, took;
///
///         /* A call that began before the thread was followed has no start. */
///         if (!s || !s->start)
///                 return 0;
///         start = s->start;
///         s->start = 0;
///         took = bpf_ktime_get_ns() - start;
///         if (result == 0 && is_execve(s->number))
///                 memset(s->rows, 0, sizeof(s->rows));
///         row = find_row(s);
///         if (!row)
///                 return 0;
///         count(row, took);
///         moments(row, took);
///         histogram(row, took);
///         if (result < 0) {
///                 row->errors++;
///                 return 0;
///         }
///         if (s->kind & BYTES)
///                 ;
///         else if (s->kind & MESSAGES)
///                 result = messages(s, result);
///         else if (!(s->kind & OPTION) || !mapped(s, row, &result))
///                 return 0;
///         row->bytes += result;
///         to_socket(s, s->way, result);
///         read_late_addresses(s);
///         return 0;
/// }
/// ```
pub(crate) fn program(members: &Members, maps: &Maps) -> Result<Vec<Insn>, AsmError> {
    let mut asm = Assembler::new();
    let a = &mut asm;
    a.mov(R6, R1);
    find_state(a, members, maps, None, "out");
    a.mov(R9, R0);
    a.load(Size::Double, R8, R9, state::START).jump_if(If::Eq, R8, 0, "out");
    a.store(Size::Double, R9, state::START, 0);
    // R8 = duration of the call.
    a.call(Helper::KtimeGetNs).alu(Alu::Sub, R0, R8).mov(R8, R0);
    // R7 = result of the call.
    a.load(Size::Double, R7, R6, 8);
    another_program(a);
    find_slot(a, &maps.slots);
    find_row(a, maps);
    count(a);
    moments(a);
    histogram(a);
    a.jump_if(If::SLt, R7, 0, "error");
    amount(a);
    a.label("amount");
    a.load(Size::Double, R1, R6, row::BYTES).add(R1, R7);
    a.store(Size::Double, R6, row::BYTES, R1);
    a.load(Size::Double, R8, R9, state::WAY);
    to_socket(a, maps, "amount's");
    if ARGUMENTS {
        read_late_addresses(a, &members.sockets, maps);
    }
    leave(a);
    a.label("error").load(Size::Double, R1, R6, row::ERRORS).add(R1, 1);
    a.store(Size::Double, R6, row::ERRORS, R1).jump("out");
    messages(a);
    mapped(a, maps);
    a.label("full");
    count_lost(a, maps, lost::CALLS, "out");
    a.jump("out");
    asm.finish()
}

/// After execve, a thread may have another id: that of its process (`de_thread`, fs/exec.c). So its
/// rows restart.
fn another_program(a: &mut Assembler) {
    a.load(Size::Word, R1, R9, state::NUMBER);
    for name in ["execve", "execveat"] {
        let compat = calls::compat_number(name).map(|number| COMPAT + number);
        for number in calls::number(name).into_iter().chain(compat) {
            a.jump_if(If::Eq, R1, number as i32, "executed");
        }
    }
    a.jump("same program").label("executed").jump_if(If::Ne, R7, 0, "same program");
    clear(a, (R9, state::ROWS), state::SIZE - state::ROWS as usize);
    a.label("same program");
}

/// R6 = the row of this thread and call, by its index. If there is no free slot, continues at
/// `by hash`, where [`find_row`] begins.
///
/// ```c
/// struct row *find_row(struct state *s)
/// {
///         struct { u32 tid, number; } key = { bpf_get_current_pid_tgid(), s->number };
///         struct row *row, *zeros;
///         u32 slot, first = 0;
///
///         if (s->number < LIMIT) {
///                 slot = s->rows[s->number];
///                 if (slot)
///                         return bpf_map_lookup_elem(&slots.rows, &slot);
///                 slot = take_slot(ROWS);
///                 if (slot) {
///                         s->rows[s->number] = slot;
///                         row = bpf_map_lookup_elem(&slots.rows, &slot);
///                         if (row)
///                                 row->key = key;
///                         return row;
///                 }
///         }
///         row = bpf_map_lookup_elem(&rows, &key);
///         if (row)
///                 return row;
///         /* A row is larger than the stack, so it is started with one of zeros. */
///         zeros = bpf_map_lookup_elem(&zero, &first);
///         if (!zeros)
///                 return NULL;
///         bpf_map_update_elem(&rows, &key, zeros, BPF_ANY);
///         row = bpf_map_lookup_elem(&rows, &key);
///         if (!row)
///                 count_lost(CALLS);
///         return row;
/// }
/// ```
fn find_slot(a: &mut Assembler, slots: &Slots) {
    a.load(Size::Word, R6, R9, state::NUMBER);
    a.jump_if(If::Ge, R6, calls::LIMIT as i32, "by hash");
    // Offset at which this thread keeps the index of this call's row.
    a.alu(Alu::Lsh, R6, 1).add(R6, R9);
    a.load(Size::Half, R1, R6, state::ROWS).jump_if(If::Eq, R1, 0, "first");
    a.store(Size::Word, R10, SCRATCH, R1);
    lookup(a, &slots.rows, SCRATCH);
    a.jump_if(If::Ne, R0, 0, "row").jump("out");
    a.label("first");
    take_slot(a, slots, used::ROWS, R1, "by hash");
    a.store(Size::Half, R6, state::ROWS, R1).store(Size::Word, R10, SCRATCH, R1);
    lookup(a, &slots.rows, SCRATCH);
    a.jump_if(If::Eq, R0, 0, "out").mov(R6, R0);
    a.call(Helper::GetCurrentPidTgid).store(Size::Word, R6, row::KEY, R0);
    a.load(Size::Word, R1, R9, state::NUMBER).store(Size::Word, R6, row::KEY + 4, R1);
    a.mov(R0, R6).jump("row");
    a.label("by hash");
}

/// The second half of `find_row` above: R6 = the row, created if it is the first.
fn find_row(a: &mut Assembler, maps: &Maps) {
    a.call(Helper::GetCurrentPidTgid).store(Size::Word, R10, KEY, R0);
    a.load(Size::Word, R1, R9, state::NUMBER).store(Size::Word, R10, KEY + 4, R1);
    lookup(a, &maps.rows, KEY);
    a.jump_if(If::Ne, R0, 0, "row");
    a.store(Size::Word, R10, SCRATCH, 0);
    lookup(a, &maps.zero, SCRATCH);
    a.jump_if(If::Eq, R0, 0, "out");
    a.mov(R3, R0).map(R1, maps.rows.as_fd()).mov(R2, R10).add(R2, i32::from(KEY)).mov(R4, 0);
    a.call(Helper::MapUpdate);
    lookup(a, &maps.rows, KEY);
    a.jump_if(If::Eq, R0, 0, "full");
    a.label("row").mov(R6, R0);
}

/// Number, total, minimum, maximum. Only this thread writes to its rows, so no atomics are needed.
///
/// ```c
/// void count(struct row *row, u64 took)
/// {
///         u64 calls = row->calls++;
///
///         row->total += took;
///         if (!calls || took < row->min)
///                 row->min = took;
///         if (row->max < took)
///                 row->max = took;
/// }
/// ```
fn count(a: &mut Assembler) {
    a.load(Size::Double, R2, R6, row::CALLS).mov(R1, R2).add(R1, 1);
    a.store(Size::Double, R6, row::CALLS, R1);
    a.load(Size::Double, R1, R6, row::TOTAL).add(R1, R8);
    a.store(Size::Double, R6, row::TOTAL, R1);
    a.jump_if(If::Eq, R2, 0, "shortest");
    a.load(Size::Double, R1, R6, row::MIN).jump_if(If::Ge, R8, R1, "not the shortest");
    a.label("shortest").store(Size::Double, R6, row::MIN, R8);
    a.label("not the shortest").load(Size::Double, R1, R6, row::MAX);
    a.jump_if(If::Ge, R1, R8, "not the longest");
    a.store(Size::Double, R6, row::MAX, R8);
    a.label("not the longest");
}

/// Sums of squares: in nanoseconds for short calls, in a coarser unit for long ones.
///
/// ```c
/// void moments(struct row *row, u64 took)
/// {
///         u64 coarse = took >> LONG_UNIT_SHIFT;
///
///         if (took < LONG)
///                 row->squares += took * took;
///         else
///                 row->long_squares += coarse * coarse;
/// }
/// ```
fn moments(a: &mut Assembler) {
    a.mov(R1, R8).jump_if(If::Ge, R8, row::LONG as i32, "long");
    a.alu(Alu::Mul, R1, R1).load(Size::Double, R2, R6, row::SQUARES).add(R2, R1);
    a.store(Size::Double, R6, row::SQUARES, R2).jump("histogram");
    a.label("long").alu(Alu::Rsh, R1, row::LONG_UNIT_SHIFT).alu(Alu::Mul, R1, R1);
    a.load(Size::Double, R2, R6, row::LONG_SQUARES).add(R2, R1);
    a.store(Size::Double, R6, row::LONG_SQUARES, R2);
}

/// Increments the bucket of the logarithm of R8, which is found by binary search.
///
/// ```c
/// row->histogram[min(ilog2(took), BUCKETS - 1)]++;
/// ```
fn histogram(a: &mut Assembler) {
    a.label("histogram").mov(R1, R8).mov(R2, 0);
    for bits in [32, 16, 8, 4, 2, 1] {
        let less = format!("less than 2^{bits}");
        a.mov(R3, R1).alu(Alu::Rsh, R3, bits).jump_if(If::Eq, R3, 0, less.clone());
        a.mov(R1, R3).add(R2, bits).label(less);
    }
    a.jump_if(If::Lt, R2, row::BUCKETS as i32, "bucket").mov(R2, row::BUCKETS as i32 - 1);
    a.label("bucket").alu(Alu::Lsh, R2, 3).mov(R3, R6).add(R3, R2);
    a.load(Size::Double, R1, R3, row::HISTOGRAM).add(R1, 1);
    a.store(Size::Double, R3, row::HISTOGRAM, R1);
}

/// R7 = the number of bytes that the call moved; goes to `out` if it moves none.
fn amount(a: &mut Assembler) {
    a.load(Size::Word, R1, R9, state::KIND);
    a.jump_if(If::Set, R1, kind::BYTES as i32, "amount");
    a.jump_if(If::Set, R1, kind::MESSAGES as i32, "messages");
    a.jump_if(If::Set, R1, kind::OPTION as i32, "mapped");
    a.jump("out");
}

/// Adds R7 bytes and one call to the socket, under the way in R8. Other threads may do the same, so
/// it is atomic.
///
/// ```c
/// void to_socket(struct state *s, u64 way, u64 bytes)
/// {
///         struct socket_slot *slot;
///         struct socket *socket;
///
///         if (!s->socket)
///                 return;
///         way &= WAYS - 1;
///         if (s->slot) {
///                 slot = bpf_map_lookup_elem(&slots.sockets, &s->slot);
///                 if (slot) {
///                         __sync_fetch_and_add(&slot->bytes[way], bytes);
///                         __sync_fetch_and_add(&slot->calls[way], 1);
///                 }
///                 return;
///         }
///         socket = bpf_map_lookup_elem(&sockets, &s->socket);
///         if (socket) {
///                 __sync_fetch_and_add(&socket->bytes[way], bytes);
///                 __sync_fetch_and_add(&socket->calls[way], 1);
///         }
/// }
/// ```
fn to_socket(a: &mut Assembler, maps: &Maps, tag: &str) {
    let end = format!("{tag} end");
    a.load(Size::Double, R1, R9, state::SOCKET).jump_if(If::Eq, R1, 0, end.clone());
    a.alu(Alu::And, R8, WAYS as i32 - 1).alu(Alu::Lsh, R8, 3);
    let by_hash = format!("{tag} by hash");
    a.load(Size::Word, R2, R9, state::SLOT).jump_if(If::Eq, R2, 0, by_hash.clone());
    a.store(Size::Word, R10, SCRATCH, R2);
    lookup(a, &maps.slots.sockets, SCRATCH);
    a.jump_if(If::Eq, R0, 0, end.clone()).add(R0, R8).atomic_add(R0, 0, R7);
    a.mov(R1, 1).atomic_add(R0, socket::SLOT_CALLS, R1).jump(end.clone());
    a.label(by_hash).load(Size::Double, R1, R9, state::SOCKET);
    a.store(Size::Double, R10, SOCKET_KEY, R1);
    lookup(a, &maps.sockets, SOCKET_KEY);
    a.jump_if(If::Eq, R0, 0, end.clone()).add(R0, R8);
    a.atomic_add(R0, socket::BYTES, R7).mov(R1, 1).atomic_add(R0, socket::CALLS, R1);
    a.label(end);
}

/// If the first call on a socket establishes its connection (TCP Fast Open), the addresses exist
/// only after the call. So they are read again if there was no peer.
///
/// ```c
/// void read_late_addresses(struct state *s)
/// {
///         struct file *file = s->fresh;
///         struct socket *socket;
///
///         s->fresh = NULL;
///         if (!file || !s->socket)
///                 return;
///         socket = bpf_map_lookup_elem(&sockets, &s->socket);
///         /* Another thread may have closed the file since. */
///         if (socket && !socket->remote_port && file->f_inode->i_ino == s->socket)
///                 read_addresses(socket, file);
/// }
/// ```
fn read_late_addresses(a: &mut Assembler, m: &SocketMembers, maps: &Maps) {
    a.load(Size::Double, R7, R9, state::FRESH).jump_if(If::Eq, R7, 0, "out");
    a.store(Size::Double, R9, state::FRESH, 0).store(Size::Double, R10, FILE, R7);
    a.load(Size::Double, R8, R9, state::SOCKET).jump_if(If::Eq, R8, 0, "out");
    a.store(Size::Double, R10, SOCKET_KEY, R8);
    lookup(a, &maps.sockets, SOCKET_KEY);
    a.jump_if(If::Eq, R0, 0, "out").mov(R6, R0);
    a.load(Size::Half, R1, R6, socket::REMOTE_PORT).jump_if(If::Ne, R1, 0, "out");
    read_kernel(a, SCRATCH, 8, R7, m.file_inode);
    a.load(Size::Double, R1, R10, SCRATCH);
    read_kernel(a, SCRATCH, 8, R1, m.inode_number);
    a.load(Size::Double, R1, R10, SCRATCH).jump_if(If::Ne, R1, R8, "out");
    read_addresses(a, m, (R6, 0), FILE, SCRATCH);
}

/// recvmmsg and sendmmsg: the kernel has written the length of each message into the program's
/// vector. R7 is the number of messages, then of bytes.
///
/// ```c
/// u64 messages(struct state *s, u64 number)
/// {
///         struct mmsghdr *vector = s->pointer;
///         u64 sum = 0, i;
///         u32 length;
///
///         for (i = 0; i < number && i < UIO_MAXIOV; i++) {
///                 if (bpf_probe_read_user(&length, 4, &vector[i].msg_len))
///                         break;
///                 sum += length;
///         }
///         return sum;
/// }
/// ```
fn messages(a: &mut Assembler) {
    a.label("messages").store(Size::Double, R10, SUM, 0).mov(R8, 0);
    a.label("message").jump_if(If::Ge, R8, R7, "messages end");
    a.mov(R1, R8).load(Size::Word, R2, R9, state::NUMBER);
    a.jump_if(If::Ge, R2, COMPAT as i32, "short message");
    a.alu(Alu::Lsh, R1, MESSAGE.0).add(R1, MESSAGE.1).jump("length");
    a.label("short message").alu(Alu::Lsh, R1, COMPAT_MESSAGE.0).add(R1, COMPAT_MESSAGE.1);
    a.label("length").load(Size::Double, R3, R9, state::POINTER).add(R3, R1);
    a.mov(R1, R10).add(R1, i32::from(SCRATCH)).mov(R2, 4).call(Helper::ProbeReadUser);
    a.jump_if(If::Ne, R0, 0, "messages end");
    a.load(Size::Word, R1, R10, SCRATCH).load(Size::Double, R2, R10, SUM).add(R2, R1);
    a.store(Size::Double, R10, SUM, R2).add(R8, 1);
    // The bound is for the verifier, which requires every loop to be bounded.
    a.jump_if(If::Lt, R8, MESSAGES, "message");
    a.label("messages end").load(Size::Double, R7, R10, SUM).jump("amount");
}

/// TCP_ZEROCOPY_RECEIVE: the kernel has written how much it mapped and, if the program's structure
/// has room for it, how much it copied in addition.
///
/// ```c
/// bool mapped(struct state *s, struct row *row, u64 *bytes)
/// {
///         struct tcp_zerocopy_receive *z = s->pointer;
///         u32 size, copied, length;
///
///         /* The length of the structure, as the kernel has left it. */
///         if (bpf_probe_read_user(&size, 4, s->length))
///                 return false;
///         if (size >= offsetofend(struct tcp_zerocopy_receive, copybuf_len)) {
///                 if (bpf_probe_read_user(&copied, 4, &z->copybuf_len))
///                         return false;
///                 /* A signed number. */
///                 if (copied && copied <= INT_MAX) {
///                         row->bytes += copied;
///                         to_socket(s, RECEIVED, copied);
///                 }
///         }
///         if (bpf_probe_read_user(&length, 4, &z->length))
///                 return false;
///         *bytes = length;
///         return true;
/// }
/// ```
fn mapped(a: &mut Assembler, maps: &Maps) {
    let read = |a: &mut Assembler, at: i32| {
        a.load(Size::Double, R3, R9, state::POINTER).add(R3, at);
        a.mov(R1, R10).add(R1, i32::from(SCRATCH)).mov(R2, 4).call(Helper::ProbeReadUser);
        a.jump_if(If::Ne, R0, 0, "out").load(Size::Word, R7, R10, SCRATCH);
    };
    a.label("mapped").load(Size::Double, R3, R9, state::LENGTH);
    a.mov(R1, R10).add(R1, i32::from(SCRATCH)).mov(R2, 4).call(Helper::ProbeReadUser);
    a.jump_if(If::Ne, R0, 0, "out").load(Size::Word, R1, R10, SCRATCH);
    a.jump_if(If::Lt, R1, ZEROCOPY_COPIED + 4, "only mapped");
    read(a, ZEROCOPY_COPIED);
    a.jump_if(If::Gt, R7, i32::MAX, "only mapped").jump_if(If::Eq, R7, 0, "only mapped");
    a.load(Size::Double, R1, R6, row::BYTES).add(R1, R7);
    a.store(Size::Double, R6, row::BYTES, R1).mov(R8, Way::Received as i32);
    to_socket(a, maps, "copied's");
    a.label("only mapped");
    read(a, ZEROCOPY_LENGTH);
    a.jump("amount");
}
