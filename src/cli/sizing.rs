//! `bytepath size`: the required sizes of buffers, rings and limits.

use super::output_args::{Document, OutputArgs};
use bytepath_host as host;
use bytepath_record::{Fault, unit};
use bytepath_report as report;
use bytepath_stats as stats;
use bytepath_stats::{Goal, LARGEST_RING, Shortage, Sizing, Traffic};
use bytepath_sys as sys;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(super) struct SizeArgs {
    /// Payload rate in bits per second: 200G, 2.5G
    #[arg(long, value_parser = unit::parse_rate)]
    rate: f64,
    /// Round-trip time: 0.1ms, 20us
    #[arg(long, value_parser = unit::parse_duration)]
    rtt: Duration,
    /// MTU in bytes
    #[arg(long, default_value_t = 4148, value_parser = clap::value_parser!(u32).range(68..=65535))]
    mtu: u32,
    /// Bytes that the application holds before it returns them
    #[arg(long, default_value = "0", value_parser = unit::parse_bytes)]
    hold: u64,
    /// Receive queues that share the rate
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    queues: u32,
    /// Entries of each receive ring [default: the minimum required]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=LARGEST_RING as i64))]
    ring: Option<u32>,
    /// Size of a receive buffer in bytes
    #[arg(long, default_value = "4096", value_parser = buffer)]
    buffer: u32,
    #[command(flatten)]
    output: OutputArgs,
}

const AFTER_HELP: &str = "\
Examples:
  bytepath size --rate 200G --rtt 0.1ms --hold 48MiB --ring 4096
  bytepath size --rate 40G --rtt 2ms --mtu 9000 --queues 4 --json";

/// The JSON document.
#[derive(Serialize, JsonSchema)]
pub(super) struct Sizes {
    goal: Goal,
    sizing: Sizing,
    traffic: [Traffic; 4],
    shortages: Vec<Shortage>,
}

pub(super) fn size(arguments: &SizeArgs) -> Result<(), Fault> {
    let goal = Goal {
        rate: arguments.rate,
        rtt: arguments.rtt.as_secs_f64(),
        mtu: arguments.mtu,
        hold: arguments.hold,
        queues: arguments.queues,
        ring: arguments.ring,
        buffer: arguments.buffer,
    };
    let sizing = Sizing::of(&goal);
    let traffic = stats::traffic(goal.rate);
    let shortages = stats::shortages(&host::survey(&sys::Roots::real()), &sizing);
    let document = Document::new("bytepath-size", Sizes { goal, sizing, traffic, shortages });
    arguments.output.print(&document, |style, out| {
        let Sizes { goal, sizing, traffic, shortages } = &document.content;
        report::sizing(goal, sizing, traffic, shortages).write(style, out)
    })
}

fn buffer(text: &str) -> Result<u32, String> {
    let bytes = unit::parse_bytes(text)?;
    match u32::try_from(bytes) {
        Ok(bytes) if (64..=1 << 24).contains(&bytes) => Ok(bytes),
        _ => Err("a receive buffer must have 64 bytes to 16M".to_owned()),
    }
}
