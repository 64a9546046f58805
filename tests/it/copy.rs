//! `bytepath copy`: its measurements are verified, and unusable requests are refused.

use crate::shared::words;
use assert_cmd::Command;
use serde_json::Value;

fn copy(arguments: &[&str]) -> (i32, String, String) {
    let output =
        Command::cargo_bin("bytepath").unwrap().arg("copy").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const SMALL: [&str; 6] = ["--blocks", "2", "--time", "1ms", "--memory", "hot"];

#[test]
fn every_cell_is_measured_and_the_break_even_stands_first() {
    let engines = ["--engine", "cpu", "--engine", "thread", "--engine", "cpu:method=rep-movsb"];
    let cells = ["--size", "64,8K", "--depth", "4", "--batch", "1,4"];
    let (code, out, err) = copy(&[&engines[..], &cells, &SMALL].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    let said = words(&out);
    assert!(out.starts_with("thread "), "{out}");
    assert!(said.contains("with 4 copies in flight in batches of 4, in cache"), "{out}");
    let (_, json, _) = copy(&[&engines[..], &cells, &SMALL, &["--json"]].concat());
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["format"], "bytepath-copy");
    let rows = value["cells"].as_array().unwrap();
    assert_eq!(rows.len(), 3 * 2 * 2);
    for row in rows {
        assert_eq!(row["cell"]["model"], false, "{row}");
        assert!(row["mean"]["rate"].as_f64().unwrap() > 0.0, "{row}");
    }
    // Two engines in addition to the first, two shapes, two metrics: time and rate.
    assert_eq!(value["break_even"].as_array().unwrap().len(), 2 * 2 * 2);
}

#[test]
fn every_column_is_printed_at_every_width_and_what_is_not_there_has_a_row() {
    for columns in ["40", "80", "200"] {
        let mut command = Command::cargo_bin("bytepath").unwrap();
        command.arg("copy").args(["--size", "4K", "--depth", "4"]).args(SMALL);
        let output = command.env("COLUMNS", columns).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        for head in ["batch", "GB/s", "peak GB/s", "latency us", "polls", "caller ns", "submit ns"]
        {
            assert!(out.contains(head), "{columns} columns lack '{head}': {out}");
        }
        assert_eq!(out.matches("ratio").count(), 2, "{out}");
        let row = out.lines().find(|line| line.trim_start().starts_with("dsa "));
        assert!(row.is_some(), "measured, or a row with the reason: {out}");
        let absent = words(&out).contains("no work queue of a DSA device is enabled");
        assert_eq!(absent, out.contains("Not measured"), "{out}");
    }
}

#[test]
fn an_engine_that_is_requested_and_not_there_takes_no_row_from_the_others() {
    let engines = ["--engine", "cpu", "--engine", "dsa:queues=wq99.99"];
    let (code, out, err) =
        copy(&[&engines[..], &["--size", "4K", "--depth", "1,4"], &SMALL].concat());
    assert_eq!(code, 3, "{out}{err}");
    let why = "there is no work queue wq99.99";
    let said = words(&out);
    assert!(said.contains("Not measured") && said.contains(why) && err.contains(why), "{out}{err}");
    // The peak is given for a single copy at a time only.
    let rates = out.split("what the caller pays").next().unwrap();
    let rows = rates.lines().filter(|line| line.trim_start().starts_with("cpu "));
    let figures: Vec<usize> = rows.map(|row| row.split_whitespace().count()).collect();
    assert!(figures.len() == 2 && figures[0] == figures[1] + 1, "{out}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, code, why) in [
        (&["--engine", "cpy"][..], 2, "there is no copy engine 'cpy'"),
        (&["--engine", "dsa-model"], 2, "there is no copy engine 'dsa-model'"),
        (&["--engine", "cpu:method=magic"], 2, "option 'method' of engine cpu"),
        (&["--engine", "cpu", "--engine", "cpu"], 2, "engine cpu is given twice"),
        (&["--engine", "dsa:queues=wq99.99"], 3, "there is no work queue wq99.99"),
        (&["--depth", "1", "--batch", "2"], 2, "every --batch is larger than every --depth"),
        (&["--engine", "thread:cpu=4095"], 1, "cannot pin the helper to CPU 4095"),
    ] {
        let (was, out, err) = copy(&[arguments, &SMALL].concat());
        assert!(was == code && out.is_empty() && err.contains(why), "{arguments:?}: {was} {err}");
    }
}
