//! What neither the compiler nor clippy checks: where `unsafe` is allowed, that entries of a
//! catalogue do not use each other, that skipped tests are counted, and that each dependency has
//! its reason.

use std::fs;
use std::path::{Path, PathBuf};

/// A catalogue, the folder of its entries, and the folder's path in code. The files of a folder are
/// in one crate, so no manifest prevents one entry from using another.
const CATALOGUES: &[(&str, &str, &str)] = &[
    ("crates/engine/src/path/catalog.rs", "crates/engine/src/path", "crate::path"),
    ("crates/host/src/testbed/catalog.rs", "crates/host/src/testbed", "crate::testbed"),
    ("crates/meter/src/catalog.rs", "crates/meter/src", "crate"),
    ("crates/report/src/catalog.rs", "crates/report/src/formats", "crate::formats"),
];

#[test]
fn entries_of_a_catalogue_do_not_use_each_other() {
    let mut wrong = Vec::new();
    for (catalogue, folder, path) in CATALOGUES {
        let entries = catalogue_entries(catalogue);
        assert!(entries.len() > 3, "{catalogue}: {entries:?}");
        for (file, text) in rust_files(folder) {
            let below = file.strip_prefix(folder).unwrap().components().next().unwrap();
            let own = Path::new(below.as_os_str()).file_stem().unwrap().to_string_lossy();
            if ["mod", "lib", "catalog"].contains(&&*own) {
                continue;
            }
            for entry in entries.iter().filter(|entry| **entry != own) {
                for form in [format!("super::{entry}::"), format!("{path}::{entry}::")] {
                    if text.contains(&form) {
                        wrong.push(format!("{}: uses its sibling {entry}", file.display()));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_stays_in_sys() {
    let roots = ["src/lib.rs"].map(PathBuf::from).into_iter();
    let crates = crate_folders().map(|folder| folder.join("src/lib.rs"));
    for file in roots.chain(crates).filter(|file| !file.ends_with("sys/src/lib.rs")) {
        let text = fs::read_to_string(root().join(&file)).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{} allows it", file.display());
    }
}

#[test]
fn nothing_is_left_unfinished() {
    // Spelled in two halves, so that this file does not find itself.
    let words = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("FIX", "ME")];
    let wrong: Vec<String> = sources()
        .into_iter()
        .chain(rust_files("crates"))
        .chain(rust_files("tests"))
        .filter(|(_, text)| words.iter().any(|word| text.contains(word)))
        .map(|(file, _)| file.display().to_string())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_skip_is_said_in_one_way() {
    // What a test prints instead of `skip!`, spelled so that this file does not find itself.
    let words = [concat!("SK", "IP"), concat!("skip", "ped"), concat!("not ", "run")];
    let own = "crates/testing/src/lib.rs";
    let wrong: Vec<String> = sources()
        .into_iter()
        .chain(rust_files("crates"))
        .chain(rust_files("tests"))
        .filter(|(file, _)| !file.ends_with(own))
        .flat_map(|(file, text)| {
            let prints = text.split("print").skip(1);
            let said = prints.filter_map(|rest| rest.strip_prefix("ln!(")?.split_once(';'));
            let said = said.filter(|(said, _)| words.iter().any(|word| said.contains(word)));
            said.map(|(said, _)| format!("{}: {said}", file.display())).collect::<Vec<_>>()
        })
        .collect();
    assert!(wrong.is_empty(), "use skip!():\n{}", wrong.join("\n"));
}

/// A test that ends early has reported why: one of the lines before its `return` contains `skip!`,
/// or a call to a helper that reports its refusal so.
#[test]
fn a_test_does_not_end_early_without_a_skip() {
    let tests = rust_files("tests");
    let beds =
        rust_files("crates").into_iter().filter(|(file, _)| file.ends_with("src/test_net.rs"));
    let beds: Vec<_> = beds.collect();
    let shared: Vec<&str> = tests
        .iter()
        .chain(&beds)
        .flat_map(|(_, text)| helpers(text, &[]))
        .filter(|helper| helper.lines[0].trim_start().starts_with("pub"))
        .map(|helper| helper.name)
        .collect();
    assert!(shared.contains(&"able_alone"), "{shared:?}");
    let mut wrong = Vec::new();
    for (file, text) in sources().iter().chain(&rust_files("crates")).chain(&tests) {
        let own = helpers(text, &shared);
        let names: Vec<&str> = own.iter().map(|f| f.name).chain(shared.iter().copied()).collect();
        for test in functions(text).filter(|f| f.is_test) {
            for (at, line) in test.lines.iter().enumerate() {
                if ends_early(line) && !skips(&test.lines[at.saturating_sub(3)..=at], &names) {
                    wrong.push(format!("{}: {}: {}", file.display(), test.name, line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "use skip!():\n{}", wrong.join("\n"));
}

#[test]
fn every_dependency_is_named_with_its_reason() {
    let manifest: toml::Table =
        fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let text = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let dependencies = manifest["workspace"]["dependencies"].as_table().unwrap().keys();
    for name in dependencies.filter(|name| !name.starts_with("bytepath-")) {
        assert!(text.contains(&format!("`{name}`")), "docs/dependencies.md lacks `{name}`");
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn crate_folders() -> impl Iterator<Item = PathBuf> {
    let folders = fs::read_dir(root().join("crates")).unwrap();
    folders.map(|entry| Path::new("crates").join(entry.unwrap().file_name()))
}

fn sources() -> Vec<(PathBuf, String)> {
    let files = rust_files("src");
    assert!(files.len() > 20, "only {} source files found", files.len());
    files
}

fn rust_files(folder: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path.strip_prefix(root()).unwrap().to_owned(), text));
            }
        }
    }
    files
}

/// A function of some source text.
struct Function<'a> {
    name: &'a str,
    is_test: bool,
    /// From its first line to its closing brace.
    lines: Vec<&'a str>,
}

/// Every function that rustfmt has laid out over several lines.
fn functions(text: &str) -> impl Iterator<Item = Function<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    (0..lines.len()).filter_map(move |at| {
        let code = lines[at].trim_start();
        let indent = &lines[at][..lines[at].len() - code.len()];
        let head = code.split_once("fn ").filter(|(before, _)| {
            before.is_empty() || before.starts_with("pub") || *before == "const "
        })?;
        let name = head.1.split(['(', '<']).next()?;
        let end = lines[at..].iter().position(|l| l.strip_prefix(indent) == Some("}"))?;
        let attributes = lines[..at].iter().rev().take_while(|l| l.trim_start().starts_with("#["));
        let is_test = attributes.into_iter().any(|l| l.trim() == "#[test]");
        Some(Function { name, is_test, lines: lines[at..=at + end].to_vec() })
    })
}

/// Functions of a file that return a boolean or an `Option`, and call `skip!` themselves or by one
/// of these or of the `known` ones.
fn helpers<'a>(text: &'a str, known: &[&'a str]) -> Vec<Function<'a>> {
    let answers = |f: &Function| {
        let code = f.lines.concat();
        let head = code.split('{').next().unwrap_or("");
        !f.is_test && ["-> Option<", "-> bool"].iter().any(|answer| head.contains(answer))
    };
    let mut others: Vec<Function> = functions(text).filter(answers).collect();
    let mut found: Vec<Function> = Vec::new();
    loop {
        let names: Vec<&str> = found.iter().map(|f| f.name).chain(known.iter().copied()).collect();
        let (more, rest) = others.into_iter().partition(|f| skips(&f.lines[1..], &names));
        let more: Vec<Function> = more;
        if more.is_empty() {
            return found;
        }
        found.extend(more);
        others = rest;
    }
}

fn ends_early(line: &str) -> bool {
    ["return;", "return }", "return Ok(())"].iter().any(|form| line.contains(form))
}

/// Whether these lines call `skip!` or one of these functions.
fn skips(lines: &[&str], helpers: &[&str]) -> bool {
    let calls = |line: &str, name: &str| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let apart = before.is_none_or(|c| !c.is_alphanumeric() && !"_.".contains(c));
            apart && line[at + name.len()..].starts_with('(')
        })
    };
    lines.iter().any(|line| line.contains("skip!(") || helpers.iter().any(|name| calls(line, name)))
}

/// Modules with an entry in a catalogue.
fn catalogue_entries(file: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let list = text.split_once("static CATALOG").unwrap().1.split_once("];").unwrap().0;
    let list = list.split_once('=').unwrap().1;
    let entries = list.split('&').filter_map(|entry| entry.split_once("::"));
    entries.map(|(module, _)| module.to_owned()).collect()
}
