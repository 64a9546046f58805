//! Outputs, studies, journals, indexes and inputs that vanish, are damaged or are hostile. Nothing
//! panics or hangs, nothing implausible is accepted, and exit codes are correct.

use crate::shared::{bytepath, said};
use crate::{made_up, rr};
use assert_cmd::Command;
use bytepath::record::{
    Fault, FaultKind, Profiling, SettingValue, Study, Trial, is_unsafe_to_display,
};
use bytepath::settings::journal::{Begin, Entry};
use bytepath::spec;
use bytepath::study::{HostsAfter, StudyWriter, load, refuse_folder};
use bytepath_testing::skip;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;

const BYTEPATH: &str = env!("CARGO_BIN_EXE_bytepath");

/// Writes a study with its trials to a folder.
fn write(study: &Study, folder: &Path) -> StudyWriter {
    let mut writer = StudyWriter::create(folder, &study.header).unwrap();
    writer.append(&study.trials).unwrap();
    writer
}

fn append(file: &Path, text: &str) {
    let old = fs::read_to_string(file).unwrap_or_default();
    fs::write(file, old + text).unwrap();
}

fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Runs a command line with these outputs; returns its exit code and standard error.
fn to(arguments: &[&str], out: Stdio, err: Stdio) -> (Option<i32>, String) {
    let mut command = std::process::Command::new(BYTEPATH);
    let output = command.args(arguments).stdout(out).stderr(err).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// A pipe without a reader.
fn closed() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn lost_outputs_do_not_cause_a_panic() {
    let all = [&["paths"][..], &["meters"], &["settings"], &["schema", "study"], &["--help"]];
    for arguments in all {
        assert_eq!(to(arguments, closed(), Stdio::piped()), (Some(0), String::new()));
        assert_eq!(to(arguments, closed(), closed()).0, Some(0), "{arguments:?}");
    }
    for arguments in &all[..4] {
        let (code, said) = to(arguments, full(), Stdio::piped());
        assert_eq!(code, Some(6), "{arguments:?}: {said}");
        assert!(said.starts_with("bytepath: cannot write to standard output: No space"), "{said}");
        assert_eq!(to(arguments, full(), full()).0, Some(6), "{arguments:?}");
    }
    for (wrong, code) in [(&["run", "--path", "sockte"][..], 2), (&["fly"], 2), (&["show", "x"], 6)]
    {
        assert_eq!(to(wrong, closed(), full()).0, Some(code), "{wrong:?}");
        assert_eq!(to(wrong, closed(), closed()).0, Some(code), "{wrong:?}");
    }
}

#[test]
fn an_observed_program_keeps_its_exit_code_whatever_becomes_of_the_report() {
    let observe = |program: &str, err| {
        let quick = ["observe", "--count", "none", "--sample", "none", "--", "sh", "-c", program];
        to(&quick, Stdio::null(), err).0
    };
    assert_eq!(observe("exit 3", full()), Some(3));
    assert_eq!(observe("exit 3", closed()), Some(3));
    assert_eq!(observe("kill -TERM $$", full()), Some(143));
    assert_eq!(observe("exit 0", closed()), Some(0));
    assert_eq!(observe("exit 0", full()), Some(6), "a report that was asked for is not there");
}

#[test]
fn signals_that_are_ignored_stay_so_for_an_observed_program() {
    let ignored = |by: &str| {
        let line = format!("trap '' INT HUP QUIT; exec {by} grep SigIgn /proc/self/status");
        said(Command::new("sh").args(["-c", &line]))
    };
    let quiet = "observe --count none --sample none --out /dev/null --";
    let (direct, observed) = (ignored(""), ignored(&format!("{BYTEPATH} {quiet}")));
    assert!(direct.1.trim_end().ends_with('7'), "{direct:?}");
    assert_eq!(observed, direct);
}

#[test]
fn a_damaged_journal_is_an_error_that_says_what_is_known_and_stays() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("journal");
    let restore = |more: &[&str]| {
        let mut command = Command::new(BYTEPATH);
        said(command.env("BYTEPATH_STATE", dir.path()).arg("restore").args(more))
    };
    let restored = || {
        let (code, text, errors) = restore(&[]);
        assert_eq!(code, 0, "{text}{errors}");
    };
    // From another boot: none of it is in force, and this test sets nothing.
    let begin = Begin { schema: 2, boot: "another".into(), ..Begin::default() };
    let lines: Vec<Vec<u8>> = [
        Entry::Begin(begin),
        Entry::Intent {
            number: 0,
            setting: "mtu made-up0 4148".parse().unwrap(),
            link: None,
            before: SettingValue::one("value", "1500"),
            goal: SettingValue::one("value", "4148"),
        },
        Entry::Done { number: 0, value: SettingValue::one("value", "4148") },
    ]
    .iter()
    .map(|entry| entry.line().unwrap())
    .collect();

    // A crash tears only the last line.
    let whole = lines.concat();
    fs::write(&path, &whole[..whole.len() - 7]).unwrap();
    let (code, text, errors) = restore(&["--show"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(text.contains("the last line is torn") && text.contains("1500 -> 4148"), "{text}");
    restored();
    assert!(!path.exists(), "nothing is left of it");

    // SIGKILL before the first change, or after the last line and before the file was removed.
    let ended = [&lines[0][..], &Entry::End.line().unwrap()].concat();
    for nothing in [&[][..], &lines[0], &ended] {
        fs::write(&path, nothing).unwrap();
        restored();
        assert!(!path.exists(), "a journal that says nothing");
    }

    let mut middle = whole.clone();
    middle[lines[0].len() + 40] ^= 1;
    let gone = [&lines[0][..], &lines[2]].concat();
    for damaged in [&middle[..], &gone, b"garbage", &[0; 4096], b"garbage\n\x1b[31mred\n"] {
        fs::write(&path, damaged).unwrap();
        for _ in 0..2 {
            let (code, text, errors) = restore(&[]);
            assert_eq!((code, text.as_str()), (6, ""), "{errors}");
            assert!(errors.contains(" is damaged; line ") && errors.contains("compare the host"));
            assert!(!errors.contains(|c| c != '\n' && is_unsafe_to_display(c)), "{errors:?}");
            assert!(fs::read(&path).unwrap().starts_with(damaged), "it is the only witness");
        }
        let (code, text, _) = restore(&["--show"]);
        assert!(code == 0 && text.contains(" is damaged: "), "{text}");
    }
    fs::write(&path, &middle).unwrap();
    let (_, _, errors) = restore(&[]);
    assert!(errors.contains("; line 2 reads '") && errors.contains("made-up0"), "{errors}");

    for odd in [make_fifo as fn(&Path), |path| symlink("/dev/zero", path).unwrap()] {
        fs::remove_file(&path).unwrap();
        odd(&path);
        for arguments in [&[][..], &["--show"]] {
            let (code, _, errors) = restore(arguments);
            assert_eq!(code, 6, "{errors}");
            assert!(errors.contains("regular file") || errors.contains("link"), "{errors}");
        }
    }
}

#[test]
fn a_study_is_not_believed_what_no_run_can_have_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("study");
    let study = made_up::study();
    drop(write(&study, &path));
    assert_eq!(load(&path).unwrap().trials, study.trials);
    let trials = path.join("trials.jsonl");
    let text = fs::read_to_string(&trials).unwrap();
    let first = text.lines().next().unwrap();
    let with = |key: &str, value: serde_json::Value| {
        let mut trial: serde_json::Value = serde_json::from_str(first).unwrap();
        (trial[key], trial["block"]) = (value, 77.into());
        format!("{trial}\n")
    };
    append(&trials, &format!("{first}\n{first}\n"));
    append(&trials, &with("cell", "nosuch".into()));
    append(&trials, &with("window", 1e308.into()));
    append(&trials, &with("window", (-1.0).into()));
    let found = load(&path).unwrap();
    assert_eq!(found.trials, study.trials);
    let last = study.trials.len();
    let cell = &study.trials[0].cell;
    assert_eq!(
        found.remarks[found.remarks.len() - 5..],
        [
            format!("line {} of trials.jsonl is left out: it repeats line 1, of {cell}", last + 1),
            format!("line {} of trials.jsonl is left out: it repeats line 1, of {cell}", last + 2),
            format!(
                "line {} of trials.jsonl is left out: the study has no cell 'nosuch'",
                last + 3
            ),
            format!(
                "line {} of trials.jsonl is left out: {cell} has an impossible window of 1e308 s",
                last + 4
            ),
            format!(
                "line {} of trials.jsonl is left out: {cell} has an impossible window of -1e0 s",
                last + 5
            ),
        ]
    );
}

#[test]
fn a_torn_remark_is_named_and_nothing_is_appended_to_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("study");
    write(&made_up::study(), &path).remark("whole").unwrap();
    append(&path.join("remarks.txt"), "torn rem");
    let part = path.join("hosts-after.json.part");
    fs::write(&part, "torn").unwrap();
    let cut = "the last remark was cut off while it was written; it is left out";
    assert_eq!(load(&path).unwrap().remarks, ["whole", cut]);
    let (mut writer, study) = StudyWriter::reopen(&path).unwrap();
    assert_eq!(study.remarks, ["whole"]);
    assert!(!part.exists(), "half of a file is none");
    writer.remark("next").unwrap();
    assert_eq!(fs::read_to_string(path.join("remarks.txt")).unwrap(), "whole\nnext\n");
}

#[test]
fn trials_that_are_removed_or_replaced_while_a_study_runs_end_it() {
    let folder = TempDir::new().unwrap();
    let study = made_up::study();
    for (name, replaced) in [("removed", false), ("replaced", true)] {
        let path = folder.path().join(name);
        let mut writer = write(&study, &path);
        fs::remove_file(path.join("trials.jsonl")).unwrap();
        if replaced {
            fs::write(path.join("trials.jsonl"), "").unwrap();
        }
        let fault = writer.append(&study.trials[..1]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Storage);
        assert!(fault.message.ends_with("was removed or replaced while the study ran"), "{fault}");
    }
}

#[test]
fn root_is_not_led_out_of_a_study_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return skip!("only root has studies of others to write to");
    }
    let folder = TempDir::new().unwrap();
    let (path, precious) = (folder.path().join("study"), folder.path().join("precious"));
    drop(write(&made_up::study(), &path));
    let trials = path.join("trials.jsonl");
    fs::copy(&trials, &precious).unwrap();
    let before = fs::read(&precious).unwrap();
    chown(&path, Some(1), Some(1)).unwrap();

    symlink(&precious, path.join("hosts-after.json")).unwrap();
    let (mut writer, _) = StudyWriter::reopen(&path).unwrap();
    let after = HostsAfter { schema: 1, fingerprint: [].into(), settings: Vec::new() };
    writer.after(&after).unwrap();
    drop(writer);
    assert!(!path.join("hosts-after.json").is_symlink(), "the link was replaced, not followed");

    symlink(&precious, path.join("remarks.txt")).unwrap();
    assert!(StudyWriter::reopen(&path).unwrap_err().message.contains("symbolic link"));
    fs::remove_file(path.join("remarks.txt")).unwrap();
    for put in [
        |from, to| symlink(from, to).unwrap(),
        |from: &Path, to: &Path| fs::hard_link(from, to).unwrap(),
    ] {
        fs::remove_file(&trials).unwrap();
        put(&precious, &trials);
        let why = StudyWriter::reopen(&path).unwrap_err().message;
        assert!(why.contains("symbolic link") || why.contains("2 names"), "{why}");
    }
    assert_eq!(fs::read(&precious).unwrap(), before);
}

#[test]
fn a_history_ignores_the_index_of_an_earlier_version() {
    let folder = TempDir::new().unwrap();
    for name in ["one", "two"] {
        drop(write(&made_up::study(), &folder.path().join(name)));
    }
    let path = folder.path().display().to_string();
    let (code, text, _) = bytepath(&["history", &path]);
    assert_eq!(code, 0);
    let index = folder.path().join("bytepath-index.json");
    for content in ["{", "{\"schema\":3,\"sum\":0,\"studies\":{}}"] {
        fs::write(&index, content).unwrap();
        assert_eq!(bytepath(&["history", &path, "--rebuild"]).1, text);
        assert_eq!(fs::read_to_string(&index).unwrap(), content);
    }
}

#[test]
fn what_is_read_has_limits() {
    let folder = TempDir::new().unwrap();
    let (code, _, errors) = bytepath(&["run", "--dry-run", "/dev/zero"]);
    assert_eq!(code, 6);
    assert!(errors.contains("larger than 16384 KiB, the maximum that is read"), "{errors}");
    let path = folder.path().join("study");
    drop(write(&made_up::study(), &path));
    let study = path.to_str().unwrap();
    for name in ["experiment.toml", "hosts.json", "trials.jsonl", "remarks.txt"] {
        let kept = fs::read(path.join(name)).ok();
        for odd in [make_fifo as fn(&Path), |path| symlink("/dev/zero", path).unwrap()] {
            let _ = fs::remove_file(path.join(name));
            odd(&path.join(name));
            let (code, _, errors) = bytepath(&["show", study]);
            assert!(code == 6 && errors.contains(name), "{errors}");
        }
        // A sparse file of five gigabytes.
        fs::remove_file(path.join(name)).unwrap();
        File::create(path.join(name)).unwrap().set_len(5 << 30).unwrap();
        let (code, _, errors) = bytepath(&["show", study]);
        assert!(code == 6 && errors.contains("MiB") | errors.contains("KiB"), "{errors}");
        fs::remove_file(path.join(name)).unwrap();
        if let Some(kept) = kept {
            fs::write(path.join(name), kept).unwrap();
        }
    }
    assert_eq!(bytepath(&["show", study]).0, 0);
    let (code, _, errors) = bytepath(&["advise", "/dev/zero", study]);
    assert!(code == 6 && errors.contains("larger than 65536 KiB"), "{errors}");

    // Numbers that would make a resumed study write very many lines.
    let all = spec::parse_profile("all").unwrap().unwrap();
    let (blocks, most) = (made_up::study().header.schedule.blocks, u32::MAX);
    for (what, blocks, trials, retakes) in [
        ("blocks", most, 1, 0),
        ("profile trials", blocks, most, 0),
        ("profile retakes", blocks, 1, most),
    ] {
        let mut study = made_up::study();
        study.header.schedule.blocks = blocks;
        study.header.profiling = Some(Profiling { trials, retakes, ..all.clone() });
        let path = folder.path().join(what);
        drop(write(&study, &path));
        for command in ["resume", "show"] {
            let (code, errors) = bounded(&[command, path.to_str().unwrap()], None);
            assert!(code == Some(6) && errors.contains(&format!("{most} {what}")), "{errors}");
        }
    }

    let levels: Vec<String> = (0..200_000).map(|n| format!("\"{n}\"")).collect();
    let file = folder.path().join("x.toml");
    fs::write(&file, format!("[factors]\npath = 'socket'\nrate = [{}]", levels.join(","))).unwrap();
    let started = std::time::Instant::now();
    let (code, _, errors) = bytepath(&["run", "--dry-run", file.to_str().unwrap()]);
    assert!(code == 2 && errors.contains("more than 20000 combinations"), "{errors}");
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    let key = "k".repeat(1 << 20);
    for text in [
        format!("[factors]\n{key} = 1"),
        format!("{key} = 1"),
        format!("[factors]\npath = 'socket'\n[[exclude]]\n{key} = 1"),
    ] {
        fs::write(&file, text).unwrap();
        let (code, _, errors) = bytepath(&["run", "--dry-run", file.to_str().unwrap()]);
        assert!(code == 2 && errors.len() < 4000, "{} bytes", errors.len());
    }
}

/// Runs the binary with no more memory than files from others may make it use.
fn bounded(arguments: &[&str], more: Option<&str>) -> (Option<i32>, String) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -d 262144; exec \"$0\" \"$@\"", BYTEPATH]).args(arguments);
    command.env_remove("BYTEPATH_MEMORY");
    if let Some(more) = more {
        command.env("BYTEPATH_MEMORY", more);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

/// Writes a file of `begin`, followed by `unit` until it has `mib` MiB.
fn fill(path: &Path, begin: &str, unit: &mut dyn FnMut(u64) -> Vec<u8>, mib: u64, gzip: bool) {
    let file = std::io::BufWriter::new(File::create(path).unwrap());
    let mut out: Box<dyn Write> = match gzip {
        true => Box::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast())),
        false => Box::new(file),
    };
    out.write_all(begin.as_bytes()).unwrap();
    let (mut written, mut number) = (0, 0);
    while written < mib << 20 {
        let unit = unit(number);
        out.write_all(&unit).unwrap();
        (written, number) = (written + unit.len() as u64, number + 1);
    }
    out.flush().unwrap();
}

#[test]
fn hostile_files_take_no_more_memory_than_is_said() {
    let folder = TempDir::new().unwrap();
    let study = folder.path().join("study");
    drop(write(&made_up::study(), &study));
    let observation = folder.path().join("seen.json");
    let shown = study.to_str().unwrap();
    let refused = |what: &str, arguments: &[&str]| {
        let (code, said) = bounded(arguments, None);
        assert_eq!(code, Some(6), "{what}: {said}");
        let named = said.contains("memory") && said.contains("BYTEPATH_MEMORY=1G");
        assert!(named && said.contains(arguments[1]), "{what}: {said}");
        assert!(said.len() < 1000 && !said.contains("panicked"), "{what}: {said}");
    };
    // Trials with many short readings.
    let trials = study.join("trials.jsonl");
    let kept = fs::read_to_string(&trials).unwrap();
    let mut trial: serde_json::Value = serde_json::from_str(kept.lines().next().unwrap()).unwrap();
    let reading = trial["readings"][0].clone();
    trial["readings"] = serde_json::Value::Array(vec![reading; 20_000]);
    let line = format!("{trial}\n").into_bytes();
    fill(&trials, &kept, &mut |_| line.clone(), 300, false);
    refused("trials", &["show", shown]);
    fs::write(&trials, &kept).unwrap();
    // Many settings with short names and empty values; then a command of empty words.
    let hosts = study.join("hosts.json");
    let kept = fs::read(&hosts).unwrap();
    let mut setting = |number| format!("\"{number}\":\"\",").into_bytes();
    fill(&hosts, "{\"schema\":1,\"fingerprint\":{", &mut setting, 60, false);
    refused("hosts", &["show", shown]);
    fs::write(&hosts, kept).unwrap();
    fill(&observation, "{\"command\":[", &mut |_| b"\"\",".to_vec(), 60, false);
    refused("observation", &["advise", observation.to_str().unwrap(), shown]);
    // One large word, in a table that repeats it in every line.
    let mut facts: serde_json::Value = serde_json::from_slice(&fs::read(&hosts).unwrap()).unwrap();
    facts["facts"][0]["kernel_release"] = "x".repeat(1 << 20).into();
    fs::write(&hosts, facts.to_string()).unwrap();
    let table = folder.path().join("x.parquet");
    let arguments = ["show", shown, "--format", "parquet", "--out", table.to_str().unwrap()];
    refused("parquet", &arguments);
    // An experiment.
    let file = folder.path().join("x.toml");
    fill(&file, "x = [", &mut |_| b"[],".to_vec(), 15, false);
    let (code, said) = bounded(&["run", "--dry-run", file.to_str().unwrap()], None);
    assert!(matches!(code, Some(2 | 6)) && said.len() < 4000, "{code:?}: {said}");
    // Distinct stacks, each with its own names.
    let file = folder.path().join("x.folded");
    let mut stack = |number: u64| format!("t;{number};a{number} 1\n").into_bytes();
    fill(&file, "", &mut stack, 100, false);
    refused("folded", &["profile", file.to_str().unwrap()]);
    // Samples without a location, packed: two bytes each.
    let file = folder.path().join("x.pb.gz");
    let typed = "\n\u{4}\u{8}\u{1}\u{10}\u{1}2\0";
    fill(&file, typed, &mut |_| b"\x12\0".repeat(4096), 150, true);
    refused("pprof", &["profile", file.to_str().unwrap()]);
    // The user's own files may use more, if so much is available.
    let whole = ["show", shown];
    let (code, said) = bounded(&whole, Some("96M"));
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = bounded(&whole, Some("1M"));
    assert!(code == Some(6) && said.contains("more than 1M of memory"), "{said}");
    assert!(said.contains("BYTEPATH_MEMORY=4M"), "{said}");
    let (code, said) = bounded(&whole, Some("much"));
    assert!(code == Some(2) && said.contains("BYTEPATH_MEMORY: 'much'"), "{said}");
}

/// Writes a profile in the format of `perf record`, of this many MiB: the records of a small one,
/// repeated.
fn large_perf_data(path: &Path, mib: usize) {
    let small = fs::read("tests/data/profiles/pipe.perf.data").unwrap();
    let mut records = Vec::new();
    let mut at = 16;
    while at < small.len() {
        let size = usize::from(u16::from_le_bytes([small[at + 6], small[at + 7]]));
        records.push((small[at], at..at + size));
        at += size;
    }
    // PERF_RECORD_SAMPLE, and PERF_RECORD_FINISHED_ROUND, which perf writes after each.
    let of_kind = |kind: u8| records.iter().filter(move |(known, _)| *known == kind);
    let samples: Vec<u8> =
        of_kind(9).flat_map(|(_, range)| &small[range.clone()]).copied().collect();
    let round: Vec<u8> = [68_u32.to_le_bytes(), [0, 0, 8, 0]].concat();
    let mut file = std::io::BufWriter::new(File::create(path).unwrap());
    file.write_all(&small).unwrap();
    let piece = [samples.repeat(20), round].concat();
    for _ in 0..(mib << 20).div_ceil(piece.len()) {
        file.write_all(&piece).unwrap();
    }
    file.flush().unwrap();
}

#[test]
fn a_large_perf_data_is_read_in_the_usual_memory() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("perf.data");
    large_perf_data(&file, 100);
    let (code, said) = bounded(&["profile", file.to_str().unwrap()], None);
    assert_eq!(code, Some(0), "{said}");
    large_perf_data(&file, 300);
    let (code, said) = bounded(&["profile", file.to_str().unwrap()], None);
    let named = said.contains("perf script") || said.contains("BYTEPATH_MEMORY");
    assert!(code == Some(6) && named, "{said}");
}

#[test]
fn many_trials_with_latencies_are_read_in_the_usual_memory() {
    let mut study = rr::study();
    let blocks = 400;
    study.header.schedule.blocks = blocks;
    let first: Vec<Trial> = study.trials.into_iter().filter(|trial| trial.block == 0).collect();
    let again = |block| first.iter().map(move |trial| Trial { block, ..trial.clone() });
    study.trials = (0..blocks).flat_map(again).collect();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("study");
    drop(write(&study, &path));
    let (code, errors) = bounded(&["show", path.to_str().unwrap()], None);
    assert_eq!(code, Some(0), "{} trials: {errors}", study.trials.len());
}

#[test]
fn nothing_steers_a_terminal() {
    let folder = TempDir::new().unwrap();
    let clean = |arguments: &[&str]| {
        let (code, text, errors) = bytepath(arguments);
        for said in [&text, &errors] {
            assert!(!said.contains(|c| c != '\n' && is_unsafe_to_display(c)), "{said:?}");
        }
        (code, text + &errors)
    };
    let path = folder.path().join("study");
    drop(write(&made_up::study(), &path));
    let trials = path.join("trials.jsonl");
    let text = fs::read_to_string(&trials).unwrap();
    fs::write(&trials, text.replacen("\"measured\"", r#""\u001b[31mX\u0007\u202e""#, 1)).unwrap();
    let (code, said) = clean(&["show", path.to_str().unwrap()]);
    assert!(code == 6 && said.contains("\\u{1b}[31mX"), "{said}");
    assert!(clean(&["history", folder.path().to_str().unwrap()]).1.contains("left out: study"));
    let file = folder.path().join("esc.folded");
    fs::write(&file, "a;\u{202e}evil\u{1b}[31m 5\n").unwrap();
    let (code, said) = clean(&["profile", file.to_str().unwrap()]);
    assert!(code == 0 && said.contains("\\u{202e}evil"), "{said}");
    let file = folder.path().join("x.toml");
    fs::write(&file, "[factors]\npath = \"\\u202eevil\\u001b\"").unwrap();
    assert_eq!(clean(&["run", "--dry-run", file.to_str().unwrap()]).0, 2);
    for typed in ["\u{1b}[31mred", "\u{202e}evil"] {
        for arguments in
            [&[typed][..], &["run", typed], &["run", "--path", typed], &["show", typed]]
        {
            assert!([2, 6].contains(&clean(arguments).0));
        }
    }
}

#[test]
fn a_report_in_json_steers_no_terminal_and_says_the_same() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("study");
    let mut study = made_up::study();
    study.header.fingerprint.insert("irq.1.cpus".into(), "\u{202e}evil\u{9b}".into());
    drop(write(&study, &path));
    let (code, text, _) = bytepath(&["show", path.to_str().unwrap(), "--json"]);
    assert_eq!(code, 0);
    assert!(!text.contains(|c| c != '\n' && is_unsafe_to_display(c)), "{text}");
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["study"]["fingerprint"]["irq.1.cpus"], "\u{202e}evil\u{9b}");
}

#[test]
fn a_message_does_not_repeat_all_of_what_is_wrong() {
    let long = "k".repeat(100_000);
    for (arguments, words) in [
        (&["run", "--dry-run", "--stream", &format!("{long}=1")][..], "choose from"),
        (&["run", "--dry-run", &format!("--{long}")], "For more information"),
        (&["show", &long], "is this the folder of a bytepath study?"),
    ] {
        let (code, out, err) = bytepath(arguments);
        assert!(code != 0 && out.is_empty(), "{code}, {out}");
        assert!(err.contains(words) && err.contains(" characters ...]"), "{words}: {err}");
        assert!(err.len() < 4000, "{} bytes", err.len());
    }
}

#[test]
fn a_guest_without_memory_for_its_work_is_refused() {
    let (code, _, errors) = bytepath(&["run", "--dry-run", "--testbed", "vm:memory=640M"]);
    assert_eq!(code, 2);
    assert!(errors.contains("memory") && errors.contains("768M"), "{errors}");
}

#[test]
fn a_name_with_a_line_feed_says_nothing_of_its_own() {
    for arguments in [
        &["show", "a\nbytepath: all is well"][..],
        &["run", "--dry-run", "--receiver", "ssh://a\nbytepath: all is well"],
        &["run", "--dry-run", "--receiver", "ssh://-luser@host"],
    ] {
        let (code, _, errors) = bytepath(arguments);
        assert!(code != 0 && errors.lines().count() == 1, "{errors}");
    }
}

#[test]
fn a_study_that_could_not_be_read_is_not_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("study");
    let mut study = made_up::study();
    let mut writer = write(&study, &path);
    let trial = &mut study.trials[0];
    trial.block = 99;
    trial.warnings = vec!["x".repeat(17 << 20)];
    let fault = writer.append(&study.trials[..1]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Storage);
    assert!(fault.message.contains("would be larger than 16 MiB"), "{fault}");
    load(&path).unwrap();
}

#[test]
fn root_makes_no_folder_where_a_link_of_another_user_leads() {
    if !rustix::process::geteuid().is_root() {
        return skip!("only root has folders of others to write to");
    }
    let folder = TempDir::new().unwrap();
    let theirs = folder.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    symlink(folder.path(), theirs.join("link")).unwrap();
    std::os::unix::fs::lchown(theirs.join("link"), Some(1), Some(1)).unwrap();
    assert!(StudyWriter::create(&theirs.join("link/study"), &made_up::study().header).is_err());
    assert!(!folder.path().join("study").exists());
}

/// A dry run makes no folder, and reports why the study could not.
#[test]
fn a_dry_run_refuses_the_folder_that_its_study_would() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "").unwrap();
    ["full", "empty", "closed"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
    fs::write(at("full/notes"), "").unwrap();
    fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    let words = |result: Result<(), Fault>| result.err().map(|fault| fault.to_string());
    for name in ["full", "file", "file/below", "closed", "closed/below", "empty", "new/below"] {
        let before = words(refuse_folder(&at(name)));
        let made = StudyWriter::create(&at(name), &made_up::study().header).map(drop);
        assert_eq!(before, words(made), "{name}");
        let is_refused = ["full", "file", "file/below"].contains(&name);
        assert!(is_refused <= before.is_some(), "{name}: only root may write to those closed");
    }
    let full = at("full");
    let dry = ["run", "--dry-run", "--path", "socket", "--study", full.to_str().unwrap()];
    let (code, plan, errors) = bytepath(&dry);
    assert_eq!(code, 6, "{errors}");
    assert!(errors.contains("full is not empty") && errors.contains("--study DIR"), "{errors}");
    assert!(plan.starts_with("design: "), "{plan}");
}

#[test]
fn a_fifo_that_no_one_writes_to_is_no_log() {
    let folder = TempDir::new().unwrap();
    let (path, fifo) = (folder.path().join("study"), folder.path().join("fifo"));
    drop(write(&made_up::study(), &path));
    make_fifo(&fifo);
    let names = [&path, &fifo].map(|path| path.to_str().unwrap());
    let (code, _, errors) = bytepath(&["attach", names[0], names[1]]);
    assert_eq!(code, 6, "{errors}");
    assert!(errors.contains("it is not a regular file (Fifo)"), "{errors}");
    for arguments in [&["profile", names[1]][..], &["run", "--dry-run", names[1]]] {
        assert_ne!(bytepath(arguments).0, 0, "{arguments:?}");
    }
    // A pipe can be intended.
    let mut command = Command::new("sh");
    command.args(["-c", "echo 'main;work 5' | \"$0\" profile /dev/stdin --to folded", BYTEPATH]);
    assert_eq!(said(&mut command).1, "main;work 5\n");
}

#[test]
fn counters_take_time_by_their_number() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("counters");
    let rows = (0..60_000).map(|n| format!("  {n}  event-{n}  # 1.0 M/sec\n"));
    fs::write(&file, rows.collect::<String>()).unwrap();
    let file = file.to_str().unwrap();
    let begin = std::time::Instant::now();
    let (code, _, errors) = bytepath(&["diff", file, file, "--json"]);
    assert_eq!(code, 0, "{errors}");
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    let blank = folder.path().join("blank");
    fs::write(&blank, "\n \n").unwrap();
    let arguments = ["profile", "--from", "readprofile", blank.to_str().unwrap()];
    let (code, _, errors) = bytepath(&arguments);
    assert_eq!(code, 6, "{errors}");
}
