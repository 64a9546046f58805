//! The vm testbed, really booted: this binary as the first process of a guest,
//! real trials in it, two kernels in one study, a kernel that comes as a package.
//! Without qemu or a kernel each of these is skipped aloud.

mod guests;

use bytepath::host::{self, Site};
use bytepath::record::{Study, TrialStatus};
use bytepath::run::{load, testbed_spec};
use bytepath::spec;
use guests::{able, bytepath, guests_of, leftovers, shown, testbed};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Instant;

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
    let testbed = testbed().configured(&choice.options).unwrap().unwrap();
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

/// Two short blocks of one path, every byte looked at by the receiver.
fn verified_stream(testbed: &str, more: &[&str], out: &Path) -> Output {
    let mut words = vec!["run", "--testbed", testbed, "--path", "socket"];
    words.extend(["--stream", "touch=verify", "--blocks", "2"]);
    words.extend(["--warm-up", "200ms", "--window", "500ms", "--out", out.to_str().unwrap()]);
    words.extend(more);
    bytepath(&words)
}

/// Trials that were measured.
fn measured(study: &Study) -> usize {
    study.trials.iter().filter(|trial| trial.status == TrialStatus::Measured).count()
}

fn host_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim().to_owned()
}
