//! Behind the kernel's copy functions: adds up what they copied for calls of
//! followed threads on sockets. Kernels under lockdown do not let a program be
//! put behind a function; then there is no such figure.

use super::super::layout::state;
use super::{Form, Maps, find_state, leave, lookup};
use crate::sys::bpf::asm::{Alu, AsmError, Assembler, If, Insn, Reg, Size};
use Reg::*;

/// A copy function: `NAME(void *address, size_t bytes, ..., struct iov_iter *iter)`
/// of lib/iov_iter.c or net/core/. None of these calls another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFunction {
    /// Its name.
    pub name: &'static str,
    /// Where its bytes are added, see [`copies`](super::super::layout::copies).
    pub index: i32,
    /// What it returns.
    pub returns: Returns,
}

/// What a copy function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// How many bytes it copied.
    Bytes,
    /// Whether it copied all, which is its second argument. If not, what it had
    /// copied does not count for its caller either.
    Whether,
}

/// Those that the send and receive calls of sockets end in. A kernel may lack
/// some, as parts of others. Those with `csum` moved, and one of them changed its
/// kind, in Linux 6.13.
pub const FUNCTIONS: &[CopyFunction] = {
    use super::super::layout::copies::{FROM_PROGRAM, TO_PROGRAM};
    use Returns::{Bytes, Whether};
    const fn is(name: &'static str, index: i32, returns: Returns) -> CopyFunction {
        CopyFunction { name, index, returns }
    }
    &[
        is("_copy_to_iter", TO_PROGRAM, Bytes),
        is("_copy_from_iter", FROM_PROGRAM, Bytes),
        is("_copy_from_iter_nocache", FROM_PROGRAM, Bytes),
        is("csum_and_copy_to_iter", TO_PROGRAM, Bytes),
        is("csum_and_copy_from_iter", FROM_PROGRAM, Bytes),
        is("csum_and_copy_from_iter_full", FROM_PROGRAM, Whether),
    ]
};

// Places on the stack.
const KEY: i16 = -8;

/// For the return of a copy function, which takes so many arguments.
pub fn program(
    form: &Form,
    maps: &Maps,
    function: CopyFunction,
    arguments: i16,
) -> Result<Vec<Insn>, AsmError> {
    let mut asm = Assembler::new();
    let a = &mut asm;
    a.mov(R6, R1);
    find_state(a, form, maps, None, "out");
    // Only within a call, and only one that concerns a socket.
    a.load(Size::Double, R1, R0, state::START).jump_if(If::Eq, R1, 0, "out");
    a.load(Size::Double, R1, R0, state::SOCKET).jump_if(If::Eq, R1, 0, "out");
    // The result stands behind the arguments.
    a.load(Size::Double, R7, R6, 8 * arguments);
    if function.returns == Returns::Whether {
        a.alu(Alu::And, R7, 1).jump_if(If::Eq, R7, 0, "out").load(Size::Double, R7, R6, 8);
    }
    a.store(Size::Word, R10, KEY, function.index);
    lookup(a, &maps.copies, KEY);
    a.jump_if(If::Eq, R0, 0, "out").atomic_add(R0, 0, R7);
    leave(a);
    asm.finish()
}
