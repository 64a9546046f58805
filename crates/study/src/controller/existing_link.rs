//! A link that already exists, as a cell requests it: settings of its devices, made for
//! the cell's trials and restored after each. What a cell does not name stays as it was
//! found. Pure.

use bytepath_record::{
    Cell, Cpus, DeviceName, Fault, FaultKind, GRO, HW_GRO, PacketLimits, Role, Setting, SysctlName,
    Word,
};

/// What has to be set on the host of a role, whose device this is.
pub(super) fn settings(
    cell: &Cell,
    role: Role,
    device: &str,
    ipv6: bool,
) -> Result<Vec<Setting>, Fault> {
    let link = &cell.link;
    let device = || DeviceName::new(device);
    let feature = |name: &str, on: bool| {
        Ok(Setting::Feature { device: device()?, feature: Word::new(name)?, on })
    };
    let tso = if ipv6 { "tx-tcp6-segmentation" } else { "tx-tcp-segmentation" };
    let limits = PacketLimits {
        gso: link.gso_max.filter(|_| ipv6),
        gro: link.gro_max.filter(|_| ipv6),
        gso_ipv4: link.gso_max.filter(|_| !ipv6),
        gro_ipv4: link.gro_max.filter(|_| !ipv6),
    };
    let receives = role == Role::Receiver;
    let mut all = Vec::new();
    let mut put = |name: &str, setting: Result<Setting, Fault>| -> Result<(), Fault> {
        if link.is_asked(name) {
            all.push(setting?.checked()?);
        }
        Ok(())
    };
    put("mtu", device().map(|device| Setting::Mtu { device, bytes: link.mtu }))?;
    put("tso", feature(tso, link.tso))?;
    put("gro", feature(GRO, link.gro))?;
    put("hw-gro", feature(HW_GRO, link.hw_gro))?;
    if limits != PacketLimits::default() {
        let limits =
            || device().map(|device| Setting::PacketLimits { device, limits: limits.clone() });
        put(if link.gso_max.is_some() { "gso-max" } else { "gro-max" }, limits())?;
    }
    if link.qdisc != "none" {
        let discipline = Word::new(&link.qdisc);
        put(
            "qdisc",
            device().and_then(|device| Ok(Setting::Qdisc { device, discipline: discipline? })),
        )?;
    }
    if let Some(most) = link.wmem {
        let name = SysctlName::new("net.ipv4.tcp_wmem");
        // What a kernel comes with, and its own limit (tcp(7)).
        let value = format!("4096 16384 {most}");
        put("wmem", name.map(|name| Setting::Sysctl { name, value }))?;
    }
    if receives {
        let on = link.threaded_napi;
        put("threaded-napi", device().map(|device| Setting::ThreadedNapi { device, on }))?;
    }
    if let Some(cpu) = link.rps.filter(|_| receives) {
        put("rps", receive_on(device()?, cpu))?;
    }
    Ok(all)
}

/// Packets of a device that has no interrupts of its own, handed to a CPU.
pub(super) fn receive_on(device: DeviceName, cpu: u32) -> Result<Setting, Fault> {
    Ok(Setting::Rps { device, queue: None, cpus: one(cpu)? })
}

pub(super) fn one(cpu: u32) -> Result<Cpus, Fault> {
    Cpus::new([cpu])
}

/// Threads that poll for a device are placed by those who make its link.
pub(super) fn no_polling_thread(cpu: u32) -> Fault {
    let text = format!("softirq={cpu}: polling threads of a device of yours are not placed");
    Fault::new(FaultKind::Unsupported, text)
        .remedy("leave out threaded-napi: its interrupts are moved to that CPU")
}
