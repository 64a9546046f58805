//! Finds the owner of a sample's time: from its thread, the functions on its stack and its CPU.
//! Pure.

use super::{Owner, Thread};
use bytepath_record::{MODEL, Placement, Role};

/// The stream that ran while the samples were taken, as far as attribution needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Process ids of the two agents, in the order of [`Role::ALL`]; `None` if
    /// unknown or on another machine.
    pub agents: [Option<u32>; 2],
    /// The role that a guest of this machine plays, and the process id of its qemu.
    pub guest: Option<(Role, u32)>,
    /// The CPUs assigned to the roles.
    pub placement: Placement,
}

/// Functions that run softirqs, whatever they interrupt (kernel/softirq.c, net/core/dev.c). Which
/// of them are on a stack depends on what the compiler has inlined.
const SOFTIRQ: &[&str] = &[
    "handle_softirqs",
    "__do_softirq",
    "do_softirq",
    "do_softirq_own_stack",
    "__do_softirq_own_stack",
    "net_rx_action",
    "net_tx_action",
];

/// Prefix of the names of vhost's workers; the id of the thread that requested it follows.
const VHOST: &str = "vhost-";

/// Prefixes of names of kernel threads (kernel/softirq.c, net/core/dev.c, io_uring/io-wq.c,
/// io_uring/sqpoll.c, kernel/vhost_task.c, net/core/pktgen.c).
const KERNEL_THREADS: &[(&str, Owner)] = &[
    ("ksoftirqd/", Owner::Ksoftirqd),
    ("napi/", Owner::Napi),
    ("iou-wrk-", Owner::IoWq),
    ("iou-sqp-", Owner::IoWq),
    (VHOST, Owner::Vhost(Role::Receiver)),
    ("kpktgend_", Owner::Pktgen),
];

/// Returns the owner of a sample. `functions` are those of the kernel on its stack, in any order.
///
/// Softirqs that interrupted a thread do not count for that thread, but for the role whose CPU it
/// was, if the CPU belongs to one role alone. Softirqs in a thread of their own, and device
/// polling, are attributed by the name of that thread.
pub fn owner<'a>(
    stream: &Stream,
    thread: &Thread,
    cpu: Option<u32>,
    mut functions: impl Iterator<Item = &'a str>,
) -> Owner {
    // Workers of io_uring and vhost run the softirqs that their own sends raise.
    let named = kernel_thread(&thread.name);
    if let Some(owner @ (Owner::Ksoftirqd | Owner::Napi)) = named {
        return owner;
    }
    // The compiler splits functions: do_softirq.part.0.
    let plain = |function: &'a str| function.split('.').next().unwrap_or(function);
    if functions.any(|function| SOFTIRQ.contains(&plain(function))) {
        return Owner::Softirq(role_of_softirq(stream, cpu));
    }
    if let Some(owner) = of_guest(stream, thread).or(named) {
        return owner;
    }
    if (thread.pid, thread.tid) == (0, 0) {
        return Owner::Idle;
    }
    if thread.tid == u32::MAX {
        return Owner::Unknown;
    }
    let engine = |role: &Role| {
        let agent = stream.agents[*role as usize];
        // Threads of the engine are named by role and flow, "sender/0", and their helpers after
        // them: "sender/0 stack". A model of a device takes no CPU time of an end.
        let name = Owner::Role(*role).name();
        let flow = thread.name.strip_prefix(name).and_then(|n| n.strip_prefix('/'));
        let flow = flow.map(|flow| flow.split_once(' ').map_or(flow, |(flow, _)| flow));
        let is_own = agent == Some(thread.pid) && !thread.name.ends_with(MODEL);
        is_own && flow.is_some_and(|flow| flow.parse::<u32>().is_ok())
    };
    Role::ALL.into_iter().find(engine).map_or(Owner::Foreign, Owner::Role)
}

/// Returns the owner of a thread that runs a guest: a thread of its qemu, or, before Linux 6.4, a
/// kernel thread of vhost. `None` if it is neither.
fn of_guest(stream: &Stream, thread: &Thread) -> Option<Owner> {
    let (role, qemu) = stream.guest?;
    let worker = thread.name.strip_prefix(VHOST);
    let is_its_own = thread.pid == qemu || worker.is_some_and(|of| of.parse() == Ok(qemu));
    is_its_own.then(|| match worker {
        Some(_) => Owner::Vhost(role),
        None if is_virtual_cpu(&thread.name) => Owner::VirtualCpu,
        None => Owner::Qemu(role),
    })
}

/// Whether this is qemu's name of a virtual CPU's thread: it ends with the accelerator.
pub fn is_virtual_cpu(thread: &str) -> bool {
    thread.ends_with("/KVM") || thread.ends_with("/TCG")
}

/// Returns the owner of a kernel thread as far as its name alone shows it: a vhost worker counts
/// for the receiver.
pub fn kernel_thread(name: &str) -> Option<Owner> {
    KERNEL_THREADS.iter().find(|(start, _)| name.starts_with(start)).map(|(_, owner)| *owner)
}

fn role_of_softirq(stream: &Stream, cpu: Option<u32>) -> Option<Role> {
    let (placement, cpu) = (stream.placement, cpu?);
    // If only one role runs on this machine, all softirqs are for that role.
    match stream.agents {
        [Some(_), None] => return Some(Role::Sender),
        [None, Some(_)] => return Some(Role::Receiver),
        _ => {}
    }
    let mut here = Role::ALL.into_iter().filter(|role| placement.cpus(*role).contains(&cpu));
    match (here.next(), here.next()) {
        (Some(role), None) => Some(role),
        // A CPU that was reserved for the device of one end does not count as a role's own.
        (None, _) => {
            let mut set_aside =
                Role::ALL.into_iter().filter(|role| placement.softirq(*role).cpus().contains(&cpu));
            set_aside.next().filter(|_| set_aside.next().is_none())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::SoftirqCpu;

    const APART: Placement = Placement::pinned(0, 1);
    const SHARED: Placement = Placement::pinned(0, 0);

    #[test]
    fn every_kind_of_thread_and_stack() {
        let (tx, rx) = (Owner::Role(Role::Sender), Owner::Role(Role::Receiver));
        let softirq = |role| Owner::Softirq(role);
        // (comm, pid, tid, cpu, functions, owner)
        type Case<'a> = (&'a str, u32, u32, u32, &'a [&'a str], Owner);
        let cases: &[Case] = &[
            ("sender/0", 10, 12, 0, &["tcp_sendmsg"], tx),
            ("receiver/3", 20, 22, 1, &[], rx),
            ("sender/0 stack", 10, 13, 0, &["packet_sendmsg"], tx),
            ("receiver/12 cop", 20, 23, 1, &[], rx),
            ("sender/0 stack", 20, 13, 0, &[], Owner::Foreign),
            ("sender/0 model", 10, 14, 0, &[], Owner::Foreign),
            ("sender/0stack", 10, 13, 0, &[], Owner::Foreign),
            ("sender/0", 20, 12, 0, &[], Owner::Foreign),
            ("sender/x", 10, 12, 0, &[], Owner::Foreign),
            ("bytepath", 10, 10, 0, &["ep_poll"], Owner::Foreign),
            (
                "sender/0",
                10,
                12,
                0,
                &["tcp_v4_rcv", "handle_softirqs"],
                softirq(Some(Role::Sender)),
            ),
            ("sender/0", 10, 12, 1, &["do_softirq.part.0"], softirq(Some(Role::Receiver))),
            ("cargo", 99, 99, 0, &["__do_softirq"], softirq(Some(Role::Sender))),
            ("cargo", 99, 99, 7, &["net_rx_action"], softirq(None)),
            ("swapper/1", 0, 0, 1, &["default_idle"], Owner::Idle),
            ("swapper/1", 0, 0, 1, &["handle_softirqs"], softirq(Some(Role::Receiver))),
            ("ksoftirqd/1", 25, 25, 1, &["handle_softirqs", "run_ksoftirqd"], Owner::Ksoftirqd),
            ("napi/byte1-8193", 30, 30, 1, &["napi_threaded_poll"], Owner::Napi),
            ("iou-wrk-12", 10, 40, 0, &["io_wq_worker"], Owner::IoWq),
            ("iou-sqp-12", 10, 41, 0, &[], Owner::IoWq),
            ("iou-wrk-12", 10, 40, 0, &["do_softirq"], softirq(Some(Role::Sender))),
            ("vhost-77", 70, 71, 0, &["handle_tx"], Owner::Vhost(Role::Receiver)),
            ("kpktgend_0", 80, 80, 0, &["pktgen_xmit"], Owner::Pktgen),
            ("kpktgend_0", 80, 80, 1, &["net_rx_action"], softirq(Some(Role::Receiver))),
            ("", u32::MAX, u32::MAX, 0, &[], Owner::Unknown),
            ("kworker/0:1", 8, 8, 0, &["my_do_softirq_stats"], Owner::Foreign),
        ];
        let stream = Stream { agents: [Some(10), Some(20)], placement: APART, ..Stream::default() };
        for (name, pid, tid, cpu, functions, expected) in cases {
            let thread = Thread { name: (*name).into(), pid: *pid, tid: *tid };
            let found = owner(&stream, &thread, Some(*cpu), functions.iter().copied());
            assert_eq!(found, *expected, "{name} on {cpu}: {functions:?}");
        }
    }

    /// With and without vhost, with each accelerator, and both on kernels where vhost's workers are
    /// kernel threads and on later ones.
    #[test]
    fn the_threads_of_a_guest_are_known_by_its_qemu() {
        let of = |role, name: &str, pid, functions: &[&str]| {
            let thread = Thread { name: name.into(), pid, tid: 81 };
            let stream = Stream {
                agents: [Some(10), None],
                guest: Some((role, 77)),
                placement: Placement::default(),
            };
            owner(&stream, &thread, Some(0), functions.iter().copied())
        };
        for role in Role::ALL {
            assert_eq!(of(role, "qemu-system-x86", 77, &["tun_do_read"]), Owner::Qemu(role));
            assert_eq!(of(role, "worker", 77, &[]), Owner::Qemu(role));
            assert_eq!(of(role, "CPU 0/KVM", 77, &["vcpu_enter_guest"]), Owner::VirtualCpu);
            assert_eq!(of(role, "CPU 1/TCG", 77, &[]), Owner::VirtualCpu);
            assert_eq!(of(role, "vhost-77", 77, &["handle_rx"]), Owner::Vhost(role));
            assert_eq!(of(role, "vhost-77", 90, &["handle_rx"]), Owner::Vhost(role));
            // The qemu of another guest is another program.
            assert_eq!(of(role, "qemu-system-x86", 78, &[]), Owner::Foreign);
            assert_eq!(of(role, "CPU 0/KVM", 78, &[]), Owner::Foreign);
            let softirq = of(role, "qemu-system-x86", 77, &["net_rx_action"]);
            assert_eq!(softirq, Owner::Softirq(Some(Role::Sender)), "on a host with one agent");
        }
        assert!(Owner::VirtualCpu.is_apart() && !Owner::Qemu(Role::Receiver).is_apart());
    }

    #[test]
    fn a_shared_or_unknown_cpu_tells_no_role() {
        let thread = Thread { name: "x".into(), pid: 1, tid: 1 };
        for (placement, cpu) in [(SHARED, Some(0)), (APART, None), (Placement::default(), Some(0))]
        {
            let stream = Stream { placement, ..Stream::default() };
            let found = owner(&stream, &thread, cpu, ["handle_softirqs"].into_iter());
            assert_eq!(found, Owner::Softirq(None));
        }
        // A CPU that was reserved for the device of an end counts for that end.
        let placement =
            Placement { softirq: SoftirqCpu::Cpu(2), sender_softirq: SoftirqCpu::Cpu(4), ..APART };
        let stream = Stream { placement, ..Stream::default() };
        let (tx, rx) = (Some(Role::Sender), Some(Role::Receiver));
        for (cpu, role) in [(2, rx), (0, tx), (4, tx), (3, None)] {
            let found = owner(&stream, &thread, Some(cpu), ["net_rx_action"].into_iter());
            assert_eq!(found, Owner::Softirq(role));
        }
        // If a role has a machine to itself, a NIC may interrupt any CPU.
        let stream = Stream { agents: [None, Some(20)], placement, ..Stream::default() };
        let found = owner(&stream, &thread, Some(7), ["net_rx_action"].into_iter());
        assert_eq!(found, Owner::Softirq(rx));
    }
}
