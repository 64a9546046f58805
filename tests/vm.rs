//! The vm testbed, really booted: this binary as the first process of a guest,
//! real trials in it, two kernels in one study, guests that die. Without qemu or
//! a kernel each of these is skipped aloud.

use bytepath::host::{self, Site};
use bytepath::record::{Kernel, Study, Support, TrialStatus};
use bytepath::run::{load, testbed_spec};
use bytepath::spec;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Emulated guests take every CPU there is, and one after the other is sooner.
static MACHINE: Mutex<()> = Mutex::new(());

fn machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_guest_runs_a_verified_stream() {
    let Some(_machine) = able("a_guest_runs_a_verified_stream") else { return };
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let out = folder.path().join("study");
    let output = verified_stream("vm", &["--profile", "none"], &out);
    println!("a study with one guest took {:.1} s", began.elapsed().as_secs_f64());
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let study = load(&out).unwrap();
    assert_eq!(measured(&study), 2, "{text}");
    assert_eq!(study.header.testbed, "vm");
    assert!(study.header.facts[0].kernel_release != host_release(), "{text}");
    for trial in &study.trials {
        assert!(trial.window_bytes > 0 && trial.roles.len() == 2, "{trial:?}");
    }
    assert_eq!(study.header.functional.is_some(), text.contains("not performance"), "{text}");
    assert_eq!(leftovers(), [0; 0], "no guest outlives its study");
}

#[test]
fn agents_answer_soon_after_the_guest_is_started() {
    let Some(_machine) = able("agents_answer_soon_after_the_guest_is_started") else { return };
    let program = PathBuf::from(env!("CARGO_BIN_EXE_bytepath"));
    let choice = spec::parse_testbed("vm", &testbed_spec(host::CATALOG)).unwrap();
    let vm = host::CATALOG.iter().find(|testbed| testbed.name() == "vm").unwrap();
    let testbed = vm.configured(&choice.options).unwrap().unwrap();
    let time = || {
        let began = Instant::now();
        let raised = testbed.raise(&Site::of(&program)).unwrap();
        (began.elapsed().as_secs_f64(), raised)
    };
    let (boot, first) = time();
    // On a machine that is busy with other things the CPU time says more.
    let cpu: f64 = guests_of(std::process::id()).into_iter().map(cpu_time).sum();
    let (again, second) = time();
    println!("boot to agents: {boot:.1} s ({cpu:.1} s of CPU); raised again: {again:.2} s");
    assert!(again < boot, "the guest was not booted again");
    assert!(cpu < 20.0, "{cpu:.1} s of CPU to boot");
    drop((first, second, testbed));
    assert_eq!(leftovers(), [0; 0]);
}

/// CPU time of a process so far, in seconds.
fn cpu_time(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit(')').next().unwrap();
    // utime and stime are the 14th and 15th of proc_pid_stat(5), in ticks.
    let ticks: f64 =
        rest.split_whitespace().skip(11).take(2).map(|n| n.parse::<f64>().unwrap()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

#[test]
fn two_command_lines_are_two_kernels() {
    let Some(_machine) = able("two_command_lines_are_two_kernels") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.toml");
    let experiment = r#"
        title = "With and without mitigations"
        testbed = "vm"
        blocks = 2
        warm-up = "200ms"
        window = "400ms"
        meters = ["cpu"]
        profile = "largest:trials=1,window=500ms"
        [factors]
        path = "socket"
        kernel = ["on=debian:newest", "off=debian:newest mitigations=off"]
    "#;
    std::fs::write(&file, experiment).unwrap();
    let out = folder.path().join("study");
    let began = Instant::now();
    let output =
        bytepath(&["run", file.to_str().unwrap(), "--out", out.to_str().unwrap(), "--seed", "3"]);
    println!("a study of two kernels took {:.1} s", began.elapsed().as_secs_f64());
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let study = load(&out).unwrap();
    assert_eq!(measured(&study), 6, "{text}");
    let kernels: Vec<&str> =
        study.header.kernels.iter().map(|hosts| hosts.kernel.name.as_str()).collect();
    assert_eq!(kernels, ["on", "off"]);
    let facts = |at: usize| &study.header.kernels[at].facts[0];
    assert_ne!(facts(0).machine, facts(1).machine, "each kernel has a guest of its own");
    let vulnerable = |at: usize| {
        let settings = &facts(at).settings;
        let known = settings.iter().filter(|(name, _)| name.contains("vulnerabilities"));
        known.filter(|(_, value)| value.contains("Vulnerable")).count()
    };
    assert!(vulnerable(1) >= vulnerable(0), "{:?}", facts(1).settings);
    if study.header.functional.is_some() {
        assert!(text.contains("FUNCTIONAL ONLY"), "{text}");
        for word in ["FASTER", "SLOWER", "EQUIVALENT", "LESS CPU", "MORE CPU"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
    }
    assert_eq!(study.profiles.len(), 2, "{text}");
    for profile in &study.profiles {
        let record = profile.profile.as_ref().unwrap();
        assert!(record.samples > 0, "{text}");
    }
    assert_eq!(leftovers(), [0; 0]);
}

#[test]
fn a_guest_that_panics_is_told_with_its_console() {
    let Some(_machine) = able("a_guest_that_panics_is_told_with_its_console") else { return };
    // There is no such program in the guest, and the kernel ends for want of one.
    let fault = refused("debian:newest", "rdinit=/nothing init=/nothing");
    assert!(fault.contains("did not come up: the guest's kernel panicked"), "{fault}");
    assert!(fault.contains("console ended with"), "{fault}");
    assert_eq!(leftovers(), [0; 0]);
}

#[test]
fn a_guest_that_is_killed_fails_its_trial_and_the_next_boots_anew() {
    let name = "a_guest_that_is_killed_fails_its_trial_and_the_next_boots_anew";
    let Some(_machine) = able(name) else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(["run", "--testbed", "vm", "--path", "socket", "--blocks", "2"]);
    command.args(["--warm-up", "200ms", "--window", "3s", "--profile", "none", "--meters", "none"]);
    command.arg("--out").arg(&out).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The guest has to be in its first trial: the study's folder is there then,
    // and what follows is one window of three seconds.
    let deadline = Instant::now() + Duration::from_secs(120);
    while !out.join("trials.jsonl").exists() {
        assert!(Instant::now() < deadline, "the study did not begin");
        assert!(child.try_wait().unwrap().is_none(), "the study ended at once");
        std::thread::sleep(Duration::from_millis(5));
    }
    let guests = guests_of(child.id());
    assert_eq!(guests.len(), 1, "one guest for one kernel: {guests:?}");
    let victim = rustix::process::Pid::from_raw(guests[0] as i32).unwrap();
    rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(5), "{text}");
    let study = load(&out).unwrap();
    let TrialStatus::Failed { fault } = &study.trials[0].status else { panic!("{text}") };
    let how = "qemu killed by signal 9 (SIGKILL)";
    assert!(fault.message.contains(how), "{fault}");
    assert_eq!(study.trials[1].status, TrialStatus::Measured, "{text}");
    assert_eq!(leftovers(), [0; 0]);
}

#[test]
fn two_guests_are_two_machines_with_a_wire() {
    let Some(_machine) = able("two_guests_are_two_machines_with_a_wire") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let output = verified_stream("vm:guests=2", &[], &out);
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let study = load(&out).unwrap();
    assert_eq!(measured(&study), 2, "{text}");
    let [sender, receiver] = study.header.facts.as_slice() else { panic!("{text}") };
    assert_ne!(sender.machine, receiver.machine);
    let metrics: Vec<&str> =
        study.trials[0].readings.iter().map(|reading| reading.metric.as_str()).collect();
    assert!(!metrics.iter().any(|metric| metric.starts_with("cpu.")), "{metrics:?}");
    assert_eq!(leftovers(), [0; 0]);
}

#[test]
fn a_kernel_that_is_not_there_is_named() {
    let output = bytepath(&["run", "--testbed", "vm", "--path", "socket", "--kernel", "/no/such"]);
    let text = shown(&output);
    assert!(!output.status.success() && text.contains("/no/such"), "{text}");
    let output = bytepath(&["run", "--path", "socket", "--kernel", "debian:newest"]);
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("choose the testbed vm"), "{text}");
}

/// Processes that run guests for a process.
fn guests_of(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    processes("qemu-system", &|stat: &str| {
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)) == Some(&parent)
    })
}

/// Raises a guest that cannot come up, and gives the fault.
fn refused(source: &str, cmdline: &str) -> String {
    let testbed = host::CATALOG.iter().find(|testbed| testbed.name() == "vm").unwrap();
    let kernel = Kernel { cmdline: cmdline.into(), ..Kernel::named("broken", source) };
    let program = PathBuf::from(env!("CARGO_BIN_EXE_bytepath"));
    let site = Site { kernel: Some(&kernel), ..Site::of(&program) };
    match testbed.raise(&site) {
        Ok(_) => panic!("it came up"),
        Err(fault) => fault.to_string(),
    }
}

/// The machine to itself, if guests can be booted on it.
fn able(test: &str) -> Option<MutexGuard<'static, ()>> {
    let testbed = host::CATALOG.iter().find(|testbed| testbed.name() == "vm").unwrap();
    match testbed.probe() {
        Support::Yes => Some(machine()),
        Support::No { reason, .. } => {
            println!("SKIP {test}: {reason}");
            None
        }
    }
}

/// Two short blocks of one path, every byte looked at by the receiver.
fn verified_stream(testbed: &str, more: &[&str], out: &Path) -> Output {
    let mut words = vec!["run", "--testbed", testbed, "--path", "socket"];
    words.extend(["--stream", "touch=verify", "--blocks", "2"]);
    words.extend(["--warm-up", "200ms", "--window", "500ms", "--out", out.to_str().unwrap()]);
    words.extend(more);
    bytepath(&words)
}

fn bytepath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bytepath")).args(arguments).output().unwrap()
}

fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn measured(study: &Study) -> usize {
    study.trials.iter().filter(|trial| trial.status == TrialStatus::Measured).count()
}

fn host_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim().to_owned()
}

/// Guests of this test program's or its children's that still run.
fn leftovers() -> Vec<u32> {
    let own = std::process::id().to_string();
    processes("qemu-system", &|stat: &str| {
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        // An orphan's parent is the first process.
        matches!(parent, Some(parent) if parent == own || parent == "1")
    })
}

/// Processes whose name begins so and whose `/proc/PID/stat` is as asked for.
fn processes(name: &str, is_meant: &dyn Fn(&str) -> bool) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbered = entries.filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path())));
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    numbered
        .filter(|(_, folder)| {
            read(folder.join("comm")).starts_with(name) && is_meant(&read(folder.join("stat")))
        })
        .map(|(pid, _)| pid)
        .collect()
}
