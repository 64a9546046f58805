//! Which work queues there are, and what each can do: `/sys/bus/dsa/devices`
//! (Documentation/ABI/stable/sysfs-driver-dma-idxd).

use super::{Queue, Shape};
use bytepath_record::{Fault, FaultKind, Options};
use bytepath_sys::Roots;
use bytepath_sys::idxd::{BLOCK_ON_FAULT, Memories, TO_CACHE, WorkQueue};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What sysfs says of a work queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFacts {
    /// `wq0.0`.
    pub name: String,
    /// Whether it is enabled, for programs, by the driver `user`.
    pub usable: bool,
    /// Others may have it open, too.
    pub shared: bool,
    pub size: usize,
    /// Descriptors of a batch at most; 0 where the device has no batches.
    pub batch: usize,
    /// Bytes of a copy at most.
    pub longest: u32,
}

/// The work queues of the machine, in the order of their names.
pub fn found(roots: &Roots) -> Vec<QueueFacts> {
    let folder = roots.sys.join("bus/dsa/devices");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.starts_with("wq"));
    names.sort();
    names.into_iter().map(|name| facts(&folder.join(&name), name.clone())).collect()
}

fn facts(folder: &Path, name: String) -> QueueFacts {
    let word = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let number = |file: &str| word(file).trim().parse::<u64>().unwrap_or_default();
    QueueFacts {
        name,
        usable: word("state").trim() == "enabled" && word("type").trim() == "user",
        shared: word("mode").trim() == "shared",
        size: number("size") as usize,
        batch: number("max_batch_size") as usize,
        longest: u32::try_from(number("max_transfer_size")).unwrap_or(u32::MAX),
    }
}

/// The queues of the option: those with these names, or all that can be used.
pub(super) fn chosen(roots: &Roots, names: &str) -> Result<Vec<QueueFacts>, Fault> {
    let remedy = "bytepath doctor lists what is missing; docs/copy.md has the commands";
    let all = found(roots);
    let usable: Vec<QueueFacts> = match names {
        "auto" => all.into_iter().filter(|facts| facts.usable).collect(),
        names => {
            let one = |name: &str| {
                let name = name.trim_start_matches("/dev/dsa/");
                let known = all.iter().find(|facts| facts.name == name);
                let what = match known {
                    Some(facts) if facts.usable => return Ok(facts.clone()),
                    Some(_) => format!("the work queue {name} is not enabled for programs"),
                    None => format!("there is no work queue {name}"),
                };
                Err(Fault::new(FaultKind::Unsupported, what).remedy(remedy))
            };
            names.split('+').map(one).collect::<Result<_, _>>()?
        }
    };
    if usable.is_empty() {
        let what = "no work queue of a DSA device is enabled for programs here";
        return Err(Fault::new(FaultKind::Unsupported, what).remedy(remedy));
    }
    Ok(usable)
}

/// Flags of every copy.
pub(super) fn flags(options: &Options) -> u32 {
    let flag = |name: &str, flag: u32| if options.flag(name) { flag } else { 0 };
    flag("block-on-fault", BLOCK_ON_FAULT) | flag("cache", TO_CACHE)
}

impl QueueFacts {
    pub(super) fn open(
        &self,
        memories: &Memories,
        shape: Shape,
        flags: u32,
    ) -> Result<Queue, Fault> {
        let path = PathBuf::from("/dev/dsa").join(&self.name);
        if shape.batch > self.batch.max(1) {
            let what = format!("batches of {} are larger than {} accepts", shape.batch, self.name);
            return Err(Fault::new(FaultKind::Usage, what)
                .remedy(format!("its max_batch_size is {}", self.batch)));
        }
        let setup = (memories.clone(), shape.depth, shape.batch, flags);
        let queue = WorkQueue::open(&path, self.shared, setup).map_err(|e| {
            let what = format!("cannot open {}", path.display());
            Fault::system(what, &e).remedy(match e.raw_os_error() {
                Some(libc::EBUSY) => "another program has this dedicated queue: end it",
                Some(libc::EOPNOTSUPP) => {
                    "the processor lacks the instruction for this queue's mode"
                }
                _ if e.kind() == io::ErrorKind::PermissionDenied => {
                    "run as root, or own the device file"
                }
                _ => "bytepath doctor lists what is missing",
            })
        })?;
        Ok(Queue::new(queue, self.size, self.longest))
    }
}
