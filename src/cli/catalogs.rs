//! `bytepath paths` and `bytepath meters`: the catalogues with what this host
//! supports.

use super::deployment_args::DeploymentArgs;
use super::output_args::{Document, OutputArgs};
use bytepath_engine::path::{self, DataPath};
use bytepath_meter as meter;
use bytepath_record::{Fault, OptionSpec, Role, Support, Tls};
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

#[derive(Debug, Args)]
pub(super) struct CatalogArgs {
    #[command(flatten)]
    deployment: DeploymentArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What `paths --json` prints.
#[derive(Serialize)]
struct Paths<'a> {
    /// Halves.
    paths: &'a [Entry],
    /// What `--path` takes, and the halves that it names.
    pairs: &'a [path::Pair],
    /// Who can encrypt here.
    tls: &'a [Entry],
}

/// One half of a path, or a meter, and whether it works here.
#[derive(Serialize)]
struct Entry {
    name: &'static str,
    summary: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    #[serde(flatten)]
    support: Support,
    options: &'static [OptionSpec],
}

/// Who can encrypt a stream.
const ENCRYPTION: [(Tls, &str, &str); 2] = [
    (Tls::User, "tls=user", "TLS 1.3 records by the program: the path socket"),
    (Tls::Kernel, "tls=kernel", "kTLS: the paths socket, sendfile, splice and uring"),
];

/// Lists the data paths.
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
    let entries: Vec<Entry> = halves.filter_map(entry).collect();
    let tls = ENCRYPTION.map(|(tls, name, summary)| {
        let support = facts.supports_tls(tls);
        Entry { name, summary, role: None, options: &[], support }
    });
    let list = Paths { paths: &entries, pairs: path::PAIRS, tls: &tls };
    arguments.output.print_plain(&Document::new("bytepath-paths", list), |out| {
        write(&entries, out)?;
        writeln!(out, "pairs (TX+RX), as --path takes them:")?;
        for path::Pair { name, tx, rx, .. } in path::PAIRS {
            writeln!(out, "  {name:<14} {tx}+{rx}")?;
        }
        writeln!(out, "\nencryption, as --stream takes it:")?;
        write(&tls, out)
    })
}

/// Lists the meters.
pub(super) fn meters(arguments: &CatalogArgs) -> Result<(), Fault> {
    let facts = arguments.deployment.resolve()?.survey(true)?;
    let entry = |meter: &&meter::Meter| Entry {
        name: meter.name,
        summary: meter.summary,
        role: None,
        support: facts.supports_meter(meter),
        options: meter.options,
    };
    let entries: Vec<Entry> = meter::CATALOG.iter().map(entry).collect();
    let document = Document::of("bytepath-meters", "meters", &entries);
    arguments.output.print_plain(&document, |out| write(&entries, out))
}

fn write(entries: &[Entry], out: &mut dyn Write) -> io::Result<()> {
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
    writeln!(out)
}
