//! `bytepath completions` and `bytepath man`: files that a package installs with the program,
//! generated from the same clap types as the help.

use super::output::{file_fault, print, replace};
use bytepath_engine::{path, workload};
use bytepath_host::testbed;
use bytepath_meter as meter;
use bytepath_record::Fault;
use bytepath_spec as spec;
use clap::builder::PossibleValuesParser;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_long_help = COMPLETIONS_HELP)]
pub(super) struct CompletionsArgs {
    /// Shell to print the script for
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_long_help = MAN_HELP)]
pub(super) struct ManArgs {
    /// Folder for the pages; it is created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

const COMPLETIONS_HELP: &str = "\
Examples:
  bytepath completions bash > ~/.local/share/bash-completion/completions/bytepath
  bytepath completions fish > ~/.config/fish/completions/bytepath.fish
  bytepath completions zsh > ~/.zfunc/_bytepath     with ~/.zfunc in $fpath

The Debian package installs those of bash, zsh and fish.";

const MAN_HELP: &str = "\
Examples:
  bytepath man ~/.local/share/man/man1              for man(1) to find
  bytepath man /tmp/pages && man -l /tmp/pages/bytepath-run.1

One page for each command: bytepath.1, bytepath-run.1 and so on. The Debian package
installs them.";

/// Prints a shell's completion script.
pub(super) fn completions(arguments: &CompletionsArgs, command: Command) -> Result<(), Fault> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut with_values(command), "bytepath", &mut script);
    script.extend_from_slice(match arguments.shell {
        Shell::Bash => BASH_STUDIES.as_bytes(),
        Shell::Fish => FISH_STUDIES.as_bytes(),
        _ => b"",
    });
    print(|out| out.write_all(&script))
}

/// clap's script for bash completes options in place of an argument; these commands take studies.
const BASH_STUDIES: &str = r#"
_bytepath_studies() {
    _bytepath "$@"
    case "${COMP_WORDS[1]},$2,$3" in
        *,-*,* | *,-*) ;;
        show,* | resume,* | compare,* | attach,* | merge,*)
            COMPREPLY+=( $(compgen -d -- "$2") $(compgen -d -- "bytepath-studies/$2") )
            ;;
    esac
}
complete -F _bytepath_studies -o bashdefault -o default bytepath
"#;

const FISH_STUDIES: &str = "
complete -c bytepath -n '__fish_seen_subcommand_from show resume compare attach merge' -a \
'(ls -d bytepath-studies/* 2>/dev/null)'
";

/// Adds the names that options accept. Their parsers accept more than names, so clap does not list
/// them, and shells could not complete them.
fn with_values(command: Command) -> Command {
    let pairs: Vec<&str> = path::PAIRS.iter().map(|pair| pair.name).collect();
    let meters =
        ["default", "all", "none"].into_iter().chain(meter::CATALOG.iter().map(|m| m.name));
    let testbeds: Vec<&str> = testbed::CATALOG.iter().map(|testbed| testbed.name()).collect();
    let profiles: Vec<&str> = spec::SETTING_PROFILES.iter().map(|profile| profile.name).collect();
    let of_run = [
        ("path", pairs.clone()),
        ("baseline", pairs.clone()),
        ("workload", workload::CATALOG.iter().map(|workload| workload.name).collect()),
        ("link", spec::PRESETS.iter().map(|preset| preset.name).collect()),
        ("cores", ["two", "one", "together", "apart", "unpinned"].to_vec()),
        ("testbed", testbeds.clone()),
        ("meters", meters.collect()),
        ("profile", spec::PROFILED_CELLS.iter().map(|(name, _)| *name).collect()),
        ("settings", profiles.clone()),
    ];
    let values: [(&str, &[Values]); 4] = [
        ("run", &of_run),
        ("doctor", &[("testbed", testbeds)]),
        ("settings", &[("profile", profiles)]),
        ("paths", &[("name", path::CATALOG.iter().map(|path| path.name).collect())]),
    ];
    values.into_iter().fold(command, |command, (name, options)| {
        command.mut_subcommand(name, |command| options.iter().cloned().fold(command, with))
    })
}

/// An option, and names that it accepts.
type Values = (&'static str, Vec<&'static str>);

fn with(command: Command, (option, names): Values) -> Command {
    let names = PossibleValuesParser::new(names);
    command.mut_arg(option, |argument| argument.value_parser(names))
}

/// Writes a page for each command.
pub(super) fn man(arguments: &ManArgs, command: Command) -> Result<(), Fault> {
    let folder = &arguments.folder;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let command = with_all_help(command);
    std::fs::create_dir_all(folder)
        .and_then(|()| write_pages(&command, folder))
        .map_err(|e| file_fault("write man pages to", folder, &e))
}

/// Gives every option a long text: clap_mangen omits an option that the short help hides if it has
/// none.
fn with_all_help(command: Command) -> Command {
    let command = command.mut_args(|argument| match argument.get_help().cloned() {
        Some(help) if argument.get_long_help().is_none() => argument.long_help(help),
        _ => argument,
    });
    command.mut_subcommands(with_all_help)
}

fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    replace(&folder.join(format!("{}.1", name(command))), &page(command)?)?;
    command.get_subcommands().filter(|c| !c.is_hide_set()).try_for_each(|c| write_pages(c, folder))
}

/// Returns the name of a command's page: `bytepath-run`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

/// Renders the manual page of a command.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let source = concat!("bytepath ", env!("CARGO_PKG_VERSION"));
    // An empty date would make an argument disappear, and the date of the build is irrelevant to
    // the page.
    let man = Man::new(command.clone()).date(" ").source(source).manual("User Commands");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    let mut roff = Roff::new();
    // Commands and file names must be neither stretched nor hyphenated.
    roff.control("ad", ["l"]).control("nh", []);
    roff.control("SH", ["SYNOPSIS"]);
    for usage in command.clone().render_usage().to_string().lines() {
        roff.text([bold(usage.trim_start_matches("Usage: ").trim())]);
        roff.control("br", []);
    }
    roff.to_writer(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    let mut roff = Roff::new();
    subcommands(&mut roff, command);
    let help = command.get_after_long_help().or(command.get_after_help());
    after_help(&mut roff, &help.map(ToString::to_string).unwrap_or_default());
    let main = name(command) == "bytepath";
    if main {
        items(&mut roff, "ENVIRONMENT", ENVIRONMENT);
        items(&mut roff, "FILES", FILES);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(if main {
        SEE_ALSO
    } else {
        "bytepath(1): exit status, environment, files"
    })]);
    roff.to_writer(&mut out)?;
    Ok(out)
}

const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "BYTEPATH_MEMORY",
        "Memory that reading studies, profiles and other files may take; by default 256M.",
    ),
    (
        "BYTEPATH_STATE",
        "Folder of the journal of changed settings; by default /var/lib/bytepath for root, else \
         $XDG_STATE_HOME/bytepath or ~/.local/state/bytepath.",
    ),
    ("NO_COLOR", "If set to anything, output is not coloured."),
    (
        "XDG_CACHE_HOME",
        "Kernels for guests are found in its folder bytepath/kernels; by default in ~/.cache.",
    ),
    (
        "XDG_RUNTIME_DIR",
        "Control sockets of ssh, so that one connection to a host serves several agents.",
    ),
];

const FILES: &[(&str, &str)] = &[
    (
        "bytepath-studies/DATE-TIME/",
        "A study, in the folder where run was started, unless --study names another: \
         experiment.toml (the resolved experiment), hosts.json (facts of the hosts), trials.jsonl (one \
         trial per line), profiles/. The command schema prints the JSON Schema of each.",
    ),
    (
        "/var/lib/bytepath/, ~/.local/state/bytepath/",
        "The journal of changed settings, of root and of other users. The command \
         restore undoes what a killed run left in it.",
    ),
    ("~/.cache/bytepath/kernels/", "Kernels for guests, as make vm-kernel fetches them."),
];

const SEE_ALSO: &str = "\
Each command has a page: bytepath-run(1), bytepath-show(1), bytepath-compare(1), \
bytepath-observe(1), bytepath-doctor(1) and so on. README.md and docs/ of the source, which the \
Debian package installs in /usr/share/doc/bytepath.";

/// Lists the subcommands, each with the name of its page.
fn subcommands(roff: &mut Roff, command: &Command) {
    let shown: Vec<&Command> = command.get_subcommands().filter(|c| !c.is_hide_set()).collect();
    if !shown.is_empty() {
        roff.control("SH", ["COMMANDS"]);
    }
    for command in shown {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        item(roff, &format!("{}(1)", name(command)), &about);
    }
}

fn items(roff: &mut Roff, heading: &str, items: &[(&str, &str)]) {
    roff.control("SH", [heading]);
    items.iter().for_each(|(tag, text)| item(roff, tag, text));
}

fn item(roff: &mut Roff, tag: &str, text: &str) {
    roff.control("TP", []);
    roff.text([bold(tag)]);
    if text.is_empty() {
        // Without a text, the next tag would be taken for it.
        roff.control("PP", []);
    } else {
        roff.text([roman(text)]);
    }
}

/// Converts the text below the options, which is written for a terminal: a line that ends with a
/// colon is the heading of the indented lines that follow, in which two spaces separate a term from
/// its meaning. All other lines are notes.
fn after_help(roff: &mut Roff, help: &str) {
    let mut notes = Vec::new();
    let mut lines = help.lines().peekable();
    while let Some(line) = lines.next() {
        let mut block = Vec::new();
        while let Some(next) = lines.next_if(|next| next.starts_with("  ")) {
            block.push(next);
        }
        match line.strip_suffix(':').filter(|_| !block.is_empty()) {
            Some("Exit codes") => exit_status(roff, &block),
            Some(heading) => {
                // An option in parentheses keeps its case.
                let (words, option) = heading.split_at(heading.find('(').unwrap_or(heading.len()));
                roff.control("SH", [format!("{}{option}", words.to_uppercase()).as_str()]);
                list(roff, &block);
            }
            None => notes.push(line),
        }
    }
    if notes.iter().any(|line| !line.is_empty()) {
        roff.control("SH", ["NOTES"]);
        for line in notes {
            match line {
                "" => roff.control("PP", []),
                text => roff.text([roman(text)]),
            };
        }
    }
}

/// Several codes per line, each with its meaning, separated by three spaces.
fn exit_status(roff: &mut Roff, block: &[&str]) {
    roff.control("SH", ["EXIT STATUS"]);
    for code in block.iter().flat_map(|line| line.trim().split("   ")) {
        let (code, meaning) = code.trim().split_once(' ').unwrap_or((code.trim(), ""));
        item(roff, code, meaning);
    }
}

fn list(roff: &mut Roff, block: &[&str]) {
    let parts = |line: &str| line.trim().split("  ").filter(|part| !part.is_empty()).count();
    if block.iter().any(|line| parts(line) > 2) {
        // A table, which filling would destroy.
        roff.control("nf", []);
        for line in block {
            roff.text([roman(*line)]);
        }
        roff.control("fi", []);
        return;
    }
    let mut lines = block.iter().peekable();
    while let Some(line) = lines.next() {
        let inner = line.starts_with("    ");
        let (tag, text) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
        let mut text = text.trim().to_owned();
        // Continuation lines of an entry are indented far.
        while let Some(more) = lines.next_if(|next| next.starts_with("      ")) {
            text = format!("{text} {}", more.trim()).trim_start().to_owned();
        }
        if inner {
            roff.control("RS", []);
        }
        item(roff, tag, &text);
        if inner {
            roff.control("RE", []);
        }
    }
}
