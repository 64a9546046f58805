//! An assembler for BPF: instructions by name, jumps by label. It encodes what
//! Documentation/bpf/standardization/instruction-set.rst specifies and nothing more; whether a
//! program is safe is decided by the kernel's verifier.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A register. `R0` holds results, `R1` to `R5` hold arguments of calls (which clobber them), `R6`
/// to `R9` are preserved, `R10` is the frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Operand of an instruction: a register, or a constant that is sign-extended to 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The value of a register.
    Reg(Reg),
    Imm(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Operand::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(value: i32) -> Self {
        Operand::Imm(value)
    }
}

/// Arithmetic on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Or = 0x40,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Mov = 0xb0,
}

/// Condition of a jump, on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum If {
    Eq = 0x10,
    /// Greater, unsigned.
    Gt = 0x20,
    /// Greater or equal, unsigned.
    Ge = 0x30,
    /// At least one bit in common.
    Set = 0x40,
    Ne = 0x50,
    /// Greater, signed.
    SGt = 0x60,
    /// Less, unsigned.
    Lt = 0xa0,
    /// Less, signed.
    SLt = 0xc0,
}

/// Width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
    Double = 0x18,
}

/// One instruction as the kernel reads it: `struct bpf_insn`, uapi/linux/bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    code: u8,
    registers: u8,
    off: i16,
    imm: i32,
}

/// Why a program cannot be assembled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AsmError {
    /// A jump to a label that does not exist.
    #[error("no label '{0}'")]
    NoLabel(String),
    /// Two labels with the same name.
    #[error("label '{0}' is defined twice")]
    LabelTwice(String),
    /// A jump too far for its 16-bit offset.
    #[error("label '{0}' is too far away")]
    TooFar(String),
}

/// A program being written.
#[derive(Debug, Default)]
pub struct Assembler {
    insns: Vec<Insn>,
    labels: HashMap<String, usize>,
    jumps: Vec<(usize, String)>,
    twice: Option<String>,
}

// Classes and modes of the first byte of an instruction.
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const JMP: u8 = 0x05;
const ALU64: u8 = 0x07;
const FROM_REGISTER: u8 = 0x08;
const MEM: u8 = 0x60;
const ATOMIC: u8 = 0xc0;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// Marks a 64-bit constant as the file descriptor of a map.
const PSEUDO_MAP_FD: u8 = 1;
/// Marks the number of a call as the BTF id of a kernel function.
const PSEUDO_KFUNC_CALL: u8 = 2;
/// Makes an atomic operation return the value from before it.
const FETCH: i32 = 1;
/// The atomic operation that stores a value; it exists only with [`FETCH`].
const EXCHANGE: i32 = 0xe0;

impl Assembler {
    pub fn new() -> Self {
        Assembler::default()
    }

    /// Defines a label at the next instruction.
    pub fn label(&mut self, name: impl Into<String>) -> &mut Self {
        let name = name.into();
        if self.labels.insert(name.clone(), self.insns.len()).is_some() {
            self.twice.get_or_insert(name);
        }
        self
    }

    /// `dst = dst OP operand`; with [`Alu::Mov`], `dst = operand`.
    pub fn alu(&mut self, op: Alu, dst: Reg, operand: impl Into<Operand>) -> &mut Self {
        match operand.into() {
            Operand::Reg(src) => self.push(ALU64 | op as u8 | FROM_REGISTER, dst, src as u8, 0, 0),
            Operand::Imm(imm) => self.push(ALU64 | op as u8, dst, 0, 0, imm),
        }
    }

    /// `dst = operand`.
    pub fn mov(&mut self, dst: Reg, operand: impl Into<Operand>) -> &mut Self {
        self.alu(Alu::Mov, dst, operand)
    }

    /// `dst = dst + operand`.
    pub fn add(&mut self, dst: Reg, operand: impl Into<Operand>) -> &mut Self {
        self.alu(Alu::Add, dst, operand)
    }

    /// `dst = *(base + off)`.
    pub fn load(&mut self, size: Size, dst: Reg, base: Reg, off: i16) -> &mut Self {
        self.push(LDX | MEM | size as u8, dst, base as u8, off, 0)
    }

    /// `*(base + off) = operand`.
    pub fn store(
        &mut self,
        size: Size,
        base: Reg,
        off: i16,
        operand: impl Into<Operand>,
    ) -> &mut Self {
        match operand.into() {
            Operand::Reg(src) => self.push(STX | MEM | size as u8, base, src as u8, off, 0),
            Operand::Imm(imm) => self.push(ST | MEM | size as u8, base, 0, off, imm),
        }
    }

    /// `*(base + off) += src`, atomically, 64 bits.
    pub fn atomic_add(&mut self, base: Reg, off: i16, src: Reg) -> &mut Self {
        self.push(STX | ATOMIC | Size::Double as u8, base, src as u8, off, Alu::Add as i32)
    }

    /// Atomic on 64 bits: `*(base + off) += src`, and `src` = the value from before. Since Linux
    /// 5.12.
    pub fn atomic_fetch_add(&mut self, base: Reg, off: i16, src: Reg) -> &mut Self {
        let add = Alu::Add as i32 | FETCH;
        self.push(STX | ATOMIC | Size::Double as u8, base, src as u8, off, add)
    }

    /// Atomic on 64 bits: `*(base + off)` = `src`, and `src` = the value from before. Since Linux
    /// 5.12.
    pub fn atomic_exchange(&mut self, base: Reg, off: i16, src: Reg) -> &mut Self {
        let exchange = EXCHANGE | FETCH;
        self.push(STX | ATOMIC | Size::Double as u8, base, src as u8, off, exchange)
    }

    /// `dst` = a constant of 64 bits.
    pub fn wide(&mut self, dst: Reg, value: u64) -> &mut Self {
        self.push(LD | Size::Double as u8, dst, 0, 0, value as u32 as i32);
        self.push(0, Reg::R0, 0, 0, (value >> 32) as i32)
    }

    /// `dst` = the map with this descriptor, which must stay open until the program is loaded.
    pub fn map(&mut self, dst: Reg, map: BorrowedFd) -> &mut Self {
        let wide = LD | Size::Double as u8;
        self.push(wide, dst, PSEUDO_MAP_FD, 0, map.as_raw_fd());
        self.push(0, Reg::R0, 0, 0, 0)
    }

    /// Jumps to a label.
    pub fn jump(&mut self, label: impl Into<String>) -> &mut Self {
        self.jumps.push((self.insns.len(), label.into()));
        self.push(JMP, Reg::R0, 0, 0, 0)
    }

    /// Jumps to a label if `dst CONDITION operand`.
    pub fn jump_if(
        &mut self,
        condition: If,
        dst: Reg,
        operand: impl Into<Operand>,
        label: impl Into<String>,
    ) -> &mut Self {
        self.jumps.push((self.insns.len(), label.into()));
        match operand.into() {
            Operand::Reg(src) => {
                self.push(JMP | condition as u8 | FROM_REGISTER, dst, src as u8, 0, 0)
            }
            Operand::Imm(imm) => self.push(JMP | condition as u8, dst, 0, 0, imm),
        }
    }

    /// Calls a kernel helper.
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(JMP | CALL, Reg::R0, 0, 0, helper as i32)
    }

    /// Calls a kernel function that is not a helper but exported to programs
    /// (Documentation/bpf/kfuncs.rst), by its id in the kernel's BTF.
    pub fn call_function(&mut self, id: u32) -> &mut Self {
        self.push(JMP | CALL, Reg::R0, PSEUDO_KFUNC_CALL, 0, id as i32)
    }

    /// Ends the program; the result is in `R0`.
    pub fn exit(&mut self) -> &mut Self {
        self.push(JMP | EXIT, Reg::R0, 0, 0, 0)
    }

    /// Returns the program with every jump resolved. Errors if a label is missing, defined twice,
    /// or too far from a jump.
    pub fn finish(self) -> Result<Vec<Insn>, AsmError> {
        if let Some(name) = self.twice {
            return Err(AsmError::LabelTwice(name));
        }
        let mut insns = self.insns;
        for (at, name) in self.jumps {
            let Some(target) = self.labels.get(&name) else { return Err(AsmError::NoLabel(name)) };
            // Offsets count from the instruction after the jump.
            let off = *target as i64 - at as i64 - 1;
            match (i16::try_from(off), insns.get_mut(at)) {
                (Ok(off), Some(insn)) => insn.off = off,
                _ => return Err(AsmError::TooFar(name)),
            }
        }
        Ok(insns)
    }

    fn push(&mut self, code: u8, dst: Reg, src: u8, off: i16, imm: i32) -> &mut Self {
        let dst = dst as u8;
        // Two bit fields of four bits each, which C lays out in byte order.
        let registers =
            if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
        self.insns.push(Insn { code, registers, off, imm });
        self
    }
}

/// Kernel helpers that a program may call, by their numbers in `__BPF_FUNC_MAPPER`,
/// uapi/linux/bpf.h; described in bpf-helpers(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    KtimeGetNs = 5,
    GetPrandomU32 = 7,
    GetSmpProcessorId = 8,
    GetCurrentPidTgid = 14,
    GetCurrentComm = 16,
    Redirect = 23,
    GetStackId = 27,
    RedirectMap = 51,
    ProbeReadUser = 112,
    ProbeReadKernel = 113,
    TaskStorageGet = 156,
    GetCurrentTaskBtf = 158,
}

#[cfg(test)]
mod tests {
    use super::Reg::*;
    use super::*;

    type Write = fn(&mut Assembler);

    /// Encodings as `llvm-mc -triple=bpfel -show-encoding` prints them.
    const ENCODINGS: &[(&str, Write, [u8; 8])] = &[
        ("r1 = 7", |a| _ = a.mov(R1, 7), [0xb7, 1, 0, 0, 7, 0, 0, 0]),
        ("r6 = r1", |a| _ = a.mov(R6, R1), [0xbf, 0x16, 0, 0, 0, 0, 0, 0]),
        ("r2 += -8", |a| _ = a.add(R2, -8), [0x07, 2, 0, 0, 0xf8, 0xff, 0xff, 0xff]),
        ("r3 *= r3", |a| _ = a.alu(Alu::Mul, R3, R3), [0x2f, 0x33, 0, 0, 0, 0, 0, 0]),
        ("r3 -= r4", |a| _ = a.alu(Alu::Sub, R3, R4), [0x1f, 0x43, 0, 0, 0, 0, 0, 0]),
        ("r3 >>= 10", |a| _ = a.alu(Alu::Rsh, R3, 10), [0x77, 3, 0, 0, 10, 0, 0, 0]),
        ("r3 <<= 32", |a| _ = a.alu(Alu::Lsh, R3, 32), [0x67, 3, 0, 0, 32, 0, 0, 0]),
        ("r3 &= 255", |a| _ = a.alu(Alu::And, R3, 255), [0x57, 3, 0, 0, 0xff, 0, 0, 0]),
        ("r3 |= r1", |a| _ = a.alu(Alu::Or, R3, R1), [0x4f, 0x13, 0, 0, 0, 0, 0, 0]),
        (
            "r1 = *(u8 *)(r2 + 4)",
            |a| _ = a.load(Size::Byte, R1, R2, 4),
            [0x71, 0x21, 4, 0, 0, 0, 0, 0],
        ),
        (
            "r1 = *(u16 *)(r2 + 0)",
            |a| _ = a.load(Size::Half, R1, R2, 0),
            [0x69, 0x21, 0, 0, 0, 0, 0, 0],
        ),
        (
            "r1 = *(u32 *)(r2 + 0)",
            |a| _ = a.load(Size::Word, R1, R2, 0),
            [0x61, 0x21, 0, 0, 0, 0, 0, 0],
        ),
        (
            "r1 = *(u64 *)(r10 - 8)",
            |a| _ = a.load(Size::Double, R1, R10, -8),
            [0x79, 0xa1, 0xf8, 0xff, 0, 0, 0, 0],
        ),
        (
            "*(u64 *)(r10 - 8) = 0",
            |a| _ = a.store(Size::Double, R10, -8, 0),
            [0x7a, 0x0a, 0xf8, 0xff, 0, 0, 0, 0],
        ),
        (
            "*(u32 *)(r10 - 4) = r1",
            |a| _ = a.store(Size::Word, R10, -4, R1),
            [0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0],
        ),
        (
            "lock *(u64 *)(r0 + 16) += r1",
            |a| _ = a.atomic_add(R0, 16, R1),
            [0xdb, 0x10, 16, 0, 0, 0, 0, 0],
        ),
        (
            "r1 = atomic_fetch_add((u64 *)(r0 + 16), r1)",
            |a| _ = a.atomic_fetch_add(R0, 16, R1),
            [0xdb, 0x10, 16, 0, 1, 0, 0, 0],
        ),
        (
            "r1 = xchg_64(r0 + 16, r1)",
            |a| _ = a.atomic_exchange(R0, 16, R1),
            [0xdb, 0x10, 16, 0, 0xe1, 0, 0, 0],
        ),
        (
            "call kernel-function 70000",
            |a| _ = a.call_function(70_000),
            [0x85, 0x20, 0, 0, 0x70, 0x11, 1, 0],
        ),
        ("call 5", |a| _ = a.call(Helper::KtimeGetNs), [0x85, 0, 0, 0, 5, 0, 0, 0]),
        ("exit", |a| _ = a.exit(), [0x95, 0, 0, 0, 0, 0, 0, 0]),
    ];

    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_encoded_as_llvm_does() {
        for (text, write, bytes) in ENCODINGS {
            let mut asm = Assembler::new();
            write(&mut asm);
            let insns = asm.finish().unwrap();
            assert_eq!(insns.len(), 1, "{text}");
            assert_eq!(encode(insns[0]), *bytes, "{text}");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn jumps_count_from_the_next_instruction() {
        let mut asm = Assembler::new();
        asm.label("top").jump_if(If::Eq, R0, 0, "end");
        asm.jump_if(If::SLt, R1, R2, "end").jump("top").label("end").exit();
        let code: Vec<_> = asm.finish().unwrap().into_iter().map(encode).collect();
        assert_eq!(code[0], [0x15, 0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(code[1], [0xcd, 0x21, 1, 0, 0, 0, 0, 0]);
        assert_eq!(code[2], [0x05, 0, 0xfd, 0xff, 0, 0, 0, 0]);
    }

    #[test]
    fn conditions_have_the_codes_of_the_standard() {
        let codes = [
            (If::Eq, 0x1d),
            (If::Gt, 0x2d),
            (If::Ge, 0x3d),
            (If::Set, 0x4d),
            (If::Ne, 0x5d),
            (If::SGt, 0x6d),
            (If::Lt, 0xad),
            (If::SLt, 0xcd),
        ];
        for (condition, code) in codes {
            let mut asm = Assembler::new();
            asm.jump_if(condition, R1, R2, "here").label("here").exit();
            assert_eq!(asm.finish().unwrap()[0].code, code, "{condition:?}");
        }
    }

    #[test]
    fn a_map_takes_two_instructions() {
        use std::os::fd::AsFd;
        let file = tempfile::tempfile().unwrap();
        let mut asm = Assembler::new();
        asm.map(R1, file.as_fd());
        let insns = asm.finish().unwrap();
        assert_eq!((insns.len(), insns[0].code), (2, 0x18));
        assert_eq!((insns[0].registers, insns[0].imm), (0x11, file.as_raw_fd()));
    }

    #[test]
    fn a_wide_constant_takes_two_instructions() {
        let mut asm = Assembler::new();
        asm.wide(R2, 0x8123_4567_89ab_cdef);
        let insns = asm.finish().unwrap();
        assert_eq!((insns.len(), insns[0].code, insns[1].code), (2, 0x18, 0));
        assert_eq!((insns[0].imm as u32, insns[1].imm as u32), (0x89ab_cdef, 0x8123_4567));
    }

    #[test]
    fn labels_have_to_be_there_once_and_near() {
        let mut asm = Assembler::new();
        asm.jump("nowhere");
        assert_eq!(asm.finish(), Err(AsmError::NoLabel("nowhere".into())));
        let mut asm = Assembler::new();
        asm.label("a").exit().label("a");
        assert_eq!(asm.finish(), Err(AsmError::LabelTwice("a".into())));
        let mut asm = Assembler::new();
        asm.jump("far");
        (0..40_000).for_each(|_| _ = asm.exit());
        asm.label("far");
        assert_eq!(asm.finish(), Err(AsmError::TooFar("far".into())));
    }

    fn encode(insn: Insn) -> [u8; 8] {
        let ([a, b], [c, d, e, f]) = (insn.off.to_le_bytes(), insn.imm.to_le_bytes());
        [insn.code, insn.registers, a, b, c, d, e, f]
    }
}
