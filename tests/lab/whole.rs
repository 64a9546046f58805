//! Everything visible of a network namespace, most of it read by iproute2, which shares no code
//! with bytepath; and settings that are made and undone, after which it has to be as before.

use crate::running::await_that;
use bytepath::host::{Fingerprint, differences};
use bytepath::record::{Restoration, Setting};
use bytepath::settings::{Applied, StateFolder, ThisMachine};
use bytepath::sys::Roots;
use bytepath::sys::netlink::Netlink;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Devices with what a setting could change along with itself: a pair with two queues, a device on
/// top of it, a tap; an address, a route and a neighbour of each family.
const FURNITURE: &[&str] = &[
    "link add any0 numrxqueues 2 numtxqueues 2 type veth peer name any1 numrxqueues 2 numtxqueues 2",
    "link set any0 mtu 3000 up",
    "link set any1 mtu 3000 up",
    "link add link any0 name any2 type macvlan",
    "link set any2 up",
    "tuntap add any3 mode tap",
    "addr add 192.0.2.1/24 dev any0",
    "addr add 2001:db8::1/64 dev any0 nodad",
    "route add 198.51.100.0/24 via 192.0.2.9 dev any0",
    "route add 2001:db8:1::/64 via 2001:db8::9 dev any0",
    "neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev any0 nud permanent",
    "neigh add 2001:db8::9 lladdr 02:00:00:00:00:09 dev any0 nud permanent",
];

/// A setting of each kind that such devices could have; some of them have it.
pub const KINDS: &[&str] = &[
    "mtu any0 1400",
    "mtu any0 9000",
    "mtu any2 2000",
    "channels any0 rx=1 tx=1",
    "feature any0 rx-gro=on",
    "feature any0 tx-tcp-segmentation=off",
    "threaded-napi any0 on",
    "napi any0 defer-hard-irqs=3 gro-flush-timeout=20000",
    "packet-limits any0 gso=60000 gro-ipv4=100000",
    "qdisc any0 pfifo",
    "rps any0 0",
    "xps any0 1 0",
    "tap any3 vnet-hdr=on",
    "rings any0 rx=512",
    "coalescing any0 rx-usecs=30",
    "spread any0 queues=1",
    "flow any0 dst-port=5201 queue=1",
];

/// Parameters that may change without any setting.
const RESTLESS: &[&str] =
    &["carrier_changes", "carrier_up_count", "carrier_down_count", "nf_conntrack_count"];

/// Settings that were tried, and what went wrong.
pub struct Trials {
    place: StateFolder,
    before: Fingerprint,
    /// Settings that were made and undone.
    pub made: Vec<String>,
    /// Settings that were refused.
    pub refused: Vec<String>,
    /// What differed afterwards, or was reported wrongly.
    pub findings: Vec<String>,
}

impl Trials {
    /// Makes the devices; the journal goes to `place`.
    pub fn begin(place: StateFolder) -> Trials {
        for line in FURNITURE {
            ip(line);
        }
        let queues = Path::new("/sys/class/net/any0/queues");
        for (file, text) in
            [("rx-1/rps_cpus", "1"), ("rx-1/rps_flow_cnt", "64"), ("tx-1/xps_cpus", "1")]
        {
            fs::write(queues.join(file), text).unwrap();
        }
        fs::write("/proc/sys/net/ipv6/conf/any0/mtu", "2900").unwrap();
        let (made, refused, findings) = Default::default();
        Trials { place, before: settled(), made, refused, findings }
    }

    /// Removes the devices.
    pub fn end(self) -> Trials {
        ip("link del any0");
        ip("link del any3");
        self
    }

    /// Makes the first of these settings that can be made, and undoes it.
    pub fn attempt(&mut self, lines: &[String]) {
        for line in lines {
            let is_made = self.attempt_one(line);
            if is_made {
                return self.made.push(line.clone());
            }
        }
        self.refused.extend(lines.first().cloned());
    }

    fn attempt_one(&mut self, line: &str) -> bool {
        let Ok(setting) = line.parse::<Setting>() else { return false };
        let machine = ThisMachine::new(Roots::real());
        let made = Applied::apply(&self.place, machine, &[setting.into()]);
        let is_made = made.is_ok();
        let said = match made {
            Err(fault) => vec![fault.to_string()],
            Ok((applied, _)) => applied.undo().iter().map(ToString::to_string).collect(),
        };
        let sound = |row: &String| !row.contains("NOT restored") && !row.contains("left alone");
        let deadline = Instant::now() + Duration::from_secs(2);
        let mut left = differences(&self.before, &look());
        // The kernel may restore some of it a moment later.
        while !left.is_empty() && Instant::now() < deadline {
            left = differences(&self.before, &look());
        }
        if !left.is_empty() || self.place.journal().exists() || !said.iter().all(sound) {
            self.findings.push(format!(
                "{line}: {}; it was said: {}",
                left.join(", "),
                said.join("; ")
            ));
            let _ = fs::remove_file(self.place.journal());
            self.before = settled();
        }
        is_made
    }
}

/// Returns every sysctl of the namespace whose file is writable, for devices only those of any0,
/// with values near its present one.
pub fn all_sysctls() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (name, path) in files(Path::new("/proc/sys/net"), "net") {
        let of_other = ["lo", "any1", "any2", "any3", "set0", "set1", "all", "default"];
        // Not confined to a namespace: a change would be global and permanent.
        let is_left_out = name.split('.').any(|part| of_other.contains(&part))
            || name == "net.netfilter.nf_hooks_lwtunnel";
        let may_write = fs::metadata(&path).is_ok_and(|of| of.permissions().mode() & 0o200 != 0);
        if is_left_out || !may_write {
            continue;
        }
        let now = fs::read_to_string(&path).unwrap_or_default();
        let near = near(&now);
        all.push(near.iter().map(|value| format!("sysctl {name}={value}")).collect());
    }
    all
}

/// Returns values near this one, which is in the kernel's notation.
fn near(now: &str) -> Vec<String> {
    let words: Vec<&str> = now.split_whitespace().collect();
    let numbers: Option<Vec<i128>> = words.iter().map(|word| word.parse().ok()).collect();
    let Some(mut numbers) = numbers.filter(|numbers| !numbers.is_empty()) else {
        return ["1", "5,3,4", "reno", "nfnetlink_log", "userspace"].map(str::to_owned).to_vec();
    };
    const NEAR: [fn(i128) -> i128; 5] = [|n| n + 1, |n| n - 1, |n| n * 2, |n| n / 2, |n| n + 4];
    let mut all = Vec::new();
    for change in NEAR {
        let last = numbers.len() - 1;
        let was = numbers[last];
        numbers[last] = change(was);
        all.push(numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
        numbers[last] = was;
    }
    all
}

/// Returns a [`look`] once two agree: addresses are probed, and routes follow them.
fn settled() -> Fingerprint {
    let mut last = look();
    await_that("two looks agree", || {
        let before = std::mem::replace(&mut last, look());
        before == last && !last.keys().any(|key| key.ends_with("/tentative"))
    });
    last
}

/// Reads everything about the namespace.
pub fn look() -> Fingerprint {
    let mut all = Fingerprint::new();
    let mut attributes = files(Path::new("/proc/sys/net"), "net");
    for device in names("/sys/class/net") {
        let folder = Path::new("/sys/class/net").join(&device);
        for name in names(&folder).into_iter().filter(|name| folder.join(name).is_file()) {
            attributes.push((format!("{device}.{name}"), folder.join(name)));
        }
        for queue in names(folder.join("queues")) {
            let queues = folder.join("queues").join(&queue);
            for file in ["rps_cpus", "rps_flow_cnt", "xps_cpus", "xps_rxqs", "tx_maxrate"] {
                attributes.push((format!("{device}.{queue}.{file}"), queues.join(file)));
            }
        }
        let mut netlink = Netlink::new();
        if let Ok(Some(link)) = netlink.link(&device) {
            let text = format!("{:?} {:?}", netlink.features(link.index).ok(), link.limits);
            all.insert(format!("{device} features"), text);
            let numbers = (netlink.channels(link.index).ok(), netlink.rings(link.index).ok());
            all.insert(format!("{device} queues"), format!("{numbers:?}"));
        }
    }
    for (name, path) in attributes {
        if !RESTLESS.iter().any(|restless| name.ends_with(restless)) {
            all.insert(name, fs::read_to_string(path).unwrap_or_else(|e| e.kind().to_string()));
        }
    }
    for (program, line) in [
        ("ip", "-j -d addr show"),
        ("ip", "-j -d route show table all"),
        ("ip", "-j -d -6 route show table all"),
        ("ip", "-j -d neigh show"),
        ("ip", "-j rule show"),
        ("tc", "-j qdisc show"),
    ] {
        let output = Command::new(program).args(line.split(' ')).output().unwrap();
        let shown = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        flatten(&shown, &format!("{program} {line}"), &mut all);
    }
    all
}

/// Enters each text and number of a JSON value, except counters and times that run down.
fn flatten(value: &Value, name: &str, all: &mut Fingerprint) {
    const RUNNING: &[&str] =
        &["valid_life_time", "preferred_life_time", "expires", "used", "confirmed", "updated"];
    match value {
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                flatten(value, &format!("{name}/{at}"), all);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields.iter().filter(|(key, _)| !RUNNING.contains(&key.as_str())) {
                flatten(value, &format!("{name}/{key}"), all);
            }
        }
        leaf => drop(all.insert(name.to_owned(), leaf.to_string())),
    }
}

/// The files below a folder, with their dotted names.
fn files(folder: &Path, name: &str) -> Vec<(String, std::path::PathBuf)> {
    let mut found = Vec::new();
    for entry in names(folder) {
        let (path, name) = (folder.join(&entry), format!("{name}.{}", entry.replace('.', "/")));
        match path.is_dir() {
            true => found.extend(files(&path, &name)),
            false => found.push((name, path)),
        }
    }
    found
}

fn names(folder: impl AsRef<Path>) -> Vec<String> {
    bytepath::sys::attribute::names(folder.as_ref())
}

/// Runs ip(8) with these words.
pub fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "ip {line}: {said}");
}

/// Whether everything was restored.
pub fn is_restored(rows: &[bytepath::record::RestorationRow]) -> bool {
    rows.iter().all(|row| row.outcome == Restoration::Restored)
}
