//! The counters of the link's devices, in the agent's own network namespace.

use super::{Context, Meter, Output, ProcFile, Reach, Running, at_stop};
use bytepath_record::{Fault, RX_PACKETS, Role, Scope, Unit};
use bytepath_sys::procfs::{self, LinkCounts};

/// Bytes, packets, errors and drops of each of the link's devices. `rx_dropped` includes packets
/// dropped by the stack above the driver and packets missed by the device (`dev_seq_printf_stats`,
/// net/core/net-procfs.c).
pub(crate) static METER: Meter = Meter {
    name: "link",
    summary: "bytes, packets, errors and drops of the network device (/proc/self/net/dev)",
    reach: Reach::Agent,
    start,
    ..Meter::BASE
};

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    // A trial over an existing network has no device whose counters are its own.
    if context.devices.is_empty() {
        return (Meter::BASE.start)(context);
    }
    let (role, devices) = (context.role, context.devices.clone());
    let mut file = ProcFile::open(context.roots.proc.join("self/net/dev"))?;
    let before = read(&mut file, &devices)?;
    at_stop(move || {
        let after = read(&mut file, &devices)?;
        let mut output = Output::default();
        for (device, (before, after)) in devices.iter().zip(before.iter().zip(&after)) {
            let of_device = readings(before, after, role, device);
            output.readings.extend(of_device.readings);
            output.warnings.extend(of_device.warnings);
        }
        Ok(output)
    })
}

/// Metric and unit of each counter, and whether an increase is worth a warning.
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

/// Reads the counters of each device, in the order of [`COUNTERS`].
fn read(file: &mut ProcFile, devices: &[String]) -> Result<Vec<Vec<u64>>, Fault> {
    let all = |counts: LinkCounts| [counts.bytes, counts.packets, counts.errors, counts.dropped];
    let counts = file.read(|text| {
        let found = procfs::parse_net_dev(text)?;
        let of_device = |device: &String| {
            let counts = found.iter().find(|d| d.name == *device)?;
            Some([all(counts.rx), all(counts.tx)].concat())
        };
        Ok(devices.iter().map(of_device).collect::<Vec<_>>())
    })?;
    let counts = devices.iter().zip(counts).map(|(device, counts)| {
        counts.ok_or_else(|| {
            let text = format!("link: no device '{device}' in /proc/self/net/dev");
            Fault::failed(text).remedy("was it removed during the trial?")
        })
    });
    counts.collect()
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
