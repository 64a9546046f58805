//! The counters of the link's device, in the agent's own network namespace.

use super::{Context, Meter, Output, ProcFile, Reach, Running, at_stop};
use bytepath_record::{Fault, RX_PACKETS, Role, Scope, Unit};
use bytepath_sys::procfs::{self, LinkCounts};

/// Bytes, packets, errors and drops of the link's device. `rx_dropped` holds
/// what the stack above the driver dropped and what the device missed too
/// (`dev_seq_printf_stats`, net/core/net-procfs.c).
pub(crate) static METER: Meter = Meter {
    name: "link",
    summary: "bytes, packets, errors and drops of the network device (/proc/self/net/dev)",
    reach: Reach::Agent,
    start,
    ..Meter::BASE
};

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    // A trial over an existing network has no device of its own to count.
    let Some(device) = context.device.clone() else { return (Meter::BASE.start)(context) };
    let role = context.role;
    let mut file = ProcFile::open(context.roots.proc.join("self/net/dev"))?;
    let before = read(&mut file, &device)?;
    at_stop(move || Ok(readings(before, read(&mut file, &device)?, role, &device)))
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

fn read(file: &mut ProcFile, device: &str) -> Result<Counts, Fault> {
    let counts = file.read(|text| {
        let devices = procfs::parse_net_dev(text)?;
        Ok(devices.iter().find(|d| d.name == device).map(|d| [(RX, d.rx), (TX, d.tx)]))
    });
    counts?.ok_or_else(|| {
        let text = format!("link: no device '{device}' in /proc/self/net/dev");
        Fault::failed(text).remedy("was it removed during the trial?")
    })
}

fn readings(before: Counts, after: Counts, role: Role, device: &str) -> Output {
    let scope = Scope::Link(role, device.to_owned());
    let mut output = Output::default();
    for ((names, before), (_, after)) in before.into_iter().zip(after) {
        let Some(gained) = difference(before, after) else {
            let text = format!("link: the counters of {device} went backwards: was it replaced?");
            return Output { warnings: vec![text], ..Output::default() };
        };
        output.add(names.bytes, Unit::Bytes, gained.bytes as f64, &scope);
        output.add(names.packets, Unit::Count, gained.packets as f64, &scope);
        for (metric, value) in [(names.errors, gained.errors), (names.dropped, gained.dropped)] {
            output.add(metric, Unit::Count, value as f64, &scope);
            if value > 0 {
                let what = metric.trim_start_matches("link.");
                output.warnings.push(format!("link: {device} has {value} {what} in the window"));
            }
        }
    }
    output
}

fn difference(before: LinkCounts, after: LinkCounts) -> Option<LinkCounts> {
    Some(LinkCounts {
        bytes: after.bytes.checked_sub(before.bytes)?,
        packets: after.packets.checked_sub(before.packets)?,
        errors: after.errors.checked_sub(before.errors)?,
        dropped: after.dropped.checked_sub(before.dropped)?,
    })
}
