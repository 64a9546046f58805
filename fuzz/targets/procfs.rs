//! Every parser of `sys::procfs`, those of pktgen and interrupts, of the kernel's symbols and
//! types, and of a process's mappings, on any bytes: a value or an error, without a panic.

use bytepath::profile::symbols::{KernelSymbols, kernel_build_id, parse_maps};
use bytepath::sys::btf::{Btf, Kind};
use bytepath::sys::{cgroup, interrupts, pktgen, procfs};

pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(cpus) = procfs::parse_stat(&text) {
        assert!(!cpus.is_empty());
    }
    if let Ok(rows) = procfs::parse_softnet(&text) {
        assert_eq!(rows.len(), text.lines().count());
    }
    if let Ok(rows) = procfs::parse_softirqs(&text) {
        assert!(rows.len() <= text.split_ascii_whitespace().count());
    }
    if let Ok(rows) = interrupts::parse(&text) {
        assert!(rows.len() <= text.split_ascii_whitespace().count());
    }
    pktgen::has_device(&text);
    cgroup::decode_anything(&text);
    if let Ok(devices) = procfs::parse_net_dev(&text) {
        assert!(devices.iter().all(|device| device.name.trim() == device.name));
    }
    if let Ok(count) = procfs::parse_half_open(&text, 80) {
        assert!(count <= text.lines().count());
    }
    if let Ok(task) = procfs::parse_task_stat(&text) {
        assert!(text.contains(&format!("({})", task.comm)));
    }
    if let Ok(progress) = pktgen::parse(&text) {
        assert!(text.contains(&progress.sent.to_string()));
    }
    let schedstat = procfs::parse_schedstat(&text);
    let switches = procfs::parse_status_switches(&text);
    // Quotations in an error are bounded, no matter how long the text is.
    for error in [schedstat.err(), switches.err(), pktgen::parse(&text).err()].into_iter().flatten()
    {
        assert!(error.to_string().chars().count() < 160);
    }
    assert!(parse_maps(&text).iter().all(|mapping| mapping.start < mapping.end));
    if let Some(id) = kernel_build_id(data) {
        assert!(id.len() <= 2 * data.len());
    }
    symbols(&text, data);
    if let Ok(btf) = Btf::parse(data.to_vec()) {
        let _ = (btf.offset("a", "x.y"), btf.id(Kind::Typedef, "a"));
        (0..8).for_each(|function| _ = btf.arguments(function));
    }
}

/// Names are found at the addresses in the text, and next to them.
fn symbols(text: &str, data: &[u8]) {
    let symbols = KernelSymbols::parse(text.to_owned()).with_modules(text);
    let listed = text.split_ascii_whitespace().filter_map(|w| u64::from_str_radix(w, 16).ok());
    let drawn = data.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    for address in listed.take(64).flat_map(|at| [at, at.wrapping_sub(1)]).chain(drawn) {
        if let Some((name, module)) = symbols.find(address) {
            assert!(text.contains(name) && !module.is_empty());
        }
        assert!(!symbols.frame(address).function.is_empty());
        symbols.object(address);
    }
    let objects = symbols.objects();
    assert!(objects.start <= objects.end);
}
