//! `bytepath diff`: the difference between two profiles.

use super::exit::{THRESHOLD_FAILED, UNDECIDED};
use super::help::{Choice, choices, one_of, values};
use super::output::{
    PAGE_WIDTH, deliver, json, refuse_on_terminal, say, style, unknown_suffix, write_file,
};
use super::output_args::Document;
use super::profile::{Cpus, cell_of_study, cpus, open, restrict_to_cpus, source};
use bytepath_host::spawn_scoped;
use bytepath_profile::counts::{self, Counts};
use bytepath_profile::diff::{self, Diff, GroupBy, Measure, Options, Per};
use bytepath_profile::flame::{BOXES, Flames, Widths, flames, label};
use bytepath_profile::import::{Content, Times};
use bytepath_profile::subsystem::Rules;
use bytepath_profile::waterfall::Trials;
use bytepath_profile::{self as profile, Header, Profile, Weight, WorkUnit};
use bytepath_record::{Fault, grouped};
use bytepath_report::{self as report, Style};
use bytepath_spec::usage;
use bytepath_stats as stats;
use bytepath_study::{ProfiledCell, ends, profiled_cell, read_text};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = after_help())]
pub(super) struct DiffArgs {
    /// Profile before the change: FILE,..., FILE@N, STUDY#CELL, or - for standard input
    ///
    /// Several files are repeated runs, whose means are compared. FILE@N is the Nth table of a
    /// mail.
    #[arg(value_name = "BEFORE")]
    without: String,
    /// Profile after the change
    #[arg(value_name = "AFTER")]
    with: String,
    /// Format of both sides [default: detected]
    #[arg(long, value_name = "FORMAT", value_parser = source)]
    from: Option<&'static str>,
    /// Units of work done (packets, requests) to divide counters by
    ///
    /// One number for both sides, or two.
    #[arg(long, value_name = "N[,N]", value_parser = work)]
    work: Option<[f64; 2]>,
    /// Include what each function called; recursive calls count once
    #[arg(long)]
    total: bool,
    /// Divide by: gib, packet, second, run, sample or none
    ///
    /// The default is gib if both profiles record it, else run if a side has several files, else
    /// none.
    #[arg(long, hide_possible_values = true, value_name = "UNIT", value_parser = one_of(PER))]
    per: Option<Per>,
    /// Group rows by: none, thread, role or subsystem
    #[arg(long, hide_possible_values = true, value_name = "WHAT", default_value = "none", value_parser = one_of(BY))]
    by: GroupBy,
    /// Show the functions that differ most [default: 30 for text, else all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Show only functions that differ by at least this percentage of the larger total
    #[arg(long, hide_short_help = true, value_name = "PERCENT", default_value = "0", value_parser = percent)]
    threshold: f64,
    /// Exit with 7 if AFTER takes this much more, 125 if undecided
    ///
    /// As a percentage of BEFORE, all functions together. Undecided is what the interval contains;
    /// it takes at least two files of each side, and narrows with more.
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with_all = ["explain", "side_by_side"])]
    fail_if_more: Option<f64>,
    /// Show the top functions of each side in two columns
    ///
    /// Each has its rank on the other side.
    #[arg(long, conflicts_with_all = ["format", "json", "explain", "threshold"])]
    side_by_side: bool,
    /// Compare only what ran on these CPUs, as in 2 or 0,4-7
    #[arg(long, value_name = "CPUS", value_parser = cpus, conflicts_with_all = ["work", "explain"])]
    cpu: Option<Cpus>,
    /// Include idle samples
    #[arg(long)]
    idle: bool,
    /// Include samples of threads that are unrelated to the stream
    #[arg(long)]
    foreign: bool,
    /// File of rules that map functions to subsystems; they take precedence over the built-in ones
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Format: text, tsv, html, json or svg [default: by -o, else text]
    #[arg(long, hide_possible_values = true, value_name = "NAME")]
    format: Option<FormatName>,
    /// Print JSON (same as --format json)
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file, in the format of its suffix
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Width of the text in columns [default: the terminal's, else 100]
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Explain the difference by subsystem: text, netdev, html or json
    ///
    /// In steps from one cost per GiB to the other, or per packet or run with --per. Without bytes
    /// cells of a study are explained per packet, and other profiles per run.
    #[arg(long, hide_possible_values = true, value_name = "NAME", conflicts_with_all = ["format", "json", "by", "total", "svg", "svg_before"])]
    explain: Option<ExplainName>,
    /// Write a differential flame graph, too, with the widths of AFTER
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write one with the widths of BEFORE, which shows what vanished
    #[arg(long, value_name = "FILE")]
    svg_before: Option<PathBuf>,
}

impl DiffArgs {
    fn style(&self) -> Style {
        let style = match self.out {
            Some(_) => Style { width: PAGE_WIDTH, ..Style::default() },
            None => style(false),
        };
        Style { width: self.width.unwrap_or(style.width), ..style }
    }

    /// Returns the format: as named, by the suffix of the file, or text. Errors if the suffix
    /// belongs to no format, or if the format is unsuitable for a terminal.
    fn format(&self) -> Result<FormatName, Fault> {
        use FormatName::{Html, Json, Svg, Text, Tsv};
        const SUFFIXES: [(&str, FormatName); 5] =
            [("txt", Text), ("tsv", Tsv), ("html", Html), ("json", Json), ("svg", Svg)];
        let named = if self.json { Some(Json) } else { self.format };
        let format = match (named, &self.out) {
            (Some(format), _) => format,
            (None, None) => Text,
            (None, Some(_)) if self.explain.is_some() || self.side_by_side => Text,
            (None, Some(file)) => {
                let suffix = file.extension().and_then(|suffix| suffix.to_str());
                let found = SUFFIXES.into_iter().find(|(known, _)| suffix == Some(known));
                let unknown = || {
                    let suffixes = SUFFIXES.iter().map(|(suffix, _)| *suffix);
                    unknown_suffix(file.display(), suffixes, "--format")
                };
                found.ok_or_else(unknown)?.1
            }
        };
        let page = matches!(self.explain, Some(ExplainName::Html)).then_some(Html);
        match page.unwrap_or(format) {
            Html => self.refuse_on_terminal("html"),
            Svg => self.refuse_on_terminal("svg"),
            Text | Tsv | Json => Ok(()),
        }?;
        Ok(format)
    }

    fn refuse_on_terminal(&self, format: &str) -> Result<(), Fault> {
        refuse_on_terminal(io::stdout(), self.out.as_deref(), (format, format))
    }

    /// Prints the result, or writes it to its file.
    fn deliver(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
        deliver(self.out.as_deref(), write)
    }

    fn deliver_json(&self, document: &impl Serialize) -> Result<(), Fault> {
        let text = json(document)?;
        self.deliver(|out| out.write_all(text.as_bytes()))
    }
}

const AFTER_HELP: &str = "\
Examples:
  bytepath diff before.txt after.txt                     two profiles of any tool
  bytepath diff a1.pb.gz,a2.pb.gz b1.pb.gz,b2.pb.gz      repeated runs: means, with intervals
  bytepath diff a1.pb.gz,a2.pb.gz b1.pb.gz,b2.pb.gz --fail-if-more 5%
  bytepath diff STUDY#socket STUDY#splice                two cells of a study
  bytepath diff before.txt after.txt -o change.svg       a differential flame graph
  perf script | bytepath diff before.txt - --per sample -o change.html
  bytepath diff a b --total --by role --top 50
  bytepath diff STUDY#devmem STUDY#zcrx --side-by-side   two rankings in two columns
  bytepath diff mail.txt@1 mail.txt@2                    two tables of perf in one mail
  bytepath diff a.txt b.txt --work 100000000             perf stat: counters, and per packet

change = after - before; in tsv and JSON, saved = without - with is the same with its sign turned.
docs/guide/profiles.md describes the formats, how functions are matched, and the rules.
";

fn after_help() -> String {
    [
        AFTER_HELP.to_owned(),
        choices("Units of work (--per):", PER),
        choices("Groups (--by):", BY),
        values::<FormatName>("Formats (--format):"),
        values::<ExplainName>("Explanations (--explain):"),
    ]
    .join("\n")
}

/// Number of functions that text shows by default.
const TOP: usize = 30;

const PER: &[Choice<Per>] = &[
    ("gib", "GiB delivered", Per::Gib),
    ("packet", "Packet delivered", Per::Packet),
    ("second", "Second of wall time", Per::Second),
    ("run", "Profile: the mean of repeated runs", Per::Run),
    ("sample", "Sample: shares of the whole", Per::Sample),
    ("none", "Weights as they are", Per::None),
];

const BY: &[Choice<GroupBy>] = &[
    ("none", "One row for a function", GroupBy::None),
    ("thread", "By name of the thread", GroupBy::Thread),
    ("role", "By the owner of the time", GroupBy::Role),
    ("owner", "", GroupBy::Role),
    ("subsystem", "By subsystem of the sample", GroupBy::Subsystem),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// A table for a terminal or a mail
    Text,
    /// One row a function, tabs between
    Tsv,
    /// A page with flame graphs
    Html,
    /// Everything, for programs
    Json,
    /// A differential flame graph with the widths of AFTER
    Svg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExplainName {
    /// Words, bars, functions
    Text,
    /// The same for a mail, in 72 columns
    Netdev,
    /// A page with flame graphs
    Html,
    /// Everything, for programs
    Json,
}

/// Compares two profiles.
pub(super) fn diff(arguments: &DiffArgs) -> Result<ExitCode, Fault> {
    arguments.format()?;
    let rules = rules(arguments.rules.as_deref())?;
    if arguments.without == "-" && arguments.with == "-" {
        let what = "only one side can be standard input";
        return Err(usage(what).remedy("name a file for the other"));
    }
    let [without, with] = sides(arguments)?;
    match (&without, &with) {
        (Side::Counts(before), Side::Counts(after)) => {
            return counters(arguments, [before, after]).map(|()| ExitCode::SUCCESS);
        }
        (Side::Counts(_), _) | (_, Side::Counts(_)) => {
            let what = "one side holds counters and the other functions";
            return Err(
                usage(what).remedy("name two of the same kind; --from chooses if a mail has both")
            );
        }
        _ if arguments.work.is_some() => {
            let what = "--work divides counters, and these have none";
            return Err(usage(what).remedy("--per divides profiles: run, gib, packet, second"));
        }
        _ => {}
    }
    if let Some(form) = arguments.explain {
        return explain(arguments, [&without, &with], &rules, form).map(|()| ExitCode::SUCCESS);
    }
    functions(arguments, [&without, &with], &rules)
}

/// Compares two profiles function by function.
fn functions(
    arguments: &DiffArgs,
    [without, with]: [&Side; 2],
    rules: &Rules,
) -> Result<ExitCode, Fault> {
    let options = Options {
        measure: if arguments.total { Measure::Total } else { Measure::SelfOnly },
        per: arguments.per,
        by: arguments.by,
        idle: arguments.idle,
        foreign: arguments.foreign,
        rules,
    };
    let mut difference = diff::diff(without.profiles(), with.profiles(), &options)?;
    difference.notes.extend(notes([without, with]));
    if without.functional() || with.functional() {
        difference.notes.push(
            "the samples are of an emulated processor: they show what ran, not what \
             it would cost on a real one"
                .to_owned(),
        );
    }
    if arguments.svg.is_some() || arguments.svg_before.is_some() {
        let flames = flames(without.profiles(), with.profiles(), &difference, rules);
        for (file, widths) in
            [(&arguments.svg, Widths::With), (&arguments.svg_before, Widths::Without)]
        {
            if let Some(file) = file {
                write_file(file, &svg(&flames, &difference, widths)?)?;
            }
        }
    }
    if arguments.side_by_side {
        let places = diff::places(&difference.rows, arguments.top.unwrap_or(TOP));
        let document = report::side_by_side(&difference, &places);
        return arguments
            .deliver(|out| document.write(&arguments.style(), out))
            .map(|()| ExitCode::SUCCESS);
    }
    let limit = arguments.fail_if_more.map(|percent| limit(&difference, percent));
    print_difference(arguments, difference, [without, with], rules)?;
    let (words, code) = limit.transpose()?.unwrap_or_default();
    if !words.is_empty() {
        say(words);
    }
    Ok(ExitCode::from(code))
}

/// Checks whether AFTER takes more than this many percent more than BEFORE, by the interval over
/// repeated runs. Returns a sentence and the exit code.
fn limit(difference: &Diff, percent: f64) -> Result<(String, u8), Fault> {
    let total = &difference.total;
    if difference.without.counts == Weight::Percent || difference.per == Per::Sample {
        let what =
            "--fail-if-more takes amounts, and these are shares of a whole, which do not grow";
        return Err(usage(what).remedy("name profiles with samples or times"));
    }
    let Some(half) = total.half_width.filter(|_| total.without > 0.0) else {
        let what = "--fail-if-more takes an interval, and this difference has none";
        let remedy = "name two files or more of each side, better five: a1.pb.gz,a2.pb.gz,...";
        return Err(usage(what).remedy(remedy));
    };
    let share = |change: f64| 100.0 * change / total.without;
    let [low, high] = [-half, half].map(|off| share(off - total.saved));
    let (word, code, hint) = match () {
        () if low > percent => ("FAILED", THRESHOLD_FAILED, ""),
        () if high <= percent => ("passed", 0, ""),
        () => ("UNDECIDED", UNDECIDED, " (more runs narrow the interval)"),
    };
    let change = share(-total.saved);
    let words = format!(
        "{word} {change:+.1}% {} in all, interval {low:+.1}% to {high:+.1}%; the limit is +{percent}%{hint}",
        difference.unit
    );
    Ok((words, code))
}

/// Prints the functions that differ most, in the requested format.
fn print_difference(
    arguments: &DiffArgs,
    mut difference: Diff,
    [without, with]: [&Side; 2],
    rules: &Rules,
) -> Result<(), Fault> {
    let format = arguments.format()?;
    if format == FormatName::Svg {
        let flames = flames(without.profiles(), with.profiles(), &difference, rules);
        let svg = svg(&flames, &difference, Widths::With)?;
        return arguments.deliver(|out| out.write_all(&svg));
    }
    let top = arguments.top.or((format == FormatName::Text).then_some(TOP));
    difference.keep(top, arguments.threshold / 100.0);
    match format {
        FormatName::Text => {
            arguments.deliver(|out| report::difference(&difference).write(&arguments.style(), out))
        }
        FormatName::Tsv => arguments.deliver(|out| tsv(&difference, out)),
        FormatName::Html => {
            let flames = flames(without.profiles(), with.profiles(), &difference, rules);
            let names = names([&arguments.without, &arguments.with]);
            let mut charts = flames.charts([&names[0], &names[1]], BOXES).to_vec();
            charts.retain(|chart| !chart.boxes.is_empty());
            arguments.deliver(|out| report::difference_page(&difference, &charts, out))
        }
        _ => arguments.deliver_json(&Document::new("bytepath-diff", &difference)),
    }
}

/// Prints counters side by side.
fn counters(arguments: &DiffArgs, sides: [&Counts; 2]) -> Result<(), Fault> {
    if arguments.explain.is_some() || arguments.svg.is_some() || arguments.svg_before.is_some() {
        let what = "counters have no functions to explain or to draw";
        return Err(usage(what).remedy("leave out --explain and --svg"));
    }
    if arguments.fail_if_more.is_some() {
        let what = "--fail-if-more takes repeated profiles, and counters have no interval";
        return Err(usage(what).remedy("leave it out, or name profiles"));
    }
    let comparison = || counts::compare(sides, arguments.work);
    match arguments.format()? {
        FormatName::Html | FormatName::Svg => {
            Err(usage("counters have no functions to draw")
                .remedy("choose --format text, tsv or json"))
        }
        FormatName::Json => {
            arguments.deliver_json(&Document::new("bytepath-counters", &comparison()))
        }
        FormatName::Tsv => arguments.deliver(|out| report::counters_tsv(&comparison(), out)),
        FormatName::Text => {
            arguments.deliver(|out| report::counters(&comparison()).write(&arguments.style(), out))
        }
    }
}

/// Prints the steps from one side's cost to the other's.
fn explain(
    arguments: &DiffArgs,
    sides: [&Side; 2],
    rules: &Rules,
    form: ExplainName,
) -> Result<(), Fault> {
    let cells = match sides {
        [Side::Cell(before), Side::Cell(after)] => Some([&**before, &**after]),
        _ => None,
    };
    let frames = cells.filter(|cells| cells.iter().all(|cell| cell.row.hops.is_some()));
    let unit = match arguments.per {
        None if frames.is_some() => WorkUnit::Packet,
        None if sides.iter().all(|side| side.counts_bytes()) => WorkUnit::Gib,
        // Trials of a study have equal length, but not equal work.
        None if sides.iter().any(|side| matches!(side, Side::Cell(_))) => WorkUnit::Packet,
        None | Some(Per::Run) => WorkUnit::Run,
        Some(Per::Gib) => WorkUnit::Gib,
        Some(Per::Packet) => WorkUnit::Packet,
        Some(Per::Second | Per::Sample | Per::None) => {
            let what = "the steps of --explain are costs of work";
            return Err(usage(what)
                .remedy("choose --per gib, --per packet or --per run, or leave out --explain"));
        }
    };
    let names = names([&arguments.without, &arguments.with]);
    let [before, after] = [0, 1].map(|at| Trials { cell: &names[at], ..sides[at].trials(unit) });
    let mut explanation = profile::explain(&before, &[after], rules, unit)?;
    explanation.notes.extend(notes(sides));
    explanation.functional = sides.into_iter().any(Side::functional);
    if let Some(cells) = frames {
        explanation.ends = ends(&cells, unit)?;
    }
    let why = frames.and_then(|cells| {
        let (ends, functional) = (Some(&explanation.ends), explanation.functional);
        let confidence = stats::Rules::default().confidence;
        report::why(cells.map(|cell| &cell.row), ends, functional, confidence)
    });
    let why = why.as_ref();
    match form {
        ExplainName::Text => {
            let text = report::explanation(&explanation, why, true);
            arguments.deliver(|out| text.write(&arguments.style(), out))
        }
        ExplainName::Netdev => {
            let mail = report::explanation(&explanation, why, false);
            arguments.deliver(|out| mail.write_mail(out))
        }
        ExplainName::Html => {
            arguments.deliver(|out| report::explanation_page(&explanation, why, out))
        }
        ExplainName::Json => {
            arguments.deliver_json(&Document::new("bytepath-explanation", &explanation))
        }
    }
}

/// One side of a comparison.
enum Side {
    /// Profiles from files or standard input.
    Files(Vec<Profile>),
    /// Profiles of a cell; its study contains more than the profiles record.
    Cell(Box<ProfiledCell>),
    /// Counters.
    Counts(Counts),
}

impl Side {
    fn profiles(&self) -> &[Profile] {
        match self {
            Side::Files(profiles) => profiles,
            Side::Cell(cell) => &cell.profiles,
            Side::Counts(_) => &[],
        }
    }

    /// Returns notes for the reader; for files, what was left out.
    fn notes(&self) -> Vec<String> {
        match self {
            Side::Files(profiles) => {
                // Notes of repeated runs differ only in their figures.
                let of = |Header { title, notes, .. }: &Header| -> Vec<((String, String), String)> {
                    let is_part = |n: &&String| n.starts_with("left out") || profile::marks_part(n);
                    let left_out = notes.iter().filter(is_part);
                    let kind = |note: &String| note.replace(|c: char| c.is_ascii_digit(), "");
                    left_out.map(|note| ((title.clone(), kind(note)), note.clone())).collect()
                };
                let all = profiles.iter().flat_map(|profile| of(&profile.header));
                let line = |((title, _), notes): ((String, String), Vec<String>)| {
                    let (first, others) = (notes.first().cloned().unwrap_or_default(), notes.len());
                    let of = if others > 1 {
                        format!(" (the first of {others})")
                    } else {
                        String::new()
                    };
                    format!("{title}: {first}{of}")
                };
                grouped(all).into_iter().map(line).collect()
            }
            Side::Cell(cell) => cell.notes.clone(),
            Side::Counts(counts) => counts.notes.clone(),
        }
    }

    fn counts_bytes(&self) -> bool {
        self.profiles().iter().all(|profile| profile.header.work.bytes.is_some_and(|n| n > 0.0))
    }

    fn functional(&self) -> bool {
        matches!(self, Side::Cell(cell) if cell.functional)
    }

    /// Returns this side as one of a waterfall, without a name.
    fn trials(&self, unit: WorkUnit) -> Trials<'_> {
        match self {
            Side::Cell(cell) => cell.trials(unit),
            _ => Trials { cell: "", profiles: self.profiles(), metered: &[] },
        }
    }
}

/// Returns the notes of both sides, without duplicates.
fn notes(sides: [&Side; 2]) -> Vec<String> {
    let [first, second] = sides.map(Side::notes);
    let more: Vec<String> = second.into_iter().filter(|note| !first.contains(note)).collect();
    first.into_iter().chain(more).collect()
}

/// Reads both sides; files are read in parallel.
fn sides(arguments: &DiffArgs) -> Result<[Side; 2], Fault> {
    let side = |argument: &str| side(argument, (arguments.from, arguments.cpu.as_ref()));
    // A whole study is read for one of its cells, so reading one at a time halves the memory.
    if [&arguments.without, &arguments.with].iter().any(|name| cell_of_study(name).is_some()) {
        return Ok([side(&arguments.without)?, side(&arguments.with)?]);
    }
    std::thread::scope(|scope| {
        let with = spawn_scoped(scope, "profile", || side(&arguments.with))?;
        let (without, with) = (side(&arguments.without), with.join());
        let with = with.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok([without?, with?])
    })
}

/// Reads what an argument names, in this format and restricted to these CPUs.
fn side(argument: &str, (format, cpus): (Option<&str>, Option<&Cpus>)) -> Result<Side, Fault> {
    if let Some((study, cell)) = cell_of_study(argument) {
        let mut cell = profiled_cell(study, cell)?;
        cell.profiles = restrict_to_cpus(cpus, std::mem::take(&mut cell.profiles))?;
        let notes = cell.profiles.first().map_or(&[][..], |profile| &profile.header.notes);
        cell.notes.extend(notes.iter().find(|note| profile::marks_part(note)).cloned());
        return Ok(Side::Cell(Box::new(cell)));
    }
    // An existing file takes precedence over any interpretation of its name.
    let names: Vec<&str> = match Path::new(argument).exists() {
        true => vec![argument],
        false => argument.split(',').collect(),
    };
    let mut profiles = Vec::new();
    for name in &names {
        match open(name, format, Times::LeftOut)? {
            Content::Profile(profile) => profiles.push(profile),
            Content::Counts(_) if cpus.is_some() => {
                let what = format!("--cpu selects samples, and the counters of {name} have none");
                return Err(usage(what).remedy("leave it out, or name profiles"));
            }
            Content::Counts(counts) if names.len() == 1 => return Ok(Side::Counts(counts)),
            Content::Counts(_) => {
                let what = format!("{name} holds counters, which are compared one text with one");
                return Err(usage(what).remedy("name one file for each side"));
            }
        }
    }
    restrict_to_cpus(cpus, profiles).map(Side::Files)
}

/// Parses `N` or `N,N`: units of work of both sides.
fn work(text: &str) -> Result<[f64; 2], String> {
    let number = |text: &str| {
        let units = text.parse::<f64>().ok().filter(|units| units.is_finite() && *units > 0.0);
        units.ok_or_else(|| format!("'{text}' is not a positive number of units"))
    };
    let (before, after) = text.split_once(',').unwrap_or((text, text));
    Ok([number(before)?, number(after)?])
}

/// Returns names for the sides: the cells, or the first files; everything that was typed if these
/// are equal.
fn names(arguments: [&String; 2]) -> [String; 2] {
    let short = |argument: &String| {
        if let Some((_, cell)) = argument.rsplit_once('#') {
            return cell.to_owned();
        }
        let first = argument.split(',').next().unwrap_or(argument);
        first.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(first).to_owned()
    };
    let names = arguments.map(short);
    if names[0] == names[1] { arguments.map(String::clone) } else { names }
}

fn title(diff: &Diff) -> String {
    let of = |titles: &[String]| match titles {
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        [] => String::new(),
    };
    format!("{} to {}, {}", of(&diff.without.profiles), of(&diff.with.profiles), diff.unit)
}

/// Returns the built-in rules, preceded by those of a file.
fn rules(file: Option<&Path>) -> Result<Rules, Fault> {
    let Some(file) = file else { return Ok(Rules::built_in().clone()) };
    Rules::built_in().with(&file.display().to_string(), &read_text(file)?)
}

/// Draws a differential flame graph.
fn svg(flames: &Flames, difference: &Diff, widths: Widths) -> Result<Vec<u8>, Fault> {
    let mut svg = Vec::new();
    let drawn = flames.svg(&title(difference), widths, &mut svg);
    drawn.map(|()| svg).map_err(|e| match e.kind() {
        ErrorKind::InvalidData => {
            let side = if widths == Widths::With { "AFTER" } else { "BEFORE" };
            usage(format!("{side} has no sample to draw"))
                .remedy("draw the other direction, or neither")
        }
        _ => Fault::system("cannot draw the flame graph", &e),
    })
}

/// Writes one row per function. The first four columns are those of a hand-made list: function,
/// with, without, saved.
fn tsv(diff: &Diff, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "function\twith\twithout\tsaved\tpresence\tsubsystem\tmodule\tgroup\thalf_width"
    )?;
    for row in &diff.rows {
        let presence = match row.presence {
            diff::Presence::Both => "both",
            diff::Presence::Appeared => "appeared",
            diff::Presence::Vanished => "vanished",
        };
        let field = |text: &str| if text.is_empty() { String::new() } else { label(text) };
        writeln!(
            out,
            "{}\t{}\t{}\t{}\t{presence}\t{}\t{}\t{}\t{}",
            label(&row.function),
            row.amount.with,
            row.amount.without,
            row.amount.saved,
            row.subsystem.map_or("", |s| s.name()),
            field(&row.module),
            field(&row.group),
            row.amount.half_width.map(|half| half.to_string()).unwrap_or_default(),
        )?;
    }
    Ok(())
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("'{text}' is not a percentage from 0 to 100")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_have_short_names_unless_those_are_the_same() {
        for (arguments, expected) in [
            (["runs/1#socket", "runs/1#uring"], ["socket", "uring"]),
            (["a/before.txt,b.txt", "a/after.txt"], ["before.txt", "after.txt"]),
            (["old#socket", "new#socket"], ["old#socket", "new#socket"]),
            (["old/perf.data", "new/perf.data"], ["old/perf.data", "new/perf.data"]),
            (["study#a/b:mtu=1", "dir/"], ["a/b:mtu=1", "dir/"]),
        ] {
            let [a, b] = arguments.map(str::to_owned);
            assert_eq!(names([&a, &b]), expected);
        }
    }
}
