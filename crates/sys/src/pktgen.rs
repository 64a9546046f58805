//! The kernel's packet generator, driven through its files (Documentation/networking/pktgen.rst,
//! net/core/pktgen.c). It has one thread per CPU and separate files in each network namespace.

use super::attribute;
use super::procfs::Malformed;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Folder of its files below `/proc`, for the caller's network namespace.
pub const FOLDER: &str = "net/pktgen";

/// What to generate. The frames are UDP over IPv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Name of the device.
    pub device: String,
    /// The CPU of each generator's thread; one may serve several. Each generator uses the device's
    /// transmit queue whose number is its index in this list.
    pub cpus: Vec<u32>,
    /// Bytes of a frame without the checksum, at least 42.
    pub size: u32,
    /// Number of frames per generator, in the order of the CPUs; 0 for no limit.
    pub counts: Vec<u64>,
    /// Frames handed to the device at once (`xmit_more`). Above 1, the same buffer is sent
    /// repeatedly, so the device must allow shared buffers.
    pub burst: u32,
    /// How often each buffer is sent again (`clone_skb`); this, too, requires shared buffers.
    pub clones: u32,
    /// Frames per second of each generator, in the same order; 0 for as fast as possible.
    pub rates: Vec<u64>,
    /// Hardware addresses, source and destination.
    pub hardware: [[u8; 6]; 2],
    /// IPv4 addresses, source and destination.
    pub addresses: [Ipv4Addr; 2],
    /// UDP ports, source and destination; the source of each further generator is one more.
    pub ports: [u16; 2],
}

/// Why a file of pktgen could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {command}: {error}", .file.display())]
pub struct Refused {
    pub file: PathBuf,
    /// The command that was written, or that the file was read.
    pub command: String,
    /// The error that the kernel returned. EOPNOTSUPP: the device does not allow shared buffers
    /// (`IFF_TX_SKB_SHARING`), which bursts and clones require; taps and veths do not. ENODEV: no
    /// such device. ENOENT: there is no pktgen, or no thread on that CPU.
    pub error: io::Error,
}

/// Progress of one generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Frames that the device took.
    pub sent: u64,
    /// Frames that it dropped, or that could not be handed to it.
    pub errors: u64,
    /// Time spent waiting, to keep to a rate or for a stopped queue.
    pub idle: Duration,
    /// Frames per second; `None` before it has ended.
    pub rate: Option<u64>,
}

/// Generators set up for a device. Dropping it removes the device from their threads.
#[derive(Debug)]
pub struct Generator {
    folder: PathBuf,
    cpus: Vec<u32>,
    devices: Vec<PathBuf>,
}

/// Whether the kernel has pktgen in the caller's network namespace.
pub fn is_there(proc: &Path) -> bool {
    proc.join(FOLDER).join(CONTROL).exists()
}

const CONTROL: &str = "pgctrl";

/// Prefix of the names of its threads and of their files: `kpktgend_0` is for CPU 0. Every network
/// namespace has its own threads, with the same names.
pub const THREAD: &str = "kpktgend_";

/// Returns the names of those threads of the caller's network namespace that have a device.
pub fn threads_at_work(proc: &Path) -> Vec<String> {
    let folder = proc.join(FOLDER);
    let at_work = |name: &String| {
        let read = || fs::read_to_string(folder.join(name)).unwrap_or_default();
        name.starts_with(THREAD) && has_device(&read())
    };
    attribute::names(&folder).into_iter().filter(at_work).collect()
}

/// Whether a thread's file names a device, running or stopped (`pktgen_thread_show`).
pub fn has_device(text: &str) -> bool {
    let devices = |line: &str| {
        Some(line.strip_prefix("Running:").or(line.strip_prefix("Stopped:"))?.trim().len())
    };
    text.lines().filter_map(devices).any(|length| length > 0)
}

impl Generator {
    /// Sets up threads; nothing is generated yet. `proc` is the path of `/proc`. If the kernel
    /// refuses a setting, the error names it.
    pub fn new(proc: &Path, job: &Job) -> Result<Generator, Refused> {
        let folder = proc.join(FOLDER);
        let refused = |command: &str, kind: io::ErrorKind| Refused {
            file: folder.clone(),
            command: command.to_owned(),
            error: kind.into(),
        };
        // The device's name becomes part of file names.
        let name = &job.device;
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return Err(refused(&format!("add_device {name}"), io::ErrorKind::InvalidInput));
        }
        let mut generator = Generator { folder, cpus: Vec::new(), devices: Vec::new() };
        for (number, cpu) in job.cpus.iter().enumerate() {
            let thread = generator.thread(*cpu);
            if !generator.cpus.contains(cpu) {
                write(&thread, "rem_device_all")?;
                generator.cpus.push(*cpu);
            }
            write(&thread, &format!("add_device {name}@{number}"))?;
            let device = generator.folder.join(format!("{name}@{number}"));
            settings(job, number).iter().try_for_each(|command| write(&device, command))?;
            generator.devices.push(device);
        }
        Ok(generator)
    }

    /// Generates until every thread has ended, by its count or by [`Self::stop`].
    pub fn run(&self) -> Result<(), Refused> {
        write(&self.folder.join(CONTROL), "start")
    }

    /// Ends all threads; one that has not started yet starts nevertheless.
    pub fn stop(&self) -> Result<(), Refused> {
        write(&self.folder.join(CONTROL), "stop")
    }

    /// Returns the progress of a generator, given its index among the job's CPUs.
    pub fn progress(&self, number: usize) -> Result<Progress, Refused> {
        let file = self.devices.get(number).cloned().unwrap_or_default();
        let text = fs::read_to_string(&file);
        let progress = text.and_then(|text| parse(&text).map_err(io::Error::other));
        progress.map_err(|error| Refused { file, command: "reading".into(), error })
    }

    fn thread(&self, cpu: u32) -> PathBuf {
        self.folder.join(format!("{THREAD}{cpu}"))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        for cpu in &self.cpus {
            // If the device is gone, the kernel has already removed it from its threads.
            let _ = write(&self.thread(*cpu), "rem_device_all");
        }
    }
}

/// Returns the commands to write to a device's file, one at a time.
fn settings(job: &Job, number: usize) -> Vec<String> {
    let mac = |address: &[u8; 6]| {
        address.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
    };
    let ([from, to], [source, target]) = (&job.hardware, &job.addresses);
    let of = |all: &[u64]| all.get(number).copied().unwrap_or_default();
    let mut all = vec![
        format!("count {}", of(&job.counts)),
        format!("pkt_size {}", job.size),
        "delay 0".to_owned(),
        format!("src_mac {}", mac(from)),
        format!("dst_mac {}", mac(to)),
        format!("src_min {source}"),
        format!("src_max {source}"),
        format!("dst_min {target}"),
        format!("dst_max {target}"),
        format!("queue_map_min {number}"),
        format!("queue_map_max {number}"),
        format!("clone_skb {}", job.clones),
        format!("burst {}", job.burst.max(1)),
    ];
    let [source, target] = job.ports;
    for (side, port) in [("src", source.wrapping_add(number as u16)), ("dst", target)] {
        all.extend(["min", "max"].map(|end| format!("udp_{side}_{end} {port}")));
    }
    if of(&job.rates) > 0 {
        all.push(format!("ratep {}", of(&job.rates)));
    }
    all
}

/// Parses a device's file.
pub fn parse(text: &str) -> Result<Progress, Malformed> {
    let current = text.split_once("\nCurrent:").map(|(_, rest)| rest);
    let current = current.ok_or_else(|| Malformed::new("pktgen", "Current:"))?;
    let number = |label: &'static str| {
        let value = current.split_once(label).map(|(_, rest)| leading_number(rest.trim_start()));
        value.flatten().ok_or_else(|| Malformed::new("pktgen", label))
    };
    let result = current.split_once("Result:").map(|(_, rest)| rest);
    let rate = result.and_then(|result| {
        let word = result.split_ascii_whitespace().find(|word| word.ends_with("pps"))?;
        leading_number(word)
    });
    Ok(Progress {
        sent: number("pkts-sofar:")?,
        errors: number("errors:")?,
        idle: Duration::from_micros(number("idle:")?),
        rate,
    })
}

/// Returns the number that a text begins with.
fn leading_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

fn write(file: &Path, command: &str) -> Result<(), Refused> {
    // In one write(2): pktgen takes each as one command.
    fs::OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|mut open| io::Write::write_all(&mut open, command.as_bytes()))
        .map_err(|error| Refused { file: file.into(), command: command.to_owned(), error })
}

#[cfg(test)]
mod tests;
