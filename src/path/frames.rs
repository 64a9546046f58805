//! What the halves that move frames ask of their jobs.

use crate::record::{Fault, FaultKind, Support, Touch};
use crate::sys::bpf::Refused;
use crate::sys::bpf::xdp::Mode;
use crate::workload::{FramePlan, Job};

/// The frames that a half is asked for.
pub fn plan(job: &Job) -> Result<&FramePlan, Fault> {
    job.frames.as_ref().ok_or_else(|| {
        Fault::new(FaultKind::Usage, "this path carries frames alone")
            .remedy("choose --workload packets")
    })
}

/// Frames have no stream that could begin with a page.
pub fn no_witness() -> Fault {
    Fault::new(FaultKind::System, "a witness page was asked of frames")
        .remedy("report this as a bug")
}

/// For a sink that takes frames off the descriptors of a tap.
pub fn on_a_tap(job: &Job) -> Support {
    match job.frames.as_ref().is_none_or(|frames| frames.tap) {
        true => Support::Yes,
        false => Support::no("the link is no tap", "choose --link tap, or another sink"),
    }
}

/// For a sink that takes frames off a device of its own.
pub fn on_a_device(job: &Job) -> Support {
    match job.frames.as_ref().is_some_and(|frames| frames.tap) {
        false => Support::Yes,
        true => Support::no(
            "the sink's end of a tap is no device",
            "choose a link with two, such as --link offload, or a sink of taps",
        ),
    }
}

/// For a generator that makes all frames alike.
pub fn of_one_size(job: &Job, name: &str) -> Support {
    let sizes = job.frames.as_ref().map_or(&[][..], FramePlan::sizes);
    match sizes.windows(2).all(|pair| pair[0] == pair[1]) {
        true => Support::Yes,
        false => Support::no(
            format!("{name} makes frames of one size"),
            "choose one, such as frame=60, or another generator",
        ),
    }
}

/// For a sink, or with a generator, that cannot be asked what is in a frame: `why` it cannot.
pub fn cannot_verify(job: &Job, why: &str) -> Support {
    match job.touch {
        Touch::Verify => Support::no(why, "choose touch=none, or another path"),
        _ => Support::Yes,
    }
}

/// For a sink whose frames no application sees.
pub fn never_seen(job: &Job, name: &str) -> Support {
    match job.touch {
        Touch::None => Support::Yes,
        _ => Support::no(format!("no application sees what {name} takes"), "choose touch=none"),
    }
}

/// For a generator whose packets are several frames until the device gets them.
pub fn counted_by_frame(job: &Job) -> Support {
    match job.frames.as_ref().is_some_and(|frames| frames.queued) {
        false => Support::Yes,
        true => Support::no(
            "a queueing discipline counts a message of several datagrams as one packet, so that \
             what it drops cannot be told",
            "choose qdisc=none, or another generator",
        ),
    }
}

/// Where a program is to run.
pub fn mode(job: &Job) -> Mode {
    match job.options.word("mode") {
        "generic" => Mode::Generic,
        _ => Mode::Native,
    }
}

/// A program that the kernel did not take.
pub fn unloaded(what: &str, refused: Refused) -> Fault {
    let Refused { error, log } = refused;
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root: it takes CAP_BPF and CAP_NET_ADMIN",
        Some(libc::EBUSY | libc::EEXIST) => "the device has a program: take it off",
        Some(libc::EOPNOTSUPP | libc::EINVAL) => "the driver has no XDP: choose mode=generic",
        _ => "it takes CONFIG_BPF_SYSCALL and Linux 5.9",
    };
    let fault = Fault::system(what, &error).remedy(remedy);
    if log.is_empty() { fault } else { Fault { kind: FaultKind::Unsupported, ..fault } }
}
