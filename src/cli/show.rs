//! `bytepath show`: prints the report of a study, in any format.

use super::help::{Choice, list, one_of};
use super::newest::named_or_newest;
use super::output::{self, PAGE_WIDTH, deliver, quoted, style, unknown_suffix};
use bytepath_profile::{Explanation, WorkUnit};
use bytepath_record::{Fault, Study, Work};
use bytepath_report::{self as report, CATALOG, Report, Style, Subject};
use bytepath_spec::{find, usage};
use bytepath_stats::{self as stats, Analysis};
use bytepath_study::{explanation, load};
use clap::Args;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_long_help = formats_help())]
pub(super) struct ShowArgs {
    /// Folder of the study [default: the newest in bytepath-studies]
    #[arg(value_name = "STUDY")]
    study: Option<PathBuf>,
    #[command(flatten)]
    report: ReportArgs,
    /// Unit of work for CPU time: gib or packet [default: gib]
    ///
    /// The explanation divides by it.
    #[arg(long, hide_possible_values = true, value_name = "UNIT", value_parser = one_of(PER))]
    per: Option<WorkUnit>,
}

/// Options of how a report is printed.
#[derive(Debug, Default, Args)]
pub(super) struct ReportArgs {
    /// Format, as in html, json, csv or summary-csv [default: by -o, else text]
    #[arg(long, value_name = "NAME", value_parser = format)]
    format: Option<&'static str>,
    /// Print JSON (same as --format json)
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Add system-call tables, sizes and rates over time
    #[arg(long)]
    details: bool,
    /// Write to this file; its suffix gives the format unless --format does
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Units of work by which the CPU time of an explanation is divided.
pub(super) const PER: &[Choice<WorkUnit>] = &[
    ("gib", "GiB delivered, as by default", WorkUnit::Gib),
    ("packet", "Packet, as the receiver's device counts them", WorkUnit::Packet),
];

/// Writes the report of a study folder to the requested destination.
pub(super) fn show(arguments: &ShowArgs) -> Result<(), Fault> {
    let ShowArgs { study, report, per } = arguments;
    report.format()?;
    let folder = &named_or_newest(study.as_deref())?;
    print(folder, &load(folder)?, report, *per)
}

/// Writes a report without colours to the named file, or prints it: with colours and the width of
/// the terminal on a terminal, otherwise plain.
pub(super) fn print(
    folder: &Path,
    study: &Study,
    arguments: &ReportArgs,
    per: Option<WorkUnit>,
) -> Result<(), Fault> {
    let format = arguments.format()?;
    let ReportArgs { details, ref out, .. } = *arguments;
    let style = match out {
        Some(_) => Style { width: PAGE_WIDTH, colour: false, details },
        None => style(details),
    };
    // On a terminal, the main result should be next to the cursor.
    let on_a_screen = arguments.named().is_none() && !details && out.is_none();
    let on_a_screen = on_a_screen && io::stdout().is_terminal();
    render(folder, study, format, per, |subject| {
        deliver(out.as_deref(), |out| match on_a_screen {
            true => report::screen(subject, &quoted(folder)).write(&style, out),
            false => format.render(subject, &style, out),
        })
    })
}

/// Analyses a study for a format, and passes the analysis on.
fn render(
    folder: &Path,
    study: &Study,
    format: &Report,
    per: Option<WorkUnit>,
    write: impl FnOnce(&Subject) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let named = format.named(study);
    let analysis = stats::analyse(&named, &stats::Rules::of(&named.header));
    let explanation = explained(folder, &named, &analysis, per)?;
    let explanation = explanation.as_ref();
    let recorded = &study.header;
    write(&Subject { study: &named, recorded, analysis: &analysis, explanation })
}

/// Explains a study. Errors if a unit was requested that its profiles do not record; without a
/// request, the notes of the explanation list what is missing.
pub(super) fn explained(
    folder: &Path,
    study: &Study,
    analysis: &Analysis,
    per: Option<WorkUnit>,
) -> Result<Option<Explanation>, Fault> {
    // Exchanges are not bytes: their cost is compared per packet.
    let is_bytes = analysis.work() == Work::Bytes;
    let unit = per.unwrap_or(if is_bytes { WorkUnit::Gib } else { WorkUnit::Packet });
    let explanation = explanation(folder, study, analysis, unit);
    if per.is_some() && explanation.as_ref().is_none_or(|e| e.waterfalls.is_empty()) {
        let why = explanation.map(|e| e.notes.join("; ")).filter(|why| !why.is_empty());
        let what = format!("{} has nothing to explain", folder.display());
        let without = "profiles of two cells are needed: bytepath run --profile largest";
        return Err(usage(what).remedy(why.as_deref().unwrap_or(without)));
    }
    Ok(explanation)
}

impl ReportArgs {
    /// True if JSON was requested.
    pub(super) fn is_json(&self) -> bool {
        self.named().is_some_and(|report| report.name == "json")
    }

    /// Returns the format: as named, by the suffix of the file, or text. Errors if the suffix
    /// belongs to no format, or if the format is unsuitable for a terminal.
    pub(super) fn format(&self) -> Result<&'static Report, Fault> {
        let Some(file) = &self.out else {
            let format = self.named().unwrap_or(CATALOG[0]);
            if format.for_files() {
                let name = (format.name, format.extension);
                output::refuse_on_terminal(io::stdout(), None, name)?;
            }
            return Ok(format);
        };
        let by_suffix = || report::find_by_extension(file.extension()?.to_str()?);
        self.named().or_else(by_suffix).ok_or_else(|| {
            unknown_suffix(file.display(), CATALOG.iter().map(|r| r.extension), "--format")
        })
    }

    /// Returns the format requested by name.
    fn named(&self) -> Option<&'static Report> {
        report::find(if self.json { "json" } else { self.format? })
    }
}

/// Parses a name of the catalogue.
fn format(text: &str) -> Result<&'static str, Fault> {
    find("format", text, CATALOG, |report| report.name).map(|report| report.name)
}

/// Lists the formats with their purpose.
fn formats_help() -> String {
    let formats = CATALOG.iter().map(|report| (report.name, report.summary));
    let mut text = list("Formats (--format):", formats);
    text.push_str("\ndocs/reference/formats.md describes each of them.");
    text
}
