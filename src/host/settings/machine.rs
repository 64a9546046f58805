//! Where settings are: the running kernel, or a tree of files that stands for it.

use super::{device, files, missing};
use crate::record::{Fault, FaultKind, Setting, SettingValue};
use crate::sys::Roots;
use crate::sys::netlink::Netlink;
use std::io;

/// Reads and writes settings. The engine speaks to nothing else, so that tests
/// can put a machine in its place that dies at any step.
pub trait Machine {
    /// What a setting's parts say now; none if what it is about is not there.
    /// More parts than the setting asks for may be told: those that it changes
    /// beside itself.
    fn read(&mut self, setting: &Setting) -> Result<Option<SettingValue>, Fault>;

    /// What those parts are to say that the setting is about. The fault tells why
    /// this cannot be, or why what is there could not be put back.
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

/// The machine below these roots. Netlink speaks to the kernel that runs.
pub struct Host {
    roots: Roots,
    netlink: Netlink,
}

impl Host {
    /// Opens nothing yet.
    pub fn new(roots: Roots) -> Self {
        Host { roots, netlink: Netlink::new() }
    }

    /// Flags of a tap device.
    fn tap_flags(&self, setting: &Setting) -> Option<u32> {
        let path = self.roots.sys.join("class/net").join(setting.device()?.as_str());
        let text = files::read(&path.join("tun_flags")).ok()?;
        u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    }
}

impl Machine for Host {
    fn read(&mut self, setting: &Setting) -> Result<Option<SettingValue>, Fault> {
        let Some(knobs) = files::knobs(&self.roots, setting) else {
            let flags = self.tap_flags(setting);
            return device::read(&mut self.netlink, setting, flags);
        };
        let mut found = SettingValue::default();
        for knob in knobs {
            match files::read(&knob.path) {
                Ok(text) => {
                    found.0.insert(knob.name, text);
                }
                // It went away between the look at its folder and now.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {}
                Err(e) => return Err(refused("read", &knob.path, &e)),
            }
        }
        Ok((!found.is_empty()).then_some(found))
    }

    fn goal(&mut self, setting: &Setting, before: &SettingValue) -> Result<SettingValue, Fault> {
        let goal = match files::knobs(&self.roots, setting) {
            Some(knobs) => {
                SettingValue(knobs.into_iter().map(|knob| (knob.name, knob.goal)).collect())
            }
            None => device::goal(setting, before)?,
        };
        let unknown = goal.0.keys().find(|name| before.get(name).is_none());
        match unknown {
            None => Ok(goal),
            Some(name) => {
                let text = format!("'{setting}': the driver does not know {name}");
                Err(Fault::new(FaultKind::Unsupported, text))
            }
        }
    }

    fn write(&mut self, setting: &Setting, to: &SettingValue) -> Result<(), Fault> {
        let Some(knobs) = files::knobs(&self.roots, setting) else {
            let flags = self.tap_flags(setting);
            return device::write(&mut self.netlink, setting, to, flags);
        };
        for (name, text) in &to.0 {
            let knob = knobs.iter().find(|knob| knob.name == *name);
            let knob = knob.ok_or_else(|| missing(setting))?;
            files::write(&knob.path, text).map_err(|e| refused("write", &knob.path, &e))?;
        }
        Ok(())
    }

    fn same(&self, setting: &Setting, a: &str, b: &str) -> bool {
        match files::knobs(&self.roots, setting) {
            Some(_) => files::same(setting, a, b),
            None => device::same(setting, a, b),
        }
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
        let processes = crate::sys::procfs::numbered(proc).unwrap_or_default();
        // `ip netns` keeps one by a mount of its file.
        let mounts = std::fs::read(proc.join("self/mountinfo")).unwrap_or_default();
        processes.iter().any(of_process)
            || String::from_utf8_lossy(&mounts).split([' ', '\n']).any(|word| word == namespace)
    }
}

fn refused(verb: &str, path: &std::path::Path, error: &io::Error) -> Fault {
    let fault = Fault::system(format!("cannot {verb} {}", path.display()), error);
    match error.kind() {
        io::ErrorKind::PermissionDenied => fault.remedy("run bytepath as root"),
        _ => fault,
    }
}
