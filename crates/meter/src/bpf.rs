//! BPF programs for meters and for `observe`: the kernel's types, loading and attaching, errors for
//! refused ones, and building blocks of programs.

use Reg::*;
use bytepath_record::{Facts, Fault, FaultKind, Support};
use bytepath_sys::Roots;
use bytepath_sys::bpf::asm::{Alu, AsmError, Assembler, Helper, If, Insn, Reg};
use bytepath_sys::bpf::{Hook, Link, Map, MapKind, Program, Refused, Update};
use bytepath_sys::btf::{Btf, Kind};
use std::io;
use std::os::fd::AsFd;

/// Reads the kernel's description of its types.
pub fn types(roots: &Roots) -> Result<Btf, Fault> {
    Btf::kernel(&roots.sys)
        .map_err(|e| too_old(format!("the kernel does not describe its types (BTF): {e}")))
}

/// Loads a program for a typed tracepoint, given the tracepoint's name.
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

/// A program with the name of its typed tracepoint.
pub(crate) type Named<T> = (&'static str, T);

/// Loads programs for typed tracepoints.
pub(crate) fn load_all(
    btf: &Btf,
    programs: impl IntoIterator<Item = Named<Result<Vec<Insn>, AsmError>>>,
) -> Result<Vec<Named<Program>>, Fault> {
    let load = |(name, insns)| Ok((name, load_typed(btf, name, insns)?));
    programs.into_iter().map(load).collect()
}

/// Attaches programs; they run until the links are dropped.
pub(crate) fn attach_all(programs: &[Named<Program>]) -> Result<Vec<Link>, Fault> {
    programs.iter().map(|(name, program)| attach(program, name)).collect()
}

/// Makes a map, or returns why this user cannot.
pub(crate) fn map(
    kind: MapKind,
    name: &str,
    key_size: usize,
    value_size: usize,
    entries: u32,
) -> Result<Map, Fault> {
    let map = Map::new(kind, name, key_size, value_size, entries);
    map.map_err(|e| with_remedy(Fault::system("cannot create BPF maps", &e)))
}

/// Returns the offset of a member of `task_struct`, in bytes.
pub(crate) fn task_member(btf: &Btf, path: &str) -> Result<i16, Fault> {
    let offset = btf.offset("task_struct", path).and_then(|at| i16::try_from(at).ok());
    offset.ok_or_else(|| too_old(format!("this kernel has no task_struct.{path}")))
}

/// Whether there is a typed tracepoint with this name.
pub fn has_typed(btf: &Btf, name: &str) -> bool {
    btf.id(Kind::Typedef, &format!("btf_trace_{name}")).is_some()
}

/// Loads a program; `name` is what it attaches to.
pub fn load(hook: Hook, name: &str, insns: Result<Vec<Insn>, AsmError>) -> Result<Program, Fault> {
    let insns = insns.map_err(|e| Fault::failed(format!("the BPF program for {name}: {e}")))?;
    Program::load(hook, name, &insns).map_err(|refused| load_fault(name, &refused))
}

pub fn attach(program: &Program, name: &str) -> Result<Link, Fault> {
    program.attach().map_err(|e| attach_fault(name, &e))
}

/// Makes the fault for a program that could not be attached.
pub fn attach_fault(name: &str, error: &io::Error) -> Fault {
    with_remedy(Fault::system(format!("cannot attach a BPF program to {name}"), error))
}

/// EPERM concerns the user; every other error the program.
fn load_fault(name: &str, refused: &Refused) -> Fault {
    let message = format!("the kernel refuses the BPF program for {name}: {refused}");
    match refused.error.raw_os_error() {
        Some(libc::EPERM) => with_remedy(Fault::new(FaultKind::Permission, message)),
        _ => Fault::unsupported(message),
    }
}

/// Adds how to get permission to load programs, if that is missing.
pub fn with_remedy(fault: Fault) -> Fault {
    match fault.kind {
        FaultKind::Permission => fault.remedy("run it as root, or with CAP_BPF and CAP_PERFMON"),
        _ => fault,
    }
}

/// Makes the fault for something that counting needs and this kernel lacks.
pub fn too_old(message: String) -> Fault {
    Fault::unsupported(message).remedy("boot Linux 5.12 or later with CONFIG_DEBUG_INFO_BTF")
}

/// Refuses emulated processors: attaching rewrites kernel code that other CPUs are running. QEMU
/// 7.2 does not emulate that reliably with several CPUs: some of ten guests with Linux 7.3 panicked
/// ("Fatal exception in interrupt") or hung.
pub fn refuse_emulated(roots: &Roots) -> Result<(), Fault> {
    if !is_emulated(roots) {
        return Ok(());
    }
    let text = "an emulated processor (QEMU TCG) is not stable with programs at tracepoints";
    Err(Fault::unsupported(text))
}

/// Whether the processor is emulated by QEMU.
pub fn is_emulated(roots: &Roots) -> bool {
    let cpuinfo = std::fs::read_to_string(roots.proc.join("cpuinfo")).unwrap_or_default();
    cpuinfo.contains(EMULATED)
}

/// Part of the name of a processor emulated by QEMU.
const EMULATED: &str = "QEMU TCG";

/// Whether programs at tracepoints could be loaded on a host; they exist since the kernel `since`.
pub(crate) fn supported(facts: &Facts, attempt: &str, since: &str) -> Support {
    if facts.cpu_model.contains(EMULATED) {
        let remedy =
            "let the guest use the processor (KVM: accel=kvm), or measure on the machine itself";
        return facts.require(attempt, remedy);
    }
    // The agent in a guest has all privileges.
    let has = |name: &str| facts.privileges.capabilities.iter().any(|one| one == name);
    let privileges = match facts.privileges.may_monitor() && (has("BPF") || has("SYS_ADMIN")) {
        true => "",
        false => ", and run as root or with CAP_BPF and CAP_PERFMON",
    };
    let remedy = format!("boot Linux {since} or later with CONFIG_DEBUG_INFO_BTF{privileges}");
    facts.require(attempt, &remedy)
}

/// `R0` = the value in a map for the key at offset `key` of the program's stack, or null. Changes
/// R1 to R5.
pub fn lookup(a: &mut Assembler, map: &Map, key: i16) {
    a.map(R1, map.as_fd()).mov(R2, R10).add(R2, i32::from(key)).call(Helper::MapLookup);
}

/// Stores the value at one offset of the stack for the key at another; `R0` is 0 if there was room.
/// Changes R1 to R5.
pub fn update(a: &mut Assembler, map: &Map, key: i16, value: i16, mode: Update) {
    a.map(R1, map.as_fd()).mov(R2, R10).add(R2, i32::from(key));
    a.mov(R3, R10).add(R3, i32::from(value)).mov(R4, mode as i32).call(Helper::MapUpdate);
}

/// Removes the entry for the key on the stack from a map. Changes R0 to R5.
pub fn delete(a: &mut Assembler, map: &Map, key: i16) {
    a.map(R1, map.as_fd()).mov(R2, R10).add(R2, i32::from(key)).call(Helper::MapDelete);
}

/// Jumps to a label if the name in `R2` begins with these bytes. Changes R3 and R4.
pub fn named(a: &mut Assembler, start: &[u8], label: &str) {
    let bytes = |of: &dyn Fn(usize) -> u8| u64::from_ne_bytes(std::array::from_fn(of));
    let mask = bytes(&|i| if i < start.len() { 0xff } else { 0 });
    a.wide(R3, mask).alu(Alu::And, R3, R2);
    a.wide(R4, bytes(&|i| start.get(i).copied().unwrap_or(0))).jump_if(If::Eq, R3, R4, label);
}

/// Builds a program from these instructions, with an exit at the label `out`. The return value of a
/// tracing program does not matter.
pub(crate) fn program(write: impl FnOnce(&mut Assembler)) -> Result<Vec<Insn>, AsmError> {
    let mut asm = Assembler::new();
    write(&mut asm);
    asm.label("out").mov(R0, 0).exit();
    asm.finish()
}

/// Removes all entries from a map and returns them.
pub fn take(map: &Map) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let entries = map.entries()?;
    for (key, _) in &entries {
        match map.delete(key) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(entries)
}

/// Reads a number of this many bytes, at most 8, in native byte order; 0 if some are missing.
pub fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut wide = [0; 8];
    let start = if cfg!(target_endian = "big") { 8 - size } else { 0 };
    if let Some(from) = bytes.get(at..at + size) {
        wide[start..start + size].copy_from_slice(from);
    }
    u64::from_ne_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Attempt, Outcome, Privileges};

    #[test]
    fn load_faults_have_program_cause_and_remedy() {
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

    #[test]
    fn a_remedy_is_one_that_helps_the_host() {
        let remedy = |cpu: &str, capabilities: &[&str]| {
            let outcome = Outcome::Missing("no tracepoint contention_begin".into());
            let capabilities = capabilities.iter().map(|name| (*name).to_owned()).collect();
            let facts = Facts {
                cpu_model: cpu.into(),
                attempts: vec![Attempt { name: "bpf.locks".into(), outcome }],
                privileges: Privileges { capabilities, ..Privileges::default() },
                ..Facts::default()
            };
            let Support::No { remedy, .. } = supported(&facts, "bpf.locks", "5.19") else {
                panic!("it was refused")
            };
            remedy
        };
        let emulated = remedy("QEMU TCG CPU version 2.5+", &["BPF", "PERFMON"]);
        assert!(emulated.contains("accel=kvm") && !emulated.contains("boot"), "{emulated}");
        let guest = remedy("EPYC", &["BPF", "PERFMON"]);
        assert_eq!(guest, "boot Linux 5.19 or later with CONFIG_DEBUG_INFO_BTF");
        assert!(remedy("EPYC", &[]).ends_with("run as root or with CAP_BPF and CAP_PERFMON"));
    }
}
