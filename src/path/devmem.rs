//! `devmem`: TCP payload in memory of a device. The NIC reads it from and
//! writes it to a dmabuf, and the application handles tokens instead of bytes.
//! So far this entry says what a host lacks for it; the engine is yet to come.

use super::ring::attempt;
use super::{DataPath, Endpoint, Flow};
use crate::record::{Attempt, Cell, Facts, Fault, FaultKind, OptionSpec, Outcome, Role, Support};
use crate::sys::devmem;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// The path.
pub struct Devmem;

/// Names of the attempts, as they stand in [`Facts`].
const FAMILY: &str = "devmem.netdev-family";
const UDMABUF: &str = "devmem.udmabuf";
const BIND_RX: &str = "devmem.bind-rx";
const BIND_TX: &str = "devmem.bind-tx";

/// What a NIC must be for this; Documentation/networking/devmem.rst.
const NIC: &str = "use a NIC with driver mlx5, gve, bnxt or fbnic, with header split \
                   (ethtool -G DEV tcp-data-split on) and flows steered to the bound queues";

impl DataPath for Devmem {
    fn name(&self) -> &'static str {
        "devmem"
    }

    fn summary(&self) -> &'static str {
        "devmem TCP: the NIC moves payload from and to a dmabuf, by reference"
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Sender, Role::Receiver]
    }

    fn options(&self, _: Role) -> &'static [OptionSpec] {
        &[]
    }

    fn attempt(&self, device: Option<&str>) -> Vec<Attempt> {
        let mut attempts = vec![attempt(FAMILY, devmem::netdev_family(), "")];
        let memory = match devmem::sealed_memory() {
            Ok(memory) => memory,
            Err(e) => {
                attempts.push(attempt(UDMABUF, Err(e), ""));
                return attempts;
            }
        };
        let dmabuf = devmem::udmabuf(memory.as_fd());
        let has_dmabuf = dmabuf.is_ok();
        // A driver that cannot says so before the kernel looks at the memory,
        // so that a plain memory file in place of a dmabuf tells that much.
        let bound = dmabuf.as_ref().unwrap_or(&memory).as_fd();
        if let Some(device) = device {
            let index = || devmem::device_index(device);
            if is_hardware(device) {
                let what = format!("not tried: {device} is a NIC and would lose packets");
                let outcome = Outcome::Missing(what);
                attempts.push(Attempt { name: BIND_RX.into(), outcome });
            } else {
                let result = index().and_then(|index| devmem::bind_receive(index, bound));
                attempts.push(bind(BIND_RX, result, has_dmabuf, device));
            }
            let result = index().and_then(|index| devmem::bind_send(index, bound));
            attempts.push(bind(BIND_TX, result, has_dmabuf, device));
        }
        attempts.push(attempt(UDMABUF, dmabuf.map(drop), ""));
        attempts
    }

    fn probe(&self, role: Role, facts: &Facts) -> Support {
        let (bind, direction) = match role {
            Role::Sender => (BIND_TX, "sends from"),
            Role::Receiver => (BIND_RX, "receives into"),
        };
        family(facts)
            .and(both(memory(facts), device(facts, bind, direction)))
            .and(Support::no(NO_ENGINE, INSTEAD))
    }

    fn open(&self, _: Role, _: &Cell, _: Flow) -> Result<Box<dyn Endpoint>, Fault> {
        Err(Fault::new(FaultKind::Unsupported, NO_ENGINE).remedy(INSTEAD))
    }
}

const NO_ENGINE: &str = "this version of bytepath has no devmem engine yet";
const INSTEAD: &str = "use msg-zerocopy or uring-zc";

/// Two things that are independent of each other: whoever lacks both should
/// not find out one after the other.
fn both(one: Support, other: Support) -> Support {
    match (one, other) {
        (
            Support::No { reason: first, remedy: cure },
            Support::No { reason: second, remedy: other_cure },
        ) => Support::no(format!("{first}; and {second}"), format!("{cure}; and {other_cure}")),
        (one, other) => one.and(other),
    }
}

/// Binding a receive queue restarts it, which would break the connections of a
/// NIC that is in use. Virtual devices have no `device` link in sysfs.
fn is_hardware(device: &str) -> bool {
    Path::new("/sys/class/net").join(device).join("device").exists()
}

/// With a plain memory file the kernel refuses at the latest when it looks for
/// the dmabuf: then the driver is fine, and it is the dmabuf that is missing.
fn bind(name: &str, result: io::Result<()>, has_dmabuf: bool, device: &str) -> Attempt {
    match result {
        Err(e) if !has_dmabuf && e.raw_os_error() == Some(libc::EINVAL) => {
            Attempt { name: name.into(), outcome: Outcome::Missing("no dmabuf to bind".into()) }
        }
        result => attempt(name, result, device),
    }
}

fn family(facts: &Facts) -> Support {
    match facts.attempt(FAMILY) {
        Some(Outcome::Errno(libc::ENOENT)) => Support::no(
            format!("Linux {} has no netdev netlink family", facts.kernel_release),
            "boot Linux 6.12 or later for receiving, 6.16 or later for sending",
        ),
        _ => facts.require(FAMILY, "see the kernel's Documentation/networking/devmem.rst"),
    }
}

fn memory(facts: &Facts) -> Support {
    match facts.attempt(UDMABUF) {
        Some(Outcome::Errno(libc::ENOENT | libc::ENODEV | libc::ENXIO)) => Support::no(
            "there is no /dev/udmabuf to make a dmabuf of host memory",
            "load the module udmabuf, or boot a kernel with CONFIG_UDMABUF",
        ),
        Some(Outcome::Errno(libc::EACCES | libc::EPERM)) => Support::no(
            "/dev/udmabuf may not be opened by this user",
            "join the group that owns /dev/udmabuf (often kvm), or run as root",
        ),
        _ => facts.require(UDMABUF, "boot a kernel with CONFIG_UDMABUF"),
    }
}

/// What the link's device lacks; `direction` is what it should do with a dmabuf.
fn device(facts: &Facts, bind: &str, direction: &str) -> Support {
    match facts.attempt(bind) {
        Some(Outcome::Errno(libc::EOPNOTSUPP)) => Support::no(
            format!(
                "no driver of the link's device {direction} a dmabuf (EOPNOTSUPP; lo, veth \
                     and tap have none)"
            ),
            NIC,
        ),
        Some(Outcome::Errno(libc::EPERM)) => {
            Support::no("binding a dmabuf to a receive queue needs CAP_NET_ADMIN", "run as root")
        }
        Some(Outcome::Errno(libc::EINVAL)) => Support::no(
            format!("the link's device {direction} dmabufs, but is not set up for it (EINVAL)"),
            "ethtool -G DEV tcp-data-split on hds-thresh 0; detach XDP and AF_XDP from the queue",
        ),
        Some(Outcome::Errno(libc::ENODEV)) => {
            Support::no("the link's device does not exist", "check the name of the device")
        }
        None => Support::no("no device was given to bind a dmabuf to", NIC),
        _ => facts.require(bind, NIC),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: fn() -> Outcome = || Outcome::Works(String::new());

    fn refusal(role: Role, family: Outcome, udmabuf: Outcome, bind: Outcome) -> (String, String) {
        let attempts =
            [(FAMILY, family), (UDMABUF, udmabuf), (BIND_RX, bind.clone()), (BIND_TX, bind)]
                .map(|(name, outcome)| Attempt { name: name.into(), outcome });
        let facts = Facts {
            kernel_release: "6.1.0".into(),
            attempts: attempts.into(),
            ..Default::default()
        };
        match Devmem.probe(role, &facts) {
            Support::No { reason, remedy } => (reason, remedy),
            Support::Yes => panic!("devmem has no engine"),
        }
    }

    #[test]
    fn every_refusal_names_what_is_missing() {
        let errno = Outcome::Errno;
        for (family, udmabuf, bind, reason, remedy) in [
            (errno(libc::ENOENT), OK(), OK(), "Linux 6.1.0 has no netdev", "6.12"),
            (errno(libc::EACCES), OK(), OK(), "devmem.netdev-family: ", "devmem.rst"),
            (OK(), errno(libc::ENOENT), OK(), "no /dev/udmabuf", "CONFIG_UDMABUF"),
            (OK(), errno(libc::EACCES), OK(), "may not be opened", "group"),
            (OK(), OK(), errno(libc::EOPNOTSUPP), "EOPNOTSUPP", "mlx5, gve, bnxt or fbnic"),
            (OK(), OK(), errno(libc::EPERM), "CAP_NET_ADMIN", "root"),
            (OK(), OK(), errno(libc::EINVAL), "not set up", "tcp-data-split on"),
            (OK(), OK(), errno(libc::ENODEV), "does not exist", "name of the device"),
            (OK(), OK(), Outcome::Missing("eth0 is a NIC".into()), "eth0 is a NIC", "mlx5"),
            (OK(), OK(), OK(), "no devmem engine yet", "msg-zerocopy"),
            (OK(), errno(libc::ENOENT), errno(libc::EOPNOTSUPP), "; and no driver", "; and use"),
            (OK(), errno(libc::ENOENT), errno(libc::EOPNOTSUPP), "/dev/udmabuf", "CONFIG_UDMABUF"),
        ] {
            for role in Role::ALL {
                let said = refusal(role, family.clone(), udmabuf.clone(), bind.clone());
                assert!(said.0.contains(reason), "'{}' lacks '{reason}'", said.0);
                assert!(said.1.contains(remedy), "'{}' lacks '{remedy}'", said.1);
            }
        }
    }

    #[test]
    fn a_missing_dmabuf_is_not_blamed_on_the_device() {
        let refused = || Err(io::Error::from_raw_os_error(libc::EINVAL));
        let without = bind(BIND_TX, refused(), false, "byte0");
        assert_eq!(without.outcome, Outcome::Missing("no dmabuf to bind".into()));
        let with = bind(BIND_TX, refused(), true, "byte0");
        assert_eq!(with.outcome, Outcome::Errno(libc::EINVAL));
    }

    #[test]
    fn without_a_device_the_device_is_asked_for() {
        let attempts = [(FAMILY, OK()), (UDMABUF, OK())]
            .map(|(name, outcome)| Attempt { name: name.into(), outcome });
        let facts = Facts { attempts: attempts.into(), ..Default::default() };
        let support = Devmem.probe(Role::Sender, &facts);
        assert!(matches!(support, Support::No { reason, .. } if reason.contains("no device")));
    }
}
