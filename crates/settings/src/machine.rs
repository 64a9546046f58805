//! Where settings are: the running kernel, or a tree of files in its place.

use super::access::{Access, Knob, Means, Nic, query_fault};
use super::kinds::access;
use super::{files, loan};
use bytepath_record::{DeviceName, Fault, Setting, SettingValue};
use bytepath_sys::netlink::Netlink;
use bytepath_sys::{Roots, lasting_namespace, procfs};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Reads and writes settings. The engine uses nothing else, so that tests
/// can put a machine in its place that dies at any step.
pub trait Machine {
    /// The texts of a setting's parts now; `None` if what it is about is not there.
    /// More parts than the setting names may be reported: those that it changes
    /// beside itself.
    fn read(&mut self, setting: &Setting) -> Result<Option<SettingValue>, Fault>;

    /// The texts that the parts of the setting should have. The fault shows why
    /// this cannot be, or why what is there could not be restored.
    fn goal(&mut self, setting: &Setting, before: &SettingValue) -> Result<SettingValue, Fault>;

    /// Changes these parts to these texts. On a fault some of them may be changed.
    fn write(&mut self, setting: &Setting, to: &SettingValue) -> Result<(), Fault>;

    /// Whether two texts of a part mean the same.
    fn same(&self, setting: &Setting, a: &str, b: &str) -> bool;

    /// Which kernel this is, and which network namespace.
    fn identity(&self) -> Identity;

    /// Whether anything holds that network namespace still.
    fn has_namespace(&self, namespace: &str) -> bool;
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

    /// Refuses a device of `/sys` that is not the one of our network namespace:
    /// `/sys` shows the devices of the namespace in which it was mounted, and a
    /// device of the same name there is not ours to change. They are one if
    /// number and counters agree. False: there is no such device.
    fn is_ours(&mut self, setting: &Setting) -> Result<bool, Fault> {
        let Some(device) = setting.device().filter(|_| self.roots.sys == Path::new("/sys")) else {
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
        // Between two looks at ours, the other must be between the two.
        let before = counted();
        let shown = number("statistics/rx_bytes").zip(number("statistics/tx_bytes"));
        let after = counted();
        let index = number("ifindex");
        let link = self.netlink.link(device.as_str());
        let link = link.map_err(|e| Fault::system(format!("cannot look for {device}"), &e))?;
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

    /// Does something where the device of a setting is: here, or in the namespace that it
    /// is lent to.
    fn at<T: Send>(
        &mut self,
        setting: &Setting,
        work: impl FnOnce(&mut ThisMachine) -> Result<T, Fault> + Send,
    ) -> Result<T, Fault> {
        // What moves the device is done where it comes from.
        let moves = matches!(access(setting).means, Means::Loan(_));
        let is_real = self.roots.sys == Path::new("/sys");
        let device = setting.device().filter(|_| is_real && !moves);
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
                Means::Loan(device) => loan::read(&mut machine.netlink, device),
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
            let goal = match &access(setting).means {
                Means::Files(knobs) => {
                    let knobs = knobs(&machine.roots);
                    for knob in &knobs {
                        let (path, _) = knob.written(&knob.goal);
                        files::may_write(&path).map_err(|e| refused("write", &path, &e))?;
                    }
                    SettingValue(knobs.into_iter().map(|knob| (knob.name, knob.goal)).collect())
                }
                Means::Calls(calls) => (calls.goal)(before)?,
                Means::Loan(device) => loan::goal(&mut machine.netlink, device, before)?,
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
                Means::Loan(device) => loan::write(&mut machine.netlink, device, to),
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
        // `ip netns` keeps one by a mount of its file.
        let mounts = std::fs::read(proc.join("self/mountinfo")).unwrap_or_default();
        processes.iter().any(of_process)
            || String::from_utf8_lossy(&mounts).split([' ', '\n']).any(|word| word == namespace)
    }
}

/// The fault of a device that does not take a value.
fn refused_by_driver(device: &DeviceName, to: &SettingValue, error: &io::Error) -> Fault {
    let fault = Fault::system(format!("the kernel refused {to}"), error);
    match error.to_string().contains("indirection table") {
        true => fault.remedy(format!(
            "first spread flows over fewer queues: --set 'spread {device} queues=1' before it"
        )),
        false => fault,
    }
}

fn read_files(knobs: Vec<Knob>) -> Result<Option<SettingValue>, Fault> {
    let mut parts = SettingValue::default();
    for knob in knobs {
        match files::read(&knob.path) {
            Ok(text) => {
                parts.0.insert(knob.name, text);
            }
            // It went away between the look at its folder and now.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {}
            Err(e) => return Err(refused("read", &knob.path, &e)),
        }
    }
    Ok((!parts.is_empty()).then_some(parts))
}

fn write_files(access: &Access, knobs: &[Knob], to: &SettingValue) -> Result<(), Fault> {
    for (name, text) in &to.0 {
        let knob = knobs.iter().find(|knob| knob.name == *name);
        let (path, text) = knob.ok_or_else(|| access.absent())?.written(text);
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
