//! Probes a host for devmem, and reports what it lacks.

use super::gpu;
use super::options::memory;
use crate::path::huge_pages::{is_guest, reserve_at_boot};
use crate::path::ring::attempt;
use bytepath_record::{Attempt, Facts, Fault, Options, Outcome, Role, Support, free_huge_pages};
use bytepath_sys as sys;
use bytepath_sys::devmem::{self, Binding, Refusal};
use bytepath_sys::dmabuf::{self, Memory, Place};

use std::os::fd::AsFd;

/// Names of the attempts, as in [`Facts`].
const FAMILY: &str = "devmem.netdev-family";
const MEMORY: &str = "devmem.memory.";
const BIND_RX: &str = "devmem.bind-rx";
const BIND_TX: &str = "devmem.bind-tx";

/// Requirements for a NIC (Documentation/networking/devmem.rst).
const NIC: &str = "use a NIC whose driver takes memory providers (among others mlx5, gve, bnxt or fbnic), with \
                   header split (ethtool -G DEV tcp-data-split on) and flows steered to the bound \
                   queue";

/// Size of the memory in attempts, bytes.
const LEN: usize = 1 << 20;

/// Tries what devmem needs, and leaves nothing behind.
pub(super) fn attempts(device: Option<&str>) -> Vec<Attempt> {
    let mut attempts = vec![attempt(FAMILY, devmem::netdev_family(), "")];
    attempts.extend(gpu::attempts(device));
    let mut first: Option<Box<dyn Memory>> = None;
    let place = Place { gpu: gpu::find(None, device).ok(), ..Place::default() };
    for provider in dmabuf::PROVIDERS {
        let result = (provider.allocate)(LEN, place);
        let name = format!("{MEMORY}{}", provider.name);
        match result {
            Ok(memory) => {
                attempts.push(attempt(&name, Ok(()), ""));
                first = first.or(Some(memory));
            }
            Err(e) => attempts.push(attempt(&name, Err(e), "")),
        }
    }
    if let Some(device) = device {
        attempts.extend(bindings(device, first.as_deref()));
    }
    attempts
}

/// Tries to bind memory to a device in both directions, and unbinds it at once. To bind, a NIC
/// restarts a queue, which breaks connections that use it. Since Linux 6.15, a NIC that does not
/// split headers refuses before that, by its driver or its setup (net/core/netdev_rx_queue.c,
/// `__net_mp_open_rxq`). A NIC that does, or an older kernel, is not tried here, but by a study,
/// once its flows are on other queues.
fn bindings(device: &str, memory: Option<&dyn Memory>) -> Vec<Attempt> {
    let stand_in = match devmem::stand_in() {
        Ok(file) => file,
        Err(e) => return vec![attempt(BIND_RX, Err(e), "")],
    };
    let fd = || memory.map_or(stand_in.as_fd(), |memory| memory.fd());
    let is_nic = sys::device::driver(device).is_ok_and(|driver| driver.is_some());
    let restarts = || sys::device::splits_headers(device).unwrap_or(true) || is_before(6, 15);
    let receive = if is_nic && restarts() {
        let words = format!("{device} would restart a queue; a study asks for its own");
        Attempt { name: BIND_RX.into(), outcome: Outcome::Works(words) }
    } else {
        let last = || sys::device::receive_queues(device).map(|queues| queues.saturating_sub(1));
        let queue = if is_nic { last() } else { Ok(0) };
        let result = queue
            .map_err(Refusal::from)
            .and_then(|q| devmem::bind_receive(device, &[q], None, fd()));
        bound(BIND_RX, result, memory.is_some(), is_nic, device)
    };
    let result = devmem::bind_send(device, fd());
    vec![receive, bound(BIND_TX, result, memory.is_some(), false, device)]
}

/// Whether the running kernel is older than this version.
fn is_before(major: u32, minor: u32) -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = [numbers.next(), numbers.next()].map(|number| number.and_then(Result::ok));
    version.into_iter().map(Option::unwrap_or_default).lt([major, minor])
}

/// Returns the outcome of an attempt to bind. If the memory is a plain memory file, what is missing
/// is a dmabuf. If only the NIC's setup is in the way, the outcome is success, because a study
/// changes that.
fn bound(
    name: &str,
    result: Result<Binding, Refusal>,
    has_dmabuf: bool,
    is_nic: bool,
    device: &str,
) -> Attempt {
    let refusal = match result {
        Ok(_) => return attempt(name, Ok(()), device),
        Err(refusal) => refusal,
    };
    let is_setup = |words: &str| ["tcp-data-split", "hds-thresh"].iter().any(|w| words.contains(w));
    let outcome = match (refusal.error.raw_os_error(), refusal.words) {
        (Some(libc::EINVAL), None) if !has_dmabuf => Outcome::Missing("no dmabuf to bind".into()),
        (Some(libc::EINVAL), Some(words)) if is_nic && is_setup(&words) => {
            Outcome::Works(format!("{device} takes memory providers, once it splits headers"))
        }
        (Some(errno), Some(words)) => Outcome::Refused { errno, words },
        (..) => return attempt(name, Err(refusal.error), device),
    };
    Attempt { name: name.into(), outcome }
}

/// Whether a host can play a role with the memory that options name.
pub(super) fn support(role: Role, options: &Options, facts: &Facts) -> Support {
    let (bind, direction) = match role {
        Role::Sender => (BIND_TX, "sends from"),
        Role::Receiver => (BIND_RX, "receives into"),
    };
    family(facts).and(both(provided(options, facts), device(facts, bind, direction)))
}

/// Combines two independent requirements, so that a host that lacks both reports both at once.
fn both(one: Support, other: Support) -> Support {
    match (one, other) {
        (
            Support::No { reason: first, remedy: cure },
            Support::No { reason: second, remedy: other_cure },
        ) => Support::no(format!("{first}; and {second}"), format!("{cure}; and {other_cure}")),
        (one, other) => one.and(other),
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

/// Whether the provider of memory works, or what it lacks.
fn provided(options: &Options, facts: &Facts) -> Support {
    let memory = memory(options);
    let name = format!("{MEMORY}{memory}");
    let outcome = facts.attempt(&name);
    let absent =
        matches!(outcome.and_then(Outcome::errno), Some(libc::ENOENT | libc::ENODEV | libc::ENXIO));
    let forbidden = matches!(outcome.and_then(Outcome::errno), Some(libc::EACCES | libc::EPERM));
    match memory {
        "udmabuf" | "udmabuf-huge" if absent => Support::no(
            "/dev/udmabuf is missing",
            "load the module udmabuf, or boot a kernel with CONFIG_UDMABUF",
        ),
        "udmabuf" | "udmabuf-huge" if forbidden => Support::no(
            "/dev/udmabuf may not be opened by this user",
            "join the group that owns /dev/udmabuf (often kvm), or run as root",
        ),
        // They are counted elsewhere, where the number needed is known.
        "udmabuf-huge"
            if outcome.and_then(Outcome::errno) == Some(libc::ENOMEM) && pages_free(facts) =>
        {
            Support::Yes
        }
        "udmabuf-huge" if is_guest(facts) => facts.require(&name, &reserve_at_boot("N")),
        "udmabuf-huge" => facts.require(&name, "reserve huge pages of 2 MiB: vm.nr_hugepages"),
        "heap" if absent => Support::no(
            "there is no /dev/dma_heap/system to take a dmabuf from",
            "boot a kernel with CONFIG_DMABUF_HEAPS_SYSTEM, or choose memory=udmabuf",
        ),
        "heap" if forbidden => {
            Support::no("/dev/dma_heap/system may not be opened by this user", "run as root")
        }
        // The attempt used the nearest GPU.
        "gpu" if gpu::is_judged(options, facts) => gpu::support(options, facts),
        "gpu" => facts.require(
            &name,
            "install the NVIDIA driver with the open kernel modules, or choose memory=udmabuf",
        ),
        _ => facts.require(&name, "boot a kernel with CONFIG_UDMABUF"),
    }
}

/// Whether huge pages are free, or will be once the study's settings are made.
fn pages_free(facts: &Facts) -> bool {
    let free = facts.number::<u64>(&free_huge_pages(facts.node_of_pages()));
    free.is_some_and(|free| free > 0)
}

/// Whether the link's device supports this; `direction` is what it should do with a dmabuf.
fn device(facts: &Facts, bind: &str, direction: &str) -> Support {
    let outcome = facts.attempt(bind);
    let no = |what: String, errno: &str| {
        let said = match outcome {
            Some(Outcome::Refused { words, .. }) => format!("{errno}: {words}"),
            _ => errno.to_owned(),
        };
        let words = match outcome {
            Some(Outcome::Refused { words, .. }) => Some(words.as_str()),
            _ => None,
        };
        Support::no(format!("{what} ({said})"), cure(outcome.and_then(Outcome::errno), words))
    };
    match outcome.and_then(Outcome::errno) {
        Some(libc::EOPNOTSUPP) => {
            no(format!("no driver of the link's device {direction} a dmabuf"), "EOPNOTSUPP")
        }
        Some(libc::EPERM) => {
            no("binding a dmabuf to a receive queue is not permitted".into(), "EPERM")
        }
        Some(libc::EINVAL) => {
            no(format!("the link's device {direction} dmabufs, but is not set up for it"), "EINVAL")
        }
        Some(libc::ENODEV) => no("the link's device does not exist".into(), "ENODEV"),
        Some(errno @ (libc::EEXIST | libc::EBUSY)) => no(
            "the queue of the link's device is in use by another program".into(),
            if errno == libc::EBUSY { "EBUSY" } else { "EEXIST" },
        ),
        _ => match outcome {
            None => Support::no("no device was given to bind a dmabuf to", NIC),
            _ => facts.require(bind, NIC),
        },
    }
}

/// Returns the fault of a binding that the kernel refused.
pub(super) fn refused(what: String, refusal: &Refusal) -> Fault {
    let words = refusal.words.as_deref();
    let fault = Fault::system(what, &refusal.error).words(words);
    fault.remedy(cure(refusal.error.raw_os_error(), words))
}

/// Returns a remedy for a refused binding.
fn cure(errno: Option<i32>, words: Option<&str>) -> &'static str {
    const SETUP: &str = "ethtool -G DEV tcp-data-split on; ethtool -G DEV hds-thresh 0; detach XDP and AF_XDP from \
                         the queue";
    const QUEUE: &str = "choose a queue that the device has: ethtool -l DEV";
    match (errno, words) {
        (Some(libc::EPERM), _) => {
            "run as root: this requires CAP_NET_ADMIN in the device's namespace"
        }
        // The kernel adds a message to every refusal that concerns an existing queue.
        (Some(libc::EINVAL), Some(_)) => SETUP,
        (Some(libc::EINVAL | libc::ERANGE), _) => QUEUE,
        (Some(libc::ENODEV), _) => "check the name of the device",
        (Some(libc::EEXIST | libc::EBUSY), _) => {
            "end the other program on the queue (AF_XDP too), detach XDP, or choose another queue"
        }
        (Some(libc::ENOMEM), _) => "free memory, or choose a smaller area",
        _ => NIC,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::OptionValue;
    use std::io;

    const OK: fn() -> Outcome = || Outcome::Works(String::new());

    fn facts(family: Outcome, memory: (&str, Outcome), bind: Option<Outcome>) -> Facts {
        let mut attempts =
            vec![(FAMILY.to_owned(), family), (format!("{MEMORY}{}", memory.0), memory.1)];
        for name in [BIND_RX, BIND_TX] {
            attempts.extend(bind.clone().map(|outcome| (name.to_owned(), outcome)));
        }
        let attempts =
            attempts.into_iter().map(|(name, outcome)| Attempt { name, outcome }).collect();
        Facts { kernel_release: "6.1.0".into(), attempts, ..Default::default() }
    }

    fn options(memory: &str) -> Options {
        Options([("memory".to_owned(), OptionValue::Word(memory.into()))].into())
    }

    fn refusal(role: Role, memory: &str, facts: &Facts) -> (String, String) {
        match support(role, &options(memory), facts) {
            Support::No { reason, remedy } => (reason, remedy),
            Support::Yes => ("yes".into(), String::new()),
        }
    }

    #[test]
    fn pages_that_are_reserved_by_now_are_memory_for_a_dmabuf() {
        let mut facts = facts(OK(), ("udmabuf-huge", Outcome::Errno(libc::ENOMEM)), Some(OK()));
        for (free, is_able) in [("0", false), ("32", true)] {
            facts.settings.insert(free_huge_pages(None), free.into());
            assert_eq!(
                support(Role::Receiver, &options("udmabuf-huge"), &facts).is_yes(),
                is_able,
                "{free}"
            );
        }
        facts.settings.insert(bytepath_record::LINK_NODE.into(), "0".into());
        let of_only_node = support(Role::Receiver, &options("udmabuf-huge"), &facts);
        assert_eq!(of_only_node, Support::Yes, "which shows those of the machine alone");
    }

    #[test]
    fn refusals_name_what_is_missing() {
        let errno = Outcome::Errno;
        let said = |errno, words: &str| Outcome::Refused { errno, words: words.into() };
        let no_driver = || said(libc::EOPNOTSUPP, "Driver does not support netmem TX");
        for (family, memory, bind, reason, remedy) in [
            (errno(libc::ENOENT), OK(), OK(), "Linux 6.1.0 has no netdev", "6.12"),
            (errno(libc::EACCES), OK(), OK(), "devmem.netdev-family: ", "devmem.rst"),
            (OK(), errno(libc::ENOENT), OK(), "/dev/udmabuf is missing", "CONFIG_UDMABUF"),
            (OK(), errno(libc::EACCES), OK(), "may not be opened", "group"),
            (OK(), OK(), errno(libc::EOPNOTSUPP), "EOPNOTSUPP)", "mlx5, gve, bnxt or fbnic"),
            (OK(), OK(), no_driver(), "EOPNOTSUPP: Driver does not support netmem", "mlx5"),
            (OK(), OK(), errno(libc::EPERM), "EPERM", "CAP_NET_ADMIN"),
            (OK(), OK(), said(libc::EINVAL, "tcp-data-split is off"), "is off", "data-split on"),
            (OK(), OK(), errno(libc::ENODEV), "does not exist", "name of the device"),
            (OK(), OK(), errno(libc::EBUSY), "in use by another program (EBUSY)", "another queue"),
            (OK(), OK(), Outcome::Missing("no dmabuf to bind".into()), "no dmabuf", "mlx5"),
            (OK(), OK(), OK(), "yes", ""),
            (OK(), errno(libc::ENOENT), no_driver(), "; and no driver", "; and use"),
            (OK(), errno(libc::ENOENT), no_driver(), "/dev/udmabuf", "CONFIG_UDMABUF"),
        ] {
            for role in Role::ALL {
                let facts = facts(family.clone(), ("udmabuf", memory.clone()), Some(bind.clone()));
                let said = refusal(role, "udmabuf", &facts);
                assert!(said.0.contains(reason), "'{}' lacks '{reason}'", said.0);
                assert!(said.1.contains(remedy), "'{}' lacks '{remedy}'", said.1);
            }
        }
    }

    #[test]
    fn reports_missing_memory_by_kind() {
        let words = |text: &str| Outcome::Missing(text.into());
        for (memory, outcome, reason, remedy) in [
            ("heap", Outcome::Errno(libc::ENOENT), "/dev/dma_heap/system", "HEAPS_SYSTEM"),
            ("heap", Outcome::Errno(libc::EACCES), "may not be opened", "root"),
            ("udmabuf-huge", Outcome::Errno(libc::ENOMEM), "memory.udmabuf-huge", "nr_hugepages"),
            ("gpu", words("libcuda.so.1 cannot be loaded"), "libcuda.so.1", "NVIDIA driver"),
        ] {
            let facts = facts(OK(), (memory, outcome), Some(OK()));
            let said = refusal(Role::Receiver, memory, &facts);
            assert!(said.0.contains(reason), "'{}' lacks '{reason}'", said.0);
            assert!(said.1.contains(remedy), "'{}' lacks '{remedy}'", said.1);
            // Only the requested memory counts.
            let other = refusal(Role::Receiver, "udmabuf", &facts);
            assert!(other.0.contains("not tried"), "{other:?}");
        }
    }

    #[test]
    fn missing_dmabuf_is_reported_as_such() {
        let refused = |errno, words: Option<&str>| {
            let error = io::Error::from_raw_os_error(errno);
            Err(Refusal { error, words: words.map(Into::into) })
        };
        let invalid = || refused(libc::EINVAL, None);
        let without = bound(BIND_TX, invalid(), false, false, "byte0");
        assert_eq!(without.outcome, Outcome::Missing("no dmabuf to bind".into()));
        let with = bound(BIND_TX, invalid(), true, false, "byte0");
        assert_eq!(with.outcome, Outcome::Errno(libc::EINVAL));
        let said = refused(libc::EINVAL, Some("tcp-data-split is disabled"));
        let said = bound(BIND_TX, said, false, false, "byte0");
        assert_eq!(said.outcome.errno(), Some(libc::EINVAL));
    }

    #[test]
    fn a_nic_that_only_lacks_its_setup_works() {
        let nic = |errno, words: Option<&str>, has_dmabuf| {
            let error = io::Error::from_raw_os_error(errno);
            let refusal = Refusal { error, words: words.map(Into::into) };
            bound(BIND_RX, Err(refusal), has_dmabuf, true, "eth1").outcome
        };
        for words in ["tcp-data-split is disabled", "hds-thresh is not zero"] {
            let outcome = nic(libc::EINVAL, Some(words), true);
            assert!(matches!(outcome, Outcome::Works(words) if words.contains("eth1")), "{words}");
        }
        assert_eq!(nic(libc::EOPNOTSUPP, None, true), Outcome::Errno(libc::EOPNOTSUPP));
        // The kernel checks the memory before the driver.
        assert_eq!(nic(libc::EINVAL, None, false), Outcome::Missing("no dmabuf to bind".into()));
        assert!(matches!(nic(libc::EINVAL, Some("else"), true), Outcome::Refused { .. }));
    }

    #[test]
    fn a_guest_gets_its_huge_pages_at_boot() {
        let lacks = ("udmabuf-huge", Outcome::Errno(libc::ENOMEM));
        let guest = Facts { booted: Some(2.5), ..facts(OK(), lacks, Some(OK())) };
        let (_, remedy) = refusal(Role::Receiver, "udmabuf-huge", &guest);
        assert!(remedy.contains("--kernel 'NAME=SOURCE hugepages=N'"), "{remedy}");
    }

    #[test]
    fn the_remedy_for_a_queue_that_is_not_there_is_a_queue_that_is() {
        let remedy = |errno, words: Option<&str>| {
            let error = io::Error::from_raw_os_error(errno);
            let refusal = Refusal { error, words: words.map(Into::into) };
            refused("cannot bind".into(), &refusal).remedy.unwrap()
        };
        assert!(remedy(libc::EINVAL, None).contains("ethtool -l DEV"));
        assert!(remedy(libc::ERANGE, Some("out of range")).contains("ethtool -l DEV"));
        assert!(remedy(libc::EINVAL, Some("tcp-data-split is disabled")).contains("data-split on"));
    }

    #[test]
    fn the_running_kernel_is_later_than_the_first_and_earlier_than_one_to_come() {
        assert!(is_before(99, 0) && !is_before(2, 6));
    }

    #[test]
    fn missing_device_is_reported() {
        let said = refusal(Role::Sender, "udmabuf", &facts(OK(), ("udmabuf", OK()), None));
        assert!(said.0.contains("no device"), "{said:?}");
    }
}
