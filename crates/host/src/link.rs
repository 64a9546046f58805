//! One end of the testbed's link, set up from inside the agent that owns it.
//!
//! Every setting is read back, because the kernel refuses some without an error. On a veth pair,
//! the settings have these effects:
//!
//! - **TSO off** turns off the `tx-tcp*-segmentation` features and leaves
//!   generic segmentation on, as on a NIC without TSO: TCP builds packets of up
//!   to 64 KiB, and the stack cuts them into MSS-sized ones just before the
//!   device (net/core/dev.c, `validate_xmit_skb`). With TSO on, a veth never cuts
//!   them, and the MTU hardly matters.
//! - **GRO** is off by default on a veth, which then hands packets to the peer's
//!   backlog. With GRO on, the device gets its own NAPI instance, which can then
//!   be threaded.
//! - **A qdisc** is absent by default on a veth. Without one, a full ring drops;
//!   with one, it holds the sender back (drivers/net/veth.c, since Linux 6.16),
//!   as the ring of a NIC does.

use super::nics::is_set;
use super::sysctl;
use bytepath_record::wire::LinkEnd;
use bytepath_record::{Cpus, Fault, FaultKind, GRO, HW_GRO, LRO, LinkSettings, Netem};
use bytepath_settings::offloads::is_tso;
use bytepath_sys::namespace::Sysfs;
use bytepath_sys::netlink::{Limits, Link, Napi, Netlink, Veth};
use bytepath_sys::{Roots, procfs, qdisc, tap};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// Time limit for the peer's end to appear.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Sets up this end of a link: the first end creates the pair, the second looks for it. Returns
/// when every setting has been read back and, at the second end, when both ends can send. The
/// second end steers what it receives; the first one does so only if that was requested by name.
/// Returns a note for each optional request that failed.
pub(crate) fn apply(end: &LinkEnd) -> Result<Vec<String>, Fault> {
    if end.second && end.settings.threaded_napi && !end.settings.gro {
        let text = "threaded NAPI needs GRO: without it a veth device has no NAPI to thread";
        return Err(Fault::usage(text).remedy("set gro = true"));
    }
    let mut netlink = Netlink::new();
    let lo = find(&mut netlink, "lo")?;
    netlink.set_up(lo.index).map_err(|e| refused("bringing up the loopback device", &e))?;
    let link = match &end.peer {
        Some((peer, pid)) => make_pair(&mut netlink, end, peer, *pid)?,
        None => found(&mut netlink, &end.device)?,
    };
    configure(&mut netlink, &link, end).map_err(|f| f.context(&end.device))?;
    sysctl::limit(end.settings.wmem)?;
    if end.second {
        wait_for_carrier(&mut netlink, &end.device, end.timeout)?;
    }
    steer(&mut netlink, &link, end).map_err(|f| f.context(&end.device))
}

/// Steers what this end of a link receives, as `apply` has: its device has other queues now.
pub fn steer_link(end: &LinkEnd) -> Result<Vec<String>, Fault> {
    let mut netlink = Netlink::new();
    let link = find(&mut netlink, &end.device)?;
    steer(&mut netlink, &link, end).map_err(|f| f.context(&end.device))
}

/// Waits until a device can send, for at most `timeout` seconds.
pub fn await_carrier(device: &str, timeout: f64) -> Result<(), Fault> {
    wait_for_carrier(&mut Netlink::new(), device, timeout)
}

/// Creates the pair. A pair that is left from earlier settings is removed first, so that no setting
/// outlives the cell that requested it.
fn make_pair(
    netlink: &mut Netlink,
    end: &LinkEnd,
    peer: &str,
    peer_process: u32,
) -> Result<Link, Fault> {
    let what = format!("creating the veth pair {} and {peer}", end.device);
    if let Some(old) = netlink.link(&end.device).map_err(|e| refused(&what, &e))? {
        if old.kind != "veth" {
            let text = format!("{what}: a device of that name exists and is not a veth");
            return Err(Fault::failed(text));
        }
        netlink.delete_link(old.index).map_err(|e| refused(&what, &e))?;
    }
    let pair = Veth {
        name: end.device.clone(),
        peer: peer.to_string(),
        peer_process: Some(peer_process),
        mtu: Some(end.settings.mtu),
        queues: 1,
    };
    netlink.create_veth(&pair).map_err(|e| {
        refused(format!("{what}, MTU {}", end.settings.mtu), &e).remedy(match e.kind() {
            io::ErrorKind::Unsupported => "modprobe veth, or use a kernel with CONFIG_VETH",
            io::ErrorKind::InvalidInput => "a veth takes an MTU of 68 to 65535 bytes",
            _ => "both ends must be in namespaces that this process may administer",
        })
    })?;
    find(netlink, &end.device)
}

/// Finds an existing device, and resets what an earlier link has set if it is a tap.
fn found(netlink: &mut Netlink, name: &str) -> Result<Link, Fault> {
    let link = find(netlink, name)?;
    if link.kind != tap::KIND {
        return Ok(link);
    }
    reset_tap(netlink, &link, name)?;
    find(netlink, name)
}

/// Waits until a device exists.
fn find(netlink: &mut Netlink, name: &str) -> Result<Link, Fault> {
    let found = wait_for(TIMEOUT, || netlink.link(name));
    found.map_err(|e| refused(format!("looking for {name}"), &e))?.ok_or_else(|| {
        let text = format!("there is no device {name}");
        Fault::failed(text).remedy("set up the other end of the link first")
    })
}

/// Waits until both ends can send. A device whose carrier has just come up drops packets until the
/// kernel has activated its queue, and a lost SYN costs a second.
fn wait_for_carrier(netlink: &mut Netlink, device: &str, timeout: f64) -> Result<(), Fault> {
    let begin = Instant::now();
    let both = |netlink: &mut Netlink| -> io::Result<Option<()>> {
        let is_settled = |link: &Link| {
            !link.state_unknown || link.kind == tap::KIND || begin.elapsed() > SETTLING
        };
        let Some(own) = netlink.link(device)?.filter(can_send).filter(is_settled) else {
            return Ok(None);
        };
        // Only the far end of a veth pair is visible here.
        if own.kind != "veth" {
            return Ok(Some(()));
        }
        Ok(netlink.peer(&own)?.filter(|peer| peer.operational).map(drop))
    };
    let what = format!("waiting for the carrier of {device}");
    let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(TIMEOUT);
    let sending = wait_for(timeout, || both(netlink)).map_err(|e| refused(&what, &e))?;
    sending.ok_or_else(|| {
        let text = format!("{what}: none within {} s", timeout.as_secs());
        Fault::failed(text).remedy("check that both ends are plugged in and run at the same speed")
    })
}

/// The kernel handles carrier changes at most once a second (net/core/link_watch.c). An operational
/// state that is still unknown after this time stays unknown.
const SETTLING: Duration = Duration::from_millis(1200);

/// True if a device is up and has a carrier, or is a tap, which accepts packets without one.
pub(super) fn can_send(link: &Link) -> bool {
    link.operational || link.state_unknown || (link.kind == tap::KIND && link.up)
}

/// Calls `ask` every millisecond until it returns something; `None` if it does not in time.
pub(super) fn wait_for<T>(
    timeout: Duration,
    mut ask: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    let start = Instant::now();
    loop {
        match ask()? {
            Some(answer) => return Ok(Some(answer)),
            None if start.elapsed() > timeout => return Ok(None),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Refuses settings that the device below a VLAN, macvlan or the like does not support. Only some
/// kinds refuse them themselves, and then only with "numerical result out of range".
fn check_below(netlink: &mut Netlink, link: &Link, mtu: u32) -> Result<(), Fault> {
    if !link.is_stacked() {
        return Ok(());
    }
    // If it is in a namespace that this process may not administer, it is not visible, and the
    // kernel checks instead.
    let (text, remedy) = match netlink.peer(link).ok().flatten() {
        Some(below) if !below.up => ("the device below it is down".into(), "bring it up".into()),
        Some(below) if below.mtu < mtu => (
            format!("MTU {mtu}: that of the device below it is {}", below.mtu),
            format!("raise that, or request less: --link nic:mtu={}", below.mtu),
        ),
        _ => return Ok(()),
    };
    Err(Fault::unsupported(text).remedy(remedy))
}

fn configure(netlink: &mut Netlink, link: &Link, end: &LinkEnd) -> Result<(), Fault> {
    let settings = &end.settings;
    check_below(netlink, link, settings.mtu)?;
    if end.address.is_ipv4() {
        // On a link that carries only IPv4, IPv6 would add router solicitations and multicast
        // reports to the measurement. If `/proc/sys` is read-only, as in containers, it stays
        // enabled: about ten packets.
        let file = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", end.device);
        let _ = std::fs::write(file, "1");
    }
    // A device that persists from trial to trial already has it.
    let added = netlink.add_address(link.index, end.address, end.prefix);
    added
        .or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })
        .map_err(|e| refused(format!("address {}/{}", end.address, end.prefix), &e))?;
    if let Some((address, hardware)) = end.neighbour {
        netlink
            .set_neighbour(link.index, address, hardware)
            .map_err(|e| refused(format!("the neighbour {address}"), &e))?;
    }
    if link.mtu != settings.mtu {
        let set = netlink.set_mtu(link.index, settings.mtu);
        set.map_err(|e| refused(format!("MTU {}", settings.mtu), &e))?;
    }
    set_offloads(netlink, link.index, settings)?;
    if let Some(packets) = settings.queue_length {
        // This comes first: a qdisc takes its own length from it.
        let set = netlink.set_queue_length(link.index, packets);
        set.map_err(|e| refused(format!("a queue of {packets} packets"), &e))?;
    }

    // TCP over IPv4 uses the IPv4 limits, over IPv6 the others.
    let limits = Limits {
        gso: settings.gso_max,
        gso_ipv4: settings.gso_max,
        gro: settings.gro_max,
        gro_ipv4: settings.gro_max,
    };
    if limits != Limits::default() {
        let text = |size: Option<u32>| size.map_or("default".to_owned(), |bytes| bytes.to_string());
        let (gso, gro) = (text(limits.gso), text(limits.gro));
        netlink
            .set_limits(link.index, &limits)
            .map_err(|e| refused(format!("limits of GSO and GRO, {gso} and {gro} bytes"), &e))?;
    }
    netlink.set_up(link.index).map_err(|e| refused("bringing it up", &e))?;
    if let Some(kind) = discipline(link, settings) {
        let options =
            settings.netem.map(|netem| to_kernel_units(netem).options()).unwrap_or_default();
        let set = netlink.replace_root_qdisc(link.index, kind, 0, &options);
        set.map_err(|e| {
            let fault = refused(format!("setting the queueing discipline {kind}"), &e);
            match e.kind() {
                io::ErrorKind::NotFound => Fault::unsupported(fault.message).remedy(format!(
                    "modprobe sch_{kind}, or use a kernel that has it, as guests do: --testbed vm"
                )),
                _ => fault,
            }
        })?;
    }
    verify(netlink, end, &limits)
}

/// Returns the qdisc to set, or `None` to leave the device's own. A veth has none by default, but a
/// tap has one, so for a tap even "none" has to be set.
fn discipline<'a>(link: &Link, settings: &'a LinkSettings) -> Option<&'a str> {
    if settings.netem.is_some() {
        return Some("netem");
    }
    match settings.qdisc.as_str() {
        "none" => (link.kind == tap::KIND && settings.tap.is_some()).then_some("noqueue"),
        kind => Some(kind),
    }
}

/// Converts the impairment to the kernel's units.
fn to_kernel_units(Netem { delay, rate, loss, reorder }: Netem) -> qdisc::Netem {
    let rate = rate.map(|megabits| u64::from(megabits) * 1_000_000 / 8);
    qdisc::Netem { delay: u64::from(delay) * 1000, rate, loss, reorder }
}

fn set_offloads(netlink: &mut Netlink, index: u32, settings: &LinkSettings) -> Result<(), Fault> {
    let LinkSettings { tso, gro, hw_gro, .. } = *settings;
    let reading = |e| refused("reading offload features (needs CONFIG_ETHTOOL_NETLINK)", &e);
    let before = netlink.features(index).map_err(reading)?;
    if hw_gro && !before.changeable.iter().any(|name| name == HW_GRO) {
        let text = format!("this device has no hardware GRO ({HW_GRO} cannot be enabled)");
        return Err(Fault::unsupported(text)
            .remedy("use a NIC with hardware GRO; 'ethtool -k DEVICE' shows it"));
    }
    let concerned = before.changeable.iter().map(String::as_str);
    let requested: Vec<(&str, bool)> = concerned
        .filter_map(|name| match name {
            GRO => Some((name, gro)),
            // Packets that the NIC merges have not crossed the link one by one either.
            LRO if !gro => Some((name, false)),
            HW_GRO => Some((name, hw_gro)),
            name if is_tso(name) => Some((name, tso)),
            _ => None,
        })
        .collect();
    netlink.set_features(index, &requested).map_err(|e| refused("setting offload features", &e))?;

    let after = netlink.features(index).map_err(reading)?;
    let is_on = |name: &str| after.active.iter().any(|f| f == name);
    // With TSO off, no variant of it may be left on, changeable or not.
    let mut expected = requested;
    expected.extend(after.active.iter().filter(|f| is_tso(f)).map(|f| (f.as_str(), tso)));
    expected.extend([(GRO, gro), (HW_GRO, hw_gro), ("tx-tcp-segmentation", tso)]);
    match expected.iter().find(|(name, on)| is_on(name) != *on) {
        None => Ok(()),
        Some((name, on)) => {
            let state = if *on { "off" } else { "on" };
            Err(Fault::unsupported(format!("the kernel keeps the offload feature {name} {state}")))
        }
    }
}

fn verify(netlink: &mut Netlink, end: &LinkEnd, wanted: &Limits) -> Result<(), Fault> {
    let link = find(netlink, &end.device)?;
    let has = &link.limits;
    let pairs = [
        ("mtu", Some(end.settings.mtu), Some(link.mtu)),
        ("gso_max_size", wanted.gso, has.gso),
        ("gro_max_size", wanted.gro, has.gro),
        ("gso_ipv4_max_size", wanted.gso_ipv4, has.gso_ipv4),
        ("gro_ipv4_max_size", wanted.gro_ipv4, has.gro_ipv4),
    ];
    let settings = &end.settings;
    if let Some(kind) = discipline(&link, settings).filter(|kind| link.qdisc != *kind) {
        let text = format!("the queueing discipline is {} after it was set to {kind}", link.qdisc);
        return Err(Fault::unsupported(text));
    }
    match pairs.iter().find(|(_, wanted, has)| wanted.is_some() && wanted != has) {
        None => Ok(()),
        Some((name, wanted, None)) => {
            let text = format!("this kernel has no {name} (requested: {})", wanted.unwrap_or(0));
            Err(Fault::unsupported(text)
                .remedy("use Linux 6.3 or later, or leave gso_max and gro_max unset"))
        }
        Some((name, wanted, Some(has))) => {
            let text = format!("{name} is {has} after it was set to {}", wanted.unwrap_or(0));
            Err(Fault::unsupported(text))
        }
    }
}

/// Chooses the CPU that receives: by RPS, or by a kernel thread that polls. Both are set through
/// sysfs, and only on request.
fn steer(netlink: &mut Netlink, link: &Link, end: &LinkEnd) -> Result<Vec<String>, Fault> {
    let (settings, mut notes) = (&end.settings, Vec::new());
    if !end.second && !end.softirq_required {
        return Ok(notes);
    }
    let by_name = end
        .softirq_cpu
        .filter(|_| end.softirq_required && !settings.threaded_napi && !end.interrupts_there);
    let rps = settings.rps.filter(|_| end.second).or(by_name);
    if !settings.threaded_napi && rps.is_none() {
        return Ok(notes);
    }
    let sysfs = Sysfs::open().map_err(|e| {
        refused("mounting a sysfs that shows this namespace", &e)
            .remedy("run as root outside a container, or leave threaded NAPI and RPS off")
    })?;
    if settings.threaded_napi {
        let path = format!("class/net/{}/threaded", end.device);
        set_attribute(&sysfs, &path, "1", "threaded NAPI", |text| text == "1")?;
        if let Some(cpu) = end.softirq_cpu {
            match pin_napi(netlink, link, end, cpu) {
                Err(fault) if fault.kind == FaultKind::Permission && !end.softirq_required => {
                    notes.push(format!(
                        "the NAPI thread of {} is not pinned: only \
                         root may pin it",
                        end.device
                    ));
                }
                Ok(Some(note)) if end.softirq_required => {
                    return Err(Fault::unsupported(note));
                }
                pinned => notes.extend(pinned?),
            }
        }
    }
    if let Some(cpu) = rps {
        let cpus = Cpus::new([cpu])?;
        for queue in 0..link.rx_queues.max(1) {
            let path = format!("class/net/{}/queues/rx-{queue}/rps_cpus", end.device);
            // A driver may use fewer queues than there are.
            if queue > 0 && sysfs.read(&path).is_err() {
                break;
            }
            let what = format!("RPS to CPU {cpu}");
            let holds = |text: &str| Cpus::from_mask(text).as_ref() == Some(&cpus);
            set_attribute(&sysfs, &path, &cpus.mask(), &what, holds)?;
        }
    }
    Ok(notes)
}

fn set_attribute(
    sysfs: &Sysfs,
    path: &str,
    value: &str,
    what: &str,
    holds: impl Fn(&str) -> bool,
) -> Result<(), Fault> {
    let fault = |e: io::Error| {
        let fault = refused(format!("{what} (/sys/{path})"), &e);
        match e.kind() {
            io::ErrorKind::PermissionDenied => fault
                .remedy("run as root: the kernel permits this only to the host's administrator; --cores two does without"),
            io::ErrorKind::NotFound => fault.remedy("use a kernel that has this attribute"),
            _ => fault,
        }
    };
    sysfs.write(path, value).map_err(fault)?;
    let now = sysfs.read(path).map_err(fault)?;
    if holds(&now) {
        return Ok(());
    }
    let text = format!("{what} (/sys/{path}): reads '{now}' after '{value}' was written");
    Err(Fault::unsupported(text))
}

/// Pins the kernel threads of the device's NAPI instances to a CPU. If the kernel does not show
/// which threads these are, returns that as a note.
fn pin_napi(
    netlink: &mut Netlink,
    link: &Link,
    end: &LinkEnd,
    cpu: u32,
) -> Result<Option<String>, Fault> {
    let what = format!("pinning the NAPI thread to CPU {cpu}");
    let napis = match netlink.napis(link.index) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        // The instances of a tap have no ids and are not reported.
        Ok(none) if none.is_empty() && link.kind == tap::KIND => None,
        napis => Some(napis.map_err(|e| refused(&what, &e))?),
    };
    let napis = match napis {
        None => match only_thread(&end.device) {
            Ok(one) => vec![one],
            Err(note) => return Ok(Some(note)),
        },
        Some(napis) => {
            let named = |napi: Napi| (format!("napi/{}-{}", end.device, napi.id), napi.thread);
            napis.into_iter().map(named).collect()
        }
    };
    if napis.is_empty() {
        return Err(Fault::failed(format!("{what}: the device has no NAPI")));
    }
    for (name, thread) in napis {
        // The id is of the initial PID namespace. Only a thread with the right name is pinned: in
        // another PID namespace, the id may belong to anyone.
        let thread = thread.filter(|pid| is_called(*pid, &name));
        let pid = thread.and_then(|pid| Pid::from_raw(pid as i32)).ok_or_else(|| {
            let text = format!("{what}: the thread {name} cannot be seen from here");
            Fault::unsupported(text).remedy("run outside a PID namespace")
        })?;
        let fail = |e: io::Error| {
            refused(format!("{what} ({name})"), &e).remedy(match e.kind() {
                io::ErrorKind::InvalidInput => "choose a CPU that is online",
                _ => "run as root with CAP_SYS_NICE, or leave softirqs where they are: --cores two",
            })
        };
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(fail(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let mut target = CpuSet::new();
        target.set(cpu as usize);
        sched_setaffinity(Some(pid), &target).map_err(|e| fail(e.into()))?;
        let set = sched_getaffinity(Some(pid)).map_err(|e| fail(e.into()))?;
        if set != target {
            let text = format!("{what} ({name}): the kernel keeps another affinity");
            return Err(Fault::unsupported(text));
        }
    }
    Ok(None)
}

/// Finds the NAPI thread of a device by its name alone: before Linux 6.8, and for a tap, the kernel
/// does not report which device a thread serves. If another namespace has a device of the same
/// name, its thread has the same name, too, and the two cannot be told apart.
fn only_thread(device: &str) -> Result<(String, Option<u32>), String> {
    let proc = &Roots::real().proc;
    let lead = format!("napi/{device}-");
    let named = |pid: u32| Some((procfs::name(&proc.join(pid.to_string()))?, Some(pid)));
    let threads = procfs::kernel_threads(proc).into_iter().filter_map(named);
    let mut threads: Vec<_> = threads.filter(|(name, _)| name.starts_with(&lead)).collect();
    match (threads.pop(), threads.is_empty()) {
        (Some(one), true) => Ok(one),
        (found, _) => {
            let how = if found.is_none() { "none" } else { "several" };
            Err(format!(
                "the NAPI thread of {device} is not pinned: {how} kernel threads \
                 are named {lead}*, and the kernel does not show to which device each belongs"
            ))
        }
    }
}

/// Since Linux 5.17 `comm` contains the whole name of a kernel thread, before that only its first
/// 15 bytes.
fn is_called(pid: u32, name: &str) -> bool {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let comm = comm.trim_end();
    comm == name || (comm.len() == 15 && name.starts_with(comm))
}

/// Converts an error of the kernel. An "invalid argument" is a value that the user chose.
pub(super) fn refused(what: impl std::fmt::Display, error: &io::Error) -> Fault {
    let mut fault = Fault::system(what, error);
    if error.kind() == io::ErrorKind::InvalidInput {
        fault.kind = FaultKind::Usage;
    }
    fault
}

/// `GSO_LEGACY_MAX_SIZE` and `GRO_LEGACY_MAX_SIZE` (linux/netdevice.h): the initial limits of
/// devices.
const LEGACY_MAX_SIZE: u32 = 65536;

/// Takes the device down and undoes the settings of a link: addresses, limits, qdisc, RPS, threaded
/// NAPI. Every link sets MTU and offloads itself.
pub(crate) fn reset_tap(netlink: &mut Netlink, link: &Link, name: &str) -> Result<(), Fault> {
    let failed = |what: &str| {
        let what = format!("resetting {name}: {what}");
        move |e| Fault::system(&what, &e)
    };
    netlink.set_down(link.index).map_err(failed("taking it down"))?;
    netlink.remove_addresses(link.index).map_err(failed("removing its addresses"))?;
    let limits = limits_to_reset(&link.limits);
    if limits != Limits::default() {
        netlink.set_limits(link.index, &limits).map_err(failed("its limits of GSO and GRO"))?;
    }
    match netlink.delete_root_qdisc(link.index) {
        // There is only the kernel's default.
        Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => {}
        deleted => deleted.map_err(failed("its queueing discipline"))?,
    }
    // If sysfs cannot be mounted, none of this can have been set.
    let Ok(sysfs) = Sysfs::open() else { return Ok(()) };
    let device = format!("class/net/{name}");
    let rps = (0..link.rx_queues).map(|queue| format!("{device}/queues/rx-{queue}/rps_cpus"));
    for path in rps.chain([format!("{device}/threaded")]) {
        // A kernel without the file cannot have set it.
        if sysfs.read(&path).is_ok_and(|text| is_set(&text)) {
            sysfs.write(&path, "0").map_err(failed(&path))?;
        }
    }
    Ok(())
}

/// Returns the initial limits for those that differ from them.
fn limits_to_reset(now: &Limits) -> Limits {
    let other =
        |size: Option<u32>| size.filter(|size| *size != LEGACY_MAX_SIZE).map(|_| LEGACY_MAX_SIZE);
    Limits {
        gso: other(now.gso),
        gro: other(now.gro),
        gso_ipv4: other(now.gso_ipv4),
        gro_ipv4: other(now.gro_ipv4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_tcp_segmentation_is_meant() {
        let all = ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-accecn-segmentation"];
        assert!(all.iter().all(|name| is_tso(name)));
        assert!(!is_tso("tx-generic-segmentation") && !is_tso("tx-udp-segmentation"));
    }

    #[test]
    fn only_limits_that_were_changed_are_set() {
        let begun = Limits {
            gso: Some(LEGACY_MAX_SIZE),
            gro: Some(LEGACY_MAX_SIZE),
            gso_ipv4: Some(LEGACY_MAX_SIZE),
            gro_ipv4: None,
        };
        assert_eq!(limits_to_reset(&begun), Limits::default());
        let changed = Limits { gro: Some(524_280), ..begun };
        let set = Limits { gro: Some(LEGACY_MAX_SIZE), ..Limits::default() };
        assert_eq!(limits_to_reset(&changed), set);
    }
}
