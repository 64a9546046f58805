//! `bytepath doctor`: what works on this host, and what would distort measurements.

use super::exit::UNSUPPORTED;
use super::place::{Place, PlaceArguments, of_host, unknown};
use super::plan::{from_file, read};
use super::printed::{Document, Printed};
use bytepath_engine::path;
use bytepath_host as host;
use bytepath_host::testbed::{self, Emulation};
use bytepath_meter as meter;
use bytepath_record::{Cell, CellId, Facts, Fault, Finding, Role, Severity, Support, Tls};
use bytepath_report as report;
use bytepath_sys::Roots;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(super) struct DoctorArguments {
    /// Also list the cells of this experiment file that cannot run here
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// Check this host instead, as in ssh://HOST
    ///
    /// ssh://[USER@]HOST[:PORT], or exec:COMMAND, which runs the words after it there.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["experiment", "testbed", "sender", "receiver", "device", "kernel"])]
    host: Option<String>,
    #[command(flatten)]
    place: PlaceArguments,
    #[command(flatten)]
    printed: Printed,
}

const AFTER_HELP: &str = "\
Examples:
  bytepath doctor
  bytepath doctor --host ssh://peer
  bytepath doctor --experiment experiments/battle.toml
  bytepath doctor --experiment experiments/battle.toml --device eth1
  bytepath doctor --experiment experiments/battle.toml --testbed ports:sender=eth1,receiver=eth2

Exits with 3 if something blocks: a cell of the experiment that cannot run
or, without --experiment, anything marked 'blocks'.";

/// What is printed.
#[derive(Serialize)]
struct Examination {
    testbeds: Vec<Item>,
    paths: Vec<Item>,
    streams: Vec<Item>,
    meters: Vec<Item>,
    findings: Vec<Finding>,
    /// Cells of the experiment that cannot run.
    #[serde(skip_serializing_if = "Option::is_none")]
    cells: Option<Vec<Item>>,
}

#[derive(Serialize)]
struct Item {
    name: String,
    #[serde(flatten)]
    support: Support,
}

pub(super) fn doctor(arguments: &DoctorArguments) -> Result<ExitCode, Fault> {
    // An error in the file is reported before anything is set up.
    let experiment = arguments
        .experiment
        .as_deref()
        .map(|file| from_file(file, &read(file)?.text, arguments.place.choice()?));
    let experiment = experiment.transpose()?;
    let (facts, findings) = match &arguments.host {
        Some(name) => {
            let (facts, findings) = of_host(name)?;
            (Ok(vec![facts.clone(), facts]), findings)
        }
        None => {
            let (facts, found) = arguments.place.examined()?;
            (facts, found.unwrap_or_else(|| findings(&Roots::real())))
        }
    };
    let mut findings = findings;
    if let (None, Ok([sender, receiver])) = (&arguments.host, facts.as_deref()) {
        findings.extend(host::examine_pair([sender, receiver], &arguments.place.devices()?));
        findings.sort_by_key(|finding| finding.severity);
    }
    let of = |role: Role| facts.as_ref().map(|facts| &facts[role as usize]);
    let item = |name: &str, support: Support| Item { name: name.to_owned(), support };
    let halves = path::CATALOG.iter().flat_map(|path| {
        let there = Role::ALL.into_iter().filter(|role| path.half(*role).is_some());
        there.map(move |role| (path, role))
    });
    let examination = Examination {
        testbeds: testbed::CATALOG.iter().map(|bed| item(bed.name(), bed.probe())).collect(),
        paths: halves
            .map(|(path, role)| {
                let usual = |facts| path.check(role, facts).unwrap_or(Support::Yes);
                item(&format!("{} ({role})", path.name), of(role).map_or_else(unknown, usual))
            })
            .collect(),
        streams: [("tls=kernel", Tls::Kernel), ("tls=user", Tls::User)]
            .map(|(name, tls)| {
                let support = |role| of(role).map_or_else(unknown, |f| path::tls_support(tls, f));
                item(name, support(Role::Sender).and(support(Role::Receiver)))
            })
            .into(),
        meters: meter::CATALOG
            .iter()
            .map(|meter| {
                let support = of(Role::Receiver).map_or_else(unknown, |f| (meter.probe)(f));
                item(meter.name, support)
            })
            .collect(),
        findings,
        cells: experiment
            .map(|(experiment, bed)| -> Result<Vec<Item>, Fault> {
                let place = Place::on(experiment.testbed, bed);
                let surveyed = match arguments.place.is_device() {
                    true => Vec::new(),
                    false => place.look_for(&experiment.cells),
                };
                // A device is there under one kernel, the running one.
                let of = |cell: &Cell| match arguments.place.is_device() {
                    true => Some(&facts),
                    false => surveyed.iter().find(|(k, _)| *k == cell.kernel).map(|(_, f)| f),
                };
                let judged = |cell: &Cell| Some(able(cell, of(cell)?).and(place.preparable(cell)));
                let cells = experiment.cells.iter().filter_map(|c| Some((&c.id, judged(c)?)));
                let unable = cells.filter(|(_, support)| !support.is_yes());
                Ok(unable.map(|(CellId(id), support)| item(id, support)).collect())
            })
            .transpose()?,
    };
    let blocked = match &examination.cells {
        Some(cells) => !cells.is_empty(),
        None => examination.findings.iter().any(|f| f.severity == Severity::Blocks),
    };
    print(&examination, &arguments.printed)?;
    Ok(if blocked { ExitCode::from(UNSUPPORTED) } else { ExitCode::SUCCESS })
}

/// What would distort measurements on this host, and testbeds that work
/// here but measure no speed.
fn findings(roots: &Roots) -> Vec<Finding> {
    let mut all = host::examine(&host::survey(roots), &host::moment(roots));
    all.extend(host::examine_dsa(roots));
    for bed in testbed::CATALOG.iter().filter(|bed| bed.probe().is_yes()) {
        all.extend(bed.findings());
        if let Some(Emulation { because, .. }) = bed.emulation() {
            all.push(Finding {
                severity: Severity::Note,
                what: format!("testbed {}: {because}", bed.name()),
                effect: "its studies show that things work, not how fast".to_owned(),
                command: "run it on the machine itself, or ask its host for nested virtualisation"
                    .to_owned(),
            });
        }
    }
    all
}

fn able(cell: &Cell, facts: &Result<Vec<Facts>, Fault>) -> Support {
    let facts = match facts {
        Ok(facts) => facts,
        Err(fault) => return unknown(fault),
    };
    let check =
        |role: Role| bytepath_study::check(path::CATALOG, cell, role, &facts[role as usize]);
    check(Role::Sender).and(check(Role::Receiver))
}

fn print(examination: &Examination, printed: &Printed) -> Result<(), Fault> {
    let pairs = |items: &[Item]| -> Vec<(String, Support)> {
        items.iter().map(|item| (item.name.clone(), item.support.clone())).collect()
    };
    printed.print(&Document::new("bytepath-doctor", examination), |style, out| {
        let mut groups = vec![
            ("Testbeds", pairs(&examination.testbeds)),
            ("Paths", pairs(&examination.paths)),
            ("Encryption (--stream)", pairs(&examination.streams)),
            ("Meters", pairs(&examination.meters)),
        ];
        if let Some(cells) = &examination.cells {
            groups.push(("Cells of the experiment that cannot run", pairs(cells)));
        }
        report::examination(&groups, &examination.findings, style, out)
    })
}
