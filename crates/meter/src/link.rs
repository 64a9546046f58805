//! The counters of the link's device, in the agent's own network namespace.

use super::{Context, Meter, Output, Reach, Running, Watched};
use bytepath_record::{Fault, FaultKind, RX_PACKETS, Role, Scope, Unit};
use bytepath_sys::procfs::{self, LinkCounts, Malformed};

/// Bytes, packets, errors and drops of the link's device. `rx_dropped` holds
/// what the stack above the driver dropped and what the device missed too
/// (`dev_seq_printf_stats`, net/core/net-procfs.c).
pub(crate) struct Link;

impl Meter for Link {
    fn name(&self) -> &'static str {
        "link"
    }

    fn summary(&self) -> &'static str {
        "bytes, packets, errors and drops of the network device (/proc/self/net/dev)"
    }

    fn reach(&self) -> Reach {
        Reach::Agent
    }

    fn start(&self, context: &Context) -> Result<Box<dyn Running>, Fault> {
        let Some(device) = context.device.clone() else {
            return Ok(Box::new(Nothing));
        };
        let mut file = Watched::open(context.roots.proc.join("self/net/dev"))?;
        let start = file.read(|text| counts(text, &device))?.ok_or_else(|| absent(&device))?;
        Ok(Box::new(Window { role: context.role, device, file, start }))
    }
}

/// A trial without a device of its own (over an existing network) has no link
/// to count.
struct Nothing;

impl Running for Nothing {
    fn stop(self: Box<Self>) -> Result<Output, Fault> {
        Ok(Output::default())
    }
}

type Counts = [(Direction, LinkCounts); 2];

#[derive(Clone, Copy)]
struct Direction {
    bytes: &'static str,
    packets: &'static str,
    errors: &'static str,
    dropped: &'static str,
}

const RX: Direction = Direction {
    bytes: "link.rx_bytes",
    packets: RX_PACKETS,
    errors: "link.rx_errors",
    dropped: "link.rx_dropped",
};
const TX: Direction = Direction {
    bytes: "link.tx_bytes",
    packets: "link.tx_packets",
    errors: "link.tx_errors",
    dropped: "link.tx_dropped",
};

fn counts(text: &str, device: &str) -> Result<Option<Counts>, Malformed> {
    let devices = procfs::parse_net_dev(text)?;
    Ok(devices.iter().find(|d| d.name == device).map(|d| [(RX, d.rx), (TX, d.tx)]))
}

fn absent(device: &str) -> Fault {
    Fault::new(FaultKind::System, format!("link: no device '{device}' in /proc/self/net/dev"))
        .remedy("was it removed during the trial?")
}

struct Window {
    role: Role,
    device: String,
    file: Watched,
    start: Counts,
}

impl Running for Window {
    fn stop(mut self: Box<Self>) -> Result<Output, Fault> {
        let device = &self.device;
        let stop = self.file.read(|text| counts(text, device))?.ok_or_else(|| absent(device))?;
        let scope = Scope::Link(self.role, device.clone());
        let mut output = Output::default();
        for ((names, before), (_, after)) in self.start.into_iter().zip(stop) {
            let Some(gained) = difference(before, after) else {
                let text =
                    format!("link: the counters of {device} went backwards: was it replaced?");
                return Ok(Output { warnings: vec![text], ..Output::default() });
            };
            output.add(names.bytes, Unit::Bytes, gained.bytes as f64, &scope);
            for (metric, value) in [
                (names.packets, gained.packets),
                (names.errors, gained.errors),
                (names.dropped, gained.dropped),
            ] {
                output.add(metric, Unit::Count, value as f64, &scope);
                let trouble = metric == names.errors || metric == names.dropped;
                if trouble && value > 0 {
                    let what = metric.trim_start_matches("link.");
                    output
                        .warnings
                        .push(format!("link: {device} has {value} {what} in the window"));
                }
            }
        }
        Ok(output)
    }
}

fn difference(before: LinkCounts, after: LinkCounts) -> Option<LinkCounts> {
    Some(LinkCounts {
        bytes: after.bytes.checked_sub(before.bytes)?,
        packets: after.packets.checked_sub(before.packets)?,
        errors: after.errors.checked_sub(before.errors)?,
        dropped: after.dropped.checked_sub(before.dropped)?,
    })
}
