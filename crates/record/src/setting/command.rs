//! The equivalent of a setting as a command of the usual tools, for
//! doing or undoing by hand what bytepath does.

use super::{Cpus, FlowRule, IdleChoice, Setting, flag};
use std::fmt::Write;

impl Setting {
    /// What a person would type. It is printed and never run. Where no tool
    /// does it (flags of a tap device) the call is described after a `#`.
    pub fn command(&self) -> String {
        match self {
            Setting::Sysctl { name, value } => format!("sysctl -w {name}='{value}'"),
            Setting::Feature { device, feature, on } => {
                format!("ethtool -K {device} {feature} {}", flag(*on))
            }
            Setting::Rings { device, .. } => self.with_parts(format!("ethtool -G {device}")),
            Setting::Channels { device, .. } => self.with_parts(format!("ethtool -L {device}")),
            Setting::Coalescing { device, .. } => self.with_parts(format!("ethtool -C {device}")),
            Setting::Spread { device, queues } => format!("ethtool -X {device} equal {queues}"),
            Setting::Flow { device, rule } => flow(device.as_str(), rule),
            Setting::Mtu { device, bytes } => format!("ip link set dev {device} mtu {bytes}"),
            Setting::PacketLimits { device, .. } => {
                let limit = |(name, bytes): (&str, String)| {
                    format!(" {}_max_size {bytes}", name.replace('-', "_"))
                };
                let limits: String = self.parts().into_iter().map(limit).collect();
                format!("ip link set dev {device}{limits}")
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
            Setting::Dsa { part, attribute, value } if attribute.as_str() == "state" => {
                let driver = if part.as_str().starts_with("wq") { "user" } else { "idxd" };
                let file = if value.as_str() == "enabled" { "bind" } else { "unbind" };
                format!("echo {part} > /sys/bus/dsa/drivers/{driver}/{file}")
            }
            Setting::Dsa { part, attribute, value } => {
                format!("echo {value} > /sys/bus/dsa/devices/{part}/{attribute}")
            }
            Setting::Loan { device } => {
                format!(
                    "ip netns add lent-{device} && ip link set dev {device} netns lent-{device}"
                )
            }
        }
    }
}

impl Setting {
    fn with_parts(&self, mut command: String) -> String {
        self.parts().into_iter().for_each(|(name, value)| word(&mut command, name, Some(value)));
        command
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

fn word(text: &mut String, name: &str, value: Option<impl std::fmt::Display>) {
    if let Some(value) = value {
        // Writing to a String cannot fail.
        let _ = write!(text, " {name} {value}");
    }
}
