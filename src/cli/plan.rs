//! From flags and an experiment file to a plan.

use super::bed::{Bed, USUAL, choice, chosen};
use super::output;
use super::place::laboratory;
use super::printed::Document;
use super::run::RunArguments;
use super::run::own_program;
use bytepath_engine::path;
use bytepath_engine::workload;
use bytepath_host as host;
use bytepath_host::testbed::{self, Site, Testbed};
use bytepath_meter as meter;
use bytepath_record::{
    Budget, Cell, CellId, Design, DeviceName, Fault, FaultKind, Judgement, Kernel, Power,
    Profiling, Protocol, Schedule, SettingRecord, Source, WantedSetting, unit,
};
use bytepath_report as report;
use bytepath_spec::{self as spec, Ask, Catalogues, Cpus, Experiment, TestbedChoice};
use bytepath_stats as stats;
use bytepath_study::{self as study, Plan, Stewards, path_spec, testbed_spec, time_of_trial};
use bytepath_sys::{Roots, files};
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The request, checked as far as possible without a testbed, and where it runs.
pub(super) fn plan(arguments: &RunArguments) -> Result<(Plan, Bed), Fault> {
    plan_on(arguments, arguments.bed.choice()?, None)
}

/// The same on a testbed, whose power is measured like this; none leaves either to the file.
pub(super) fn plan_on(
    arguments: &RunArguments,
    testbed: Option<TestbedChoice>,
    power: Option<&str>,
) -> Result<(Plan, Bed), Fault> {
    let (experiment, testbed, source) = match &arguments.file {
        Some(file) => {
            let source = read(file)?;
            let (experiment, bed) = from_file(file, &source.text, testbed)?;
            (experiment, bed, Some(source))
        }
        None => {
            let (experiment, bed) = from_flags(arguments, testbed)?;
            (experiment, bed, None)
        }
    };
    let window = arguments.window.unwrap_or(experiment.window);
    let design = arguments.design.or(experiment.design);
    // Short turns are there to see small differences; where none is judged, whole
    // trials show the same and strain the hosts less.
    let slices_suit = experiment
        .cells
        .iter()
        .try_fold(true, |all, cell| Ok::<bool, Fault>(all && workload::of(cell)?.suits_slices()))?;
    let usual = || match testbed.as_ref() {
        bed if slices_suit && bed.properties().holds_several && bed.emulation().is_none() => {
            spec::default_design(&experiment.cells, window)
        }
        _ => Design::Trials,
    };
    let design = design.unwrap_or_else(usual);
    if design != Design::Trials && !testbed.as_ref().properties().holds_several {
        let text = format!("testbed {} cannot hold several cells at once", experiment.testbed.text);
        return Err(Fault::new(FaultKind::Usage, text).remedy("choose the design trials"));
    }
    if design != Design::Trials && !slices_suit {
        let text = "a workload of this study measures single events, which slices would cut short";
        return Err(Fault::new(FaultKind::Usage, text).remedy("choose the design trials"));
    }
    let schedule = Schedule {
        blocks: arguments.blocks.unwrap_or(experiment.blocks),
        warm_up: arguments.warm_up.unwrap_or(experiment.warm_up).as_secs_f64(),
        window: window.as_secs_f64(),
        seed: arguments.seed.or(experiment.seed).unwrap_or_else(seed),
        design: spec::check_design(design, window)?,
        stopping: experiment.stopping,
        budget: None,
    };
    spec::check_lanes(&experiment.cells, design)?;
    let profiling = match &arguments.profile {
        Some(text) => spec::parse_profile(text)?,
        None => experiment.profiling,
    };
    let schedule = match arguments.budget.or(experiment.budget) {
        Some(budget) => within(budget, schedule, &experiment.cells, profiling.as_ref())?,
        None => schedule,
    };
    if let Some(rule) = schedule.stopping {
        spec::check_stopping(rule, schedule.blocks)?;
    }
    let power = match arguments.power.as_deref().or(power) {
        Some(text) => spec::parse_power(text)?,
        None => experiment.power.clone(),
    };
    let meters = |text: &str| catalogues()?.meters(text.split(',').map(str::trim));
    let chosen = arguments.meters.as_deref().map(meters).transpose()?;
    // What is typed comes after what the file says, and so wins.
    let mut settings = experiment.settings;
    let profiles = arguments.settings.iter().map(String::as_str);
    settings.extend(spec::wanted_settings(profiles, arguments.set.iter().map(String::as_str))?);
    if !arguments.i_own_this_link {
        refuse_foreign_link(&experiment.cells, testbed.as_ref())?;
    }
    let devices = testbed
        .as_ref()
        .named_devices()
        .map(|name| name.map(|name| DeviceName::new(&name)).transpose());
    let [sender, receiver] = devices;
    let settings = spec::on_devices(settings, &[sender?, receiver?])?;
    let plan = Plan {
        settings,
        title: experiment.title,
        cells: experiment.cells,
        baseline: experiment.baseline,
        schedule,
        judgement: experiment.judgement,
        meters: study::meter_requests(
            chosen.unwrap_or(experiment.meters),
            &power,
            profiling.as_ref(),
        )?,
        mandatory: source.is_none() && !arguments.path.is_empty(),
        source,
        profiling,
        testbed: experiment.testbed.text,
        folder: arguments.out.clone().unwrap_or_else(default_folder),
        shared: None,
    };
    Ok((plan, testbed))
}

/// Frames as fast as they go are for devices that were made for them: what else is on a link
/// that is there would hardly get through.
fn refuse_foreign_link(cells: &[Cell], testbed: &dyn Testbed) -> Result<(), Fault> {
    let floods = |cell: &Cell| Ok(workload::of(cell)?.protocol(cell) == Protocol::Frames);
    let foreign = testbed.properties().link_is_given || testbed.devices().is_some();
    let all = cells.iter().map(floods).collect::<Result<Vec<bool>, Fault>>()?;
    if !foreign || !all.contains(&true) {
        return Ok(());
    }
    let text = format!("testbed {} has a link that bytepath did not make", testbed.name());
    Err(Fault::new(FaultKind::Usage, text).remedy(
        "add --i-own-this-link if no one else uses it, or choose --testbed netns, whose \
         link is made for the study",
    ))
}

/// Seconds that a trial takes besides its window and warm-up, until a first pass has shown it:
/// to raise the hosts, to connect, to drain.
const AROUND: f64 = 1.0;

/// The schedule of a study with a given duration.
fn within(
    budget: Duration,
    schedule: Schedule,
    cells: &[Cell],
    profiling: Option<&Profiling>,
) -> Result<Schedule, Fault> {
    if schedule.stopping.is_some() {
        let text = "a budget and a stopping rule would each end the study";
        return Err(Fault::new(FaultKind::Usage, text).remedy("leave one of them out"));
    }
    let trial = time_of_trial(&schedule) + AROUND;
    let (profiles, retakes, each) = profile_trials(&schedule, cells, profiling);
    let (seconds, profiles) = (budget.as_secs_f64(), (profiles + retakes) * (each + AROUND));
    let held = stats::allot(seconds - profiles, trial, cells.len(), schedule.blocks);
    let (blocks, first) = held.ok_or_else(|| {
        let least = Duration::from_secs_f64((2.0 * trial * cells.len() as f64).ceil());
        let text = format!(
            "a budget of {} is too short for two blocks of {} cells, which take about \
             {} without profiles",
            unit::seconds(budget),
            cells.len(),
            unit::seconds(least)
        );
        Fault::new(FaultKind::Usage, text)
            .remedy("use a longer budget, a shorter --window, --profile none, or fewer cells")
    })?;
    Ok(Schedule { blocks, budget: Some(Budget { seconds, profiles, first }), ..schedule })
}

/// Profile trials after the last block, at most; those that may replace rejected ones; and the
/// seconds of each.
fn profile_trials(
    schedule: &Schedule,
    cells: &[Cell],
    profiling: Option<&Profiling>,
) -> (f64, f64, f64) {
    let measured = cells.iter().filter(|cell| !cell.null).count();
    profiling.map_or((0.0, 0.0, 0.0), |profiling| {
        let cells = spec::most_profiled(profiling, measured) as f64;
        let [trials, retakes] =
            [profiling.trials, profiling.retakes].map(|each| cells * f64::from(each));
        (trials, retakes, schedule.warm_up + profiling.window)
    })
}

/// What an experiment file may name here.
pub(super) fn catalogues() -> Result<Catalogues, Fault> {
    let own = host::survey(&Roots::real());
    Ok(Catalogues {
        paths: path_spec(path::CATALOG, path::PAIRS),
        testbeds: testbed_spec(testbed::CATALOG),
        meters: meter::selectable().map(|meter| meter.name).collect(),
        usual_meters: meter::regular().map(|meter| meter.name).collect(),
        cpus: Cpus::of_hosts([&own, &own], &[None, None]),
        testbed: None,
        workload: String::new(),
    })
}

/// What a dry run shows, here and in its JSON.
#[derive(Serialize)]
struct Outline<'a> {
    title: &'a str,
    testbed: &'a str,
    folder: &'a Path,
    cells: &'a [Cell],
    baseline: &'a CellId,
    schedule: &'a Schedule,
    judgement: &'a Judgement,
    meters: Vec<String>,
    power: Power,
    profiling: Option<&'a Profiling>,
    /// The cells of each block, in the order in which they run.
    order: Vec<Vec<&'a CellId>>,
    seconds_per_trial: f64,
    /// Without what raising a testbed and draining a stream take.
    seconds: f64,
    /// Trials that are profiled after the last block, at most, and their time.
    profile_trials: f64,
    profile_seconds: f64,
    /// More of them, at most, in place of rejected ones.
    profile_retakes: f64,
    /// What would be set on the host.
    settings: Vec<SettingRecord>,
    /// What would be set for the trials of each cell, or why it cannot.
    prepared: Vec<Prepared<'a>>,
}

/// What would be set before each trial of a cell, and restored after it.
#[derive(Serialize)]
struct Prepared<'a> {
    cell: &'a CellId,
    #[serde(flatten)]
    settings: Previewed,
}

#[derive(Serialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Previewed {
    Settings(Vec<String>),
    Fault(String),
}

/// The preparations of all cells, where there are cards, or a link that is not ours to make.
fn prepared<'a>(plan: &'a Plan, testbed: &dyn Testbed) -> Result<Vec<Prepared<'a>>, Fault> {
    let stop = AtomicBool::new(false);
    let laboratory = laboratory(testbed, &stop)?;
    let all = study::previewed(&laboratory, &plan.cells)?.into_iter().zip(&plan.cells);
    let one = |(records, cell): (Result<Vec<SettingRecord>, Fault>, &'a Cell)| Prepared {
        cell: &cell.id,
        settings: match records.map(|all| (all.iter().find(|r| lacks(cell, r)).cloned(), all)) {
            Ok((None, all)) => Previewed::Settings(all.iter().map(ToString::to_string).collect()),
            Ok((Some(lacking), _)) => Previewed::Fault(lacking.to_string()),
            Err(fault) => Previewed::Fault(fault.to_string()),
        },
    };
    Ok(all.map(one).collect())
}

/// Whether a cell cannot run because this cannot be set.
fn lacks(cell: &Cell, record: &SettingRecord) -> bool {
    let is_optional = |w: &WantedSetting| w.optional && w.setting == record.setting;
    record.skipped.is_some() && !cell.settings.iter().any(is_optional)
}

/// Prints preparations: what all cells have in common once, then what each has of its own.
fn write_prepared(all: &[Prepared], out: &mut dyn Write) -> io::Result<()> {
    let able = all.iter().filter_map(|one| match &one.settings {
        Previewed::Settings(settings) => Some((one.cell.to_string(), settings.clone())),
        Previewed::Fault(_) => None,
    });
    let able: Vec<(String, Vec<String>)> = able.collect();
    if able.iter().any(|(_, settings)| !settings.is_empty()) {
        writeln!(out, "set before each trial and restored after it:")?;
    }
    let (everywhere, own) = report::by_cells(&able);
    everywhere.iter().try_for_each(|text| writeln!(out, "  {text}"))?;
    for (cells, settings) in own {
        cells.iter().try_for_each(|cell| writeln!(out, "  for {cell}:"))?;
        settings.iter().try_for_each(|text| writeln!(out, "    {text}"))?;
    }
    for one in all {
        if let Previewed::Fault(fault) = &one.settings {
            writeln!(out, "{}: cannot run here: {fault}", one.cell)?;
        }
    }
    Ok(())
}

/// What the study would set, from what to what.
fn previewed(plan: &Plan, testbed: &dyn Testbed) -> Result<Vec<SettingRecord>, Fault> {
    let settings = [&plan.settings[..], &testbed.settings()].concat();
    if settings.is_empty() {
        return Ok(Vec::new());
    }
    Stewards::at(testbed, &Site::of(&own_program()?))?.preview(&settings)
}

/// Prints the cells, their order and the time they take.
pub(super) fn print(plan: &Plan, testbed: &dyn Testbed, json: bool) -> Result<(), Fault> {
    let s = &plan.schedule;
    let count = plan.cells.len();
    let order = spec::order(count, s.first_pass().unwrap_or(s.blocks), s.seed);
    let block =
        |pass: &[(u32, usize)]| pass.iter().map(|(_, cell)| &plan.cells[*cell].id).collect();
    let seconds_per_trial = time_of_trial(s);
    let (profile_trials, profile_retakes, each) =
        profile_trials(s, &plan.cells, plan.profiling.as_ref());
    let (meters, power) = study::meters_for_header(&plan.meters)?;
    let outline = Outline {
        title: &plan.title,
        testbed: &plan.testbed,
        folder: &plan.folder,
        cells: &plan.cells,
        baseline: &plan.baseline,
        schedule: s,
        judgement: &plan.judgement,
        meters,
        power,
        profiling: plan.profiling.as_ref(),
        order: order.chunks(count.max(1)).map(block).collect(),
        seconds_per_trial,
        seconds: seconds_per_trial * order.len() as f64,
        profile_trials,
        profile_seconds: profile_trials * each,
        profile_retakes,
        settings: previewed(plan, testbed)?,
        prepared: prepared(plan, testbed)?,
    };
    match json {
        true => output::print_json(&Document::new("bytepath-plan", &outline)),
        false => output::print_text(|out| write(&outline, out)),
    }
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
        writeln!(out, "  {}{mark}", cell.id)?;
    }
    writeln!(out, "order (seed {}):", s.seed)?;
    for (block, pass) in (1..).zip(&plan.order) {
        let pass: Vec<&str> = pass.iter().map(|cell| cell.0.as_str()).collect();
        writeln!(out, "  block {block}: {}", pass.join(", "))?;
    }
    let time =
        |seconds: f64| unit::seconds(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    let trials = plan.order.len() * plan.cells.len();
    let (each, all) = (plan.seconds_per_trial, time(plan.seconds));
    writeln!(out, "{trials} trials of {each:.1} s: at least {all}")?;
    if let Some(budget) = s.budget {
        writeln!(out, "{}", within_budget(plan, budget))?;
    }
    if plan.profiling.is_some() {
        let (trials, all) = (plan.profile_trials, time(plan.profile_seconds));
        write!(out, "then at most {trials} profile trials: {all}")?;
        match plan.profile_retakes {
            0.0 => writeln!(out)?,
            more => writeln!(out, "; at most {more} more in place of rejected ones")?,
        }
    }
    if !plan.settings.is_empty() {
        writeln!(
            out,
            "settings of the host, made before the first trial and restored at the end:"
        )?;
        for record in &plan.settings {
            writeln!(out, "  {record}")?;
        }
    }
    write_prepared(&plan.prepared, out)?;
    if let Some(rule) = s.stopping {
        let early = each * plan.cells.len() as f64 * f64::from(rule.at_least);
        writeln!(
            out,
            "stops after at least {} blocks, when every interval is within {}%: {} at best",
            rule.at_least,
            rule.within * 100.0,
            time(early)
        )?;
    }
    Ok(())
}

/// What a budget holds of a study.
fn within_budget(plan: &Outline, budget: Budget) -> String {
    let whole = |seconds: f64| unit::seconds(Duration::from_secs(seconds.max(0.0) as u64));
    let (held, trial) = (whole(budget.seconds), plan.seconds_per_trial + AROUND);
    let blocks = plan.schedule.blocks;
    if plan.schedule.first_pass().is_none() {
        return format!(
            "a budget of {held} allows {blocks} blocks, at about {trial:.1} s per trial"
        );
    }
    let left =
        budget.seconds - budget.profiles - trial * (plan.order.len() * plan.cells.len()) as f64;
    format!(
        "a budget of {held} leaves about {} after these {} blocks, at {trial:.1} s per trial: \
         for the leaders and for cells that are undecided against the baseline, most informative first; about \
         {} of these cells get 5 to {blocks} new blocks each, and are judged by those alone",
        whole(left),
        budget.first,
        stats::most_chosen(left, trial),
    )
}

/// Most bytes that are read of a file that a user has written.
pub(super) const LONGEST_TEXT: u64 = 16 << 20;

pub(super) fn read_text(file: &Path) -> Result<String, Fault> {
    files::read_text(file, LONGEST_TEXT)
        .map_err(|e| Fault::new(FaultKind::Storage, format!("cannot read {}: {e}", file.display())))
}

pub(super) fn read(file: &Path) -> Result<Source, Fault> {
    let name = file.display().to_string();
    let text = read_text(file).map_err(|fault| {
        fault.remedy("name an experiment file; docs/experiments.md describes the format")
    })?;
    let name = file.file_name().map_or(name, |last| last.to_string_lossy().into_owned());
    Ok(Source { name, text })
}

/// CPUs of the hosts of a testbed, where it has hosts that were named, which are asked, or
/// devices of this one.
fn cpus_of_hosts(bed: &Bed) -> Result<Option<Cpus>, Fault> {
    let bed = bed.as_ref();
    let devices = bed.named_devices();
    if bed.properties().link_is_given {
        let facts = Stewards::at(bed, &Site::of(&own_program()?))?.facts()?;
        return Ok(facts.map(|[sender, receiver]| Cpus::of_hosts([&sender, &receiver], &devices)));
    }
    Ok(bed.devices().map(|_| {
        let own = host::survey(&Roots::real());
        Cpus::of_hosts([&own, &own], &devices)
    }))
}

/// The experiment of a file, and its testbed. An error in the file is reported before any host
/// is queried.
pub(super) fn from_file(
    file: &Path,
    text: &str,
    testbed: Option<TestbedChoice>,
) -> Result<(Experiment, Bed), Fault> {
    let name = file.display().to_string();
    let catalogues = Catalogues { testbed, ..catalogues()? };
    let experiment = spec::parse_experiment(&name, text, &catalogues)?;
    let bed = chosen(&experiment.testbed)?;
    match cpus_of_hosts(&bed)? {
        None => Ok((experiment, bed)),
        Some(cpus) => {
            let catalogues = Catalogues { cpus, ..catalogues };
            Ok((spec::parse_experiment(&name, text, &catalogues)?, bed))
        }
    }
}

fn from_flags(
    arguments: &RunArguments,
    testbed: Option<TestbedChoice>,
) -> Result<(Experiment, Bed), Fault> {
    let all: Vec<String> = path::PAIRS.iter().map(|pair| pair.name.to_owned()).collect();
    let catalogues = catalogues()?;
    let testbed = testbed.map_or_else(|| choice(USUAL), Ok)?;
    let bed = chosen(&testbed)?;
    testbed.check_kernels(!arguments.kernel.is_empty())?;
    let kernels = arguments.kernel.iter().map(|text| spec::parse_kernel(text));
    let kernels = kernels.collect::<Result<Vec<Kernel>, Fault>>()?;
    let cpus = match cpus_of_hosts(&bed)? {
        Some(cpus) => cpus,
        None => testbed.cpus(&catalogues.cpus),
    };
    let cores = match arguments.cores.as_str() {
        "two" | "two-cores" => cpus.usual(),
        asked => asked,
    };
    let cores = spec::parse_cores(cores, cpus)?;
    let flags =
        [("flows", arguments.flows.as_ref()), ("message-size", arguments.message_size.as_ref())];
    let stream = spec::with_flags(&arguments.stream, &flags)?;
    if let (Some(_), Some(other)) = (&arguments.message_size, arguments.other_workload()) {
        let text = format!("--message-size is for the workload stream, not for {other}");
        return Err(Fault::new(FaultKind::Usage, text)
            .remedy("choose --workload rr:request=SIZE,response=SIZE or packets:frame=SIZE"));
    }
    let ask = Ask {
        paths: if arguments.path.is_empty() { &all } else { &arguments.path },
        workload: arguments.workload.as_deref().unwrap_or_default(),
        stream: &stream,
        link: arguments.link.as_deref().unwrap_or(testbed.link),
        cores: &cores,
        kernels: &kernels,
        baseline: arguments.baseline.as_deref(),
    };
    let (cells, baseline): (Vec<Cell>, _) = spec::cells(&ask, &catalogues.paths)?;
    let experiment = Experiment {
        title: String::new(),
        testbed,
        cells,
        baseline,
        blocks: spec::DEFAULT_BLOCKS,
        warm_up: spec::DEFAULT_WARM_UP,
        window: spec::DEFAULT_WINDOW,
        seed: None,
        design: None,
        stopping: None,
        budget: None,
        judgement: Judgement::default(),
        meters: catalogues.meters(["usual"])?,
        profiling: spec::parse_profile(spec::DEFAULT_PROFILE)?,
        power: Power::default(),
        settings: Vec::new(),
    };
    Ok((experiment, bed))
}

/// A seed that can be written into an experiment file: TOML has no larger numbers.
pub(super) fn seed() -> u64 {
    rand::random::<u64>() >> 1
}

fn default_folder() -> PathBuf {
    let format = time::macros::format_description!("[year][month][day]-[hour][minute][second]");
    let now = time::OffsetDateTime::now_utc();
    let name = now.format(format).unwrap_or_else(|_| now.unix_timestamp().to_string());
    let folder = PathBuf::from("bytepath-studies").join(&name);
    // Two studies may begin within one second.
    let mut free = folder.clone();
    for number in 2.. {
        if !free.exists() {
            break;
        }
        free = folder.with_file_name(format!("{name}-{number}"));
    }
    free
}
