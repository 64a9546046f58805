//! Every parser of `sys::procfs`, and those of pktgen and interrupts, on any text: a value or an error, no panic.

use bytepath::sys::{interrupts, pktgen, procfs};

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
    // What is quoted in an error is bounded, however long the text.
    for error in [schedstat.err(), switches.err(), pktgen::parse(&text).err()].into_iter().flatten()
    {
        assert!(error.to_string().chars().count() < 160);
    }
}
