//! Where settings are: the running kernel, or a tree of files in its place.

use super::access::{Access, Knob, Means, Nic, no_device, query_fault};
use super::exclusion::{Exclusion, Reach};
use super::kinds::access;
use super::{files, loan};
use bytepath_record::{DeviceName, Fault, NumaNode, Setting, SettingValue};
use bytepath_sys::netlink::Netlink;
use bytepath_sys::{Roots, attribute, device, lasting_namespace, procfs};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Reads and writes settings. The engine uses nothing else, so that tests can substitute a machine
/// that dies at any step.
pub trait Machine {
    /// Returns the current texts of a setting's parts; `None` if its subject does not exist. May
    /// include parts that the setting does not name but changes as a side effect.
    fn read(&mut self, setting: &Setting) -> Result<Option<SettingValue>, Fault>;

    /// Returns the texts that the parts of the setting should have. The fault shows why that is
    /// impossible, or why the current value could not be restored.
    fn goal(&mut self, setting: &Setting, before: &SettingValue) -> Result<SettingValue, Fault>;

    /// Writes these parts. On a fault some of them may have changed.
    fn write(&mut self, setting: &Setting, to: &SettingValue) -> Result<(), Fault>;

    /// True if two texts of a part mean the same.
    fn same(&self, setting: &Setting, a: &str, b: &str) -> bool;

    /// Returns the kernel's boot id and the network namespace.
    fn identity(&self) -> Identity;

    /// True if that network namespace still exists.
    fn has_namespace(&self, namespace: &str) -> bool;

    /// Replaces a device that stands for a NUMA node by the node's number. That form is journalled,
    /// and can be restored even when the device is gone.
    fn resolve(&mut self, setting: &Setting) -> Result<Setting, Fault> {
        Ok(setting.clone())
    }

    /// Returns the ifindex of the setting's device; `None` if it has no device, or if the index
    /// does not outlast the name.
    fn link(&mut self, setting: &Setting) -> Result<Option<u32>, Fault> {
        let _ = setting;
        Ok(None)
    }

    /// Returns the current name of the setting's device, given its ifindex; `None` if the device no
    /// longer exists.
    fn device_name(&mut self, setting: &Setting, link: u32) -> Result<Option<DeviceName>, Fault> {
        let _ = link;
        Ok(setting.device().cloned())
    }

    /// Keeps every other bytepath from changing settings within a reach until the result is
    /// dropped; `None` if no other process can use this machine.
    fn exclude(&self, reach: Reach) -> Result<Option<Exclusion>, Fault> {
        let _ = reach;
        Ok(None)
    }
}

/// Which kernel and which network namespace settings are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Boot id: a new one after each boot.
    pub boot: String,
    /// `net:[INODE]`.
    pub namespace: String,
}

/// The machine below these roots. Netlink is that of the running kernel.
pub struct ThisMachine {
    roots: Roots,
    netlink: Netlink,
}

impl ThisMachine {
    pub fn new(roots: Roots) -> Self {
        ThisMachine { roots, netlink: Netlink::new() }
    }

    /// True if this is the running kernel, not a tree of files.
    fn is_real(&self) -> bool {
        self.roots.sys == Path::new("/sys")
    }

    /// Returns true if the setting's device in `/sys` is that of our network namespace, false if
    /// there is no such device. Errors if they differ: `/sys` shows the devices of the namespace in
    /// which it was mounted, and a device of the same name there is not ours to change. They are
    /// the same if ifindex and counters agree.
    fn is_ours(&mut self, setting: &Setting) -> Result<bool, Fault> {
        let Some(device) = setting.device().filter(|_| self.is_real()) else {
            return Ok(true);
        };
        let folder = self.roots.sys.join("class/net").join(device.as_str());
        let number = |path: &str| -> Option<u64> {
            files::read(&folder.join(path)).ok()?.trim().parse().ok()
        };
        let counted = || -> Option<(u64, u64)> {
            let text = files::read(&self.roots.proc.join("thread-self/net/dev")).ok()?;
            let all = procfs::parse_net_dev(&text).ok()?;
            let own = all.iter().find(|own| own.name == device.as_str())?;
            Some((own.rx.bytes, own.tx.bytes))
        };
        // The counters of the other, read between two reads of ours, must lie between the two.
        let before = counted();
        let shown = number("statistics/rx_bytes").zip(number("statistics/tx_bytes"));
        let after = counted();
        let index = number("ifindex");
        let link = self.netlink.link(device.as_str());
        let link = link.map_err(|e| looking_for(device, &e))?;
        let agree = match (before, shown, after) {
            (Some(before), Some(shown), Some(after)) => {
                (before.0..=after.0).contains(&shown.0) && (before.1..=after.1).contains(&shown.1)
            }
            _ => false,
        };
        match (link, index) {
            (None, None) => Ok(false),
            (Some(link), Some(index)) if u64::from(link.index) == index && agree => Ok(true),
            _ => Err(Fault::unsupported(format!(
                "/sys shows the devices of another network namespace, not our {device}"
            ))
            .remedy("mount a new sysfs on /sys in this namespace, as `ip netns exec` does")),
        }
    }

    /// Returns the NUMA node of a device; `None` if it has none or does not report it.
    fn node_of(&mut self, device: &DeviceName) -> Result<Option<u32>, Fault> {
        if self.is_real() {
            return match device::node(device.as_str()) {
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {
                    Err(Fault::unsupported(no_device(device)))
                }
                node => node.map_err(|e| looking_for(device, &e)),
            };
        }
        let file = self.roots.sys.join("class/net").join(device.as_str()).join("device/numa_node");
        Ok(files::read(&file).ok().and_then(|text| text.trim().parse().ok()))
    }

    /// Returns the node of a machine that has only one: its devices report none.
    fn only_node(&self) -> Option<u32> {
        let names = attribute::names(&self.roots.sys.join("devices/system/node"));
        let nodes = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok());
        let nodes: Vec<u32> = nodes.collect();
        <[u32; 1]>::try_from(nodes).ok().map(|[node]| node)
    }

    /// Runs a closure in the namespace of the setting's device: this one, or the one it is lent
    /// to.
    fn at<T: Send>(
        &mut self,
        setting: &Setting,
        work: impl FnOnce(&mut ThisMachine) -> Result<T, Fault> + Send,
    ) -> Result<T, Fault> {
        // A loan is made and returned in the device's home namespace.
        let moves = matches!(access(setting).means, Means::Loan(..));
        let device = setting.device().filter(|_| self.is_real() && !moves);
        let Some(namespace) = device.map(loan::namespace_of).transpose()?.flatten() else {
            return work(self);
        };
        let roots = self.roots.clone();
        lasting_namespace::within(namespace.as_fd(), || work(&mut ThisMachine::new(roots)))
            .map_err(|e| Fault::system(format!("entering the namespace for '{setting}'"), &e))?
    }
}

impl Machine for ThisMachine {
    fn read(&mut self, setting: &Setting) -> Result<Option<SettingValue>, Fault> {
        self.at(setting, |machine| {
            let access = access(setting);
            let is_here = !access.reads_sysfs || machine.is_ours(setting)?;
            match &access.means {
                Means::Loan(device, _) => loan::read(&mut machine.netlink, device),
                _ if !is_here => Ok(None),
                Means::Files(knobs) => read_files(knobs(&machine.roots)),
                Means::Calls(calls) => {
                    let nic = Nic::find(&mut machine.netlink, &machine.roots, calls.device);
                    let nic = nic.map_err(|e| query_fault(calls.device, &e))?;
                    nic.map(|mut nic| (calls.read)(&mut nic)).transpose()
                }
            }
        })
    }

    fn goal(&mut self, setting: &Setting, before: &SettingValue) -> Result<SettingValue, Fault> {
        self.at(setting, |machine| {
            let access = access(setting);
            if let Some(fault) = access.refusal {
                return Err(fault);
            }
            let goal = match &access.means {
                Means::Files(knobs) => {
                    let mut goals = SettingValue::default();
                    for knob in knobs(&machine.roots) {
                        let Some(goal) = knob.goal.clone() else { continue };
                        let (path, _) = knob.written(&goal);
                        files::may_write(&path).map_err(|e| refused("write", &path, &e))?;
                        goals.0.insert(knob.name, goal);
                    }
                    goals
                }
                Means::Calls(calls) => (calls.goal)(before)?,
                Means::Loan(device, _) => loan::goal(&mut machine.netlink, device, before)?,
            };
            let unknown = goal.0.keys().find(|name| before.get(name).is_none());
            match unknown {
                None => Ok(goal),
                Some(name) => Err(Fault::unsupported(format!("the driver does not know {name}"))),
            }
        })
    }

    fn write(&mut self, setting: &Setting, to: &SettingValue) -> Result<(), Fault> {
        self.at(setting, |machine| {
            let access = access(setting);
            match &access.means {
                Means::Files(knobs) => write_files(&access, &knobs(&machine.roots), to),
                Means::Calls(calls) => {
                    let fault = |e: io::Error| refused_by_driver(calls.device, to, &e);
                    let nic = Nic::find(&mut machine.netlink, &machine.roots, calls.device)
                        .map_err(fault)?;
                    let mut nic = nic.ok_or_else(|| access.absent())?;
                    (calls.write)(&mut nic, to).map_err(fault)
                }
                Means::Loan(device, beside) => {
                    loan::write(&mut machine.netlink, device, *beside, to)
                }
            }
        })
    }

    fn same(&self, setting: &Setting, a: &str, b: &str) -> bool {
        (access(setting).same)(a, b)
    }

    fn identity(&self) -> Identity {
        let boot = files::read(&self.roots.proc.join("sys/kernel/random/boot_id"));
        let namespace = std::fs::read_link(self.roots.proc.join("self/ns/net"));
        Identity {
            boot: boot.unwrap_or_default().trim().to_owned(),
            namespace: namespace.unwrap_or_default().to_string_lossy().into_owned(),
        }
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        let proc = &self.roots.proc;
        let of_process = |pid: &u32| {
            let link = std::fs::read_link(proc.join(pid.to_string()).join("ns/net"));
            link.is_ok_and(|link| link.to_string_lossy() == namespace)
        };
        let processes = procfs::numbered(proc).unwrap_or_default();
        // `ip netns` keeps a namespace alive by a bind mount.
        let mounts = std::fs::read(proc.join("self/mountinfo")).unwrap_or_default();
        processes.iter().any(of_process)
            || String::from_utf8_lossy(&mounts).split([' ', '\n']).any(|word| word == namespace)
    }

    fn resolve(&mut self, setting: &Setting) -> Result<Setting, Fault> {
        let Setting::HugePages { size, node: Some(NumaNode::Of(device)), count } = setting else {
            return Ok(setting.clone());
        };
        let node = self.at(setting, |machine| machine.node_of(device))?;
        let node = node.or_else(|| self.only_node()).ok_or_else(|| {
            Fault::unsupported(format!("{device} reports no NUMA node"))
                .remedy(format!("leave out node={device}, and the kernel chooses the nodes"))
        })?;
        Ok(Setting::HugePages { size: *size, node: Some(NumaNode::Number(node)), count: *count })
    }

    fn link(&mut self, setting: &Setting) -> Result<Option<u32>, Fault> {
        // A device may get another ifindex when it moves.
        let Some(device) = own_device(setting).filter(|_| self.is_real()) else { return Ok(None) };
        self.at(setting, |machine| {
            let link =
                machine.netlink.link(device.as_str()).map_err(|e| looking_for(&device, &e))?;
            Ok(link.map(|link| link.index))
        })
    }

    fn device_name(&mut self, setting: &Setting, link: u32) -> Result<Option<DeviceName>, Fault> {
        self.at(setting, |_| match device::name(link) {
            Ok(name) => DeviceName::new(&name).map(Some),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(e) => Err(looking_for(link, &e)),
        })
    }

    fn exclude(&self, reach: Reach) -> Result<Option<Exclusion>, Fault> {
        self.is_real().then(|| Exclusion::take(reach)).transpose()
    }
}

/// Returns a setting's device, including that of a sysctl, unless the setting moves it.
fn own_device(setting: &Setting) -> Option<DeviceName> {
    match setting {
        Setting::Sysctl { name, .. } => name.device(),
        Setting::Loan { .. } => None,
        other => other.device().cloned(),
    }
}

fn looking_for(device: impl std::fmt::Display, error: &io::Error) -> Fault {
    Fault::system(format!("cannot look for {device}"), error)
}

/// Builds the fault for a value that a device refuses.
fn refused_by_driver(device: &DeviceName, to: &SettingValue, error: &io::Error) -> Fault {
    let fault = Fault::system(format!("the kernel refused {to}"), error);
    if error.to_string().contains("indirection table") {
        return fault.remedy(format!(
            "first spread flows over fewer queues: --set 'spread {device} queues=1' before it"
        ));
    }
    match to.get("tcp-data-split") {
        Some("on") => fault.remedy(
            "some drivers (mlx5) split headers only with hardware GRO: add hw-gro=on to the link, also \
             for the cells it is compared with",
        ),
        _ => fault,
    }
}

fn read_files(knobs: Vec<Knob>) -> Result<Option<SettingValue>, Fault> {
    let (mut parts, mut is_there) = (SettingValue::default(), false);
    for knob in knobs {
        match files::read(&knob.path) {
            Ok(text) => {
                is_there |= knob.goal.is_some();
                parts.0.insert(knob.name, text);
            }
            // It disappeared after its folder was listed.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {}
            Err(e) => return Err(refused("read", &knob.path, &e)),
        }
    }
    Ok(is_there.then_some(parts))
}

fn write_files(access: &Access, knobs: &[Knob], to: &SettingValue) -> Result<(), Fault> {
    for (name, text) in &to.0 {
        let knob = knobs.iter().find(|knob| knob.name == *name).ok_or_else(|| access.absent())?;
        // A value changed as a side effect may be back by itself; writing it would mark it as
        // chosen explicitly (br_change_mtu, net/bridge/br_device.c).
        let is_back = || files::read(&knob.path).is_ok_and(|now| (access.same)(&now, text));
        if knob.goal.is_none() && is_back() {
            continue;
        }
        let (path, text) = knob.written(text);
        files::write(&path, &text).map_err(|e| refused("write", &path, &e))?;
    }
    Ok(())
}

fn refused(verb: &str, path: &Path, error: &io::Error) -> Fault {
    let fault = Fault::system(format!("cannot {verb} {}", path.display()), error);
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            fault.remedy("run bytepath as root, and in the host's own network namespace")
        }
        _ => fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_may_want_first_is_the_remedy() {
        let device = DeviceName::new("eth1").unwrap();
        let refused = |name, text| {
            let error = io::Error::from_raw_os_error(libc::EINVAL);
            refused_by_driver(&device, &SettingValue::one(name, text), &error).remedy
        };
        assert!(refused("tcp-data-split", "on").unwrap().contains("hw-gro=on"));
        assert_eq!(refused("tcp-data-split", "off"), None);
        assert_eq!(refused("rx", "4096"), None);
    }
}
