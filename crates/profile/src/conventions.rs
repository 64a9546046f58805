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
    if text.starts_with('[') {
        let user = ["[vdso", "[vsyscall", "[heap", "[stack", "[anon", "[uprobes", "[vvar"];
        let kind = if user.iter().any(|name| text.starts_with(name)) {
            FrameKind::User
        } else {
            FrameKind::Kernel
        };
        return (text.into(), kind);
    }
    (text.into(), FrameKind::User)
}

/// For whom a thread works, as far as its name alone shows.
pub(crate) fn owner(comm: &str, pid: Option<u32>) -> Owner {
    if comm == "swapper" && pid.is_none_or(|pid| pid == 0) || comm.starts_with("swapper/") {
        Owner::Idle
    } else {
        kernel_thread(comm).unwrap_or_default()
    }
}

/// Takes down where a profile is from, as the comments say that `perf script` and
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
    match event.split(':').next().unwrap_or(event) {
        "cpu-clock" | "task-clock" => Weight::Nanoseconds,
        _ => Weight::Events,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("[unknown]", "", Unknown),
            ("", "", Unknown),
            ("/usr/bin/perf", "/usr/bin/perf", User),
            ("libc.so.6", "libc.so.6", User),
        ] {
            assert_eq!(module(text), (name.to_owned(), kind), "{text}");
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
