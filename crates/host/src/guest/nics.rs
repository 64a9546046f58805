//! Network devices of a guest: the link of a guest that is one host, and pairs of NICs that join
//! two hosts in one guest.

use bytepath_record::{CpuTurns, Fault, Role};
#[cfg(any(test, feature = "test-support"))]
use bytepath_sys::attribute;
use bytepath_sys::boot;
use bytepath_sys::ethtool::Channels;
use bytepath_sys::netlink::Netlink;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The network device of a guest that is one host, by the kernel's name for the first of its kind.
pub const DEVICE: &str = "eth0";

/// The driver of that device.
const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_net";

/// A kind of NIC that joins two hosts in one guest, in pairs.
#[derive(Debug, PartialEq, Eq)]
pub struct NicPair {
    /// Name for users.
    pub name: &'static str,
    /// Prefix of the device names; a number follows.
    prefix: &'static str,
    /// The module that drives them.
    pub module: &'static str,
    /// What creates them.
    pub maker: Maker,
}

/// What creates NICs, and resets them for each session.
#[derive(Debug, PartialEq, Eq)]
pub enum Maker {
    /// Their module, each time it is loaded.
    Module,
    /// qemu, which emulates `device`. Binding them again to their driver, in this folder of sysfs,
    /// resets them.
    Qemu { device: &'static str, driver: &'static str },
}

/// All kinds of pairs that guests can have.
pub const NIC_PAIRS: [NicPair; 5] = [
    NicPair { name: "zcnic", prefix: "zcnic", module: MODULE, maker: Maker::Module },
    NicPair::emulated("igb", "igb", "igb", "/sys/bus/pci/drivers/igb"),
    NicPair::emulated("e1000e", "e1000e", "e1000e", "/sys/bus/pci/drivers/e1000e"),
    NicPair::emulated("vmxnet3", "vmxnet3", "vmxnet3", "/sys/bus/pci/drivers/vmxnet3"),
    NicPair::emulated("virtio", "virtio_net", "virtio-net-pci", DRIVER),
];

/// The module of the software NICs.
pub(super) const MODULE: &str = "zcnic";

impl NicPair {
    const fn emulated(
        name: &'static str,
        module: &'static str,
        device: &'static str,
        driver: &'static str,
    ) -> NicPair {
        NicPair { name, prefix: "eth", module, maker: Maker::Qemu { device, driver } }
    }

    /// Returns the name of a role's device in a pair. Devices are numbered pair by pair, the
    /// sender's first.
    pub fn device(&self, role: Role, pair: u32) -> String {
        format!("{}{}", self.prefix, 2 * pair + role as u32)
    }

    /// Most pairs that a guest can have.
    pub fn most(&self) -> u32 {
        match self.maker {
            Maker::Module => CpuTurns::MOST as u32,
            Maker::Qemu { .. } => 1,
        }
    }

    /// Returns the kind of this name.
    pub fn named(name: &str) -> Option<&'static NicPair> {
        static PAIRS: [NicPair; 5] = NIC_PAIRS;
        PAIRS.iter().find(|pair| pair.name == name)
    }

    /// Returns qemu's name of the device, or `None` if qemu does not emulate it.
    pub const fn emulated_device(&self) -> Option<&'static str> {
        match self.maker {
            Maker::Module => None,
            Maker::Qemu { device, .. } => Some(device),
        }
    }

    /// Returns how they are made, as one word.
    pub fn made(&self) -> &'static str {
        match self.maker {
            Maker::Module => "software",
            Maker::Qemu { .. } => "emulated",
        }
    }

    /// Makes so many pairs anew, so that no setting of an earlier session is left. `parameters` are
    /// those of a module that makes NICs: `name=value`, separated by blanks.
    pub(super) fn renew(&self, pairs: u32, parameters: &str) -> Result<(), Fault> {
        match self.maker {
            Maker::Module => load_new(&format!("{parameters} pairs={pairs}")),
            Maker::Qemu { driver, .. } => rebind(Path::new(driver)),
        }
    }

    /// Moves each role's NIC of each pair into the network namespace of the agent's process.
    pub(super) fn move_to_agents(&self, pairs: u32, pids: [u32; 2]) -> Result<(), Fault> {
        let mut netlink = Netlink::new();
        for (role, pid) in Role::ALL.into_iter().zip(pids) {
            for nic in (0..pairs).map(|pair| self.device(role, pair)) {
                let fault = |e: io::Error| Fault::system(format!("handing {nic} to an agent"), &e);
                let link = netlink.link(&nic).map_err(fault)?.ok_or_else(|| {
                    fault(io::ErrorKind::NotFound.into()).remedy(
                        "a module of an earlier bytepath makes one pair: make vm-nic builds it anew",
                    )
                })?;
                let namespace = File::open(format!("/proc/{pid}/ns/net")).map_err(fault)?;
                netlink.set_namespace(link.index, namespace.as_fd()).map_err(fault)?;
            }
        }
        Ok(())
    }
}

/// Resets the link, so that no setting of an earlier session is left.
pub(super) fn renew_link() -> Result<(), Fault> {
    rebind(Path::new(DRIVER))?;
    use_all_queues(DEVICE)
}

/// Unbinds all devices from their driver and binds them again, in the order of their names.
/// Afterwards they are as new (Documentation/ABI/testing/sysfs-bus-virtio; drivers/base/bus.c).
fn rebind(driver: &Path) -> Result<(), Fault> {
    let fault = |path: PathBuf| {
        move |e: io::Error| Fault::system(format!("renewing the device ({})", path.display()), &e)
    };
    let entries = fs::read_dir(driver).map_err(fault(driver.to_owned()))?;
    let names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    // `virtio3`, or a PCI address.
    let is_device = |name: &&String| name.starts_with("virtio") || name.contains(':');
    let mut devices: Vec<&String> = names.iter().filter(is_device).collect();
    devices.sort();
    if devices.is_empty() {
        let name = driver.file_name().unwrap_or_default().to_string_lossy();
        let text = format!("the guest has no network device that {name} drives");
        return Err(Fault::unsupported(text));
    }
    for verb in ["unbind", "bind"] {
        let path = driver.join(verb);
        for device in &devices {
            fs::write(&path, device).map_err(fault(path.clone()))?;
        }
    }
    Ok(())
}

/// Enables every queue of the device: a driver that found fewer CPUs than queues when it was bound
/// leaves some unused.
fn use_all_queues(device: &str) -> Result<(), Fault> {
    let what = format!("the queues of {device}");
    let fail = |e: io::Error| Fault::system(&what, &e);
    let mut netlink = Netlink::new();
    let Some(link) = netlink.link(device).map_err(fail)? else {
        let text = format!("the guest's network device is not called {device}");
        return Err(Fault::unsupported(text));
    };
    let channels = match netlink.channels(link.index) {
        // A driver without this operation has one queue.
        Err(e) if e.kind() == io::ErrorKind::Unsupported => return Ok(()),
        channels => channels.map_err(fail)?,
    };
    match (channels.combined, channels.combined_max) {
        (Some(used), Some(most)) if used < most => {
            let all = Channels { combined: Some(most), ..Channels::default() };
            netlink.set_channels(link.index, &all).map_err(fail)
        }
        _ => Ok(()),
    }
}

/// Reloads the module, so that no setting of an earlier session is left. `parameters` are
/// `name=value`, separated by blanks.
fn load_new(parameters: &str) -> Result<(), Fault> {
    let fault = |e: io::Error| Fault::system(format!("loading the module {MODULE}"), &e);
    match boot::unload_module(MODULE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fault(e)),
        _ => {}
    }
    let file = boot::module_file(boot::MODULES.as_ref(), MODULE).ok_or_else(|| {
        Fault::unsupported(format!("the guest was booted without the module {MODULE}"))
    })?;
    fs::read(&file).and_then(|module| boot::load_module(&module, parameters)).map_err(fault)
}

/// Makes two pairs of NICs, if the guest has the module and it is not loaded.
#[cfg(feature = "test-support")]
pub(super) fn ensure_loaded() -> Result<(), Fault> {
    match boot::load_kept(MODULE, "pairs=2") {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Fault::system(format!("loading the module {MODULE}"), &e)),
        Ok(()) => check_pairs("/sys".as_ref(), 2),
    }
}

/// Errors if the module has made fewer pairs: it was loaded earlier with another number, or is from
/// an earlier bytepath, which made one.
#[cfg(any(test, feature = "test-support"))]
fn check_pairs(sys: &Path, wanted: u32) -> Result<(), Fault> {
    let made = attribute::text(&sys.join("module").join(MODULE).join("parameters/pairs"));
    let made = made.and_then(|made| made.parse().ok()).unwrap_or(1);
    if made >= wanted {
        return Ok(());
    }
    let text =
        format!("the guest has {made} of the {wanted} pairs of NICs that {MODULE} should make");
    let remedy = "boot a guest of its own for this, with the module that make vm-nic builds";
    Err(Fault::unsupported(text).remedy(remedy))
}

/// Splits a kernel command line into parameters of the module (`zcnic.drop=100`, as in
/// modprobe(8)), without the module's name, and all other words.
pub fn parameters(command_line: &str) -> (String, String) {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for word in command_line.split_ascii_whitespace() {
        match word.split_once('.') {
            Some((MODULE, parameter)) => own.push(parameter),
            _ => others.push(word),
        }
    }
    (own.join(" "), others.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_a_missing_network_device() {
        let driver = tempfile::tempdir().unwrap();
        assert!(rebind(driver.path()).unwrap_err().message.contains("no network device"));
        fs::create_dir(driver.path().join("virtio3")).unwrap();
        rebind(driver.path()).unwrap();
        assert_eq!(fs::read_to_string(driver.path().join("bind")).unwrap(), "virtio3");
        let fault = rebind(&driver.path().join("gone")).unwrap_err();
        assert!(fault.message.contains("renewing the device"), "{fault}");
    }

    #[test]
    fn devices_of_a_pair_are_counted_one_after_the_other() {
        let named = |name: &str| {
            let nics = NicPair::named(name).unwrap();
            [0, 1].map(|pair| Role::ALL.map(|role| nics.device(role, pair)))
        };
        assert_eq!(named("zcnic"), [["zcnic0", "zcnic1"], ["zcnic2", "zcnic3"]]);
        assert_eq!(named("igb")[0], ["eth0", "eth1"]);
    }

    #[test]
    fn a_module_that_has_made_fewer_pairs_is_refused() {
        let sys = tempfile::tempdir().unwrap();
        let said = || check_pairs(sys.path(), 2).unwrap_err().message;
        let fewer = "the guest has 1 of the 2 pairs of NICs that zcnic should make";
        assert_eq!(said(), fewer, "a module without the parameter");
        let parameters = sys.path().join("module/zcnic/parameters");
        fs::create_dir_all(&parameters).unwrap();
        fs::write(parameters.join("pairs"), "1\n").unwrap();
        assert_eq!(said(), fewer);
        fs::write(parameters.join("pairs"), "2\n").unwrap();
        check_pairs(sys.path(), 2).unwrap();
    }

    #[test]
    fn parameters_are_separated_from_the_kernels_own() {
        let (own, others) = parameters("zcnic.driver=fbnic quiet  zcnic.drop=3 zcnicx.a=1 x");
        assert_eq!((own.as_str(), others.as_str()), ("driver=fbnic drop=3", "quiet zcnicx.a=1 x"));
    }
}
