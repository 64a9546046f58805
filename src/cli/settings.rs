//! `bytepath settings` and `bytepath restore`: what can be set on a host, and what
//! an earlier run left set.

use super::bed::{BedArguments, chosen};
use super::output;
use super::preparation::{self, PreparationArguments};
use super::run::own_program;
use crate::record::{
    Fault, FaultKind, RestorationRow, SETTING_FORMS, SettingRecord, WantedSetting,
};
use crate::run::Stewards;
use crate::settings::{self as engine, Place, ThisMachine};
use crate::spec::{SETTING_PROFILES, find_setting_profile};
use crate::sys::Roots;
use crate::testbed::Site;
use clap::Args;
use serde::Serialize;
use std::fmt::Write as _;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = SETTINGS_HELP)]
pub(super) struct SettingsArguments {
    /// Profile to show: PROFILE[:device=NAME]; without it, all are listed
    #[arg(value_name = "PROFILE")]
    profile: Option<String>,
    /// Print the profile's file instead, with its reasons
    #[arg(long, requires = "profile")]
    file: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    preparation: PreparationArguments,
}

const SETTINGS_HELP: &str = "\
Examples:
  bytepath settings                                profiles, and what can be set
  bytepath settings quiet                          from what to what, here
  bytepath settings battle-of-zcs:device=eth0
  bytepath settings --path zcrx --address 10.0.0.2 --peer 10.0.0.1
  bytepath run --settings quiet --set \"sysctl net.core.rmem_max=67108864\"

Nothing is changed here. docs/settings.md tells how each setting is put back.";

#[derive(Debug, Args)]
#[command(after_help = RESTORE_HELP)]
pub(super) struct RestoreArguments {
    /// Print what the journal of this machine says, and change nothing
    #[arg(long, conflicts_with_all = ["testbed", "sender", "receiver"])]
    show: bool,
    #[command(flatten)]
    bed: BedArguments,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

const RESTORE_HELP: &str = "\
Examples:
  bytepath restore --show
  bytepath restore
  bytepath restore --receiver ssh://peer           this machine, and a host that it knows

A run puts its settings back by itself, also after an error or Ctrl-C. This is for
one that was killed. Exits with 1 if something could not be put back.";

/// One setting of a profile, and what it would change here.
#[derive(Serialize)]
struct Item {
    #[serde(flatten)]
    record: SettingRecord,
    command: String,
    why: String,
}

/// Lists profiles and forms, or shows one profile.
pub(super) fn settings(arguments: &SettingsArguments) -> Result<ExitCode, Fault> {
    if let Some(asked) = preparation::preparation(&arguments.preparation)? {
        return print(&match arguments.json {
            true => json(&asked.records)?,
            false => preparation::text(&asked),
        });
    }
    let Some(name) = &arguments.profile else {
        return print(&list(arguments.json)?);
    };
    let (profile, device) = find_setting_profile(name)?;
    if arguments.file {
        return print(profile.text);
    }
    let (wanted, reasons): (Vec<WantedSetting>, Vec<String>) =
        profile.settings(device.as_ref())?.into_iter().unzip();
    let records = engine::preview(ThisMachine::new(Roots::real()), &wanted);
    let items: Vec<Item> = records
        .into_iter()
        .zip(reasons)
        .map(|(record, why)| Item { command: record.setting.command(), record, why })
        .collect();
    if arguments.json {
        return print(&json(&items)?);
    }
    let mut text = format!("{}: {}\n", profile.name, profile.summary());
    for item in &items {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n  {}\n    why  {}", item.record, item.why);
        let _ = writeln!(text, "    as   {}", item.command);
    }
    print(&text)
}

/// Puts back what a run that was killed left set.
pub(super) fn restore(arguments: &RestoreArguments) -> Result<ExitCode, Fault> {
    let place = Place::standard();
    if arguments.show {
        return print(&show(&place, arguments.json)?);
    }
    let rows = match arguments.bed.choice()? {
        Some(choice) => {
            let bed = chosen(&choice)?;
            Stewards::at(bed.as_ref(), &Site::of(&own_program()?))?.restore()?
        }
        None => engine::restore(&place, ThisMachine::new(Roots::real()))?,
    };
    let text = if arguments.json {
        json(&rows)?
    } else if rows.is_empty() {
        nothing(&place)
    } else {
        rows.iter().map(|row| format!("{row}\n")).collect()
    };
    print(&text)?;
    let pending = rows.iter().any(RestorationRow::is_pending);
    Ok(if pending { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Says on standard error what a run that was killed has left set, if one has.
pub(super) fn tell_left_behind() {
    let Some(told) = engine::left_behind(&Place::standard()) else { return };
    let count = told.changes.iter().filter(|change| !change.undone).count();
    let pid = told.begin.map_or("unknown".to_owned(), |begin| begin.pid.to_string());
    eprintln!(
        "bytepath: an earlier run (process {pid}) was killed and left {count} settings of this \
         host changed; `bytepath restore` puts them back"
    );
}

fn list(as_json: bool) -> Result<String, Fault> {
    let profiles: Vec<(&str, String)> =
        SETTING_PROFILES.iter().map(|profile| (profile.name, profile.summary())).collect();
    if as_json {
        return json(&serde_json::json!({ "profiles": profiles, "forms": SETTING_FORMS }));
    }
    let mut text = "profiles, as --settings takes them:\n".to_owned();
    for (name, summary) in profiles {
        let _ = writeln!(text, "  {name:<14} {summary}");
    }
    text.push_str("\nsettings, as --set takes them:\n");
    for (form, example) in SETTING_FORMS {
        let _ = writeln!(text, "  {form}\n      {example}");
    }
    Ok(text)
}

fn show(place: &Place, as_json: bool) -> Result<String, Fault> {
    let told = place.read()?;
    if as_json {
        return json(&told);
    }
    let path = place.journal();
    let Some(told) = told else {
        return Ok(nothing(place));
    };
    let mut text = format!("{}\n", path.display());
    if let Some(begin) = &told.begin {
        let state = if place.is_locked() { "still at work" } else { "not at work any more" };
        let _ = writeln!(text, "bytepath {}, process {}, {state}", begin.bytepath, begin.pid);
        let _ = writeln!(text, "boot {}, network namespace {}", begin.boot, begin.namespace);
    }
    for change in &told.changes {
        let state = if change.undone { "back" } else { "set" };
        let (part, before, set) = change.setting.differing(&change.before, &change.set);
        let subject = change.setting.subject();
        let line = format!("{:>3}  {state:<4}  {subject}{part}: {before} -> {set}", change.number);
        let _ = writeln!(text, "  {line}");
    }
    for line in &told.damaged {
        let _ = writeln!(text, "  line {line} is torn or damaged, and passed over");
    }
    Ok(text)
}

fn nothing(place: &Place) -> String {
    format!("nothing to restore: {} tells of nothing\n", place.journal().display())
}

fn json(value: &impl Serialize) -> Result<String, Fault> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|e| Fault::new(FaultKind::System, format!("cannot encode: {e}")))?;
    Ok(text + "\n")
}

fn print(text: &str) -> Result<ExitCode, Fault> {
    output::print(|out| out.write_all(text.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}
