//! What a machine holds, counted.

use std::collections::BTreeSet;
use std::fs::{read_dir, read_link, read_to_string, write};

/// Prints tasks, network namespaces and threads that poll devices, and the KiB of memory that are
/// free once what only caches is dropped. Threads that the kernel lends to any work come and go, and
/// are not counted.
pub fn census() {
    // A guest may forbid it; the number is smaller then.
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
    let free = free.trim().trim_end_matches(" kB");
    println!("{} {} {polling} {free}", names.len(), namespaces.len());
}
