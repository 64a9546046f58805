//! Checks that the commands in documents and experiment files can be parsed, and that corrected
//! statements do not return.

use bytepath::cli::Arguments;
use clap::Parser;
use clap::error::ErrorKind;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_command_that_is_shown_can_be_typed() {
    let known = crate::shared::commands();
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in documents() {
        // The table of published works has complete commands; elsewhere, some are only named by an
        // option.
        let is_whole = file.ends_with("published.md");
        for command in commands(&fs::read_to_string(&file).unwrap()) {
            let Some(words) = shlex::split(&command) else { continue };
            let is_command = words.get(1).is_some_and(|word| known.contains(word));
            if words.len() < 3 || !is_command || LEFT_OUT.iter().any(|sign| command.contains(sign))
            {
                continue;
            }
            count += 1;
            let Err(e) = Arguments::try_parse_from(&words) else { continue };
            // A placeholder such as FILE, or an option without its value.
            let stands_for_one = |word: &String| {
                word.len() > 1 && word.chars().all(|sign| sign.is_ascii_uppercase())
            };
            let is_named = |word: &String| !is_whole && word.starts_with("--");
            let is_short = words.iter().any(stands_for_one) || words.last().is_some_and(is_named);
            let is_fine = match e.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
                ErrorKind::MissingRequiredArgument => !is_whole,
                ErrorKind::InvalidValue | ErrorKind::ValueValidation => is_short,
                _ => false,
            };
            if !is_fine {
                let why = e.to_string().lines().next().unwrap_or_default().to_owned();
                wrong.push(format!("{}: {command}: {why}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 200, "{count} commands");
}

/// Former statements of documents, help and settings that were wrong. Among what is true: GPU
/// memory is in the published talk, pages of TCP_ZEROCOPY_RECEIVE share one mapping, areas in huge
/// pages fail without them, and text ranks functions by how much they changed.
const FALSE: [&str; 6] = [
    "not in the published work",
    "a separate mapping",
    "runs out of mappings",
    "fall back to small pages",
    "most saved first: the last table",
    "the same cells smaller in a guest",
];

#[test]
fn what_was_false_is_not_said_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let doctor = root.join("crates/host/src/doctor");
    let settings = root.join("crates/spec/src/settings");
    let more = [doctor, settings].map(|folder| fs::read_dir(folder).unwrap());
    let more = more.into_iter().flatten().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = documents().into_iter().chain(more).collect();
    assert!(files.iter().any(|file| file.ends_with("battle-of-zcs.toml")), "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap().replace("\n# ", " ");
        let text = crate::shared::words(&text);
        for sentence in FALSE {
            assert!(!text.contains(sentence), "{}: {sentence}", file.display());
        }
    }
}

/// Signs of a placeholder.
const LEFT_OUT: [&str; 4] = ["...", "$(", "[", "──"];

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders =
        ["", "docs", "docs/guide", "docs/reference", "docs/reference/paths", "experiments"];
    let files = folders.iter().flat_map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    let is_text = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy();
        // Commands of released versions are not checked.
        (name.ends_with(".md") && name != "CHANGELOG.md") || name.ends_with(".toml")
    };
    let mut files: Vec<PathBuf> = files.filter(is_text).collect();
    files.sort();
    files
}

/// Returns the commands in code blocks and code spans, without what the shell does with their
/// output and without text beside them. A span ends with its paragraph.
fn commands(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ").replace("\n# ", "\n");
    let (mut paragraphs, mut found) = (vec![String::new()], Vec::new());
    let mut is_fenced = false;
    for line in text.lines() {
        is_fenced ^= line.starts_with("```");
        let code = line.trim().trim_start_matches("$ ").trim_start_matches("sudo ");
        if (is_fenced || !line.contains('`')) && code.starts_with("bytepath ") {
            found.push(code.to_owned());
        } else if matches!(line.trim(), "" | "#") || line.starts_with("```") {
            paragraphs.push(String::new());
        } else if let Some(prose) = paragraphs.last_mut().filter(|_| !is_fenced) {
            prose.push_str(line);
            prose.push(' ');
        }
    }
    let spans = paragraphs.iter().flat_map(|prose| prose.split('`').skip(1).step_by(2));
    found.extend(spans.map(str::to_owned));
    found.retain(|code| code.starts_with("bytepath "));
    found.iter().map(|code| until_shell(code).trim().to_owned()).collect()
}

#[test]
fn a_stray_backtick_hides_the_commands_of_its_paragraph_alone() {
    let text = "A ` too many: `bytepath paths`.\n\nThen `bytepath\nmeters` and `bytepath show a`.\n\n\
                ```\nbytepath run\n```\n# One ` in a comment,\n#\n# and `bytepath doctor`.\n";
    let expected = ["bytepath run", "bytepath meters", "bytepath show a", "bytepath doctor"];
    assert_eq!(commands(text), expected);
}

/// Cuts a command before pipes, redirections, further commands, and text beside it.
fn until_shell(command: &str) -> &str {
    let mut quote = None;
    for (at, sign) in command.char_indices() {
        match (quote, sign) {
            (None, '\'' | '"') => quote = Some(sign),
            (Some(open), sign) if open == sign => quote = None,
            (None, '|' | ';' | '>' | '<' | '&') => return &command[..at],
            (None, ' ') if command[at..].starts_with("  ") => return &command[..at],
            _ => {}
        }
    }
    command
}
