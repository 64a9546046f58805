//! Turns the kernel's samples of a window into a profile that opens anywhere: with names for
//! addresses, and names and owners for threads. The agent does this right after the window, while
//! the sampled processes and files still exist.

use crate::sampling_rate::affordable_rate;
use bytepath_meter::{self as meter, Capture, Context, Prepared, Running};
use bytepath_observe as observe;
use bytepath_profile::attribution::{Stream, owner};
use bytepath_profile::export::PPROF;
use bytepath_profile::symbols::{
    KernelSymbols, Mapping, Processes, UserSymbols, kernel_build_id, parse_maps,
};
use bytepath_profile::{
    Builder, Frame, FrameId, FrameKind, Header, Owner, Profile, Sample, Thread, Weight, Work,
};
use bytepath_record::wire::ProfileSize;
use bytepath_record::{Fault, Sampling, listed};
use bytepath_sys::perf::{self, Call, Record, Task, Unit, records};
use bytepath_sys::{Roots, allowance, thread};
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

/// Symbolizes what was captured and packs it as a file.
pub(super) fn pack(
    capture: &Capture,
    title: String,
    work: Work,
    stream: &Stream,
) -> Result<(Vec<u8>, ProfileSize), Fault> {
    let mut profile = profile(capture, stream, &Roots::real(), None)?;
    profile.header.title = title;
    profile.header.work = work;
    let mut packed = Vec::new();
    let written = PPROF.write(&profile, &mut packed);
    written.map_err(|e| Fault::failed(format!("cannot pack the profile: {e}")))?;
    let (samples, bytes) = (profile.count(), packed.len() as u64);
    let Header { lost, notes, .. } = profile.header;
    Ok((packed, ProfileSize { bytes, samples, lost, notes }))
}

/// Returns the profile of a window, restricted to `pids` if given.
pub(super) fn profile(
    capture: &Capture,
    stream: &Stream,
    roots: &Roots,
    pids: Option<&HashSet<u32>>,
) -> Result<Profile, Fault> {
    let read = |path: &std::path::Path| std::fs::read(path).unwrap_or_default();
    let kallsyms = String::from_utf8_lossy(&read(&roots.proc.join("kallsyms"))).into_owned();
    let modules = String::from_utf8_lossy(&read(&roots.proc.join("modules"))).into_owned();
    let mut kernel = KernelSymbols::parse(kallsyms).with_modules(&modules);
    kernel.build_id = kernel_build_id(&read(&roots.sys.join("kernel/notes"))).unwrap_or_default();

    let header = header(capture, kernel.hidden());
    let world = World::of(capture)?;
    let names = Names {
        kernel,
        user: UserSymbols::default(),
        roots,
        known: HashMap::new(),
        functions: HashMap::new(),
    };
    build(capture, (stream, pids), &world, names, header)
}

fn header(capture: &Capture, hidden: Option<&str>) -> Header {
    let sampling = &capture.sampling;
    let mut notes = vec![format!("sampled at {} Hz on each CPU", sampling.rate)];
    notes.extend(hidden.map(str::to_owned));
    if capture.dropped > 0 {
        notes.push(format!("no memory for {} samples: a limit leaves too little", capture.dropped));
    }
    if capture.throttled > 0 {
        notes.push(format!(
            "the kernel stopped sampling {} times because it took too long \
             (kernel.perf_cpu_time_max_percent)",
            capture.throttled
        ));
    }
    if capture.counted < 0.99 {
        notes.push(format!(
            "the event was counted for {:.0}% of the window only, because others shared the \
             counters",
            capture.counted * 100.0
        ));
    }
    Header {
        event: sampling.event.clone(),
        weight: match capture.unit {
            Unit::Nanoseconds => Weight::Nanoseconds,
            Unit::Events => Weight::Events,
        },
        // The kernel converts the rate of a clock into a fixed period; for other events it adjusts
        // the period while it samples.
        period: (capture.unit == Unit::Nanoseconds).then(|| (1e9 / sampling.rate as f64).floor()),
        seconds: Some(capture.seconds),
        cpus: Some(sampling.cpus.len() as u32),
        // The number of samples lost in a pause is unknown; at least one.
        lost: capture.lost + capture.throttled,
        notes,
        ..Header::default()
    }
}

/// Threads and processes according to the records, sampled or not.
struct World {
    processes: Processes,
    threads: HashMap<u32, Thread>,
    /// Processes that began, each with its parent.
    forks: Vec<(u32, u32)>,
}

impl World {
    /// A thread has its last name. A process has its mappings at the end of the window or, if it
    /// was gone by then, those in the records.
    fn of(capture: &Capture) -> Result<World, Fault> {
        let mut processes = Processes::default();
        for (pid, text) in &capture.maps {
            parse_maps(text).into_iter().for_each(|mapping| processes.map(*pid, mapping));
        }
        let thread = |name: String, Task { pid, tid }: Task| Thread { name, pid, tid };
        let known =
            capture.threads.iter().map(|(pid, tid, name)| (Task { pid: *pid, tid: *tid }, name));
        let known = known.map(|(task, name)| (task.tid, thread(name.clone(), task)));
        let mut threads: HashMap<u32, Thread> = known.collect();
        let mut forks = Vec::new();
        for record in capture.records.iter().flat_map(|bytes| records(bytes)) {
            match record.map_err(malformed)? {
                Record::Comm(task, name, _) => {
                    let name = String::from_utf8_lossy(name).into_owned();
                    threads.insert(task.tid, thread(name, task));
                }
                Record::Fork(task, parent) => {
                    let name = threads.get(&parent.tid).map(|thread| thread.name.clone());
                    threads.entry(task.tid).or_insert(thread(name.unwrap_or_default(), task));
                    processes.fork(task.pid, parent.pid);
                    if task.pid != parent.pid {
                        forks.push((task.pid, parent.pid));
                    }
                }
                Record::Mmap(map) if !capture.maps.contains_key(&map.task.pid) => {
                    let Some(end) = map.start.checked_add(map.len) else { continue };
                    let path = String::from_utf8_lossy(map.path);
                    // The kernel's name for memory without a file.
                    let path = path.strip_prefix("//anon").unwrap_or(&path).to_owned();
                    let mapping = Mapping { start: map.start, end, offset: map.offset, path };
                    processes.map(map.task.pid, mapping);
                }
                _ => {}
            }
        }
        Ok(World { processes, threads, forks })
    }

    /// Returns these processes and their descendants. Records of several CPUs are not in order of
    /// time, so they are searched until nothing new is found.
    fn with_descendants(&self, pids: &HashSet<u32>) -> HashSet<u32> {
        let mut all = pids.clone();
        loop {
            let found = self.forks.iter().filter(|(_, parent)| all.contains(parent));
            let found: Vec<u32> =
                found.map(|(child, _)| *child).filter(|child| !all.contains(child)).collect();
            if found.is_empty() {
                return all;
            }
            all.extend(found);
        }
    }

    fn thread(&self, task: Task, cpu: u32) -> Thread {
        let Task { pid, tid } = task;
        if (pid, tid) == (0, 0) {
            // Each CPU has an idle task, all with the same ID; /proc shows none of them.
            return Thread { name: format!("swapper/{cpu}"), pid, tid };
        }
        let unknown = Thread { name: String::new(), pid, tid };
        self.threads.get(&tid).filter(|thread| thread.pid == pid).cloned().unwrap_or(unknown)
    }
}

/// Finds frames for addresses and remembers them.
struct Names<'a> {
    kernel: KernelSymbols,
    user: UserSymbols,
    roots: &'a Roots,
    known: HashMap<(u32, Call), Option<Rc<[FrameId]>>>,
    /// Names of the kernel's functions that reveal owners.
    functions: HashMap<FrameId, String>,
}

impl Names<'_> {
    /// Returns the frames of one entry of a call chain; `None` if the address cannot be code.
    fn frames(
        &mut self,
        builder: &mut Builder,
        processes: &Processes,
        pid: u32,
        call: Call,
    ) -> Option<Rc<[FrameId]>> {
        let key = (if call.in_kernel { 0 } else { pid }, call);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        // A return address may be the first of the next function.
        let address = if call.exact { call.address } else { call.address.saturating_sub(1) };
        let frames = if call.in_kernel {
            Some(vec![self.kernel.frame(address)])
        } else {
            self.user.frames(processes, &self.roots.proc, pid, address)
        };
        let ids = frames.map(|frames| {
            let id = |frame: Frame| {
                let name = (frame.kind == FrameKind::Kernel).then(|| frame.function.clone());
                let id = builder.frame(frame);
                self.functions.extend(name.map(|name| (id, name)));
                id
            };
            frames.into_iter().map(id).collect::<Rc<[FrameId]>>()
        });
        self.known.insert(key, ids.clone());
        ids
    }
}

fn build(
    capture: &Capture,
    (stream, pids): (&Stream, Option<&HashSet<u32>>),
    world: &World,
    mut names: Names,
    mut header: Header,
) -> Result<Profile, Fault> {
    let mut samples: Vec<perf::Sample> = Vec::new();
    for record in capture.records.iter().flat_map(|bytes| records(bytes)) {
        if let Record::Sample(sample) = record.map_err(malformed)? {
            samples.push(sample);
        }
    }
    samples.sort_by_key(|sample| sample.time);
    let weights = match capture.unit {
        Unit::Nanoseconds => times(capture, &samples, &mut header.notes),
        Unit::Events => samples.iter().map(|sample| sample.period as f64).collect(),
    };
    let mut builder = Builder::new(header);
    let mut stack: Vec<FrameId> = Vec::new();
    // If a program's calls are not counted, only the sampler's records reveal its children.
    let pids = pids.map(|pids| world.with_descendants(pids));
    for (sample, weight) in samples.iter().zip(weights) {
        if pids.as_ref().is_some_and(|pids| !pids.contains(&sample.task.pid)) {
            continue;
        }
        stack.clear();
        // If the kernel could not walk the stack, there is only the address.
        let alone = Call { address: sample.ip, in_kernel: sample.in_kernel, exact: true };
        let none = sample.chain.calls().next().is_none();
        for call in sample.chain.calls().chain(none.then_some(alone)) {
            let frames = names.frames(&mut builder, &world.processes, sample.task.pid, call);
            // After an address without code, a chain is guesswork: the program keeps no frame
            // pointers.
            let Some(frames) = frames else { break };
            stack.extend(frames.iter());
        }
        let thread = world.thread(sample.task, sample.cpu);
        let functions = stack.iter().filter_map(|id| names.functions.get(id));
        let owner = owner(stream, &thread, Some(sample.cpu), functions.map(String::as_str));
        let sample = Sample {
            stack: builder.stack(&stack),
            thread: builder.thread(thread),
            owner,
            cpu: Some(sample.cpu),
            time: Some(sample.time.saturating_sub(capture.begin) as f64 * 1e-9),
            count: 1,
            weight,
        };
        builder.add(sample);
    }
    Ok(builder.build())
}

/// Returns the weights of clock samples in order of time, ns: [`elapsed`], unless the samples of a
/// CPU would then cover more time than it was busy. Some virtual machines take no samples on idle
/// CPUs, so the first sample after an hour of sleep would count for the hour. On such a CPU each
/// sample counts one period, or an equal part of the busy time if that is less.
fn times(capture: &Capture, samples: &[perf::Sample], notes: &mut Vec<String>) -> Vec<f64> {
    let mut last: HashMap<u32, u64> = HashMap::new();
    let since_last = |sample: &perf::Sample| {
        elapsed(sample.time, sample.period, last.insert(sample.cpu, sample.time)) as f64
    };
    let mut weights: Vec<f64> = samples.iter().map(since_last).collect();
    // Sums per CPU: the weights of samples of the idle task, the weights of the others, and the
    // periods of the others.
    let mut sums: BTreeMap<u32, [f64; 3]> = BTreeMap::new();
    for (sample, weight) in samples.iter().zip(&weights) {
        let [resting, weighed, periods] = sums.entry(sample.cpu).or_default();
        if sample.task.pid == 0 {
            *resting += weight;
            continue;
        }
        *weighed += weight;
        *periods += sample.period as f64;
    }
    let excess = |(cpu, [resting, weighed, periods]): (u32, [f64; 3])| {
        let idle = capture.idle.get(&cpu)?;
        // Idle time is counted in ticks, which is accurate only to a few hundredths of a second.
        let busy = ((capture.seconds - idle) * 1.1 + 0.03) * 1e9;
        let unseen = resting < idle * 0.5e9 && weighed > busy;
        unseen.then_some((cpu, (busy / periods).min(1.0)))
    };
    let asleep: BTreeMap<u32, f64> = sums.into_iter().filter_map(excess).collect();
    for (sample, weight) in samples.iter().zip(&mut weights) {
        if let Some(part) = asleep.get(&sample.cpu).filter(|_| sample.task.pid != 0) {
            *weight = sample.period as f64 * part;
        }
    }
    if !asleep.is_empty() {
        let cpus: Vec<String> = asleep.keys().map(u32::to_string).collect();
        notes.push(format!(
            "idle time was not sampled on CPU {}: there the samples count for no more than the \
             time that the CPU was busy",
            listed(&cpus, 4)
        ));
    }
    weights
}

/// Returns the weight of a clock sample: the periods since the previous one on its CPU, ns. A late
/// timer, because interrupts were off or the hypervisor had the CPU, gives one sample for all the
/// periods it missed (`perf_swevent_hrtimer`, kernel/events/core.c). With one period each, a fifth
/// of the time or more was lost on a virtual machine.
fn elapsed(time: u64, period: u64, before: Option<u64>) -> u64 {
    let gap = before.map_or(0, |before| time.saturating_sub(before));
    let period = period.max(1);
    ((gap + period / 2) / period).max(1).saturating_mul(period)
}

fn malformed(error: perf::Malformed) -> Fault {
    Fault::failed(error.to_string()).remedy("please report this, with the kernel version")
}

/// The highest rate chosen by default, Hz. A program is sampled in the same run that it is observed
/// in; a study samples in trials of their own.
const GENTLE: u64 = 499;

/// Fraction of a CPU that sampling a program may take: the user asked for a profile, and below a
/// few hundred samples it shows nothing.
const PART: f64 = 0.01;

/// Length of each turn, with samples and without, when their cost is measured; short, because the
/// user of `observe` waits for it.
const LOOK: Duration = Duration::from_millis(4);

/// Samples all CPUs from the program's first instruction to its end.
pub struct ProgramSampler {
    roots: Roots,
    /// Ready to sample, or why not, which is reported once the program exists.
    prepared: Option<Result<Prepared, Fault>>,
    running: Option<Box<dyn Running>>,
}

impl ProgramSampler {
    /// Prepares sampling at this rate per CPU, Hz; without a rate, at the highest that costs
    /// little. Takes a moment to measure what a sample costs, so call it before anything else is
    /// counted.
    pub fn new(rate: Option<u64>) -> Self {
        let roots = Roots::real();
        ProgramSampler { prepared: Some(prepare(rate, &roots)), running: None, roots }
    }
}

impl observe::Sampler for ProgramSampler {
    fn begin(&mut self, _: u32) -> Result<(), Fault> {
        let prepared = self.prepared.take().ok_or_else(nothing)??;
        self.running = Some(prepared()?);
        Ok(())
    }

    fn tick(&mut self) {
        // The meter's own thread empties the rings.
    }

    fn end(&mut self, pids: &[u32]) -> Result<Profile, Fault> {
        let running = self.running.take().ok_or_else(nothing)?;
        let capture = running.stop()?.capture.ok_or_else(nothing)?;
        room_for_names(&capture, &self.roots)?;
        let pids = pids.iter().copied().collect();
        profile(&capture, &Stream::default(), &self.roots, Some(&pids))
    }
}

/// Memory for the names of the kernel and of a program's files, bytes, and the memory for the
/// profile as a multiple of the records' size.
const NAMES: u64 = 32 << 20;
const PER_RECORD: u64 = 4;

/// Errors if a memory limit leaves too little to name samples: the report is worth more.
fn room_for_names(capture: &Capture, roots: &Roots) -> Result<(), Fault> {
    let records: usize = capture.records.iter().map(Vec::len).sum();
    let needed = NAMES + PER_RECORD * records as u64;
    match allowance::left(roots).filter(|left| *left < needed) {
        Some(left) => Err(Fault::failed(format!(
            "its samples are dropped: to name them takes about {} MiB, and a limit of memory leaves \
             {}",
            needed >> 20,
            left >> 20
        ))
        .remedy("raise the limit (ulimit -v, ulimit -d, memory.max)")),
        None => Ok(()),
    }
}

fn prepare(rate: Option<u64>, roots: &Roots) -> Result<Prepared, Fault> {
    let cpus = allowed_cpus()?;
    let first = cpus.first().copied().unwrap_or_default();
    let price = meter::sample_price(None, first, LOOK, roots)?;
    let rate = rate.unwrap_or_else(|| affordable_rate(price.seconds, PART).min(GENTLE));
    let options = json!(Sampling { event: price.event, rate, cpus });
    let context = Context { options, ..Context::idle(roots.clone()) };
    let profile = meter::CATALOG.iter().find(|meter| meter.name == meter::PROFILE_NAME);
    profile.map(|meter| (meter.prepare)(&context)).transpose()?.flatten().ok_or_else(nothing)
}

/// Returns the CPUs that this process may use.
pub(super) fn allowed_cpus() -> Result<Vec<u32>, Fault> {
    thread::allowed().map_err(|e| Fault::system("cannot read the CPUs of this process", &e))
}

fn nothing() -> Fault {
    Fault::failed("nothing was sampled")
}

/// Returns a program's profile without the BPF programs that count its calls; a note has their
/// share. Softirqs that ran on top of its threads stay in it, marked as such.
pub fn of_program(profile: &Profile) -> Profile {
    let mut builder = Builder::new(profile.header.clone());
    let is_counting = |sample: &&Sample| {
        is_counting(profile.stack(sample.stack).iter().map(|id| profile.frame(*id)))
    };
    let (counting, own): (Vec<&Sample>, Vec<&Sample>) =
        profile.samples().iter().partition(is_counting);
    let [counting, rest] = [&counting, &own].map(|s| s.iter().map(|s| s.weight).sum::<f64>());
    if counting > 0.0 {
        builder.header().notes.push(format!(
            "left out: {:.1}% of its samples, in the BPF programs that count its calls",
            counting / (counting + rest) * 100.0
        ));
    }
    for sample in own {
        let frames = profile.stack(sample.stack).iter().map(|id| profile.frame(*id).clone());
        let frames: Vec<_> = frames.map(|frame| builder.frame(frame)).collect();
        let stack = builder.stack(&frames);
        let thread = builder.thread(profile.thread(sample.thread).clone());
        let owner = match sample.owner {
            Owner::Foreign => Owner::Program,
            other => other,
        };
        builder.add(Sample { stack, thread, owner, ..*sample });
    }
    builder.build()
}

/// True if a stack, innermost function first, belongs to the BPF programs that `bytepath observe`
/// attaches to system calls, forks, exits and copies, or to functions that run only to call them.
fn is_counting<'a>(stack: impl Iterator<Item = &'a Frame>) -> bool {
    /// Parts of the kernel's symbols for them, from the programs' names, of which it keeps 15
    /// characters.
    const PROGRAMS: [&str; 5] =
        ["_sys_enter", "_sys_exit", "_sched_process_", "___check_object_", "_security_socket"];
    /// Functions that call the programs at tracepoints (include/linux/tracepoint.h), usually only
    /// ours.
    const CALLERS: [&str; 2] = ["__traceiter_sys_", "__bpf_trace_sys_"];
    /// Functions that only enter and leave a program at the return of a function
    /// (kernel/bpf/trampoline.c).
    const AROUND: [&str; 2] = ["bpf_trampoline_", "__bpf_prog_e"];
    let begins = |name: &str, all: &[&str]| all.iter().any(|begin| name.starts_with(begin));
    stack.filter(|frame| frame.kind == FrameKind::Kernel).enumerate().any(|(depth, frame)| {
        let name = frame.function.as_str();
        let program = name.strip_prefix("bpf_prog_");
        program.is_some_and(|name| PROGRAMS.iter().any(|own| name.contains(own)))
            || begins(name, &CALLERS)
            || depth == 0 && begins(name, &AROUND)
    })
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod capture_tests {
    use super::*;
    use bytepath_profile::Owner;
    use bytepath_record::{Placement, Role, Sampling};

    /// Records that Linux 6.18 wrote while /bin/true ran.
    const EXEC: &[u8] = include_bytes!("../../../../tests/data/perf/exec-6.18.records");
    const PERIOD: u64 = 1_001_001;

    fn capture(records: Vec<Vec<u8>>, threads: &[(u32, u32, &str)]) -> Capture {
        let thread = |(pid, tid, name): &(u32, u32, &str)| (*pid, *tid, (*name).to_owned());
        Capture {
            sampling: Sampling { event: "cpu-clock".into(), rate: 999, cpus: vec![0, 1] },
            unit: Unit::Nanoseconds,
            records,
            begin: 1_000_000_000,
            seconds: 2.0,
            idle: BTreeMap::new(),
            lost: 3,
            dropped: 0,
            throttled: 0,
            counted: 1.0,
            threads: threads.iter().map(thread).collect(),
            maps: BTreeMap::new(),
        }
    }

    /// A sample as the kernel writes it; kernel addresses have their upper half set.
    fn sample(task: (u32, u32), time: u64, cpu: u32, chain: &[u64]) -> Vec<u8> {
        let mut body = Vec::new();
        let mut marked: Vec<u64> = Vec::new();
        let mut last = None;
        for address in chain {
            let kernel = *address >> 63 == 1;
            if last != Some(kernel) {
                // PERF_CONTEXT_KERNEL and PERF_CONTEXT_USER.
                marked.push(if kernel { -128i64 as u64 } else { -512i64 as u64 });
                last = Some(kernel);
            }
            marked.push(*address);
        }
        body.extend(0x1234u64.to_ne_bytes());
        body.extend(task.0.to_ne_bytes());
        body.extend(task.1.to_ne_bytes());
        body.extend(time.to_ne_bytes());
        body.extend(cpu.to_ne_bytes());
        body.extend(0u32.to_ne_bytes());
        body.extend(PERIOD.to_ne_bytes());
        body.extend((marked.len() as u64).to_ne_bytes());
        body.extend(marked.iter().flat_map(|word| word.to_ne_bytes()));
        let mut record = 9u32.to_ne_bytes().to_vec();
        record.extend(2u16.to_ne_bytes());
        record.extend((8 + body.len() as u16).to_ne_bytes());
        record.extend(body);
        record
    }

    fn roots(kallsyms: &str) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/kallsyms"), kallsyms).unwrap();
        let roots = Roots::recorded(dir.path());
        (dir, roots)
    }

    const KALLSYMS: &str = "\
ffffffff81000000 T tcp_sendmsg
ffffffff81000100 T do_syscall_64
ffffffff81000200 T net_rx_action
ffffffff81000300 T default_idle
";

    #[test]
    fn samples_get_names_owners_and_an_order() {
        let (_dir, roots) = roots(KALLSYMS);
        let kernel = |offset: u64| 0xffff_ffff_8100_0000 + offset;
        let ms = |ms: u64| 1_000_000_000 + ms * 1_000_000;
        // The return address 0x200 is after a call at the very end of do_syscall_64,
        // and nothing was called by net_rx_action.
        let first = sample((10, 12), ms(2), 0, &[kernel(0x10), kernel(0x200)]);
        let earlier = sample((20, 22), ms(1), 1, &[kernel(0x204), kernel(0x102)]);
        let idle = sample((0, 0), ms(3), 1, &[kernel(0x300)]);
        let bare = sample((10, 12), ms(4), 0, &[]);
        let records = vec![[first, bare].concat(), [earlier, idle].concat()];
        let capture = capture(records, &[(10, 12, "sender/0"), (20, 22, "receiver/0")]);
        let placement = Placement::pinned(0, 1);
        let stream = Stream { agents: [Some(10), Some(20)], guest: None, placement };
        let profile = profile(&capture, &stream, &roots, None).unwrap();
        let seen: Vec<(Owner, String, Vec<&str>)> = profile
            .samples()
            .iter()
            .map(|s| {
                let stack = profile.stack(s.stack).iter();
                let stack = stack.map(|id| profile.frame(*id).function.as_str()).collect();
                (s.owner, profile.thread(s.thread).name.clone(), stack)
            })
            .collect();
        let (tx, rx) = (Role::Sender, Role::Receiver);
        let expected = [
            (Owner::Softirq(Some(rx)), "receiver/0".into(), vec!["net_rx_action", "do_syscall_64"]),
            (Owner::Role(tx), "sender/0".into(), vec!["tcp_sendmsg", "do_syscall_64"]),
            (Owner::Idle, "swapper/1".into(), vec!["default_idle"]),
            // No chain, an address of the program, and no information about its files.
            (Owner::Role(tx), "sender/0".into(), vec![]),
        ];
        assert_eq!(seen, expected);
        let header = &profile.header;
        assert_eq!((header.lost, header.period, header.cpus), (3, Some(1_001_001.0), Some(2)));
        assert_eq!((header.weight, profile.total()), (Weight::Nanoseconds, 6.0 * PERIOD as f64));
        let times: Vec<f64> = profile.samples().iter().map(|s| s.time.unwrap()).collect();
        assert!(times.is_sorted() && (times[0] - 0.001).abs() < 1e-9, "{times:?}");
        let pids = HashSet::from([20]);
        let own = super::profile(&capture, &stream, &roots, Some(&pids)).unwrap();
        let [sample] = own.samples() else { panic!("{:?}", own.samples()) };
        assert_eq!(own.thread(sample.thread).name, "receiver/0");
        assert!(own.frames().iter().all(|frame| frame.function != "tcp_sendmsg"), "{own:?}");
    }

    /// As on a virtual machine that takes no samples on idle CPUs: a thread wakes after 1.9 s and
    /// is sampled twice.
    #[test]
    fn sleep_does_not_count_as_work() {
        let (_dir, roots) = roots(KALLSYMS);
        let ms = |ms: u64| 1_000_000_000 + ms * 1_000_000;
        let samples = [2, 1900, 1901].map(|at| sample((10, 12), ms(at), 1, &[]));
        let mut capture = capture(vec![samples.concat()], &[(10, 12, "python3")]);
        let weighed = |capture: &Capture| {
            let profile = profile(capture, &Stream::default(), &roots, None).unwrap();
            (profile.total() / PERIOD as f64, profile.header.notes.join("; "))
        };
        capture.idle = BTreeMap::from([(0, 2.0), (1, 0.01)]);
        let (late, notes) = weighed(&capture);
        assert!(late > 1800.0 && !notes.contains("idle"), "the timer came late: {late} {notes}");
        capture.idle.insert(1, 1.99);
        let (own, notes) = weighed(&capture);
        assert!((own - 3.0).abs() < 1e-9, "{own}");
        assert!(notes.contains("idle time was not sampled on CPU 1:"), "{notes}");
        capture.seconds = 1.9;
        assert!(weighed(&capture).0 < 3.0, "no more than it was busy, and that is nothing");
    }

    #[test]
    fn a_program_that_was_gone_has_its_name_from_the_records() {
        let (_dir, roots) = roots("0000000000000000 T hidden\n");
        let mut capture = capture(vec![EXEC.to_vec()], &[]);
        (capture.throttled, capture.counted) = (2, 0.5);
        let profile = profile(&capture, &Stream::default(), &roots, None).unwrap();
        let [one] = profile.samples() else { panic!("{:?}", profile.samples()) };
        assert_eq!(profile.thread(one.thread).name, "true");
        assert_eq!(one.owner, Owner::Foreign);
        let stack = profile.stack(one.stack);
        assert!(stack.iter().any(|id| profile.frame(*id).module == "[kernel]"));
        let notes = profile.header.notes.join("; ");
        for part in ["kptr_restrict", "2 times", "50%"] {
            assert!(notes.contains(part), "{notes}");
        }
        assert_eq!(profile.header.lost, 5, "a pause is a loss");
    }

    #[test]
    fn bytes_that_are_not_records_are_a_fault() {
        let (_dir, roots) = roots("");
        let fault = profile(&capture(vec![vec![1; 24]], &[]), &Stream::default(), &roots, None);
        assert!(fault.unwrap_err().message.contains("malformed"));
    }

    #[test]
    fn a_late_sample_stands_for_the_periods_it_missed() {
        let weight = |before| elapsed(10_000, 1_000, before);
        assert_eq!(weight(None), 1_000);
        assert_eq!(weight(Some(9_000)), 1_000);
        assert_eq!(weight(Some(9_600)), 1_000, "never less than one");
        assert_eq!(weight(Some(6_950)), 3_000);
        assert_eq!(weight(Some(20_000)), 1_000, "clocks that go back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_profile::{Frame, Header, Thread};

    #[test]
    fn descendants_are_found_in_any_order_of_records() {
        let forks = vec![(12, 11), (11, 10), (30, 20), (13, 12)];
        let world = World { processes: Processes::default(), threads: HashMap::new(), forks };
        let all = world.with_descendants(&HashSet::from([10]));
        assert_eq!(all, HashSet::from([10, 11, 12, 13]));
    }

    #[test]
    fn what_counts_calls_is_not_of_the_program() {
        let is = |names: &[&str]| {
            let kernel = |name: &&str| Frame {
                function: (*name).into(),
                kind: FrameKind::Kernel,
                ..Frame::default()
            };
            let frames: Vec<Frame> = names.iter().map(kernel).collect();
            is_counting(frames.iter())
        };
        assert!(is(&["read_tsc", "bpf_prog_1a2b_sys_enter", "__traceiter_sys_enter"]));
        assert!(is(&["__traceiter_sys_exit", "syscall_exit_work"]));
        assert!(is(&["bpf_trampoline_6442", "simple_copy_to_iter"]));
        assert!(!is(&["check_heap_object", "bpf_trampoline_6442", "simple_copy_to_iter"]));
        assert!(!is(&["bpf_prog_77_my_filter", "sk_filter_trim_cap"]), "a program's own");
        assert!(!is(&["tcp_sendmsg", "do_syscall_64"]));
    }

    #[test]
    fn what_a_program_ran_is_its_own() {
        let mut builder = Builder::new(Header { title: "t".into(), ..Header::default() });
        let frame = builder.frame(Frame { function: "f".into(), ..Frame::default() });
        let stack = builder.stack(&[frame]);
        for owner in [Owner::Foreign, Owner::Softirq(None)] {
            let thread = builder.thread(Thread { name: "x".into(), pid: 7, tid: 7 });
            let sample =
                Sample { stack, thread, owner, cpu: None, time: Some(0.1), count: 1, weight: 1.0 };
            builder.add(sample);
        }
        let own = of_program(&builder.build());
        assert_eq!(own.header.title, "t");
        let owners: Vec<Owner> = own.samples().iter().map(|sample| sample.owner).collect();
        assert_eq!(owners, [Owner::Program, Owner::Softirq(None)]);
        assert_eq!(own.threads().len(), 1);
    }
}
