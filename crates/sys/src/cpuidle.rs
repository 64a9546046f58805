//! Usage of each CPU's idle states: `/sys/devices/system/cpu/cpuN/cpuidle/stateM`
//! (Documentation/admin-guide/pm/cpuidle.rst, drivers/cpuidle/sysfs.c).

use super::attribute::{self, Number};
use std::io;
use std::path::Path;

/// An idle state of one CPU, with its counters open.
#[derive(Debug)]
pub struct State {
    pub cpu: u32,
    /// The state's name: "POLL", "C6", "haltpoll idle".
    pub name: String,
    counters: [Option<Number>; 5],
}

/// The counters of a state since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Time in it in microseconds, added when it is left: an idle phase still in progress is not
    /// included.
    pub time: u64,
    /// Times it was entered.
    pub usage: u64,
    /// Times the hardware or driver refused it (Linux 5.10).
    pub rejected: u64,
    /// Times it was left so early that a shallower one would have been better (Linux 5.0).
    pub above: u64,
    /// Times the CPU stayed so long that a deeper one would have been better.
    pub below: u64,
}

const FILES: [&str; 5] = ["time", "usage", "rejected", "above", "below"];

/// Most descriptors to keep open for this: a process has 1024 by default.
const MOST_OPEN: usize = 400;

/// Returns the states of every CPU below `sys` that has any, by CPU and from shallow to deep.
pub fn states(sys: &Path) -> Vec<State> {
    let cpus = sys.join("devices/system/cpu");
    let number = |name: &String| name.strip_prefix("cpu")?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = attribute::names(&cpus).iter().filter_map(number).collect();
    numbers.sort_unstable();
    let mut found: Vec<(u32, String, std::path::PathBuf)> = Vec::new();
    for cpu in numbers {
        // CPUIDLE_STATE_MAX is 10; a little room costs nothing.
        for index in 0..32 {
            let folder = cpus.join(format!("cpu{cpu}/cpuidle/state{index}"));
            let Some(name) = attribute::text(&folder.join("name")) else { break };
            found.push((cpu, name, folder));
        }
    }
    let open = found.len() * FILES.len() <= MOST_OPEN;
    let state = |(cpu, name, folder): (u32, String, std::path::PathBuf)| State {
        cpu,
        name,
        counters: FILES.map(|file| {
            let path = folder.join(file);
            // A kernel that does not know a counter has no such file.
            if open { Number::open(path).ok() } else { path.exists().then(|| Number::closed(path)) }
        }),
    };
    found.into_iter().map(state).collect()
}

impl State {
    /// Reads the counters; one that this kernel does not have is 0. ENODEV and ENOENT: the CPU went
    /// offline.
    pub fn read(&self) -> io::Result<Counts> {
        let mut values = [0u64; 5];
        for (value, counter) in values.iter_mut().zip(&self.counters) {
            if let Some(counter) = counter {
                *value = u64::try_from(counter.read()?).unwrap_or(0);
            }
        }
        let [time, usage, rejected, above, below] = values;
        Ok(Counts { time, usage, rejected, above, below })
    }
}

impl Counts {
    /// Returns the difference from an earlier reading.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            time: self.time.saturating_sub(before.time),
            usage: self.usage.saturating_sub(before.usage),
            rejected: self.rejected.saturating_sub(before.rejected),
            above: self.above.saturating_sub(before.above),
            below: self.below.saturating_sub(before.below),
        }
    }
}
