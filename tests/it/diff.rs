//! `bytepath diff`: the pair of 2002, its formats, and what it refuses.

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
    // Where a function of the first column went is where the second says that it came from.
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
fn the_other_way_round_losses_are_shown() {
    let text = printed(&["affinity.txt", "baseline.txt", "--top", "2"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[5].starts_with("all "), "{text}");
    assert!(lines[6].starts_with("schedule ") && lines[6].contains(" -15817 "), "{text}");
    assert!(lines[7].starts_with("poll_idle ") && lines[7].contains(" -49502 "), "{text}");
    assert!(lines[8].starts_with("66 more "), "{text}");
    assert!(text.contains("appeared (only with): speedo_rx, eth_type_trans, "), "{text}");
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
fn sides_are_added_up_and_shares_do_not_change_by_it() {
    let twice = printed(&["baseline.txt,baseline.txt", "affinity.txt", "--format", "tsv"]);
    assert!(twice.contains("\npoll_idle\t72241\t243486\t171245\t"), "{twice}");
    let text = printed(&["baseline.txt,baseline.txt", "affinity.txt"]);
    assert!(text.contains("2 profiles without and 1 with are added up as they are"), "{text}");
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
fn what_well_known_functions_mean_is_told_of_pasted_profiles() {
    // Made up: a fifth of what is busy goes to the return thunks, then nothing.
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
    let line = "SRSO mitigation: without 20%, with 0% (srso_alias_safe_ret) every return";
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
    // What vanished has no width after the change.
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
        (nothing.as_str(), &[], 6, "no profile of a known format"),
        ("missing", &[], 6, "cannot read missing"),
        (".", &[], 2, "is a folder (name a cell of the study: .#CELL)"),
        (nowhere.as_str(), &[], 6, "experiment.toml"),
        ("baseline.txt", &["--per", "gib"], 2, "does not tell how many bytes"),
        ("baseline.txt", &["--explain", "text"], 2, "baseline.txt: its samples tell no CPU time"),
        ("baseline.txt", &["--explain", "text", "--json"], 2, "cannot be used with"),
        ("baseline.txt", &["--explain", "text", "--per", "second"], 2, "--per gib or --per packet"),
        ("baseline.txt", &["--threshold", "101"], 2, "no number of percent"),
    ] {
        let mut arguments = vec![before, "affinity.txt"];
        arguments.extend(extra);
        let (was, message) = refused(&arguments);
        assert!(was == code && message.contains(expected), "{was}: {message}");
    }
}
