//! Receive processing by CPU: `/proc/net/softnet_stat`.

use super::{Context, Meter, Output, Reach, Running, Watched};
use bytepath_record::{Fault, FaultKind, Scope, Unit};
use bytepath_sys::procfs::{self, SoftnetRow};
use std::path::PathBuf;

/// Packets processed, dropped and handed over, and softirqs cut short, by CPU.
/// The counters are those of the machine's CPUs, all network namespaces
/// together, although the file is below `/proc/net`.
pub(crate) struct Softnet;

impl Meter for Softnet {
    fn name(&self) -> &'static str {
        "softnet"
    }

    fn summary(&self) -> &'static str {
        "packets each CPU processed, dropped and took over by RPS (/proc/net/softnet_stat)"
    }

    fn reach(&self) -> Reach {
        Reach::Machine
    }

    fn start(&self, context: &Context) -> Result<Box<dyn Running>, Fault> {
        let mut file = Watched::open(context.roots.proc.join("net/softnet_stat"))?;
        let start = file.read(procfs::parse_softnet)?;
        Ok(Box::new(Window { stat: context.roots.proc.join("stat"), file, start }))
    }
}

struct Window {
    stat: PathBuf,
    file: Watched,
    start: Vec<SoftnetRow>,
}

impl Running for Window {
    fn stop(mut self: Box<Self>) -> Result<Output, Fault> {
        let stop = self.file.read(procfs::parse_softnet)?;
        let mut output = Output::default();
        for (cpu, before, after) in pair(&self.start, &stop, &self.stat)? {
            let scope = Scope::Cpu(cpu);
            // 32-bit counters wrap; at 10 million packets a second, after 7 minutes.
            let dropped = after.dropped.wrapping_sub(before.dropped);
            for (metric, value) in [
                ("softnet.processed", after.processed.wrapping_sub(before.processed)),
                ("softnet.dropped", dropped),
                ("softnet.squeezed", after.squeezed.wrapping_sub(before.squeezed)),
                ("softnet.received_rps", after.received_rps.wrapping_sub(before.received_rps)),
            ] {
                output.add(metric, Unit::Count, f64::from(value), &scope);
            }
            if dropped > 0 {
                output.warnings.push(format!(
                    "softnet: CPU {cpu} dropped {dropped} packets, its backlog was full \
                     (net.core.netdev_max_backlog)"
                ));
            }
        }
        Ok(output)
    }
}

/// Rows of the same CPU at both ends. A kernel before 5.10 does not name the
/// CPU: its rows are those of the CPUs online, which `/proc/stat` names.
fn pair(
    start: &[SoftnetRow],
    stop: &[SoftnetRow],
    stat: &std::path::Path,
) -> Result<Vec<(u32, SoftnetRow, SoftnetRow)>, Fault> {
    if start.iter().chain(stop).all(|row| row.cpu.is_some()) {
        let same = |after: &SoftnetRow| {
            let before = start.iter().find(|before| before.cpu == after.cpu)?;
            Some((after.cpu?, *before, *after))
        };
        return Ok(stop.iter().filter_map(same).collect());
    }
    let online = Watched::open(stat.to_owned())?.read(procfs::parse_stat)?;
    if online.len() != stop.len() || start.len() != stop.len() {
        let text = "softnet: CPUs came or went, and this kernel does not report which";
        return Err(Fault::new(FaultKind::System, text));
    }
    let rows = start.iter().zip(stop);
    Ok(online.iter().zip(rows).map(|(cpu, (before, after))| (cpu.cpu, *before, *after)).collect())
}
