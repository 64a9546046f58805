//! The layout shared with the programs in the kernel: the values in the maps, and the kinds of
//! system calls. Offsets are in bytes, all numbers in native byte order.

use bytepath_sys::calls;
use strum::VariantArray;

/// A followed thread. Exists as long as the thread is followed.
pub(crate) mod state {
    /// Start of the call in nanoseconds of the monotonic clock; 0 outside of calls.
    pub(crate) const START: i16 = 0;
    /// Number of the call, 32 bits.
    pub(crate) const NUMBER: i16 = 8;
    /// Kind of the call, 32 bits; see [`kind`](super::kind).
    pub(crate) const KIND: i16 = 12;
    /// Key of its socket; 0 if it concerns none.
    pub(crate) const SOCKET: i16 = 16;
    /// The socket that this thread used last.
    pub(crate) const LAST: i16 = 24;
    /// Address in the program's memory where the call writes a result.
    pub(crate) const POINTER: i16 = 32;
    /// Address of that result's length.
    pub(crate) const LENGTH: i16 = 40;
    /// [`Way`](super::Way) of the bytes.
    pub(crate) const WAY: i16 = 48;
    /// Not 0 until the thread calls execve: until then, the child is not yet the program.
    pub(crate) const UNTIL_EXEC: i16 = 56;
    /// Index of the counts of the socket used last, 32 bits; 0 if it has no slot.
    pub(crate) const SLOT: i16 = 64;
    /// Not 0 from the moment when a sending call copies its data, 32 bits.
    pub(crate) const DATA: i16 = 68;
    /// The file of the socket used last, as a kernel address, if this thread was the first that
    /// used it and has not moved bytes through it since; otherwise 0.
    pub(crate) const FRESH: i16 = 72;
    /// Index of this thread's row for each call, 16 bits each, by the call's number; 0 if it has
    /// none.
    pub(crate) const ROWS: i16 = 80;
    /// Size of the value.
    pub(crate) const SIZE: usize = ROWS as usize + 2 * bytepath_sys::calls::LIMIT as usize;
}

/// All calls of one number by one thread.
pub(crate) mod row {
    /// Calls that have returned.
    pub(crate) const CALLS: i16 = 0;
    /// Calls that returned an error.
    pub(crate) const ERRORS: i16 = 8;
    /// Total duration in nanoseconds.
    pub(crate) const TOTAL: i16 = 16;
    pub(crate) const MIN: i16 = 24;
    pub(crate) const MAX: i16 = 32;
    /// Sum of the squared durations of calls shorter than [`LONG`], nanoseconds squared.
    pub(crate) const SQUARES: i16 = 40;
    /// Sum of the squared durations of the other calls, in units of [`LONG_UNIT`] squared.
    pub(crate) const LONG_SQUARES: i16 = 48;
    /// Bytes they moved.
    pub(crate) const BYTES: i16 = 56;
    /// Number of calls that took 2^i to 2^(i+1) nanoseconds.
    pub(crate) const HISTOGRAM: i16 = 64;
    /// Number of buckets; the last one also has all longer calls.
    pub(crate) const BUCKETS: usize = 40;
    /// Size of the value.
    pub(crate) const SIZE: usize = HISTOGRAM as usize + 8 * BUCKETS;
    /// In a row that has an index: the key that other rows have in the map, thread id and number of
    /// the call, 32 bits each.
    pub(crate) const KEY: i16 = SIZE as i16;
    /// Size of such a row.
    pub(crate) const SLOT_SIZE: usize = SIZE + 8;
    /// Durations from this one on are squared in a coarser unit, so that the sum of the squares
    /// stays below 2^64 for hours.
    pub(crate) const LONG: u64 = 1 << LONG_SHIFT;
    pub(crate) const LONG_SHIFT: i32 = 20;
    /// Logarithm of that unit in nanoseconds.
    pub(crate) const LONG_UNIT_SHIFT: i32 = 10;
    pub(crate) const LONG_UNIT: u64 = 1 << LONG_UNIT_SHIFT;
}

/// A thread that is or was followed.
pub(crate) mod thread {
    /// Process, 32 bits; 0 until known.
    pub(crate) const PROCESS: i16 = 0;
    /// The thread that created it, 32 bits.
    pub(crate) const PARENT: i16 = 4;
    /// When it was created, monotonic nanoseconds; 0 if before watching began.
    pub(crate) const START: i16 = 8;
    /// When it ended; 0 if it is still alive.
    pub(crate) const END: i16 = 16;
    /// User time by ticks, nanoseconds, at its end.
    pub(crate) const USER: i16 = 24;
    /// System time by ticks.
    pub(crate) const SYSTEM: i16 = 32;
    /// Time on a CPU.
    pub(crate) const RUN: i16 = 40;
    /// Voluntary context switches.
    pub(crate) const VOLUNTARY: i16 = 48;
    /// Involuntary context switches.
    pub(crate) const INVOLUNTARY: i16 = 56;
    /// Name, 16 bytes, terminated by a zero.
    pub(crate) const NAME: i16 = 64;
    /// Time it was runnable and waited for a CPU.
    pub(crate) const WAIT: i16 = 80;
    /// Size of the value.
    pub(crate) const SIZE: usize = 88;
}

/// A socket that carried bytes.
pub(crate) mod socket {
    /// Address family, 16 bits.
    pub(crate) const FAMILY: i16 = 0;
    /// Protocol, 16 bits.
    pub(crate) const PROTOCOL: i16 = 2;
    /// Own port, 16 bits.
    pub(crate) const LOCAL_PORT: i16 = 4;
    /// The peer's port, 16 bits, in network byte order.
    pub(crate) const REMOTE_PORT: i16 = 6;
    pub(crate) const LOCAL: i16 = 8;
    pub(crate) const REMOTE: i16 = 12;
    pub(crate) const LOCAL6: i16 = 16;
    pub(crate) const REMOTE6: i16 = 32;
    /// The process that used it first, 32 bits.
    pub(crate) const PROCESS: i16 = 48;
    /// Index of its counts, 32 bits; 0 if they are here.
    pub(crate) const SLOT: i16 = 52;
    /// Not 0 if the program has mapped it, 32 bits.
    pub(crate) const MAPPED: i16 = 56;
    /// Bytes, by [`Way`](super::Way).
    pub(crate) const BYTES: i16 = 64;
    /// Calls, by way.
    pub(crate) const CALLS: i16 = BYTES + 8 * super::WAYS as i16;
    /// Size of the value.
    pub(crate) const SIZE: usize = CALLS as usize + 8 * super::WAYS;
    /// Size of counts that have an index: bytes and calls, by way.
    pub(crate) const SLOT_SIZE: usize = 16 * super::WAYS;
    /// Offset of the calls in such counts.
    pub(crate) const SLOT_CALLS: i16 = 8 * super::WAYS as i16;
}

/// Bytes copied between kernel and program, by the kernel's own functions.
pub(crate) mod copies {
    /// Index of the bytes copied to the program.
    pub(crate) const TO_PROGRAM: i32 = 0;
    /// Index of the bytes copied from the program.
    pub(crate) const FROM_PROGRAM: i32 = 1;
    pub(crate) const COUNT: u32 = 2;
}

/// Numbers of rows and sockets that have an index.
pub(crate) mod used {
    /// Index of the number of rows.
    pub(crate) const ROWS: i32 = 0;
    /// Index of the number of sockets.
    pub(crate) const SOCKETS: i32 = 1;
    pub(crate) const COUNT: u32 = 2;
}

/// What was lost because a map was full.
pub(crate) mod lost {
    /// Index of the calls that were not counted.
    pub(crate) const CALLS: i32 = 0;
    /// Index of the threads that were not followed.
    pub(crate) const THREADS: i32 = 1;
    /// Index of calls whose socket was not counted.
    pub(crate) const SOCKETS: i32 = 2;
    pub(crate) const COUNT: u32 = 3;
}

/// Direction of bytes through a socket, and the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
#[repr(usize)]
pub(crate) enum Way {
    /// Received by a call that copies.
    Received = 0,
    /// Sent by a call that copies.
    Sent = 1,
    /// Discarded unread: `MSG_TRUNC`.
    Discarded = 2,
    /// Read without being consumed: `MSG_PEEK`.
    Peeked = 3,
    /// Mapped into the program: `TCP_ZEROCOPY_RECEIVE`.
    Mapped = 4,
    /// Sent with `MSG_ZEROCOPY`.
    ZeroCopy = 5,
    /// Put into the socket by sendfile or splice.
    Into = 6,
    /// Taken out of the socket by splice.
    OutOf = 7,
}

/// Number of ways: a power of two, because the programs mask with it.
pub(crate) const WAYS: usize = Way::VARIANTS.len();

/// The kind of a system call, as bits; the lowest three are its [`Way`].
pub(crate) mod kind {
    /// The result is a number of bytes.
    pub(crate) const BYTES: u32 = 1 << 3;
    /// The first argument is the descriptor through which they go.
    pub(crate) const DESCRIPTOR: u32 = 1 << 4;
    /// The third argument contains `MSG_` flags.
    pub(crate) const FLAGS_THIRD: u32 = 1 << 6;
    pub(crate) const FLAGS_FOURTH: u32 = 1 << 7;
    /// The third argument is also a descriptor: the destination of the bytes.
    pub(crate) const SPLICE: u32 = 1 << 8;
    /// getsockopt(2): `TCP_ZEROCOPY_RECEIVE` moves bytes, everything else does not.
    pub(crate) const OPTION: u32 = 1 << 9;
    /// The second argument is a vector of messages, and the result is their number.
    pub(crate) const MESSAGES: u32 = 1 << 10;
    /// The fifth argument is a descriptor that is mapped.
    pub(crate) const MAPS: u32 = 1 << 11;
}

/// Offset added to the kernel's numbers for calls of 32-bit programs.
pub(crate) const COMPAT: u32 = 1 << 16;

/// First index of the kinds of the calls of 32-bit programs.
pub(crate) const COMPAT_KINDS: u32 = calls::LIMIT;

/// First index of the kinds of the calls within socketcall(2), by its first argument.
pub(crate) const SOCKETCALL_KINDS: u32 = 2 * calls::LIMIT;

/// The calls that socketcall(2) multiplexes: linux/net.h, from 1 on.
pub(crate) const SOCKETCALLS: &[&str] = &[
    "",
    "socket",
    "bind",
    "connect",
    "listen",
    "accept",
    "getsockname",
    "getpeername",
    "socketpair",
    "send",
    "recv",
    "sendto",
    "recvfrom",
    "shutdown",
    "setsockopt",
    "getsockopt",
    "sendmsg",
    "recvmsg",
    "accept4",
    "recvmmsg",
    "sendmmsg",
];

/// The system calls that move bytes.
const KINDS: &[(&str, Way, u32)] = {
    use kind::*;
    &[
        ("read", Way::Received, BYTES | DESCRIPTOR),
        ("readv", Way::Received, BYTES | DESCRIPTOR),
        ("write", Way::Sent, BYTES | DESCRIPTOR),
        ("writev", Way::Sent, BYTES | DESCRIPTOR),
        ("recvfrom", Way::Received, BYTES | DESCRIPTOR | FLAGS_FOURTH),
        ("recvmsg", Way::Received, BYTES | DESCRIPTOR | FLAGS_THIRD),
        ("recvmmsg", Way::Received, MESSAGES | DESCRIPTOR | FLAGS_FOURTH),
        ("recvmmsg_time64", Way::Received, MESSAGES | DESCRIPTOR | FLAGS_FOURTH),
        ("recv", Way::Received, BYTES | DESCRIPTOR | FLAGS_FOURTH),
        ("send", Way::Sent, BYTES | DESCRIPTOR | FLAGS_FOURTH),
        ("sendto", Way::Sent, BYTES | DESCRIPTOR | FLAGS_FOURTH),
        ("sendmsg", Way::Sent, BYTES | DESCRIPTOR | FLAGS_THIRD),
        ("sendmmsg", Way::Sent, MESSAGES | DESCRIPTOR | FLAGS_FOURTH),
        ("sendfile", Way::Into, BYTES | DESCRIPTOR),
        ("sendfile64", Way::Into, BYTES | DESCRIPTOR),
        ("splice", Way::OutOf, BYTES | DESCRIPTOR | SPLICE),
        ("getsockopt", Way::Mapped, OPTION | DESCRIPTOR),
        // Their offset may be -1: the file's own position, and a socket has no other.
        ("preadv2", Way::Received, BYTES | DESCRIPTOR),
        ("pwritev2", Way::Sent, BYTES | DESCRIPTOR),
        // Rings of packet(7) and AF_XDP are mapped; traffic through them takes no call.
        ("mmap", Way::Received, MAPS | DESCRIPTOR),
        ("mmap2", Way::Received, MAPS | DESCRIPTOR),
        // These move bytes, but never through a socket.
        ("pread64", Way::Received, BYTES),
        ("preadv", Way::Received, BYTES),
        ("pwrite64", Way::Sent, BYTES),
        ("pwritev", Way::Sent, BYTES),
        ("copy_file_range", Way::Into, BYTES),
        ("tee", Way::Into, BYTES),
        ("vmsplice", Way::Into, BYTES),
        ("process_vm_readv", Way::Received, BYTES),
        ("process_vm_writev", Way::Sent, BYTES),
        ("getrandom", Way::Received, BYTES),
        ("msgrcv", Way::Received, BYTES),
        ("mq_timedreceive", Way::Received, BYTES),
    ]
};

/// Returns the kinds of all system calls: by number, then those of 32-bit programs, then those
/// within socketcall(2). Most are 0: no bytes.
pub(crate) fn kinds() -> Vec<u32> {
    let mut kinds = vec![0; SOCKETCALL_KINDS as usize + SOCKETCALLS.len()];
    for (name, way, bits) in KINDS {
        let socketcall = SOCKETCALLS.iter().position(|call| call == name);
        for index in [
            calls::number(name),
            calls::compat_number(name).map(|number| COMPAT_KINDS + number),
            socketcall.map(|call| SOCKETCALL_KINDS + call as u32),
        ] {
            if let Some(kind) = index.and_then(|index| kinds.get_mut(index as usize)) {
                *kind = *way as u32 | bits;
            }
        }
    }
    kinds
}

/// Returns the name of a call by its number in a row, and whether a 32-bit program made it.
pub(crate) fn call_name(number: u32) -> (Option<&'static str>, bool) {
    match number.checked_sub(COMPAT) {
        Some(number) => (calls::compat_name(number), true),
        None => (calls::name(number), false),
    }
}

/// Reads a number of 64 bits from a value of a map; 0 if the value is too short.
pub(crate) fn long(value: &[u8], at: i16) -> u64 {
    u64::from_ne_bytes(bytes(value, at))
}

/// Reads several numbers of 64 bits, one after the other.
pub(crate) fn longs<const COUNT: usize>(value: &[u8], at: i16) -> [u64; COUNT] {
    std::array::from_fn(|i| long(value, at + 8 * i as i16))
}

/// Reads a number of 32 bits.
pub(crate) fn word(value: &[u8], at: i16) -> u32 {
    u32::from_ne_bytes(bytes(value, at))
}

/// Reads a number of 16 bits.
pub(crate) fn half(value: &[u8], at: i16) -> u16 {
    u16::from_ne_bytes(bytes(value, at))
}

fn bytes<const SIZE: usize>(value: &[u8], at: i16) -> [u8; SIZE] {
    let rest = usize::try_from(at).ok().and_then(|at| value.get(at..));
    rest.and_then(|rest| rest.first_chunk().copied()).unwrap_or([0; SIZE])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_moves_bytes_is_known_here() {
        let kinds = kinds();
        for (name, way, bits) in KINDS {
            let native = calls::number(name);
            let compat = calls::compat_number(name).map(|number| COMPAT_KINDS + number);
            let within = SOCKETCALLS.contains(name);
            assert!(native.or(compat).is_some() || within, "no call {name}");
            for number in native.into_iter().chain(compat) {
                assert_eq!(kinds[number as usize], *way as u32 | bits, "{name}");
            }
        }
        assert_eq!(call_name(COMPAT + 4), (calls::compat_name(4), true));
    }

    #[test]
    fn a_way_fits_into_its_bits() {
        assert!(WAYS.is_power_of_two() && (WAYS as u32) <= kind::BYTES);
        assert!(Way::VARIANTS.iter().enumerate().all(|(i, way)| *way as usize == i));
    }

    #[test]
    fn short_values_read_as_nothing() {
        assert_eq!((long(&[1; 7], 0), word(&[1; 4], 2), half(&[], 0)), (0, 0, 0));
        assert_eq!(word(&7u32.to_ne_bytes(), 0), 7);
    }
}
