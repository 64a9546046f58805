//! Profiles of real streams, by the kernel's own samples. Needs root and perf events; if either is
//! missing, the refusal is checked and the tests are skipped.

use crate::cpu::Burner;
use crate::threads::{Silent, open};
use bytepath::meter;
use bytepath::path;
use bytepath::profile::import::{PPROF, Times};
use bytepath::profile::{FrameKind, Owner, Profile, Weight};
use bytepath::record::{
    Budget, Cell, CellId, Fault, FaultKind, Profiling, Role, Sampling, Schedule, Scope, Study,
    StudyHeader, Trial, TrialStatus,
};
use bytepath::spec::{self, CellRequest};
use bytepath::study::{Laboratory, Observer, Plan, load, path_spec, resume_study, run_study};
use bytepath::sys::Roots;
use bytepath::sys::perf::{Event, LARGEST_SAMPLE, Rate, Record, Request, Sampler, records};
use bytepath::testbed::{self, Testbed};
use bytepath_testing::{alone, shared, skip};
use serde_json::json;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// True if this host permits no sampling; then the reason and its remedy are checked.
fn unavailable() -> bool {
    if let bytepath::record::Support::No { reason, .. } = testbed::CATALOG[0].probe() {
        skip!("{reason}");
        return true;
    }
    match meter::sample_price(None, 0, meter::SAMPLE_TURN, &Roots::real()) {
        Ok(_) => false,
        Err(fault) => {
            assert!(
                matches!(fault.kind, FaultKind::Permission | FaultKind::Unsupported),
                "{fault}"
            );
            assert!(fault.remedy.is_some(), "{fault}");
            skip!("{fault}");
            true
        }
    }
}

#[test]
fn a_profile_trial_of_a_socket_stream() {
    let _shared = shared();
    if unavailable() {
        return;
    }
    let (folder, study, profile) = profiled("socket", "all:trials=1,window=1s", &[]);
    let [trial] = study.profiles.as_slice() else { panic!("{:?}", study.profiles) };
    let record = trial.profile.as_ref().unwrap();
    assert_eq!((record.lost, record.number), (0, 1), "{record:?}");
    let header = &profile.header;
    assert_eq!((profile.count(), header.lost), (record.samples, 0));
    assert_eq!(header.title, "socket (1)");
    assert_eq!(header.work.bytes, Some(trial.count as f64));
    // On a busy machine the profile may begin and end late; `timing` is strict.
    assert!((0.5..2.0).contains(&(header.seconds.unwrap() / trial.window)), "{header:?}");

    // It has samples of both ends, and the copies of a socket stream.
    for role in Role::ALL {
        assert!(profile.samples().iter().any(|s| s.owner == Owner::Role(role)), "no {role}");
    }
    let copying = |name: &str| name.contains("copy_from_iter") || name.contains("copy_to_iter");
    assert!(profile.frames().iter().any(|f| copying(&f.function)), "nobody copies");

    // Names: these are counts of stack frames, not of distinct functions.
    let (mut named, mut all) = (0, 0);
    let mut engine = false;
    for sample in profile.samples() {
        for frame in profile.stack(sample.stack).iter().map(|id| profile.frame(*id)) {
            // Mostly the C library's system calls: without frame pointers the stack ends there.
            engine |= matches!(sample.owner, Owner::Role(_))
                && frame.kind == FrameKind::User
                && !frame.function.starts_with("0x")
                && !frame.build_id.is_empty();
            if frame.kind == FrameKind::Kernel {
                all += 1;
                named += u32::from(!frame.function.starts_with("0x"));
            }
        }
    }
    let hidden = header.notes.iter().any(|note| note.contains("kptr_restrict"));
    assert!(hidden || f64::from(named) >= 0.95 * f64::from(all), "{named} of {all} named");
    let of_user = |f: &&bytepath::profile::Frame| f.kind == FrameKind::User;
    let user: Vec<_> = profile.frames().iter().filter(of_user).collect();
    assert!(engine, "no function of the engine has a name: {user:#?}");
    let kernel = profile.frames().iter().find(|f| f.module == "[kernel]").unwrap();
    assert!(hidden || !kernel.build_id.is_empty(), "{kernel:?}");

    // On disk it is one of the trials; loading separates it again.
    assert_eq!(load(folder.path()).unwrap(), study);
}

/// The sampler alone, drained late: samples that find no room are counted, by the records and by
/// the kernel.
#[test]
fn losses_are_counted() {
    let _shared = shared();
    if unavailable() {
        return;
    }
    // At this rate a ring holds half a second of the largest samples; it holds several seconds of
    // small ones, so many are needed.
    let request =
        Request { event: Event::cpu_clock(), rate: Rate::Frequency(20_000), cpus: vec![0] };
    let mut sampler = match Sampler::open(&request) {
        Ok(sampler) => sampler,
        // This host limits the rate.
        Err(refused) => return skip!("{refused}"),
    };
    bytepath::sys::thread::pin(0).unwrap();
    let control = sampler.control();
    let room = sampler.ring_size();
    control.enable().unwrap();
    let begin = Instant::now();
    // A deep call chain fills the ring sooner.
    while begin.elapsed() < Duration::from_secs(4) {
        std::hint::black_box(deep(100));
    }
    control.disable().unwrap();
    let mut bytes = Vec::new();
    sampler
        .drain(|_, first, second| {
            bytes.extend_from_slice(first);
            bytes.extend_from_slice(second);
        })
        .unwrap();
    let found: Vec<Record> = records(&bytes).map(Result::unwrap).collect();
    let samples = found.iter().filter(|r| matches!(r, Record::Sample(_))).count();
    let counted = sampler.tallies().unwrap()[0].lost;
    println!("{samples} samples in {} of {room} bytes, lost {counted:?}", bytes.len());
    assert!(samples > 1000 && bytes.len() <= room);
    let full = bytes.len() + 2 * LARGEST_SAMPLE > room;
    if let Some(lost) = counted {
        assert_eq!(lost > 0, full, "{lost} lost with {} of {room} bytes used", bytes.len());
    }
    // Once drained, the ring has room, and the loss is also reported in it, with the next sample,
    // which may take a while on a busy machine.
    let mut reported = 0;
    let again = Instant::now();
    let mut is_first = true;
    while is_first || (full && reported == 0 && again.elapsed() < Duration::from_secs(10)) {
        is_first = false;
        control.enable().unwrap();
        let slice = Instant::now();
        while slice.elapsed() < Duration::from_millis(200) {
            std::hint::black_box(deep(1));
        }
        control.disable().unwrap();
        let mut take = |_: usize, first: &[u8], second: &[u8]| {
            for record in records(&[first, second].concat()) {
                if let Record::Lost(count) = record.unwrap() {
                    reported += count;
                }
            }
        };
        sampler.drain(&mut take).unwrap();
    }
    assert_eq!(reported > 0, full, "{reported} reported");
}

#[inline(never)]
fn deep(levels: u32) -> u32 {
    if levels == 0 { 0 } else { std::hint::black_box(deep(levels - 1)) + 1 }
}

#[test]
fn profiles_that_were_interrupted_are_gone_on_with() {
    let _shared = shared();
    if unavailable() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut plan =
        plan(&["socket", "sendfile"], "largest:trials=2,window=300ms,rate=99", folder.path());
    // Without meters and events, both cells count no matter how busy the machine is.
    plan.meters.clear();
    let stop = AtomicBool::new(false);
    let mut observer = StopAfter { profiles: 1, stop: &stop, seen: Vec::new() };
    let (study, result) = run_study(&laboratory(&stop), &plan, &mut observer);
    assert_eq!(result.unwrap_err().kind, FaultKind::Interrupted);
    assert_eq!(study.unwrap().profiles.len(), 1, "what was taken is kept");
    let first = std::mem::take(&mut observer.seen);
    assert_eq!(first.len(), 1);

    stop.store(false, Ordering::Relaxed);
    let mut observer = StopAfter { profiles: 99, stop: &stop, seen: Vec::new() };
    let (study, result) = resume_study(&laboratory(&stop), open(folder.path()), &mut observer);
    result.unwrap();
    let study = study.unwrap();
    // Each round has both cells, in its own order, which the interruption does not change.
    let order = [first, std::mem::take(&mut observer.seen)].concat();
    for round in order.chunks(2) {
        assert!(
            round.contains(&"socket".into()) && round.contains(&"sendfile".into()),
            "{order:?}"
        );
    }
    let mut taken: Vec<(&str, u32)> = study
        .profiles
        .iter()
        .map(|t| (t.cell.0.as_str(), t.profile.as_ref().unwrap().number))
        .collect();
    taken.sort_unstable();
    assert_eq!(taken, [("sendfile", 1), ("sendfile", 2), ("socket", 1), ("socket", 2)]);
    for trial in study.profiles.iter().filter(|t| t.status == TrialStatus::Measured) {
        let record = trial.profile.as_ref().unwrap();
        assert_eq!(record.rate, 99);
        read(&folder.path().join(&record.file));
    }
    let (_, result) = resume_study(&laboratory(&stop), open(folder.path()), &mut observer);
    assert!(result.unwrap_err().message.contains("is complete"));
}

/// A study that is stopped after its first verdict already has the explanation.
#[test]
fn what_is_recommended_is_profiled_between_blocks() {
    let _shared = shared();
    if unavailable() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let paths = ["userspace+userspace", "socket"];
    let mut plan = plan(&paths, "leading:trials=1,window=300ms,rate=99", folder.path());
    plan.meters.clear();
    // The kernel's TCP is several times faster on any machine; equal cells stay undecided for long.
    let equal = Cell { id: CellId("equal".into()), ..plan.cells[0].clone() };
    plan.cells.push(equal);
    let budget = Some(Budget { seconds: 600.0, profiles: 0.0, first: 200 });
    plan.schedule =
        Schedule { blocks: 200, window: 0.2, budget, until_sure: true, ..plan.schedule };
    let stop = AtomicBool::new(false);
    let mut observer = StopAfter { profiles: 2, stop: &stop, seen: Vec::new() };
    let (study, result) = run_study(&laboratory(&stop), &plan, &mut observer);
    let study = study.unwrap();
    let blocks = study.trials.iter().map(|trial| trial.block + 1).max().unwrap();
    assert!(result.is_err(), "{blocks} blocks, {:?}", study.remarks);
    assert!((5..200).contains(&blocks), "{blocks} blocks, {:?}", study.remarks);
    observer.seen.sort();
    assert_eq!(observer.seen, ["socket", "userspace+userspace"]);
}

#[test]
fn an_event_that_cannot_be_sampled_is_a_remark_and_no_failure() {
    let _shared = shared();
    if unavailable() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(&["socket"], "all:event=no-such-event", folder.path());
    plan.meters.clear();
    let study = run(&plan).unwrap();
    assert_eq!((study.trials.len(), study.profiles.len()), (1, 0));
    let remark = study.remarks.iter().find(|r| r.starts_with("no profiles: ")).unwrap();
    assert!(remark.contains("no-such-event") && remark.contains("perf list"), "{remark}");
    // The study is complete without profiles.
    let stop = AtomicBool::new(false);
    let (_, result) = resume_study(&laboratory(&stop), open(folder.path()), &mut Silent);
    assert!(result.unwrap_err().message.contains("is complete"));
}

/// Every thread that the sampler finds on the CPUs can be told apart from the others.
#[test]
fn a_profile_knows_the_kernel_s_threads() {
    let _shared = shared();
    if unavailable() {
        return;
    }
    let (_folder, _, profile) = profiled("uring", "all:trials=1,window=500ms", &[]);
    let napi = |s: &&bytepath::profile::Sample| s.owner == Owner::Napi;
    assert!(profile.samples().iter().any(|s| napi(&s)), "the link polls in a thread");
    for sample in profile.samples() {
        let thread = profile.thread(sample.thread);
        let idle = sample.owner == Owner::Idle;
        assert!(!idle || thread.name.starts_with("swapper/"), "{thread:?}");
        let named = sample.owner == Owner::Napi;
        assert!(!named || thread.name.starts_with("napi/"), "{thread:?}");
        assert!(sample.time.unwrap() < 1.0 && sample.weight > 0.0);
    }
}

fn read(file: &Path) -> Profile {
    let name = file.display().to_string();
    let mut file = BufReader::new(File::open(file).unwrap());
    (PPROF.read)(&name, Times::Kept, &mut file).unwrap()
}

/// Stops a study after this many profiles.
struct StopAfter<'a> {
    profiles: usize,
    stop: &'a AtomicBool,
    seen: Vec<String>,
}

impl Observer for StopAfter<'_> {
    fn begins(&mut self, _: &StudyHeader, _: usize) {}
    fn trial_begins(&mut self, _: usize, _: &CellId, _: u32) {}
    fn trial_ends(&mut self, _: usize, _: &Trial, _: Duration) {}
    fn profile_ends(&mut self, number: usize, trial: &Trial, _: Duration) {
        self.seen.push(trial.cell.0.clone());
        self.stop.store(number >= self.profiles, Ordering::Relaxed);
    }
}

/// Runs a study with one profile that counts. On a busy machine an event may invalidate the trial
/// or its profile; then it is repeated, a few times.
fn profiled(path: &str, what: &str, meters: &[&str]) -> (tempfile::TempDir, Study, Profile) {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let meters = meters.iter().map(|name| (*name).into()).collect();
        let mut plan = Plan { meters, ..plan(&[path], what, folder.path()) };
        // A short profile disturbed by other programs may lack threads of the stream.
        plan.schedule.max_interference = Some(bytepath::stats::FOREIGN_LIMIT);
        let study = run(&plan).unwrap();
        assert_eq!(study.trials.len(), 1, "the profile is not a trial of its cell");
        let trial = study.profiles.first();
        if let Some(trial) = trial.filter(|trial| trial.status == TrialStatus::Measured) {
            let record = trial.profile.as_ref().unwrap();
            let profile = read(&folder.path().join(&record.file));
            return (folder, study, profile);
        }
        let lost = trial.and_then(|trial| trial.profile.as_ref()).map_or(0, |p| p.lost);
        assert_eq!(lost, 0, "{:?}", study.profiles);
        println!("once more: {:?} {:?}", study.trials[0].status, trial.map(|t| &t.status));
    }
    panic!("every time something else happened on this machine");
}

fn run(plan: &Plan) -> Result<Study, Fault> {
    let (study, result) = run_study(&laboratory(&AtomicBool::new(false)), plan, &mut Silent);
    result.map(|()| study.expect("a study that was run"))
}

fn laboratory(stop: &AtomicBool) -> Laboratory<'_> {
    let testbed: &dyn Testbed = testbed::CATALOG[0];
    let program = env!("CARGO_BIN_EXE_bytepath").into();
    Laboratory { paths: path::CATALOG, meters: meter::CATALOG, testbed, program, stop }
}

/// A short study of these paths, which repeats no profile. Without the meter `cpu`, foreign work
/// goes unnoticed, which would reject every trial on a machine that also compiles.
fn plan(paths: &[&str], profile: &str, folder: &Path) -> Plan {
    let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    let allowed = bytepath::sys::thread::allowed().unwrap();
    let cores = if allowed.len() > 1 { "two" } else { "one" };
    let cores = spec::parse_cores(cores, &allowed).unwrap();
    let ask = CellRequest::of(&paths, &cores);
    let (mut cells, baseline) = spec::cells(&ask, &path_spec(path::CATALOG, path::PAIRS)).unwrap();
    cells.retain(|cell| !cell.null);
    let schedule = Schedule { seed: 1, ..Schedule::trials(1, 0.1, 0.3) };
    let profiling = spec::parse_profile(profile).unwrap();
    Plan {
        profiling: profiling.map(|profiling| Profiling { retakes: 0, ..profiling }),
        ..Plan::bare(cells, baseline, schedule, folder)
    }
}

/// Tests that need a quiet machine: `make timing`.
mod timing {
    use super::*;

    #[test]
    #[ignore = "timing"]
    fn sampled_time_is_metered_time() {
        let _alone = alone();
        if unavailable() {
            return;
        }
        let (_folder, study, profile) = profiled("socket", "all:trials=1,window=1s", &["cpu"]);
        assert_eq!(profile.header.weight, Weight::Nanoseconds, "this check needs a clock");
        let busy = |s: &&bytepath::profile::Sample| s.owner != Owner::Idle;
        let sampled: f64 = profile.samples().iter().filter(busy).map(|s| s.weight * 1e-9).sum();
        let cpus = Role::ALL.map(|role| study.header.cells[0].placement.cpu(role).unwrap());
        let trial = &study.profiles[0];
        let metered = |cpu: u32| trial.reading("cpu.busy", &Scope::Cpu(cpu)).unwrap();
        let metered: f64 = cpus.map(metered).iter().sum();
        println!(
            "sampled {sampled:.3} s busy, metered {metered:.3} s, {} samples",
            profile.count()
        );
        assert!((sampled / metered - 1.0).abs() < 0.15, "sampled {sampled} s, metered {metered} s");
    }

    #[test]
    #[ignore = "timing"]
    fn a_profile_is_as_long_as_its_window() {
        let _alone = alone();
        if unavailable() {
            return;
        }
        let (_folder, study, profile) = profiled("socket", "all:trials=1,window=1s", &[]);
        let (header, trial) = (&profile.header, &study.profiles[0]);
        assert!((header.seconds.unwrap() / trial.window - 1.0).abs() < 0.01, "{header:?}");
    }

    #[test]
    #[ignore = "timing"]
    fn five_thousand_hertz_without_a_loss() {
        let _alone = alone();
        if unavailable() {
            return;
        }
        let what = "all:trials=1,window=1s,rate=5000,event=cpu-clock";
        let (_folder, study, profile) = profiled("socket", what, &["cpu"]);
        let record = study.profiles[0].profile.as_ref().unwrap();
        println!("{record:?}");
        assert_eq!((record.lost, record.rate), (0, 5000));
        let cpus = Role::ALL.map(|role| study.header.cells[0].placement.cpu(role).unwrap());
        let share = |cpu: u32| {
            let read = |metric: &str| study.profiles[0].reading(metric, &Scope::Cpu(cpu)).unwrap();
            read("cpu.busy") - read("cpu.steal").min(0.0)
        };
        let busy: f64 = cpus.map(share).iter().sum();
        // A late sample represents the periods that it missed, so busy time is accounted for no
        // matter how late the clock of a virtual machine is.
        let busy_sample = |s: &&bytepath::profile::Sample| s.owner != Owner::Idle;
        let sampled: f64 =
            profile.samples().iter().filter(busy_sample).map(|s| s.weight * 1e-9).sum();
        assert!(sampled > 0.85 * busy, "{sampled} s of {busy} s: {record:?}");
        assert!(record.samples > 1000, "{record:?}");
    }

    /// Everything slow is done before the window.
    #[test]
    #[ignore = "timing"]
    fn the_window_begins_quickly() {
        let _alone = alone();
        if unavailable() {
            return;
        }
        let meter = meter::CATALOG.iter().find(|m| m.name == meter::PROFILE_NAME).unwrap();
        let cpus = bytepath::sys::thread::allowed().unwrap();
        let context = meter::Context {
            options: json!(Sampling { event: "cpu-clock".into(), rate: 999, cpus }),
            ..meter::Context::idle(Roots::real())
        };
        // The best of several: delays by other programs are not the meter's.
        let once = |_| {
            let prepared = (meter.prepare)(&context).unwrap().unwrap();
            let begin = Instant::now();
            let running = prepared().unwrap();
            let took = begin.elapsed();
            std::thread::sleep(Duration::from_millis(20));
            let capture = running.stop().unwrap().capture.unwrap();
            assert!(capture.records.iter().any(|bytes| !bytes.is_empty()));
            took
        };
        let fastest = (0..10).map(once).min().unwrap();
        println!("the window begins within {fastest:?}");
        assert!(fastest < Duration::from_millis(1), "{fastest:?}");
    }
    /// Other work begins with the profiles and makes each of them invalid.
    #[test]
    #[ignore = "timing"]
    fn rejected_profiles_are_replaced_up_to_a_limit() {
        let _alone = alone();
        if unavailable() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut plan = plan(&["socket"], "all:trials=2,window=300ms,rate=99", folder.path());
        plan.meters = vec!["cpu".into()];
        plan.profiling.as_mut().unwrap().retakes = 3;
        let cpu = plan.cells[0].placement.receiver.unwrap();
        let stop = AtomicBool::new(false);
        let mut observer = BurnWhileProfiling { cpu, burner: None, totals: Vec::new() };
        let (study, result) = run_study(&laboratory(&stop), &plan, &mut observer);
        result.unwrap();
        let study = study.unwrap();
        let number = |trial: &Trial| trial.profile.as_ref().unwrap().number;
        let numbers: Vec<u32> = study.profiles.iter().map(number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5], "{:?}", study.profiles);
        assert_eq!(observer.totals, [2, 3, 4, 5, 5], "a rejected one adds one");
        for trial in &study.profiles {
            assert!(matches!(trial.status, TrialStatus::Rejected { .. }), "{:?}", trial.status);
        }
        let (_, result) = resume_study(&laboratory(&stop), open(folder.path()), &mut Silent);
        assert!(result.unwrap_err().message.contains("is complete"));
    }

    /// Keeps a CPU busy from the first profile on, and records the announced number of profiles.
    struct BurnWhileProfiling {
        cpu: u32,
        burner: Option<Burner>,
        totals: Vec<usize>,
    }

    impl Observer for BurnWhileProfiling {
        fn begins(&mut self, _: &StudyHeader, _: usize) {}
        fn trial_begins(&mut self, _: usize, _: &CellId, _: u32) {}
        fn trial_ends(&mut self, _: usize, _: &Trial, _: Duration) {}
        fn profile_begins(&mut self, _: usize, total: usize, _: &CellId) {
            self.burner.get_or_insert_with(|| Burner::on(self.cpu));
            self.totals.push(total);
        }
    }
}
