//! Receive processing by CPU: `/proc/net/softnet_stat`.

use super::{Context, Meter, Output, ProcFile, Running, at_stop};
use bytepath_record::{Fault, Scope, Unit};
use bytepath_sys::procfs::{self, SoftnetRow};
use std::path::Path;

/// Packets processed, dropped and handed over, and softirqs cut short, by CPU. The counters are
/// those of the machine's CPUs over all network namespaces, although the file is below `/proc/net`.
pub(crate) static METER: Meter = Meter {
    name: "softnet",
    summary: "packets each CPU processed, dropped and took over by RPS (/proc/net/softnet_stat)",
    start,
    ..Meter::BASE
};

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    let mut file = ProcFile::open(context.roots.proc.join("net/softnet_stat"))?;
    let stat = context.roots.proc.join("stat");
    let before = file.read(procfs::parse_softnet)?;
    at_stop(move || {
        let after = file.read(procfs::parse_softnet)?;
        Ok(readings(pair(&before, &after, &stat)?))
    })
}

fn readings(rows: Vec<(u32, SoftnetRow, SoftnetRow)>) -> Output {
    let mut output = Output::default();
    for (cpu, before, after) in rows {
        // 32-bit counters wrap; at 10 million packets per second, after 7 minutes.
        let gained = |of: fn(&SoftnetRow) -> u32| of(&after).wrapping_sub(of(&before));
        let dropped = gained(|row| row.dropped);
        for (metric, count) in [
            ("softnet.processed", gained(|row| row.processed)),
            ("softnet.dropped", dropped),
            ("softnet.squeezed", gained(|row| row.squeezed)),
            ("softnet.received_rps", gained(|row| row.received_rps)),
        ] {
            output.add(metric, Unit::Count, count.into(), &Scope::Cpu(cpu));
        }
        if dropped > 0 {
            output.warnings.push(format!(
                "softnet: CPU {cpu} dropped {dropped} packets, its backlog was full \
                 (net.core.netdev_max_backlog)"
            ));
        }
    }
    output
}

/// Pairs the rows of the same CPU at both edges. A kernel before 5.10 does not report the CPU: its
/// rows are those of the online CPUs, which `/proc/stat` lists.
fn pair(
    start: &[SoftnetRow],
    stop: &[SoftnetRow],
    stat: &Path,
) -> Result<Vec<(u32, SoftnetRow, SoftnetRow)>, Fault> {
    if start.iter().chain(stop).all(|row| row.cpu.is_some()) {
        let same = |after: &SoftnetRow| {
            let before = start.iter().find(|before| before.cpu == after.cpu)?;
            Some((after.cpu?, *before, *after))
        };
        return Ok(stop.iter().filter_map(same).collect());
    }
    let online = ProcFile::open(stat.to_owned())?.read(procfs::parse_stat)?;
    if online.len() != stop.len() || start.len() != stop.len() {
        let text = "softnet: CPUs came or went, and this kernel does not report which";
        return Err(Fault::failed(text));
    }
    let rows = start.iter().zip(stop);
    Ok(online.iter().zip(rows).map(|(cpu, (before, after))| (cpu.cpu, *before, *after)).collect())
}
