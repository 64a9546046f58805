//! Attached where the kernel copies between itself and a program: adds up the bytes, for calls of
//! followed threads on sockets. Kernels under lockdown do not let a program be attached to the
//! return of a function; then this figure is missing.
//!
//! The functions that copy cannot be watched themselves: they are in lib/iov_iter.c, and nothing in
//! lib/ is compiled for tracing (lib/Makefile removes `CC_FLAGS_FTRACE`). So their callers and the
//! checks around them are watched:
//!
//! - to a program, everything goes through `skb_copy_datagram_iter`, which has a
//!   length and shows whether all of it was copied;
//! - from a program, the kernel checks each copy with `__check_object_size`
//!   (`CONFIG_HARDENED_USERCOPY`). It also checks addresses and control data, which are
//!   copied before the call reaches `security_socket_sendmsg`, so only copies after that
//!   count. Pages are not checked, but are only filled by
//!   `skb_copy_datagram_from_iter`, whose length counts instead.
//!
//! Copies that compute a checksum (UDP without checksum offload) take other paths.

use super::super::layout::{copies, state};
use super::{Maps, Members, find_state, leave, lookup};
use Reg::*;
use bytepath_sys::bpf::Hook;
use bytepath_sys::bpf::asm::{Alu, AsmError, Assembler, If, Insn, Reg, Size};

/// A watched function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watched {
    pub name: &'static str,
    pub effect: HookEffect,
    /// Whether the figure is missing without it.
    pub needed: bool,
}

/// Effect of a call of a watched function, at its return except for `Unchecked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookEffect {
    /// From now on, the data of the call is copied from the program.
    Data,
    /// Up to as many bytes as its second argument may be copied: to the program if the third is
    /// true.
    Checked,
    /// At its entry: until it returns, checks do not count.
    Unchecked,
    /// From the program: its fourth argument in bytes, if it returns 0. Checks count again.
    FromProgramAll,
    /// To the program: its fourth argument in bytes, if it returns 0.
    ToProgram,
    /// To the program: its result in bytes.
    ToProgramResult,
    /// From the program: its second argument in bytes, if it returns true.
    FromProgram,
}

impl HookEffect {
    /// Returns the entry or return of the function with this BTF id, to attach a program to.
    pub(crate) fn hook(self, function: u32) -> Hook {
        match self {
            HookEffect::Unchecked => Hook::FunctionEntry(function),
            _ => Hook::FunctionExit(function),
        }
    }
}

/// All watched functions. Those not needed can be watched since Linux 6.13, where they are no
/// longer in lib/.
pub(crate) const FUNCTIONS: &[Watched] = &[
    watched("security_socket_sendmsg", HookEffect::Data, true),
    watched("__check_object_size", HookEffect::Checked, true),
    watched("skb_copy_datagram_from_iter", HookEffect::Unchecked, true),
    watched("skb_copy_datagram_from_iter", HookEffect::FromProgramAll, true),
    watched("skb_copy_datagram_iter", HookEffect::ToProgram, true),
    watched("csum_and_copy_to_iter", HookEffect::ToProgramResult, false),
    watched("csum_and_copy_from_iter_full", HookEffect::FromProgram, false),
];

const fn watched(name: &'static str, effect: HookEffect, needed: bool) -> Watched {
    Watched { name, effect, needed }
}

// Offsets on the stack.
const KEY: i16 = -8;

/// For a function with `ARGUMENTS` arguments; the result follows them.
///
/// ```c
/// int program(u64 *context)
/// {
///         struct state *s = find_state();
///         u32 index = FROM_PROGRAM;
///         u64 bytes, *sum, result = context[ARGUMENTS];
///
///         /* Only within a call, and only one that concerns a socket. */
///         if (!s || !s->start || !s->socket)
///                 return 0;
///         switch (EFFECT) {
///         case DATA:
///         case UNCHECKED:
///                 s->data = EFFECT == DATA;
///                 return 0;
///         case CHECKED:
///                 if (!(u32)s->data || (bool)context[2])
///                         return 0;
///                 bytes = context[1];
///                 break;
///         case FROM_PROGRAM_ALL:
///                 s->data = 1;
///                 fallthrough;
///         case TO_PROGRAM:
///                 if ((int)result)
///                         return 0;
///                 bytes = (u32)context[3];
///                 break;
///         case TO_PROGRAM_RESULT:
///                 bytes = result;
///                 break;
///         case FROM_PROGRAM:
///                 if (!(bool)result)
///                         return 0;
///                 bytes = context[1];
///                 break;
///         }
///         if (EFFECT == TO_PROGRAM || EFFECT == TO_PROGRAM_RESULT)
///                 index = TO_PROGRAM;
///         sum = bpf_map_lookup_elem(&copies, &index);
///         if (sum)
///                 __sync_fetch_and_add(sum, bytes);
///         return 0;
/// }
/// ```
pub(crate) fn program(
    members: &Members,
    maps: &Maps,
    effect: HookEffect,
    arguments: i16,
) -> Result<Vec<Insn>, AsmError> {
    let mut asm = Assembler::new();
    let a = &mut asm;
    a.mov(R6, R1);
    find_state(a, members, maps, None, "out");
    a.load(Size::Double, R1, R0, state::START).jump_if(If::Eq, R1, 0, "out");
    a.load(Size::Double, R1, R0, state::SOCKET).jump_if(If::Eq, R1, 0, "out");
    let argument = |a: &mut Assembler, dst, n: i16| _ = a.load(Size::Double, dst, R6, 8 * n);
    let result = |a: &mut Assembler, dst| _ = a.load(Size::Double, dst, R6, 8 * arguments);
    let mut index = copies::TO_PROGRAM;
    match effect {
        HookEffect::Data | HookEffect::Unchecked => {
            a.store(Size::Word, R0, state::DATA, i32::from(effect == HookEffect::Data));
            leave(a);
            return asm.finish();
        }
        HookEffect::Checked => {
            index = copies::FROM_PROGRAM;
            a.load(Size::Word, R1, R0, state::DATA).jump_if(If::Eq, R1, 0, "out");
            argument(a, R1, 2);
            // A bool has 8 bits, and the other bits are undefined.
            a.alu(Alu::And, R1, 1).jump_if(If::Ne, R1, 0, "out");
            argument(a, R7, 1);
        }
        HookEffect::ToProgram | HookEffect::FromProgramAll => {
            if effect == HookEffect::FromProgramAll {
                index = copies::FROM_PROGRAM;
                a.store(Size::Word, R0, state::DATA, 1);
            }
            result(a, R1);
            // Both have 32 bits.
            a.alu(Alu::Lsh, R1, 32).jump_if(If::Ne, R1, 0, "out");
            argument(a, R7, 3);
            a.alu(Alu::Lsh, R7, 32).alu(Alu::Rsh, R7, 32);
        }
        HookEffect::ToProgramResult => result(a, R7),
        HookEffect::FromProgram => {
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
