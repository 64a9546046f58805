//! Guests whose clock counts instructions: a path costs the same in every boot and in every window,
//! and the study judges nothing else. Without qemu or a kernel it is skipped and reported.

use crate::guests::{able, bytepath, leftovers, shown};
use bytepath::stats::{Metric, Rules, analyse};
use bytepath::study::load;
use std::path::Path;

/// How far a path may differ from itself. Request and response scatter by 0.2 %, and one trial in
/// forty alternates in another pattern, which differs by 4 % (docs/guide/guests.md).
const APART: f64 = 0.05;

#[test]
fn a_path_takes_the_same_instructions_in_every_boot() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let run = |out: &Path, more: &str| {
        let common = "run --testbed vm:count=instructions --workload rr --path socket \
                      --meters threads --profile none --warm-up 200ms";
        let words = [common, more, "--study", out.to_str().unwrap()].join(" ");
        bytepath(&words.split_whitespace().collect::<Vec<_>>())
    };
    let output = run(&out, "--path uring --blocks 2 --window 700ms");
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let study = load(&out).unwrap();
    assert_eq!(study.header.instructions_per_second, Some(62.5e6));
    let analysis = analyse(&study, &Rules::of(&study.header));
    let null = &analysis.noise(Metric::Instructions).expect("two blocks of both").effect;
    println!("socket against itself: {:.4} to {:.4}", null.range.0, null.range.1);
    assert!(null.range.0 > 1.0 - APART && null.range.1 < 1.0 + APART, "{null:?}: {text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in ["Instructions, not time", "instructions per transaction", "FUNCTIONAL ONLY"] {
        assert!(flat.contains(word), "{word}: {text}");
    }
    for word in ["FASTER", "SLOWER", "LESS CPU", "MORE CPU", "CPU-us"] {
        assert!(!flat.contains(word), "{word}: {text}");
    }
    let comparison = analysis.rows[1].comparison(Metric::Instructions).unwrap();
    println!("uring against socket: {:?}", comparison.effect.as_ref().map(|e| e.ratio));
    assert!(flat.contains(comparison.verdict.word()), "{:?}: {text}", comparison.verdict);
    let limited = |limit: &str| {
        let folder = out.to_str().unwrap();
        bytepath(&["compare", folder, "--strict", "--fail-if", limit]).status.code()
    };
    assert_eq!(limited("*.cpu more 3%"), Some(2), "CPU time was not measured");
    assert_eq!(limited("*.instructions more 90%"), Some(0));

    // Reading the meters takes the guest's only CPU away from the roles, before the window begins
    // and after it ends. If that were included, short windows would show a lower cost.
    let short = folder.path().join("short");
    let output = run(&short, "--blocks 1 --window 300ms");
    assert!(output.status.success(), "{}", shown(&output));
    let cost = |folder: &Path| {
        let study = load(folder).unwrap();
        let analysis = analyse(&study, &Rules::of(&study.header));
        analysis.rows[0].cpu_per_unit.as_ref().expect("a count").mean
    };
    let ratio = cost(&short) / cost(&out);
    println!("a short window against a long one: {ratio:.4}");
    // If the reading was included, 0.4 s had 0.90 of what 1.6 s had; an odd trial makes it 0.95.
    assert!((ratio - 1.0).abs() < 0.07, "{ratio}");
    assert_eq!(leftovers(), []);
}
