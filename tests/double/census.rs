//! Counts what a machine holds.

use std::collections::BTreeSet;
use std::fs::{read_dir, read_link, read_to_string, write};

/// Prints the number of tasks, of network namespaces and of threads that poll devices, and the KiB
/// of free memory after caches are dropped, including pages in per-CPU lists. Kernel worker threads
/// come and go, and are not counted.
pub fn census() {
    // A guest may forbid it; then the number is smaller.
    let _ = write("/proc/sys/vm/drop_caches", "3");
    let (mut names, mut namespaces) = (Vec::new(), BTreeSet::new());
    for process in read_dir("/proc").unwrap().flatten() {
        for task in read_dir(process.path().join("task")).into_iter().flatten().flatten() {
            let name = read_to_string(task.path().join("comm")).unwrap_or_default();
            if !name.starts_with("kworker") {
                names.push(name);
            }
            namespaces.extend(read_link(task.path().join("ns/net")));
        }
    }
    let polling = names.iter().filter(|name| name.starts_with("napi/")).count();
    let memory = read_to_string("/proc/meminfo").unwrap();
    let free = memory.lines().find_map(|line| line.strip_prefix("MemFree:")).unwrap();
    let free: u64 = free.trim().trim_end_matches(" kB").parse().unwrap();
    let free = free + in_lists_of_cpus();
    println!("{} {} {polling} {free}", names.len(), namespaces.len());
}

/// KiB of free pages that CPUs keep in their own lists (mm/page_alloc.c, `per_cpu_pages`).
/// `MemFree` does not count them, and they vary by tens of MiB: a freed page first goes to its
/// CPU's list.
fn in_lists_of_cpus() -> u64 {
    let zones = read_to_string("/proc/zoneinfo").unwrap();
    let count = |line: &str| line.trim().strip_prefix("count:")?.trim().parse::<u64>().ok();
    let pages: u64 = zones.lines().filter_map(count).sum();
    pages * PAGE / 1024
}

/// Page size of the guests (x86), in bytes.
const PAGE: u64 = 4096;
