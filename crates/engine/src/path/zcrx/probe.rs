//! Probes of a host, and whether zcrx can run there.

use super::plan::Memory;
use crate::path::{looked_for, ring, tried};
use crate::workload::HalfConfig;
use bytepath_record::{Attempt, Facts, Outcome, Support};
use bytepath_sys::device;
use bytepath_sys::uring::zcrx::{self, Abilities};
use std::io;

/// Names of the attempts, as in [`Facts`].
const KERNEL: &str = "zcrx.kernel";
const QUERY: &str = "zcrx.query";
const NO_DEVICE: &str = "zcrx.nodev";
const REGISTER: &str = "zcrx.register";

/// Requirements for a NIC; Documentation/networking/iou-zcrx.rst.
pub(super) const NIC: &str = "use a NIC whose driver takes memory providers (among others mlx5, gve, bnxt or fbnic), with header \
     split (ethtool -G DEV tcp-data-split on) and a receive queue of its own; or boot Linux 7.1 or later, which can \
     run zcrx without a device, copying";

/// Tries what [`support`] needs.
pub(super) fn attempts(device: Option<&str>) -> Vec<Attempt> {
    let kernel = zcrx::zcrx_in_kernel();
    let in_kernel = kernel.is_ok();
    let mut attempts = vec![ring::attempt(KERNEL, kernel, "")];
    if !in_kernel {
        return attempts;
    }
    let abilities = zcrx::abilities();
    let known = abilities.as_ref().ok().copied();
    attempts.push(tried(QUERY, abilities.map(|can| words(&can))));
    attempts.push(match known.filter(|can| can.no_device) {
        Some(can) => tried(NO_DEVICE, no_device(can)),
        None => looked_for(NO_DEVICE, false, "queues without a device came with Linux 7.1"),
    });
    attempts.extend(device.map(on_device));
    attempts
}

/// Returns whether zcrx can run with these options on a host with these facts. Some options need a
/// device, and one needs a queue without a device.
pub(super) fn support(job: &HalfConfig, facts: &Facts) -> Support {
    let options = &job.options;
    let general = ring::support(job, facts).and(kernel(facts)).and(queue(facts));
    if !general.is_yes() {
        return general;
    }
    let without = matches!(facts.attempt(NO_DEVICE), Some(Outcome::Works(_)));
    if options.word("device") == "none" && !without {
        let release = &facts.kernel_release;
        return Support::no(
            format!("Linux {release} has no queues without a device"),
            "boot Linux 7.1 or later, or choose device=auto",
        );
    }
    let buffer = options.number("rx-buf-len").is_some_and(|bytes| bytes != facts.page_size);
    if buffer || Memory::of(options) == Memory::Dmabuf {
        // Without a device the kernel copies page by page, and cannot copy into a dmabuf.
        return of_device(facts);
    }
    Support::Yes
}

fn no_device(can: Abilities) -> io::Result<String> {
    Ok(match zcrx::try_no_device(can)? {
        true => "copied bytes over a loopback connection",
        false => "registered; nothing received, because there is no loopback connection",
    }
    .into())
}

/// Describes the kernel's abilities.
fn words(can: &Abilities) -> String {
    let parts = [
        (can.no_device, "queues without a device"),
        (can.import, "import"),
        (can.dmabuf, "dmabuf areas"),
        (can.flush, "flush"),
        (can.buffer_size, "rx-buf-len"),
        (can.events, "events and copy statistics"),
    ];
    let stats = can
        .stats
        .filter(|_| can.events)
        .map(|stats| format!("statistics of {} bytes, aligned to {}", stats.size, stats.alignment));
    let has = parts.iter().filter(|(has, _)| *has).map(|(_, what)| *what);
    let has: Vec<&str> = has.chain(stats.as_deref()).collect();
    if has.is_empty() { "nothing beyond the first version".into() } else { has.join(", ") }
}

/// Requests a queue of the device from the kernel, and returns it at once. This restarts the NIC's
/// queue, which would break connections that use it. As long as the device does not split headers,
/// the kernel only checks its driver and setup (net/core/netdev_rx_queue.c, `__net_mp_open_rxq`).
/// If it does, the probe skips it, and a study requests the queue once its flows are steered
/// elsewhere.
fn on_device(device: &str) -> Attempt {
    let is_nic = match device::driver(device) {
        Ok(driver) => driver.is_some(),
        Err(e) => return ring::attempt(REGISTER, Err(e), ""),
    };
    if is_nic && device::splits_headers(device).unwrap_or(true) {
        let words = format!("{device} splits headers; a study asks for its queue");
        return tried(REGISTER, Ok(words));
    }
    let last = || device::receive_queues(device).map(|queues| queues.saturating_sub(1));
    let queue = if is_nic { last() } else { Ok(0) };
    let registered =
        queue.and_then(|queue| zcrx::try_queue(device::index(device)?, queue).map(|()| queue));
    answer(device, is_nic, registered)
}

/// Turns the result of requesting a device's queue into an attempt.
fn answer(device: &str, is_nic: bool, registered: io::Result<u32>) -> Attempt {
    let words = match registered {
        Err(e) if is_nic && e.raw_os_error() == Some(libc::EINVAL) => {
            Ok(format!("{device} takes memory providers, once it splits headers"))
        }
        registered => registered.map(|queue| format!("queue {queue} of {device}")),
    };
    tried(REGISTER, words)
}

/// Returns what the kernel itself lacks.
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

/// Returns whether there is a queue of the link's device, or else one without a device; if not,
/// what both lack.
fn queue(facts: &Facts) -> Support {
    let of_device = of_device(facts);
    if of_device.is_yes() || matches!(facts.attempt(NO_DEVICE), Some(Outcome::Works(_))) {
        return Support::Yes;
    }
    let Support::No { reason, remedy } = of_device else { return of_device };
    match facts.attempt(NO_DEVICE) {
        Some(Outcome::Errno(libc::ENOMEM)) => Support::no(
            format!("{reason}; and a queue without a device exceeds the limit on locked memory"),
            "raise 'ulimit -l' (RLIMIT_MEMLOCK)",
        ),
        Some(Outcome::Errno(errno)) => {
            let error = io::Error::from_raw_os_error(*errno);
            Support::no(format!("{reason}; and a queue without a device: {error}"), remedy)
        }
        Some(Outcome::Missing(_)) => {
            let release = &facts.kernel_release;
            let without = format!("Linux {release} has no queues without a device");
            Support::no(format!("{reason}; and {without}"), remedy)
        }
        _ => Support::no(reason, remedy),
    }
}

/// True if the link's device has no queues for this, so that one without a device is used instead.
pub(super) fn lacks_queues(facts: &Facts) -> bool {
    facts.attempt(REGISTER).and_then(Outcome::errno) == Some(libc::EOPNOTSUPP)
}

/// Returns what the link's device lacks.
fn of_device(facts: &Facts) -> Support {
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
            "ethtool -G DEV tcp-data-split on; ethtool -G DEV hds-thresh 0; detach XDP and AF_XDP \
             from the queue",
        ),
        Some(Outcome::Errno(libc::EEXIST | libc::EBUSY)) => Support::no(
            "the receive queue of the link's device is in use by another program",
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
    use super::super::job;
    use super::*;
    use bytepath_sys::uring::zcrx::StatsShape;

    const OK: fn() -> Outcome = || Outcome::Works(String::new());

    #[test]
    fn what_the_kernel_answers_of_its_statistics_is_reported() {
        let stats = Some(StatsShape { size: 16, alignment: 8 });
        let can = Abilities { events: true, stats, ..Abilities::default() };
        assert!(words(&can).ends_with("statistics of 16 bytes, aligned to 8"), "{}", words(&can));
        let can = Abilities { events: true, ..Abilities::default() };
        assert_eq!(words(&can), "events and copy statistics", "it was not answered");
    }

    fn probe(kernel: Outcome, no_device: Option<Outcome>, register: Option<Outcome>) -> Support {
        let mut attempts = vec![(ring::SETUP, OK()), (KERNEL, kernel)];
        attempts.extend(no_device.map(|outcome| (NO_DEVICE, outcome)));
        attempts.extend(register.map(|outcome| (REGISTER, outcome)));
        let attempts = attempts
            .into_iter()
            .map(|(name, outcome)| Attempt { name: name.into(), outcome })
            .collect();
        let facts = Facts { kernel_release: "6.1.0".into(), attempts, ..Default::default() };
        support(&job(&[]), &facts)
    }

    /// Outcome of a NIC for which the kernel returns this error.
    fn asked(errno: i32) -> Outcome {
        answer("eth0", true, Err(io::Error::from_raw_os_error(errno))).outcome
    }

    #[test]
    fn a_device_that_is_all_software_is_believed_when_it_is_not_set_up() {
        let refused = answer("byte0", false, Err(io::Error::from_raw_os_error(libc::EINVAL)));
        assert_eq!(refused.outcome, Outcome::Errno(libc::EINVAL));
        assert_eq!(answer("eth0", true, Ok(3)).outcome, Outcome::Works("queue 3 of eth0".into()));
    }

    #[test]
    fn refusals_name_what_is_missing() {
        let errno = Outcome::Errno;
        let old = || Some(Outcome::Missing("came with Linux 7.1".into()));
        for (kernel, register, reason, remedy) in [
            (errno(libc::EINVAL), None, "Linux 6.1.0 has no io_uring zero-copy", "6.15"),
            (errno(libc::EOPNOTSUPP), None, "CONFIG_IO_URING_ZCRX", "CONFIG_IO_URING_ZCRX"),
            (errno(libc::EPERM), None, "CAP_NET_ADMIN", "run as root"),
            (errno(libc::ENOMEM), None, "zcrx.kernel: ", "6.15"),
            (OK(), None, "no device", "mlx5, gve, bnxt or fbnic"),
            (OK(), Some(errno(libc::EOPNOTSUPP)), "driver of the link's device", "mlx5"),
            (OK(), Some(errno(libc::EOPNOTSUPP)), "has no queues without a device", "7.1"),
            (OK(), Some(errno(libc::EPERM)), "initial user namespace", "run as root"),
            (OK(), Some(errno(libc::EINVAL)), "not set up", "tcp-data-split on"),
            (OK(), Some(errno(libc::EEXIST)), "in use by another program", "free the queue"),
            (OK(), Some(errno(libc::ENODEV)), "does not exist", "name of the device"),
            (OK(), Some(errno(libc::ENOMEM)), "locked memory", "ulimit -l"),
            (OK(), Some(asked(libc::EOPNOTSUPP)), "has no memory-provider queues", "mlx5"),
            (OK(), Some(asked(libc::EPERM)), "initial user namespace", "run as root"),
        ] {
            let Support::No { reason: why, remedy: cure } = probe(kernel, old(), register) else {
                panic!("it lacks {reason}")
            };
            assert!(why.contains(reason), "'{why}' lacks '{reason}'");
            assert!(cure.contains(remedy), "'{cure}' lacks '{remedy}'");
        }
    }

    #[test]
    fn a_queue_of_either_kind_will_do() {
        let refused = || Some(Outcome::Errno(libc::EOPNOTSUPP));
        let old = || Some(Outcome::Missing(String::new()));
        // A NIC that does not split headers yet, whatever its driver is called.
        assert!(probe(OK(), old(), Some(asked(libc::EINVAL))).is_yes());
        assert!(probe(OK(), Some(OK()), refused()).is_yes());
        assert!(probe(OK(), Some(OK()), None).is_yes());
        let Support::No { reason, .. } = probe(OK(), Some(Outcome::Errno(libc::EIO)), refused())
        else {
            panic!("neither works")
        };
        assert!(reason.contains("EOPNOTSUPP") && reason.contains("Input/output"), "{reason}");
    }

    #[test]
    fn options_may_request_more() {
        let facts = |register: Outcome, no_device: Outcome| Facts {
            attempts: [(ring::SETUP, OK()), (KERNEL, OK()), (NO_DEVICE, no_device)]
                .into_iter()
                .chain([(REGISTER, register)])
                .map(|(name, outcome)| Attempt { name: name.into(), outcome })
                .collect(),
            page_size: 4096,
            ..Default::default()
        };
        let copying = facts(Outcome::Errno(libc::EOPNOTSUPP), OK());
        let nic = facts(OK(), Outcome::Missing("old".into()));
        let yes = |set: &[(&str, &str)], facts| support(&job(set), facts).is_yes();
        for (set, on_copying, on_nic) in [
            (&[] as &[(&str, &str)], true, true),
            (&[("device", "none")], true, false),
            (&[("rx-buf-len", "4096")], true, true),
            (&[("rx-buf-len", "32K")], false, true),
            (&[("memory", "dmabuf")], false, true),
            (&[("memory", "huge")], true, true),
        ] {
            assert_eq!((yes(set, &copying), yes(set, &nic)), (on_copying, on_nic), "{set:?}");
        }
    }

    #[test]
    fn reports_first_missing_requirement() {
        let attempts =
            vec![Attempt { name: ring::SETUP.into(), outcome: Outcome::Errno(libc::ENOSYS) }];
        let facts = Facts { attempts, ..Default::default() };
        let support = support(&job(&[]), &facts);
        assert!(matches!(support, Support::No { reason, .. } if reason.contains("no io_uring")));
    }
}
