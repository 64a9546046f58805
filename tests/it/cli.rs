//! The built binary, as a user meets it: help, wrong requests, exit codes. No testbed is started
//! here.

use crate::shared::{bytepath, commands};
use assert_cmd::Command;

/// Every wrong request yields one line with cause and remedy, and exit code 2.
#[test]
fn wrong_requests_are_explained_in_one_line() {
    let cases: &[(&[&str], &str)] = &[
        (&["--path", "sockte"], "there is no path 'sockte' (did you mean 'socket'?)"),
        (&["--path", "splice"], ""),
        (&["--path", "sendfile+splice"], "path 'splice' has no receiver half"),
        (&["--path", "tcp-zerocopy-receive"], "'tcp-zerocopy-receive' is one half of a path"),
        (&["--path", "socket", "--path", "socket"], "requested twice"),
        (&["--path", "socket", "--baseline", "uring"], "not among the paths of this run"),
        (&["--stream", "message-size=0"], "outside 1 to 1G"),
        (&["--stream", "message-size=many"], "'many' is not a size (write 4096, 64K, 1M)"),
        (&["--stream", "flows=0"], "0 is outside 1 to 60000"),
        (&["--stream", "message-size=64KB"], "may mean powers of 1000 or of 1024"),
        (&["--power", "csv=x,clock=-3.5"], "write auto, -3.5s or 250ms"),
        (&["-P4", "--stream", "flows=2"], "--flows 4 contradicts --stream flows=2"),
        (&["-P4", "--stream", "flows=4"], ""),
        (&["-l64K", "--stream", "message-size=1M"], "--message-size 64K contradicts --stream"),
        (&["-l64K", "--workload", "rr"], "--message-size is for the workload stream, not for rr"),
        (&["--stream", "touhc=verify"], "did you mean 'touch'?"),
        (&["--link", "wire:mtu=70000"], "70000 is outside 576 to 65535"),
        (&["--link", "wierd"], "there is no link preset 'wierd'"),
        (&["--cores", "0,4000"], "CPU 4000 does not exist or may not be used"),
        (&["--cores", "left"], "'left' is not a placement"),
        (&["--meters", "cpus"], "there is no meter 'cpus' (did you mean 'cpu'?)"),
    ];
    for (arguments, words) in cases {
        let all: Vec<&str> = ["run", "--dry-run"].iter().chain(*arguments).copied().collect();
        let (code, stdout, stderr) = bytepath(&all);
        if words.is_empty() {
            assert_eq!(code, 0, "{arguments:?}: {stderr}");
            continue;
        }
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
        assert!(stdout.is_empty(), "{arguments:?}: {stdout}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("bytepath: ") && stderr.contains(words), "{stderr}");
    }
}

#[test]
fn wrong_flags_exit_with_2() {
    for arguments in [
        &["run", "--blocks", "0"][..],
        &["run", "-n", "0"],
        &["run", "--window", "1ms"],
        &["run", "-P", "0"],
        &["run", "-l", "many"],
        &["run", "-q", "-v"],
        &["run", "FILE", "-P", "4"],
        &["run", "FILE", "-l", "64K"],
        &["fly"],
        &["run", "--nope"],
    ] {
        assert_eq!(bytepath(arguments).0, 2, "{arguments:?}");
    }
}

/// Frequently used options have short names, equivalent to the long ones and to the stream's keys.
#[test]
fn short_names_do_what_the_long_ones_do() {
    let plan = |arguments: &[&str]| {
        let all = [&["run", "--dry-run", "--json", "--seed", "7"], arguments].concat();
        let (code, text, stderr) = bytepath(&all);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let short = ["-P", "4", "-l", "64K", "-t", "2m", "-n", "3", "--study", "folder", "-q"];
    let long = ["--time", "120s", "--blocks", "3", "--study", "folder"];
    let found = plan(&short);
    assert_eq!(found, plan(&[&["--stream", "flows=4,message-size=64K"], &long[..]].concat()));
    assert_eq!(found, plan(&[&["--flows=4", "--message-size=65536"], &long[..]].concat()));
    let stream = &found["cells"][0]["stream"];
    assert_eq!((&stream["flows"], &stream["message_size"]), (&4.into(), &65536.into()));
    assert_eq!(found["folder"], "folder");
    assert_eq!(plan(&["-P", "4", "--workload", "rr"])["cells"][0]["stream"]["flows"], 4);
}

/// `-o` is the report in every command. Its earlier use, the folder of a study, is refused with the
/// name of the present option.
#[test]
fn a_report_has_a_suffix_and_a_folder_has_an_option() {
    for (words, code, remedy) in [
        (&["run", "--path", "socket", "--out", "folder"][..], 2, "with --study folder"),
        (&["run", "--path", "socket", "-o", "report.doc"], 2, "suffixes .txt"),
        (&["resume", "nothing", "-o", "folder"], 2, "with --study folder"),
        (&["doctor", "-o", "report.html"], 2, "suffixes .txt, .json"),
        (&["size", "--rate", "1G", "--rtt", "1ms", "-o", "x.html"], 2, "suffixes .txt, .json"),
    ] {
        let (exit, printed, stderr) = bytepath(words);
        assert_eq!((exit, printed.as_str()), (code, ""), "{words:?}: {stderr}");
        assert!(stderr.contains(remedy), "{words:?}: {stderr}");
    }
    assert!(!std::path::Path::new("folder").exists());
}

#[test]
fn help_has_examples_exit_codes_and_every_option() {
    let (code, help, _) = bytepath(&["--help"]);
    assert_eq!(code, 0);
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    let (_, help, _) = bytepath(&["run", "--help"]);
    for option in bytepath::spec::STREAM_OPTIONS.iter().chain(bytepath::spec::LINK_OPTIONS) {
        assert!(help.contains(&format!("{}=", option.name)), "{} is not in the help", option.name);
    }
    let (_, short, _) = bytepath(&["run", "-h"]);
    assert!(short.contains("--window") && short.contains("--help"), "{short}");
    assert!(short.lines().count() < 40 && !short.contains("message-size="), "{short}");
    let headings = ["\nWhat to run:\n", "\nWhere:\n", "\nHow long, and what counts:\n"];
    assert!(headings.iter().all(|heading| short.contains(heading)), "{short}");
    for preset in bytepath::spec::PRESETS {
        assert!(help.contains(preset.summary.split(',').next().unwrap()), "{help}");
    }
}

/// `-h` shows one line for each option, and examples only appear in `--help`.
#[test]
fn short_help_has_one_line_for_each_option() {
    let fleet = ["fleet submit", "fleet status", "fleet collect"].map(str::to_owned);
    for command in commands().into_iter().chain(fleet) {
        let words: Vec<&str> = command.split(' ').collect();
        let (code, short, _) = bytepath(&[&words[..], &["-h"]].concat());
        let (_, long, _) = bytepath(&[&words[..], &["--help"]].concat());
        assert_eq!(code, 0, "{command}");
        assert!(!short.contains("Examples:") && !short.contains("Exit codes"), "{short}");
        assert!(short.len() <= long.len(), "{command}");
        for line in short.lines() {
            assert!(line.len() <= 100 && !line.starts_with("          "), "{command}: {line}");
        }
        assert!(long.lines().all(|line| line.len() <= 100), "{long}");
    }
}

/// Continuation lines of an entry start below its text.
#[test]
fn lists_of_the_long_help_have_hanging_indents() {
    let (_, help, _) = bytepath(&["run", "--help"]);
    let list = help.split_once("Stream options (--stream):\n").unwrap().1;
    let list: Vec<&str> = list.lines().take_while(|line| !line.is_empty()).collect();
    let begins = |line: &str| line.find(|c: char| c != ' ').unwrap();
    let broken = list.iter().filter(|line| begins(line) > 2);
    let column = list[0].find("transport protocol").unwrap();
    assert!(broken.clone().count() > 0, "{list:#?}");
    assert!(broken.into_iter().all(|line| begins(line) == column), "{list:#?}");
}

#[test]
fn colours_are_for_terminals_unless_requested() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sizes.txt");
    let size = ["size", "--rate", "10G", "--rtt", "1ms"];
    let said = |arguments: &[&str]| {
        let (_, stdout, stderr) = bytepath(&[&size[..], arguments].concat());
        (stdout.contains('\x1b'), stderr.contains('\x1b'))
    };
    assert_eq!(said(&[]), (false, false));
    assert_eq!(said(&["--color", "auto"]), (false, false));
    assert_eq!(said(&["--color=always"]), (true, false));
    assert_eq!(said(&["--mtu", "none", "--color", "always"]), (false, true), "a wrong option");
    assert_eq!(said(&["--mtu", "none", "--color", "never"]), (false, false));
    assert_eq!(said(&["--color", "always", "--out", file.to_str().unwrap()]), (false, false));
    assert!(!std::fs::read_to_string(&file).unwrap().contains('\x1b'), "a file is plain");

    let (code, _, stderr) = bytepath(&["--color", "always", "show", "/nowhere"]);
    assert!(code == 6 && stderr.starts_with("\x1b[1m\x1b[31mbytepath:\x1b[0m "), "{stderr:?}");
    assert!(bytepath(&["--color", "always", "--help"]).1.contains('\x1b'));
    assert!(!bytepath(&["--color", "never", "--help"]).1.contains('\x1b'));
    let (code, _, stderr) = bytepath(&["paths", "--color", "sometimes"]);
    assert!(code == 2 && stderr.contains("auto, always, never"), "{stderr}");
    // A name still cannot control the terminal.
    let (_, _, stderr) = bytepath(&["--color", "always", "show", "/a\x1b[2Jb"]);
    assert!(stderr.contains("/a\\u{1b}[2Jb"), "{stderr:?}");
}

/// No error contains wording of Rust's standard library.
#[test]
fn errors_have_plain_words() {
    for words in [
        &["profile", "x", "--top", "many"][..],
        &["profile", "x", "--top", ""],
        &["run", "-n", "ten"],
        &["run", "-n", "99999999999999999999"],
        &["run", "--seed", "x"],
        &["diff", "a", "b", "--threshold", "x"],
        &["diff", "a", "b", "--width", "-1"],
        &["size", "--rate", "1G", "--rtt", "1ms", "--mtu", "1.5"],
        &["observe", "--pid", "iperf3"],
        &["observe", "nosuchprogram"],
        &["observe", "-p", "4194303"],
        &["copy", "-n", "few"],
        &["fleet", "submit", "x", "y", "--shards", "x"],
        &["show", "/nowhere"],
    ] {
        let (code, printed, stderr) = bytepath(words);
        assert!(code != 0 && printed.is_empty(), "{words:?}: {code} {printed}");
        for library in ["digit", "found in string", "entity", "target type", "literal"] {
            assert!(!stderr.contains(library), "{words:?}: {stderr}");
        }
    }
}

#[test]
fn a_number_that_may_mean_two_things_is_refused() {
    for (arguments, words) in [
        (&["run", "--window", "2"][..], "'2' has no unit: 2s or 2ms?"),
        (&["run", "--warm-up", "0.5"], "'0.5' has no unit: 0.5s or 0.5ms?"),
        (&["run", "-l", "64KB"], "write 64K or 64KiB for 1024"),
        (&["copy", "--time", "10"], "10s or 10ms?"),
        (&["copy", "--size", "4kb"], "write 4K or 4KiB"),
        (&["observe", "--pid", "1", "--for", "10"], "10s or 10ms?"),
        (&["size", "--rate", "10G", "--rtt", "1"], "1s or 1ms?"),
    ] {
        let (code, _, stderr) = bytepath(arguments);
        assert!(code == 2 && stderr.contains(words), "{arguments:?}: {stderr}");
    }
    assert_eq!(bytepath(&["run", "--dry-run", "--path", "socket", "--warm-up", "0"]).0, 0);
}

/// Every command that prints a result can print it as JSON, and into a file.
#[test]
fn results_are_printed_as_json_and_into_files() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("x.json");
    let text = folder.path().join("x.txt");
    for command in [
        &["size", "--rate", "10G", "--rtt", "1ms"][..],
        &["paths", "--device", "lo"],
        &["meters", "--device", "lo"],
        &["settings"],
        &["settings", "quiet"],
        &["compare", "published:"],
        &["compare", "published:battle"],
        &["profile", "tests/data/affinity-2002/baseline.txt"],
    ] {
        let run = |more: &[&str]| {
            let (code, stdout, stderr) = bytepath(&[command, more].concat());
            assert_eq!(code, 0, "{command:?} {more:?}: {stderr}");
            stdout
        };
        let printed = run(&["--json"]);
        let document: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert!(document["format"].as_str().unwrap().starts_with("bytepath-"), "{document}");
        assert_eq!(document["schema"], 1);
        let file = [json.to_str().unwrap(), text.to_str().unwrap()];
        if command[0] == "profile" {
            assert!(run(&["--json", "--out", file[0]]).is_empty());
            assert_eq!(std::fs::read_to_string(&json).unwrap(), printed);
            continue;
        }
        assert_eq!(run(&["--format", "json"]), printed);
        assert!(run(&["-o", file[0]]).is_empty() && run(&["-o", file[1]]).is_empty());
        assert_eq!(std::fs::read_to_string(&json).unwrap(), printed);
        assert_eq!(std::fs::read_to_string(&text).unwrap(), run(&["--format", "text"]));
    }
}

#[test]
fn an_experiment_file_and_the_flags_that_go_over_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    let name = file.to_str().unwrap();
    let dry = |text: &str, flags: &[&str]| {
        std::fs::write(&file, text).unwrap();
        bytepath(&[&["run", name, "--dry-run"], flags].concat())
    };
    let text = "title = 'GRO'\nblocks = 3\nwindow = '2s'\nseed = 9\nstop = { within = '1%', at-least = 2 }\n\
                [factors]\npath = 'socket'\nthreaded-napi = false\ngro = [true, false]\n";
    let (code, stdout, stderr) = dry(text, &[]);
    assert_eq!(code, 0, "{stderr}");
    for words in
        ["GRO", "socket gro=off,threaded-napi=off\n", "(again)", "seed 9", "9 trials of 3.8 s"]
    {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
    assert!(stdout.contains("stops after at least 2 blocks") && stdout.contains("22.56s at best"));
    let (_, stdout, _) = dry(text, &["--blocks", "2", "--window", "500ms", "--seed", "1"]);
    assert!(stdout.contains("6 trials of 1.7 s") && stdout.contains("seed 1"), "{stdout}");

    let wrong: &[(&str, &[&str], &str)] = &[
        (text, &["--path", "uring"], "cannot be used with"),
        (text, &["--link", "wire"], "cannot be used with"),
        (text, &["--blocks", "1"], "at least 2 of 1 blocks"),
        (text, &["--design", "slices:5s"], "longer than the window"),
        (text, &["--design", "slcies"], "did you mean 'slices'?"),
        (text, &["--meters", "cpus"], "did you mean 'cpu'?"),
        ("window = 2\n[factors]\npath = 'socket'", &[], "x.toml:1:10: '2' has no unit: 2s or 2ms?"),
        (
            "blcoks = 3",
            &[],
            "x.toml:1:1: blcoks = 3: unknown field `blcoks` (did you mean 'blocks'?)",
        ),
        ("[factors]\npath = 'zcrz'", &[], "x.toml:2:8: there is no path 'zcrz'"),
    ];
    for (text, flags, words) in wrong {
        let (code, stdout, stderr) = dry(text, flags);
        assert!(
            code == 2 && stdout.is_empty() && stderr.contains(words),
            "{flags:?}: {code} {stderr}"
        );
    }
    let (code, _, stderr) = bytepath(&["run", "/no/such/file.toml"]);
    assert!(code == 6 && stderr.contains("cannot read /no/such/file.toml"), "{stderr}");
    let (code, _, stderr) = bytepath(&["resume", folder.path().to_str().unwrap()]);
    assert!(code == 6 && stderr.contains("bytepath study?"), "{stderr}");
}

#[test]
fn cells_that_would_measure_the_same_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    let dry = |exclude: &str| {
        let factors = "[factors]\npath = ['socket', 'zcrx']\nread-size = ['512K', '64M']\n";
        std::fs::write(&file, format!("{factors}{exclude}")).unwrap();
        bytepath(&["run", file.to_str().unwrap(), "--dry-run"])
    };
    let (code, _, stderr) = dry("");
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("measure the same: zcrx delivers"), "{stderr}");
    let (code, _, stderr) = dry("[[exclude]]\npath = 'zcrx'\nread-size = '512K'\n");
    assert_eq!(code, 0, "{stderr}");
}

#[test]
fn settings_of_a_file_are_left_out_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    std::fs::write(&file, "settings = 'quiet'\n[factors]\npath = 'socket'\n").unwrap();
    let names = |flags: &[&str]| -> Vec<String> {
        let all = [&["run", file.to_str().unwrap(), "--dry-run", "--json"], flags].concat();
        let (code, text, stderr) = bytepath(&all);
        assert_eq!(code, 0, "{stderr}");
        let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
        let settings = plan["settings"].as_array().unwrap().iter();
        settings.map(|record| record["setting"]["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names(&[]).len() > 4);
    assert!(names(&["--settings", "none"]).is_empty());
    let own = ["--settings", "none", "--set", "sysctl net.ipv4.tcp_sack=1"];
    assert_eq!(names(&own), ["sysctl"]);
}

#[test]
fn every_schema_is_printed() {
    for subject in ["trial", "study", "hosts", "experiment"] {
        let (code, stdout, stderr) = bytepath(&["schema", subject]);
        assert_eq!(code, 0, "{stderr}");
        let schema: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(schema["type"], "object", "{subject}");
        assert!(schema["$schema"].as_str().unwrap().contains("2020-12"), "{subject}");
    }
    assert_eq!(bytepath(&["schema", "trail"]).0, 2);
}

#[test]
fn a_dry_run_shows_cells_order_and_time() {
    let arguments =
        ["run", "--dry-run", "--path", "socket", "--path", "uring", "--blocks", "2", "--seed", "7"];
    let (code, first, _) = bytepath(&arguments);
    assert_eq!(code, 0);
    for words in ["socket  (baseline)", "socket (again)", "block 2: ", "6 trials of 3.1 s"] {
        assert!(first.contains(words), "{first}");
    }
    assert_eq!(bytepath(&arguments).1, first, "the seed decides the order");
}

/// Every slice but the first has a ramp of 40 ms, which a whole trial does not have.
#[test]
fn the_time_of_a_dry_run_includes_the_ramps_of_slices() {
    let time = |design: &str| {
        let arguments = ["run", "--dry-run", "--json", "--path", "socket", "--window", "2s"];
        let rest = ["--blocks", "10", "--design", design];
        let (code, text, stderr) = bytepath(&[&arguments[..], &rest].concat());
        assert_eq!(code, 0, "{stderr}");
        let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
        (plan["seconds_per_trial"].as_f64().unwrap(), plan["seconds"].as_f64().unwrap())
    };
    // Ten blocks of the path and of its second copy.
    assert_eq!(time("trials"), (3.0, 20.0 * 3.0));
    let (each, all) = time("slices:100ms");
    assert!((each - (3.0 + 19.0 * 0.04)).abs() < 1e-9 && (all - each * 20.0).abs() < 1e-9);
}

#[test]
fn a_dry_run_is_also_json() {
    let asked = ["run", "--dry-run", "--path", "socket", "--path", "uring", "--blocks", "2"];
    for form in [&["--json"][..], &["--format", "json"]] {
        let (code, text, stderr) = bytepath(&[&asked[..], &["--seed", "7"], form].concat());
        assert_eq!(code, 0, "{stderr}");
        let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(plan["baseline"], "socket");
        assert_eq!(
            (&plan["schedule"]["seed"], &plan["schedule"]["blocks"]),
            (&7.into(), &2.into())
        );
        let ids: Vec<&str> =
            plan["cells"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["socket", "uring", "socket (again)"]);
        let order = plan["order"].as_array().unwrap();
        assert!(order.len() == 2 && order.iter().all(|b| b.as_array().unwrap().len() == 3));
    }
}

/// A testbed that cannot be started is the reason in a row; one that does not exist is a wrong
/// request.
#[test]
fn a_catalogue_on_a_testbed_that_does_not_exist_is_a_wrong_request() {
    for list in ["paths", "meters"] {
        for (arguments, words) in [
            (&["--testbed", "netsn"][..], "there is no testbed 'netsn' (did you mean 'netns'?)"),
            (&["--testbed", "vm:memroy=1G"], "did you mean 'memory'?"),
            (&["--kernel", "debian:newest"], "kernel"),
        ] {
            for form in [&[][..], &["--json"]] {
                let (code, stdout, stderr) = bytepath(&[&[list], arguments, form].concat());
                assert_eq!(code, 2, "{list} {arguments:?}: {stderr}");
                assert!(stdout.is_empty(), "{stdout}");
                assert!(stderr.lines().count() == 1 && stderr.contains(words), "{stderr}");
            }
        }
    }
}

#[test]
fn options_of_meters_are_listed_and_none_is_set_of_a_meter_that_is_off() {
    let (code, profile, stderr) = bytepath(&["meters", "profile", "--device", "lo"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(profile.contains("\n       rate=auto|1..100000 "), "{profile}");

    let power = ["run", "--dry-run", "--json", "--path", "socket", "--power", "rapl,rest=9"];
    let (code, text, stderr) = bytepath(&power);
    // The exit code of the study on a machine without the meter.
    assert!(code == 0 || code == 3 && stderr.contains("no RAPL zone"), "{stderr}");
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(plan["power"]["source"]["kind"], "rapl");
    assert_eq!(plan["power"]["rest"]["watts"], 9.0);
    let (code, _, stderr) = bytepath(&[&power[..], &["--meters", "cpu"]].concat());
    assert!(code == 2 && stderr.contains("add power to --meters"), "{stderr}");
}

#[test]
fn a_reader_that_stops_early_is_not_an_error() {
    for arguments in [
        &["paths", "--device", "lo"][..],
        &["paths", "--device", "lo", "--json"],
        &["meters", "--device", "lo"],
        &["meters", "--device", "lo", "--json"],
        &["schema", "experiment"],
        &["settings"],
        &["run", "--dry-run"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bytepath"));
        let output = command.args(arguments).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_folder_that_is_not_a_study_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, stderr) = bytepath(&["show", folder.path().to_str().unwrap()]);
    assert_eq!(code, 6);
    assert!(stderr.contains("experiment.toml") && stderr.contains("bytepath study?"), "{stderr}");
}

#[test]
fn an_agent_answers_lines_and_ends_with_its_pipe() {
    let output = Command::new(env!("CARGO_BIN_EXE_bytepath"))
        .arg("agent")
        .write_stdin("{\"call\":\"hello\"}\nnonsense\n{\"call\":\"accept\"}\n")
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (first, lines) = lines.split_first().unwrap();
    assert_eq!((*first, lines.len()), (bytepath::record::wire::SYNC, 3), "{text}");
    assert!(lines[0].contains("\"hello\"") && lines[0].contains(env!("CARGO_PKG_VERSION")));
    assert!(lines[1].contains("no valid request"), "{text}");
    assert!(lines[2].contains("out of step"), "{text}");
}

#[test]
fn size_repeats_the_published_arithmetic() {
    const GOAL: &[&str] =
        &["size", "--rate", "200G", "--rtt", "0.1ms", "--hold", "48MiB", "--ring", "4096"];
    let (code, text, _) = bytepath(GOAL);
    assert_eq!(code, 0);
    for line in [
        "200 Gbit/s over 0.1 ms with an MTU of 4148, 48 MiB held by the application",
        "  receive ring  4096 entries, 16 MiB of buffers, per queue",
        "  area          64 MiB per queue",
        "  lasts         2.68 ms",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let (_, text, _) = bytepath(&[GOAL, &["--json"]].concat());
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(plan["sizing"]["area"], 64 << 20);
    for wrong in [["--rate", "0"], ["--rtt", "soon"], ["--mtu", "10"], ["--ring", "0"]] {
        let asked: Vec<&str> = match GOAL.iter().position(|word| *word == wrong[0]) {
            Some(at) => [&GOAL[..at], &wrong, &GOAL[at + 2..]].concat(),
            None => [GOAL, &wrong].concat(),
        };
        assert_eq!(bytepath(&asked).0, 2, "{wrong:?}");
    }
    let (code, _, error) = bytepath(&["size", "--rate", "200", "--rtt", "0.1ms"]);
    assert!(code == 2 && error.contains("bit/s, k, M, G or T"), "{error}");
}

#[test]
fn paths_are_a_table_of_one_screen_and_each_has_a_page() {
    let (code, table, stderr) = bytepath(&["paths"]);
    assert_eq!(code, 0, "{stderr}");
    let widest = table.lines().map(|line| line.chars().count()).max();
    assert!(table.lines().count() <= 35 && widest <= Some(100), "{table}");
    assert!(table.contains("\n  splice         splice+tcp-zerocopy-receive       "), "{table}");
    // A path with two halves lists both, with their options.
    let (code, splice, _) = bytepath(&["paths", "splice"]);
    assert_eq!(code, 0);
    for line in
        ["  splice (sender): ", "  tcp-zerocopy-receive (receiver): ", "       pipe=64K..256M "]
    {
        assert!(splice.contains(line), "{splice}");
    }
    let (code, _, stderr) = bytepath(&["paths", "splise"]);
    assert!(code == 2 && stderr.contains("did you mean 'splice'?"), "{stderr}");
}

#[test]
fn a_command_without_a_study_takes_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let within = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bytepath"));
        let output = command.args(words).current_dir(folder.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    for command in ["show", "compare", "resume", "profile"] {
        let (code, _, stderr) = within(&[command]);
        assert_eq!(code, Some(2), "{command}: {stderr}");
        assert!(stderr.contains("there is no study in bytepath-studies"), "{command}: {stderr}");
    }
    let studies = folder.path().join("bytepath-studies");
    std::fs::create_dir(&studies).unwrap();
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/studies/first-edition");
    std::os::unix::fs::symlink(recorded, studies.join("20260102-030405")).unwrap();
    let (code, shown, stderr) = within(&["show"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(stderr, "study: bytepath-studies/20260102-030405\n");
    let (_, named, _) = within(&["show", "bytepath-studies/20260102-030405"]);
    assert_eq!(shown, named);
}
