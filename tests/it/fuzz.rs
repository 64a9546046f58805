//! Runs every fuzz target on its seeds: inputs that once broke something, or that reach what random
//! bytes do not.

#[path = "../../fuzz/targets/mod.rs"]
mod targets;

use std::path::{Path, PathBuf};

/// Largest input in bytes; a fuzzer cuts longer seeds short.
const LONGEST: usize = 32_768;

/// Other folders whose files are seeds of a target; `fuzz/run` lists the same.
const OTHERS: &[(&str, &str)] = &[("procfs", "tests/data/meters"), ("experiment", "experiments")];

#[test]
fn every_target_holds_on_its_seeds() {
    for (name, check) in targets::TARGETS {
        let others = OTHERS.iter().filter(|(of, _)| of == name).map(|(_, folder)| *folder);
        let own = format!("fuzz/seeds/{name}");
        for seed in others.chain([own.as_str()]).flat_map(files) {
            let bytes = std::fs::read(&seed).unwrap();
            println!("{name}: {}", seed.display());
            assert!(bytes.len() <= LONGEST, "{} bytes are cut short", bytes.len());
            check(&bytes);
            // Also cut short, since any input may end early.
            for end in (0..bytes.len()).step_by(bytes.len() / 16 + 1) {
                check(&bytes[..end]);
            }
        }
    }
}

#[test]
fn what_is_fuzzed_is_what_has_seeds() {
    let folders = std::fs::read_dir(root().join("fuzz/seeds")).unwrap().map(Result::unwrap);
    let mut named: Vec<String> =
        folders.map(|folder| folder.file_name().into_string().unwrap()).collect();
    named.sort();
    assert_eq!(named, targets::TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let run = std::fs::read_to_string(root().join("fuzz/run")).unwrap();
    assert!(run.contains(&format!("-max_len={LONGEST} ")));
    for (name, folder) in OTHERS {
        assert!(run.contains(&format!("{name}) seeds=\"$seeds ../{folder}\"")), "{name}");
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a folder of the repository; at least one.
fn files(folder: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let to = if path.is_dir() { &mut folders } else { &mut found };
            to.push(path);
        }
    }
    assert!(!found.is_empty(), "{folder} is empty");
    found
}
