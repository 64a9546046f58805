//! Profiles of the CPUs: samples with call chains, by perf_event_open(2). Only in separate trials,
//! because sampling costs throughput.
//!
//! Opening and mapping happen when the stream starts, so that the window contains only an ioctl. A
//! separate thread moves what the kernel writes out of the rings into memory allocated before;
//! addresses are symbolised after the window, and elsewhere.

use super::{Capture, Context, Meter, Output, Prepared, Running, at_stop};
use bytepath_record::{Facts, Fault, FaultKind, SAMPLING_OPTIONS, SamplePrice, Sampling, Support};
use bytepath_sys::perf::{
    self, Control, Event, LARGEST_SAMPLE, Rate, Record, Refused, Request, Sampler, Step, Tally,
    Unit, records,
};
use bytepath_sys::{Roots, allowance, attribute, clock, files, procfs};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) static METER: Meter = Meter {
    name: NAME,
    summary: "samples of what runs on the CPUs, with call chains; in separate trials (perf_event_open)",
    options: &SAMPLING_OPTIONS,
    usual: false,
    separate_trials: true,
    probe,
    prepare,
    start: |_| Err(Fault::failed("the options do not say what to sample")),
    ..Meter::BASE
};

pub const NAME: &str = "profile";

/// Most bytes of records for one window, over all CPUs, and the fraction of the memory limits'
/// remainder that they may take: the observed program shares the limit, and symbolising takes more.
/// Records beyond that are counted as lost.
const MOST_BYTES: u64 = 1 << 30;
const SHARE: u64 = 32;

/// Most bytes of `/proc/PID/maps` over all processes. A single one may have some hundred MiB:
/// vm.max_map_count lines, each with a path.
const MOST_MAPS: u64 = 64 << 20;

/// Seconds of samples that memory is allocated for from the start, with call chains of the kernel's
/// default depth.
const ROOM: f64 = 5.0;

/// How often the rings are read if they do not fill up.
const IDLE: Duration = Duration::from_millis(200);

fn probe(facts: &Facts) -> Support {
    let level = facts.number::<i32>("kernel.perf_event_paranoid");
    let may = level.is_none_or(|level| level < 1) || facts.privileges.may_monitor();
    Support::when(may, "the kernel allows no sampling of whole CPUs", permission_remedy(level))
}

fn prepare(context: &Context) -> Result<Option<Prepared>, Fault> {
    let Some(sampling) = context.options::<Sampling>()? else { return Ok(None) };
    let roots = &context.roots;
    let event = event(&sampling.event, roots)?;
    let request =
        Request { event, rate: Rate::Frequency(sampling.rate), cpus: sampling.cpus.clone() };
    let sampler = Sampler::open(&request).map_err(|refused| fault(refused, roots))?;
    let left = allowance::left(roots).map_or(MOST_BYTES, |left| left / SHARE);
    let most = left.min(MOST_BYTES) as usize;
    let each = (most / request.cpus.len().max(1))
        .min((sampling.rate as f64 * ROOM * LARGEST_SAMPLE as f64) as usize);
    let store = Store {
        rings: request.cpus.iter().map(|_| Vec::with_capacity(each)).collect(),
        most,
        dropped: 0,
    };
    let control = sampler.control();
    let ended = Arc::new(AtomicBool::new(false));
    let flag = ended.clone();
    let drainer = std::thread::Builder::new()
        .name(NAME.into())
        .spawn(move || drain(sampler, store, &flag))
        .map_err(|e| Fault::not_started("a thread", &e))?;
    let window = Window {
        threads: threads(&roots.proc),
        idle: BTreeMap::new(),
        roots: roots.clone(),
        sampling,
        unit: request.event.unit(),
        drainer: Drainer { control, ended, thread: Some(drainer) },
    };
    Ok(Some(Box::new(|| window.start())))
}

/// Returns the seconds that each CPU has been idle since it started.
fn idle(proc: &Path) -> BTreeMap<u32, f64> {
    let text = fs::read_to_string(proc.join("stat")).unwrap_or_default();
    let seconds = |ticks: u64| ticks as f64 / procfs::user_hz();
    let cpus = procfs::parse_stat(&text).unwrap_or_default();
    cpus.into_iter().map(|cpu| (cpu.cpu, seconds(cpu.idle + cpu.iowait))).collect()
}

/// Length of each turn with or without sampling, if nobody waits for the cost.
pub const TURN: Duration = Duration::from_millis(50);

/// Measures the cost of one sample of an event here; without a name, of hardware cycles, or of the
/// CPU clock if there are none. Takes eight turns of length `turn` for each.
pub fn price(
    event: Option<&str>,
    cpu: u32,
    turn: Duration,
    roots: &Roots,
) -> Result<SamplePrice, Fault> {
    let mut sampled = match event {
        Some(name) => self::event(name, roots)?,
        None => Event::cycles(),
    };
    let mut cost = perf::sample_cost(&sampled, cpu, turn);
    // Virtual machines often have no counters, or counters that never count.
    let never_counts = match &cost {
        Ok(cost) => cost.is_none(),
        Err(refused) => refused.step == Step::Open && !is_permission(refused),
    };
    if event.is_none() && never_counts {
        sampled = Event::cpu_clock();
        cost = perf::sample_cost(&sampled, cpu, turn);
    }
    let cost = cost.map_err(|refused| fault(refused, roots))?;
    Ok(SamplePrice { event: sampled.name, seconds: cost.map(|cost| cost.seconds) })
}

fn event(name: &str, roots: &Roots) -> Result<Event, Fault> {
    Event::parse(name, &roots.sys).map_err(|unknown| {
        let fault = Fault::usage(unknown.what);
        match unknown.instead {
            Some(instead) => fault.remedy(instead),
            None => fault,
        }
    })
}

fn is_permission(refused: &Refused) -> bool {
    refused.error.kind() == std::io::ErrorKind::PermissionDenied
}

fn fault(refused: Refused, roots: &Roots) -> Fault {
    let kernel = |name: &str| {
        attribute::text(&roots.proc.join("sys/kernel").join(name))?.parse::<i32>().ok()
    };
    let code = refused.error.raw_os_error().unwrap_or_default();
    let fault = Fault::system(&refused, &refused.error);
    let fault = Fault { message: refused.to_string(), ..fault };
    match (refused.step, code) {
        (Step::Map, libc::EPERM | libc::ENOMEM) => {
            let limit = kernel("perf_event_mlock_kb").unwrap_or_default();
            Fault { kind: FaultKind::Permission, ..fault }.remedy(format!(
                "the ring is locked memory: raise kernel.perf_event_mlock_kb (now {limit}) or \
                 RLIMIT_MEMLOCK (ulimit -l), or give CAP_IPC_LOCK"
            ))
        }
        (Step::Open, libc::EACCES | libc::EPERM) => {
            fault.remedy(permission_remedy(kernel("perf_event_paranoid")))
        }
        (Step::Open, libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => {
            Fault { kind: FaultKind::Unsupported, ..fault }
                .remedy("this host cannot sample it; cpu-clock works everywhere")
        }
        (Step::Open, libc::EINVAL) => {
            let most = kernel("perf_event_max_sample_rate").unwrap_or_default();
            fault.remedy(format!(
                "a rate above kernel.perf_event_max_sample_rate (now {most})? an event that \
                 cannot be sampled?"
            ))
        }
        (Step::Open, libc::EBUSY) => fault.remedy("another profiler uses the counters: stop it"),
        _ => fault,
    }
}

fn permission_remedy(paranoid: Option<i32>) -> String {
    let now = paranoid.map(|level| format!(" (now {level})")).unwrap_or_default();
    format!(
        "run as root or with CAP_PERFMON, or lower kernel.perf_event_paranoid{now} to 0; in a \
         container, allow perf_event_open in its seccomp profile"
    )
}

/// Returns every thread in `/proc`: process id, thread id, name.
fn threads(proc: &Path) -> Vec<(u32, u32, String)> {
    let mut all = Vec::new();
    for pid in procfs::numbered(proc).unwrap_or_default() {
        let tasks = proc.join(pid.to_string()).join("task");
        for tid in procfs::numbered(&tasks).unwrap_or_default() {
            let name = procfs::name(&tasks.join(tid.to_string()));
            all.extend(name.map(|name| (pid, tid, name)));
        }
    }
    all
}

/// Sampling during one window.
struct Window {
    roots: Roots,
    sampling: Sampling,
    unit: Unit,
    threads: Vec<(u32, u32, String)>,
    /// Seconds that each CPU had been idle when the window began.
    idle: BTreeMap<u32, f64>,
    drainer: Drainer,
}

impl Window {
    fn start(mut self) -> Result<Box<dyn Running>, Fault> {
        self.idle = idle(&self.roots.proc);
        let begin = clock::monotonic();
        let enabled = self.drainer.control.enable();
        enabled.map_err(|e| Fault::system("cannot enable a perf event", &e))?;
        let since = Instant::now();
        at_stop(move || self.stop(begin, since))
    }

    fn stop(mut self, begin: u64, since: Instant) -> Result<Output, Fault> {
        let drained = self.drainer.stop()?;
        let seconds = since.elapsed().as_secs_f64();
        let gained = |(cpu, now): (u32, f64)| Some((cpu, now - self.idle.get(&cpu)?));
        let idle = idle(&self.roots.proc).into_iter().filter_map(gained).collect();
        let tally = |part: fn(&Tally) -> u64| drained.tallies.iter().map(part).sum::<u64>();
        let (enabled, running) = (tally(|t| t.enabled), tally(|t| t.running));
        let mut capture = Capture {
            sampling: self.sampling,
            unit: self.unit,
            records: drained.store.rings,
            begin,
            seconds,
            idle,
            lost: 0,
            dropped: drained.store.dropped,
            throttled: 0,
            counted: if enabled > 0 { running as f64 / enabled as f64 } else { 1.0 },
            threads: self.threads,
            maps: BTreeMap::new(),
        };
        capture.read_processes(&self.roots);
        // The kernel's own count includes losses after which no record fitted in the ring.
        let counted: Option<u64> = drained.tallies.iter().map(|tally| tally.lost).sum();
        capture.lost = capture.lost.max(counted.unwrap_or_default()) + capture.dropped;
        Ok(Output { capture: Some(Box::new(capture)), ..Output::default() })
    }
}

impl Capture {
    /// Counts losses, and reads the names and files of the sampled processes while they exist.
    fn read_processes(&mut self, roots: &Roots) {
        let proc = &roots.proc;
        let known: BTreeSet<u32> = self.threads.iter().map(|(_, tid, _)| *tid).collect();
        let (mut pids, mut nameless) = (BTreeSet::new(), BTreeSet::new());
        for record in self.records.iter().flat_map(|bytes| records(bytes)) {
            match record {
                Ok(Record::Sample(sample)) => {
                    let task = sample.task;
                    // Kernel threads have no maps; finding that out is quick.
                    pids.insert(task.pid);
                    if !known.contains(&task.tid) {
                        nameless.insert((task.pid, task.tid));
                    }
                }
                Ok(Record::Lost(count)) => self.lost += count,
                Ok(Record::Throttle) => self.throttled += 1,
                _ => {}
            }
        }
        for (pid, tid) in nameless {
            let dir = proc.join(pid.to_string()).join("task").join(tid.to_string());
            self.threads.extend(procfs::name(&dir).map(|name| (pid, tid, name)));
        }
        let mut room = allowance::left(roots).map_or(MOST_MAPS, |left| MOST_MAPS.min(left / SHARE));
        for pid in pids.into_iter().filter(|pid| *pid != 0) {
            let text = files::read_text(&proc.join(pid.to_string()).join("maps"), room);
            let text = text.ok().filter(|text| !text.is_empty());
            room -= text.as_ref().map_or(0, |text| text.len() as u64);
            self.maps.extend(text.map(|text| (pid, text)));
        }
    }
}

/// The thread that empties the rings, and the control of the events that fill them.
struct Drainer {
    control: Control,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Drained, Fault>>>,
}

/// The result of the thread.
struct Drained {
    store: Store,
    tallies: Vec<Tally>,
}

impl Drainer {
    fn stop(&mut self) -> Result<Drained, Fault> {
        let disabled = self.control.disable();
        self.end();
        disabled.map_err(|e| Fault::system("cannot disable a perf event", &e))?;
        let ended = self.thread.take().map(JoinHandle::join);
        ended
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(Fault::failed("the thread that reads the samples panicked")))
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        // If this fails, the thread checks by itself before long.
        let _ = self.control.wake();
    }
}

impl Drop for Drainer {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Moves records out of the rings until `ended` is set.
fn drain(mut sampler: Sampler, mut store: Store, ended: &AtomicBool) -> Result<Drained, Fault> {
    loop {
        // Read before the last turn: the event is already disabled then.
        let last = ended.load(Ordering::Acquire);
        sampler
            .drain(|ring, first, second| store.keep(ring, first, second))
            .map_err(|e| Fault::failed(e.to_string()))?;
        if last {
            break;
        }
        sampler.wait(IDLE).map_err(|e| Fault::system("cannot wait for samples", &e))?;
    }
    let tallies = sampler.tallies().map_err(|e| Fault::system("cannot read a perf event", &e))?;
    Ok(Drained { store, tallies })
}

/// Records of each ring, in memory allocated before the window.
struct Store {
    rings: Vec<Vec<u8>>,
    /// Most bytes to keep, over all rings.
    most: usize,
    /// Samples that did not fit.
    dropped: u64,
}

impl Store {
    fn keep(&mut self, ring: usize, first: &[u8], second: &[u8]) {
        let kept: usize = self.rings.iter().map(Vec::len).sum();
        let Some(bytes) = self.rings.get_mut(ring) else { return };
        let old = bytes.len();
        // Within the capacity this allocates nothing; a window longer than that costs a
        // reallocation.
        bytes.extend_from_slice(first);
        bytes.extend_from_slice(second);
        if kept + first.len() + second.len() > self.most {
            let sampled = |record: &Result<Record, _>| matches!(record, Ok(Record::Sample(_)));
            self.dropped += records(&bytes[old..]).filter(sampled).count() as u64;
            bytes.truncate(old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(step: Step, code: i32) -> Refused {
        let error = std::io::Error::from_raw_os_error(code);
        Refused { step, event: "cycles".into(), cpu: 3, error }
    }

    #[test]
    fn names_remedies() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("proc/sys/kernel");
        std::fs::create_dir_all(&kernel).unwrap();
        for (name, value) in [
            ("perf_event_paranoid", "2"),
            ("perf_event_mlock_kb", "516"),
            ("perf_event_max_sample_rate", "100000"),
        ] {
            std::fs::write(kernel.join(name), format!("{value}\n")).unwrap();
        }
        let roots = Roots::recorded(dir.path());
        let cases = [
            (Step::Open, libc::EACCES, FaultKind::Permission, "perf_event_paranoid (now 2)"),
            (Step::Open, libc::EPERM, FaultKind::Permission, "CAP_PERFMON"),
            (Step::Open, libc::ENOENT, FaultKind::Unsupported, "cpu-clock"),
            (Step::Open, libc::EINVAL, FaultKind::System, "now 100000"),
            (Step::Open, libc::EBUSY, FaultKind::System, "another profiler"),
            (Step::Map, libc::EPERM, FaultKind::Permission, "perf_event_mlock_kb (now 516)"),
            (Step::Map, libc::ENOMEM, FaultKind::Permission, "RLIMIT_MEMLOCK"),
        ];
        for (step, code, kind, remedy) in cases {
            let fault = fault(refused(step, code), &roots);
            assert_eq!(fault.kind, kind, "{fault}");
            assert!(fault.message.contains("'cycles' on CPU 3"), "{fault}");
            assert!(fault.remedy.as_ref().unwrap().contains(remedy), "{fault}");
        }
    }

    #[test]
    fn counts_samples_without_room() {
        let sample = |chain: usize| {
            let mut bytes = 9u32.to_ne_bytes().to_vec();
            let size = 8 + 48 + 8 * chain;
            bytes.extend(1u16.to_ne_bytes());
            bytes.extend((size as u16).to_ne_bytes());
            bytes.resize(8 + 40, 0);
            bytes.extend((chain as u64).to_ne_bytes());
            bytes.resize(size, 0);
            bytes
        };
        let mut store = Store { rings: vec![Vec::new(); 2], most: 200, dropped: 0 };
        let (one, two) = (sample(1), sample(2));
        store.keep(0, &one, &[]);
        store.keep(1, &one[..32], &one[32..]);
        assert_eq!(store.rings[1], one);
        assert_eq!(store.dropped, 0);
        store.keep(0, &two, &one);
        assert_eq!((store.dropped, store.rings[0].len()), (2, one.len()));
        store.keep(0, &sample(0), &[]);
        assert_eq!((store.dropped, store.rings[0].len()), (2, one.len() + 56));
    }

    #[test]
    fn probes_paranoia_and_privileges() {
        let facts = |paranoid: &str, capabilities: &[&str], user_namespace: bool| {
            let mut facts = Facts::default();
            facts.settings.insert("kernel.perf_event_paranoid".into(), paranoid.into());
            facts.privileges.capabilities = capabilities.iter().map(|c| (*c).into()).collect();
            facts.privileges.user_namespace = user_namespace;
            probe(&facts)
        };
        assert!(facts("2", &["SYS_ADMIN"], false).is_yes());
        assert!(facts("-1", &[], false).is_yes());
        assert!(facts("0", &[], true).is_yes());
        assert!(!facts("1", &[], false).is_yes());
        assert!(!facts("2", &["SYS_ADMIN"], true).is_yes(), "root of its own namespace only");
        assert!(probe(&Facts::default()).is_yes(), "nothing known is not a refusal");
    }
}
