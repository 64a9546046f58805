//! The files that a package installs beside the program, as the program writes them, and its
//! description of its build.

use crate::shared::{bytepath, commands};
use std::fs;
use std::process::Command;

#[test]
fn the_version_is_short_or_has_commit_target_and_compiler() {
    let version = format!("bytepath {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(bytepath(&["-V"]), (0, version.clone(), String::new()));
    let (code, long, _) = bytepath(&["--version"]);
    assert_eq!(code, 0);
    let rest: Vec<&str> = long.strip_prefix(&version).unwrap().lines().collect();
    assert!(rest.len() == 3 && rest[0].starts_with("commit    "), "{long}");
    let target = rest[1].strip_prefix("target    ").unwrap();
    assert!(target.starts_with(std::env::consts::ARCH) && target.contains("-linux-"), "{long}");
    assert!(rest[2].starts_with("compiler  rustc 1."), "{long}");
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, stderr) = bytepath(&["completions", shell]);
        assert_eq!((code, stderr.as_str()), (0, ""));
        for name in commands() {
            assert!(script.contains(&name), "{shell} lacks {name}");
        }
        assert!(script.contains("dry-run") && script.contains("bytepath"), "{shell}");
    }
    assert_eq!(bytepath(&["completions", "cmd"]).0, 2);
}

/// Values of options, and studies where an argument is expected.
#[test]
fn completions_know_values() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("bytepath-studies/20260102-030405")).unwrap();
    let script = folder.path().join("bytepath.bash");
    fs::write(&script, bytepath(&["completions", "bash"]).1).unwrap();
    let completed = |words: &[&str]| {
        let (word, before) = (words[words.len() - 1], words[words.len() - 2]);
        let text = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={}; \
             _bytepath_studies bytepath '{word}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
            script.display(),
            words.iter().map(|word| format!("'{word}' ")).collect::<String>(),
            words.len() - 1,
        );
        let bash = Command::new("bash").args(["-c", &text]).current_dir(folder.path()).output();
        String::from_utf8(bash.unwrap().stdout).unwrap()
    };
    for (words, offered) in [
        (&["bytepath", "run", "--path", ""][..], "splice"),
        (&["bytepath", "run", "--path", "sen"], "sendfile"),
        (&["bytepath", "run", "--link", ""], "big-tcp"),
        (&["bytepath", "run", "--workload", "r"], "rr"),
        (&["bytepath", "show", ""], "bytepath-studies/20260102-030405"),
        (&["bytepath", "show", "2026"], "bytepath-studies/20260102-030405"),
        (&["bytepath", "show", "--f"], "--format"),
        (&["bytepath", "compare", "x", ""], "bytepath-studies/20260102-030405"),
    ] {
        let completed = completed(words);
        let all: Vec<&str> = completed.split_whitespace().collect();
        assert!(all.contains(&offered), "{words:?}: {completed}");
    }
    let fish = bytepath(&["completions", "fish"]).1;
    assert!(fish.contains("splice") && fish.contains("bytepath-studies/*"), "{fish}");
}

/// Each command is in a group of the help.
#[test]
fn the_help_lists_every_command() {
    let (_, script, _) = bytepath(&["completions", "fish"]);
    let lists = script
        .lines()
        .find(|line| line.contains("__fish_bytepath_needs_command\" -f -a"))
        .is_some();
    assert!(lists, "{script}");
    for line in script.lines().filter(|line| line.contains("needs_command\" -f -a \"")) {
        let name = line.split("-a \"").nth(1).unwrap().split('"').next().unwrap();
        let known = commands();
        assert!(["help", "agent"].contains(&name) || known.iter().any(|c| c == name), "{name}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    let (code, stdout, stderr) = bytepath(&["man", pages.to_str().unwrap()]);
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "", ""));
    let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
    for name in commands() {
        let text = page(&format!("bytepath-{name}.1"));
        let source = concat!("\"bytepath ", env!("CARGO_PKG_VERSION"), "\" \"User Commands\"");
        assert!(text.contains(&format!(".TH bytepath-{name} 1 \" \" {source}\n")), "{text}");
        assert!(text.contains(".SH SYNOPSIS") && text.contains(".SH \"SEE ALSO\""), "{text}");
    }
    // Options that the short help leaves out, and texts longer than one line of the help.
    let run = page("bytepath-run.1");
    assert!(run.contains("Path that all others are compared with"), "{run}");
    assert!(run.contains("when they were due; auto: each response is followed by"), "{run}");
    assert!(page("bytepath-fleet-submit.1").contains("\\-\\-shards"));
    assert!(!pages.join("bytepath-agent.1").exists() && !pages.join("bytepath-help.1").exists());

    let main = page("bytepath.1");
    for section in ["COMMANDS", "EXAMPLES", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES"] {
        assert!(main.contains(&format!(".SH {section}\n")), "{section}: {main}");
    }
    // One exit code per item, each with its meaning.
    assert!(main.contains(".TP\n\\fB4\\fR\nnot permitted\n.TP\n"), "{main}");
    assert!(
        main.contains("\\fBbytepath run\\fR\nevery path until it is sure, at most 90 s\n"),
        "{main}"
    );
    // Sections below the options in the help are in the page under the same heading.
    let run = page("bytepath-run.1");
    assert!(run.contains(".SH \"STREAM OPTIONS (--stream)\"\n"), "{run}");
    assert!(page("bytepath-observe.1").contains(".SH NOTES\nThe program keeps"));
}

#[test]
fn pages_that_cannot_be_written_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let (code, _, stderr) = bytepath(&["man", file.to_str().unwrap()]);
    assert_eq!(code, 6, "{stderr}");
    assert!(stderr.contains("cannot write man pages to"), "{stderr}");
}

#[test]
fn groff_has_nothing_to_say_about_a_page() {
    let folder = tempfile::tempdir().unwrap();
    bytepath(&["man", folder.path().to_str().unwrap()]);
    for page in fs::read_dir(folder.path()).unwrap() {
        let page = page.unwrap().path();
        let groff = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(&page).output();
        let Ok(said) = groff else { return bytepath_testing::skip!("no groff") };
        assert_eq!(String::from_utf8_lossy(&said.stderr), "", "{}", page.display());
    }
}
