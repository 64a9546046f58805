//! The command line: it parses and prints, in the process of the controller.
//!
//! Each command has a file. Its clap struct holds raw values; `resolve` converts them to types of
//! other crates (a testbed, a request of a run, hosts to examine). The work is done in
//! `bytepath-study`, `-observe`, `-stats`, `-profile` and `-engine`, and `bytepath-report` lays out
//! what is printed. `*_args` are options that several commands share, `output` is the only module
//! that writes to standard output and standard error, `exit` has the exit codes. All names come
//! from the catalogues; nothing is listed twice. Agents are the same program, started as
//! `bytepath agent`.

mod advise;
mod catalogs;
mod compare;
mod copy;
mod deployment_args;
mod diff;
mod doctor;
mod exit;
mod fleet;
mod help;
mod history;
mod manual;
mod memory;
mod merge;
mod newest;
mod observe;
mod output;
mod output_args;
mod plan;
mod power;
mod profile;
mod progress;
mod published;
mod run;
mod schema;
mod settings;
mod show;
mod signals;
mod sizing;
mod testbed_args;
mod version;

pub use exit::exit_code;
pub use output::explain;

use bytepath_engine::path;
use bytepath_meter as meter;
use bytepath_record::Fault;
use clap::{Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Which way should your bytes take through this machine, and why?
///
/// bytepath drives a TCP stream, requests or packets through the data paths that Linux
/// offers, measures rate and CPU cost, and proves whether "zero-copy" was true.
#[derive(Debug, Parser)]
#[command(name = "bytepath", version, after_long_help = AFTER_HELP)]
pub struct Arguments {
    /// When to use colours: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(
        long,
        global = true,
        display_order = 900,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        hide_short_help = true
    )]
    color: ColorChoice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the data paths and compare them
    Run(Box<run::RunArgs>),
    /// Resume an interrupted study
    Resume(run::ResumeArgs),
    /// Print the report of an earlier study
    Show(show::ShowArgs),
    /// Compare a study's paths, or two studies, and check limits
    Compare(compare::CompareArgs),
    /// Merge studies of one experiment from several pairs of hosts
    Merge(merge::MergeArgs),
    /// Run an experiment on many pairs of hosts with Slurm
    Fleet(fleet::FleetArgs),
    /// Attach the log of an external power meter to a study
    Attach(power::AttachArgs),
    /// Plot a figure across studies and find where it changed
    History(history::HistoryArgs),
    /// Rank the functions that differ between two profiles
    Diff(diff::DiffArgs),
    /// Show a profile or convert it to another format
    Profile(profile::ProfileArgs),
    /// Observe a program: its system calls, its CPU time, its profile
    Observe(observe::ObserveArgs),
    /// Estimate the CPU time a program would save with other I/O calls
    Advise(advise::AdviseArgs),
    /// Measure copy engines: the CPU, a helper core, a DMA engine
    Copy(copy::CopyArgs),
    /// Compute the required sizes of buffers, rings and limits
    Size(sizing::SizeArgs),
    /// Check this host and report what would distort measurements
    Doctor(doctor::DoctorArgs),
    /// List settings of a host and what a profile would change here
    Settings(settings::SettingsArgs),
    /// Restore host settings left behind by a killed run
    Restore(settings::RestoreArgs),
    /// List the data paths and whether this host supports them
    Paths(catalogs::CatalogArgs),
    /// List the meters and what this host supports
    Meters(catalogs::CatalogArgs),
    /// Print the JSON Schema of a file that bytepath reads or writes
    Schema(schema::SchemaArgs),
    /// Print the completion script of a shell
    Completions(manual::CompletionsArgs),
    /// Write the manual pages to a folder
    Man(manual::ManArgs),
    /// The agent, started by `run` and controlled over a pipe
    #[command(hide = true)]
    Agent(AgentArgs),
}

/// The commands in the order of the help: the most frequently used first.
const GROUPS: &[(&str, &[&str])] = &[
    ("Studies", &["run", "resume", "show", "compare", "history"]),
    ("Programs and profiles", &["observe", "advise", "profile", "diff"]),
    ("This host", &["doctor", "paths", "meters", "settings", "restore", "size", "copy"]),
    ("Several hosts", &["merge", "fleet", "attach"]),
    ("The program itself", &["schema", "completions", "man", "help"]),
];

/// The options of `run` by topic; the others have no heading.
const RUN_OPTIONS: &[(&str, &[&str])] = &[
    (
        "What to run",
        &[
            "path",
            "baseline",
            "workload",
            "flows",
            "message_size",
            "stream",
            "link",
            "cores",
            "kernel",
        ],
    ),
    ("Where", &["testbed", "sender", "receiver", "pairs", "inventory", "unshared_link", "trust"]),
    (
        "How long, and what counts",
        &[
            "blocks",
            "warm_up",
            "window",
            "design",
            "time",
            "strict",
            "max_interference",
            "wait_idle",
            "seed",
        ],
    ),
];

const AFTER_HELP: &str = "\
Examples:
  bytepath run                                     every path until it is sure, at most 90 s
  bytepath run --path socket --path uring          two paths
  bytepath run --path splice+tcp-zerocopy-receive --stream touch=verify
  bytepath run --link offload:mtu=9000 --cores one
  bytepath show -o report.html                     the newest study as a page
  bytepath diff before.data after.data             two profiles of any tool
  bytepath compare BEFORE AFTER --fail-if \"*.rate slower 2%\"
  bytepath history bytepath-studies socket.rate
  bytepath fleet submit FILE DIR --shards 9        on 18 nodes of a cluster, with Slurm
  bytepath run experiments/battle-quick.toml       an experiment file
  bytepath resume                                  the newest study, after Ctrl-C or a crash
  bytepath size --rate 200G --rtt 0.1ms --mtu 4148 required buffer sizes
  bytepath doctor                                  what would distort measurements
  bytepath run --settings quiet                    quiet the host; restore it afterwards
  bytepath observe iperf3 -c 10.0.0.2              any program: calls, sockets, CPU
  bytepath advise run.json bytepath-studies/...    what it would save with other calls
  bytepath paths                                   what works here, and why the rest does not

Exit codes:
  0 success   1 the kernel refused something   2 usage error   3 not supported here
  4 not permitted   5 a trial failed   6 a file could not be read or written
  7 a limit of --fail-if was exceeded   125 a limit of --fail-if is undecided
  8 no trial counts: each was rejected
  130 interrupted by the user (what was measured is kept)";

/// Parses the command line; prints help, the version or a usage error and exits by itself. `commit`
/// is that of the build, if known.
pub fn parse(commit: Option<&str>) -> Arguments {
    // Help and errors are printed before options are parsed.
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    output::set_colours(requested_colours(words));
    let command = Arguments::command().long_version(version::long(commit));
    let command = command.mut_subcommand("run", |run| help::headed(run, RUN_OPTIONS));
    let mut command = help::grouped(command, GROUPS).term_width(help::width());
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| {
        let error = error.format(&mut command);
        if !error.use_stderr() {
            error.exit();
        }
        // It repeats what was typed, so the text is untrusted.
        output::clap_error(error.render().to_string().trim_end());
        std::process::exit(error.exit_code())
    })
}

/// Finds the value of `--color` in a command line, if there is a valid one before any `--`.
fn requested_colours(words: impl Iterator<Item = String>) -> ColorChoice {
    let mut words = words.take_while(|word| word != "--");
    let mut when = ColorChoice::Auto;
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--color") {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        when = value.and_then(|value| value.parse().ok()).unwrap_or(when);
    }
    when
}

/// Runs the command.
pub fn dispatch(arguments: Arguments) -> Result<ExitCode, Fault> {
    output::set_colours(arguments.color);
    let _limit = arguments.command.only_reads().then(memory::bounded).transpose()?;
    match arguments.command {
        Command::Run(arguments) => return run::run(&arguments),
        Command::Resume(arguments) => return run::resume(&arguments),
        Command::Show(arguments) => show::show(&arguments),
        Command::Compare(arguments) => return compare::compare(&arguments),
        Command::Merge(arguments) => merge::merge(&arguments),
        Command::Fleet(arguments) => return fleet::fleet(arguments),
        Command::Attach(arguments) => power::attach(&arguments),
        Command::History(arguments) => history::history(&arguments),
        Command::Diff(arguments) => return diff::diff(&arguments),
        Command::Profile(arguments) => profile::profile(&arguments),
        Command::Observe(arguments) => return observe::observe(&arguments),
        Command::Advise(arguments) => advise::advise(&arguments),
        Command::Copy(arguments) => copy::copy(&arguments),
        Command::Size(arguments) => sizing::size(&arguments),
        Command::Doctor(arguments) => return doctor::doctor(&arguments),
        Command::Settings(arguments) => settings::settings(&arguments),
        Command::Restore(arguments) => return settings::restore(&arguments),
        Command::Paths(arguments) => catalogs::paths(&arguments),
        Command::Meters(arguments) => catalogs::meters(&arguments),
        Command::Schema(arguments) => schema::schema(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments, Arguments::command()),
        Command::Man(arguments) => manual::man(&arguments, Arguments::command()),
        Command::Agent(arguments) => agent(&arguments),
    }
    .map(|()| ExitCode::SUCCESS)
}

impl Command {
    /// True if the command only reads files, which may be untrusted.
    fn only_reads(&self) -> bool {
        use Command::*;
        matches!(
            self,
            Show(_)
                | Compare(_)
                | Merge(_)
                | Attach(_)
                | History(_)
                | Diff(_)
                | Profile(_)
                | Advise(advise::AdviseArgs { run: false, .. })
        )
    }
}

/// True if this process is the init process of a guest, whose arguments come from the kernel's
/// command line and are not ours.
pub fn is_guest_init() -> bool {
    bytepath_host::guest::is_guest_init()
}

/// Runs a guest until its host is gone. Returns only if the machine cannot be switched off; the
/// kernel then panics, because its init process ended.
pub fn guest_init() -> ExitCode {
    let error = bytepath_host::guest::guest_init(bytepath_host::own_build());
    output::say(format_args!("bytepath: the guest cannot be switched off: {error}"));
    ExitCode::FAILURE
}

#[derive(Debug, Args)]
struct AgentArgs {
    /// Print the build and exit
    #[arg(long)]
    build: bool,
    /// Live as long as the pipe, not the parent: another program than the controller started it
    #[arg(long)]
    away: bool,
}

fn agent(arguments: &AgentArgs) -> Result<(), Fault> {
    if arguments.build {
        return output::print(|out| writeln!(out, "{}", bytepath_host::own_build()));
    }
    bytepath_sys::process::ignore_interrupts();
    // If the parent ends with the connection, it must not take down an agent that has settings to
    // restore.
    bytepath_sys::process::die_with_parent(!arguments.away)
        .map_err(|e| Fault::system("cannot tie the agent to its controller", &e))?;
    bytepath_sys::process::allow_many_files();
    bytepath_study::agent::serve(std::io::stdin(), std::io::stdout(), path::CATALOG, meter::CATALOG)
        .map_err(|e| Fault::system("cannot communicate with the controller", &e))
}
