//! How one setting is read and changed: the form of an entry in the table of [`super::kinds`].

use super::journal::Change;
use bytepath_record::{DeviceName, Fault, Setting, SettingValue};
use bytepath_sys::Roots;
use bytepath_sys::netlink::{Link, Netlink};
use std::io;
use std::path::{Path, PathBuf};

/// How a setting is read, changed and compared.
pub(super) struct Access<'s> {
    pub means: Means<'s>,
    /// Whether the device's files below `/sys` are read, which may be those of another namespace.
    pub reads_sysfs: bool,
    /// Whether two texts of a part mean the same.
    pub same: fn(&str, &str) -> bool,
    /// Whether a text that was neither there before nor set follows from the change: the
    /// change, the name of the part, and its texts before, as it was set, and now.
    pub follows: fn(&Change, &str, [&str; 3]) -> bool,
    /// Whether a part may disappear with the change (perhaps only when the device is opened) and
    /// may come back with its restoration.
    pub goes_along: fn(&str) -> bool,
    /// What is missing if the setting cannot be read.
    pub missing: String,
    /// What to do about that; may be empty.
    pub remedy: &'static str,
    /// The remedy if the kernel accepts a value but then reports another one.
    pub shortfall: &'static str,
    /// Why bytepath never sets it on a host.
    pub refusal: Option<Fault>,
}

pub(super) enum Means<'s> {
    /// Files below `/proc` and `/sys`; empty if the setting's subject does not exist.
    Files(Knobs<'s>),
    /// Netlink and ioctls, in the network namespace where the device is.
    Calls(Calls<'s>),
    /// The device that is moved, and the one whose namespace it joins.
    Loan(&'s DeviceName, Option<&'s DeviceName>),
}

/// A file of a setting.
pub(super) struct Knob {
    /// Its name among the setting's values: `cpu3`, `rx-0`.
    pub name: String,
    pub path: PathBuf,
    /// The requested value; `None` for a file that the kernel may change as a side effect.
    pub goal: Option<String>,
    /// Another file to write, and what is written there for a value; `None` if the value is
    /// written to the file itself.
    pub switch: Option<Switch>,
}

impl Knob {
    /// A file that is written itself.
    pub(super) fn new(name: String, path: PathBuf, goal: String) -> Knob {
        Knob { name, path, goal: Some(goal), switch: None }
    }

    /// A file that the kernel may change with the setting.
    pub(super) fn beside(name: String, path: PathBuf) -> Knob {
        Knob { name, path, goal: None, switch: None }
    }

    /// The file to write so that the knob contains `text`, and what is written there.
    pub(super) fn written(&self, text: &str) -> (PathBuf, String) {
        match self.switch {
            Some(switch) => switch(&self.path, text),
            None => (self.path.clone(), text.to_owned()),
        }
    }
}

type Knobs<'s> = Box<dyn Fn(&Roots) -> Vec<Knob> + 's>;
pub(super) type Switch = fn(&Path, &str) -> (PathBuf, String);
type Read<'s> = Box<dyn Fn(&mut Nic) -> Result<SettingValue, Fault> + 's>;
type Goal<'s> = Box<dyn Fn(&SettingValue) -> Result<SettingValue, Fault> + 's>;
type Write<'s> = Box<dyn Fn(&mut Nic, &SettingValue) -> io::Result<()> + 's>;

pub(super) struct Calls<'s> {
    pub device: &'s DeviceName,
    pub read: Read<'s>,
    /// Returns the required value, given the current one. The fault shows why it is impossible, or
    /// why the current value could not be restored.
    pub goal: Goal<'s>,
    pub write: Write<'s>,
}

/// A network device as it is now.
pub(super) struct Nic<'n> {
    pub netlink: &'n mut Netlink,
    pub name: &'n str,
    pub link: Link,
    pub roots: &'n Roots,
}

impl<'s> Access<'s> {
    pub(super) fn new(means: Means<'s>, same: fn(&str, &str) -> bool, missing: String) -> Self {
        Access {
            reads_sysfs: matches!(means, Means::Files(_) | Means::Loan(..)),
            means,
            same,
            follows: |_, _, _| false,
            goes_along: |_| false,
            missing,
            remedy: "",
            shortfall: "choose what the kernel or the driver supports",
            refusal: None,
        }
    }

    /// A setting that is read by this call, written by that one, and should be what its parts
    /// set.
    pub(super) fn parts(
        setting: &'s Setting,
        device: &'s DeviceName,
        read: impl Fn(&mut Nic) -> Result<SettingValue, Fault> + 's,
        write: impl Fn(&mut Nic, &SettingValue) -> io::Result<()> + 's,
    ) -> Self {
        Self::calls(device, read, |_| Ok(parts_of(setting)), write)
    }

    pub(super) fn calls(
        device: &'s DeviceName,
        read: impl Fn(&mut Nic) -> Result<SettingValue, Fault> + 's,
        goal: impl Fn(&SettingValue) -> Result<SettingValue, Fault> + 's,
        write: impl Fn(&mut Nic, &SettingValue) -> io::Result<()> + 's,
    ) -> Self {
        let (read, goal, write) = (Box::new(read), Box::new(goal), Box::new(write));
        let calls = Calls { device, read, goal, write };
        Self::new(Means::Calls(calls), |a, b| a == b, no_device(device))
    }

    /// Builds the fault for a setting that cannot be read.
    pub(super) fn absent(&self) -> Fault {
        let fault = Fault::unsupported(&self.missing);
        if self.remedy.is_empty() { fault } else { fault.remedy(self.remedy) }
    }
}

impl Nic<'_> {
    /// Finds the device of this name; `None` if there is none.
    pub(super) fn find<'n>(
        netlink: &'n mut Netlink,
        roots: &'n Roots,
        device: &'n DeviceName,
    ) -> io::Result<Option<Nic<'n>>> {
        let link = netlink.link(device.as_str())?;
        Ok(link.map(|link| Nic { netlink, name: device.as_str(), link, roots }))
    }

    /// Queries the kernel about the device, given its ifindex.
    pub(super) fn query<T>(
        &mut self,
        query: impl FnOnce(&mut Netlink, u32) -> io::Result<T>,
    ) -> Result<T, Fault> {
        query(self.netlink, self.link.index).map_err(|e| query_fault(self.name, &e))
    }
}

/// Returns the parts that a setting of several parts sets.
pub(super) fn parts_of(setting: &Setting) -> SettingValue {
    let parts = setting.parts().into_iter();
    SettingValue(parts.map(|(name, text)| (name.to_owned(), text)).collect())
}

pub(super) fn query_fault(device: impl std::fmt::Display, error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::Unsupported => {
            Fault::unsupported(format!("the driver of {device} does not support this ({error})"))
        }
        _ => Fault::system(format!("cannot query {device}"), error),
    }
}

pub(super) fn no_device(device: &DeviceName) -> String {
    format!("there is no device {device}")
}
