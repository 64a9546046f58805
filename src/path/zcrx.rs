//! `zcrx`: io_uring zero-copy receive. The NIC writes payload straight into
//! memory of the application; only headers pass through the kernel. So far
//! this entry says what a host lacks for it; the engine is yet to come.

use super::ring;
use super::{DataPath, Endpoint, Flow};
use crate::record::{Attempt, Cell, Facts, Fault, FaultKind, OptionSpec, Outcome, Role, Support};
use crate::sys::{devmem, uring};
use std::path::Path;

/// The path.
pub struct Zcrx;

/// Names of the attempts, as they stand in [`Facts`].
const KERNEL: &str = "zcrx.kernel";
const REGISTER: &str = "zcrx.register";

/// What a NIC must be for this; Documentation/networking/iou-zcrx.rst.
const NIC: &str = "use a NIC with driver mlx5, gve, bnxt or fbnic, with header split \
                   (ethtool -G DEV tcp-data-split on) and a receive queue of its own";

impl DataPath for Zcrx {
    fn name(&self) -> &'static str {
        "zcrx"
    }

    fn summary(&self) -> &'static str {
        "io_uring: zero-copy receive, the NIC writes into application memory"
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Receiver]
    }

    fn options(&self, _: Role) -> &'static [OptionSpec] {
        &[]
    }

    fn attempt(&self, device: Option<&str>) -> Vec<Attempt> {
        let kernel = uring::zcrx_in_kernel();
        let in_kernel = kernel.is_ok();
        let mut attempts = vec![ring::attempt(KERNEL, kernel, "")];
        if let (true, Some(device)) = (in_kernel, device) {
            attempts.push(register(device));
        }
        attempts
    }

    fn probe(&self, role: Role, facts: &Facts) -> Support {
        if role == Role::Sender {
            return Support::no("zcrx only receives", "send by uring-zc");
        }
        ring::support(facts).and(kernel(facts)).and(queue(facts)).and(engine())
    }

    fn uses_io_uring(&self) -> bool {
        true
    }

    fn open(&self, _: Role, _: &Cell, _: Flow) -> Result<Box<dyn Endpoint>, Fault> {
        Err(Fault::new(FaultKind::Unsupported, NO_ENGINE).remedy(INSTEAD))
    }
}

const NO_ENGINE: &str = "this version of bytepath has no zcrx engine yet";
const INSTEAD: &str = "receive by uring or tcp-zerocopy-receive";

fn engine() -> Support {
    Support::no(NO_ENGINE, INSTEAD)
}

/// Registering a queue restarts it, which would break the connections of a NIC
/// that is in use. Virtual devices have no `device` link in sysfs.
fn register(device: &str) -> Attempt {
    if Path::new("/sys/class/net").join(device).join("device").exists() {
        let what = format!("not tried: {device} is a NIC and would lose packets");
        return Attempt { name: REGISTER.into(), outcome: Outcome::Missing(what) };
    }
    let result =
        devmem::device_index(device).and_then(|index| uring::register_zcrx_queue(index, 0));
    ring::attempt(REGISTER, result, &format!("queue 0 of {device}"))
}

/// What the kernel itself lacks.
fn kernel(facts: &Facts) -> Support {
    let release = &facts.kernel_release;
    match facts.attempt(KERNEL) {
        Some(Outcome::Errno(libc::EINVAL)) => Support::no(
            format!("Linux {release} has no io_uring zero-copy receive"),
            "boot Linux 6.15 or later",
        ),
        Some(Outcome::Errno(libc::EOPNOTSUPP)) => Support::no(
            format!("Linux {release} was built without CONFIG_IO_URING_ZCRX"),
            "boot a kernel with CONFIG_IO_URING_ZCRX (needs CONFIG_PAGE_POOL, CONFIG_INET)",
        ),
        Some(Outcome::Errno(libc::EPERM)) => Support::no(
            "registering a receive queue needs CAP_NET_ADMIN in the initial user namespace",
            "run as root, not in a user namespace",
        ),
        _ => facts.require(KERNEL, "boot Linux 6.15 or later"),
    }
}

/// What the link's device lacks.
fn queue(facts: &Facts) -> Support {
    match facts.attempt(REGISTER) {
        Some(Outcome::Errno(libc::EOPNOTSUPP)) => Support::no(
            "the driver of the link's device has no memory-provider queues (EOPNOTSUPP; lo, \
             veth and tap have none)",
            NIC,
        ),
        Some(Outcome::Errno(libc::EPERM)) => Support::no(
            "registering a receive queue needs CAP_NET_ADMIN in the initial user namespace",
            "run as root, not in a user namespace",
        ),
        Some(Outcome::Errno(libc::EINVAL)) => Support::no(
            "the link's device has memory-provider queues, but is not set up for them (EINVAL)",
            "ethtool -G DEV tcp-data-split on hds-thresh 0; detach XDP and AF_XDP from the queue",
        ),
        Some(Outcome::Errno(libc::EEXIST | libc::EBUSY)) => Support::no(
            "receive queue 0 of the link's device is taken by someone else",
            "free the queue, or use another device",
        ),
        Some(Outcome::Errno(libc::ENODEV)) => {
            Support::no("the link's device does not exist", "check the name of the device")
        }
        Some(Outcome::Errno(libc::ENOMEM)) => Support::no(
            "not enough locked memory for a receive area",
            "raise 'ulimit -l' (RLIMIT_MEMLOCK)",
        ),
        None => Support::no("no device was given to register a receive queue of", NIC),
        _ => facts.require(REGISTER, NIC),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: fn() -> Outcome = || Outcome::Works(String::new());

    fn refusal(kernel: Outcome, register: Option<Outcome>) -> (String, String) {
        let mut attempts = vec![(ring::SETUP, OK()), (KERNEL, kernel)];
        attempts.extend(register.map(|outcome| (REGISTER, outcome)));
        let attempts = attempts
            .into_iter()
            .map(|(name, outcome)| Attempt { name: name.into(), outcome })
            .collect();
        let facts = Facts { kernel_release: "6.1.0".into(), attempts, ..Default::default() };
        match Zcrx.probe(Role::Receiver, &facts) {
            Support::No { reason, remedy } => (reason, remedy),
            Support::Yes => panic!("zcrx has no engine"),
        }
    }

    #[test]
    fn every_refusal_names_what_is_missing() {
        let errno = Outcome::Errno;
        for (kernel, register, reason, remedy) in [
            (errno(libc::EINVAL), None, "Linux 6.1.0 has no io_uring zero-copy", "6.15"),
            (errno(libc::EOPNOTSUPP), None, "CONFIG_IO_URING_ZCRX", "CONFIG_IO_URING_ZCRX"),
            (errno(libc::EPERM), None, "CAP_NET_ADMIN", "run as root"),
            (errno(libc::ENOMEM), None, "zcrx.kernel: ", "6.15"),
            (OK(), None, "no device", "mlx5, gve, bnxt or fbnic"),
            (OK(), Some(errno(libc::EOPNOTSUPP)), "driver of the link's device", "mlx5"),
            (OK(), Some(errno(libc::EPERM)), "initial user namespace", "run as root"),
            (OK(), Some(errno(libc::EINVAL)), "not set up", "tcp-data-split on"),
            (OK(), Some(errno(libc::EEXIST)), "taken by someone else", "free the queue"),
            (OK(), Some(errno(libc::ENODEV)), "does not exist", "name of the device"),
            (OK(), Some(errno(libc::ENOMEM)), "locked memory", "ulimit -l"),
            (OK(), Some(Outcome::Missing("eth0 is a NIC".into())), "eth0 is a NIC", "mlx5"),
            (OK(), Some(OK()), "no zcrx engine yet", "uring"),
        ] {
            let said = refusal(kernel, register);
            assert!(said.0.contains(reason), "'{}' lacks '{reason}'", said.0);
            assert!(said.1.contains(remedy), "'{}' lacks '{remedy}'", said.1);
        }
    }

    #[test]
    fn the_first_thing_missing_is_the_one_named() {
        let attempts =
            vec![Attempt { name: ring::SETUP.into(), outcome: Outcome::Errno(libc::ENOSYS) }];
        let facts = Facts { attempts, ..Default::default() };
        let support = Zcrx.probe(Role::Receiver, &facts);
        assert!(matches!(support, Support::No { reason, .. } if reason.contains("no io_uring")));
    }
}
