//! Programs from public reports (`tests/data/cases/17-observe`), compiled for 64 and for 32 bits:
//! the sums that they keep of their calls equal what was observed.

use crate::observe::{text, watched, works};
use bytepath::record::Ending;
use bytepath_testing::{beside, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs with their arguments. Each prints `sent=` and `received=` or, where bytes are not
/// copied, `sendfile=` and `spliced-in=`, in one line for each process.
const RUNS: &[&[&str]] = &[
    &["t", "eagain", "200"],
    &["t", "tfo"],
    &["t", "mptcp"],
    &["t", "udp", "20"],
    &["t", "conns", "300"],
    &["t", "unix", "100"],
    &["t", "writev", "50"],
    &["t", "dup", "100"],
    &["t", "splice", "10", env!("CARGO_BIN_EXE_bytepath")],
    &["pv"],
    &["made-up"],
    &["made-up", "datagrams"],
];

/// Compiles the programs into a folder; `None` if the compiler cannot.
fn compiled(folder: &Path, option: &str) -> Option<Vec<PathBuf>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases/17-observe");
    let compile = |name: &str| {
        let program = folder.join(name);
        let mut command = Command::new("cc");
        command.args([option, "-O1", "-w", "-pthread", "-o"]).arg(&program);
        let output = command.arg(source.join(format!("{name}.c"))).output().ok()?;
        output.status.success().then_some(program)
    };
    ["t", "pv", "made-up"].into_iter().map(compile).collect()
}

/// The sum of a count over the lines printed by the processes of a program.
fn own(errors: &str, names: [&str; 2]) -> u64 {
    let counts = errors.lines().filter(|line| line.starts_with("SELF"));
    let counts = counts.flat_map(str::split_whitespace).filter_map(|word| word.split_once('='));
    counts.filter(|(name, _)| names.contains(name)).map(|(_, n)| n.parse::<u64>().unwrap()).sum()
}

fn sums_are_those_observed(option: &str) {
    if !works() {
        return;
    }
    let _share = beside();
    let folder = tempfile::tempdir().unwrap();
    let Some(programs) = compiled(folder.path(), option) else {
        return skip!("no C compiler for {option}");
    };
    for run in RUNS {
        let (name, arguments) = run.split_first().unwrap();
        let program = programs.iter().find(|program| program.ends_with(name)).unwrap();
        let arguments = arguments.iter().map(|word| (*word).to_owned());
        let words: Vec<String> =
            [program.to_str().unwrap().to_owned()].into_iter().chain(arguments).collect();
        let (seen, output) = watched(&["--sample", "none"], &words);
        let errors = text(&output.stderr);
        if run.contains(&"mptcp") && errors.contains("socket: Protocol not") {
            continue;
        }
        assert_eq!(seen.ending, Ending::Code(0), "{run:?}: {errors}");
        let sent = own(&errors, ["sent", "sendfile"]);
        let received = own(&errors, ["received", "spliced-in"]);
        assert!(sent > 0, "{run:?}: {errors}");
        let observed = (seen.sent.ledger.delivered, seen.received.ledger.delivered);
        assert_eq!(observed, (sent, received), "{run:?} {option}: {errors}");
        let copied = (seen.sent.ledger.copied, seen.received.ledger.copied);
        let expected = if run.contains(&"splice") { (0, 0) } else { observed };
        assert_eq!(copied, expected, "{run:?} {option}");
        if run.contains(&"tfo") {
            let sockets = seen.sockets.iter().filter(|socket| socket.kind == "tcp");
            assert!(sockets.clone().count() == 6, "{:#?}", seen.sockets);
            assert!(
                sockets.into_iter().all(|s| s.local.is_some() && s.remote.is_some()),
                "{seen:#?}"
            );
        }
        if run.contains(&"mptcp") {
            assert!(seen.sockets.iter().all(|socket| socket.kind == "mptcp"), "{seen:#?}");
        }
    }
    // A daemon continues for a moment after its parent has ended.
    let program = programs[0].to_str().unwrap();
    let (seen, _) = watched(&["--sample", "none"], &[program, "daemon"].map(str::to_owned));
    assert_eq!(seen.ending, Ending::Code(7));
    let named = |text: &String| text.contains("of its descendants still run");
    assert!(seen.warnings.iter().any(named), "{:?}", seen.warnings);
}

#[test]
fn programs_of_64_bits_add_up_what_was_observed() {
    sums_are_those_observed("-m64");
}

#[test]
fn programs_of_32_bits_add_up_what_was_observed() {
    sums_are_those_observed("-m32");
}
