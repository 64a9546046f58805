//! The modules of a kernel: where they are, what they depend on, in which order
//! they have to be loaded.
//!
//! The dependencies are read from the modules themselves and not from
//! `modules.dep`, because no package carries that file: depmod(8) writes it when
//! a kernel is installed, and a kernel that is only unpacked has none.

use super::elf::{depends, normal};
use crate::record::{Fault, FaultKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest module after unpacking, bytes; the largest that distributions ship
/// (graphics drivers) take a tenth of it.
const LARGEST: u64 = 256 << 20;

/// How deep modules lie below their folder, and how many there may be.
const DEEPEST: usize = 16;
const MOST: usize = 100_000;

/// A module, ready to be loaded.
#[derive(Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name as the kernel has it.
    pub name: String,
    /// The unpacked module.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.name, self.bytes.len())
    }
}

/// What a kernel has, built in and as modules.
#[derive(Debug, Default)]
pub struct Modules {
    built_in: BTreeSet<String>,
    files: BTreeMap<String, PathBuf>,
    assume_built_in: bool,
}

impl Modules {
    /// Looks through `/lib/modules/RELEASE` or a folder like it.
    pub fn of(folder: &Path) -> Result<Modules, Fault> {
        let mut modules = Modules::default();
        let list = folder.join("modules.builtin");
        match fs::read_to_string(&list) {
            Ok(text) => modules.built_in = text.lines().filter_map(name_of).collect(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(unreadable(&list, &e)),
        }
        modules.look(folder, DEEPEST)?;
        Ok(modules)
    }

    /// Of a kernel that came without any: whatever is needed has to be built in,
    /// and only booting it tells.
    pub fn unknown() -> Modules {
        Modules { assume_built_in: true, ..Modules::default() }
    }

    /// Everything that has to be loaded for some modules to be there, each after
    /// what it depends on. One that is built in needs no loading; one that does
    /// not exist is passed over if it is not `required`.
    pub fn order(&self, wanted: &[(&str, bool)]) -> Result<Vec<Module>, Fault> {
        let mut order = Vec::new();
        for (name, required) in wanted {
            let name = normal(name);
            if self.files.contains_key(&name) {
                self.visit(&name, &mut Vec::new(), &mut order)?;
            } else if *required && !self.assume_built_in && !self.built_in.contains(&name) {
                let text = format!("the kernel has no {name}, neither built in nor as a module");
                let config = format!("CONFIG_{}", name.to_uppercase());
                return Err(Fault::new(FaultKind::Unsupported, text).remedy(format!(
                    "use a kernel with {config}=y or =m; a bare image needs its modules beside \
                     it, as lib/modules/RELEASE"
                )));
            }
        }
        Ok(order)
    }

    fn look(&mut self, folder: &Path, depth: usize) -> Result<(), Fault> {
        let entries = fs::read_dir(folder).map_err(|e| unreadable(folder, &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| unreadable(folder, &e))?;
            let kind = entry.file_type().map_err(|e| unreadable(&entry.path(), &e))?;
            // `build` and `source` are links to where the kernel was made.
            if kind.is_dir() && depth > 0 {
                self.look(&entry.path(), depth - 1)?;
            } else if kind.is_file()
                && let Some(name) = entry.file_name().to_str().and_then(name_of)
                && self.files.len() < MOST
            {
                self.files.insert(name, entry.path());
            }
        }
        Ok(())
    }

    /// Puts a module behind its dependencies. `above` are those that want it.
    fn visit(
        &self,
        name: &str,
        above: &mut Vec<String>,
        order: &mut Vec<Module>,
    ) -> Result<(), Fault> {
        if order.iter().any(|module| module.name == name) || self.is_built_in(name) {
            return Ok(());
        }
        let broken = |why: String| Fault::new(FaultKind::Unsupported, why);
        if above.iter().any(|one| one == name) {
            let circle = above.join(" needs ");
            return Err(broken(format!("modules depend on each other: {circle} needs {name}")));
        }
        let Some(path) = self.files.get(name) else {
            let last = above.last().map_or("", String::as_str);
            return Err(broken(format!("module {last} depends on {name}, which is not there")));
        };
        let bytes = unpack(path)?;
        let needs =
            depends(&bytes).map_err(|why| broken(format!("module {}: {why}", path.display())))?;
        above.push(name.to_owned());
        for need in needs {
            self.visit(&need, above, order)?;
        }
        above.pop();
        order.push(Module { name: name.to_owned(), bytes });
        Ok(())
    }

    fn is_built_in(&self, name: &str) -> bool {
        self.built_in.contains(name) && !self.files.contains_key(name)
    }
}

/// `kernel/net/ipv4/tcp_bbr.ko.xz` is the module `tcp_bbr`.
fn name_of(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let (name, ending) = file.split_once(".ko")?;
    matches!(ending, "" | ".xz" | ".gz" | ".zst").then(|| normal(name))
}

/// Reads a module and unpacks it, by the ending of its name.
fn unpack(path: &Path) -> Result<Vec<u8>, Fault> {
    let file = fs::File::open(path).map_err(|e| unreadable(path, &e))?;
    let packed = io::BufReader::new(file);
    let ending = path.extension().unwrap_or_default();
    let mut bytes = Vec::new();
    let read = match ending.to_str() {
        Some("xz") => {
            let memory_kib = 1 << 17;
            let reader = lzma_rust2::XzReader::new_mem_limit(packed, true, memory_kib);
            reader.take(LARGEST + 1).read_to_end(&mut bytes)
        }
        Some("gz") => {
            flate2::read::MultiGzDecoder::new(packed).take(LARGEST + 1).read_to_end(&mut bytes)
        }
        Some("zst") => match ruzstd::decoding::StreamingDecoder::new(packed) {
            Ok(reader) => reader.take(LARGEST + 1).read_to_end(&mut bytes),
            Err(e) => Err(io::Error::new(io::ErrorKind::InvalidData, e.to_string())),
        },
        _ => packed.take(LARGEST + 1).read_to_end(&mut bytes),
    };
    read.map_err(|e| unreadable(path, &e))?;
    if bytes.len() as u64 > LARGEST {
        let text = format!("module {} unpacks to more than {} MiB", path.display(), LARGEST >> 20);
        return Err(Fault::new(FaultKind::Unsupported, text));
    }
    Ok(bytes)
}

fn unreadable(path: &Path, error: &io::Error) -> Fault {
    Fault::new(FaultKind::Storage, format!("cannot read {}: {error}", path.display()))
}
