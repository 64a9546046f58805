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
    at_stop(move || Ok(readings(&before, &read(&mut file, &device)?, role, &device)))
}

/// Metric and unit of each counter, and whether to warn of it.
const COUNTERS: [(&str, Unit, bool); 8] = [
    ("link.rx_bytes", Unit::Bytes, false),
    (RX_PACKETS, Unit::Count, false),
    ("link.rx_errors", Unit::Count, true),
    ("link.rx_dropped", Unit::Count, true),
    ("link.tx_bytes", Unit::Bytes, false),
    ("link.tx_packets", Unit::Count, false),
    ("link.tx_errors", Unit::Count, true),
    ("link.tx_dropped", Unit::Count, true),
];

/// In the order of [`COUNTERS`].
fn read(file: &mut ProcFile, device: &str) -> Result<Vec<u64>, Fault> {
    let all = |counts: LinkCounts| [counts.bytes, counts.packets, counts.errors, counts.dropped];
    let counts = file.read(|text| {
        let devices = procfs::parse_net_dev(text)?;
        let found = devices.iter().find(|d| d.name == device);
        Ok(found.map(|d| [all(d.rx), all(d.tx)].concat()))
    });
    counts?.ok_or_else(|| {
        let text = format!("link: no device '{device}' in /proc/self/net/dev");
        Fault::failed(text).remedy("was it removed during the trial?")
    })
}

fn readings(before: &[u64], after: &[u64], role: Role, device: &str) -> Output {
    let scope = Scope::Link(role, device.to_owned());
    let mut output = Output::default();
    for ((metric, unit, is_trouble), (before, after)) in
        COUNTERS.into_iter().zip(before.iter().zip(after))
    {
        let Some(gained) = after.checked_sub(*before) else {
            let text = format!("link: the counters of {device} went backwards: was it replaced?");
            return Output { warnings: vec![text], ..Output::default() };
        };
        output.add(metric, unit, gained as f64, &scope);
        if is_trouble && gained > 0 {
            let what = metric.trim_start_matches("link.");
            output.warnings.push(format!("link: {device} has {gained} {what} in the window"));
        }
    }
    output
}
