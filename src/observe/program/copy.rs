//! Behind the kernel's copy functions: adds up what they copied for calls of
//! followed threads on sockets. Kernels under lockdown do not let a program be
//! put behind a function; then there is no such figure.

use super::super::layout::state;
use super::{Form, Maps, find_state, leave, lookup};
use crate::sys::bpf::asm::{AsmError, Assembler, If, Insn, Reg, Size};
use Reg::*;

/// A copy function of lib/iov_iter.c: `size_t NAME(void *address, size_t bytes,
/// struct iov_iter *iter)` returns how much it copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFunction {
    /// Its name.
    pub name: &'static str,
    /// Where its bytes are added, see [`copies`](super::super::layout::copies).
    pub index: i32,
    /// Number of its arguments; the result is behind them.
    pub arguments: i16,
}

/// Those that the send and receive calls of sockets end in. A kernel may lack
/// some, as parts of others.
pub const FUNCTIONS: &[CopyFunction] = {
    use super::super::layout::copies::{FROM_PROGRAM, TO_PROGRAM};
    &[
        CopyFunction { name: "_copy_to_iter", index: TO_PROGRAM, arguments: 3 },
        CopyFunction { name: "_copy_from_iter", index: FROM_PROGRAM, arguments: 3 },
        CopyFunction { name: "_copy_from_iter_nocache", index: FROM_PROGRAM, arguments: 3 },
        CopyFunction { name: "csum_and_copy_to_iter", index: TO_PROGRAM, arguments: 4 },
        CopyFunction { name: "csum_and_copy_from_iter", index: FROM_PROGRAM, arguments: 3 },
    ]
};

// Places on the stack.
const KEY: i16 = -8;

/// For the return of a copy function.
pub fn program(form: &Form, maps: &Maps, function: CopyFunction) -> Result<Vec<Insn>, AsmError> {
    let mut asm = Assembler::new();
    let a = &mut asm;
    a.mov(R6, R1);
    find_state(a, form, maps, "out");
    // Only within a call, and only one that concerns a socket.
    a.load(Size::Double, R1, R0, state::START).jump_if(If::Eq, R1, 0, "out");
    a.load(Size::Double, R1, R0, state::SOCKET).jump_if(If::Eq, R1, 0, "out");
    // The result stands behind the arguments.
    a.load(Size::Double, R7, R6, 8 * function.arguments);
    a.store(Size::Word, R10, KEY, function.index);
    lookup(a, &maps.copies, KEY);
    a.jump_if(If::Eq, R0, 0, "out").atomic_add(R0, 0, R7);
    leave(a);
    asm.finish()
}
