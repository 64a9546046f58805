//! Names of addresses that another program recorded on this host. Only files, modules and kernels
//! that are unchanged since then, by build id, are used. After a reboot the kernel is at another
//! address, as are modules that were loaded again; both are found through their recorded base.

use super::kernel::{KERNEL, KernelSymbols, kernel_build_id};
use super::user::{Mapping, Processes, UserSymbols};
use crate::{Frame, FrameKind};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// The kernel, modules and programs of this host, loaded on demand.
pub struct HostSymbols {
    proc: PathBuf,
    sys: PathBuf,
    kernel: Option<KernelSymbols>,
    /// Base of each module, by name and build id; `None` if it is not loaded here.
    modules: HashMap<(String, String), Option<u64>>,
    user: UserSymbols,
    /// Each file that was looked up, as the only mapping of a process.
    processes: Processes,
    /// The process for a file, by path and build id; `None` if the file is not here.
    files: HashMap<(String, String), Option<u32>>,
    /// Reasons for addresses without names, as text.
    pub reasons: BTreeSet<String>,
}

impl HostSymbols {
    /// Creates it; `proc` and `sys` are the mount points of those file systems.
    pub fn new(proc: &Path, sys: &Path) -> HostSymbols {
        HostSymbols {
            proc: proc.to_owned(),
            sys: sys.to_owned(),
            kernel: None,
            modules: HashMap::new(),
            user: UserSymbols::default(),
            processes: Processes::default(),
            files: HashMap::new(),
            reasons: BTreeSet::new(),
        }
    }

    /// Returns a function of the kernel itself. `base` is one of the kernel's symbols and its
    /// address at the time of recording.
    pub fn kernel(
        &mut self,
        build_id: &str,
        base: Option<(&str, u64)>,
        address: u64,
    ) -> Option<Frame> {
        let kernel = self.loaded();
        let here = kernel.build_id.clone();
        let found = match (kernel.hidden(), base) {
            _ if build_id.is_empty() => Err("the kernel (its build id was not recorded)".into()),
            _ if build_id != here => Err(format!(
                "the kernel (build id {}, this host's is {})",
                short(build_id),
                short(&here)
            )),
            (Some(hidden), _) => Err(format!("the kernel ({hidden})")),
            (None, None) => Err("the kernel (where it was is not recorded)".into()),
            (None, Some((symbol, then))) => Ok(kernel.address_of(symbol).and_then(|now| {
                let (name, module) = kernel.find(address.wrapping_sub(then).wrapping_add(now))?;
                (module == KERNEL).then(|| frame(name, KERNEL, build_id))
            })),
        };
        found.unwrap_or_else(|reason| {
            self.reasons.insert(reason);
            None
        })
    }

    /// Returns a function of a kernel module (`[veth]`), `offset` bytes from its base.
    pub fn module(&mut self, name: &str, build_id: &str, offset: u64) -> Option<Frame> {
        let key = (name.to_owned(), build_id.to_owned());
        let base = match self.modules.get(&key) {
            Some(base) => *base,
            None => {
                let notes = name.trim_matches(['[', ']']);
                let notes = self.sys.join("module").join(notes).join("notes/.note.gnu.build-id");
                let here = kernel_build_id(&std::fs::read(notes).unwrap_or_default());
                let same = here.is_some_and(|here| here == build_id);
                let base = if same { self.loaded().module_base(name) } else { None };
                if base.is_none() {
                    self.reasons.insert(format!("{name} (not loaded here with its build id)"));
                }
                self.modules.insert(key, base);
                base
            }
        };
        let (function, module) = self.loaded().find(base?.checked_add(offset)?)?;
        (module == name).then(|| frame(function, name, build_id))
    }

    /// Returns the functions at an offset of a program's file, leaf first: several if the compiler
    /// has inlined functions there.
    pub fn file(&mut self, path: &str, build_id: &str, offset: u64) -> Option<Vec<Frame>> {
        let key = (path.to_owned(), build_id.to_owned());
        let process = match self.files.get(&key) {
            Some(process) => *process,
            None => {
                let process = self.open(path, build_id);
                if process.is_none() {
                    self.reasons.insert(format!("{path} (not here with its build id)"));
                }
                self.files.insert(key, process);
                process
            }
        };
        let mut frames = self.user.frames(&self.processes, Path::new(NO_PROC), process?, offset)?;
        let unnamed = frames.first().is_none_or(|frame| frame.function.starts_with("0x"));
        frames.iter_mut().for_each(|frame| path.clone_into(&mut frame.module));
        (!unnamed).then_some(frames)
    }

    /// Opens the file at this path, or the copy of `perf buildid-cache`, if it has the build id.
    fn open(&mut self, path: &str, build_id: &str) -> Option<u32> {
        let (first, rest) = build_id.split_at_checked(2)?;
        let home = std::env::var("HOME").unwrap_or_default();
        let kept = format!("{home}/.debug/.build-id/{first}/{rest}/elf");
        [path, &kept].into_iter().find_map(|path| {
            let process = u32::try_from(self.files.len()).ok()?;
            let path = path.to_owned();
            self.processes.map(process, Mapping { start: 0, end: u64::MAX, offset: 0, path });
            let frames = self.user.frames(&self.processes, Path::new(NO_PROC), process, 0)?;
            (frames.first()?.build_id == build_id).then_some(process)
        })
    }

    fn loaded(&mut self) -> &KernelSymbols {
        self.kernel.get_or_insert_with(|| {
            let read = |path: PathBuf| std::fs::read(path).unwrap_or_default();
            let text = |path| String::from_utf8_lossy(&read(path)).into_owned();
            let symbols = KernelSymbols::parse(text(self.proc.join("kallsyms")));
            let mut kernel = symbols.with_modules(&text(self.proc.join("modules")));
            kernel.build_id =
                kernel_build_id(&read(self.sys.join("kernel/notes"))).unwrap_or_default();
            kernel
        })
    }
}

/// Used in place of `/proc`, since recorded processes no longer exist: no path exists below a
/// device.
const NO_PROC: &str = "/dev/null";

fn frame(function: &str, module: &str, build_id: &str) -> Frame {
    Frame {
        function: function.to_owned(),
        module: module.to_owned(),
        build_id: build_id.to_owned(),
        kind: FrameKind::Kernel,
        ..Frame::default()
    }
}

/// Returns the beginning of a build id, which is enough to distinguish two.
fn short(build_id: &str) -> &str {
    build_id.get(..12).unwrap_or(build_id)
}
