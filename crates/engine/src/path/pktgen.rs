//! `pktgen`: the kernel's own packet generator, controlled through its files. A kernel thread on
//! each CPU makes the frames and hands them to the device, bypassing its qdisc.

use super::{DataPath, HalfPath, Opened, frames};
use crate::connection::{Attached, Connection, FRAMES};
use crate::workload::{Account, FramePlan, Group, HalfConfig, Recorder, Tx, share};
use bytepath_record::{Attempt, Facts, Fault, FaultKind, Hops, OptionKind, OptionSpec, Support};
use bytepath_sys::pktgen::{self, Generator, Progress, Refused};
use bytepath_sys::{boot, device, thread};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub(super) static PATH: DataPath = DataPath {
    name: "pktgen",
    summary: "frames by the kernel's packet generator, bypassing the queueing discipline",
    attempt,
    tx: Some(HalfPath::tx(check, open).with_options(OPTIONS).over(&[FRAMES])),
    ..DataPath::EMPTY
};

const ATTEMPT: &str = "pktgen";

const REMEDY: &str = "modprobe pktgen (CONFIG_NET_PKTGEN); the newer kernel of a guest has it: \
     --testbed vm";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("burst", OptionKind::Count(1, 1024), "1")
        .help("frames handed to the device at once; above 1 requires a driver that shares buffers"),
    OptionSpec::new("clones", OptionKind::Count(0, 1_000_000), "0")
        .help("how often each buffer is sent again (clone_skb); likewise"),
];

/// Where its files are.
const PROC: &str = "/proc";

/// Interval at which its progress is read.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(1);

/// Interval at which a stop is repeated until it takes effect: one before the start is ignored.
const STOP_INTERVAL: Duration = Duration::from_millis(20);

fn attempt(_: Option<&str>) -> Vec<Attempt> {
    let kept = || boot::module_file(boot::MODULES.as_ref(), ATTEMPT).is_some();
    let is_there = pktgen::is_there(Path::new(PROC)) || kept();
    vec![super::looked_for(ATTEMPT, is_there, "there is no /proc/net/pktgen")]
}

fn check(job: &HalfConfig, facts: &Facts) -> Support {
    frames::require_one_size(job, PATH.name)
        .and(frames::cannot_verify(job, "pktgen chooses what is in its frames"))
        .and(facts.require(ATTEMPT, REMEDY))
}

fn open(job: &HalfConfig, connection: &dyn Connection, group: &Group) -> Opened<dyn Tx> {
    let at = Attached::of(connection)?;
    let plan = frames::plan(job)?;
    let all = group.share(|| Threads::new(job, plan, &at))?;
    Ok(Box::new(Flow {
        at,
        all,
        flow: connection.index(),
        size: plan.largest().into(),
        seen: Progress::default(),
    }))
}

/// The threads of all flows, which are started and stopped together.
struct Threads {
    generator: Arc<Generator>,
    /// Whether each thread ends by itself after a number of frames.
    counted: bool,
    /// The thread that waits for all of them to end.
    waiting: Mutex<Waiting>,
}

enum Waiting {
    NotStarted,
    Started(JoinHandle<Result<(), Refused>>),
    Ended,
}

impl Threads {
    fn new(job: &HalfConfig, plan: &FramePlan, at: &Attached) -> Result<Threads, Fault> {
        if !pktgen::is_there(Path::new(PROC)) {
            boot::load_kept(ATTEMPT, "")
                .map_err(|e| Fault::system("loading pktgen", &e).remedy(REMEDY))?;
        }
        let device = device::name(at.device()?).map_err(|e| at.fault("asking for its name", &e))?;
        // The flow's thread runs on the CPU meant for the generator; if not pinned, generators are
        // spread.
        let cpus = thread::allowed().map_err(|e| at.fault("asking for CPUs", &e))?;
        let number = |name| job.options.number(name).unwrap_or_default() as u32;
        let job = pktgen::Job {
            device,
            cpus: cpus.iter().copied().cycle().take(job.flows as usize).collect(),
            size: plan.largest(),
            counts: (0..job.flows).map(|flow| part(plan.count, job, flow)).collect(),
            rates: (0..job.flows).map(|flow| part(plan.rate, job, flow)).collect(),
            burst: number("burst"),
            clones: number("clones"),
            hardware: FramePlan::HARDWARE,
            addresses: FramePlan::ADDRESSES,
            ports: [FramePlan::port(0), FramePlan::PORT],
        };
        let generator = Generator::new(Path::new(PROC), &job).map_err(|r| refused(&r))?;
        let waiting = Mutex::new(Waiting::NotStarted);
        Ok(Threads { generator: Arc::new(generator), counted: plan.count.is_some(), waiting })
    }

    /// Starts all threads, unless another flow already has.
    fn start(&self) -> Result<(), Fault> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*waiting, Waiting::NotStarted) {
            let generator = self.generator.clone();
            let run = std::thread::Builder::new().name("pktgen".into());
            let run = run.spawn(move || generator.run());
            *waiting = Waiting::Started(run.map_err(|e| Fault::not_started("a thread", &e))?);
        }
        Ok(())
    }

    /// Waits until all have ended. `tell`: stops those without a number of frames.
    fn end(&self, tell: bool) -> Result<(), Fault> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Waiting::Started(running) = std::mem::replace(&mut *waiting, Waiting::Ended) else {
            return Ok(());
        };
        while !running.is_finished() {
            if tell {
                self.generator.stop().map_err(|r| refused(&r))?;
            }
            std::thread::sleep(STOP_INTERVAL);
        }
        let ended = running.join().unwrap_or(Ok(()));
        ended.map_err(|r| refused(&r))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // The trial was cut, so failures are no longer reported.
        let _ = self.end(true);
    }
}

/// Returns one flow's share of `all`, or 0 if `all` is `None`.
fn part(all: Option<u64>, job: &HalfConfig, flow: u32) -> u64 {
    all.map_or(0, |all| share(all, job.flows, flow))
}

struct Flow {
    at: Attached,
    all: Arc<Threads>,
    flow: u32,
    size: u64,
    seen: Progress,
}

impl Tx for Flow {
    /// Only waits and records: the kernel thread generates by itself, at its own rate if it has
    /// one.
    fn send_at_most(&mut self, _: u64, recorder: &mut Recorder) -> Result<u64, Fault> {
        self.at.check()?;
        self.all.start()?;
        std::thread::sleep(PROGRESS_INTERVAL);
        self.look(recorder)
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        self.all.end(!self.all.counted)?;
        self.look(recorder)?;
        let Progress { sent, errors, .. } = self.seen;
        // Frames dropped by the device count as refused, and are among its drops.
        let hops = Hops { offered: sent + errors, refused: errors, ..Hops::default() };
        let source = "pktgen: frames made in the kernel";
        Ok(frames::made_in_kernel(hops, sent * self.size, sent, source))
    }
}

impl Flow {
    /// Records the progress; returns how many frames were generated since the last call.
    fn look(&mut self, recorder: &mut Recorder) -> Result<u64, Fault> {
        let now = self.all.generator.progress(self.flow as usize).map_err(|r| refused(&r))?;
        recorder.moved(now.sent.saturating_sub(self.seen.sent) as usize);
        let before = std::mem::replace(&mut self.seen, now);
        Ok((now.sent + now.errors).saturating_sub(before.sent + before.errors))
    }
}

/// The fault of a setting that the kernel rejected.
fn refused(refused: &Refused) -> Fault {
    let what = format!("pktgen, {}: {}", refused.file.display(), refused.command);
    let fault = Fault::system(what, &refused.error);
    let shares = ["burst ", "clone_skb "].iter().any(|word| refused.command.starts_with(word));
    match refused.error.raw_os_error() {
        Some(libc::EOPNOTSUPP) if shares => {
            let why = "the driver does not allow one buffer to be sent \
                       several times (IFF_TX_SKB_SHARING); taps and veths do not";
            let fault = Fault { kind: FaultKind::Unsupported, ..fault };
            fault.words(Some(why)).remedy("choose burst=1 and clones=0, or a NIC")
        }
        Some(libc::ENOENT) => fault.remedy(REMEDY),
        Some(libc::ENODEV) => Fault { kind: FaultKind::PeerLost, ..fault }
            .remedy("the device was removed: find out why"),
        _ => fault.remedy("run as root, with CAP_NET_ADMIN"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn refused_burst_has_remedy() {
        let error = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let file = "/proc/net/pktgen/byte0@0".into();
        let fault = refused(&Refused { file, command: "burst 32".into(), error });
        assert_eq!(fault.kind, FaultKind::Unsupported);
        for word in ["byte0@0", "burst 32", "IFF_TX_SKB_SHARING", "taps and veths"] {
            assert!(fault.message.contains(word), "{word}: {fault}");
        }
        assert!(fault.remedy.unwrap().contains("burst=1"));
    }

    #[test]
    fn missing_pktgen_has_remedy() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        let file = "/proc/net/pktgen/kpktgend_0".into();
        let fault = refused(&Refused { file, command: "rem_device_all".into(), error });
        assert!(fault.remedy.unwrap().contains("modprobe pktgen"));
    }
}
