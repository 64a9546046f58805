//! Studies with fake GPUs: a C compiler builds a driver from `tests/data/gpu/made_up.c`. Nothing
//! here shows how a real one behaves.

use bytepath::record::{Scope, TrialStatus};
use bytepath::study::load;
use bytepath_testing::skip;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Builds the fake driver in a folder, or skips.
fn driver(folder: &Path) -> bool {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpu/made_up.c");
    let library = folder.join("libnvidia-ml.so.1");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-w", "-o"]).arg(&library).arg(source);
    match compiler.output() {
        Err(e) => {
            skip!("no C compiler ({e})");
            false
        }
        Ok(made) => {
            assert!(made.status.success(), "{}", text(&made));
            fs::copy(&library, folder.join("libcuda.so.1")).unwrap();
            true
        }
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// An experiment with a cell on each GPU, one on both, and one on a missing GPU.
const CELLS: &str = "blocks = 1\nwarm-up = '100ms'\nwindow = '600ms'\ndesign = 'trials'\n\
                     meters = ['nvml']\nprofile = 'none'\n[factors]\n\
                     path = ['socket', 'devmem:memory=gpu', 'devmem:memory=gpu,gpu=17:00.0',\
                     'devmem:memory=gpu,gpu=B3:00.0+devmem:memory=gpu,gpu=0000:17:00.0',\
                     'devmem:memory=gpu,gpu=66:00.0']\n";

#[test]
fn reads_fake_gpus_and_keeps_those_awake_that_are_used() {
    let folder = tempfile::tempdir().unwrap();
    if !driver(folder.path()) {
        return;
    }
    let (file, out) = (folder.path().join("gpu.toml"), folder.path().join("study"));
    fs::write(&file, CELLS).unwrap();
    let held = folder.path().join("held");
    let mut run = bytepath(folder.path());
    run.arg("run").arg(&file).arg("--study").arg(&out).env("MADE_UP_GPU", &held);
    run.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let run = run.spawn().unwrap();
    let controller = run.id().to_string();
    let output = run.wait_with_output().unwrap();
    let said = text(&output);
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {said}"));
    // Without namespaces there is no study at all, and load reports it.
    let trial = study.trials.iter().find(|trial| trial.status == TrialStatus::Measured);
    let trial = trial.unwrap_or_else(|| panic!("nothing was measured: {said}"));
    let reading = |metric: &str| {
        let found = trial.readings.iter().find(|r| r.metric == metric && r.scope == Scope::Machine);
        found.unwrap_or_else(|| panic!("no {metric}: {trial:#?}")).value
    };
    for (metric, value) in [
        ("nvml.0.watts", 250.0),
        ("nvml.1.watts", 300.0),
        ("nvml.0.pcie.sent", 1e6),
        ("nvml.0.pcie.received", 25e9),
        ("nvml.0.busy", 0.07),
        ("nvml.0.memory.busy", 0.4),
        ("nvml.0.clock", 1.98e9),
        ("nvml.0.memory.clock", 2.619e9),
    ] {
        assert!((reading(metric) - value).abs() < 1e-6 * value, "{metric}: {}", reading(metric));
    }
    // The fake driver counts no energy, so the reading is power times the window.
    let seconds = reading("nvml.0.energy") / 250.0;
    assert!((0.5..5.0).contains(&seconds), "{seconds}");
    // The controller, which lives as long as the study, holds a context on each GPU in use.
    let held = fs::read_to_string(&held).unwrap_or_default();
    for gpu in ["00000000:17:00.0", "00000000:B3:00.0"] {
        let held_by_controller = format!("{controller} {gpu}");
        assert!(held.lines().any(|line| line == held_by_controller), "{held:?}: {said}");
    }
    for used in USED {
        assert!(study.remarks.iter().any(|remark| remark == used), "{used}: {:?}", study.remarks);
    }
    let refused = |cell: &str| {
        study.trials.iter().find_map(|trial| match &trial.status {
            TrialStatus::Unavailable { reason, .. } if trial.cell.0.contains(cell) => Some(reason),
            _ => None,
        })
    };
    assert!(refused("memory=gpu").is_some_and(|why| !why.is_empty()), "{said}");
    let absent = refused("gpu=66:00.0").unwrap();
    assert!(absent.contains("no GPU at 0000:66:00.0"), "{absent}");
}

/// By default, a path uses CUDA's first GPU if none is near a link; it is the second of NVML.
const USED: [&str; 4] = [
    "GPU memory of the sender: 0000:b3:00.0 (Made-up GPU, nvml.1, number 0 of CUDA)",
    "GPU memory of the sender: 0000:17:00.0 (Made-up GPU, nvml.0, number 1 of CUDA)",
    "GPU memory of the receiver: 0000:b3:00.0 (Made-up GPU, nvml.1, number 0 of CUDA)",
    "GPU memory of the receiver: 0000:17:00.0 (Made-up GPU, nvml.0, number 1 of CUDA)",
];

#[test]
fn names_the_gpus_before_a_study() {
    let folder = tempfile::tempdir().unwrap();
    if !driver(folder.path()) {
        return;
    }
    let file = folder.path().join("gpu.toml");
    fs::write(&file, CELLS).unwrap();
    let plan = bytepath(folder.path()).arg("run").arg(&file).arg("--dry-run").output().unwrap();
    let plan = text(&plan);
    for used in USED {
        assert!(plan.lines().any(|line| line == used), "{used}: {plan}");
    }
    let choice = "choose one of 0000:b3:00.0, 0000:17:00.0, or gpu=auto";
    assert!(plan.contains(choice), "{plan}");
    let doctor = text(&bytepath(folder.path()).arg("doctor").output().unwrap());
    let doctor = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
    let gpus = "GPUs: 0000:b3:00.0 (Made-up GPU, nvml.1, number 0 of CUDA), \
                0000:17:00.0 (Made-up GPU, nvml.0, number 1 of CUDA)";
    assert!(doctor.contains(gpus), "{doctor}");
}

/// Returns a command that runs bytepath with the fake driver in a folder.
fn bytepath(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.env("LD_LIBRARY_PATH", folder);
    command
}

#[test]
fn meter_and_study_report_a_missing_gpu() {
    let bytepath = |words: &[&str]| {
        text(&Command::new(env!("CARGO_BIN_EXE_bytepath")).args(words).output().unwrap())
    };
    let about = bytepath(&["meters", "nvml"]);
    if !about.contains("libnvidia-ml.so.1") {
        return skip!("this machine has NVIDIA's library: {about}");
    }
    assert!(about.contains("no NVIDIA driver is installed"), "{about}");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/battle-gpu.toml");
    let why = bytepath(&["doctor", "--experiment", file]);
    let cells = why.split_once("Cells of the experiment that cannot run").expect(&why).1;
    assert!(cells.contains("memory=gpu"), "{why}");
}
