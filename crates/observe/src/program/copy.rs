//! Where the kernel copies between itself and a program: adds up how much, for calls
//! of followed threads on sockets. Kernels under lockdown do not let a program be put
//! to a function's return; then there is no such figure.
//!
//! The functions that do the copying itself cannot be watched at all: they are those of
//! lib/iov_iter.c, and nothing in lib/ is compiled for tracing (lib/Makefile removes
//! `CC_FLAGS_FTRACE`). So it is done one step before and after:
//!
//! - to a program, everything goes through `skb_copy_datagram_iter`, which has a
//!   length and shows whether all of it was copied;
//! - from a program, the kernel checks each copy with `__check_object_size`
//!   (`CONFIG_HARDENED_USERCOPY`). It does so for addresses and control data too,
//!   which are copied before the call comes to `security_socket_sendmsg`, and so only
//!   what follows that counts. Pages are not checked, but are filled by
//!   `skb_copy_datagram_from_iter` alone, whose length counts instead.
//!
//! Copies with a checksum on the way, of UDP without help of the device, go other ways.

use super::super::layout::{copies, state};
use super::{Maps, Members, find_state, leave, lookup};
use Reg::*;
use bytepath_sys::bpf::Hook;
use bytepath_sys::bpf::asm::{Alu, AsmError, Assembler, If, Insn, Reg, Size};

/// A function that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watched {
    pub name: &'static str,
    pub says: Says,
    /// Whether there is no figure without it.
    pub needed: bool,
}

/// What a function says by its return, or by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// From now on it is the data of the call that is copied from the program.
    Data,
    /// As many bytes as its second argument may be copied: to the program if the third
    /// is true.
    Checked,
    /// By its beginning: until it returns, checks do not matter.
    Unchecked,
    /// From the program: its fourth argument, if it returns 0. Checks count again.
    FromProgramAll,
    /// To the program: its fourth argument, if it returns 0.
    ToProgram,
    /// To the program: what it returns.
    ToProgramResult,
    /// From the program: its second argument, if it returns true.
    FromProgram,
}

impl Says {
    /// What to attach a program to, at entry or return, by the function's number.
    pub(crate) fn hook(self, function: u32) -> Hook {
        match self {
            Says::Unchecked => Hook::FunctionEntry(function),
            _ => Hook::FunctionExit(function),
        }
    }
}

/// All of them. Those that are not needed are of Linux 6.13 and later, where they are
/// not in lib/ any more.
pub(crate) const FUNCTIONS: &[Watched] = &[
    Watched { name: "security_socket_sendmsg", says: Says::Data, needed: true },
    Watched { name: "__check_object_size", says: Says::Checked, needed: true },
    Watched { name: "skb_copy_datagram_from_iter", says: Says::Unchecked, needed: true },
    Watched { name: "skb_copy_datagram_from_iter", says: Says::FromProgramAll, needed: true },
    Watched { name: "skb_copy_datagram_iter", says: Says::ToProgram, needed: true },
    Watched { name: "csum_and_copy_to_iter", says: Says::ToProgramResult, needed: false },
    Watched { name: "csum_and_copy_from_iter_full", says: Says::FromProgram, needed: false },
];

// Places on the stack.
const KEY: i16 = -8;

/// For a function that takes this many arguments.
pub(crate) fn program(
    members: &Members,
    maps: &Maps,
    says: Says,
    arguments: i16,
) -> Result<Vec<Insn>, AsmError> {
    let mut asm = Assembler::new();
    let a = &mut asm;
    a.mov(R6, R1);
    find_state(a, members, maps, None, "out");
    // Only within a call, and only one that concerns a socket.
    a.load(Size::Double, R1, R0, state::START).jump_if(If::Eq, R1, 0, "out");
    a.load(Size::Double, R1, R0, state::SOCKET).jump_if(If::Eq, R1, 0, "out");
    // The result follows the arguments.
    let argument = |a: &mut Assembler, dst, n: i16| _ = a.load(Size::Double, dst, R6, 8 * n);
    let result = |a: &mut Assembler, dst| _ = a.load(Size::Double, dst, R6, 8 * arguments);
    let mut index = copies::TO_PROGRAM;
    match says {
        Says::Data | Says::Unchecked => {
            a.store(Size::Word, R0, state::DATA, i32::from(says == Says::Data));
            leave(a);
            return asm.finish();
        }
        Says::Checked => {
            index = copies::FROM_PROGRAM;
            a.load(Size::Word, R1, R0, state::DATA).jump_if(If::Eq, R1, 0, "out");
            argument(a, R1, 2);
            // A bool has 8 bits, and the other bits mean nothing.
            a.alu(Alu::And, R1, 1).jump_if(If::Ne, R1, 0, "out");
            argument(a, R7, 1);
        }
        Says::ToProgram | Says::FromProgramAll => {
            if says == Says::FromProgramAll {
                index = copies::FROM_PROGRAM;
                a.store(Size::Word, R0, state::DATA, 1);
            }
            result(a, R1);
            // Both are of 32 bits.
            a.alu(Alu::Lsh, R1, 32).jump_if(If::Ne, R1, 0, "out");
            argument(a, R7, 3);
            a.alu(Alu::Lsh, R7, 32).alu(Alu::Rsh, R7, 32);
        }
        Says::ToProgramResult => result(a, R7),
        Says::FromProgram => {
            index = copies::FROM_PROGRAM;
            result(a, R1);
            a.alu(Alu::And, R1, 1).jump_if(If::Eq, R1, 0, "out");
            argument(a, R7, 1);
        }
    }
    a.store(Size::Word, R10, KEY, index);
    lookup(a, &maps.copies, KEY);
    a.jump_if(If::Eq, R0, 0, "out").atomic_add(R0, 0, R7);
    leave(a);
    asm.finish()
}
