//! Profiles written by other tools are recognised and read (snapshots; INSTA_UPDATE=always accepts
//! changes), are converted between formats without losing what both have, and are never drawn so
//! that a browser interprets a symbol's name.

use crate::shared::said;
use assert_cmd::Command;
use bytepath::profile::{
    Builder, Frame, FrameKind, Header, Owner, Profile, Sample, Thread, Track, Weight, export,
    import,
};
use bytepath::record::Role;
use bytepath_testing::skip;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/profiles")
}

/// Names of the files of other tools.
fn files() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(data())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| ENDINGS.iter().any(|(ending, _)| name.ends_with(ending)))
        .collect();
    names.sort();
    assert!(names.len() >= 20, "{names:?}");
    names
}

/// Suffixes of files, and their formats.
const ENDINGS: [(&str, &str); 5] = [
    (".perf.data", "perf.data"),
    (".script", "perf-script"),
    (".report", "perf-report"),
    (".folded", "folded"),
    (".pb.gz", "pprof"),
];

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(data().join(name)).unwrap()
}

fn read(name: &str) -> Profile {
    import::read(name, &mut bytes(name).as_slice()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn written(profile: &Profile, format: &str) -> Vec<u8> {
    let mut out = Vec::new();
    export::find(format).unwrap().write(profile, &mut out).unwrap();
    out
}

fn again(profile: &Profile, format: &str) -> Profile {
    import::read("again", &mut written(profile, format).as_slice()).unwrap()
}

/// Everything that was read, as text.
fn dump(profile: &Profile) -> String {
    let mut text = String::new();
    writeln!(text, "{:#?}", profile.header).unwrap();
    for thread in profile.threads() {
        writeln!(text, "thread {:?} {}/{}", thread.name, thread.pid, thread.tid).unwrap();
    }
    for frame in profile.frames() {
        let Frame { function, module, build_id, file, kind, inlined } = frame;
        let inlined = if *inlined { " inlined" } else { "" };
        writeln!(text, "{kind:?}{inlined} {function} @{module} {build_id} {file}").unwrap();
    }
    for sample in profile.samples() {
        let stack: Vec<String> =
            profile.stack(sample.stack).iter().map(|id| id.0.to_string()).collect();
        let Sample { thread, owner, cpu, time, count, weight, .. } = sample;
        let stack = stack.join(" ");
        writeln!(text, "{thread:?} {owner} {cpu:?} {time:?} {count} x {weight} [{stack}]").unwrap();
    }
    text
}

#[test]
fn files_of_other_tools() {
    for name in files() {
        insta::assert_snapshot!(name.replace('.', "_"), dump(&read(&name)));
    }
}

#[test]
fn every_file_is_recognised_for_what_it_is() {
    for name in files() {
        let (_, format) = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)).unwrap();
        let unpacked = {
            let packed = bytes(&name);
            let mut plain = Vec::new();
            match packed.starts_with(&[0x1f, 0x8b]) {
                true => {
                    let mut decoder = flate2::read::GzDecoder::new(&packed[..]);
                    std::io::Read::read_to_end(&mut decoder, &mut plain).unwrap();
                }
                false => plain = packed,
            }
            plain
        };
        let head = &unpacked[..unpacked.len().min(import::HEAD)];
        let first = import::CATALOG.iter().find(|importer| (importer.recognises)(head)).unwrap();
        assert_eq!(first.name, *format, "{name}");
    }
}

/// The same recording, printed by `perf script` and by `perf report`, has the same shares.
#[test]
fn script_and_report_agree() {
    let self_shares = |profile: &Profile| {
        let mut shares: BTreeMap<String, f64> = BTreeMap::new();
        for sample in profile.samples() {
            if let Some(leaf) = profile.stack(sample.stack).first() {
                let name = profile.frame(*leaf).function.clone();
                *shares.entry(name).or_default() += sample.weight / profile.total() * 100.0;
            }
        }
        shares
    };
    let all = self_shares(&read("period.report"));
    for name in ["children.report", "dso-first.report", "pid.report"] {
        let other = self_shares(&read(name));
        assert_eq!(all.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>(), "{name}");
        for (function, share) in &all {
            assert!((share - other[function]).abs() < 0.1, "{name}: {function}");
        }
    }
    // The recording's own file has addresses, with the same number of samples and the same time.
    let raw = read("chains.perf.data");
    let table = read("period.report");
    assert_eq!((raw.count(), raw.total()), (table.count(), table.total()));
}

/// A table in a mail that has lost its columns, with quote marks and with prose between its rows,
/// is read like the table itself; without its heading, too, as far as the rows are unambiguous.
#[test]
fn a_mail_loses_the_columns_of_a_table_and_nothing_else() {
    let collapsed = |name: &str, comments: bool| {
        let text = String::from_utf8(bytes(name)).unwrap();
        let lines = text.lines().filter(|line| comments || !line.starts_with('#'));
        let quoted =
            |line: &str| line.split_whitespace().fold("> ".to_owned(), |all, w| all + w + " ");
        lines.map(quoted).collect::<Vec<_>>().join("\nas I said\n")
    };
    let rows = |profile: &Profile| {
        let mut rows: Vec<_> = profile
            .samples()
            .iter()
            .map(|s| {
                let frame = profile.frame(profile.stack(s.stack)[0]).clone();
                (frame, profile.thread(s.thread).clone(), s.weight.to_bits(), s.count)
            })
            .collect();
        rows.sort_by_key(|row| format!("{row:?}"));
        rows
    };
    for name in ["flat.report", "comma.report", "pid.report", "children.report"] {
        let (text, table) = (collapsed(name, true), read(name));
        let mail =
            import::read("mail", &mut text.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(rows(&mail), rows(&table), "{name}");
        assert_eq!(mail.header.event, table.header.event, "{name}");
    }
    // Without a heading, nothing marks the end of a function's name.
    let error = import::read("mail", &mut collapsed("period.report", true).as_bytes()).unwrap_err();
    assert!(error.message.contains("'busy net rx 0' comes after the name"), "{error}");
    for name in ["flat.report", "comma.report", "pid.report", "children.report"] {
        let text = collapsed(name, false);
        let bare =
            import::read("mail", &mut text.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let named = |profile: &Profile| {
            let rows = rows(profile).into_iter();
            rows.map(|(frame, thread, _, _)| (frame, thread)).collect::<Vec<_>>()
        };
        assert_eq!(named(&bare), named(&read(name)), "{name}");
        assert_eq!(bare.header.weight, Weight::Percent, "{name}");
    }
}

fn by_stack(profile: &Profile, name: impl Fn(&Frame) -> String) -> BTreeMap<String, f64> {
    let mut weights = BTreeMap::new();
    for sample in profile.samples() {
        let mut line = profile.thread(sample.thread).name.clone();
        for id in profile.stack(sample.stack).iter().rev() {
            line.push(';');
            line.push_str(&name(profile.frame(*id)));
        }
        *weights.entry(line).or_insert(0.0) += sample.weight;
    }
    weights
}

#[test]
fn profiles_survive_the_formats_that_can_hold_them() {
    for name in files() {
        let profile = read(&name);
        assert_eq!(again(&profile, "pprof"), profile, "{name}");
        let functions = |frame: &Frame| frame.function.replace(';', ":");
        if profile.threads().iter().all(|thread| !thread.name.is_empty()) {
            let folded = again(&profile, "folded");
            assert_eq!(by_stack(&folded, functions), by_stack(&profile, functions), "{name}");
        }
    }
}

#[test]
fn a_name_that_reads_like_a_counter_is_a_name() {
    let mut builder = Builder::new(Header::default());
    let function = "\n1,234 cycles # 2 GHz\n".to_owned();
    let frame = builder.frame(Frame { function, ..Frame::default() });
    let sample = Sample {
        stack: builder.stack(&[frame]),
        thread: builder.thread(Thread::default()),
        owner: Owner::default(),
        cpu: None,
        time: None,
        count: 1,
        weight: 1.0,
    };
    builder.add(sample);
    let profile = builder.build();
    assert_eq!(again(&profile, "pprof"), profile);
}

/// inferno folds a perf script as we do, except for thread names, whose words it joins.
#[test]
fn inferno_folds_the_same() {
    use inferno::collapse::Collapse;
    use inferno::collapse::perf::{Folder, Options};
    let sorted = |text: Vec<u8>| {
        let text = String::from_utf8(text).unwrap();
        let stack = |line: &str| line.split_once(';').unwrap().1.to_owned();
        // Our output begins with the unit of the weights.
        let lines = text.lines().filter(|line| !line.starts_with("# "));
        let mut lines: Vec<String> = lines.map(stack).collect();
        lines.sort();
        lines
    };
    let mut options = Options::default();
    options.annotate_kernel = true;
    let mut theirs = Vec::new();
    Folder::from(options).collapse(bytes("chains.script").as_slice(), &mut theirs).unwrap();
    let ours = sorted(written(&read("chains.script"), "folded"));
    assert_eq!(ours, sorted(theirs));
    assert!(!ours.is_empty());
}

/// A profile with every feature.
fn rich() -> Profile {
    let mut builder = Builder::new(Header {
        title: "</title><script>alert(1)</script>".into(),
        event: "cycles".into(),
        weight: Weight::Events,
        seconds: Some(2.0),
        tracks: vec![
            Track {
                name: "throughput".into(),
                unit: "bytes/s".into(),
                points: vec![(0.5, 1e9), (1.0, 3e9), (1.5, 2e9)],
            },
            Track { name: "softirq".into(), unit: "%".into(), points: vec![(1.0, 40.0)] },
        ],
        ..Header::default()
    });
    let mut frame = |function: &str, kind, inlined| {
        builder.frame(Frame { function: function.into(), kind, inlined, ..Frame::default() })
    };
    let frames = [
        frame(
            "</text><script>alert(\"x\")</script>; ' & \u{1}\u{1b}[31m",
            FrameKind::Kernel,
            false,
        ),
        frame("copy<T>", FrameKind::User, true),
        frame("main", FrameKind::User, false),
    ];
    let stack = builder.stack(&frames);
    let other = builder.stack(&frames[1..]);
    for (index, name) in ["rx-0", "tx-0"].into_iter().enumerate() {
        let thread = builder.thread(Thread { name: name.into(), pid: 7, tid: 8 + index as u32 });
        for (time, weight) in [(1.25, 5.5), (0.25, 1e12)] {
            builder.add(Sample {
                stack: if index == 0 { stack } else { other },
                thread,
                owner: Owner::Role(if index == 0 { Role::Receiver } else { Role::Sender }),
                cpu: Some(1),
                time: (index == 0).then_some(time),
                count: 1,
                weight,
            });
        }
    }
    builder.build()
}

#[test]
fn no_name_reaches_a_browser_as_anything_but_text() {
    let svg = String::from_utf8(written(&rich(), "svg")).unwrap();
    assert!(!svg.contains("<script>alert") && !svg.contains("</text><script"), "{svg}");
    assert!(svg.contains("&lt;script&gt;"));
    assert!(svg.chars().all(|c| !c.is_control() || c == '\n' || c == '\t' || c == '\r'));
    // Kernel frames are orange, the only colour without blue.
    let fills = svg.split("fill=\"rgb(").skip(1).filter_map(|rest| rest.split_once(")\""));
    assert!(
        fills.map(|(fill, _)| fill).any(|fill| fill != "0,0,0" && fill.ends_with(",0")),
        "{svg}"
    );
    // The only script is the picture's own.
    assert_eq!(svg.matches("<script").count(), 1);
    let empty = Builder::new(Header::default()).build();
    assert!(String::from_utf8(written(&empty, "svg")).unwrap().contains("no samples"));
    for format in export::CATALOG {
        let (one, two) = (written(&rich(), format.name), written(&rich(), format.name));
        assert!(one == two, "{} is not the same twice", format.name);
        assert_eq!(format.binary, format.name == "pprof");
        written(&empty, format.name);
    }
}

#[test]
fn firefox_has_threads_over_time_and_counters() {
    let json = written(&rich(), "firefox");
    let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let threads = value["threads"].as_array().unwrap();
    let names: Vec<_> = threads.iter().map(|thread| thread["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["rx-0", "tx-0"]);
    let deltas = |thread: &serde_json::Value| -> Vec<f64> {
        let samples = &thread["samples"];
        samples["timeDeltas"].as_array().unwrap().iter().map(|t| t.as_f64().unwrap()).collect()
    };
    assert_eq!(deltas(&threads[0]), [250.0, 1000.0]);
    assert_eq!(deltas(&threads[1]), [0.0], "two equal samples without times are one");
    let weights = threads[0]["samples"]["weight"].as_array().unwrap();
    assert!(weights[0].as_i64().unwrap() > 1_000_000, "{weights:?}");
    let counters = value["counters"].as_array().unwrap();
    let shown: Vec<_> = counters
        .iter()
        .map(|c| {
            (
                c["name"].as_str().unwrap(),
                c["category"].as_str().unwrap(),
                c["samples"]["count"].clone(),
            )
        })
        .collect();
    // Amounts between two points: half a second at each rate.
    assert_eq!(shown[0], ("throughput", "Bandwidth", serde_json::json!([5e8, 1.5e9, 1e9])));
    assert_eq!(shown[1], ("softirq", "CPU", serde_json::json!([40.0])));
    assert!(value["meta"]["symbolicated"].as_bool().unwrap());
}

fn bytepath() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bytepath"))
}

#[test]
fn the_command_shows_a_profile() {
    let file = data().join("chains.script");
    let (code, page, _) = said(bytepath().arg("profile").arg(&file).args(["--top", "3"]));
    assert_eq!(code, 0);
    insta::assert_snapshot!("page", page.replace(&*data().to_string_lossy(), "PROFILES"));
    // From standard input, compressed, the result is the same.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &bytes("chains.script")).unwrap();
    let packed = packed.finish().unwrap();
    let (_, other, _) = said(bytepath().args(["profile", "-", "--top", "3"]).write_stdin(packed));
    let rest = |page: &str| page.split_once('\n').unwrap().1.to_owned();
    assert_eq!(rest(&other), rest(&page));
    assert!(other.starts_with("profile   standard input\n"));
}

#[test]
fn the_command_shows_owners() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rich.pb.gz");
    std::fs::write(&file, written(&rich(), "pprof")).unwrap();
    let (_, page, _) = said(bytepath().arg("profile").arg(&file));
    for part in [
        "spent by",
        " 50.00%  sender",
        "(sender 100 %)",
        "track     throughput (bytes/s), 3 points",
    ] {
        assert!(page.contains(part), "{part} is missing:\n{page}");
    }
    assert!(!page.contains('\u{1b}'), "{page:?}");
}

/// The CPU's own work for copies by an engine, as published (movdir64b, preparation), is one row.
#[test]
fn submitting_copies_is_a_row_however_small() {
    let folded = "sender;mtcp_write;movdir64b 14\n\
                  sender;mtcp_write;dsa_prep_memcpy;dsa_prep_desc_common 1\n\
                  sender;mtcp_write;dsa_prep_memcpy 1\n\
                  sender;mtcp_write 5984\nsender;tcp_ack_[k] 3980\nsender;kfree_[k] 20\n";
    let show = |text: &str| said(bytepath().args(["profile", "-"]).write_stdin(text.to_owned())).1;
    let page = show(folded);
    let rows = "\n   share  subsystem\n  59.84%  user space\n  39.80%  TCP\n   0.16%  submitting \
                copies\n   0.20%  1 smaller\n\n";
    assert!(page.contains(rows), "{page}");
    assert!(!show("a;work 5\na;main 3\n").contains("subsystem"), "one alone is no table");
}

#[test]
fn a_profile_of_some_cpus_has_what_ran_there() {
    let text: String = [(0, "write"), (0, "write"), (2, "poll"), (5, "poll"), (0, "free")]
        .map(|(cpu, name)| format!("busy 7 [{cpu:03}] 1.0: 10 cycles: 1000 {name} (busy)\n"))
        .concat();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.script");
    std::fs::write(&file, &text).unwrap();
    let show = |cpus: &str| said(bytepath().arg("profile").arg(&file).args(["--cpu", cpus]));
    let (code, page, _) = show("0");
    assert!(code == 0 && page.contains("samples   3 in 1 thread"), "{page}");
    assert!(page.contains(" 66.67%   66.67%  write") && !page.contains("poll"), "{page}");
    // A partial profile is marked as such in every format.
    let note = "only what ran on CPUs 0";
    assert!(page.contains(&format!("note      {note}\n")), "{page}");
    let part = folder.path().join("part.pb.gz");
    let mut convert = bytepath();
    convert.arg("profile").arg(&file).args(["--cpu", "0", "-o"]).arg(&part);
    assert_eq!(said(&mut convert).0, 0);
    let (_, json, _) = said(bytepath().arg("profile").arg(&part).arg("--json"));
    assert!(json.contains(note), "{json}");
    for format in ["text", "json"] {
        let mut parts = bytepath();
        parts.arg("diff").args([&part, &part]).args(["--format", format]);
        let (_, from_parts, _) = said(&mut parts);
        let mut whole = bytepath();
        whole.arg("diff").args([&file, &file]).args(["--cpu", "0", "--format", format]);
        let (_, from_whole, _) = said(&mut whole);
        assert!(from_parts.contains(note) && from_whole.contains(note), "{from_whole}");
    }
    assert!(show("2-5").1.contains("100.00%  100.00%  poll"));
    let (code, _, errors) = show("3,4");
    assert!(code == 2 && errors.contains("name one that has some: 0,2,5"), "{errors}");
    assert!(show("0,x").2.contains("'0,x' is no list of CPUs"));
    let mut diff = bytepath();
    diff.arg("diff").args([&file, &file]).args(["--cpu", "0", "--format", "tsv"]);
    let (code, rows, errors) = said(&mut diff);
    assert!(
        code == 0 && rows.contains("\nwrite\t20\t20\t") && !rows.contains("poll"),
        "{rows}{errors}"
    );
    // A run in which a CPU was idle counts as zero in its mean.
    let idle = folder.path().join("idle.script");
    std::fs::write(&idle, "busy 7 [002] 1.0: 10 cycles: 1000 poll (busy)\n").unwrap();
    let runs = format!("{},{}", file.display(), idle.display());
    let mut diff = bytepath();
    diff.arg("diff").args([&runs, &runs]).args(["--cpu", "0", "--format", "tsv"]);
    let (code, rows, errors) = said(&mut diff);
    assert!(code == 0 && rows.contains("\nwrite\t10\t10\t"), "{rows}{errors}");
}

/// A recording of another host has no names here: that, and the command to run, is reported first.
#[test]
fn addresses_of_another_host_are_named_as_such() {
    let file = data().join("chains.perf.data");
    for arguments in [vec!["profile"], vec!["diff", "-o", "/dev/null", "--format", "text"]] {
        let sides = if arguments[0] == "diff" { 2 } else { 1 };
        let mut command = bytepath();
        command.args(&arguments).args(std::iter::repeat_n(&file, sides));
        let (code, _, stderr) = said(&mut command);
        assert_eq!(code, 0, "{stderr}");
        let lines: Vec<&str> = stderr.lines().collect();
        assert_eq!(lines.len(), sides, "{stderr}");
        for line in lines {
            assert!(line.starts_with("bytepath: functions without a name: "), "{stderr}");
            assert!(
                line.contains("the kernel (build id ") && line.contains("this host's is"),
                "{line}"
            );
            assert!(
                line.contains("perf script -i ") && line.contains("chains.perf.data"),
                "{line}"
            );
        }
    }
}

/// Folded stacks of time are read back as time, with as many samples.
#[test]
fn folded_stacks_keep_their_unit() {
    let folder = tempfile::tempdir().unwrap();
    let folded = folder.path().join("chains.folded");
    let write = |input: &std::path::Path| {
        let (code, _, stderr) = said(bytepath().arg("profile").arg(input).arg("-o").arg(&folded));
        assert_eq!(code, 0, "{stderr}");
    };
    write(&data().join("chains.script"));
    let text = std::fs::read_to_string(&folded).unwrap();
    assert!(text.starts_with("# weight=nanoseconds period="), "{text}");
    let known = read("chains.script");
    let again = import::read("again", &mut text.as_bytes()).unwrap();
    assert_eq!(again.header.weight, known.header.weight);
    assert_eq!(again.header.event, known.header.event);
    assert!((again.total() / known.total() - 1.0).abs() < 1e-9);
    assert_eq!(again.count(), known.count());
    let (_, printed, _) = said(bytepath().arg("diff").arg(&folded).arg(&folded));
    assert!(printed.contains(" CPU-s after the change, "), "{printed}");
    assert!(printed.contains("\nCPU-s by function"), "{printed}");
}

#[test]
fn the_command_converts() {
    let folder = tempfile::tempdir().unwrap();
    let file = data().join("chains.script");
    for exporter in export::CATALOG {
        let out = folder.path().join(format!("x.{}", exporter.extension));
        let (code, page, said) = said(bytepath().arg("profile").arg(&file).arg("--out").arg(&out));
        assert_eq!((code, page.as_str(), said.as_str()), (0, "", ""));
        let printed =
            bytepath().arg("profile").arg(&file).args(["--to", exporter.name]).output().unwrap();
        assert!(printed.stdout == std::fs::read(&out).unwrap(), "{}", exporter.name);
    }
    let packed = folder.path().join("x.pb.gz");
    let (_, one, _) = said(bytepath().arg("profile").arg(&packed).args(["--to", "folded"]));
    let (_, two, _) = said(bytepath().arg("profile").arg(&file).args(["--to", "folded"]));
    assert_eq!(one, two);
}

#[test]
fn the_command_refuses_with_a_reason() {
    let file = data().join("chains.script");
    let fails = |arguments: &[&str], code: i32, words: &[&str]| {
        let (got, _, said) = said(bytepath().arg("profile").arg(&file).args(arguments));
        assert_eq!(got, code, "{said}");
        for word in words {
            assert!(said.contains(word), "{word} is missing: {said}");
        }
    };
    fails(&["--to", "flamegraph"], 2, &["there is no format 'flamegraph'"]);
    fails(&["--from", "perfscript"], 2, &["did you mean 'perf-script'"]);
    fails(&["--out", "x.png"], 2, &["cannot infer the format", ".svg"]);
    fails(&["--from", "perf-report"], 6, &["line 6: ", "before any heading"]);
    fails(&["--from", "pprof"], 6, &["is not a complete pprof"]);
    fails(&["--from", "perf.data"], 6, &["does not begin with PERFILE2"]);
    let (code, _, stderr) = said(bytepath().args(["profile", "/nowhere"]));
    assert_eq!(code, 6);
    assert!(stderr.contains("cannot read /nowhere"), "{stderr}");
    let (code, _, stderr) = said(bytepath().args(["profile", "-"]).write_stdin("dear all\n"));
    assert_eq!(code, 6);
    assert!(stderr.contains("known formats: perf.data, pprof"), "{stderr}");
}

/// On a terminal, made by script(1).
#[test]
fn a_terminal_is_spared_binary() {
    let file = data().join("chains.script");
    let (program, file) = (env!("CARGO_BIN_EXE_bytepath"), file.display());
    for (words, suffix) in [
        (format!("profile '{file}' --to pprof"), "pb.gz"),
        (format!("profile '{file}' --to svg"), "svg"),
        (format!("diff '{file}' '{file}' --format html"), "html"),
        (format!("diff '{file}' '{file}' --explain html"), "html"),
        (format!("diff '{file}' '{file}' --format svg"), "svg"),
        ("observe --format html true".to_owned(), "html"),
        ("show nothing --format html".to_owned(), "html"),
        ("show nothing --format parquet".to_owned(), "parquet"),
        ("run --path socket --format html".to_owned(), "html"),
        ("resume nothing --format parquet".to_owned(), "parquet"),
    ] {
        let line = format!("'{program}' {words}");
        let Ok(output) = Command::new("script").args(["-qec", &line, "/dev/null"]).output() else {
            skip!("no script(1)");
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        let remedy = format!("-o FILE.{suffix}");
        assert!(said.contains("to a terminal") && said.contains(&remedy), "{words}: {said}");
    }
}

#[test]
fn a_compressed_perf_data_is_refused_with_the_way_out() {
    let mut file = bytes("chains.perf.data");
    // The first record of the data section, whose offset is in the header.
    let at = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    file[at..at + 4].copy_from_slice(&81_u32.to_le_bytes());
    let error = import::read("p", &mut file.as_slice()).unwrap_err();
    assert!(error.message.contains("compressed"), "{error}");
    assert!(error.remedy.unwrap().contains("perf script"));
    for cut in [3, 12, 60, 300, 5000, 11_000] {
        let cut = &bytes("chains.perf.data")[..cut];
        let importer = import::find("perf.data").unwrap();
        let error = (importer.read)("p", import::Times::Kept, &mut &cut[..]).unwrap_err();
        assert!(error.message.starts_with("p: "), "{error}");
    }
}
