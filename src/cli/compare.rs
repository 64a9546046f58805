//! `bytepath compare`: a study against another baseline, two studies against each other, and
//! thresholds for continuous integration.

use super::exit::{THRESHOLD_FAILED, UNDECIDED};
use super::help::one_of;
use super::newest::named_or_newest;
use super::output_args::{Document, OutputArgs};
use super::published::published;
use super::show::{PER, explained};
use bytepath_profile::{Explanation, WorkUnit};
use bytepath_record::{Fault, Study, joined};
use bytepath_report as report;
use bytepath_spec::{PUBLISHED, suggest, usage};
use bytepath_stats::{
    self as stats, Analysis, Outcome, Rules, StudyComparison, Threshold, ThresholdResult,
};
use bytepath_study::load;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(super) struct CompareArgs {
    /// Folder of the study, or of the earlier one of two [default: the newest]
    ///
    /// published:NAME compares a published work's ratios with those of OTHER; published: alone
    /// lists the works.
    #[arg(value_name = "STUDY")]
    study: Option<PathBuf>,
    /// Folder of the later study, whose cells are compared with those of STUDY
    #[arg(value_name = "OTHER")]
    other: Option<PathBuf>,
    /// Cell that the others of STUDY are compared with [default: the study's own]
    #[arg(long, value_name = "CELL", conflicts_with = "other")]
    baseline: Option<String>,
    /// Exit with 7 if this limit is exceeded, 125 if undecided; repeatable
    #[arg(long, value_name = "LIMIT", value_parser = Threshold::parse)]
    fail_if: Vec<Threshold>,
    /// Treat undecided limits as failures
    #[arg(long, requires = "fail_if")]
    strict: bool,
    /// Compare ratios to the baseline of each study
    ///
    /// Changes to the machine as a whole cancel out.
    #[arg(long, requires = "other")]
    relative: bool,
    /// Compare two studies even if their machines differ
    #[arg(long, requires = "other")]
    different_hosts: bool,
    #[command(flatten)]
    output: OutputArgs<true>,
    /// Add system-call tables, sizes and rates over time (one study)
    #[arg(long, conflicts_with = "other")]
    details: bool,
    /// Unit of work for CPU time: gib or packet (one study) [default: gib]
    ///
    /// The explanation divides by it.
    #[arg(long, hide_possible_values = true, value_name = "UNIT", value_parser = one_of(PER), conflicts_with = "other")]
    per: Option<WorkUnit>,
}

const AFTER_HELP: &str = "\
Limits (--fail-if):
  CELL.rate slower 2%     CELL.rate faster 2%   (or CELL.throughput)
  CELL.cpu more 5%        CELL.cpu less 5%      (CPU time per unit of work, both ends)
  CELL.instructions more 3%                     (or fewer; where they were counted)
  CELL.p99 higher 10%     CELL.p99 lower 10%    (latency; p50, p90, p99, p99.9, p99.99)
  CELL is a cell's id, or * for all. A limit fails (exit code 7) if the whole
  interval lies beyond it, and is undecided (125) if the interval contains it,
  or if the report makes no claim (see docs/reference/statistics.md).";

/// The JSON document.
#[derive(Default, Serialize, JsonSchema)]
pub(super) struct Comparison<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    analysis: Option<&'a Analysis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<&'a Explanation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    between: Option<&'a StudyComparison>,
    thresholds: &'a [ThresholdResult],
    /// True if the exit code is that of a failed threshold.
    failed: bool,
}

const FORMAT: &str = "bytepath-comparison";

/// Prints a comparison and checks the thresholds.
pub(super) fn compare(arguments: &CompareArgs) -> Result<ExitCode, Fault> {
    let study = named_or_newest(arguments.study.as_deref())?;
    if let Some(name) = study.to_str().and_then(|name| name.strip_prefix(PUBLISHED)) {
        refuse_what_no_work_has(arguments)?;
        published(name, arguments.other.as_deref(), &arguments.output)?;
        return Ok(ExitCode::SUCCESS);
    }
    match &arguments.other {
        None => within(arguments, &study),
        Some(other) => compare_across_studies(arguments, [&study, other]),
    }
}

/// Errors if an option was given that applies only to studies.
fn refuse_what_no_work_has(arguments: &CompareArgs) -> Result<(), Fault> {
    let CompareArgs { baseline, fail_if, relative, details, per, .. } = arguments;
    let given = [
        ("--baseline", baseline.is_some()),
        ("--fail-if", !fail_if.is_empty()),
        ("--relative", *relative),
        ("--details", *details),
        ("--per", per.is_some()),
    ];
    given.into_iter().find(|(_, given)| *given).map_or(Ok(()), |(name, _)| {
        let what = format!("{name} does not apply to a published work");
        Err(usage(what).remedy("leave it out"))
    })
}

/// Compares the cells of one study with its baseline, or with another one.
fn within(arguments: &CompareArgs, folder: &Path) -> Result<ExitCode, Fault> {
    let mut study = load(folder)?;
    if let Some(name) = &arguments.baseline {
        choose_baseline(&mut study, name)?;
    }
    let analysis = stats::analyse(&study, &Rules::of(&study.header));
    let subjects = stats::subjects(&analysis);
    let results = stats::judge_thresholds(&limits(arguments, &study), &subjects, &analysis.rules)?;
    let code = exit_code(arguments, &results);
    let explanation = explained(folder, &study, &analysis, arguments.per)?;
    let explanation = explanation.as_ref();
    let (analysed, failed) = (Some(&analysis), code == THRESHOLD_FAILED);
    let content =
        Comparison { analysis: analysed, explanation, between: None, thresholds: &results, failed };
    let subject = report::Subject::of(&study, &analysis, explanation);
    let text = |style: &report::Style, out: &mut dyn Write| {
        let style = report::Style { details: arguments.details, ..*style };
        report::CATALOG[0].render(&subject, &style, out)?;
        print_results(&results, &style, out)
    };
    let page = |out: &mut dyn Write| report::study_page(&subject, &results, out);
    arguments.output.print_any(&Document::new(FORMAT, content), text, page)?;
    Ok(ExitCode::from(code))
}

/// Compares two studies with the same cells.
fn compare_across_studies(arguments: &CompareArgs, folders: [&Path; 2]) -> Result<ExitCode, Fault> {
    let (first, second) = (load(folders[0])?, load(folders[1])?);
    let between = stats::between(&first, &second, arguments.relative);
    refuse_other_machines(arguments, &between)?;
    if between.pairings.is_empty() {
        let what = "the two studies have no cell in common";
        let [first, second] = [&first, &second].map(|study| names(study).join(", "));
        let remedy = format!(
            "{} has {first}, {} has {second}; cells of one study are compared by `bytepath run` itself",
            folders[0].display(),
            folders[1].display()
        );
        return Err(usage(what).remedy(remedy));
    }
    let subjects = between.subjects();
    let results = stats::judge_thresholds(&limits(arguments, &first), &subjects, &between.rules)?;
    let code = exit_code(arguments, &results);
    let (thresholds, failed) = (&results[..], code == THRESHOLD_FAILED);
    let content =
        Comparison { between: Some(&between), thresholds, failed, ..Comparison::default() };
    let paths = folders.map(|path| path.display().to_string());
    let (names, studies) = ([paths[0].as_str(), paths[1].as_str()], [&first, &second]);
    let text = |style: &report::Style, out: &mut dyn Write| {
        report::between(names, studies, &between).write(style, out)?;
        print_results(&results, style, out)
    };
    let page = |out: &mut dyn Write| report::between_page(names, studies, &between, &results, out);
    arguments.output.print_any(&Document::new(FORMAT, content), text, page)?;
    Ok(ExitCode::from(code))
}

/// Makes another cell the baseline. The report states that it was not the declared one.
fn choose_baseline(study: &mut Study, name: &str) -> Result<(), Fault> {
    let Some(cell) = study.header.cell_named(name).filter(|cell| !cell.null) else {
        let fault = usage(format!("the study has no cell '{name}'"));
        return Err(suggest(fault, name, names(study)));
    };
    let chosen = cell.id.clone();
    let declared = std::mem::replace(&mut study.header.baseline, chosen.clone());
    if declared != chosen {
        study.remarks.push(format!(
            "the baseline '{chosen}' was chosen after the study, which had declared '{declared}'"
        ));
    }
    Ok(())
}

/// Returns the cells that can be compared: all but the null cell.
fn names(study: &Study) -> Vec<&str> {
    study.header.cells.iter().filter(|c| !c.null).map(|c| c.id.0.as_str()).collect()
}

/// Errors if the studies are from different machines: their numbers show nothing about software
/// changes.
fn refuse_other_machines(arguments: &CompareArgs, between: &StudyComparison) -> Result<(), Fault> {
    let named = between.other_machine();
    let named = joined(named.map(|d| format!("{} ({} and {})", d.what, d.first, d.second)), ", ");
    if named.is_empty() || arguments.different_hosts {
        return Ok(());
    }
    let what = format!("the studies are of different machines: {named}");
    Err(usage(what).remedy("compare them anyway with --different-hosts"))
}

/// Returns the limits with whole cell names; reports shorten them.
fn limits(arguments: &CompareArgs, study: &Study) -> Vec<Threshold> {
    let whole = |name: &str| study.header.cell_named(name).map(|cell| cell.id.0.clone());
    arguments.fail_if.iter().map(|limit| limit.named(whole)).collect()
}

fn exit_code(arguments: &CompareArgs, results: &[ThresholdResult]) -> u8 {
    let any = |outcome| results.iter().any(|r| r.outcome == outcome);
    match any(Outcome::Undecided) {
        _ if any(Outcome::Failed) => THRESHOLD_FAILED,
        true if arguments.strict => THRESHOLD_FAILED,
        true => UNDECIDED,
        false => 0,
    }
}

fn print_results(
    results: &[ThresholdResult],
    style: &report::Style,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    if results.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    report::thresholds(results).write(style, out)
}
