//! `bytepath profile`: shows or converts one profile.

use super::help::list;
use super::newest::named_or_newest;
use super::output::{
    deliver, file_fault, json, refuse_on_terminal, replace, say, style, unknown_suffix, warn,
};
use super::output_args::Document;
use bytepath_profile::export::{self, Exporter};
use bytepath_profile::import::{self, Content, ReadOptions, Times, UNNAMED};
use bytepath_profile::subsystem::Rules;
use bytepath_profile::{Profile, Weight, of_threads, on_cpus, summarise};
use bytepath_record::Fault;
use bytepath_spec::{find, usage};
use bytepath_study::{load, profiled_cell};
use bytepath_sys::{attribute, files};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::io::BufReader;
use std::path::{Path, PathBuf};

pub(super) mod summary;

#[derive(Debug, Args)]
#[command(after_long_help = formats_help())]
pub(super) struct ProfileArgs {
    /// Profile in any known format, STUDY#CELL, or - [default: the newest study's baseline]
    ///
    /// It may be gzipped; - is standard input, and FILE@N the Nth table of a mail.
    #[arg(value_name = "FILE")]
    file: Option<String>,
    /// Format of the file [default: detected]
    #[arg(long, value_name = "FORMAT", value_parser = source)]
    from: Option<&'static str>,
    /// Convert to this format instead of showing the profile
    #[arg(long, value_name = "FORMAT", value_parser = target)]
    to: Option<&'static str>,
    /// Write to this file, in the format given by its suffix unless --to is given
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show only what ran on these CPUs, as in 2 or 0,4-7
    #[arg(long, value_name = "CPUS", value_parser = cpus)]
    cpu: Option<Cpus>,
    /// Show only threads whose names begin like this, as in vhost
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    thread: Option<String>,
    /// Print the summary as JSON: samples, threads, functions
    #[arg(long, conflicts_with = "to")]
    json: bool,
    /// Number of functions to show [default: 20; all in JSON]
    #[arg(long, value_name = "N", conflicts_with_all = ["to", "out"])]
    top: Option<usize>,
}

/// CPUs whose samples count.
#[derive(Clone, Debug)]
pub(super) struct Cpus(Vec<u32>);

/// Parses a list of CPUs.
pub(super) fn cpus(text: &str) -> Result<Cpus, String> {
    let is_list = text.split(',').all(|part| !attribute::list(part).is_empty());
    let wrong = || format!("'{text}' is no list of CPUs, as in 2 or 0,4-7");
    is_list.then(|| Cpus(attribute::list(text))).ok_or_else(wrong)
}

/// Restricts repeated runs to the named CPUs; unchanged if none are named.
pub(super) fn restrict_to_cpus(
    cpus: Option<&Cpus>,
    profiles: Vec<Profile>,
) -> Result<Vec<Profile>, Fault> {
    match cpus {
        Some(Cpus(list)) => on_cpus(&profiles, list),
        None => Ok(profiles),
    }
}

/// Number of functions that text shows by default.
const TOP: usize = 20;

/// Reads a profile and shows it, or writes it in another format.
pub(super) fn profile(arguments: &ProfileArgs) -> Result<(), Fault> {
    if arguments.json {
        return summarised(arguments);
    }
    let format = exporter(arguments)?;
    let out = arguments.out.as_deref();
    if let Some(format) = format.filter(|format| format.for_files()) {
        refuse_on_terminal(std::io::stdout(), out, (format.name, format.extension))?;
    }
    let profile = read(arguments)?;
    let top = arguments.top.unwrap_or(TOP);
    deliver(out, |to| match format {
        Some(format) => format.write(&profile, to),
        None => summary::write(&profile, (top, 0), &style(false), to),
    })
}

/// Writes a profile to a file in this format.
pub(super) fn write(format: &Exporter, profile: &Profile, file: &Path) -> Result<(), Fault> {
    let mut content = Vec::new();
    let written = format.write(profile, &mut content).and_then(|()| replace(file, &content));
    written.map_err(|e| file_fault("write", file, &e))
}

/// Prints the summary of a profile as JSON.
fn summarised(arguments: &ProfileArgs) -> Result<(), Fault> {
    let profile = read(arguments)?;
    let mut summary = summarise(&profile, Rules::built_in());
    summary.functions.truncate(arguments.top.unwrap_or(usize::MAX));
    let document = json(&Document::new("bytepath-profile-summary", summary))?;
    deliver(arguments.out.as_deref(), |out| out.write_all(document.as_bytes()))
}

/// Reads the profile that the arguments name; for a cell with several trials, the first.
fn read(arguments: &ProfileArgs) -> Result<Profile, Fault> {
    let parts = restrict_to_cpus(arguments.cpu.as_ref(), vec![whole(arguments)?])?;
    let part = parts.into_iter().next().ok_or_else(|| usage("there is no profile"))?;
    match &arguments.thread {
        Some(name) => of_threads(&part, name),
        None => Ok(part),
    }
}

fn whole(arguments: &ProfileArgs) -> Result<Profile, Fault> {
    let cell = match &arguments.file {
        Some(file) => match cell_of_study(file) {
            Some((study, cell)) => profiled_cell(study, cell)?,
            None => return open(file, arguments.from, Times::Kept)?.profile(),
        },
        None => {
            let study = named_or_newest(None)?;
            profiled_cell(&study, &load(&study)?.header.baseline.0)?
        }
    };
    let (of, count) = (&cell.row.cell.0, cell.profiles.len());
    say(format!("profile: trial 1 of {count} of {of}"));
    let first = cell.profiles.into_iter().next();
    first.ok_or_else(|| usage(format!("there is no profile of '{of}' that counts")))
}

/// Splits `STUDY#CELL`; `None` if it is the name of an existing file.
pub(super) fn cell_of_study(argument: &str) -> Option<(&Path, &str)> {
    let (study, cell) = argument.rsplit_once('#').filter(|_| !Path::new(argument).exists())?;
    Some((Path::new(study), cell))
}

/// Reads a file, a table of a mail (`FILE@N`), or standard input (`-`).
pub(super) fn open(name: &str, format: Option<&str>, times: Times) -> Result<Content, Fault> {
    let numbered = name.rsplit_once('@').filter(|_| !Path::new(name).exists());
    let numbered = numbered.and_then(|(file, number)| Some((file, number.parse().ok()?)));
    let (file, table) = numbered.map_or((name, None), |(file, number)| (file, Some(number)));
    let request = ReadOptions { format, table, times, symbols: true };
    if file == "-" {
        return import::open("standard input", request, &mut std::io::stdin().lock())
            .map(warn_if_unnamed);
    }
    let unread = |e: &dyn std::fmt::Display| Fault::storage(format!("cannot read {file}: {e}"));
    let opened = files::open_stream(Path::new(file)).map_err(|e| unread(&e))?;
    if opened.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(usage(format!("{file} is a folder"))
            .remedy(format!("name a cell of the study: {file}#CELL")));
    }
    import::open(name, request, &mut BufReader::with_capacity(256 << 10, opened))
        .map(warn_if_unnamed)
}

/// Warns first if functions have no names, with the reason.
fn warn_if_unnamed(content: Content) -> Content {
    if let Content::Profile(profile) = &content {
        profile.header.notes.iter().filter(|note| note.starts_with(UNNAMED)).for_each(warn);
    }
    content
}

/// Returns the format in which to write instead of printing, if any.
fn exporter(arguments: &ProfileArgs) -> Result<Option<&'static Exporter>, Fault> {
    if let Some(name) = arguments.to {
        return Ok(export::find(name));
    }
    let Some(file) = &arguments.out else { return Ok(None) };
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    export::find_by_file_name(&name)
        .map(Some)
        .ok_or_else(|| unknown_suffix(&name, export::CATALOG.iter().map(|e| e.extension), "--to"))
}

/// Parses the name of a format that can be read.
pub(super) fn source(text: &str) -> Result<&'static str, Fault> {
    let profiles = import::CATALOG.iter().map(|importer| importer.name);
    let names: Vec<&'static str> =
        profiles.chain(import::COUNTS.iter().map(|importer| importer.name)).collect();
    pick(text, &names)
}

/// Parses the name of a format that can be written.
fn target(text: &str) -> Result<&'static str, Fault> {
    let names: Vec<&'static str> = export::CATALOG.iter().map(|exporter| exporter.name).collect();
    pick(text, &names)
}

fn pick(text: &str, names: &[&'static str]) -> Result<&'static str, Fault> {
    find("format", text, names, |name| name).copied()
}

/// Lists the formats with their descriptions, and examples.
fn formats_help() -> String {
    let profiles = import::CATALOG.iter().map(|i| (i.name, i.summary.to_owned()));
    let counts = import::COUNTS.iter().map(|i| (i.name, format!("{} (bytepath diff)", i.summary)));
    let mut text = list("Formats that are read (--from):", profiles.chain(counts));
    let written = export::CATALOG.iter().map(|exporter| (exporter.name, exporter.summary));
    text.push('\n');
    text.push_str(&list("Formats that are written (--to):", written));
    text.push_str(
        "\nExamples:
  bytepath profile                                    the baseline of the newest study
  perf script | bytepath profile -                    summary of what perf recorded
  bytepath profile perf.script -o perf.svg            a flame graph
  bytepath profile cpu.pb.gz --to folded | grep tcp_  what Go recorded, one stack a line
  perf report --stdio | bytepath profile - --top 50   a table from a mail
  bytepath profile STUDY#CELL --cpu 2                 what ran on one CPU
  bytepath profile STUDY#CELL --thread vhost          what vhost's workers did

docs/guide/profiles.md lists what each format keeps and loses.",
    );
    text
}

/// Returns the unit of a profile's weights in words.
fn unit(weight: Weight) -> &'static str {
    match weight {
        Weight::Nanoseconds => "CPU time",
        Weight::Delay => "time, not of a CPU",
        Weight::Bytes => "bytes",
        Weight::Events => "events",
        Weight::Samples => "samples",
        Weight::Percent => "percent",
    }
}
