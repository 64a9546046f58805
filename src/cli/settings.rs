//! `bytepath settings` and `bytepath restore`: what can be set on a host, and what an earlier run
//! left changed.

use super::output::{explain, print_text, warn};
use super::output_args::{Document, OutputArgs};
use super::testbed_args::TestbedArgs;
use bytepath_record::{Fault, RestorationRow, Role, SETTING_FORMS, SettingRecord, WantedSetting};
use bytepath_settings::journal::{Change, Damage, JournalState};
use bytepath_settings::{self as engine, StateFolder, ThisMachine};
use bytepath_spec::{SETTING_PROFILES, find_setting_profile};
use bytepath_study::{Deployment, NicSettings, nic_settings};
use bytepath_sys::Roots;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = SETTINGS_HELP)]
pub(super) struct SettingsArgs {
    /// Profile to show: PROFILE[:device=NAME]; without it, all are listed
    #[arg(value_name = "PROFILE")]
    profile: Option<String>,
    /// Print the profile's file instead, with its rationale
    #[arg(long, requires = "profile")]
    file: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    path: PathArgs,
}

/// A path, and the addresses of its flows.
#[derive(Debug, Args)]
struct PathArgs {
    /// Show what this path requires of the NIC with --address instead
    ///
    /// With options: PATH[:key=value,...].
    #[arg(long, value_name = "PATH", requires = "address", requires = "peer")]
    path: Option<String>,
    /// Local address of the flows, on this host's NIC
    #[arg(long, requires = "path")]
    address: Option<IpAddr>,
    /// Peer's address
    #[arg(long, requires = "path")]
    peer: Option<IpAddr>,
    /// Port that the flows go to [default: all TCP from the peer]
    #[arg(long, requires = "path")]
    port: Option<u16>,
    /// Role of this host: receiver or sender
    #[arg(long, requires = "path", default_value = "receiver", value_parser = role)]
    role: Role,
}

fn role(text: &str) -> Result<Role, String> {
    text.parse().map_err(|_| format!("'{text}' is not a role (receiver or sender)"))
}

const SETTINGS_HELP: &str = "\
Examples:
  bytepath settings                                profiles, and what can be set
  bytepath settings quiet                          what it would change here
  bytepath settings battle-of-zcs:device=eth0
  bytepath settings --path zcrx --address 10.0.0.2 --peer 10.0.0.1
  bytepath run --settings quiet --set \"sysctl net.core.rmem_max=67108864\"

Nothing is changed here. docs/reference/settings.md describes how each setting is restored.";

#[derive(Debug, Args)]
#[command(after_long_help = RESTORE_HELP)]
pub(super) struct RestoreArgs {
    /// Print this machine's journal and change nothing
    #[arg(long, conflicts_with_all = ["testbed", "sender", "receiver"])]
    show: bool,
    #[command(flatten)]
    testbed: TestbedArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const RESTORE_HELP: &str = "\
Examples:
  bytepath restore --show
  bytepath restore
  bytepath restore --receiver ssh://peer           this machine and another host

A run restores its settings on its own, even after an error or Ctrl-C. This is for a
run that was killed. Exits with 1 if something could not be restored.";

/// Name of the JSON document of settings.
const SETTINGS: &str = "bytepath-settings";

/// One setting of a profile, and what it would change here.
#[derive(Serialize, JsonSchema)]
pub(super) struct Item {
    #[serde(flatten)]
    record: SettingRecord,
    command: String,
    why: String,
}

impl Item {
    fn of(record: SettingRecord, why: String) -> Item {
        Item { command: record.setting.command(), record, why }
    }
}

/// The reason given for a path's settings.
const REQUIRED: &str = "the path requires it";

/// The names that `--settings` and `--set` accept.
#[derive(Serialize, JsonSchema)]
pub(super) struct SettingNames {
    profiles: Vec<ProfileName>,
    /// The forms of single settings.
    forms: Vec<SettingForm>,
}

#[derive(Serialize, JsonSchema)]
struct ProfileName {
    name: &'static str,
    summary: String,
}

#[derive(Serialize, JsonSchema)]
struct SettingForm {
    form: &'static str,
    example: &'static str,
}

/// Result of a restoration.
#[derive(Serialize, JsonSchema)]
pub(super) struct Restored {
    settings: Vec<RestorationRow>,
    /// Folders of monitoring groups that were removed: a killed process of the meter `memory-roles`
    /// had left them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    memory_groups: Vec<PathBuf>,
}

/// What remains to be restored.
#[derive(Serialize, JsonSchema)]
pub(super) struct LeftBehind {
    #[serde(flatten)]
    journal: Option<JournalState>,
    /// Folders of such groups that still exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    memory_groups: Vec<PathBuf>,
}

/// Lists profiles and forms, or shows one profile.
pub(super) fn settings(arguments: &SettingsArgs) -> Result<(), Fault> {
    let output = &arguments.output;
    let PathArgs { path, address, peer, port, role } = &arguments.path;
    if let (Some(path), Some(own), Some(peer)) = (path, address, peer) {
        let NicSettings { device, wanted } = nic_settings(path, *role, [*own, *peer], *port)?;
        let records = engine::preview(ThisMachine::new(Roots::real()), &wanted);
        let items: Vec<Item> = records.into_iter().map(|r| Item::of(r, REQUIRED.into())).collect();
        return print(output, &Document::of(SETTINGS, "settings", &items), || {
            required(&device, &items)
        });
    }
    let Some(name) = &arguments.profile else { return list(output) };
    let chosen = find_setting_profile(name)?;
    let profile = chosen.profile;
    if arguments.file {
        return print_text(|out| out.write_all(profile.text.as_bytes()));
    }
    let (wanted, reasons): (Vec<WantedSetting>, Vec<String>) =
        chosen.settings()?.into_iter().unzip();
    let records = engine::preview(ThisMachine::new(Roots::real()), &wanted);
    let items = records.into_iter().zip(reasons).map(|(record, why)| Item::of(record, why));
    let items: Vec<Item> = items.collect();
    print(output, &Document::of(SETTINGS, "settings", &items), || {
        let mut text = format!("{}: {}\n", profile.name, profile.summary());
        for item in &items {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\n  {}\n    why  {}", item.record, item.why);
            let _ = writeln!(text, "    as   {}", item.command);
        }
        text
    })
}

/// Lists what a path requires of a NIC here: the old and new value of each setting, and the option
/// with which a run makes it.
fn required(device: &str, items: &[Item]) -> String {
    if items.is_empty() {
        return format!("nothing needs to be set on {device} for this role\n");
    }
    let mut text = String::new();
    for Item { record, command, .. } in items {
        let _ = writeln!(text, "  {record}\n    as   {command}");
    }
    text.push_str("\nA run makes and restores them with:\n");
    for Item { record, .. } in items {
        let _ = writeln!(text, "  --set \"{}\" \\", record.setting);
    }
    text
}

/// Restores the settings that a killed run left behind.
pub(super) fn restore(arguments: &RestoreArgs) -> Result<ExitCode, Fault> {
    let place = StateFolder::standard();
    if arguments.show {
        show(&place, &arguments.output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut groups = Vec::new();
    let rows = match arguments.testbed.resolve()? {
        Some(choice) => Deployment::new(choice)?.stewards()?.restore()?,
        None => {
            groups = bytepath_meter::remove_memory_groups(&Roots::real().sys);
            for group in &groups {
                warn(format!("removed {}, which a killed process had left", group.display()));
            }
            engine::restore(&place, ThisMachine::new(Roots::real()))?
        }
    };
    let restored = Restored { settings: rows, memory_groups: groups };
    let Restored { settings: rows, memory_groups: groups } = &restored;
    print(&arguments.output, &Document::new("bytepath-restoration", &restored), || {
        match rows.is_empty() && groups.is_empty() {
            true => nothing_to_restore(&place),
            false => rows.iter().map(|row| format!("{row}\n")).collect(),
        }
    })?;
    let pending = rows.iter().any(RestorationRow::is_pending);
    Ok(if pending { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reports which settings of this host would stay changed if this process ended now.
pub(super) fn report_unrestored() {
    match StateFolder::standard().read() {
        Ok(Some(chronicle))
            if chronicle.begin.as_ref().is_some_and(|b| b.pid == std::process::id()) =>
        {
            let set = chronicle.changes.iter().filter(|change| !change.undone);
            let lines: String = set.map(|change| format!("\n  {}", describe(change))).collect();
            warn(format!("these settings stay; `bytepath restore` restores them:{lines}"));
        }
        Err(fault) => explain(&fault),
        _ => {}
    }
}

/// Reports on standard error what a killed run has left changed, if anything.
pub(super) fn report_left_behind() {
    let Some(chronicle) = engine::left_behind(&StateFolder::standard()) else { return };
    if !chronicle.damaged.is_empty() {
        return warn("the journal of an earlier run is damaged; see `bytepath restore`");
    }
    let count = chronicle.changes.iter().filter(|change| !change.undone).count();
    let pid = chronicle.begin.map_or("unknown".to_owned(), |begin| begin.pid.to_string());
    warn(format!(
        "an earlier run (process {pid}) was killed and left {count} settings of this \
         host changed; `bytepath restore` restores them"
    ));
}

fn list(output: &OutputArgs) -> Result<(), Fault> {
    let profiles = SETTING_PROFILES.iter();
    let forms = SETTING_FORMS.iter();
    let names = SettingNames {
        profiles: profiles.map(|p| ProfileName { name: p.name, summary: p.summary() }).collect(),
        forms: forms.map(|(form, example)| SettingForm { form, example }).collect(),
    };
    let document = Document::new("bytepath-setting-names", names);
    print(output, &document, || {
        let mut text = "profiles, for --settings:\n".to_owned();
        for ProfileName { name, summary } in &document.content.profiles {
            let _ = writeln!(text, "  {name:<14} {summary}");
        }
        text.push_str("\nsettings, for --set:\n");
        for SettingForm { form, example } in &document.content.forms {
            let _ = writeln!(text, "  {form}\n      {example}");
        }
        text
    })
}

fn show(place: &StateFolder, output: &OutputArgs) -> Result<(), Fault> {
    let memory_groups = bytepath_meter::left_memory_groups(&Roots::real().sys);
    let left = LeftBehind { journal: place.read()?, memory_groups };
    print(output, &Document::new("bytepath-journal", &left), || {
        let mut text = match &left.journal {
            Some(chronicle) => journal(place, chronicle),
            None if left.memory_groups.is_empty() => nothing_to_restore(place),
            None => String::new(),
        };
        for group in &left.memory_groups {
            let _ = writeln!(text, "{}: left by a process that was killed", group.display());
        }
        text
    })
}

fn journal(place: &StateFolder, chronicle: &JournalState) -> String {
    let path = place.journal();
    let mut text = format!("{}\n", path.display());
    if let Some(begin) = &chronicle.begin {
        let state = if place.is_locked() { "still running" } else { "no longer running" };
        let _ = writeln!(text, "bytepath {}, process {}, {state}", begin.bytepath, begin.pid);
        let _ = writeln!(text, "boot {}, network namespace {}", begin.boot, begin.namespace);
    }
    for change in &chronicle.changes {
        let state = if change.undone { "back" } else { "set" };
        let _ = writeln!(text, "  {:>3}  {state:<4}  {}", change.number, describe(change));
    }
    for Damage { line, text: content } in &chronicle.damaged {
        let _ = writeln!(text, "  line {line} is damaged: {content}");
    }
    if chronicle.torn {
        text.push_str("  the last line is torn: the change it announces was not started\n");
    }
    text
}

/// Formats a change: `mtu eth0: 1500 -> 4148`.
fn describe(change: &Change) -> String {
    let (part, before, set) = change.setting.differing(&change.before, &change.set);
    format!("{}{part}: {before} -> {set}", change.setting.subject())
}

fn nothing_to_restore(place: &StateFolder) -> String {
    format!("nothing to restore: {} is empty\n", place.journal().display())
}

fn print(
    output: &OutputArgs,
    document: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Fault> {
    output.print_plain(document, |out| out.write_all(text().as_bytes()))
}
