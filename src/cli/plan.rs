//! `bytepath run --dry-run`: the plan, printed.

use super::output;
use super::output_args::Document;
use bytepath_record::{CellId, Design, Fault, Stopping, joined, unit};
use bytepath_report as report;
use bytepath_stats::LEAST_BLOCKS;
use bytepath_study::{Deployment, Outline, Plan, Preview, Unable, refuse_folder};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Prints the cells, their order, their duration, and what would be set.
pub(super) fn print(plan: &Plan, deployment: &Deployment, json: bool) -> Result<ExitCode, Fault> {
    let mut outline = Outline::of(plan, deployment, None)?;
    outline.obstacle = outline.obstacle.or_else(|| refuse_folder(&plan.folder).err());
    match json {
        true => output::print_json(&Document::new("bytepath-plan", &outline)),
        false => output::print_text(|out| write(&outline, out)),
    }?;
    // The study would report the same error before its first trial.
    outline.obstacle.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn write(plan: &Outline, out: &mut dyn Write) -> io::Result<()> {
    let s = plan.schedule;
    if !plan.title.is_empty() {
        writeln!(out, "{}", plan.title)?;
    }
    match s.design {
        Design::Trials => writeln!(out, "design: one whole trial after another")?,
        Design::Slices { slice } => {
            writeln!(out, "design: cells take turns in slices of {slice} s")?;
        }
    }
    writeln!(out, "cells:")?;
    for cell in plan.cells {
        let mark = if cell.id == *plan.baseline { "  (baseline)" } else { "" };
        let unable = if is_unable(plan, &cell.id) { "  (cannot run)" } else { "" };
        writeln!(out, "  {}{mark}{unable}", cell.id)?;
    }
    match plan.order.is_empty() {
        true => writeln!(out, "{}", estimate(plan))?,
        false => write_order(plan, out)?,
    }
    plan.gpus.iter().try_for_each(|gpu| writeln!(out, "{gpu}"))?;
    write_settings(plan, out)?;
    if let (Some(Stopping { at_least, within }), Some(pass)) = (s.stopping, plan.order.first()) {
        let early = plan.seconds_per_trial.map(|each| {
            format!(": {} at best", time(each * pass.len() as f64 * f64::from(at_least)))
        });
        let (percent, early) = (within * 100.0, early.unwrap_or_default());
        writeln!(
            out,
            "stops after at least {at_least} blocks, when every interval is within {percent}%{early}"
        )?;
    }
    Ok(())
}

fn is_unable(plan: &Outline, cell: &CellId) -> bool {
    plan.unable.iter().any(|unable| unable.cell == cell)
}

/// Prints the order of the cells, and their duration.
fn write_order(plan: &Outline, out: &mut dyn Write) -> io::Result<()> {
    let s = plan.schedule;
    writeln!(out, "order (seed {}):", s.seed)?;
    for (block, pass) in (1..).zip(&plan.order) {
        writeln!(out, "  block {block}: {}", joined(pass, ", "))?;
    }
    writeln!(out, "{}", estimate(plan))?;
    write_pilots(plan, out)?;
    if let Some(budget) = s.budget {
        let (most, blocks) = (time(budget.seconds), plan.order.len());
        writeln!(
            out,
            "ends as soon as every comparison is decided or out of reach, from block {LEAST_BLOCKS} on; \
             at most {most} with profiles, about {blocks} blocks of all cells that can run"
        )?;
    }
    if plan.profiling.is_some() {
        let (trials, all) = (plan.profile_trials, time(plan.profile_seconds));
        write!(out, "then at most {trials} profile trials: {all}")?;
        match plan.profile_retakes {
            0.0 => writeln!(out)?,
            more => writeln!(out, "; at most {more} more in place of rejected ones")?,
        }
    }
    Ok(())
}

/// Formats the number of trials that can run, and their duration.
pub(super) fn estimate(plan: &Outline) -> String {
    let trials: usize = plan.order.iter().map(Vec::len).sum();
    match (plan.seconds_per_trial, plan.seconds) {
        _ if trials == 0 => "0 trials: no cell can run".to_owned(),
        (Some(each), Some(all)) => {
            format!("{trials} trials of {each:.1} s: at least {}", time(all))
        }
        _ => format!("{trials} trials that end by a count: their time is not known"),
    }
}

fn time(seconds: f64) -> String {
    unit::seconds(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

fn write_pilots(plan: &Outline, out: &mut dyn Write) -> io::Result<()> {
    let time = time(plan.pilot_seconds);
    match plan.pilots {
        0 => Ok(()),
        pilots => writeln!(
            out,
            "before them {pilots} pilots in a closed loop, which find the peaks: {time}"
        ),
    }
}

/// Prints texts of cells under a heading: first those that all cells share, then the others by cell.
fn write_by_cells(
    head: &str,
    cells: Vec<(String, Vec<String>)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    if cells.iter().all(|(_, texts)| texts.is_empty()) {
        return Ok(());
    }
    writeln!(out, "{head}:")?;
    let (everywhere, specific) = report::by_cells(&cells);
    everywhere.iter().try_for_each(|text| writeln!(out, "  {text}"))?;
    for (cells, texts) in specific {
        cells.iter().try_for_each(|cell| writeln!(out, "  for {cell}:"))?;
        texts.iter().try_for_each(|text| writeln!(out, "    {text}"))?;
    }
    Ok(())
}

/// Prints settings of the study, and preparations: first those that all cells share, then the
/// others by cell.
fn write_settings(plan: &Outline, out: &mut dyn Write) -> io::Result<()> {
    if !plan.settings.is_empty() {
        let when = "made before the first trial and restored at the end";
        writeln!(out, "settings of the host, {when}:")?;
    }
    plan.settings.iter().try_for_each(|record| writeln!(out, "  {record}"))?;
    let able = || plan.prepared.iter().filter(|one| !is_unable(plan, one.cell));
    let settings = able().filter_map(|one| match &one.settings {
        Preview::Settings(settings) => Some((one.cell.to_string(), settings.clone())),
        Preview::Fault(_) => None,
    });
    write_by_cells("set before each trial and restored after it", settings.collect(), out)?;
    let unseen = able().map(|one| (one.cell.to_string(), one.unseen.clone()));
    write_by_cells("known only once a part of it is set", unseen.collect(), out)?;
    for Unable { cell, fault } in &plan.unable {
        writeln!(out, "{cell}: cannot run here: {fault}")?;
    }
    Ok(())
}
