//! What a user requests of a run, and how it becomes a [`Plan`]: an experiment file or paths,
//! with everything else that the command line may override. It is checked here as far as that is
//! possible without raising the testbed.

use super::deployment::{Deployment, default_testbed};
use super::pilots::PilotTrials;
use super::trust::Acts;
use crate::{Plan, meter_requests, path_spec, testbed_spec, time_of_trial};
use bytepath_engine::{path, workload};
use bytepath_host as host;
use bytepath_host::testbed::{self, Testbed};
use bytepath_meter as meter;
use bytepath_record::{
    Budget, Cell, CellId, Design, DeviceName, Fault, Judgement, Kernel, Power, Profiling, Protocol,
    Schedule, Source, WantedSetting, grouped,
};
use bytepath_spec::{
    self as spec, Catalogues, CellRequest, Cpus, Experiment, Layout, TestbedChoice, usage,
};
use bytepath_sys::{Roots, files};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A run as requested. What is `None` is left to the experiment file, or else to the default.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    pub experiment: ExperimentRequest,
    pub testbed: Option<TestbedChoice>,
    pub blocks: Option<u32>,
    pub warm_up: Option<Duration>,
    pub window: Option<Duration>,
    pub design: Option<Design>,
    /// Time that the study may take; it ends earlier once it is sure.
    pub time: Option<Duration>,
    /// Share of a role's CPU that others may use before a trial is rejected.
    pub max_interference: Option<f64>,
    /// How long to wait for other programs to leave the CPUs alone.
    pub wait_idle: Option<Duration>,
    pub seed: Option<u64>,
    /// Names of meters, `default`, `all` or `none`.
    pub meters: Option<Vec<String>>,
    /// Which profiles are taken; `Some(None)` is none at all.
    pub profiling: Option<Option<Profiling>>,
    pub power: Option<Power>,
    /// The placement of all cells of a file, in place of its own.
    pub cores: Option<String>,
    /// Settings of the hosts, after those of the file, which they override.
    pub settings: Vec<WantedSetting>,
    /// True if the settings of the file are not made.
    pub without_file_settings: bool,
    /// True if cells run although a probe of their hosts refuses them.
    pub force: bool,
    /// True if no one else uses the link, so that frame generators may fill it.
    pub link_is_unshared: bool,
    /// True if the user trusts files of others with what they name: commands, hosts, settings.
    pub trusted: bool,
    /// Folder for the study.
    pub folder: PathBuf,
}

/// What a run compares.
#[derive(Clone, Debug)]
pub enum ExperimentRequest {
    File(PathBuf),
    Paths(PathsRequest),
}

impl Default for ExperimentRequest {
    fn default() -> Self {
        ExperimentRequest::Paths(PathsRequest::default())
    }
}

/// Paths in words of the command line, as `bytepath_spec` reads them.
#[derive(Clone, Debug, Default)]
pub struct PathsRequest {
    /// The usual ones of the workload if empty: of streams every pair of the catalogue.
    pub paths: Vec<String>,
    pub baseline: Option<String>,
    /// The first of the catalogue if empty.
    pub workload: String,
    pub stream: String,
    /// `None` takes the testbed's.
    pub link: Option<String>,
    pub cores: String,
    pub kernels: Vec<Kernel>,
}

impl RunRequest {
    /// The experiment of a file, as it is.
    pub fn of_file(file: PathBuf, folder: PathBuf) -> RunRequest {
        RunRequest { experiment: ExperimentRequest::File(file), folder, ..RunRequest::default() }
    }

    /// The plan, and where it runs.
    pub fn plan(&self) -> Result<(Plan, Deployment), Fault> {
        let ((experiment, deployment), source) = match &self.experiment {
            ExperimentRequest::File(file) => {
                let file = ExperimentFile::read(file)?;
                let catalogues = Catalogues {
                    testbed: self.testbed.clone(),
                    cores: self.cores.clone(),
                    ..catalogues()
                };
                (from_file(&file, catalogues, self.trusted)?, Some(file.source))
            }
            ExperimentRequest::Paths(paths) => (from_paths(paths, self.testbed.clone())?, None),
        };
        refuse_twins(&experiment.cells)?;
        let testbed = deployment.testbed();
        let mut profiling = self.profiling.clone().unwrap_or_else(|| experiment.profiling.clone());
        let schedule = self.schedule(&experiment, testbed, &mut profiling)?;
        if !self.link_is_unshared {
            refuse_flood(&experiment.cells, testbed)?;
        }
        refuse_idle_devices(&experiment.cells, testbed)?;
        let names =
            self.meters.as_ref().map(|names| catalogues().meters(names.iter().map(String::as_str)));
        let names = names.transpose()?.unwrap_or(experiment.meters);
        let power = self.power.as_ref().unwrap_or(&experiment.power);
        let named = |names: Vec<String>| -> Result<Vec<DeviceName>, Fault> {
            names.iter().map(|name| DeviceName::new(name)).collect()
        };
        let [sender, receiver] = testbed.named_devices().map(named);
        let of_file = if self.without_file_settings { Vec::new() } else { experiment.settings };
        let settings = [of_file, self.settings.clone()].concat();
        let all_paths =
            matches!(&self.experiment, ExperimentRequest::Paths(p) if p.paths.is_empty());
        let plan = Plan {
            settings: spec::on_devices(settings, &[sender?, receiver?])?,
            title: experiment.title,
            cells: experiment.cells,
            baseline: experiment.baseline,
            schedule,
            judgement: experiment.judgement,
            meters: meter_requests(names, power, profiling.as_ref())?,
            mandatory: source.is_none() && !all_paths,
            source,
            profiling,
            testbed: experiment.testbed.text,
            folder: self.folder.clone(),
            wait_idle: self.wait_idle,
            shared: None,
        };
        Ok((plan, deployment))
    }

    fn schedule(
        &self,
        experiment: &Experiment,
        testbed: &dyn Testbed,
        profiling: &mut Option<Profiling>,
    ) -> Result<Schedule, Fault> {
        let Experiment { layout, cells, .. } = experiment;
        let requested = self.design.or(layout.design);
        let design = |window| choose_design(requested, experiment, testbed, window);
        let is_of_paths = matches!(self.experiment, ExperimentRequest::Paths(_));
        // What shows no speed is never sure of one.
        let is_fixed =
            self.time.is_none() && (self.blocks.is_some() || testbed.emulation().is_some());
        let layout = &match is_of_paths && !is_fixed {
            true => {
                let design = design(self.window.unwrap_or(layout.window))?;
                Layout::until_sure(self.time, design, cells.len())
            }
            false => layout.clone(),
        };
        let window = self.window.unwrap_or(layout.window);
        // Blocks that are requested are run, all of them, whatever the file says.
        let time = self.time.or(layout.time.filter(|_| self.blocks.is_none()));
        let design = design(window)?;
        let schedule = Schedule {
            blocks: self.blocks.or(layout.blocks).unwrap_or(match time {
                Some(_) => spec::MOST_BLOCKS,
                None => spec::DEFAULT_BLOCKS,
            }),
            warm_up: self.warm_up.unwrap_or(layout.warm_up).as_secs_f64(),
            window: window.as_secs_f64(),
            seed: self.seed.or(layout.seed).unwrap_or_else(random_seed),
            design: spec::check_design(design, window)?,
            stopping: layout.stopping,
            budget: None,
            until_sure: false,
            max_interference: self.max_interference.or(layout.max_interference),
            force: self.force,
        };
        spec::check_lanes(cells, design)?;
        let schedule = match time {
            Some(time) => {
                if self.profiling.is_none() && is_of_paths {
                    *profiling = fewer_profiles(time, &schedule, cells, profiling.take());
                }
                until_sure(time, schedule, cells, profiling.as_ref())?
            }
            None => schedule,
        };
        if let Some(rule) = schedule.stopping {
            spec::check_stopping(rule, schedule.blocks)?;
        }
        Ok(schedule)
    }
}

/// The requested design, or the one that suits the cells and the testbed.
fn choose_design(
    requested: Option<Design>,
    experiment: &Experiment,
    testbed: &dyn Testbed,
    window: Duration,
) -> Result<Design, Fault> {
    // Short turns are there to see small differences; where none is judged, whole
    // trials show the same and strain the hosts less.
    let mut unsuited = None;
    for cell in &experiment.cells {
        unsuited = unsuited.or((workload::of(cell)?.no_slices)(cell));
    }
    let holds_several = testbed.properties().holds_several;
    let design = match requested {
        Some(design) => design,
        None if unsuited.is_none() && holds_several && testbed.emulation().is_none() => {
            spec::default_design(&experiment.cells, window)
        }
        None => Design::Trials,
    };
    let text = match (design, unsuited) {
        (Design::Trials, _) => return Ok(design),
        _ if !holds_several => {
            format!("testbed {} cannot hold several cells at once", experiment.testbed.text)
        }
        (_, Some(reason)) => reason.into(),
        (_, None) => return Ok(design),
    };
    Err(usage(text).remedy("choose the design trials"))
}

/// Two cells that differ only in the size of reads measure the same where the receiving path has
/// none.
fn refuse_twins(cells: &[Cell]) -> Result<(), Fault> {
    let has_none = |cell: &&Cell| {
        let rx = path::find(path::CATALOG, &cell.rx.path).and_then(|path| path.rx);
        rx.is_some_and(|rx| !rx.sizes_reads) && !cell.null
    };
    let without = |cell: &Cell| {
        let mut bare = Cell { id: CellId::default(), levels: Default::default(), ..cell.clone() };
        (bare.stream.read_size, bare.stream.read_memory) = (0, None);
        bare
    };
    let groups = grouped(cells.iter().filter(has_none).map(|cell| (without(cell), cell)));
    let Some([one, other]) = groups.iter().find_map(|(_, same)| same.first_chunk::<2>()) else {
        return Ok(());
    };
    let path = &one.rx.path;
    let text = format!(
        "'{}' and '{}' measure the same: {path} delivers what has arrived, whatever the read size",
        one.id, other.id
    );
    Err(usage(text).remedy(format!(
        "leave out all sizes but one, as in [[exclude]] path = \"{path}\", read-size = [...]"
    )))
}

/// Frames as fast as they go are for devices that were made for them: what else is on an
/// existing link would hardly get through.
fn refuse_flood(cells: &[Cell], testbed: &dyn Testbed) -> Result<(), Fault> {
    let exists = testbed.properties().link_is_given || testbed.devices().is_some();
    let protocols = cells.iter().map(|cell| Ok((workload::of(cell)?.protocol)(cell)));
    let floods = protocols.collect::<Result<Vec<_>, Fault>>()?.contains(&Protocol::Frames);
    if !exists || !floods {
        return Ok(());
    }
    let text = format!("testbed {} has a link that bytepath did not create", testbed.name());
    Err(usage(text).remedy(
        "add --unshared-link if no one else uses it, or choose --testbed netns, whose link is \
         made for the study",
    ))
}

/// Devices that are named are to be used: a study over fewer of them would answer another question.
fn refuse_idle_devices(cells: &[Cell], testbed: &dyn Testbed) -> Result<(), Fault> {
    let properties = testbed.properties();
    let exists = properties.link_is_given || testbed.devices().is_some();
    let most = cells.iter().map(|cell| cell.link.adapters).max().unwrap_or(1);
    let count = properties.adapters;
    if !exists || most >= count {
        return Ok(());
    }
    let named = testbed.named_devices();
    let idle = named.iter().find_map(|of_end| of_end.get(most as usize)).map(String::as_str);
    let (name, idle) = (testbed.name(), idle.unwrap_or("the last"));
    let text =
        format!("testbed {name} has {count} devices at each end, and no flow crosses {idle}");
    Err(usage(text).remedy(format!(
        "choose --link {}:adapters={count} and --stream flows={count}, or more, or name fewer devices",
        properties.usual_link
    )))
}

/// Seconds that a trial takes besides its window and warm-up: to raise the hosts, to connect, to
/// drain. Slices are for testbeds that do so at once; what else there is boots or logs in.
pub(crate) fn overhead(design: Design) -> f64 {
    match design {
        Design::Slices { .. } => 0.15,
        Design::Trials => 1.0,
    }
}

/// The schedule of a study that ends once it is sure, and after this time at the latest. Its
/// blocks are the most until it is known how many cells can run ([`planned_blocks`]).
fn until_sure(
    time: Duration,
    schedule: Schedule,
    cells: &[Cell],
    profiling: Option<&Profiling>,
) -> Result<Schedule, Fault> {
    if schedule.stopping.is_some() {
        let text = "a time and a stopping rule would each end the study";
        return Err(usage(text).remedy("leave one of them out"));
    }
    let profiles = ProfileTrials::of(&schedule, cells, profiling);
    let pilots = PilotTrials::of(&schedule, cells);
    let beside = profiles.trials * (profiles.seconds_each + overhead(schedule.design))
        + pilots.seconds()
        + pilots.trials as f64 * spec::BETWEEN_TRIALS;
    let least = beside + 2.0 * cells.len() as f64 * time_of_trial(&schedule);
    if pilots.trials > 0 && time.as_secs_f64() < least {
        let text = format!(
            "{} pilots, which find the peaks, profiles and two blocks take {:.0} s, and the study has {:.0} s",
            pilots.trials,
            least,
            time.as_secs_f64()
        );
        return Err(
            usage(text).remedy("choose a longer time (-t), fewer cells, or a rate as a number")
        );
    }
    let (seconds, first) = (time.as_secs_f64(), schedule.blocks);
    let budget = Budget { seconds, profiles: beside, first };
    Ok(Schedule { budget: Some(budget), until_sure: true, ..schedule })
}

/// As many of the profiles as a quarter of the time holds; `None` if not two of each cell, without
/// which no difference has an interval.
fn fewer_profiles(
    time: Duration,
    schedule: &Schedule,
    cells: &[Cell],
    profiling: Option<Profiling>,
) -> Option<Profiling> {
    let profiling = profiling?;
    let all = ProfileTrials::of(schedule, cells, Some(&profiling));
    let one =
        all.trials / f64::from(profiling.trials) * (all.seconds_each + overhead(schedule.design));
    let trials = ((time.as_secs_f64() / 4.0 / one) as u32).min(profiling.trials);
    (trials > 1).then_some(Profiling { trials, ..profiling })
}

/// Blocks that a study which ends once it is sure is planned with: what its time holds if no
/// comparison ends earlier.
pub(crate) fn planned_blocks(schedule: &Schedule, cells: usize, testbed: &dyn Testbed) -> u32 {
    let Some(budget) = schedule.budget.filter(|_| schedule.until_sure) else {
        return schedule.blocks;
    };
    let between = match schedule.design {
        Design::Trials if testbed.properties().holds_several => spec::BETWEEN_TRIALS,
        design => overhead(design),
    };
    let block = (time_of_trial(schedule) + between) * cells as f64;
    let fits = ((budget.seconds - budget.profiles) / block) as u32;
    fits.max(2).min(schedule.blocks)
}

/// Profile trials after the last block.
#[derive(Default)]
pub(crate) struct ProfileTrials {
    /// At most.
    pub(crate) trials: f64,
    /// At most, in place of rejected ones.
    pub(crate) retakes: f64,
    pub(crate) seconds_each: f64,
}

impl ProfileTrials {
    pub(crate) fn of(
        schedule: &Schedule,
        cells: &[Cell],
        profiling: Option<&Profiling>,
    ) -> ProfileTrials {
        let Some(profiling) = profiling else { return ProfileTrials::default() };
        let measured = cells.iter().filter(|cell| !cell.null).count();
        let cells = spec::most_profiled(profiling, measured) as f64;
        ProfileTrials {
            trials: cells * f64::from(profiling.trials),
            retakes: cells * f64::from(profiling.retakes),
            seconds_each: schedule.warm_up + profiling.window,
        }
    }
}

/// What an experiment file may name here.
pub fn catalogues() -> Catalogues {
    let own = host::survey(&Roots::real());
    Catalogues {
        paths: path_spec(path::CATALOG, path::PAIRS),
        testbeds: testbed_spec(testbed::CATALOG),
        meters: meter::selectable().map(|meter| meter.name).collect(),
        usual_meters: meter::regular().map(|meter| meter.name).collect(),
        cpus: Cpus::of_machine(&own, &Default::default()),
        testbed: None,
        cores: None,
        workload: String::new(),
    }
}

/// Most bytes that are read of a file that a user has written.
const LONGEST_TEXT: u64 = 16 << 20;

/// Reads a file that a user has written.
pub fn read_text(file: &Path) -> Result<String, Fault> {
    read_text_and_stranger(file).map(|(text, _)| text)
}

/// The same, and who else may have written it ([`files::other_writer`]).
pub(super) fn read_text_and_stranger(file: &Path) -> Result<(String, Option<String>), Fault> {
    let read = || -> io::Result<(String, Option<String>)> {
        let opened = files::open_stream(file)?;
        let stranger = files::other_writer(&opened)?;
        let text = String::from_utf8(files::bounded(opened, LONGEST_TEXT)?);
        Ok((text.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?, stranger))
    };
    let fault = |e: io::Error| Fault::storage(format!("cannot read {}: {e}", file.display()));
    read().map_err(fault)
}

/// An experiment file as it was read.
pub struct ExperimentFile {
    pub source: Source,
    /// As the user named it.
    pub name: String,
    stranger: Option<String>,
}

impl ExperimentFile {
    pub fn read(file: &Path) -> Result<ExperimentFile, Fault> {
        let (text, stranger) = read_text_and_stranger(file).map_err(|fault| {
            fault.remedy("name an experiment file; docs/guide/experiments.md describes the format")
        })?;
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        let source = Source { name, text };
        Ok(ExperimentFile { source, name: file.display().to_string(), stranger })
    }

    /// The experiment. One that others may have written and that names commands, hosts, kernels or
    /// settings is refused, unless it is `trusted`; a testbed of the catalogues is the user's own.
    pub fn parse(&self, catalogues: &Catalogues, trusted: bool) -> Result<Experiment, Fault> {
        let experiment = spec::parse_experiment(&self.name, &self.source.text, catalogues)?;
        let Experiment { testbed, cells, power, settings, .. } = &experiment;
        let mut acts = Acts::of(cells, power);
        if catalogues.testbed.is_none() {
            acts.testbed(&testbed.text);
        }
        settings.iter().for_each(|wanted| acts.set(&wanted.setting));
        acts.check(&self.name, self.stranger.clone(), trusted)?;
        Ok(experiment)
    }
}

/// The experiment of a file on a testbed, its own if `None`. An error in the file is reported
/// before any host is queried.
pub fn from_file(
    file: &ExperimentFile,
    catalogues: Catalogues,
    trusted: bool,
) -> Result<(Experiment, Deployment), Fault> {
    let experiment = file.parse(&catalogues, trusted)?;
    let deployment = Deployment::new(experiment.testbed.clone())?;
    match deployment.host_cpus()? {
        None => Ok((experiment, deployment)),
        Some(cpus) => {
            let catalogues = Catalogues { cpus, ..catalogues };
            Ok((file.parse(&catalogues, trusted)?, deployment))
        }
    }
}

fn from_paths(
    request: &PathsRequest,
    testbed: Option<TestbedChoice>,
) -> Result<(Experiment, Deployment), Fault> {
    let catalogues = catalogues();
    let testbed = testbed.map_or_else(default_testbed, Ok)?;
    let deployment = Deployment::new(testbed.clone())?;
    testbed.check_kernels(!request.kernels.is_empty())?;
    let cpus = deployment.host_cpus()?.unwrap_or_else(|| testbed.cpus(&catalogues.cpus));
    let cores = match request.cores.as_str() {
        "two" | "two-cores" => cpus.usual(),
        other => other,
    };
    let cores = spec::parse_cores(cores, cpus)?;
    let link = request.link.as_deref().unwrap_or(testbed.link);
    let usual = usual_paths(&request.workload, link);
    let ask = CellRequest {
        paths: if request.paths.is_empty() { &usual } else { &request.paths },
        workload: &request.workload,
        stream: &request.stream,
        link,
        cores: &cores,
        kernels: &request.kernels,
        baseline: request.baseline.as_deref(),
    };
    let (cells, baseline) = spec::cells(&ask, &catalogues.paths)?;
    let experiment = Experiment {
        title: String::new(),
        testbed,
        cells,
        baseline,
        layout: Layout::default(),
        judgement: Judgement::default(),
        meters: catalogues.meters(["default"])?,
        profiling: spec::parse_profile(spec::DEFAULT_PROFILE)?,
        power: Power::default(),
        settings: Vec::new(),
    };
    Ok((experiment, deployment))
}

/// The paths of a study that names none.
fn usual_paths(workload: &str, link: &str) -> Vec<String> {
    let is = |text: &str, names: &[&str]| names.contains(&text.split(':').next().unwrap_or(text));
    let names = match is(workload, &["packets"]) {
        true if is(link, &["tap", "macvtap"]) => path::TAP_PAIRS,
        true => path::FRAME_PAIRS,
        false => return path::PAIRS.iter().map(|pair| pair.name.to_owned()).collect(),
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A seed that can be written into an experiment file: TOML has no larger numbers.
pub(crate) fn random_seed() -> u64 {
    rand::random::<u64>() >> 1
}
