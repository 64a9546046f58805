//! `bytepath doctor`: what works on this host, and what would distort measurements.

use super::deployment_args::DeploymentArgs;
use super::exit::UNSUPPORTED;
use super::output_args::{Document, OutputArgs};
use super::plan::estimate;
use super::testbed_args::TestbedArgs;
use bytepath_engine::path::{self, DataPath};
use bytepath_host::testbed;
use bytepath_meter as meter;
use bytepath_record::{Fault, Finding, Role, Severity, Support, Tls};
use bytepath_report as report;
use bytepath_spec::{TestbedChoice, usage};
use bytepath_study::{Outline, RunRequest, Unable, examine_host};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(super) struct DoctorArgs {
    /// Also list the cells of this experiment file that cannot run here
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// Query the hosts that the experiment file names even if others may have written it
    #[arg(long, hide_short_help = true, requires = "experiment")]
    trust: bool,
    /// Check this host instead, as in ssh://HOST
    ///
    /// ssh://[USER@]HOST[:PORT], or exec:COMMAND, which runs the words after it there.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["experiment", "testbed", "sender", "receiver", "device", "kernel"])]
    host: Option<String>,
    #[command(flatten)]
    deployment: DeploymentArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const AFTER_HELP: &str = "\
Examples:
  bytepath doctor
  bytepath doctor --host ssh://peer
  bytepath doctor --experiment experiments/battle.toml
  bytepath doctor --experiment experiments/battle.toml --device eth1
  bytepath doctor --experiment experiments/battle.toml --testbed ports:sender=eth1,receiver=eth2

With --experiment cells are judged as `bytepath run` and `run --dry-run` judge them, guests
boot for it, and it exits as those would before the first trial: with 0 if the study
would run, whatever cells it leaves out. Without --experiment it exits with 3 if
anything is marked 'blocks'.";

/// The document that is printed.
#[derive(Serialize, JsonSchema)]
pub(super) struct Examination {
    testbeds: Vec<Item>,
    paths: Vec<Item>,
    streams: Vec<Item>,
    meters: Vec<Item>,
    findings: Vec<Finding>,
    /// Cells of the experiment that cannot run.
    #[serde(skip_serializing_if = "Option::is_none")]
    cells: Option<Vec<Item>>,
    /// Duration of the other cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<String>,
    /// Why a study of the experiment would end before its first trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    obstacle: Option<Fault>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Item {
    name: String,
    #[serde(flatten)]
    support: Support,
}

impl Item {
    fn new(name: impl Into<String>, support: Support) -> Item {
        Item { name: name.into(), support }
    }
}

/// Lists every testbed, and whether it can be raised here; the named one with its options.
fn testbeds(named: Option<TestbedChoice>) -> Result<Vec<Item>, Fault> {
    let all = testbed::CATALOG.iter().map(|bed| {
        let options = named.as_ref().filter(|named| named.name == bed.name());
        let configured = options.map(|named| bed.configured(&named.options)).transpose()?;
        let support = configured.flatten().map_or_else(|| bed.probe(), |bed| bed.probe());
        Ok(Item::new(bed.name(), support))
    });
    all.collect()
}

pub(super) fn doctor(arguments: &DoctorArgs) -> Result<ExitCode, Fault> {
    arguments.output.format()?;
    let hosts = arguments.deployment.resolve()?;
    // An error in the file is reported before anything is set up.
    let read = |file: &PathBuf| {
        let testbed = arguments.deployment.testbed()?;
        let request = RunRequest::of_file(file.clone(), PathBuf::new());
        RunRequest { testbed, trusted: arguments.trust, ..request }.plan()
    };
    let experiment = arguments.experiment.as_ref().map(read).transpose()?;
    let (facts, findings) = match &arguments.host {
        Some(name) => match TestbedArgs::with_receiver(name).resolve()? {
            Some(choice) => examine_host(name, choice)?,
            None => return Err(usage("no host is named")),
        },
        None => {
            let facts = hosts.survey(true)?;
            let findings = hosts.findings(&facts)?;
            (facts, findings)
        }
    };
    let halves = path::CATALOG.iter().flat_map(|path| Role::ALL.map(|role| (path, role)));
    let half = |(path, role): (&&DataPath, Role)| {
        Some(Item::new(format!("{} ({role})", path.name), facts.supports_half(path, role)?))
    };
    let outline = experiment.as_ref();
    let outline = outline.map(|(plan, testbed)| Outline::of(plan, testbed, hosts.device()));
    let outline = outline.transpose()?;
    let unable = |one: &Unable| Item::new(one.cell.0.clone(), one.fault.clone().into());
    let tls = |name: &str, tls| Item::new(name, facts.supports_tls(tls));
    let meters = meter::CATALOG.iter();
    let examination = Examination {
        testbeds: testbeds(arguments.deployment.testbed()?)?,
        paths: halves.filter_map(half).collect(),
        streams: vec![tls("tls=kernel", Tls::Kernel), tls("tls=user", Tls::User)],
        meters: meters.map(|m| Item::new(m.name, facts.supports_meter(m))).collect(),
        findings,
        cells: outline.as_ref().map(|outline| outline.unable.iter().map(unable).collect()),
        estimate: outline.as_ref().map(estimate),
        obstacle: outline.as_ref().and_then(|outline| outline.obstacle.clone()),
    };
    print(&examination, &arguments.output)?;
    if let Some(fault) = examination.obstacle {
        return Err(fault);
    }
    let blocks = |finding: &Finding| finding.severity == Severity::Blocks;
    let is_blocked = outline.is_none() && examination.findings.iter().any(blocks);
    Ok(if is_blocked { ExitCode::from(UNSUPPORTED) } else { ExitCode::SUCCESS })
}

fn print(examination: &Examination, output: &OutputArgs) -> Result<(), Fault> {
    let pairs = |items: &[Item]| -> Vec<(String, Support)> {
        items.iter().map(|item| (item.name.clone(), item.support.clone())).collect()
    };
    output.print(&Document::new("bytepath-doctor", examination), |style, out| {
        let mut groups = vec![
            ("Testbeds", pairs(&examination.testbeds)),
            ("Paths", pairs(&examination.paths)),
            ("Encryption (--stream)", pairs(&examination.streams)),
            ("Meters", pairs(&examination.meters)),
        ];
        if let Some(cells) = &examination.cells {
            groups.push(("Cells of the experiment that cannot run", pairs(cells)));
        }
        let (findings, estimate) = (&examination.findings, examination.estimate.as_deref());
        report::examination(&groups, estimate, findings).write(style, out)
    })
}
