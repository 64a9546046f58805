//! Bytes really copied, counted at the return of the kernel's own copy functions. Kernels that are
//! locked down do not permit that, so it is done in guests whose kernels are not: the double moves
//! the bytes there, and bytepath observes it.

use crate::command::{CommandRunner, DOUBLE};
use bytepath::guest;
use bytepath::host::examine_libraries;
use bytepath::record::{CopyCount, Counter, Ending, Observation};
use bytepath::sys::Roots;
use bytepath_testing::skip;

/// Bytes that each command of the double moves.
const BYTES: u64 = 6 << 20;

/// Bytes that may be copied beyond those that a command moves: none are expected.
const TOLERANCE: u64 = 4096;

/// Parts of a test in `command.rs`.
pub(crate) fn copies_are_counted(guest: &CommandRunner) {
    println!("--- Linux {}", guest.release());
    what_is_copied_is_counted(guest);
    what_goes_by_reference_is_not(guest);
    a_wrong_ledger_is_reported(guest);
    mapped_pages_are_not_copied(guest);
}

/// Write and send at one end, read and receive at the other: every byte twice.
fn what_is_copied_is_counted(guest: &CommandRunner) {
    let seen = watched(guest, &double("copied"));
    let (to_program, from_program) = counted(&seen);
    assert_eq!((seen.sent.ledger.copied, seen.received.ledger.copied), (BYTES, BYTES), "{seen:#?}");
    assert!((BYTES..=BYTES + TOLERANCE).contains(&from_program), "{from_program}: {seen:#?}");
    assert!((BYTES..=BYTES + TOLERANCE).contains(&to_program), "{to_program}: {seen:#?}");
    assert_eq!(seen.disagreement, None);
    println!("copied: {BYTES} bytes each way; {from_program} from the program, {to_program} to it");
}

/// sendfile at one end; discarded unread at the other.
fn what_goes_by_reference_is_not(guest: &CommandRunner) {
    let seen = watched(guest, &double("reference"));
    let (to_program, from_program) = counted(&seen);
    let ledgers = (seen.sent.ledger.unknown, seen.received.ledger.discarded);
    assert_eq!(ledgers, (BYTES, BYTES), "{:#?}", (&seen.warnings, &seen.received));
    assert!(from_program <= TOLERANCE && to_program <= TOLERANCE, "{from_program} {to_program}");
    assert_eq!(seen.disagreement, None);
    println!("by reference: {BYTES} bytes; {from_program} from the program, {to_program} to it");
}

/// A datagram whose length is requested, but of which only the beginning is received: its calls do
/// not show how much that is, the copy functions do.
fn a_wrong_ledger_is_reported(guest: &CommandRunner) {
    let seen = watched(guest, &double("truncated"));
    let (to_program, from_program) = counted(&seen);
    assert_eq!((seen.sent.ledger.copied, seen.received.ledger.copied), (BYTES, BYTES));
    assert!((BYTES..=BYTES + TOLERANCE).contains(&from_program), "{from_program}: {seen:#?}");
    assert!(to_program < BYTES / 8, "{to_program}: {seen:#?}");
    let said = seen.disagreement.as_deref().unwrap_or_default();
    assert!(said.starts_with("received: the ledger has"), "{seen:#?}");
    let text = report(guest, &UNSAMPLED, &double("truncated"));
    let ledger = text.find("Ledger").map(|at| &text[at..]).unwrap_or_default();
    let ledger = ledger.split("\n\n").next().unwrap_or_default();
    assert!(ledger.contains("DISAGREE") && ledger.contains("counted in the kernel"), "{text}");
    println!("{ledger}");
}

/// A study by bytepath itself: pipe pages at one end, mapped ones at the other.
fn mapped_pages_are_not_copied(guest: &CommandRunner) {
    let study = "/bin/bytepath run --path splice+tcp-zerocopy-receive --blocks 1 --meters none \
                 --profile none --warm-up 200ms --window 600ms --study /tmp/study";
    let words: Vec<String> = study.split_whitespace().map(str::to_owned).collect();
    let seen = watched(guest, &words);
    let (to_program, from_program) = counted(&seen);
    let received = &seen.received.ledger;
    assert!(received.not_copied > BYTES / 4, "{seen:#?}");
    assert!(received.not_copied > 9 * received.copied, "{received:?}");
    // Beyond that it copied what the calls report, the occasional rest of a page.
    assert!(
        to_program <= received.copied + received.copied / 20 + TOLERANCE,
        "{to_program} {received:?}"
    );
    assert!(from_program < seen.sent.ledger.unknown / 20, "{from_program} {:?}", seen.sent);
    assert_eq!(seen.disagreement, None, "{seen:#?}");
    println!(
        "mapped: {} bytes, {} copied by the calls, {to_program} by the copy functions",
        received.not_copied, received.copied
    );
}

/// The guest's C library is this machine's, with the symbols of its debug file: these name the
/// memmove chosen for the processor, with which a program copies in user space.
pub(crate) fn memmove_has_its_name(guest: &CommandRunner) {
    if let Some(finding) = examine_libraries(&Roots::real()).first() {
        return skip!("{}", finding.what);
    }
    let copy = "/bin/bytepath copy --engine cpu --size 64K --memory hot --depth 1 -n 2 -t 300ms";
    let words: Vec<String> = copy.split_whitespace().map(str::to_owned).collect();
    let profile = observed(guest, &[], &words).profile.expect("it was sampled");
    let of_library = profile.functions.iter().filter(|one| one.module.contains("/libc.so"));
    let most = of_library.max_by(|a, b| f64::total_cmp(&a.own, &b.own)).expect("it copies");
    println!("{} of {}: {} of {}", most.function, most.module, most.own, profile.total);
    // One function has both names.
    let is_move = ["__memmove_", "__memcpy_"].iter().any(|lead| most.function.starts_with(lead));
    assert!(is_move, "{:?}", profile.functions);
}

/// Returns the copies, which must be counted and not estimated.
fn counted(seen: &Observation) -> (u64, u64) {
    assert_eq!(seen.counter, Some(Counter::TaskStorage), "{:#?}", seen.absent);
    assert!(!seen.absent.iter().any(|absent| absent.what.contains("copied")), "{:?}", seen.absent);
    match seen.copies {
        CopyCount::Counted { to_program, from_program } => (to_program, from_program),
        ref other => panic!("{other:?}: {:#?}", seen.absent),
    }
}

/// Runs a program in the guest under observation. Nothing is sampled: symbolising the samples would
/// take an emulated guest longer than everything else here.
fn watched(guest: &CommandRunner, program: &[String]) -> Observation {
    observed(guest, &UNSAMPLED, program)
}

const UNSAMPLED: [&str; 2] = ["--sample", "none"];

/// Like [`watched`], with these options.
fn observed(guest: &CommandRunner, options: &[&str], program: &[String]) -> Observation {
    let errors = report(guest, &[options, &["--json"]].concat(), program);
    // The program's own output comes before the report.
    let json = errors.find("{\n").map(|at| &errors[at..]).unwrap_or_default();
    let seen: Observation = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {errors}"));
    assert_eq!(seen.ending, Ending::Code(0), "{errors}");
    seen
}

/// Observes a program; returns the standard error.
fn report(guest: &CommandRunner, options: &[&str], program: &[String]) -> String {
    let observe = ["/bin/bytepath", "observe", "--count", "task-storage"];
    let words = observe.iter().chain(options).chain(&["--"]).map(|word| (*word).to_owned());
    let command = guest::GuestCommand {
        words: words.chain(program.iter().cloned()).collect(),
        environment: Vec::new(),
    };
    let outcome = guest.run(command).unwrap();
    let errors = String::from_utf8_lossy(&outcome.errors).into_owned();
    let output = String::from_utf8_lossy(&outcome.output);
    assert_eq!(outcome.ended, "exited with code 0", "{output}{errors}");
    errors
}

/// The double's command line for `part`.
fn double(part: &str) -> Vec<String> {
    [DOUBLE, part, &BYTES.to_string()].map(str::to_owned).to_vec()
}
