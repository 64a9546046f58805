//! The vm testbed, really booted: this binary as the first process of a guest,
//! real trials in it, two kernels in one study, guests that die. Without qemu or
//! a kernel each of these is skipped aloud.

use bytepath::host::{self, Site};
use bytepath::record::{Kernel, Study, Support, TrialStatus};
use bytepath::run::load;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

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
    let output = bytepath(&[
        "run",
        "--testbed",
        "vm",
        "--path",
        "socket",
        "--stream",
        "touch=verify",
        "--blocks",
        "2",
        "--warm-up",
        "200ms",
        "--window",
        "500ms",
        "--profile",
        "none",
        "--out",
        out.to_str().unwrap(),
    ]);
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
fn a_kernel_that_is_not_there_is_named() {
    let output = bytepath(&["run", "--testbed", "vm", "--path", "socket", "--kernel", "/no/such"]);
    let text = shown(&output);
    assert!(!output.status.success() && text.contains("/no/such"), "{text}");
    let output = bytepath(&["run", "--path", "socket", "--kernel", "debian:newest"]);
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("choose the testbed vm"), "{text}");
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
    let is_ours = |folder: &Path| {
        let name = std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
        let stat = std::fs::read_to_string(folder.join("stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        // An orphan's parent is the first process.
        name.starts_with("qemu-system") && matches!(parent, Some(p) if p == own || p == "1")
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbered = entries.filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path())));
    numbered.filter(|(_, folder)| is_ours(folder)).map(|(pid, _)| pid).collect()
}
