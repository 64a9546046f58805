//! What the io_uring paths have in common: the probes of a host, and the messages for missing
//! features and failures.

use super::busy_poll::{self, BusyPoll, Waiter};
use crate::connection::{Flow, WITNESS_LEN, WitnessPage};
use crate::workload::{Call, HalfConfig};
use bytepath_record::{Attempt, Facts, Fault, FaultKind, OptionKind, OptionSpec, Outcome, Support};
use bytepath_sys::memory::Region;
use bytepath_sys::uring::{self, SendEvent, SendRing};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// Names of the attempts, as in [`Facts`].
pub(super) const SETUP: &str = "io_uring.setup";
pub(super) const BUFFER_RING: &str = "io_uring.buffer-ring";
pub(super) const INCREMENTAL: &str = "io_uring.buffer-ring-incremental";
pub(super) const RECV_MULTISHOT: &str = "io_uring.recv-multishot";
pub(super) const RECV_BUNDLE: &str = "io_uring.recv-bundle";
pub(super) const SEND_BUNDLE: &str = "io_uring.send-bundle";
pub(super) const SEND_ZC: &str = "io_uring.send-zc";
pub(super) const NO_IOWAIT: &str = "io_uring.no-iowait";
pub(super) const MIN_WAIT: &str = "io_uring.min-wait";
pub(super) const DEFER_TASKRUN: &str = "io_uring.defer-taskrun";
pub(super) const SQPOLL: &str = "io_uring.sqpoll";

/// The only system call these engines make while bytes flow.
pub(super) const ENTER: Call = Call(0, "io_uring_enter");
/// Additional call of `zcrx`, which flushes the refill ring of a queue without a device.
pub(super) const REGISTER: Call = Call(1, "io_uring_register");

/// Option: whether waits of a ring count as iowait, which makes the governors of cpuidle and
/// cpufreq take the CPU for busy (`nr_iowait_cpu`, kernel/sched/core.c).
pub(super) const IOWAIT: OptionSpec =
    OptionSpec::new("iowait", OptionKind::Choice(&["auto", "on", "off"]), "auto")
        .help("whether waiting counts as iowait (off: Linux 6.15; auto: off where the kernel can)");

/// True if the job requests waits that count as iowait.
pub(super) fn counts_iowait(job: &HalfConfig) -> bool {
    job.options.word(IOWAIT.name) == "on"
}

/// Makes a ring over these sockets busy poll before its waits sleep, if the job requests that.
pub(super) fn busy_poll(
    job: &HalfConfig,
    sockets: &[BorrowedFd],
    register: impl FnOnce(&uring::BusyPoll) -> io::Result<()>,
) -> Result<(), Fault> {
    match BusyPoll::of(&job.options) {
        Some(polling) => polling.set_on_ring(sockets, register),
        None => Ok(()),
    }
}

/// Maximum number of bytes in one chain or bundle of sends, so that an engine still notices a new
/// phase within milliseconds.
const CHAIN_BYTES: u64 = 16 << 20;

/// Returns the number of messages in a chain or bundle.
pub(super) fn chain(job: &HalfConfig) -> u32 {
    let depth = job.options.number("depth").unwrap_or(1).clamp(1, u64::from(job.batch).max(1));
    (CHAIN_BYTES / job.message_size.max(1)).clamp(1, depth) as u32
}

/// Returns the message size of a job. Errors if one operation cannot carry it.
pub(super) fn message_size(job: &HalfConfig) -> Result<usize, Fault> {
    /// `MAX_RW_COUNT`, include/linux/fs.h: the kernel silently truncates longer sends.
    const MOST: u64 = 0x7fff_f000;
    let size = job.message_size;
    if (1..=MOST).contains(&size) {
        return Ok(size as usize);
    }
    let message = format!("io_uring cannot send messages of {size} bytes");
    Err(Fault::usage(message).remedy("choose 1 byte to 2G minus a page"))
}

/// Sends the witness page of a flow through a separate ring, and overwrites it once the peer's
/// kernel has acknowledged it. `make` sets the ring up around the page, `send` queues the one
/// operation.
pub(super) fn witness(
    flow: &Flow,
    make: impl FnOnce(Region) -> Result<SendRing, Fault>,
    send: impl FnOnce(&mut SendRing) -> io::Result<()>,
) -> Result<(), Fault> {
    let failed = |e: &io::Error| fault("cannot send the witness page", e);
    let mut ring = make(super::witness_page()?)?;
    ring.activate().and_then(|()| send(&mut ring)).map_err(|e| failed(&e))?;
    await_witness(&mut ring)?;
    WitnessPage::settle(flow, |after| ring.memory_mut().copy_from_slice(after))
}

/// Waits until the queued send of the witness page is complete. Its notification, if there is one,
/// may arrive only after the peer has read.
fn await_witness(ring: &mut SendRing) -> Result<(), Fault> {
    let failed = |e: &io::Error| fault("cannot send the witness page", e);
    let mut sent = 0;
    while ring.operations() > 0 {
        match ring.enter(1) {
            Err(e) if !uring::is_transient(&e) => return Err(failed(&e)),
            _ => {}
        }
        while let Some(event) = ring.event() {
            match event {
                SendEvent::Sent { result: Ok(bytes), .. } => sent += bytes as usize,
                // A bundle may end with an error because there is no second buffer.
                SendEvent::Sent { result: Err(e), .. } if sent < WITNESS_LEN => {
                    return Err(failed(&e));
                }
                _ => {}
            }
        }
    }
    if sent == WITNESS_LEN {
        return Ok(());
    }
    Err(Fault::failed(format!("{sent} of the witness page's {WITNESS_LEN} bytes were sent")))
}

/// Tries what the io_uring paths need. If rings cannot be created, nothing that depends on one is
/// tried.
pub(super) fn attempts() -> Vec<Attempt> {
    let features = match uring::features() {
        Ok(features) => features,
        Err(e) => return vec![attempt(SETUP, Err(e), "")],
    };
    let setup = if features.deferred { "deferred task work" } else { "cooperative task work" };
    const COUNTED: &str = "io_uring waits count as iowait before Linux 6.15";
    vec![
        attempt(SETUP, Ok(()), setup),
        super::looked_for(NO_IOWAIT, features.no_iowait, COUNTED),
        attempt(BUFFER_RING, uring::try_buffer_ring(false), ""),
        attempt(INCREMENTAL, uring::try_buffer_ring(true), ""),
        attempt(RECV_MULTISHOT, uring::try_recv_multishot(false), ""),
        bundle(RECV_BUNDLE, features.bundle, || uring::try_recv_multishot(true)),
        bundle(SEND_BUNDLE, features.bundle, uring::try_send_bundle),
    ]
}

/// Tries what only event loops use. Empty if rings cannot be created.
pub(super) fn loop_attempts() -> Vec<Attempt> {
    let Ok(features) = uring::features() else { return Vec::new() };
    const GATHER: &str = "minimum waits came with Linux 6.12";
    const DEFER: &str = "deferred task work came with Linux 6.1";
    let mut all = vec![
        super::looked_for(MIN_WAIT, features.min_timeout, GATHER),
        super::looked_for(DEFER_TASKRUN, features.deferred, DEFER),
        attempt(SQPOLL, uring::try_polled(), ""),
    ];
    all.extend(busy_poll::ring_attempts());
    all
}

/// Kernels without the feature ignore the flag, so that an attempt would prove nothing.
fn bundle(name: &str, feature: bool, try_it: impl FnOnce() -> io::Result<()>) -> Attempt {
    match feature {
        true => attempt(name, try_it(), ""),
        false => super::looked_for(name, false, "bundles came with Linux 6.10"),
    }
}

/// An attempt with this outcome.
pub(super) fn attempt(name: &str, result: io::Result<()>, detail: &str) -> Attempt {
    super::tried(name, result.map(|()| detail.into()))
}

/// Returns whether rings can be created and can wait as requested, with the reason if not.
pub(super) fn support(job: &HalfConfig, facts: &Facts) -> Support {
    let quiet = match job.options.word(IOWAIT.name) {
        "off" => facts.require(NO_IOWAIT, "boot Linux 6.15 or later, or leave iowait at auto"),
        _ => Support::Yes,
    };
    rings(facts).and(quiet).and(busy_poll::support(job, facts, Waiter::Ring))
}

fn rings(facts: &Facts) -> Support {
    match facts.attempt(SETUP) {
        Some(Outcome::Errno(libc::ENOSYS)) => Support::no(
            "this kernel has no io_uring",
            "boot a kernel built with CONFIG_IO_URING, 6.1 or later",
        ),
        Some(Outcome::Errno(libc::EPERM | libc::EACCES)) => forbidden(facts),
        Some(Outcome::Errno(libc::ENOMEM)) => Support::no(
            "io_uring_setup: not enough locked memory",
            "raise 'ulimit -l' (RLIMIT_MEMLOCK)",
        ),
        _ => facts.require(SETUP, "see io_uring_setup(2)"),
    }
}

/// Finds out why io_uring_setup returned EPERM: a sysctl or a seccomp filter.
fn forbidden(facts: &Facts) -> Support {
    const SYSCTL: &str = "kernel.io_uring_disabled";
    let open = "sysctl kernel.io_uring_disabled=0";
    match facts.settings.get(SYSCTL).map(String::as_str) {
        Some("2") => Support::no("io_uring is switched off (kernel.io_uring_disabled = 2)", open),
        Some("1") => Support::no(
            "io_uring is restricted to a privileged group (kernel.io_uring_disabled = 1)",
            format!("{open}, or join the group of kernel.io_uring_group, or run as root"),
        ),
        Some("0") => Support::no(
            "io_uring_setup is refused, most likely by a seccomp filter",
            "allow io_uring_setup, io_uring_enter and io_uring_register in the container's \
             seccomp profile",
        ),
        _ => Support::no(
            "io_uring_setup is not permitted",
            format!("{open}, and allow io_uring in the container's seccomp profile"),
        ),
    }
}

/// Returns whether a feature of a later kernel works, with the reason if not.
pub(super) fn needs(facts: &Facts, attempt: &str, what: &str, since: &str) -> Support {
    let remedy = format!("boot Linux {since} or later");
    match facts.attempt(attempt) {
        Some(Outcome::Errno(libc::EINVAL | libc::EOPNOTSUPP)) => {
            let release = &facts.kernel_release;
            Support::no(format!("Linux {release} has no {what}"), remedy)
        }
        Some(Outcome::Errno(libc::ENOMEM)) => Support::no(
            format!("not enough locked memory for {what}"),
            "raise 'ulimit -l' (RLIMIT_MEMLOCK)",
        ),
        Some(Outcome::Works(_)) => Support::Yes,
        _ => facts.require(attempt, &remedy),
    }
}

/// Checks the result of io_uring_enter; interruption is not a fault.
pub(super) fn entered(result: io::Result<usize>) -> Result<(), Fault> {
    match result {
        Err(e) if !uring::is_transient(&e) => Err(fault("io_uring_enter", &e)),
        _ => Ok(()),
    }
}

/// The fault of a failed call or operation, with a remedy if one is known.
pub(super) fn fault(what: impl fmt::Display, error: &io::Error) -> Fault {
    let fault = Fault::system(what, error);
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOBUFS) => {
            fault.remedy("raise 'ulimit -l' (RLIMIT_MEMLOCK), or use smaller messages or buffers")
        }
        Some(libc::EPERM) => fault.remedy("sysctl kernel.io_uring_disabled=0"),
        // From now on every wait returns it (io_cqring_wait(), io_uring/wait.c).
        Some(libc::EBADR) => fault
            .context(
                "a completion, and the bytes it reported, is lost: its queue \
                      was full and the kernel had no memory for overflow",
            )
            .remedy(
                "allow more completions (zcrx: completions=N; uring: more buffers), \
                     or give the host more memory",
            ),
        Some(libc::ENOSYS | libc::EINVAL) => {
            Fault { kind: FaultKind::Unsupported, ..fault }.remedy("see 'bytepath paths'")
        }
        _ => fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Cell, Half, OptionValue, Role};

    /// Facts of a host with only this release and these attempts.
    fn host(release: &str, attempts: &[(&str, Outcome)]) -> Facts {
        let attempts = attempts
            .iter()
            .map(|(name, outcome)| Attempt { name: (*name).into(), outcome: outcome.clone() });
        Facts { kernel_release: release.into(), attempts: attempts.collect(), ..Default::default() }
    }

    fn words(support: Support) -> (String, String) {
        match support {
            Support::Yes => ("yes".into(), String::new()),
            Support::No { reason, remedy } => (reason, remedy),
        }
    }

    #[test]
    fn setup_refusals_have_causes() {
        let refused = |errno| host("6.12.0", &[(SETUP, Outcome::Errno(errno))]);
        let (reason, remedy) = words(rings(&refused(libc::ENOSYS)));
        assert_eq!(reason, "this kernel has no io_uring");
        assert!(remedy.contains("CONFIG_IO_URING"));
        for (value, cause, cure) in [
            ("2", "switched off", "sysctl"),
            ("1", "privileged group", "io_uring_group"),
            ("0", "seccomp", "seccomp profile"),
        ] {
            let mut facts = refused(libc::EPERM);
            facts.settings.insert("kernel.io_uring_disabled".into(), value.into());
            let (reason, remedy) = words(rings(&facts));
            assert!(reason.contains(cause), "{reason}");
            assert!(remedy.contains(cure), "{remedy}");
        }
        let (reason, _) = words(rings(&refused(libc::EPERM)));
        assert_eq!(reason, "io_uring_setup is not permitted");
        let (reason, _) = words(rings(&refused(libc::EMFILE)));
        assert!(reason.contains("io_uring.setup: ") && reason.contains("open files"), "{reason}");
        let (reason, _) = words(rings(&Facts::default()));
        assert!(reason.contains("not tried"), "{reason}");
    }

    #[test]
    fn refuses_no_iowait_on_old_kernels() {
        let asked = |word: &str| {
            let mut cell = Cell::new("test", Half::plain("uring"), Half::plain("uring"));
            cell.tx.options.0.insert("iowait".into(), OptionValue::Word(word.into()));
            HalfConfig::stream(&cell, Role::Sender)
        };
        let setup = || (SETUP, Outcome::Works(String::new()));
        let old = [setup(), (NO_IOWAIT, Outcome::Missing("they count before 6.15".into()))];
        let new = [setup(), (NO_IOWAIT, Outcome::Works(String::new()))];
        for word in ["auto", "on", "off"] {
            assert!(support(&asked(word), &host("7.3.0", &new)).is_yes(), "{word}");
            let (reason, remedy) = words(support(&asked(word), &host("6.1.0", &old)));
            assert_eq!(reason.contains("before 6.15"), word == "off", "{reason}");
            assert_eq!(remedy.contains("leave iowait at auto"), word == "off", "{remedy}");
        }
        assert!(counts_iowait(&asked("on")) && !counts_iowait(&asked("auto")));
    }

    #[test]
    fn refusal_names_kernel_to_boot() {
        let facts = host("5.15.0", &[(RECV_MULTISHOT, Outcome::Errno(libc::EINVAL))]);
        let support = needs(&facts, RECV_MULTISHOT, "multishot receive", "6.0");
        let (reason, remedy) = words(support);
        assert_eq!(reason, "Linux 5.15.0 has no multishot receive");
        assert_eq!(remedy, "boot Linux 6.0 or later");
        let facts = host("6.9.0", &[(SEND_BUNDLE, Outcome::Missing("bundles came later".into()))]);
        let (reason, _) = words(needs(&facts, SEND_BUNDLE, "bundles", "6.10"));
        assert_eq!(reason, "io_uring.send-bundle: bundles came later");
    }

    #[test]
    fn lost_completion_has_remedy() {
        let fault = fault("io_uring_enter", &io::Error::from_raw_os_error(libc::EBADR));
        assert!(fault.message.contains("a completion, and the bytes"), "{fault}");
        assert!(fault.remedy.unwrap().contains("completions=N"));
    }

    #[test]
    fn limits_chains_by_number_and_bytes() {
        let job = |message_size: u64, depth: u64| {
            let cell = Cell::new("test", Half::plain("uring"), Half::plain("uring"));
            let mut job = HalfConfig { message_size, ..HalfConfig::stream(&cell, Role::Sender) };
            job.options.0.insert("depth".into(), OptionValue::Number(depth));
            job
        };
        let of = |message_size, depth| chain(&job(message_size, depth));
        assert_eq!(
            chain(&HalfConfig { batch: 1, ..job(64, 8) }),
            1,
            "where each message is answered"
        );
        assert_eq!(of(1 << 20, 4), 4);
        assert_eq!(of(1 << 20, 64), 16);
        assert_eq!(of(64 << 20, 4), 1);
        assert_eq!(of(5000, 8), 8);
        assert_eq!(of(1, 0), 1);
    }
}
