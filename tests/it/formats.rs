//! The formats for mail and for other programs: what they print (snapshots; INSTA_UPDATE=always
//! accepts changes), that other programs can read it, and that no study makes them break their
//! promises.

use crate::{anything, frames, made_up, rr, shared};
use bytepath_testing::skip;

use anything::any_study;
use bytepath::record::{
    CellId, Design, Source, Stopping, Study, Trial, TrialStatus, is_unsafe_to_display, visible,
};
use bytepath::report::{self, CATALOG, Style};
use bytepath::spec::{self, CellRequest};
use bytepath::stats::{Metric, Rules, analyse};
use bytepath::study::path_spec;

use bytepath::{meter, path};
use made_up::{header, large, study};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

fn render(name: &str, study: &Study) -> Vec<u8> {
    shared::render(name, study, &Style::default())
}

fn text(name: &str, study: &Study) -> String {
    String::from_utf8(render(name, study)).unwrap()
}

/// A row of the long table, by column.
type Row = BTreeMap<String, String>;

fn read_csv(text: &str) -> Vec<Row> {
    csv::Reader::from_reader(text.as_bytes()).deserialize().map(Result::unwrap).collect()
}

/// A busy host may get every trial rejected: the first lines report that, with a remedy.
#[test]
fn a_study_whose_trials_are_all_rejected_says_what_to_do() {
    let mut spoilt = study();
    spoilt.trials.retain(|trial| trial.status == TrialStatus::Measured);
    for trial in &mut spoilt.trials {
        let events = vec!["other processes used 98% of CPU 0 (limit 10%)".into()];
        trial.status = TrialStatus::Rejected { events };
    }
    let count = spoilt.trials.len();
    for name in ["text", "netdev"] {
        let printed = shared::words(&text(name, &spoilt));
        let said =
            format!("nothing to compare: {count} of {count} trials rejected, the first because");
        assert!(printed.contains(&said), "{printed}");
        assert!(printed.contains("`bytepath doctor` lists what else disturbs"), "{printed}");
    }
}

/// Disturbed trials count: their figures are marked, and the first lines name who disturbed them.
#[test]
fn figures_of_a_busy_machine_are_marked() {
    let mut busy = study();
    let of_socket = |trial: &&mut Trial| trial.cell.0 == "socket";
    for trial in busy.trials.iter_mut().filter(of_socket) {
        trial.disturbances =
            ["other processes used 61% of CPU 0", "mostly rustc 146%"].map(String::from).to_vec();
    }
    for name in ["text", "netdev"] {
        let quiet = text(name, &study());
        let printed = text(name, &busy);
        let row = |text: &str| {
            let result = text.split("\nResult").nth(1).unwrap().to_owned();
            let row = result.lines().find(|line| line.trim_start().starts_with("socket "));
            row.unwrap().to_owned()
        };
        assert!(row(&printed).contains(" ~") && !row(&quiet).contains('~'), "{}", row(&printed));
        let words = shared::words(&printed);
        let said = "the first: other processes used 61% of CPU 0; mostly rustc 146%";
        assert!(words.contains(said) && words.contains("--strict counts only"), "{printed}");
        assert!(!shared::words(&quiet).contains("of a busy machine"), "{quiet}");
    }
}

/// The made-up study, cut down to two cells and one block.
fn small() -> Study {
    let mut small = study();
    small.header.cells.retain(|c| ["socket", "splice", "zcrx"].contains(&c.id.0.as_str()));
    let cells = &small.header.cells;
    small.trials.retain(|t| t.block == 0 && cells.iter().any(|c| c.id == t.cell));
    small
}

#[test]
fn netdev_of_the_made_up_study() {
    insta::assert_snapshot!("netdev", text("netdev", &study()));
}

#[test]
fn netdev_of_one_cell_and_of_none() {
    let mut one = small();
    one.trials.retain(|t| t.cell.0 == "socket");
    insta::assert_snapshot!("netdev_one", text("netdev", &one));
    let none = Study {
        header: header(Vec::new()),
        trials: Vec::new(),
        profiles: Vec::new(),
        remarks: Vec::new(),
    };
    mail(&text("netdev", &none));
}

#[test]
fn csv_of_a_small_study() {
    insta::assert_snapshot!("csv", text("csv", &small()));
}

/// Checks that a text is fit for a mail to a kernel list.
fn mail(text: &str) {
    for line in text.lines() {
        assert!(line.len() <= 72, "{} columns: {line}", line.len());
        assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{line:?}");
        assert!(!line.ends_with(' '), "{line:?}");
    }
    assert!(!text.contains("\n\n\n") && !text.starts_with('\n'), "{text}");
}

#[test]
fn netdev_fits_a_mail_and_claims_nothing_it_did_not_see() {
    let said = text("netdev", &study());
    mail(&said);
    let words: String = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["FASTER", "SLOWER", "INCONCLUSIVE", "EQUIVALENT", "6.18.0", "AMD EPYC 9B14"] {
        assert!(words.contains(part), "{part} is missing:\n{said}");
    }
    for reason in ["/dev/udmabuf is missing", "killed by signal 9"] {
        assert!(words.contains(reason), "{reason} is missing:\n{said}");
    }
    assert!(!words.contains("no difference"));
}

/// The command in a mail, split into words as a shell does.
fn command(mail: &str) -> Vec<String> {
    let (_, rest) = mail.split_once("  bytepath run ").expect("a command");
    rest.replace("\\\n", " ").split_whitespace().map(str::to_owned).collect()
}

fn values<'a>(words: &'a [String], flag: &str) -> Vec<&'a str> {
    let pairs = words.windows(2).filter(|pair| pair[0] == flag);
    pairs.map(|pair| pair[1].as_str()).collect()
}

#[test]
fn the_command_requests_the_same_cells_again() {
    let declared = path_spec(path::CATALOG, path::PAIRS);
    let ask = |paths: &[&str], stream: &str, link: &str, cores: &str, baseline: Option<&str>| {
        let paths: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
        let cores = spec::parse_cores(cores, [0, 1, 2]).unwrap();
        let ask = CellRequest { stream, link, baseline, ..CellRequest::of(&paths, &cores) };
        spec::cells(&ask, &declared).unwrap()
    };
    for (paths, stream, link, cores, baseline) in [
        (&["socket", "splice"][..], "", "wire", "two", None),
        (&["socket", "uring", "sendfile+uring"], "read-size=64K,flows=2", "wire", "one", None),
        (&["socket", "splice"], "touch=verify", "offload:mtu=9000,gro=off", "2,0", Some("splice")),
        (&["socket:busy-poll=50", "splice"], "", "wire:mtu=1500", "none", None),
        (&["socket"], "", "big-tcp", "two", None),
    ] {
        let (cells, base) = ask(paths, stream, link, cores, baseline);
        let mut study = Study {
            header: header(cells),
            trials: Vec::new(),
            profiles: Vec::new(),
            remarks: Vec::new(),
        };
        study.header.baseline = base.clone();
        let said = text("netdev", &study);
        mail(&said);
        let words = command(&said);
        let one = |flag, default| values(&words, flag).first().copied().unwrap_or(default);
        let again = ask(
            &values(&words, "--path"),
            one("--stream", ""),
            one("--link", "wire"),
            one("--cores", "two"),
            values(&words, "--baseline").first().copied(),
        );
        assert_eq!(again, (study.header.cells.clone(), base), "{said}");
        let shape = [one("--blocks", ""), one("--warm-up", ""), one("--window", "")];
        assert_eq!((shape, one("--seed", "")), (["5", "1s", "3s"], "42"));
        assert_eq!(spec::parse_design(one("--design", "")), Ok(Design::Trials));
    }
    let mut slices = study();
    slices.header.schedule.design = Design::Slices { slice: 0.25 };
    let words = command(&text("netdev", &slices));
    let design = spec::parse_design(values(&words, "--design")[0]);
    assert_eq!(design, Ok(slices.header.schedule.design));
    // What no flag can express is not expressed wrongly.
    slices.header.schedule.stopping = Some(Stopping { within: 0.01, at_least: 5 });
    assert!(text("netdev", &slices).contains("bytepath run EXPERIMENT.toml"));
    let mut mixed = study();
    mixed.header.cells[3].id = CellId("splice mtu=9000".into());
    assert!(text("netdev", &mixed).contains("bytepath run EXPERIMENT.toml"));
    // An experiment file is named and shown, so that the mail alone is enough.
    let text_of_file =
        "# Why.\n\nbaseline = { path = \"socket\" }\n[factors]\npath = [\"socket\"]\n";
    mixed.header.source = Some(Source { name: "my file.toml".into(), text: text_of_file.into() });
    let said = text("netdev", &mixed);
    mail(&said);
    assert!(said.contains("bytepath run 'my file.toml' --design trials --blocks 5"), "{said}");
    let shown = "  baseline = { path = \"socket\" }\n  [factors]\n  path = [\"socket\"]\n";
    assert!(said.contains(shown) && !said.contains("Why."), "{said}");
    let long: String = (0..99).map(|n| format!("key{n} = {n}\n")).collect();
    mixed.header.source = Some(Source { name: "long.toml".into(), text: long });
    let said = text("netdev", &mixed);
    assert!(said.contains("experiment.toml in the folder") && !said.contains("key7"), "{said}");
}

#[test]
fn the_long_table_holds_every_value_of_every_trial() {
    let study = study();
    let rows = read_csv(&text("csv", &study));
    assert!(rows.iter().all(|r| r.len() == report::columns().count()));
    for trial in &study.trials {
        let own: Vec<&Row> = rows
            .iter()
            .filter(|r| r["trial"] == (trial.order + 1).to_string() && r["cell"] == trial.cell.0)
            .collect();
        let first = own[0];
        assert_eq!((&*first["metric"], &*first["scope"]), ("throughput", "trial"));
        assert_eq!(first["value"].parse().ok(), trial.rate().map(|rate| rate * 8.0));
        assert_eq!(first["cell"], trial.cell.0);
        assert_eq!(first["block"], (trial.block + 1).to_string());
        assert_eq!(first["status"] == "measured", trial.status == TrialStatus::Measured);
        assert_eq!(first["reason"].is_empty(), trial.status == TrialStatus::Measured);
        // Readings and series are complete to the last bit.
        for reading in &trial.readings {
            let same = |r: &&&Row| {
                r["metric"] == reading.metric && r["value"].parse() == Ok(reading.value)
            };
            assert!(own.iter().any(|r| same(&r)), "{reading:?}");
        }
        let steps = trial.series.iter().flat_map(|s| &s.values).count();
        let times = own.iter().map(|r| r["at"].as_str());
        assert!(times.clone().all(|at| at.len() <= 4), "{:?}", times.collect::<Vec<_>>());
        assert_eq!(own.iter().filter(|r| !r["at"].is_empty()).count(), steps);
        for role in &trial.roles {
            let sum: f64 = ["copied", "not_copied", "discarded", "unknown"]
                .map(|part| {
                    let name = format!("ledger.{part}");
                    let found = own
                        .iter()
                        .find(|r| r["metric"] == name && r["role"] == role.role.to_string());
                    found.unwrap()["value"].parse::<f64>().unwrap()
                })
                .iter()
                .sum();
            assert_eq!(sum, role.ledger.delivered as f64);
        }
    }
}

/// All values of a metric have the same unit, so a query by its name is safe.
#[test]
fn a_metric_has_one_unit() {
    let mut units: BTreeMap<String, String> = BTreeMap::new();
    for study in [study(), rr::study(), frames::study()] {
        for row in read_csv(&text("csv", &study)) {
            let unit = units.entry(row["metric"].clone()).or_insert_with(|| row["unit"].clone());
            assert_eq!(*unit, row["unit"], "{row:?}");
        }
    }
    for (metric, unit) in [
        ("throughput", "bit/s"),
        ("flow.throughput.step", "bit/s"),
        ("cpu_per_gib", "s/GiB"),
        ("cpu_per_transaction", "s"),
        ("transactions", "1/s"),
    ] {
        assert_eq!(units.get(metric).map(String::as_str), Some(unit), "{metric}");
    }
}

/// One row per cell, with the figures of the report.
#[test]
fn the_summary_has_a_row_per_cell() {
    let study = study();
    let analysis = analyse(&study, &Rules::default());
    let rows = read_csv(&text("summary-csv", &study));
    assert_eq!(rows.len(), analysis.rows.len());
    let number = |text: &String| text.parse::<f64>().ok();
    for (row, cell) in rows.iter().zip(&analysis.rows) {
        assert_eq!(row.len(), report::summary_columns().count());
        assert_eq!(row["cell"], cell.cell.0);
        assert_eq!(number(&row["rate"]), cell.rate.map(|rate| rate.mean * 8.0));
        assert_eq!(number(&row["cpu"]), cell.cpu_per_unit.map(|cpu| cpu.mean));
        for (metric, name) in [(Metric::Rate, "rate"), (Metric::Cpu, "cpu")] {
            let effect = cell.effect(metric);
            let interval = effect.and_then(|effect| effect.interval);
            let of = |suffix: &str| number(&row[&format!("{name}_{suffix}")]);
            assert_eq!(of("ratio"), effect.map(|effect| effect.ratio));
            assert_eq!(
                [of("low"), of("high")],
                [interval.map(|i| i.low), interval.map(|i| i.high)]
            );
            let word = cell.comparison(metric).map_or("", |c| c.verdict.word());
            assert_eq!(row[&format!("{name}_verdict")], word);
        }
    }
    let splice = rows.iter().find(|row| row["cell"] == "splice").unwrap();
    assert_eq!(
        [&*splice["rate_verdict"], &*splice["rate_unit"], &*splice["unit"]],
        ["FASTER", "bit/s", "GiB"]
    );
    let exchanges = read_csv(&text("summary-csv", &rr::study()));
    assert!(exchanges.iter().any(|row| row["p99_verdict"] == "LOWER LATENCY"));
}

#[test]
fn hostile_names_are_escaped_in_csv() {
    let evil = "=cmd|' /C calc'!A0,\"quoted\"\r\nnew line;\u{202e}\u{200b}\u{1b}[31m\u{1f4a9}";
    let mut hostile = small();
    hostile.header.cells[0].id = CellId(evil.into());
    hostile.trials.iter_mut().filter(|t| t.cell.0 == "socket").for_each(|t| {
        t.cell = CellId(evil.into());
        t.label = evil.into();
    });
    let table = text("csv", &hostile);
    assert!(!table.contains(|c| c != '\n' && is_unsafe_to_display(c)), "{table}");
    let (shown, rows) = (visible(evil), read_csv(&table));
    assert!(rows.iter().any(|r| r["cell"] == *shown && r["label"] == *shown));
}

/// Cells that ran pass, those with a failed trial do not, those that cannot run are skipped.
#[test]
fn ktap_has_a_test_for_each_cell() {
    let mut tested = study();
    tested.header.cells[0].id = CellId("socket".into());
    let ktap = text("ktap", &tested);
    let lines: Vec<&str> = ktap.lines().collect();
    assert_eq!(lines[..2], ["KTAP version 1", "1..8"], "{ktap}");
    let results = lines.iter().filter(|line| !line.starts_with('#')).skip(2);
    let numbers = results.map(|line| line.trim_start_matches("not ").split(' ').nth(1).unwrap());
    assert!(numbers.eq((1..=8).map(|n| n.to_string())), "{ktap}");
    let failed: Vec<&&str> = lines.iter().filter(|line| line.starts_with("not ok ")).collect();
    assert!(failed.len() == 1 && failed[0].ends_with(" uring-zc"), "{ktap}");
    assert!(ktap.contains(" zcrx # SKIP io_uring.zcrx: Operation not supported"), "{ktap}");
    assert!(ktap.contains("# 5 trials: 28.04 Gbit/s, copied"), "{ktap}");
    assert!(ktap.contains("# 1 failed: receiver: killed by signal 9"), "{ktap}");
    assert_eq!(lines.last(), Some(&"# Totals: pass:5 fail:1 xfail:0 xpass:0 skip:2 error:0"));
    assert!(ktap.is_ascii(), "{ktap}");
}

/// All rows of a Parquet file, with the fields of the long table.
fn read_parquet(file: &[u8]) -> Vec<Vec<Field>> {
    let mut on_disk = tempfile::tempfile().unwrap();
    on_disk.write_all(file).unwrap();
    let reader = SerializedFileReader::new(on_disk).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().into_columns().into_iter().map(|(_, f)| f).collect()).collect()
}

fn same(field: &Field, text: &str) -> bool {
    match field {
        Field::Null => text.is_empty(),
        Field::Str(s) => visible(s) == text,
        Field::Long(n) => Ok(*n) == text.parse(),
        Field::TimestampMillis(n) => {
            let at = OffsetDateTime::parse(text, &Rfc3339).unwrap();
            at.unix_timestamp_nanos() == i128::from(*n) * 1_000_000
        }
        Field::Double(n) => Ok(*n) == text.parse(),
        Field::Bool(flag) => flag.to_string() == text,
        other => panic!("{other:?} is not a type of the long table"),
    }
}

fn assert_same_table(study: &Study) {
    assert_same(study, ["csv", "parquet"]);
    assert_same(study, ["summary-csv", "summary-parquet"]);
}

fn assert_same(study: &Study, [csv, parquet]: [&str; 2]) {
    let csv_text = text(csv, study);
    let mut lines = csv::Reader::from_reader(csv_text.as_bytes());
    let rows = read_parquet(&render(parquet, study));
    assert_eq!(lines.records().count(), rows.len());
    let mut lines = csv::Reader::from_reader(csv_text.as_bytes());
    for (line, row) in lines.records().map(Result::unwrap).zip(&rows) {
        assert_eq!(line.len(), row.len());
        for (text, field) in line.iter().zip(row) {
            assert!(same(field, text), "{field:?} is not '{text}' in {line:?}");
        }
    }
}

#[test]
fn parquet_holds_the_same_table_as_csv() {
    assert_same_table(&study());
    // More rows than fit into one group, and no rows at all.
    assert_same_table(&large(20, 18));
    assert_same_table(&Study { trials: Vec::new(), ..study() });
}

/// Request/response in every report: transactions, microseconds, percentiles.
#[test]
fn exchanges_have_a_rate_a_cost_and_a_latency() {
    let study = rr::study();
    for report in ["text", "netdev"] {
        insta::assert_snapshot!(format!("rr_{report}"), text(report, &study));
    }
    mail(&text("netdev", &study));
    assert_same_table(&study);
    let html = text("html", &study);
    for part in [
        "transactions/s",
        "CPU microseconds per transaction",
        "id=\"latency\"",
        "LOWER LATENCY",
        "HIGHER LATENCY",
        "p99.99",
        "client",
    ] {
        assert!(html.contains(part), "{part} is not in the page");
    }
    for report in ["text", "netdev", "html"] {
        let said = text(report, &study);
        assert!(!said.contains("Gbit/s") && !said.contains("per GiB"), "{report}: {said}");
    }
    let csv = text("csv", &study);
    for part in [",transactions,1/s,trial,", ",latency.p99.9,s,trial,", ",window.count,1,trial,"] {
        assert!(csv.contains(part), "{part} is not in the table");
    }
    assert!(!csv.contains(",throughput,bit/s,"));
    let json: serde_json::Value = serde_json::from_str(&text("json", &study)).unwrap();
    let rows = json["analysis"]["rows"].as_array().unwrap();
    let busy = rows.iter().find(|row| row["cell"] == "socket busy-poll=50").unwrap();
    assert_eq!(
        (&busy["work"], &busy["latency"]["percentiles"][2]["percentile"]),
        (&serde_json::Value::from("exchanges"), &serde_json::Value::from("p99"),)
    );
    let words: Vec<(&str, &str)> = busy["comparisons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["question"].as_str().unwrap(), c["verdict"]["word"].as_str().unwrap()))
        .collect();
    assert_eq!(
        words,
        [
            ("rate", "faster"),
            ("cpu", "more-cpu"),
            ("p50", "lower-latency"),
            ("p90", "lower-latency"),
            ("p99", "lower-latency"),
            ("p99.9", "higher-latency"),
        ]
    );
}

/// A Python that has pandas, pyarrow and DuckDB: the one that `make test` prepares, or the
/// system's.
fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/python/bin/python");
    [own, PathBuf::from("python3")].into_iter().find(|python| {
        let check = Command::new(python).args(["-c", "import pandas, pyarrow, duckdb"]).output();
        check.is_ok_and(|output| output.status.success())
    })
}

#[test]
fn pandas_reads_the_same_from_parquet_and_csv() {
    let Some(python) = python() else {
        skip!("no python with pandas, pyarrow, duckdb");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for name in ["csv", "parquet"] {
        std::fs::write(folder.path().join(format!("t.{name}")), render(name, &study())).unwrap();
    }
    let script = r#"
import pandas as pd
a = pd.read_parquet("t.parquet")
# The default parser is off by one in the last place.
b = pd.read_csv("t.csv", float_precision="round_trip")
assert list(a.columns) == list(b.columns), a.columns
assert len(a) == len(b) > 1000, len(a)
assert str(a.trial_started.dtype).startswith("datetime64[ms, UTC"), a.dtypes
assert a.value.dtype == "float64" and a.block.dtype == "int64" and a.baseline.dtype == bool, a.dtypes
assert ((a.value == b.value) | (a.value.isna() & b.value.isna())).all()
for name in ["cell", "metric", "unit", "status", "role", "item", "label"]:
    assert (a[name].fillna("") == b[name].fillna("")).all(), name
t = a[(a.metric == "throughput") & (a["scope"] == "trial")]
print(t.groupby("cell").value.mean()["socket"])
"#;
    let output =
        Command::new(python).args(["-c", script]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mean: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert!((mean / 1e9 - 28.04).abs() < 1e-6, "{mean}");
}

/// Runs the examples of the document, one after the other in a folder with a study.
#[test]
fn the_examples_of_the_document_run() {
    let document = include_str!("../../docs/reference/formats.md");
    let folder = tempfile::tempdir().unwrap();
    write_study(&folder.path().join("bytepath-studies/20260102-030405"), &study());
    let program = Path::new(env!("CARGO_BIN_EXE_bytepath")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let python = python();
    let has_jq = Command::new("jq").arg("--version").output().is_ok();
    let blocks = document.split("```").skip(1).step_by(2).map(|b| b.split_once('\n').unwrap());
    let mut languages = BTreeMap::new();
    for (language, code) in blocks {
        *languages.entry(language).or_insert(0) += 1;
        let mut command = match (language, &python) {
            ("sh", _) if code.contains("jq ") && !has_jq => {
                skip!("no jq");
                continue;
            }
            ("sh", _) => Command::new("sh"),
            (_, None) => {
                skip!("no python with pandas, pyarrow, duckdb");
                continue;
            }
            (_, Some(python)) => Command::new(python),
        };
        let query = "import duckdb, sys; print(duckdb.sql(sys.argv[1]))";
        match language {
            "sh" => command.args(["-euc", code]),
            "python" => command.args(["-c", code]),
            "sql" => command.args(["-c", query, code]),
            other => panic!("examples in {other} are not run"),
        };
        let output = command.current_dir(folder.path()).env("PATH", &path).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{code}{}", String::from_utf8_lossy(&output.stderr));
        assert!(code.contains("-o ") || printed.contains("splice"), "{code}{printed}");
    }
    assert_eq!(languages, BTreeMap::from([("python", 2), ("sh", 2), ("sql", 2)]));
}

fn write_study(folder: &Path, study: &Study) {
    let mut writer = bytepath::study::StudyWriter::create(folder, &study.header).unwrap();
    study.trials.iter().for_each(|trial| writer.append(std::slice::from_ref(trial)).unwrap());
}

#[test]
fn the_same_study_gives_the_same_bytes_in_every_format() {
    for report in CATALOG {
        let name = report.name;
        for style in [Style::default(), Style { details: true, ..Style::default() }] {
            let written = || shared::render(name, &study(), &style);
            assert!(written() == written(), "{name}, {style:?}");
        }
        assert_eq!(report.binary, name.ends_with("parquet"));
    }
}

#[test]
fn a_report_goes_to_a_file_whose_name_tells_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let study_folder = folder.path().join("study");
    let study = study();
    write_study(&study_folder, &study);
    let show = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        command.arg("show").arg(&study_folder).args(arguments).current_dir(folder.path());
        command.output().unwrap()
    };
    let by_suffix = |r: &&&report::Report| {
        report::find_by_extension(r.extension).is_some_and(|first| first.name == r.name)
    };
    for report in CATALOG.iter().filter(by_suffix).filter(|r| r.extension != "txt") {
        let file = format!("report.{}", report.extension);
        // The second run replaces the first.
        for _ in 0..2 {
            assert!(show(&["--out", &file]).status.success(), "{file}");
        }
        let written = std::fs::read(folder.path().join(&file)).unwrap();
        assert!(written == render(report.name, &study), "{file}");
        assert!(show(&["--format", report.name]).stdout == written);
    }
    assert!(show(&["--json"]).stdout == render("json", &study));
    let named = show(&["--format", "netdev", "--out", "mail"]);
    assert!(named.status.success());
    assert_eq!(std::fs::read(folder.path().join("mail")).unwrap(), render("netdev", &study));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap()).collect();
    assert!(left.iter().all(|e| !e.file_name().to_string_lossy().contains(".part")), "{left:?}");
    for (arguments, code, words) in [
        (
            &["--out", "report.doc"][..],
            2,
            "cannot infer the format from 'report.doc' (use one of the suffixes .txt",
        ),
        (&["--out", "nowhere/report.csv"], 6, "cannot write nowhere/report.csv"),
        (&["--format", "htlm"], 2, "did you mean 'html'?"),
        (&["--format", "csv", "--json"], 2, "cannot be used with"),
    ] {
        let output = show(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
}

#[test]
fn the_document_names_every_format_and_every_column() {
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/formats.md"),
    )
    .unwrap();
    let figure = |name: String| {
        let suffixes = ["_ratio", "_low", "_high", "_verdict"];
        let figure = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
        figure.map_or(name.clone(), str::to_owned)
    };
    let columns = report::columns().chain(report::summary_columns().map(figure));
    let names = CATALOG.iter().map(|r| r.name.to_owned()).chain(columns);
    let scopes = ["evidence", "call", "thread", "flow", "link", "machine", "cpu"];
    for name in names.chain(scopes.map(str::to_owned)) {
        assert!(text.contains(&format!("`{name}`")), "docs/reference/formats.md lacks `{name}`");
    }
    let tables = [study(), rr::study()].map(|study| read_csv(&self::text("csv", &study)));
    let metrics: std::collections::BTreeSet<String> =
        tables.into_iter().flatten().map(|mut row| row.remove("metric").unwrap()).collect();
    let meters: Vec<&str> = meter::CATALOG.iter().map(|m| m.name).collect();
    for metric in metrics {
        let head = metric.split('.').next().unwrap();
        let of_meter = meters.contains(&head) || head == "tcp";
        assert!(of_meter || text.contains(&format!("`{metric}`")), "docs lack `{metric}`");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_study_makes_a_mail_and_a_table(study in any_study()) {
        mail(&text("netdev", &study));
        assert_same_table(&study);
    }
}
