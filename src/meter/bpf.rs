//! Programs in the kernel, for the meter `cpu` and for `observe`: the kernel's types,
//! loading and attaching, and what to say where it is refused.

use crate::record::{Fault, FaultKind};
use crate::sys::Roots;
use crate::sys::bpf::asm::{AsmError, Insn};
use crate::sys::bpf::{Hook, Link, Program, Refused};
use crate::sys::btf::{Btf, Kind};
use std::io;

/// The kernel's own description of its types.
pub fn types(roots: &Roots) -> Result<Btf, Fault> {
    Btf::kernel(&roots.sys)
        .map_err(|e| too_old(format!("the kernel does not describe its types (BTF): {e}")))
}

/// A program for a typed tracepoint, by the tracepoint's name.
pub fn load_typed(
    btf: &Btf,
    name: &str,
    insns: Result<Vec<Insn>, AsmError>,
) -> Result<Program, Fault> {
    let id = btf
        .id(Kind::Typedef, &format!("btf_trace_{name}"))
        .ok_or_else(|| too_old(format!("this kernel has no tracepoint {name}")))?;
    load(Hook::TypedTracepoint(id), name, insns)
}

/// A program by the name of what it is for.
pub fn load(hook: Hook, name: &str, insns: Result<Vec<Insn>, AsmError>) -> Result<Program, Fault> {
    let insns = insns
        .map_err(|e| Fault::new(FaultKind::System, format!("the BPF program for {name}: {e}")))?;
    Program::load(hook, name, &insns).map_err(|refused| load_fault(name, &refused))
}

/// Attaches a program.
pub fn attach(program: &Program, name: &str) -> Result<Link, Fault> {
    program.attach().map_err(|e| attach_fault(name, &e))
}

/// What to say of a program that could not be attached.
pub fn attach_fault(name: &str, error: &io::Error) -> Fault {
    with_remedy(Fault::system(format!("cannot attach a BPF program to {name}"), error))
}

/// EPERM is about who asks; everything else about the program.
fn load_fault(name: &str, refused: &Refused) -> Fault {
    let message = format!("the kernel refuses the BPF program for {name}: {refused}");
    match refused.error.raw_os_error() {
        Some(libc::EPERM) => with_remedy(Fault::new(FaultKind::Permission, message)),
        _ => Fault::new(FaultKind::Unsupported, message),
    }
}

/// Adds what gives the right to load programs, where it is missing.
pub fn with_remedy(fault: Fault) -> Fault {
    match fault.kind {
        FaultKind::Permission => fault.remedy("run it as root, or with CAP_BPF and CAP_PERFMON"),
        _ => fault,
    }
}

/// What counting needs and this kernel does not have.
pub fn too_old(message: String) -> Fault {
    Fault::new(FaultKind::Unsupported, message)
        .remedy("boot Linux 5.12 or later with CONFIG_DEBUG_INFO_BTF")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_program_cause_and_remedy() {
        let refused =
            Refused { error: io::Error::from_raw_os_error(libc::EPERM), log: String::new() };
        let fault = load_fault("sys_enter", &refused);
        assert_eq!(fault.kind, FaultKind::Permission);
        assert!(fault.to_string().contains("sys_enter") && fault.to_string().contains("CAP_BPF"));
        let refused = Refused {
            error: io::Error::from_raw_os_error(libc::EACCES),
            log: "R0 !read_ok".into(),
        };
        let fault = load_fault("sys_enter", &refused);
        assert_eq!(fault.kind, FaultKind::Unsupported);
        assert!(fault.message.contains("R0 !read_ok"), "{fault}");
    }
}
