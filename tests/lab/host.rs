//! A host whose settings the real binary makes and restores: the namespace that a test runs in
//! (`isolated.rs`), with its own pair of devices.

use crate::running::{Running, await_that};
use bytepath::host::{Fingerprint, fingerprint};
use bytepath::sys::Roots;
use bytepath::sys::netlink::{Netlink, Veth};
use rustix::fs::CWD;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Settings to make, one of each kind that a veth has.
pub const LINES: &[&str] = &[
    "sysctl net.ipv4.tcp_rmem=4096 131072 50000000",
    "mtu set0 4148",
    "feature set0 tx-tcp-segmentation=off",
    "feature set0 rx-gro=on",
    "threaded-napi set0 on",
    "packet-limits set0 gso=60000 gro-ipv4=100000",
    "qdisc set0 pfifo",
    "rps set0 0",
    "xps set0 0 0",
    "channels set0 rx=1 tx=1",
];

const GROUPS: &str = "/sys/fs/cgroup";

/// The namespace of this process, with a pair of devices and a folder for the journal.
pub struct Host {
    pub dir: tempfile::TempDir,
}

impl Host {
    pub fn new() -> Host {
        // The old /sys shows the devices of the original namespace, and has the control groups.
        let groups =
            open_tree(CWD, GROUPS, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_RECURSIVE);
        mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).unwrap();
        if let Ok(groups) = groups {
            let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(groups, "", CWD, GROUPS, whole).unwrap();
        }
        let mut netlink = Netlink::new();
        let veth = Veth {
            name: "set0".into(),
            peer: "set1".into(),
            peer_process: None,
            mtu: None,
            queues: 2,
        };
        netlink.create_veth(&veth).unwrap();
        for name in ["lo", "set0", "set1"] {
            let index = netlink.link(name).unwrap().unwrap().index;
            netlink.set_up(index).unwrap();
        }
        Host { dir: tempfile::tempdir().unwrap() }
    }

    /// Everything that could have been changed: what bytepath itself reads, and every attribute of
    /// the device, read independently of it.
    pub fn look(&self) -> Fingerprint {
        let mut all = fingerprint(&Roots::real());
        let device = Path::new("/sys/class/net/set0");
        for path in [
            "mtu",
            "threaded",
            "queues/rx-0/rps_cpus",
            "queues/rx-1/rps_cpus",
            "queues/tx-0/xps_cpus",
            "queues/tx-1/xps_cpus",
        ] {
            let text = fs::read_to_string(device.join(path)).unwrap_or_default();
            all.insert(format!("set0/{path}"), text);
        }
        let mut netlink = Netlink::new();
        let link = netlink.link("set0").unwrap().unwrap();
        // All but its counters.
        let qdiscs = netlink.qdiscs(link.index).unwrap().into_iter();
        let qdiscs: Vec<_> = qdiscs.map(|q| (q.kind, q.handle, q.parent, q.options)).collect();
        all.insert("qdisc".into(), format!("{qdiscs:?}"));
        all.insert("limits".into(), format!("{:?}", link.limits));
        all.insert("channels".into(), format!("{:?}", netlink.channels(link.index).unwrap()));
        for feature in netlink.features(link.index).unwrap().active {
            all.insert(format!("feature {feature}"), "on".into());
        }
        all
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        command.env("BYTEPATH_STATE", self.dir.path().join("state"));
        command.current_dir(self.dir.path());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    pub fn study_command(
        &self,
        name: &str,
        (blocks, window): (&str, &str),
        lines: &[&str],
    ) -> Command {
        let mut command = self.command();
        command.args(["run", "--path", "socket", "--warm-up", "0", "--profile", "none"]);
        command.args(["--blocks", blocks, "--window", window, "--design", "trials"]);
        command.args(["--meters", "none", "--study", name]);
        for line in lines {
            command.args(["--set", line]);
        }
        command
    }

    /// Runs a very short study.
    pub fn quick(&self, name: &str, lines: &[&str]) -> Output {
        self.study_command(name, ("1", "400ms"), lines).output().unwrap()
    }

    /// Starts a study that runs until it is stopped, or for a long time.
    pub fn study(&self, name: &str, window: &str, lines: &[&str]) -> Running {
        Running::start(&mut self.study_command(name, ("4", window), lines))
    }

    /// Waits until the journal has this many lines.
    pub fn await_journal(&self, lines: usize) {
        let path = self.dir.path().join("state/journal");
        let found = || fs::read(&path).unwrap_or_default();
        await_that(&format!("the journal has {lines} lines"), || {
            found().iter().filter(|byte| **byte == b'\n').count() >= lines
        });
    }
}
