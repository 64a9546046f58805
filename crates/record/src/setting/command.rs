//! The equivalent of a setting in the words of the usual tools, for people who
//! want to do by hand, or undo, what bytepath does.

use super::{Cpus, FlowRule, IdleChoice, Setting};
use std::fmt::Write;

impl Setting {
    /// What a person would type. It is printed and never run. Where no tool
    /// does it (flags of a tap device) the call is described behind a `#`.
    pub fn command(&self) -> String {
        match self {
            Setting::Sysctl { name, value } => format!("sysctl -w {name}='{value}'"),
            Setting::Feature { device, feature, on } => {
                format!("ethtool -K {device} {feature} {}", flag(*on))
            }
            Setting::Rings { device, rings: r } => {
                let mut text = format!("ethtool -G {device}");
                word(&mut text, "rx", r.rx);
                word(&mut text, "tx", r.tx);
                word(&mut text, "rx-buf-len", r.rx_buf_len);
                word(&mut text, "tcp-data-split", r.tcp_data_split);
                word(&mut text, "hds-thresh", r.hds_thresh);
                text
            }
            Setting::Channels { device, channels: c } => {
                let mut text = format!("ethtool -L {device}");
                word(&mut text, "rx", c.rx);
                word(&mut text, "tx", c.tx);
                word(&mut text, "combined", c.combined);
                text
            }
            Setting::Coalescing { device, coalescing: c } => {
                let mut text = format!("ethtool -C {device}");
                word(&mut text, "adaptive-rx", c.adaptive_rx.map(flag));
                word(&mut text, "adaptive-tx", c.adaptive_tx.map(flag));
                word(&mut text, "rx-usecs", c.rx_usecs);
                word(&mut text, "rx-frames", c.rx_frames);
                word(&mut text, "tx-usecs", c.tx_usecs);
                word(&mut text, "tx-frames", c.tx_frames);
                text
            }
            Setting::Spread { device, queues } => format!("ethtool -X {device} equal {queues}"),
            Setting::Flow { device, rule } => flow(device.as_str(), rule),
            Setting::Mtu { device, bytes } => format!("ip link set dev {device} mtu {bytes}"),
            Setting::PacketLimits { device, limits: l } => {
                let mut text = format!("ip link set dev {device}");
                word(&mut text, "gso_max_size", l.gso);
                word(&mut text, "gro_max_size", l.gro);
                word(&mut text, "gso_ipv4_max_size", l.gso_ipv4);
                word(&mut text, "gro_ipv4_max_size", l.gro_ipv4);
                text
            }
            Setting::Qdisc { device, discipline } => {
                format!("tc qdisc replace dev {device} root {discipline}")
            }
            Setting::IrqAffinity { irq, cpus } => {
                format!("echo {cpus} > /proc/irq/{irq}/smp_affinity_list")
            }
            Setting::Rps { device, queue, cpus } => {
                steering(cpus, &format!("{device}/queues/rx-{}/rps_cpus", glob(*queue)))
            }
            Setting::Xps { device, queue, cpus } => {
                steering(cpus, &format!("{device}/queues/tx-{}/xps_cpus", glob(*queue)))
            }
            Setting::Governor { cpus, governor } => {
                format!("cpupower -c {} frequency-set -g {governor}", list(cpus))
            }
            Setting::IdleStates { cpus, disable: IdleChoice::SlowerThan(us) } => {
                // cpupower disables from its argument on, we above it.
                format!("cpupower -c {} idle-set -D {}", list(cpus), us.saturating_add(1))
            }
            Setting::IdleStates { cpus, disable: IdleChoice::Named(name) } => {
                format!("cpupower -c {} idle-set -d STATE  # the one called {name}", list(cpus))
            }
            Setting::HugePages { size, node, count } => {
                let folder = node.map_or("/sys/kernel/mm/hugepages".to_owned(), |node| {
                    format!("/sys/devices/system/node/node{node}/hugepages")
                });
                format!("echo {count} > {folder}/hugepages-{}kB/nr_hugepages", size >> 10)
            }
            Setting::ThreadedNapi { device, on } => {
                format!("echo {} > /sys/class/net/{device}/threaded", u8::from(*on))
            }
            Setting::TapFlags { device, .. } => {
                let text = self.to_string();
                let flags = text.splitn(3, ' ').nth(2).unwrap_or_default();
                format!("# ioctl(TUNSETIFF) on {device} with {flags}")
            }
            Setting::Loan { device } => {
                format!(
                    "ip netns add lent-{device} && ip link set dev {device} netns lent-{device}"
                )
            }
        }
    }
}

fn flow(device: &str, rule: &FlowRule) -> String {
    let kind = if rule.ipv6 { "tcp6" } else { "tcp4" };
    let mut text = format!("ethtool -N {device} flow-type {kind}");
    word(&mut text, "src-ip", rule.source);
    word(&mut text, "dst-ip", rule.destination);
    word(&mut text, "src-port", rule.source_port);
    word(&mut text, "dst-port", rule.destination_port);
    word(&mut text, "action", Some(rule.queue));
    text
}

fn steering(cpus: &Cpus, path: &str) -> String {
    let mask = cpus.mask();
    match path.contains('*') {
        true => format!("echo {mask} | tee /sys/class/net/{path}"),
        false => format!("echo {mask} > /sys/class/net/{path}"),
    }
}

fn glob(queue: Option<u32>) -> String {
    queue.map_or("*".into(), |queue| queue.to_string())
}

fn list(cpus: &Option<Cpus>) -> String {
    cpus.as_ref().map_or("all".into(), Cpus::to_string)
}

fn flag(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn word(text: &mut String, name: &str, value: Option<impl std::fmt::Display>) {
    if let Some(value) = value {
        // Writing to a String cannot fail.
        let _ = write!(text, " {name} {value}");
    }
}
