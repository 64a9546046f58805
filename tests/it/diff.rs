//! `bytepath diff`: the two profiles of 2002, its formats, and its refusals.

use crate::shared::words;

use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const PAIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/affinity-2002");

fn diff(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("bytepath").unwrap();
    command.current_dir(PAIR).arg("diff").args(arguments);
    command
}

fn printed(arguments: &[&str]) -> String {
    let output = diff(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and message of a refusal.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = diff(arguments).output().unwrap();
    assert!(output.stdout.is_empty(), "a refusal prints nothing");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The file's suffix selects the format, and the file contains what would have been printed.
#[test]
fn a_difference_goes_to_a_file_whose_suffix_gives_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, more: &[&str]| {
        let file = folder.path().join(name);
        let out = ["baseline.txt", "affinity.txt", "-o", file.to_str().unwrap()];
        assert!(printed(&[&out[..], more].concat()).is_empty());
        fs::read_to_string(file).unwrap()
    };
    for (name, format) in [("d.txt", "text"), ("d.tsv", "tsv"), ("d.json", "json")] {
        let expected = printed(&["baseline.txt", "affinity.txt", "--format", format]);
        assert_eq!(written(name, &[]), expected);
        assert_eq!(written("any", &["--format", format]), expected);
    }
    assert!(written("d.html", &[]).starts_with("<!DOCTYPE html>"));
    assert!(written("d.svg", &[]).contains("<svg"));
    let side_by_side = written("places", &["--side-by-side"]);
    assert_eq!(side_by_side, printed(&["baseline.txt", "affinity.txt", "--side-by-side"]));
    let (code, said) = refused(&["baseline.txt", "affinity.txt", "-o", "x.doc"]);
    assert!(code == 2 && said.contains(".txt, .tsv, .html, .json, .svg"), "{said}");
}

#[test]
fn the_answer_comes_first() {
    let text = printed(&["baseline.txt", "affinity.txt"]);
    let answer = "137182 samples after the change, 291873 before: -53.0% (one profile each, so without an interval).";
    assert_eq!(text.lines().next(), Some(answer));
    let twice = ["baseline.txt,affinity.txt", "affinity.txt,baseline.txt"];
    let text = printed(&twice);
    assert!(text.starts_with("214528 samples/run after the change, 214528 before: 0.0%, interval"));
    assert!(text.split("\n\n").next().unwrap().ends_with("difference is\nshown."), "{text}");
    let text = printed(&[twice[0], twice[1], "--per", "sample"]);
    assert!(text.starts_with("%"), "shares of a whole do not grow: {text}");
}

#[test]
fn groups_have_a_table_of_their_own() {
    let text = printed(&["baseline.txt", "affinity.txt", "--by", "subsystem", "--top", "1"]);
    let row = |name: &str| {
        let row = text.lines().find(|line| line.starts_with(name)).unwrap();
        row.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("all")[..3], ["291873", "137182", "-154691"]);
    assert_eq!(row("idle")[..3], ["122129", "72241", "-49888"], "{text}");
}

/// A profile that `observe` wrote of a program records no bytes: its steps are per run.
#[test]
fn steps_between_runs_of_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, samples: u32| {
        let path = folder.path().join(name);
        let sample = "prog 7/7 [000] 1.000000: 10000000 cpu-clock: \n\tffffffff81000000 tcp_ack ([kernel.kallsyms])\n\n";
        fs::write(&path, sample.repeat(samples as usize)).unwrap();
        path.display().to_string()
    };
    let (before, after) = (script("a", 30), script("b", 45));
    let text = printed(&[&before, &after, "--explain", "text"]);
    assert!(text.contains("CPU-s/run") && text.contains("0.150"), "{text}");
    let (code, said) = refused(&[&before, &after, "--explain", "text", "--per", "gib"]);
    assert!(code == 2 && said.contains("compare by --per run"), "{said}");
}

#[test]
fn a_limit_on_what_is_more_decides_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, samples: u32| {
        let path = folder.path().join(name);
        fs::write(&path, format!("main;f {samples}\nmain;g 100\n")).unwrap();
        path.display().to_string()
    };
    let before = [file("a1.txt", 900), file("a2.txt", 910), file("a3.txt", 890)].join(",");
    let after = [file("b1.txt", 1100), file("b2.txt", 1090), file("b3.txt", 1110)].join(",");
    let checked = |before: &str, after: &str, limit: &str| {
        let output = diff(&[before, after, "--fail-if-more", limit]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = checked(&before, &after, "5%");
    assert!(code == Some(7) && said.starts_with("FAILED +20.0% samples/run in all"), "{said}");
    let (code, said) = checked(&after, &before, "5%");
    assert!(code == Some(0) && said.starts_with("passed -16.7%"), "{said}");
    let (code, said) = checked(&before, &after, "20%");
    assert!(code == Some(125) && said.starts_with("UNDECIDED +20.0%"), "{said}");
    // A side with a single file has no interval, and neither do counters.
    let (code, said) = checked(&file("a1.txt", 900), &after, "5%");
    assert!(code == Some(2) && said.contains("name two files or more of each side"), "{said}");
    let shares = file("shares.txt", 1);
    let report = "# Overhead  Command  Shared Object      Symbol\n    60.00%  a        [kernel.kallsyms]  [k] f\n    40.00%  a        [kernel.kallsyms]  [k] g\n";
    fs::write(&shares, report).unwrap();
    let twice = format!("{shares},{shares}");
    let (code, said) = checked(&twice, &twice, "5%");
    assert!(code == Some(2) && said.contains("shares of a whole"), "{said}");
    let counts = folder.path().join("counts.txt");
    fs::write(&counts, "     1,200      cycles                    \n").unwrap();
    let counts = counts.display().to_string();
    let (code, said) = checked(&counts, &counts, "5%");
    assert!(code == Some(2) && said.contains("counters have no interval"), "{said}");
}

fn savings() -> String {
    fs::read_to_string(PathBuf::from(PAIR).join("savings.txt")).unwrap()
}

#[test]
fn the_pair_of_2002_comes_out_row_for_row() {
    let text = printed(&["baseline.txt", "affinity.txt", "--format", "tsv"]);
    let (head, rows) = text.split_once('\n').unwrap();
    assert!(
        head.starts_with("function\twith\twithout\tsaved\t")
            && head.ends_with("\tgroup\thalf_width")
    );
    let first_four = |row: &str| row.split('\t').take(4).collect::<Vec<_>>().join(" ") + "\n";
    assert_eq!(rows.lines().map(first_four).collect::<String>(), savings());
}

#[test]
fn two_rankings_stand_side_by_side() {
    let text = printed(&["baseline.txt", "affinity.txt", "--side-by-side", "--top", "12"]);
    let head = text.lines().position(|line| line.trim_start().starts_with('#')).expect(&text);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .skip(head + 1)
        .take(12)
        .map(|line| line.split_whitespace().collect())
        .collect();
    let places = |column: usize| lines.iter().map(|line| line[column]).collect::<Vec<&str>>();
    assert_eq!(places(0), (1..=12).map(|n| n.to_string()).collect::<Vec<_>>(), "{text}");
    // Where a function of the first column went matches where the second says that it came from.
    let (first, second) = (places(1), places(4));
    for (place, (function, to)) in first.iter().zip(places(3)).enumerate() {
        let Some(there) = second.iter().position(|other| other == function) else { continue };
        assert_eq!(to, (there + 1).to_string(), "{function}: {text}");
        assert_eq!(places(6)[there], (place + 1).to_string(), "{function}: {text}");
    }
    let amounts: Vec<f64> = places(2).iter().map(|n| n.parse().unwrap()).collect();
    assert!(amounts.is_sorted_by(|a, b| a >= b), "{text}");
    assert!(refused(&["baseline.txt", "affinity.txt", "--side-by-side", "--json"]).0 == 2);
}

#[test]
fn json_says_the_same_and_more() {
    let value: Value =
        serde_json::from_str(&printed(&["baseline.txt", "affinity.txt", "--json"])).unwrap();
    let row = |row: &Value| {
        let number = |name: &str| row[name].as_f64().unwrap();
        let function = row["function"].as_str().unwrap();
        format!("{function} {} {} {}\n", number("with"), number("without"), number("saved"))
    };
    let rows: String = value["rows"].as_array().unwrap().iter().map(row).collect();
    assert_eq!(rows, savings());
    assert_eq!((&value["format"], &value["unit"]), (&"bytepath-diff".into(), &"samples".into()));
    assert_eq!(value["vanished"].as_array().unwrap().len(), 14);
    assert_eq!(value["appeared"].as_array().unwrap().len(), 0);
    assert_eq!(value["rows"][0]["subsystem"], "idle");
}

#[test]
fn a_function_has_the_file_that_it_is_from() {
    let folder = tempfile::tempdir().unwrap();
    for (name, share) in [("a", "40"), ("b", "30")] {
        let rows = format!(
            "# Overhead  Command  Shared Object      Symbol\n#\n    {share}.00%  app  [vhost]  [k] handle_tx\n    \
             20.00%  app  libc.so.6  [.] memcpy\n    10.00%  app  [kernel.kallsyms]  [k] tcp_ack\n"
        );
        fs::write(folder.path().join(name), rows).unwrap();
    }
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name).display().to_string());
    let text = printed(&[&a, &b, "--width", "120"]);
    for (function, module) in [("handle_tx", "[vhost]"), ("memcpy", "libc.so.6")] {
        let row = text.lines().find(|line| line.starts_with(function)).expect(&text);
        assert!(row.ends_with(module), "{text}");
    }
    assert!(text.lines().any(|line| line.trim_end().ends_with("module")), "{text}");
    // If all functions are from the same file, there is no column for it.
    for (name, ticks) in [("c", 3), ("d", 2)] {
        fs::write(folder.path().join(name), format!("main;send {ticks}\nmain;recv 5\n")).unwrap();
    }
    let [c, d] = ["c", "d"].map(|name| folder.path().join(name).display().to_string());
    assert!(!printed(&[&c, &d]).contains("module"));
}

#[test]
fn the_other_way_round_losses_are_shown() {
    let text = printed(&["affinity.txt", "baseline.txt", "--top", "2"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[7].starts_with("all "), "{text}");
    assert!(lines[8].starts_with("poll_idle ") && lines[8].contains(" +49502 "), "{text}");
    assert!(lines[9].starts_with("schedule ") && lines[9].contains(" +15817 "), "{text}");
    assert!(lines[10].starts_with("66 more "), "{text}");
    assert!(text.contains("appeared (only after): speedo_rx, eth_type_trans, "), "{text}");
}

#[test]
fn text_fits_its_width_and_is_plain() {
    for (width, by) in [("100", "none"), ("72", "none"), ("72", "subsystem"), ("40", "thread")] {
        let text =
            printed(&["baseline.txt", "affinity.txt", "--width", width, "--by", by, "--top", "99"]);
        let most = width.parse().unwrap();
        for line in text.lines() {
            assert!(line.len() <= most, "{width}: {line}");
            assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{line}");
        }
        assert!(text.contains("csum_partial"), "{text}");
    }
}

#[test]
fn repeated_files_are_a_mean_or_a_sum_and_shares_do_not_change_by_it() {
    let twice = ["baseline.txt,baseline.txt", "affinity.txt"];
    let mean = printed(&[&twice[..], &["--format", "tsv"]].concat());
    assert!(mean.contains("\npoll_idle\t72241\t121743\t49502\t"), "{mean}");
    let sum = printed(&[&twice[..], &["--format", "tsv", "--per", "none"]].concat());
    assert!(sum.contains("\npoll_idle\t72241\t243486\t171245\t"), "{sum}");
    let text = printed(&[&twice[..], &["--per", "none"]].concat());
    assert!(text.contains("2 profiles before and 1 after are added up: --per run"), "{text}");
    let share = |before: &str| {
        let text = printed(&[before, "affinity.txt", "--per", "sample", "--format", "tsv"]);
        let row = text.lines().find(|row| row.starts_with("schedule\t")).unwrap().to_owned();
        row.split('\t').nth(2).unwrap().parse::<f64>().unwrap()
    };
    assert!((share("baseline.txt") - 100.0 * 24853.0 / 291873.0).abs() < 1e-9);
    assert!((share("baseline.txt") - share("baseline.txt,baseline.txt")).abs() < 1e-9);
}

#[test]
fn standard_input_is_a_side() {
    let affinity = fs::read(PathBuf::from(PAIR).join("affinity.txt")).unwrap();
    let piped =
        diff(&["baseline.txt", "-", "--format", "tsv"]).write_stdin(affinity).output().unwrap();
    let named = printed(&["baseline.txt", "affinity.txt", "--format", "tsv"]);
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), named);
    assert_eq!(refused(&["-", "-"]).0, 2);
}

#[test]
fn symptoms_are_reported_for_pasted_profiles() {
    // Made up: a fifth of the busy time goes to the return thunks, then none.
    let folder = tempfile::tempdir().unwrap();
    let pasted = |name: &str, lines: &str| {
        let file = folder.path().join(name);
        fs::write(&file, lines).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let before = pasted(
        "before",
        "kpktgend_0;tun_net_xmit 60\nkpktgend_0;memset 20\n\
                                   kpktgend_0;srso_alias_safe_ret 20\n",
    );
    let after = pasted("after", "kpktgend_0;tun_net_xmit 60\nkpktgend_0;memset 20\n");
    let said = words(&printed(&[&before, &after]));
    let line = "SRSO mitigation: before 20%, after 0% (srso_alias_safe_ret) every return";
    assert!(said.contains(line) && said.contains("spec_rstack_overflow=off"), "{said}");
    let json = printed(&[&before, &after, "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["symptoms"][0]["shares"], serde_json::json!([0.2, 0.0]));
    let alone = |file: &str| {
        let mut command = Command::cargo_bin("bytepath").unwrap();
        let output = command.args(["profile", file]).output().unwrap();
        assert!(output.status.success());
        words(&String::from_utf8(output.stdout).unwrap())
    };
    let said = alone(&before);
    assert!(said.contains("SRSO mitigation: 20% (srso_alias_safe_ret)"), "{said}");
    assert!(!alone(&after).contains("well-known functions"), "{said}");
}

#[test]
fn rules_of_the_user_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    fs::write(&file, "version = 1\n[driver]\nexact = ['schedule']\n").unwrap();
    let rules = file.to_str().unwrap();
    let text = printed(&["baseline.txt", "affinity.txt", "--rules", rules, "--format", "tsv"]);
    assert!(text.contains("\nschedule\t9036\t24853\t15817\tboth\tdriver\t"), "{text}");
    assert!(text.contains("\n__wake_up\t1779\t6143\t4364\tboth\tscheduler\t"), "{text}");
    fs::write(&file, "version = 1\n[nowhere]\nexact = ['schedule']\n").unwrap();
    let (code, message) = refused(&["baseline.txt", "affinity.txt", "--rules", rules]);
    assert!(code == 2 && message.contains("no subsystem 'nowhere'"), "{message}");
}

#[test]
fn flame_graphs_are_written_in_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (after, before) = (path("after.svg"), path("before.svg"));
    printed(&["baseline.txt", "affinity.txt", "--svg", &after, "--svg-before", &before]);
    let read = |file: &str| fs::read_to_string(file).unwrap();
    assert!(read(&after).contains("poll_idle (") && read(&before).contains("poll_idle ("));
    // A function that vanished has no width after the change.
    assert!(!read(&after).contains("speedo_rx (") && read(&before).contains("speedo_rx ("));
    let left: Vec<_> = fs::read_dir(&folder).unwrap().collect();
    assert_eq!(left.len(), 2, "nothing half-written stays");
}

#[test]
fn refusals_name_the_thing_and_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let torn = write("torn", &format!("{}garbage\n", "schedule [c01]: 5\n".repeat(9)));
    let nothing = write("nothing", "no profile at all\n");
    let nowhere = format!("{}#uring", folder.path().display());
    for (before, extra, code, expected) in [
        (torn.as_str(), &[][..], 6, "torn, line 10: 'garbage' is not a function and its ticks"),
        (nothing.as_str(), &[], 6, "not a profile of a known format"),
        ("missing", &[], 6, "cannot read missing"),
        (".", &[], 2, "is a folder (name a cell of the study: .#CELL)"),
        (nowhere.as_str(), &[], 6, "experiment.toml"),
        ("baseline.txt", &["--per", "gib"], 2, "does not record how many bytes"),
        (
            "baseline.txt",
            &["--explain", "text"],
            2,
            "baseline.txt: its samples do not measure CPU time",
        ),
        ("baseline.txt", &["--explain", "text", "--json"], 2, "cannot be used with"),
        (
            "baseline.txt",
            &["--explain", "text", "--per", "second"],
            2,
            "--per gib, --per packet or --per run",
        ),
        ("baseline.txt", &["--threshold", "101"], 2, "not a percentage"),
    ] {
        let mut arguments = vec![before, "affinity.txt"];
        arguments.extend(extra);
        let (was, message) = refused(&arguments);
        assert!(was == code && message.contains(expected), "{was}: {message}");
    }
}

/// Writes these files into a folder, and compares two of them.
fn compared(files: &[(&str, &str)], arguments: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let output = diff(arguments).current_dir(folder.path()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Made up: a mail and its reply, each with a quoted table.
const MAIL: &str = "\
Before the change:
> # Overhead Command Shared Object Symbol
> 20,50% rx 0 [kernel.kallsyms] [k] copy_words
That is a lot.
> 3,25% rx 0 [vhost] [k] 0x0000000000001f70
> 2,25% rx 0 [vhost] [k] 0x0000000000001f78
And after it:
> > 10,50% rx 0 [kernel.kallsyms] [k] copy_words
> > 3,00% rx 0 [vhost] [k] 0x0000000000002f70
";

#[test]
fn two_tables_of_one_mail_are_compared_as_they_stand() {
    let arguments = ["mail@1", "mail@2", "--per", "none", "--format", "tsv"];
    let (code, out, err) = compared(&[("mail", MAIL)], &arguments);
    assert_eq!((code, err.as_str()), (0, ""));
    let first_four: Vec<String> = out
        .lines()
        .skip(1)
        .map(|row| row.split('\t').take(4).collect::<Vec<_>>().join(" "))
        .collect();
    // Addresses of a module without symbols form one row: they change with each build.
    assert_eq!(first_four[..2], ["copy_words 10.5 20.5 10", "[vhost] unresolved 3 5.5 2.5"]);
    assert!(first_four[2].starts_with("[not in the table] "), "{first_four:?}");
    let (_, out, _) = compared(&[("mail", MAIL)], &arguments[..4]);
    let said = words(&out);
    assert!(said.contains("mail@1: left out: 3 lines of other text"), "{out}");
    assert!(!said.contains("has no sample"), "{out}");
    let (code, _, err) = compared(&[("mail", MAIL)], &["mail", "mail"]);
    assert!(code == 6 && err.contains("mail holds 2 tables, which begin in lines 3, 8"), "{err}");
    let torn = MAIL.replace("copy_words\nThat", "copy_wordsThat");
    let (code, _, err) = compared(&[("mail", &torn)], &arguments);
    assert!(code == 6 && err.contains("mail@1, line 3: '20,50% rx 0"), "{err}");
}

/// Made up, in the format of a locale with decimal commas and of one without.
const STAT: [&str; 2] = [
    "So I ran it:\n> 2.000,00 msec task-clock # 1,0 CPUs CPUs_utilized\n\
     > 4.000.000.000 cycles # 2,0 GHz cycles_frequency (66,85%)\n\
     > 6.000.000.000 instructions # 1,5 instructions insn_per_cycle\n\
     > 2,000100000 seconds time elapsed\n",
    " Performance counter stats for 'x':\n\n          1,000.00 msec task-clock  #    1.000 CPUs utilized\n\
     \x20    2,000,000,000      cycles   #    2.000 GHz\n   <not counted>      instructions\n\n\
     \x20      1.000050000 seconds time elapsed\n",
];

#[test]
fn counters_stand_side_by_side() {
    let files = [("a.txt", STAT[0]), ("b.txt", STAT[1])];
    let (code, out, err) = compared(&files, &["a.txt", "b.txt", "--work", "1000000"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let row = |name: &str| {
        let line =
            out.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{out}"));
        line[name.len()..].split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("task-clock (ms) "), "2000 1000 0.50x");
    assert_eq!(row("cycles "), "4000000000 2000000000 0.50x");
    assert_eq!(row("instructions "), "6000000000 - -");
    assert_eq!(row("instructions per cycle "), "1.500 - -");
    assert_eq!(row("cycles (per unit) "), "4000 2000 0.50x");
    let said = words(&out);
    assert!(said.contains("a.txt: left out: 1 line of other text"), "{out}");
    assert!(said.contains("one was counted 67 % of the time and scaled up"), "{out}");
    let (_, json, _) = compared(&files, &["a.txt", "b.txt", "--json"]);
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&value["format"], &value["rows"][0]["ratio"]),
        (&"bytepath-counters".into(), &0.5.into())
    );
    let (_, tsv, _) = compared(&files, &["a.txt", "b.txt", "--format", "tsv"]);
    assert!(tsv.contains("\tcycles\t\t4000000000\t2000000000\t0.5\tfalse\n"), "{tsv}");
    for (arguments, why) in [
        (&["a.txt", "mail@1"][..], "one side holds counters"),
        (&["a.txt", "b.txt", "--explain", "text"], "no functions to explain"),
        (&["a.txt,b.txt", "b.txt"], "are compared one text with one"),
        (&["a.txt", "b.txt", "--cpu", "7"], "--cpu selects samples, and the counters of a.txt"),
        (&["mail@1", "mail@2", "--work", "7"], "--work divides counters"),
    ] {
        let (code, _, err) = compared(&[files[0], files[1], ("mail", MAIL)], arguments);
        assert!(code == 2 && err.contains(why), "{arguments:?}: {err}");
    }
}
