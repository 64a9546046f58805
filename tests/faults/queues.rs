//! The queues of the link are changed while a study runs: their number, their offloads, the threads
//! that poll them, the qdisc before them.

use crate::apart::{Apart, QUEUES};
use crate::lab::{Lab, Started};
use crate::studies::{Plan, device, is_survived, namespace_of_an_agent};
use anyhow::{Context, Result};
use bytepath::sys::ethtool::Channels;
use bytepath::sys::lasting_namespace::within;
use bytepath::sys::netlink::Netlink;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::Duration;

/// A change to a device. Some are refused, and the device may no longer exist.
#[derive(Clone, Copy, Debug)]
enum Change {
    Channels {
        rx: u32,
        tx: u32,
    },
    /// Toggles a feature.
    Feature(&'static str),
    Threads(bool),
    Length(u32),
    Discipline(&'static str),
    /// Back to the kernel's default qdisc.
    NoDiscipline,
}

/// Changes queues on one of two testbeds: a link that the study makes, with one queue at each end,
/// or a given pair of devices with several queues each.
pub fn queue(lab: &mut Lab) -> Result<()> {
    let given = lab.one_in(2);
    let apart = if given { Some(Apart::new(lab)?) } else { None };
    let plan = match &apart {
        Some(apart) => apart.plan(lab, 0)?,
        None => Plan::draw(lab, "study"),
    };
    let mut run = Started::of(lab.command(&plan.arguments))?;
    let changes: Vec<(Change, usize)> =
        (0..1 + lab.below(6)).map(|_| (draw(lab), lab.below(100))).collect();
    let wait = lab.below(plan.lasts);
    run.ends_within(Duration::from_millis(wait as u64))?;
    let namespace = match &apart {
        Some(apart) => {
            let place = &apart.places[lab.below(2)];
            Some(File::open(format!("/proc/{}/ns/net", place.pid()))?)
        }
        None => namespace_of_an_agent(lab, &run)?,
    };
    if let Some(namespace) = namespace {
        lab.lines.push(format!("# after {wait} ms: {changes:?}"));
        within(namespace.as_fd(), || {
            for (change, pause) in &changes {
                let _ = make(change);
                sleep(Duration::from_millis(*pause as u64));
            }
        })?;
    }
    match &apart {
        Some(apart) => apart.is_survived(lab, run, &plan),
        None => is_survived(lab, run, &plan),
    }
}

fn draw(lab: &mut Lab) -> Change {
    let mut some = || 1 + lab.below(QUEUES as usize) as u32;
    let (rx, tx) = (some(), some());
    let features = ["rx-gro", "tx-tcp-segmentation", "tx-scatter-gather", "tx-checksum-ip-generic"];
    match lab.below(8) {
        0 | 1 => Change::Channels { rx, tx },
        2 | 3 => Change::Feature(lab.pick(&features)),
        4 => Change::Threads(lab.one_in(2)),
        5 => Change::Length(lab.below(100) as u32),
        6 => Change::Discipline(lab.pick(&["pfifo", "fq", "fq_codel"])),
        _ => Change::NoDiscipline,
    }
}

/// Changes the device in the network namespace of this thread.
fn make(change: &Change) -> Result<()> {
    let mut netlink = Netlink::new();
    let device = device()?;
    let index = netlink.link(&device)?.context("no device")?.index;
    match *change {
        Change::Channels { rx, tx } => {
            let channels = Channels { rx: Some(rx), tx: Some(tx), ..Channels::default() };
            netlink.set_channels(index, &channels)?;
        }
        Change::Feature(name) => {
            let on = netlink.features(index)?.active.iter().any(|active| active == name);
            netlink.set_features(index, &[(name, !on)])?;
        }
        Change::Threads(on) => {
            fs::write(format!("/sys/class/net/{device}/threaded"), if on { "1" } else { "0" })?;
        }
        Change::Length(packets) => netlink.set_queue_length(index, packets)?,
        Change::Discipline(kind) => netlink.replace_root_qdisc(index, kind, 0, &[])?,
        Change::NoDiscipline => netlink.delete_root_qdisc(index)?,
    }
    Ok(())
}
