//! The printed JSON Schemas fit what is actually written and read: every record of a study and
//! every shipped experiment file passes, and invalid ones do not.

use crate::{made_up, profiles, rr};

use bytepath::profile::export::PPROF;
use bytepath::record::{Load, Peak, Restoration, RestorationRow, SettingRecord, SettingValue};
use bytepath::study::{HostsAfter, Loads, StudyWriter};
use serde_json::{Map, Value, json};
use std::fs;
use std::process::Command;

#[test]
fn every_record_of_a_study_fits_its_schema() {
    let study = made_up::study();
    let trial = schema("trial");
    for record in study.trials.iter().chain(&rr::study().trials) {
        check(&trial, &serde_json::to_value(record).unwrap()).unwrap();
    }
    let mut header = serde_json::to_value(&study.header).unwrap();
    check(&schema("study"), &header).unwrap();
    let hosts = json!({
        "schema": study.header.schema,
        "facts": study.header.facts,
        "ceiling": study.header.ceiling,
    });
    check(&schema("hosts"), &hosts).unwrap();

    // The same with settings of the host, and the result of restoring them.
    let value = |text: &str| SettingValue::one("value", text);
    let mut set = study.header.clone();
    set.settings = ["mtu eth0 4148", "rings eth0 rx=4096 tcp-data-split=on", "idle all without=C6"]
        .map(|line| SettingRecord {
            setting: line.parse().unwrap(),
            profile: Some("quiet".into()),
            before: value("1500"),
            after: value("4148"),
            skipped: None,
            host: None,
        })
        .to_vec();
    set.fingerprint.insert("clocksource".into(), "tsc".into());
    check(&schema("study"), &serde_json::to_value(&set).unwrap()).unwrap();
    let after = HostsAfter {
        schema: set.schema,
        fingerprint: set.fingerprint.clone(),
        settings: vec![RestorationRow {
            setting: set.settings[0].setting.clone(),
            before: value("1500"),
            set: value("4148"),
            outcome: Restoration::Restored,
            note: String::new(),
            host: None,
        }],
    };
    check(&schema("hosts-after"), &serde_json::to_value(&after).unwrap()).unwrap();
    let peak = Peak { cell: study.header.baseline.clone(), pilots: vec![1000.0] };
    let loads = Load::new(70, vec![peak.cell.clone()], vec![peak]);
    let loads = Loads { schema: 2, loads: loads.into_iter().collect() };
    check(&schema("loads"), &serde_json::to_value(&loads).unwrap()).unwrap();
    let restored =
        json!({"format": "bytepath-restoration", "schema": 1, "settings": after.settings});
    check(&schema("restoration"), &restored).unwrap();

    // Anything that is not a record does not pass.
    let mut wrong = serde_json::to_value(&study.trials[0]).unwrap();
    wrong["block"] = json!("first");
    assert!(check(&trial, &wrong).unwrap_err().starts_with("/block"));
    wrong = serde_json::to_value(&study.trials[0]).unwrap();
    wrong["status"]["is"] = json!("measurd");
    assert!(check(&trial, &wrong).unwrap_err().starts_with("/status"));
    header.as_object_mut().unwrap().remove("schedule");
    assert!(check(&schema("study"), &header).unwrap_err().contains("schedule"));
}

#[test]
fn every_shipped_experiment_fits_the_schema() {
    let schema = schema("experiment");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments");
    let mut files = 0;
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in paths.filter(|path| path.is_file()) {
        let table: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        let value = serde_json::to_value(table).unwrap();
        check(&schema, &value).unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
        files += 1;
    }
    assert!(files >= 6);
    for wrong in [
        json!({}),
        json!({"factors": {"path": "socket"}, "blcoks": 3}),
        json!({"factors": {"path": "socket", "mut": 1500}}),
        json!({"factors": {"path": []}}),
        json!({"factors": {"path": "socket", "gro": "maybe"}}),
        json!({"factors": {"path": "socket", "flows": 0}}),
        json!({"factors": {"path": "socket"}, "margin": 2}),
        json!({"factors": {"path": "socket"}, "stop": {"at-least": 3}}),
        json!({"factors": {"path": "socket"}, "meters": ["cpus"]}),
        json!({"factors": {"path": "socket"}, "profile": 499}),
        json!({"factors": {"path": "socket"}, "settings": 3}),
        json!({"factors": {"path": "socket"}, "settings": {"sets": []}}),
    ] {
        assert!(check(&schema, &wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_observation_fits_its_schema() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/observations/made-up.json");
    let seen: bytepath::record::Observation =
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert!(seen.tcp.is_some() && seen.host.is_some() && !seen.limits.is_empty());
    let schema = schema("observation");
    let mut value = serde_json::to_value(&seen).unwrap();
    check(&schema, &value).unwrap();
    value["tcp"]["connections"][0]["busy"] = json!("long");
    assert!(check(&schema, &value).is_err());
}

#[test]
fn what_diff_prints_fits_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["before", "after"].map(|name| {
        let path = folder.path().join(format!("{name}.pb.gz"));
        let trial = profiles::trial(name, name == "after", 0.0, "");
        PPROF.write(&trial, &mut fs::File::create(&path).unwrap()).unwrap();
        path.into_os_string().into_string().unwrap()
    });
    let pair = ["baseline.txt", "affinity.txt"]
        .map(|name| format!("{}/tests/data/affinity-2002/{name}", env!("CARGO_MANIFEST_DIR")));
    let diff = schema("diff");
    for (files, options) in [
        (&pair, &["--json"][..]),
        (&pair, &["--json", "--top", "3", "--by", "thread", "--total", "--per", "sample"]),
        (&files, &["--json", "--by", "role", "--idle"]),
        (&files, &["--json", "--by", "subsystem", "--per", "packet", "--threshold", "10"]),
    ] {
        let printed = printed(files, options);
        check(&diff, &printed).unwrap_or_else(|wrong| panic!("{options:?}: {wrong}"));
        assert!(!printed["rows"].as_array().unwrap().is_empty(), "{options:?}");
    }
    let mut wrong = printed(&pair, &["--json"]);
    wrong["rows"][0]["presence"] = json!("sometimes");
    assert!(check(&diff, &wrong).unwrap_err().starts_with("/rows/0/presence"));
    wrong = printed(&pair, &["--json"]);
    wrong["rows"][0].as_object_mut().unwrap().remove("saved");
    assert!(check(&diff, &wrong).unwrap_err().contains("saved"));

    let explanation = schema("explanation");
    for unit in ["gib", "packet"] {
        let printed = printed(&files, &["--explain", "json", "--per", unit]);
        check(&explanation, &printed).unwrap_or_else(|wrong| panic!("{unit}: {wrong}"));
        assert_eq!(
            (&printed["per"], &printed["charts"].as_array().unwrap().len()),
            (&json!(unit), &4)
        );
    }
    let mut wrong = printed(&files, &["--explain", "json"]);
    check(&explanation, &wrong).unwrap();
    wrong["waterfalls"][0]["parts"][0]["subsystem"] = json!("coffee");
    let place = check(&explanation, &wrong).unwrap_err();
    assert!(place.starts_with("/waterfalls/0/parts/0/subsystem"), "{place}");
    // The output of the other command is not an explanation.
    assert!(check(&explanation, &printed(&pair, &["--json"])).is_err());
}

/// Each document that a command prints, besides those above.
#[test]
fn what_commands_print_fits_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    for (name, study) in [("made-up", made_up::study()), ("rr", rr::study())] {
        let mut writer = StudyWriter::create(&folder.path().join(name), &study.header).unwrap();
        study.trials.iter().for_each(|trial| writer.append(std::slice::from_ref(trial)).unwrap());
    }
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let profile = format!("profile {data}/affinity-2002/baseline.txt");
    let advise = format!("advise {data}/observations/made-up.json made-up");
    let mut tested = Vec::new();
    for (document, command) in [
        ("plan", "run --path socket --dry-run"),
        ("analysis", "show made-up"),
        ("analysis", "show rr"),
        ("comparison", "compare made-up"),
        ("comparison", "compare made-up made-up --fail-if *.rate\u{a0}slower\u{a0}2%"),
        ("published", "compare published:battle"),
        ("published", "compare published:battle made-up"),
        ("published-works", "compare published:"),
        ("history", "history ."),
        ("advice", &advise),
        ("profile-summary", &profile),
        ("copy", "copy --engine cpu --size 64K -n 2 --time 10ms"),
        ("size", "size --rate 1G --rtt 1ms"),
        ("doctor", "doctor"),
        ("paths", "paths"),
        ("meters", "meters"),
        ("settings", "settings quiet"),
        ("setting-names", "settings"),
        ("journal", "restore --show"),
    ] {
        let words =
            command.split(' ').map(|word| word.replace('\u{a0}', " ")).chain(["--json".into()]);
        let mut bytepath = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        bytepath.args(words).current_dir(folder.path());
        let output = bytepath.output().unwrap();
        let printed = serde_json::from_slice(&output.stdout);
        let printed: Value = printed.unwrap_or_else(|e| {
            panic!("{command}: {e}: {}", String::from_utf8_lossy(&output.stderr))
        });
        let fits = check(&schema(document), &printed);
        fits.unwrap_or_else(|wrong| panic!("{command}: {wrong}"));
        tested.push(document);
    }
    // Those of this file, and those of fleet.rs and power.rs.
    let elsewhere = "experiment study trial hosts hosts-after loads power observation diff counters \
                     explanation restoration fleet";
    let output = Command::new(env!("CARGO_BIN_EXE_bytepath")).arg("schema").output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    let listed = list.lines().skip(1).filter(|line| !line.starts_with("    "));
    let listed: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(listed.len() > 20, "{list}");
    for document in listed {
        assert!(
            tested.contains(&document) || elsewhere.contains(document),
            "{document} is not tested"
        );
    }
}

#[test]
fn counters_side_by_side_fit_their_schema() {
    let folder = tempfile::tempdir().unwrap();
    // Made up.
    let before = ("before", "1,000 cycles # 1.0 GHz (50.0%)\n");
    let files = [before, ("after", "<not counted> cycles\n 7 faults\n")].map(|(name, text)| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    });
    let counters = schema("counters");
    for options in [&["--json"][..], &["--json", "--work", "7,8"]] {
        let printed = printed(&files, options);
        check(&counters, &printed).unwrap_or_else(|wrong| panic!("{options:?}: {wrong}"));
        assert_eq!(printed["rows"][0]["before"], json!(1000.0));
        assert_eq!(printed["rows"][0]["after"], json!(null));
    }
    assert!(check(&schema("diff"), &printed(&files, &["--json"])).is_err());
}

fn printed(files: &[String; 2], options: &[&str]) -> Value {
    let mut bytepath = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    let output = bytepath.arg("diff").args(files).args(options).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn schema(subject: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    let output = command.args(["schema", subject]).output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks that a command's output fits its `bytepath schema`.
pub fn assert_fits(document: &str, printed: &Value) {
    check(&schema(document), printed).unwrap_or_else(|wrong| panic!("{document}: {wrong}"));
}

/// Checks a value by the part of JSON Schema that our schemas use. An unknown keyword in a schema
/// is an error, so that none is ignored.
fn check(schema: &Value, value: &Value) -> Result<(), String> {
    at(schema, schema, value, "")
}

fn at(root: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{place}: {what}: {value}"));
    let schema = match schema {
        Value::Bool(true) => return Ok(()),
        Value::Bool(false) => return wrong("nothing may be here"),
        Value::Object(schema) => schema,
        other => panic!("{other} is not a schema"),
    };
    for (word, says) in schema {
        let fits = |schema: &&Value| at(root, schema, value, place).is_ok();
        match word.as_str() {
            "$ref" => {
                let target = says.as_str().unwrap().strip_prefix('#').unwrap();
                at(root, root.pointer(target).expect("a definition"), value, place)?;
            }
            "type" => {
                let types = says.as_array().cloned().unwrap_or_else(|| vec![says.clone()]);
                if !types.iter().any(|kind| is(kind.as_str().unwrap(), value)) {
                    return wrong(&format!("is no {says}"));
                }
            }
            "enum" if !says.as_array().unwrap().contains(value) => {
                return wrong("is not a word of");
            }
            "const" if says != value => return wrong("is not what is said"),
            "anyOf" if !says.as_array().unwrap().iter().any(|s| fits(&s)) => {
                return wrong("fits nothing of anyOf");
            }
            "oneOf" if says.as_array().unwrap().iter().filter(fits).count() != 1 => {
                return wrong("fits none or several of oneOf");
            }
            "allOf" => {
                for part in says.as_array().unwrap() {
                    at(root, part, value, place)?;
                }
            }
            "minimum" if value.as_f64() < says.as_f64() && value.is_number() => {
                return wrong("is too small");
            }
            "maximum" if value.as_f64() > says.as_f64() && value.is_number() => {
                return wrong("is too large");
            }
            "exclusiveMaximum" if value.is_number() && value.as_f64() >= says.as_f64() => {
                return wrong("is too large");
            }
            "minItems"
                if value.as_array().is_some_and(|v| (v.len() as u64) < says.as_u64().unwrap()) =>
            {
                return wrong("is too short");
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    at(root, says, item, &format!("{place}/{index}"))?;
                }
            }
            "prefixItems" => {
                let items = value.as_array().into_iter().flatten();
                for (index, (item, says)) in items.zip(says.as_array().unwrap()).enumerate() {
                    at(root, says, item, &format!("{place}/{index}"))?;
                }
            }
            "properties" => {
                for (key, says) in says.as_object().unwrap() {
                    if let Some(member) = value.get(key) {
                        at(root, says, member, &format!("{place}/{key}"))?;
                    }
                }
            }
            "required" => {
                for key in says.as_array().unwrap() {
                    if value.is_object() && value.get(key.as_str().unwrap()).is_none() {
                        return wrong(&format!("lacks {key}"));
                    }
                }
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                let none = Map::new();
                let known = known.unwrap_or(&none);
                for (key, member) in value.as_object().into_iter().flatten() {
                    if !known.contains_key(key) {
                        at(root, says, member, &format!("{place}/{key}"))?;
                    }
                }
            }
            // Keywords that hold here, and those that only annotate or refine.
            "enum" | "const" | "anyOf" | "oneOf" | "minimum" | "maximum" | "exclusiveMaximum"
            | "exclusiveMinimum" | "minItems" | "maxItems" | "maxLength" | "minProperties"
            | "pattern" | "format" | "title" | "description" | "default" | "$schema" | "$defs" => {}
            other => panic!("the schema says '{other}', which this test does not know"),
        }
    }
    Ok(())
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("'{other}' is not a type"),
    }
}
