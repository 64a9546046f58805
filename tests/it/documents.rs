//! The commands that documents and experiment files show are commands of this program.

use bytepath::cli::Arguments;
use clap::Parser;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_command_that_is_shown_can_be_typed() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in documents() {
        for command in commands(&fs::read_to_string(&file).unwrap()) {
            let Some(words) = shlex::split(&command) else { continue };
            // A subcommand alone names it, and needs not be whole.
            if words.len() < 3 {
                continue;
            }
            count += 1;
            if let Err(e) = Arguments::try_parse_from(&words) {
                let why = e.to_string().lines().next().unwrap_or_default().to_owned();
                wrong.push(format!("{}: {command}: {why}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 200, "{count} commands");
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders =
        ["", "docs", "docs/guide", "docs/reference", "docs/reference/paths", "experiments"];
    let files = folders.iter().flat_map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    let is_text = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy();
        // What has been released is not typed again.
        (name.ends_with(".md") && name != "CHANGELOG.md") || name.ends_with(".toml")
    };
    let mut files: Vec<PathBuf> = files.filter(is_text).collect();
    files.sort();
    files
}

/// Commands in code, up to what the shell does with their output. A line may go on in the next.
fn commands(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim_start_matches("# ").trim_start_matches('#').trim();
        let line = line.trim_start_matches("$ ").trim_start_matches("sudo ");
        let spans = line.split('`').skip(1).step_by(2);
        let whole = [line].into_iter().filter(|line| !line.contains('`'));
        let shown = spans.chain(whole).filter(|code| code.starts_with("bytepath "));
        found.extend(shown.map(|code| until_shell(code).trim().to_owned()));
    }
    found
}

/// A command without pipes, redirections and what comes after it.
fn until_shell(command: &str) -> &str {
    let mut quote = None;
    for (at, sign) in command.char_indices() {
        match (quote, sign) {
            (None, '\'' | '"') => quote = Some(sign),
            (Some(open), sign) if open == sign => quote = None,
            (None, '|' | ';' | '>' | '<' | '&') => return &command[..at],
            _ => {}
        }
    }
    command
}
