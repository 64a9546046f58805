//! Normalises the names that tools use: modules, threads, events.

use crate::attribution::kernel_thread;
use crate::{FrameKind, Header, Owner, Weight};

/// A module's name and side, from what a tool calls it: `[kernel.kallsyms]`,
/// the path of a vmlinux, `/lib/modules/.../veth.ko.xz`, `[veth]`, a file.
/// [`FrameKind::Unknown`] if the name does not show it.
pub(crate) fn module(text: &str) -> (String, FrameKind) {
    let text = text.trim();
    if text.is_empty() || text == "[unknown]" || text == "unknown" {
        return (String::new(), FrameKind::Unknown);
    }
    if text.starts_with("[kernel") || text.starts_with("[guest.kernel") {
        return ("[kernel]".into(), FrameKind::Kernel);
    }
    let file = text.rsplit('/').next().unwrap_or(text);
    let stem = [".ko", ".ko.gz", ".ko.xz", ".ko.zst"].iter().find_map(|end| file.strip_suffix(end));
    if let Some(stem) = stem {
        // The kernel spells the names of modules with low lines only.
        return (format!("[{}]", stem.replace('-', "_")), FrameKind::Kernel);
    }
    if file == "vmlinux" || file.starts_with("vmlinux-") || file == "kcore" {
        return ("[kernel]".into(), FrameKind::Kernel);
    }
    // What the kernel's JIT made (kernel/bpf/core.c, trampoline.c).
    let bpf = ["bpf_prog_", "bpf_trampoline_", "bpf_dispatcher_"];
    if bpf.iter().any(|name| text.trim_start_matches('[').starts_with(name)) || text == "[bpf]" {
        return ("[bpf]".into(), FrameKind::Kernel);
    }
    let kind = if is_module_in_brackets(text) { FrameKind::Kernel } else { FrameKind::User };
    (text.into(), kind)
}

/// The same where the address is known, of so many digits: the half of the address space that it
/// is in decides whatever is not named by the kernel.
pub(crate) fn located_module(text: &str, side: FrameKind, digits: usize) -> (String, FrameKind) {
    let (name, kind) = module(text);
    let kind = match (kind, side) {
        (FrameKind::Unknown, side) => side,
        // The page of vsyscalls is up there, and a program's.
        (FrameKind::User, FrameKind::Kernel) if !is_user_mapping(text.trim()) => FrameKind::Kernel,
        // Addresses of 32-bit kernels are as short as those of programs.
        (FrameKind::Kernel, FrameKind::User) if digits > 8 && is_module_in_brackets(&name) => {
            FrameKind::User
        }
        (kind, _) => kind,
    };
    (name, kind)
}

/// Mappings of a process that the kernel names.
const USER_MAPPINGS: [&str; 7] =
    ["[vdso", "[vsyscall", "[heap", "[stack", "[anon", "[uprobes", "[vvar"];

fn is_user_mapping(text: &str) -> bool {
    USER_MAPPINGS.iter().any(|name| text.starts_with(name))
}

/// `[veth]`: the name of a kernel module has no blanks, and no other program's mapping is to be
/// taken for one.
fn is_module_in_brackets(text: &str) -> bool {
    let name = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let is_plain =
        |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    name.is_some_and(|name| !name.is_empty() && is_plain(name)) && !is_user_mapping(text)
}

/// For whom a thread works, as far as its name alone shows.
pub(crate) fn owner(comm: &str, pid: Option<u32>) -> Owner {
    if comm == "swapper" && pid.is_none_or(|pid| pid == 0) || comm.starts_with("swapper/") {
        Owner::Idle
    } else {
        kernel_thread(comm).unwrap_or_default()
    }
}

/// Notes where a profile is from, by the comments that `perf script` and
/// `perf report` print with `--header`.
pub(crate) fn header_line(text: &str, header: &mut Header) {
    let Some((key, value)) = text.trim_start_matches(['#', ' ']).split_once(" : ") else { return };
    match (key.trim(), value.trim()) {
        ("nrcpus online", cpus) => header.cpus = cpus.parse().ok(),
        (key @ ("hostname" | "os release" | "cmdline" | "cpudesc"), value)
            if header.notes.len() < 16 =>
        {
            header.notes.push(format!("{key}: {value}"));
        }
        _ => {}
    }
}

/// What the periods of an event count.
pub(crate) fn weight_of(event: &str) -> Weight {
    // `cpu-clock:u`, `cpu-clock/freq=999/`.
    match event.split([':', '/']).next().unwrap_or(event) {
        "cpu-clock" | "task-clock" => Weight::Nanoseconds,
        // `perf record --off-cpu`: nanoseconds in which a thread waited.
        "offcpu-time" => Weight::Delay,
        _ => Weight::Events,
    }
}

/// What an event counts, whatever its terms and modifiers say about how it is sampled:
/// `cpu-clock/freq=499/`, `cycles:ppp`.
pub(crate) fn counted(event: &str) -> String {
    let parts = event.split_once('/').and_then(|(name, rest)| {
        let (terms, modifiers) = rest.rsplit_once('/')?;
        Some((name, terms, modifiers))
    });
    let (name, terms, modifiers) = parts.unwrap_or_else(|| match event.rsplit_once(':') {
        Some((name, modifiers)) if modifiers.bytes().all(|b| MODIFIERS.contains(&b)) => {
            (name, "", modifiers)
        }
        _ => (event, "", ""),
    });
    let counts = |term: &&str| !SAMPLING.iter().any(|name| term.starts_with(name));
    let terms: Vec<&str> = terms.split(',').filter(counts).collect();
    let modifiers: String = modifiers.chars().filter(|c| "ukhG".contains(*c)).collect();
    format!("{name}/{}/{modifiers}", terms.join(","))
}

/// Modifiers of events (perf-list(1)), of which user, kernel, hypervisor and guest limit what counts.
pub(crate) const MODIFIERS: &[u8] = b"ukhIGHpPSDWeb";

/// Terms that say how an event is sampled (perf-record(1)).
const SAMPLING: [&str; 8] = [
    "freq=",
    "period=",
    "call-graph=",
    "stack-size=",
    "max-stack=",
    "time=",
    "name=",
    "no-inherit",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_count_the_same_however_they_are_sampled() {
        for same in [
            ["cpu-clock", "cpu-clock/freq=499/"],
            ["cpu-clock:u", "cpu-clock/period=1,call-graph=no/u"],
            ["cycles", "cycles:pppH"],
            ["cpu/event=0x3c,freq=99/", "cpu/event=0x3c/p"],
        ] {
            assert_eq!(counted(same[0]), counted(same[1]));
        }
        for different in [
            ["cpu-clock", "cpu-clock:u"],
            ["cpu/event=0x3c/", "cpu/event=0x3d/"],
            ["sched:sched_switch", "sched:sched_wakeup"],
        ] {
            assert_ne!(counted(different[0]), counted(different[1]));
        }
    }

    #[test]
    fn modules_have_one_name() {
        use FrameKind::{Kernel, Unknown, User};
        for (text, name, kind) in [
            ("[kernel.kallsyms]", "[kernel]", Kernel),
            ("[kernel.kallsyms]_text", "[kernel]", Kernel),
            ("[kernel.vmlinux]", "[kernel]", Kernel),
            ("/usr/lib/debug/boot/vmlinux-6.1.0", "[kernel]", Kernel),
            ("/lib/modules/6.1/kernel/net/nf-tables.ko.xz", "[nf_tables]", Kernel),
            ("[veth]", "[veth]", Kernel),
            ("[vdso]", "[vdso]", User),
            ("bpf_prog_2464d80ea47eca54_sys_exit", "[bpf]", Kernel),
            ("[bpf_trampoline_6442]", "[bpf]", Kernel),
            ("[JIT app cache]", "[JIT app cache]", User),
            ("[JIT] tid 77", "[JIT] tid 77", User),
            ("[anon:scudo:primary]", "[anon:scudo:primary]", User),
            ("[unknown]", "", Unknown),
            ("", "", Unknown),
            ("/usr/bin/perf", "/usr/bin/perf", User),
            ("libc.so.6", "libc.so.6", User),
        ] {
            assert_eq!(module(text), (name.to_owned(), kind), "{text}");
        }
    }

    #[test]
    fn an_address_decides_what_no_name_does() {
        use FrameKind::{Kernel, User};
        for (text, side, digits, kind) in [
            ("__entry_SYSCALL_64_trampoline", Kernel, 16, Kernel),
            ("[veth]", Kernel, 16, Kernel),
            ("[veth]", User, 12, User),
            ("[veth]", User, 8, Kernel),
            ("[vsyscall]", Kernel, 16, User),
            ("[kernel.kallsyms]", User, 8, Kernel),
            ("/bin/x", User, 12, User),
            ("[unknown]", Kernel, 16, Kernel),
        ] {
            assert_eq!(located_module(text, side, digits).1, kind, "{text}");
        }
    }

    #[test]
    fn events_with_terms_have_the_unit_of_their_name() {
        for event in ["cpu-clock", "cpu-clock:u", "cpu-clock/freq=999/", "task-clock/period=1/k"] {
            assert_eq!(weight_of(event), Weight::Nanoseconds, "{event}");
        }
        for event in ["cycles", "cpu/event=0x3c/", "cpu/cycles/u", "page-faults"] {
            assert_eq!(weight_of(event), Weight::Events, "{event}");
        }
    }

    #[test]
    fn kernel_threads_are_known_by_name() {
        assert_eq!(owner("swapper", Some(0)), Owner::Idle);
        assert_eq!(owner("swapper", Some(7)), Owner::Unknown);
        assert_eq!(owner("ksoftirqd/3", None), Owner::Ksoftirqd);
        assert_eq!(owner("iou-wrk-42", None), Owner::IoWq);
        assert_eq!(owner("nginx", Some(3)), Owner::Unknown);
    }
}
