//! Run time of the engine's threads and of the helpers and kernel threads that work for
//! them: `/proc/self/task/TID/{schedstat,stat,status}`.
//!
//! Run time is counted by the scheduler from clock to clock; the user and system times in `stat`
//! are the run time, divided in the proportion of the sampled ticks (`cputime_adjust`,
//! kernel/sched/cputime.c). So the two agree on most kernels by construction, except for ticks of
//! 10 ms; if they do not, one of them is accounted for in another way and the report says so.
//! Interrupts and softirqs that ran on top of a thread are included in its times, unless the kernel
//! has `CONFIG_IRQ_TIME_ACCOUNTING`.
//!
//! The times cover the interval between the two readings, which is longer than the window by the
//! time it takes to start the other meters; so its length is a reading, and fractions of a CPU are
//! fractions of that.
//!
//! If the peer is a guest, the CPU time that it takes from this host is read as well: `guest.run`,
//! `guest.user` and `guest.system` of its qemu's virtual CPUs (`vCPU`), of vhost's workers
//! (`vhost`) and of the other threads of its qemu (`qemu`). No time of this role includes them.
//!
//! A running thread is charged at each tick, so the edges of the window are accurate to one tick (1
//! to 10 ms).

use super::workers::{self, Worker};
use super::{Context, Meter, Output, ProcFile, Reach, Running};
use bytepath_record::{Fault, Reading, Role, Scope, ThreadTime, Unit};
use bytepath_sys::procfs::{self, SchedStat, Switches};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Metric of the time between the two readings.
const WALL: &str = "threads.wall";

/// CPU time, waiting time and context switches of the engine's threads, of threads that help it, of
/// io_uring and vhost workers that exist at the end of the window, and of the NAPI threads of the
/// link's devices if this PID namespace shows them.
pub(crate) static METER: Meter = Meter {
    name: "threads",
    summary: "run time, wait and switches of engine, helper, io_uring, vhost and NAPI threads (schedstat)",
    reach: Reach::Agent,
    start,
    ..Meter::BASE
};

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    let mut window = Window {
        role: context.role,
        begin: Instant::now(),
        proc: context.roots.proc.clone(),
        qemu: context.qemu,
        own: context.threads.iter().map(|thread| thread.tid).collect(),
        threads: Vec::new(),
        guest: Vec::new(),
        missed: Vec::new(),
    };
    for Worker { dir, tid, name } in workers::of_role(context) {
        match Thread::open(&dir, tid, name.clone()) {
            Ok(thread) => window.threads.push(thread),
            Err(fault) => window.missed.push((name, fault)),
        }
    }
    for worker in workers::of_guest(context) {
        let group = worker.group_in_qemu();
        let thread = Thread::open(&worker.dir, worker.tid, worker.name);
        window.guest.extend(thread.ok().map(|thread| (group, thread)));
    }
    Ok(Box::new(window))
}

struct Window {
    role: Role,
    /// Time before the first thread was read.
    begin: Instant,
    proc: PathBuf,
    qemu: Option<u32>,
    own: Vec<u32>,
    threads: Vec<Thread>,
    /// Threads that run the peer, if that is a guest of this host, each with its group.
    guest: Vec<(&'static str, Thread)>,
    missed: Vec<(String, Fault)>,
}

impl Running for Window {
    fn stop(mut self: Box<Self>) -> Result<Output, Fault> {
        let mut output = Output::default();
        let wall = self.begin.elapsed().as_secs_f64();
        output.readings.push(Reading::sum(WALL, Unit::Seconds, wall, Scope::Role(self.role)));
        let mut without_schedstat = false;
        // The threads first: finding workers takes longer.
        for thread in &mut self.threads {
            match thread.read() {
                Ok(now) => {
                    let (time, by_ticks) = thread.time(&now);
                    without_schedstat |= by_ticks;
                    output.warnings.extend(clock_disagreement(&time).filter(|_| !by_ticks));
                    output.threads.push(time);
                }
                Err(fault) => self.missed.push((thread.name.clone(), fault)),
            }
        }
        output.readings.extend(times_of_guest(self.times_in_qemu(), self.role.peer()));
        output.threads = workers::at_work(output.threads, |time| &time.name, |time| time.run);
        let known: Vec<u32> =
            self.own.iter().copied().chain(self.threads.iter().map(|t| t.tid)).collect();
        for worker in workers::of_process(&self.proc.join("self/task"), &known) {
            if let Some((time, by_ticks)) = since_start(worker) {
                without_schedstat |= by_ticks;
                output.threads.push(time);
            }
        }
        if without_schedstat {
            output.warnings.push(
                "threads: this kernel keeps no schedstat (CONFIG_SCHED_INFO), so run times are \
                 those of the ticks, and waits are unknown"
                    .into(),
            );
        }
        output.warnings.extend(self.missed.into_iter().map(|(name, fault)| {
            format!("threads: {name} ended before the window, so its times are missing: {fault}")
        }));
        Ok(output)
    }
}

impl Window {
    /// Returns the times of the threads that run a guest, each with its group, without qemu's
    /// helpers that have ended.
    fn times_in_qemu(&mut self) -> Vec<(&'static str, ThreadTime)> {
        let read = |(group, thread): &mut (&'static str, Thread)| {
            let now = thread.read().ok()?;
            Some((*group, thread.time(&now).0))
        };
        let mut times: Vec<_> = self.guest.iter_mut().filter_map(read).collect();
        let known: Vec<u32> = self.guest.iter().map(|(_, thread)| thread.tid).collect();
        let qemu = self.qemu.map(|qemu| workers::of_qemu(&self.proc, qemu, &known));
        let born = |one: Worker| Some((one.group_in_qemu(), since_start(one)?.0));
        times.extend(qemu.into_iter().flatten().filter_map(born));
        times
    }
}

/// Returns the time of a thread that started within the window, so all its time belongs to the
/// window; `None` if it has ended, which it may at any moment.
fn since_start(Worker { dir, tid, name }: Worker) -> Option<(ThreadTime, bool)> {
    let mut thread = Thread::open(&dir, tid, name).ok()?;
    let now = std::mem::take(&mut thread.start);
    Some(thread.time(&now))
}

/// Returns the times of each group of the threads that run a guest.
fn times_of_guest(threads: Vec<(&'static str, ThreadTime)>, guest: Role) -> Vec<Reading> {
    let mut groups: BTreeMap<&str, [f64; 3]> = BTreeMap::new();
    for (group, ThreadTime { run, user, system, .. }) in threads {
        let sums = groups.entry(group).or_default();
        sums.iter_mut().zip([run, user, system]).for_each(|(sum, part)| *sum += part);
    }
    let readings = |(group, sums): (&str, [f64; 3])| {
        let scope = Scope::Threads(guest, group.to_owned());
        let metrics = ["guest.run", "guest.user", "guest.system"].into_iter();
        let reading = move |(metric, sum)| Reading::sum(metric, Unit::Seconds, sum, scope.clone());
        metrics.zip(sums).map(reading)
    };
    groups.into_iter().flat_map(readings).collect()
}

/// A thread with its files open, so that they cannot refer to a later thread with the same id.
struct Thread {
    tid: u32,
    name: String,
    schedstat: Option<ProcFile>,
    stat: ProcFile,
    status: ProcFile,
    start: Counts,
}

/// A thread's counts at one moment.
#[derive(Clone, Copy, Default)]
struct Counts {
    sched: SchedStat,
    user: u64,
    system: u64,
    switches: Switches,
}

impl Thread {
    fn open(dir: &Path, tid: u32, name: String) -> Result<Self, Fault> {
        let mut thread = Thread {
            tid,
            name,
            schedstat: ProcFile::open(dir.join("schedstat")).ok(),
            stat: ProcFile::open(dir.join("stat"))?,
            status: ProcFile::open(dir.join("status"))?,
            start: Counts::default(),
        };
        thread.start = thread.read()?;
        Ok(thread)
    }

    fn read(&mut self) -> Result<Counts, Fault> {
        let sched = match &mut self.schedstat {
            Some(file) => file.read(procfs::parse_schedstat)?,
            None => SchedStat::default(),
        };
        let (user, system) =
            self.stat.read(|text| procfs::parse_task_stat(text).map(|s| (s.user, s.system)))?;
        let switches = self.status.read(procfs::parse_status_switches)?;
        Ok(Counts { sched, user, system, switches })
    }

    /// Returns its time in the window, and whether its run time comes from ticks.
    fn time(&self, now: &Counts) -> (ThreadTime, bool) {
        let hz = procfs::user_hz();
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / hz;
        let nanos = |from: u64, to: u64| to.saturating_sub(from) as f64 * 1e-9;
        let before = &self.start;
        let user = seconds(before.user, now.user);
        let system = seconds(before.system, now.system);
        // Three zeros: the file exists, but without statistics. A thread that has not run yet has
        // three zeros too, but no ticks.
        let empty = now.sched == SchedStat::default() && (now.user > 0 || now.system > 0);
        let by_ticks = empty || self.schedstat.is_none();
        let run = if by_ticks { user + system } else { nanos(before.sched.run, now.sched.run) };
        let time = ThreadTime {
            name: self.name.clone(),
            tid: self.tid,
            run,
            wait: nanos(before.sched.wait, now.sched.wait),
            user,
            system,
            voluntary: now.switches.voluntary.saturating_sub(before.switches.voluntary),
            involuntary: now.switches.involuntary.saturating_sub(before.switches.involuntary),
        };
        (time, by_ticks)
    }
}

/// Returns a warning if scheduler and ticks disagree by more than rounding explains.
fn clock_disagreement(ThreadTime { name, run, user, system, .. }: &ThreadTime) -> Option<String> {
    let ticks = user + system;
    let off = (ticks - run).abs();
    (off > 0.03 && off > 0.05 * run).then(|| {
        format!(
            "threads: {name} ran {run:.2} s by the scheduler and {ticks:.2} s by ticks \
             (user + system)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_sys::Roots;
    use std::fs;

    /// A made-up process with threads of a guest, and kernel threads.
    const THREADS: [(&str, &str); 6] = [
        ("77/task/77", "qemu-system-x86"),
        ("77/task/78", "CPU 0/KVM"),
        ("77/task/79", "CPU 1/KVM"),
        ("77/task/80", "vhost-77"),
        ("90", "vhost-77"),
        ("91", "vhost-66"),
    ];

    #[test]
    fn a_guest_is_read_by_group_and_is_not_of_this_role() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: String, text: String| {
            let path = dir.path().join("proc").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let set = |seconds: u64| {
            for (path, name) in THREADS {
                write(format!("{path}/comm"), format!("{name}\n"));
                write(format!("{path}/schedstat"), format!("{} 0 0\n", seconds * 1_000_000_000));
                // Three quarters in the kernel, by ticks of a hundredth of a second.
                let [user, system] = [seconds * 25, seconds * 75];
                let zeros = "0 ".repeat(24);
                let stat = format!("7 ({name}) S 1 7 7 0 -1 0 0 0 0 0 {user} {system} {zeros}");
                write(format!("{path}/stat"), stat);
                let status = "voluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0\n";
                write(format!("{path}/status"), status.to_owned());
            }
        };
        write("2/comm".into(), "kthreadd\n".into());
        write("2/task/2/children".into(), "90 91 ".into());
        set(1);
        let alone = Context { role: Role::Sender, ..Context::idle(Roots::recorded(dir.path())) };
        let behind = Context { qemu: Some(77), ..alone.clone() };
        let windows = [alone, behind].map(|context| start(&context).unwrap());
        set(3);
        // A helper that was born within the window.
        for file in ["comm", "schedstat", "stat", "status"] {
            let from = dir.path().join("proc/77/task/77").join(file);
            write(format!("77/task/85/{file}"), fs::read_to_string(from).unwrap());
        }
        write("77/task/85/comm".into(), "worker\n".into());
        let [alone, behind] = windows.map(|window| window.stop().unwrap());
        assert_eq!((alone.readings.len(), behind.threads.len()), (1, 0), "{alone:?}");
        let group = |name: &str| {
            ["guest.run", "guest.user", "guest.system"].map(|metric| {
                let scope = Scope::Threads(Role::Receiver, name.to_owned());
                let of = |r: &&Reading| r.metric == metric && r.scope == scope;
                behind.readings.iter().find(of).map(|reading| reading.value)
            })
        };
        let found = ["vCPU", "qemu", "vhost"].map(group);
        let expected = [[4.0, 1.0, 3.0], [2.0 + 3.0, 0.5 + 0.75, 1.5 + 2.25], [4.0, 1.0, 3.0]];
        assert_eq!(found, expected.map(|sums| sums.map(Some)));
    }
}
