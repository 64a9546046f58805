//! Observes any program: starts one, or attaches to a running process, and counts its system
//! calls, sockets, copies and CPU time until it ends. `docs/guide/observe.md` describes how each
//! figure is obtained.
//!
//! [`observe`] runs in the process of the user's command. `kernel` loads the BPF programs of
//! `program` into the kernel, where they count by thread, call and socket in maps (`layout`); at
//! the end, `kernel` reads the maps into `observations`. Meanwhile, `connections` reads TCP's
//! figures of the program's sockets, and `family` reads its threads from `/proc`. `traffic` and
//! `copies` turn the counts into ledgers of what was copied and what was not. The result is one
//! `record::Observation`, which [`fold`] shortens. It runs no trials and compares nothing.

#![forbid(unsafe_code)]

mod absent;
mod connections;
mod copies;
mod counter;
mod family;
mod fold;
mod kernel;
mod layout;
mod observations;
mod program;
mod traffic;

pub use counter::Method;
pub use fold::fold;

use absent::{missing, or_absent};
use bytepath_meter::{self as meter, Context, Running};
use bytepath_profile::Profile;
use bytepath_record::{
    Absent, CallRow, CopyCount, Counter, CpuSource, CpuTime, Ending, Fault, Observation,
    ObservedCall, ObservedThread, SCHEMA_VERSION, ThreadTime,
};
use bytepath_sys::Roots;
use bytepath_sys::allowance;
use bytepath_sys::cgroup::{self, Throttling};
use bytepath_sys::launch::{self, ExitStatus, How, PausedProgram};
use bytepath_sys::tcp::wait_readable;
use connections::Connections;
use copies::{disagreement, estimate};
use counter::Start;
use family::Member;
use kernel::Counting;
use observations::{Observations, Row, Used};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What to watch, and how.
#[derive(Clone, Debug)]
pub struct Request {
    pub target: Target,
    /// How system calls are counted.
    pub method: Method,
    /// When to stop watching a process that was already running.
    pub limit: Option<Duration>,
}

#[derive(Clone, Debug)]
pub enum Target {
    /// A program to start: its name and its arguments.
    Command(Vec<OsString>),
    /// A running process, with its threads and its descendants.
    Process(u32),
}

/// Flags that signal handlers set.
#[derive(Debug, Default)]
pub struct SignalFlags {
    /// Stop watching a process. A program that we started receives Ctrl-C itself, and is watched
    /// until it ends.
    pub stop: Arc<AtomicBool>,
    /// A signal to pass on to a program that we started; 0 if there is none.
    pub pass_on: Arc<AtomicUsize>,
}

#[derive(Clone, Debug)]
pub struct Observed {
    /// Everything that goes to disk.
    pub observation: Observation,
    /// Where the program's time went; `None` without a sampler.
    pub profile: Option<Profile>,
    /// Bytes that it read with `MSG_PEEK`.
    peeked: u64,
}

/// Profiles the program while it is watched.
pub trait Sampler {
    /// Called when the process exists but has not run an instruction yet, or when it is already
    /// running.
    fn begin(&mut self, pid: u32) -> Result<(), Fault>;

    /// Called at least every [`LOOK`] to read new samples.
    fn tick(&mut self);

    /// Called when the program or the watch has ended. Returns the profile of these processes.
    fn end(&mut self, pids: &[u32]) -> Result<Profile, Fault>;
}

impl Observed {
    /// Estimates the copies from the profile if they could not be counted. `bandwidth` measures how
    /// fast one core copies, in bytes per second: lower bound (from memory) and upper bound (in
    /// cache). It is called only if there is something to estimate.
    pub fn estimate_copies(&mut self, bandwidth: impl FnOnce() -> Option<(f64, f64)>) {
        let observation = &mut self.observation;
        let profile = self.profile.as_ref().filter(|_| observation.copies == CopyCount::Unknown);
        let pids = observation.pids();
        if let Some(copies) = profile.and_then(|profile| estimate(profile, &pids, bandwidth)) {
            let (sent, received) = (&observation.sent.ledger, &observation.received.ledger);
            observation.disagreement = disagreement(&copies, sent, received, self.peeked);
            observation.copies = copies;
        }
    }
}

/// Longest time between two checks of signal flags and samples.
pub const LOOK: Duration = Duration::from_millis(100);

/// Starts the program or attaches to the process, and watches it until it ends, or until the limit
/// or a signal. Failures of the sampler are listed as absent.
pub fn observe(
    request: &Request,
    signals: &SignalFlags,
    sampler: Option<&mut dyn Sampler>,
) -> Result<Observed, Fault> {
    match &request.target {
        Target::Command(words) => command(words, request.method, signals, sampler),
        Target::Process(pid) => process(*pid, request, signals, sampler),
    }
}

fn command(
    words: &[OsString],
    method: Method,
    signals: &SignalFlags,
    sampler: Option<&mut dyn Sampler>,
) -> Result<Observed, Fault> {
    let name = words.first().ok_or_else(|| Fault::usage("no program is named"))?;
    let cannot = |e: &std::io::Error| {
        Fault::usage(format!("cannot run '{}': {e}", name.to_string_lossy()))
            .remedy("use the program's name as in a shell")
    };
    let file = launch::find(name, std::env::var_os("PATH")).map_err(|e| cannot(&e))?;
    let held = PausedProgram::new(&file, words)
        .map_err(|e| Fault::system("cannot create a process", &e))?;
    let pid = held.pid;
    let roots = Roots::real();
    // If memory runs out, the kernel should kill this process and not the program, which keeps the
    // earlier score.
    let _ = std::fs::write(roots.proc.join("self/oom_score_adj"), "1000");
    allowance::exit_as_child(pid, "bytepath: no memory is left for the report\n");
    let started = counter::start(method, &roots, &Start::Exec(pid))?;
    let mut watch = Watch::begin(pid, BTreeMap::new(), started, sampler, roots);
    let end = end_of(pid)?;
    let launched = held.release().map_err(|e| cannot(&e))?;
    while !readable(&end, LOOK)? {
        watch.tick();
        let signal = signals.pass_on.swap(0, Ordering::Relaxed);
        if let Some(signal) = i32::try_from(signal).ok().filter(|signal| *signal != 0) {
            // A program that has just ended does not need the signal any more.
            let _ = launch::signal(pid, signal);
        }
    }
    let ended = launched.wait().map_err(|e| Fault::system("cannot wait for the program", &e))?;
    allowance::child_ended(match ended.how {
        How::Code(code) => code,
        How::Signal(signal) => 128 + signal,
    });
    let words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    Ok(watch.finish(words, Some(ended), Ending::Gone))
}

fn process(
    pid: u32,
    request: &Request,
    signals: &SignalFlags,
    sampler: Option<&mut dyn Sampler>,
) -> Result<Observed, Fault> {
    let roots = Roots::real();
    let end = end_of(pid)?;
    let words = command_line(&roots.proc, pid);
    let started = counter::start(request.method, &roots, &Start::Now(pid))?;
    let counted = Instant::now();
    // CPU time used before is not counted, so it is read once more, now.
    let before = family::members(&roots.proc, pid);
    let mut watch = Watch::begin(pid, before, started, sampler, roots);
    watch.begun = counted;
    let begun = Instant::now();
    let ending = loop {
        let left = request.limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        if readable(&end, LOOK.min(left.unwrap_or(LOOK)))? {
            break Ending::Gone;
        }
        watch.tick();
        if signals.stop.load(Ordering::Relaxed) || left.is_some_and(|left| left.is_zero()) {
            break Ending::Running;
        }
    };
    Ok(watch.finish(words, None, ending))
}

/// Describes how long a CPU quota has throttled since `before`, if at all.
fn quota_used_up(before: &Throttling) -> Option<String> {
    let taken = cgroup::most_throttled(before, &cgroup::throttling_again(before))?;
    (taken.throttled > 0).then(|| {
        format!(
            "the CPU quota of its control group was used up in {} of {} periods and kept all in it \
             from the CPUs for {:.2} s of CPU time",
            taken.throttled, taken.periods, taken.seconds
        )
    })
}

/// Names the descendants of an ended program that are still running.
fn still_running(pid: u32, threads: &[ObservedThread]) -> Option<String> {
    let running = threads.iter().filter(|thread| !thread.ended && ![0, pid].contains(&thread.pid));
    let running: BTreeSet<u32> = running.map(|thread| thread.pid).collect();
    let first = running.first()?;
    let pids: Vec<String> = running.iter().take(8).map(u32::to_string).collect();
    let more = if running.len() > pids.len() { ", ..." } else { "" };
    Some(format!(
        "{} of its descendants still run{} (process {}{more}): what they do from now on is not \
         counted; to observe one: bytepath observe --pid {first}",
        running.len(),
        if running.len() == 1 { "s" } else { "" },
        pids.join(", ")
    ))
}

/// A watch in progress.
struct Watch<'a> {
    pid: u32,
    /// Threads that existed before, with the time they had used.
    before: BTreeMap<u32, Member>,
    counting: Option<Counting>,
    /// Whether `/proc` uses the same thread ids as the kernel's programs.
    ids_agree: bool,
    absent: Vec<Absent>,
    warnings: Vec<String>,
    machine: Option<Box<dyn Running>>,
    sampler: Option<&'a mut dyn Sampler>,
    connections: Connections,
    roots: Roots,
    /// Throttling by the CPU quotas of its control groups at the start.
    quota: Throttling,
    /// When counting began, or the program.
    begun: Instant,
    started_ms: u64,
}

impl<'a> Watch<'a> {
    fn begin(
        pid: u32,
        before: BTreeMap<u32, Member>,
        (counting, mut absent): (Option<Counting>, Vec<Absent>),
        mut sampler: Option<&'a mut dyn Sampler>,
        roots: Roots,
    ) -> Self {
        // A part that cannot start is listed as absent; no other figure suffers.
        let begun = sampler.as_mut().map(|sampler| sampler.begin(pid));
        if or_absent(&mut absent, PROFILE, begun).is_none() {
            sampler = None;
        }
        let machine = or_absent(&mut absent, MACHINE, Some(machine(&roots)));
        let warnings =
            counting.as_ref().map(|counting| counting.remarks.clone()).unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ids_agree = counting.is_none() || kernel::initial_pid_namespace(&roots);
        Watch {
            pid,
            ids_agree,
            before: if ids_agree { before } else { BTreeMap::new() },
            counting,
            absent,
            warnings,
            machine,
            sampler,
            connections: Connections::watch(pid, &roots),
            quota: cgroup::throttling(&roots, &pid.to_string()),
            roots,
            begun: Instant::now(),
            started_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn tick(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.tick();
        }
        self.connections.tick();
    }

    /// Combines all figures. The program has ended, so whatever cannot be read now is listed as
    /// absent, and its exit code is kept.
    fn finish(
        mut self,
        command: Vec<String>,
        ended: Option<ExitStatus>,
        ending: Ending,
    ) -> Observed {
        let until_its_end = self.begun.elapsed();
        let counts = self.counting.as_ref().map(Counting::read);
        // A process that is still running was counted until now.
        let time = if ended.is_some() { until_its_end } else { self.begun.elapsed() };
        let seconds = time.as_secs_f64();
        self.connections.look();
        let machine = self.machine.take().map(|machine| machine.stop());
        let machine = or_absent(&mut self.absent, MACHINE, machine).unwrap_or_default();
        let counts = or_absent(&mut self.absent, counter::WHAT, counts);
        let counter = counts.as_ref().map(|_| Counter::TaskStorage);
        let counts = counts.unwrap_or_default();
        let threads = self.threads(&counts);
        // Symbolizing takes time, in which a process that is still running would be counted
        // further.
        let pids = threads.iter().map(|thread| thread.pid).filter(|pid| *pid != 0);
        let pids: Vec<u32> = pids.chain([self.pid]).collect();
        let profile = self.sampler.take().map(|sampler| sampler.end(&pids));
        let profile = or_absent(&mut self.absent, PROFILE, profile);
        let (sent, received) = traffic::traffic(&counts);
        let peeked = traffic::peeked(&counts);
        let copies = self.copies(&counts);
        self.warn(&counts, machine.warnings);
        self.warnings.extend(quota_used_up(&self.quota));
        self.warnings.extend(ended.and_then(|_| still_running(self.pid, &threads)));
        let sockets = traffic::sockets(&counts);
        let (tcp, absent, warnings) = self.connections.finish(&sockets);
        self.absent.extend(absent);
        self.warnings.extend(warnings);
        Observed {
            observation: Observation {
                schema: SCHEMA_VERSION,
                bytepath: env!("CARGO_PKG_VERSION").to_owned(),
                command,
                pid: self.pid,
                started_ms: self.started_ms,
                seconds,
                host: None,
                ending: ended.map_or(ending, |ended| match ended.how {
                    How::Code(code) => Ending::Code(code),
                    How::Signal(signal) => Ending::Signal(signal),
                }),
                counter,
                used: used(ended, &threads),
                threads,
                calls: table(&counts.rows),
                sockets,
                tcp,
                limits: Vec::new(),
                disagreement: disagreement(&copies, &sent.ledger, &received.ledger, peeked),
                sent,
                received,
                machine: machine.readings,
                copies,
                profile: None,
                absent: self.absent,
                warnings: self.warnings,
            },
            profile,
            peeked,
        }
    }

    /// Collects all threads: those that existed before, those that were created, and those of which
    /// only calls are known.
    fn threads(&self, counts: &Observations) -> Vec<ObservedThread> {
        let mut threads: BTreeMap<u32, ObservedThread> = BTreeMap::new();
        let blank = |tid: u32| ObservedThread { tid, ..ObservedThread::default() };
        for (tid, member) in &self.before {
            let name = member.name.clone();
            threads.insert(*tid, ObservedThread { pid: member.process, name, ..blank(*tid) });
        }
        for thread in &counts.threads {
            let known = threads.entry(thread.tid).or_insert_with(|| blank(thread.tid));
            known.pid = if thread.process != 0 { thread.process } else { known.pid };
            known.parent = thread.parent;
            known.ended = thread.ended;
            if !thread.name.is_empty() {
                known.name = thread.name.clone();
            }
            known.time = thread.used.map(|used| self.time(thread.tid, used.adjusted()));
        }
        for row in &counts.rows {
            threads.entry(row.tid).or_insert_with(|| blank(row.tid));
        }
        if self.ids_agree {
            threads.values_mut().filter(|t| t.time.is_none()).for_each(|t| self.read_proc(t));
        }
        for thread in threads.values_mut() {
            if let Some(time) = &mut thread.time {
                time.name = thread.name.clone();
            }
        }
        threads.into_values().collect()
    }

    /// Reads time and name of a live thread; a thread that is not in `/proc` has ended.
    fn read_proc(&self, thread: &mut ObservedThread) {
        let proc = &self.roots.proc;
        let living = !thread.ended;
        match living.then(|| family::used(proc, thread.tid)).flatten() {
            Some(used) => {
                thread.time = Some(self.time(thread.tid, used));
                thread.name = family::name(proc, thread.tid).unwrap_or_default();
            }
            None => thread.ended = true,
        }
    }

    /// Returns what a thread used while it was watched, in seconds.
    fn time(&self, tid: u32, used: Used) -> ThreadTime {
        let before = self.before.get(&tid).and_then(|member| member.used).unwrap_or_default();
        let used = used.since(&before);
        let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
        ThreadTime {
            name: String::new(),
            tid,
            run: seconds(used.run),
            wait: seconds(used.wait),
            user: seconds(used.user),
            system: seconds(used.system),
            voluntary: used.voluntary,
            involuntary: used.involuntary,
        }
    }

    fn copies(&mut self, counts: &Observations) -> CopyCount {
        if let Some((to_program, from_program)) = counts.copies {
            return CopyCount::Counted { to_program, from_program };
        }
        let why = self.counting.as_ref().and_then(|counting| counting.no_copies.clone());
        self.absent.extend(why.map(|why| missing("bytes actually copied", why)));
        CopyCount::Unknown
    }

    fn warn(&mut self, counts: &Observations, machine: Vec<String>) {
        for (count, what) in [
            (counts.lost_calls, "system calls were not counted: no room in the table"),
            (
                counts.missed_runs,
                "runs of the counting programs were left out by the kernel: as many calls, of any \
                 program on this machine, may be missing",
            ),
            (counts.lost_threads, "threads were not followed: no room in the table"),
            (
                counts.lost_sockets,
                "new sockets were not recorded: no room in the table, so their bytes are missing",
            ),
        ] {
            if count > 0 {
                self.warnings.push(format!("{count} {what}"));
            }
        }
        self.warnings.extend(traffic::doubts(counts));
        self.warnings.extend(machine);
    }
}

const MACHINE: &str = "CPU time of the machine";
const PROFILE: &str = "profile";

/// Starts the meter of the machine's CPU time, the same that trials use.
fn machine(roots: &Roots) -> Result<Box<dyn Running>, Fault> {
    let cpu = meter::CATALOG.iter().find(|meter| meter.name == "cpu");
    let cpu = cpu.ok_or_else(|| Fault::unsupported("there is no meter 'cpu'"))?;
    (cpu.start)(&Context::idle(roots.clone()))
}

/// Returns the table, sorted by thread and, within each thread, by time.
fn table(rows: &[Row]) -> Vec<ObservedCall> {
    let seconds = |nanoseconds: f64| nanoseconds * 1e-9;
    let mut table: Vec<ObservedCall> = rows
        .iter()
        .filter(|row| row.calls > 0)
        .map(|row| ObservedCall {
            tid: row.tid,
            number: row.number,
            row: CallRow {
                name: match layout::call_name(row.number) {
                    (Some(name), false) => name.to_owned(),
                    (Some(name), true) => format!("{name} (32-bit)"),
                    (None, _) => format!("call {}", row.number),
                },
                calls: row.calls,
                errors: row.errors,
                bytes: row.bytes,
                total: seconds(row.total as f64),
                min: seconds(row.min as f64),
                avg: seconds(row.total as f64 / row.calls as f64),
                max: seconds(row.max as f64),
                stddev_percent: row.relative_deviation().unwrap_or(0.0) * 100.0,
            },
            histogram: row.histogram.to_vec(),
        })
        .collect();
    table.sort_by(|a, b| {
        a.tid.cmp(&b.tid).then(b.row.total.total_cmp(&a.row.total)).then(a.number.cmp(&b.number))
    });
    table
}

/// Returns the program's CPU time: as reported to its parent, or the sum of its threads.
fn used(ended: Option<ExitStatus>, threads: &[ObservedThread]) -> Option<CpuTime> {
    if let Some(ended) = ended {
        return Some(CpuTime {
            user: ended.user.as_secs_f64(),
            system: ended.system.as_secs_f64(),
            source: CpuSource::Wait,
        });
    }
    let times: Vec<&ThreadTime> = threads.iter().filter_map(|t| t.time.as_ref()).collect();
    (!times.is_empty()).then(|| CpuTime {
        user: times.iter().map(|time| time.user).sum(),
        system: times.iter().map(|time| time.system).sum(),
        source: CpuSource::Threads,
    })
}

fn command_line(proc: &Path, pid: u32) -> Vec<String> {
    let bytes = std::fs::read(proc.join(pid.to_string()).join("cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Opens a pidfd, which becomes readable when the process ends.
fn end_of(pid: u32) -> Result<OwnedFd, Fault> {
    let no_such = || {
        Fault::usage(format!("there is no process {pid}"))
            .remedy("give the process id that ps prints")
    };
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(no_such)?;
    pidfd_open(id, PidfdFlags::empty()).map_err(|e| match e {
        rustix::io::Errno::SRCH | rustix::io::Errno::INVAL => no_such(),
        other => Fault::system(format!("pidfd_open of process {pid}"), &other.into()),
    })
}

/// Waits until a process has ended; false if it has not within `timeout`.
fn readable(end: &OwnedFd, timeout: Duration) -> Result<bool, Fault> {
    match wait_readable(end.as_fd(), timeout) {
        // A signal: the caller checks its flag.
        Err(e) if e.kind() == std::io::ErrorKind::Interrupted => Ok(false),
        other => other.map_err(|e| Fault::system("poll", &e)),
    }
}
