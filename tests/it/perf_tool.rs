//! One recording of the machine's own perf, read as `perf.data` and as printed by `perf script` and
//! `perf report`, with many choices of fields and sort keys: each has the same sums and shares, or
//! is refused with what is missing.

use bytepath_testing::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

/// Fields of `perf script -F`.
const FIELDS: &[&str] = &[
    "comm,tid,time,event,ip,sym,dso",
    "comm,pid,tid,time,period,event,ip,sym",
    "comm,ip,sym",
    "comm,period,ip,sym",
    "comm,tid,period,ip,sym,dso",
    "comm,tid,time,period,ip,sym",
    "ip,sym",
    "time,ip,sym",
    "tid,ip,sym",
    "period,ip,sym",
    "event,ip,sym",
    "event,period,ip,sym,dso,symoff",
    "comm,period,event,ip,sym",
    "pid,period,ip,sym",
    "comm,tid,time,event,ip,sym,srcline",
    "ip,dso",
    "comm,tid,event,sym",
    "time,event",
    "time,sym",
    "comm,tid",
    "comm,tid,time,period,event",
];

/// Options of `perf report --stdio`.
const REPORTS: &[&[&str]] = &[
    &[],
    &["--no-children"],
    &["-s", "sym"],
    &["-s", "dso,sym"],
    &["-s", "pid,sym", "-n"],
    &["-s", "sym", "--show-total-period"],
    &["-F", "overhead,sym"],
    &["-F", "period,sym"],
    &["-g", "none"],
    &["-g", "flat"],
    &["-g", "folded"],
    &["-G"],
    &["-v"],
    &["--hierarchy"],
    &["-t", ","],
    &["-t", "\t", "-g", "none"],
    &["--percent-limit", "2"],
    &["-w", "20,20,40"],
    &["--tasks"],
    &["--mmaps"],
    &["--stats"],
];

#[test]
fn every_print_of_one_recording_has_the_same_shares_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, chains) in [("chains", true), ("flat", false)] {
        let data = folder.path().join(format!("{name}.data"));
        if !record(&data, chains) {
            return skip!("no perf here that records cpu-clock");
        }
        let perf = |words: &[&str]| {
            let mut command = Command::new("perf");
            let (first, rest) = words.split_first().unwrap();
            command.arg(first).arg("-i").arg(&data).args(rest).output().unwrap()
        };
        let script = perf(&["script"]);
        let known = read(folder.path(), "known.script", &script.stdout).unwrap();
        let itself = profile(&data).unwrap();
        assert_eq!((itself.samples, itself.total), (known.samples, known.total), "{name}");
        // This host recorded it, so its functions have the same names, except for aliases of an
        // address.
        let is_named = |function: &str| !function.starts_with("0x") && function != "[unknown]";
        let named = known.shares.iter().filter(|(function, _)| is_named(function));
        let same = |(function, share): (&String, &f64)| {
            share.min(itself.shares.get(function).copied().unwrap_or_default())
        };
        let of: f64 = named.clone().map(|(_, share)| share).sum();
        let same: f64 = named.map(same).sum();
        assert!(of > 0.3 && same > 0.7 * of, "{name}: {same} of {of}: {:?}", itself.shares);
        for fields in FIELDS {
            let print = perf(&["script", "-F", fields]);
            if print.status.success() && !print.stdout.is_empty() {
                let has_functions = fields.contains("ip") && fields.contains("sym");
                let known = if has_functions { &known } else { &without_functions(&known) };
                check(folder.path(), known, &print, &format!("{name}: -F {fields}"), "x.script");
            }
        }
        for options in REPORTS {
            let print = perf(&[&["report", "--stdio"], *options].concat());
            if print.status.success() && !print.stdout.is_empty() {
                check(folder.path(), &known, &print, &format!("{name}: {options:?}"), "x.report");
            }
        }
    }
}

/// The sums of a profile.
struct Sums {
    samples: u64,
    total: f64,
    /// Shares of functions by themselves, without callees.
    shares: BTreeMap<String, f64>,
}

fn without_functions(known: &Sums) -> Sums {
    Sums { shares: BTreeMap::new(), ..*known }
}

/// Checks that two recordings agree to perf's rounding, or that the second is refused.
fn check(folder: &Path, known: &Sums, print: &Output, what: &str, file: &str) {
    let sums = match read(folder, file, &print.stdout) {
        Ok(sums) => sums,
        Err(refusal) => {
            let named = ["-F comm,ip,sym", "--hierarchy", "without -t", "ip or time", "holds no"];
            assert!(named.iter().any(|word| refusal.contains(word)), "{what}: {refusal}");
            return println!("{what}: {refusal}");
        }
    };
    assert_eq!(sums.samples, known.samples, "{what}");
    if file == "x.script" {
        let period = if what.contains("period") { known.total } else { known.samples as f64 };
        assert_eq!(sums.total, period, "{what}");
    }
    let limited = sums.shares.contains_key("[not in the table]");
    for (function, share) in &known.shares {
        // In a report, addresses without a symbol have no name.
        if function.starts_with("0x") || function == "[unknown]" {
            continue;
        }
        let found = sums.shares.get(function).copied().unwrap_or(0.0);
        // A function has rows of several threads, and a limit leaves some of them out.
        let lacks = if limited { *share } else { 0.002 };
        let range = share - lacks..share + 0.002;
        assert!(range.contains(&found), "{what}: {function} has {found}, not {share}");
    }
}

fn record(data: &Path, chains: bool) -> bool {
    let work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; \
                head -c 200000000 /dev/zero | cat > /dev/null";
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-e", "cpu-clock", "-F", "997"]).args(chains.then_some("-g"));
    let output = command.arg("-o").arg(data).args(["sh", "-c", work]).output();
    output.is_ok_and(|output| output.status.success())
}

fn read(folder: &Path, name: &str, text: &[u8]) -> Result<Sums, String> {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    profile(&file)
}

fn profile(file: &Path) -> Result<Sums, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    let output = command.arg("profile").arg(file).arg("--json").output().unwrap();
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(6));
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let total = json["total"].as_f64().unwrap();
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for function in json["functions"].as_array().unwrap() {
        let name = function["function"].as_str().unwrap().to_owned();
        *shares.entry(name).or_default() += function["self"].as_f64().unwrap() / total;
    }
    Ok(Sums { samples: json["samples"].as_u64().unwrap(), total, shares })
}
