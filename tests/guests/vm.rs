//! The vm testbed, really booted: this binary as the first process of a guest, real trials in it,
//! two kernels in one study, a kernel from a package. Without qemu or a kernel each of these is
//! skipped and reported.

use crate::guests::{able, bytepath, guests_of, leftovers, shown};
use bytepath::record::{Role, Scope, Study, TrialStatus};
use bytepath::study::load;
use bytepath_testing::skip;
use rustix::process::Pid;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_guest_runs_a_verified_stream() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let out = folder.path().join("study");
    let mut command = verified_stream("vm", &["--profile", "none"], &out);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut guests = BTreeSet::new();
    while child.try_wait().unwrap().is_none() {
        if out.join("trials.jsonl").exists() {
            guests.extend(guests_of(child.id()).into_iter().map(Pid::as_raw_nonzero));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let took = began.elapsed().as_secs_f64();
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(guests.len(), 1, "one boot serves all trials: {text}");
    let study = load(&out).unwrap();
    assert_eq!(measured(&study), 2, "the path, and itself again: {text}");
    let booted = study.header.facts[0].booted.expect("a guest was booted");
    println!("a study with one guest took {took:.1} s, {booted:.1} s of it until it was up");
    assert!(booted > 0.0 && booted < took, "{booted} of {took}");
    assert_eq!(study.header.testbed, "vm");
    assert!(study.header.facts[0].kernel_release != host_release(), "{text}");
    for trial in &study.trials {
        assert!(trial.count > 0 && trial.roles.len() == 2, "{trial:?}");
    }
    assert_eq!(study.header.functional.is_some(), text.contains("not performance"), "{text}");
    assert_eq!(leftovers(), [], "no guest outlives its study");
}

/// Otherwise its trials would fail one by one.
#[test]
fn a_meter_that_guests_cannot_have_is_refused_before_the_first_trial() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let words = ["run", "--testbed", "vm:accel=tcg", "--path", "socket", "--meters", "locks"];
    let output = bytepath(&[&words[..], &["-n", "1", "--study", out.to_str().unwrap()]].concat());
    let text = shown(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("meter locks cannot run here") && text.contains("QEMU TCG"), "{text}");
    assert!(!out.join("trials.jsonl").exists(), "a trial was begun: {text}");
    assert_eq!(leftovers(), []);
}

#[test]
fn two_command_lines_are_two_kernels() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let kernels = ["on=debian:newest", "off=debian:newest mitigations=off"];
    let (study, text) = study_of_two(folder.path(), kernels, "none");
    let facts = |at: usize| &study.header.kernels[at].facts[0];
    assert_ne!(facts(0).machine, facts(1).machine, "each kernel has a guest of its own");
    assert_eq!(facts(0).kernel_release, facts(1).kernel_release);
    let vulnerable = |at: usize| {
        let settings = &facts(at).settings;
        let known = settings.iter().filter(|(name, _)| name.starts_with("vulnerability."));
        known.filter(|(_, value)| value.contains("Vulnerable")).count()
    };
    assert!(vulnerable(1) > vulnerable(0), "{:?}", facts(1).settings);
    assert!(text.contains("off: ") && text.contains(", with mitigations=off"), "{text}");
}

#[test]
fn two_kernels_are_explained_by_the_functions_of_both() {
    let Some(_machine) = able() else { return };
    let releases = fetched();
    let (Some(old), Some(new)) = (releases.first(), releases.last()) else {
        return skip!("no kernel was fetched");
    };
    if old == new {
        skip!("only one kernel was fetched, {new}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (format!("old=debian:{old}"), format!("new=debian:{new}"));
    // Long enough, at a few dozen samples a second, to find functions that both kernels share.
    let profile = "largest:trials=1,retakes=0,window=3s";
    let (study, text) = study_of_two(folder.path(), [&old, &new], profile);
    let facts = |at: usize| &study.header.kernels[at].facts[0];
    assert_ne!(facts(0).kernel_release, facts(1).kernel_release);
    for hosts in &study.header.kernels {
        let line = format!("{}: {}", hosts.kernel.name, hosts.facts[0].kernel_release);
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert_eq!(study.profiles.len(), 2, "{text}");
    for profile in &study.profiles {
        let record = profile.profile.as_ref().unwrap();
        assert!(record.samples > 0, "{text}");
    }
    explained(folder.path(), &study);
}

/// Runs one path on two kernels. Returns the study, which is in `folder/study`, and the report.
fn study_of_two(folder: &Path, kernels: [&str; 2], profile: &str) -> (Study, String) {
    let file = folder.join("two.toml");
    let experiment = format!(
        r#"
        title = "One path on two kernels"
        testbed = "vm"
        blocks = 1
        warm-up = "200ms"
        window = "500ms"
        meters = ["cpu"]
        profile = "{profile}"
        [factors]
        path = "socket"
        kernel = ["{}", "{}"]
        "#,
        kernels[0], kernels[1]
    );
    std::fs::write(&file, experiment).unwrap();
    let out = folder.join("study");
    let began = Instant::now();
    let output =
        bytepath(&["run", file.to_str().unwrap(), "--study", out.to_str().unwrap(), "--seed", "3"]);
    println!("a study of two kernels took {:.1} s", began.elapsed().as_secs_f64());
    let text = shown(&output);
    // On a busy machine an emulated stream may stall for a whole window, which is a failed trial
    // (exit code 5), as it should be.
    assert!(matches!(output.status.code(), Some(0 | 5)), "{text}");
    let study = load(&out).unwrap();
    assert_eq!(study.trials.len(), 3, "two cells, and one again: {text}");
    for cell in &study.header.cells {
        let of_cell = study.trials.iter().filter(|trial| trial.cell == cell.id);
        let measured = of_cell.filter(|trial| trial.status == TrialStatus::Measured).count();
        assert!(measured > 0, "{}: {text}", cell.id);
    }
    let named: Vec<&str> =
        study.header.kernels.iter().map(|hosts| hosts.kernel.name.as_str()).collect();
    assert_eq!(named, kernels.map(|kernel| kernel.split('=').next().unwrap()));
    for hosts in &study.header.kernels {
        let booted = hosts.facts[0].booted.expect("it was booted for this study");
        println!("{} was up after {booted:.1} s", hosts.kernel);
    }
    if study.header.functional.is_some() {
        assert!(text.contains("FUNCTIONAL ONLY"), "{text}");
        for word in ["FASTER", "SLOWER", "EQUIVALENT", "LESS CPU", "MORE CPU", " saves "] {
            assert!(!text.contains(word), "{word} in {text}");
        }
    }
    assert_eq!(leftovers(), []);
    (study, text)
}

/// Checks that the explanation of a study of two kernels adds up, that functions of both have the
/// same names, and that each format contains it.
fn explained(folder: &Path, study: &Study) {
    let show = |format: &str| {
        let out = folder.join("study");
        let output = bytepath(&["show", out.to_str().unwrap(), "--format", format]);
        let text = shown(&output);
        assert!(output.status.success(), "{text}");
        text
    };
    let json: serde_json::Value = serde_json::from_str(&show("json")).unwrap();
    let explanation = &json["explanation"];
    let waterfall = &explanation["waterfalls"][0];
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let parts = waterfall["parts"].as_array().unwrap();
    let sum: f64 = parts.iter().map(|part| number(&part["change"]["mean"])).sum();
    let sampled = number(&waterfall["sampled"]["mean"]);
    assert!((sum - sampled).abs() < 1e-6 * sampled.abs().max(1.0), "{sum} and {sampled}");
    let functions: Vec<(&str, f64, f64)> = parts
        .iter()
        .flat_map(|part| part["functions"].as_array().unwrap())
        .map(|f| (f["name"].as_str().unwrap(), number(&f["before"]), number(&f["after"])))
        .collect();
    // A kernel without symbols would give addresses, which all count as one name.
    let named = |(name, ..): &&(&str, f64, f64)| !name.starts_with(['[', '0']);
    let of = |used: &dyn Fn(f64, f64) -> bool| {
        functions.iter().filter(named).filter(|(_, before, after)| used(*before, *after)).count()
    };
    let (before, after) = (of(&|before, _| before > 0.0), of(&|_, after| after > 0.0));
    let both = of(&|before, after| before > 0.0 && after > 0.0);
    println!("functions of the first kernel {before}, of the second {after}, of both {both}");
    assert!(before >= 8 && after >= 8 && both >= 3, "{functions:?}");
    assert!(number(&explanation["classified"]) > 0.8, "{}", explanation["classified"]);
    let cells: Vec<String> = study.profiles.iter().map(|trial| trial.cell.to_string()).collect();
    let page = show("html");
    for text in [&show("text"), &page] {
        assert!(cells.iter().all(|cell| text.contains(cell)), "{cells:?}: {text}");
        let functional = "FUNCTIONAL ONLY: on an emulated processor";
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(flat.contains(functional), study.header.functional.is_some(), "{text}");
    }
}

#[test]
fn a_kernel_comes_as_a_package() {
    let Some(_machine) = able() else { return };
    let Some(release) = fetched().pop() else {
        return skip!("no kernel was fetched");
    };
    let folder = tempfile::tempdir().unwrap();
    // Packed as by Debian since Linux 7.1: image and modules in separate packages, below /usr.
    let (from, below) = (kernels().join(&release), format!("usr/lib/modules/{release}"));
    let image = [("vmlinuz", format!("boot/vmlinuz-{release}"))];
    let modules = [
        ("modules.builtin", format!("{below}/modules.builtin")),
        ("kernel", format!("{below}/kernel")),
    ];
    let mut packages = Vec::new();
    for (name, files) in [("binary", &image[..]), ("modules", &modules[..])] {
        match package(folder.path(), &format!("linux-{name}-{release}"), &from, files) {
            Ok(file) => packages.push(file),
            Err(why) => return skip!("{why}"),
        }
    }
    let out = folder.path().join("study");
    let kernel = format!("packed={}", packages[0].display());
    let output = Command::new(env!("CARGO_BIN_EXE_bytepath"))
        .args(["run", "--testbed", "vm", "--path", "socket", "--kernel", &kernel])
        .args(["--blocks", "1", "--warm-up", "200ms", "--window", "400ms"])
        .args(["--profile", "none", "--meters", "none", "--study", out.to_str().unwrap()])
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .output()
        .unwrap();
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let study = load(&out).unwrap();
    assert_eq!(measured(&study), 2, "the path, and itself again: {text}");
    assert_eq!(study.header.kernels[0].facts[0].kernel_release, release);
    assert!(text.contains("kernel=packed"), "{text}");
    assert_eq!(leftovers(), []);
}

/// Makes a Debian package of files below a folder, each with the path at which it is to be
/// installed. The error names what is missing for that.
fn package(
    to: &Path,
    name: &str,
    from: &Path,
    files: &[(&str, String)],
) -> Result<PathBuf, String> {
    let tree = tempfile::tempdir().unwrap();
    let control = format!(
        "Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\n\
         Description: made for a test\n"
    );
    std::fs::create_dir(tree.path().join("DEBIAN")).unwrap();
    std::fs::write(tree.path().join("DEBIAN/control"), control).unwrap();
    for (file, at) in files {
        let at = tree.path().join(at);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        let copied = Command::new("cp").arg("-a").arg(from.join(file)).arg(at).status().unwrap();
        assert!(copied.success());
    }
    let file = to.join(format!("{name}_1_all.deb"));
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "-Znone", "-b"]).arg(tree.path()).arg(&file);
    match command.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            Ok(file)
        }
        Err(e) => Err(format!("no dpkg-deb to make a package with: {e}")),
    }
}

/// The folder in which `make vm-kernel` installs kernels.
fn kernels() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    cache.unwrap_or(home.join(".cache")).join("bytepath/kernels/lib/modules")
}

/// Releases of the installed kernels, oldest first.
fn fetched() -> Vec<String> {
    let entries = std::fs::read_dir(kernels()).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let version = |name: &String| -> Vec<u64> {
        let numbers = name.split(|c: char| !c.is_ascii_digit());
        numbers.filter_map(|number| number.parse().ok()).collect()
    };
    names.sort_by_key(version);
    names
}

#[test]
fn two_guests_are_two_machines_with_a_wire() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let output = verified_stream("vm:guests=2", &[], &out).output().unwrap();
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let study = load(&out).unwrap();
    assert_eq!(measured(&study), 2, "the path, and itself again: {text}");
    let [sender, receiver] = study.header.facts.as_slice() else { panic!("{text}") };
    assert_ne!(sender.machine, receiver.machine);
    for role in Role::ALL {
        let wall = study.trials[0].reading("cpu.wall", &Scope::MachineOf(role));
        assert!(wall.is_some_and(|wall| wall > 0.0), "no CPU time of the {role}'s machine");
    }
    assert_eq!(leftovers(), []);
}

#[test]
fn names_a_missing_kernel() {
    let output = bytepath(&["run", "--testbed", "vm", "--path", "socket", "--kernel", "/no/such"]);
    let text = shown(&output);
    assert!(!output.status.success() && text.contains("/no/such"), "{text}");
    let output = bytepath(&["run", "--path", "socket", "--kernel", "debian:newest"]);
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("choose the testbed vm"), "{text}");
}

/// A study of two short trials of one path, every byte verified by the receiver.
fn verified_stream(testbed: &str, more: &[&str], out: &Path) -> Command {
    let mut words = vec!["run", "--testbed", testbed, "--path", "socket"];
    words.extend(["--stream", "touch=verify", "--blocks", "1"]);
    words.extend(["--warm-up", "200ms", "--window", "500ms", "--study", out.to_str().unwrap()]);
    words.extend(more);
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(words);
    command
}

/// Number of trials that were measured.
fn measured(study: &Study) -> usize {
    study.trials.iter().filter(|trial| trial.status == TrialStatus::Measured).count()
}

fn host_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim().to_owned()
}

/// Tests that need a quiet machine: `make timing`.
mod timing {
    use crate::guests::{able_alone, cpu_time, guests_of, testbed};
    use bytepath::spec;
    use bytepath::study::testbed_spec;
    use bytepath::testbed::{self, Site};
    use std::path::PathBuf;

    #[test]
    #[ignore = "timing"]
    fn a_guest_boots_quickly() {
        let Some(_machine) = able_alone() else { return };
        let choice = spec::parse_testbed("vm", &testbed_spec(testbed::CATALOG)).unwrap();
        let testbed = testbed().configured(&choice.options).unwrap().unwrap();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_bytepath"));
        let _raised = testbed.raise(&Site::of(&program)).unwrap();
        let cpu: f64 = guests_of(std::process::id()).into_iter().map(cpu_time).sum();
        assert!(cpu < 20.0, "{cpu:.1} s of CPU to boot");
    }
}
