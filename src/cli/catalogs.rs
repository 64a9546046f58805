//! `bytepath paths` and `bytepath meters`: the catalogues, and what this host supports.

use super::deployment_args::DeploymentArgs;
use super::output_args::{Document, OutputArgs};
use bytepath_engine::path::{self, DataPath};
use bytepath_meter as meter;
use bytepath_record::{Fault, OptionSpec, Role, Support, Tls};
use bytepath_spec::find;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Write};

#[derive(Debug, Args)]
pub(super) struct CatalogArgs {
    /// Show this one alone, with its options, and why it cannot run here
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    deployment: DeploymentArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The JSON document of `paths`.
#[derive(Serialize, JsonSchema)]
pub(super) struct Paths<'a> {
    /// Halves.
    paths: &'a [Entry],
    /// Names that `--path` accepts, with the halves they stand for.
    pairs: &'a [path::Pair],
    /// Kinds of encryption and whether they work here.
    tls: &'a [Entry],
}

/// One half of a path, or a meter, and whether it works here.
#[derive(Serialize, JsonSchema)]
pub(super) struct Entry {
    name: &'static str,
    summary: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    #[serde(flatten)]
    support: Support,
    options: &'static [OptionSpec],
}

/// Kinds of encryption of a stream.
const ENCRYPTION: [(Tls, &str, &str); 2] = [
    (Tls::User, "tls=user", "TLS 1.3 records by the program: the path socket"),
    (Tls::Kernel, "tls=kernel", "kTLS: the paths socket, sendfile, splice and uring"),
];

/// Lists the data paths, or describes one.
pub(super) fn paths(arguments: &CatalogArgs) -> Result<(), Fault> {
    let facts = arguments.deployment.resolve()?.survey(false)?;
    let halves = path::CATALOG.iter().flat_map(|path| Role::ALL.map(|role| (path, role)));
    let entry = |(path, role): (&&'static DataPath, Role)| {
        Some(Entry {
            name: path.name,
            summary: path.summary,
            role: Some(role),
            options: path.half(role)?.options,
            support: facts.supports_half(path, role)?,
        })
    };
    let mut entries: Vec<Entry> = halves.filter_map(entry).collect();
    let tls = ENCRYPTION.map(|(tls, name, summary)| {
        let support = facts.supports_tls(tls);
        Entry { name, summary, role: None, options: &[], support }
    });
    if let Some(name) = &arguments.name {
        keep_named(&mut entries, name)?;
    }
    let list = Paths { paths: &entries, pairs: path::PAIRS, tls: &tls };
    let document = Document::new("bytepath-paths", list);
    arguments.output.print_plain(&document, |out| match arguments.name {
        Some(_) => describe(&entries, out),
        None => write_paths(&entries, &tls, out),
    })
}

/// Keeps only the halves of the named path or pair.
fn keep_named(entries: &mut Vec<Entry>, name: &str) -> Result<(), Fault> {
    let pair = path::PAIRS.iter().find(|pair| pair.name == name);
    let is_named = |entry: &Entry| match (pair, entry.role) {
        (Some(pair), Some(Role::Sender)) => entry.name == pair.tx,
        (Some(pair), Some(Role::Receiver)) => entry.name == pair.rx,
        _ => entry.name == name,
    };
    if pair.is_none() {
        find("path", name, path::CATALOG, |path| path.name)?;
    }
    entries.retain(is_named);
    Ok(())
}

/// Writes one line per pair, and the halves that are in none.
fn write_paths(entries: &[Entry], tls: &[Entry], out: &mut dyn Write) -> io::Result<()> {
    let half = |name: &str, role| {
        entries.iter().find(|entry| entry.name == name && entry.role == Some(role))
    };
    writeln!(
        out,
        "Paths of a TCP stream (--path NAME, or TX+RX); all that can run here do by default"
    )?;
    for path::Pair { name, tx, rx } in path::PAIRS {
        let halves = [half(tx, Role::Sender), half(rx, Role::Receiver)];
        let why_not = halves.into_iter().flatten().find_map(|half| half.support.reason());
        let pair = format!("{tx}+{rx}");
        writeln!(out, "  {name:<14} {pair:<33} {}", here(why_not, 49))?;
    }
    writeln!(out, "\nOther halves (TX+RX), most of them for --workload packets")?;
    let paired = |entry: &&Entry| {
        path::PAIRS.iter().any(|pair| match entry.role {
            Some(Role::Sender) => entry.name == pair.tx,
            _ => entry.name == pair.rx,
        })
    };
    let is_loop = |entry: &Entry| {
        path::find(path::CATALOG, entry.name).is_some_and(|path| path.event_loop.is_some())
    };
    // Halves with the same result share a line.
    let has_other = |entry: &Entry| {
        let other = half(entry.name, entry.role?.peer()).filter(|other| !paired(other))?;
        Some(other.support.reason() == entry.support.reason())
    };
    for entry in entries.iter().filter(|entry| !paired(entry)) {
        let role = match (entry.role, has_other(entry) == Some(true)) {
            (Some(Role::Receiver), true) => continue,
            (_, true) if is_loop(entry) => "client and server".to_owned(),
            (_, true) => "sender and receiver".to_owned(),
            (role, false) => role.map(|role| role.to_string()).unwrap_or_default(),
        };
        writeln!(out, "  {:<14} {role:<33} {}", entry.name, here(entry.support.reason(), 49))?;
    }
    writeln!(out, "\nEncryption (--stream)")?;
    for entry in tls {
        writeln!(out, "  {:<48} {}", entry.name, here(entry.support.reason(), 49))?;
    }
    writeln!(out, "\nbytepath paths NAME: what it is, its options, and what it lacks here")
}

/// Lists the meters, or describes one.
pub(super) fn meters(arguments: &CatalogArgs) -> Result<(), Fault> {
    let facts = arguments.deployment.resolve()?.survey(true)?;
    let entry = |meter: &&meter::Meter| Entry {
        name: meter.name,
        summary: meter.summary,
        role: None,
        support: facts.supports_meter(meter),
        options: meter.options,
    };
    let mut entries: Vec<Entry> = meter::CATALOG.iter().map(entry).collect();
    if let Some(name) = &arguments.name {
        let named = find("meter", name, &entries, |entry| entry.name)?.name;
        entries.retain(|entry| entry.name == named);
    }
    let document = Document::of("bytepath-meters", "meters", &entries);
    arguments.output.print_plain(&document, |out| match arguments.name {
        Some(_) => describe(&entries, out),
        None => {
            for Entry { name, summary, support, .. } in &entries {
                writeln!(out, "{name:<12} {summary}")?;
                if let Some(reason) = support.reason() {
                    writeln!(out, "{:<12} {}", "", here(Some(reason), 87))?;
                }
            }
            writeln!(out, "\nbytepath meters NAME: its options, and what it lacks here")
        }
    })
}

/// Formats whether something can run here, in at most `width` characters.
fn here(why_not: Option<&str>, width: usize) -> String {
    let Some(reason) = why_not else { return "yes".into() };
    let text = format!("no: {reason}");
    match text.char_indices().nth(width) {
        Some(_) => text.chars().take(width - 3).chain("...".chars()).collect(),
        None => text,
    }
}

fn describe(entries: &[Entry], out: &mut dyn Write) -> io::Result<()> {
    for entry in entries {
        let role = entry.role.map(|role| format!(" ({role})")).unwrap_or_default();
        let yes = if entry.support.is_yes() { "yes" } else { "no " };
        writeln!(out, "{yes}  {}{role}: {}", entry.name, entry.summary)?;
        if let Support::No { reason, remedy } = &entry.support {
            writeln!(out, "       why not: {reason}")?;
            if !remedy.is_empty() {
                writeln!(out, "       remedy:  {remedy}")?;
            }
        }
        for option in entry.options {
            let typed = format!("{}={}", option.name, option.kind);
            writeln!(out, "       {typed:<34} {} [{}]", option.help, option.default)?;
        }
    }
    Ok(())
}
