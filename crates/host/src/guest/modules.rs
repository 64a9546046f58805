//! The modules of a kernel: their files, dependencies and load order.
//!
//! Dependencies are read from the modules themselves, not from `modules.dep`: no package contains
//! that file. depmod(8) writes it when a kernel is installed; a kernel that is only unpacked has
//! none.

use super::elf::{depends, normal};
use super::vmlinux;
use bytepath_record::Fault;
use bytepath_sys::files;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most bytes of an unpacked module; the largest that distributions ship (graphics drivers) are a
/// tenth of it.
const LARGEST: u64 = 256 << 20;

/// Depth of the search for modules below their folder, and most modules found.
const DEEPEST: usize = 16;
const MOST: usize = 100_000;

/// A module, ready to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    /// Its name as the kernel spells it.
    pub name: String,
    pub bytes: Vec<u8>,
}

/// The modules of a kernel, built in or as files.
#[derive(Debug, Default)]
pub(super) struct Modules {
    built_in: BTreeSet<String>,
    files: BTreeMap<String, PathBuf>,
    assume_built_in: bool,
}

impl Modules {
    /// Searches `/lib/modules/RELEASE` or a similar folder.
    pub(super) fn of(folder: &Path) -> Result<Modules, Fault> {
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

    /// For a kernel that came without modules: whatever is required must be built in, which shows
    /// only when it boots.
    pub(super) fn unknown() -> Modules {
        Modules { assume_built_in: true, ..Modules::default() }
    }

    /// Whether the kernel has the module, or may have it built in.
    pub(super) fn may_have(&self, name: &str) -> bool {
        let name = normal(name);
        self.assume_built_in || self.files.contains_key(&name) || self.built_in.contains(&name)
    }

    /// Returns all modules to load for those in `wanted`, each after its dependencies. Skips those
    /// that are built in, and missing ones unless they are required (the flag).
    pub(super) fn order(&self, wanted: &[(&str, bool)]) -> Result<Vec<Module>, Fault> {
        let mut order = Vec::new();
        for (name, required) in wanted {
            let name = normal(name);
            if self.files.contains_key(&name) {
                self.visit(&name, &mut Vec::new(), &mut order)?;
            } else if *required && !self.assume_built_in && !self.built_in.contains(&name) {
                let text = format!("the kernel has no {name}, neither built in nor as a module");
                let config = format!("CONFIG_{}", name.to_uppercase());
                return Err(Fault::unsupported(text).remedy(format!(
                    "use a kernel with {config}=y or =m; a bare image needs its modules \
                     next to it, as lib/modules/RELEASE"
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
            // `build` and `source` are symbolic links to the kernel's sources.
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

    /// Adds a module after its dependencies. `above` is the chain of modules that depend on it.
    fn visit(
        &self,
        name: &str,
        above: &mut Vec<String>,
        order: &mut Vec<Module>,
    ) -> Result<(), Fault> {
        let is_built_in = self.built_in.contains(name) && !self.files.contains_key(name);
        if is_built_in || order.iter().any(|module| module.name == name) {
            return Ok(());
        }
        if above.iter().any(|one| one == name) {
            let circle = above.join(" needs ");
            return Err(Fault::unsupported(format!(
                "modules depend on each other: {circle} needs {name}"
            )));
        }
        let Some(path) = self.files.get(name) else {
            let last = above.last().map_or("", String::as_str);
            return Err(Fault::unsupported(format!(
                "module {last} depends on {name}, which is not there"
            )));
        };
        let bytes = unpack(path)?;
        let needs = depends(&bytes)
            .map_err(|why| Fault::unsupported(format!("module {}: {why}", path.display())))?;
        above.push(name.to_owned());
        for need in needs {
            self.visit(&need, above, order)?;
        }
        above.pop();
        order.push(Module { name: name.to_owned(), bytes });
        Ok(())
    }
}

/// Returns the module's name: `tcp_bbr` for `kernel/net/ipv4/tcp_bbr.ko.xz`.
fn name_of(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let (name, ending) = file.split_once(".ko")?;
    matches!(ending, "" | ".xz" | ".gz" | ".zst").then(|| normal(name))
}

/// Reads a module, and unpacks it if it is compressed.
fn unpack(path: &Path) -> Result<Vec<u8>, Fault> {
    let file = files::open(path).map_err(|e| unreadable(path, &e))?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|e| unreadable(path, &e))?;
    if let Some(unpacked) = vmlinux::unpack(&bytes, LARGEST) {
        bytes = unpacked.map_err(|e| unreadable(path, &e))?;
    }
    if bytes.len() as u64 > LARGEST {
        let text = format!("module {} unpacks to more than {} MiB", path.display(), LARGEST >> 20);
        return Err(Fault::unsupported(text));
    }
    Ok(bytes)
}

pub(super) fn unreadable(path: &Path, error: &io::Error) -> Fault {
    Fault::storage(format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A minimal kernel module: an ELF file with a section that lists its dependencies.
    fn module(depends: &str) -> Vec<u8> {
        let information = format!("license=GPL\0depends={depends}\0name=x\0");
        let names = b"\0.modinfo\0.shstrtab\0";
        let mut bytes = vec![0u8; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        // e_type, e_machine, e_version; e_shoff; e_ehsize; e_shentsize, number, names.
        bytes[16..24].copy_from_slice(&[1, 0, 62, 0, 1, 0, 0, 0]);
        let (data, strings) = (64, 64 + information.len());
        let sections = (strings + names.len()).next_multiple_of(8);
        bytes[40..48].copy_from_slice(&(sections as u64).to_le_bytes());
        bytes[52..54].copy_from_slice(&64u16.to_le_bytes());
        bytes[58..64].copy_from_slice(&[64, 0, 3, 0, 2, 0]);
        bytes.extend_from_slice(information.as_bytes());
        bytes.extend_from_slice(names);
        bytes.resize(sections + 64, 0);
        for (name, kind, at, length) in
            [(1u32, 1u32, data, information.len()), (10, 3, strings, names.len())]
        {
            let mut header = Vec::new();
            header.extend_from_slice(&name.to_le_bytes());
            header.extend_from_slice(&kind.to_le_bytes());
            header.extend_from_slice(&[0; 16]);
            header.extend_from_slice(&(at as u64).to_le_bytes());
            header.extend_from_slice(&(length as u64).to_le_bytes());
            header.resize(64, 0);
            bytes.extend_from_slice(&header);
        }
        bytes
    }

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn of(files: &[(&str, &str)], built_in: &str) -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            for (path, depends) in files {
                tree.write(path, &module(depends));
            }
            fs::write(tree.0.path().join("modules.builtin"), built_in).unwrap();
            tree
        }

        fn write(&self, path: &str, bytes: &[u8]) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }

        fn order(&self, wanted: &[(&str, bool)]) -> Result<Vec<String>, Fault> {
            let order = Modules::of(self.0.path())?.order(wanted)?;
            Ok(order.into_iter().map(|module| module.name).collect())
        }
    }

    #[test]
    fn orders_modules_after_their_dependencies() {
        let tree = Tree::of(
            &[
                ("kernel/a/virtio.ko", "virtio_ring"),
                ("kernel/a/virtio_ring.ko", ""),
                ("kernel/b/virtio-pci.ko", "virtio,virtio_ring,virtio-pci-modern"),
                ("kernel/b/virtio_pci_modern.ko", "virtio"),
                ("kernel/c/veth.ko", "page_pool"),
            ],
            "kernel/net/page-pool.ko\n",
        );
        let cases: [(&[&str], &[&str]); 4] = [
            (&["veth"], &["veth"]),
            (&["virtio"], &["virtio_ring", "virtio"]),
            (
                &["virtio_pci", "virtio", "veth"],
                &["virtio_ring", "virtio", "virtio_pci_modern", "virtio_pci", "veth"],
            ),
            (&["page_pool"], &[]),
        ];
        for (wanted, order) in cases {
            let wanted: Vec<(&str, bool)> = wanted.iter().map(|name| (*name, true)).collect();
            assert_eq!(tree.order(&wanted).unwrap(), *order, "{wanted:?}");
        }
        assert_eq!(tree.order(&[("tcp_bbr", false)]).unwrap(), [""; 0]);
    }

    #[test]
    fn names_missing_broken_and_circular_modules() {
        let tree = Tree::of(&[("a.ko", "b"), ("b.ko", "a"), ("c.ko", "gone")], "");
        let wrong = |name| tree.order(&[(name, true)]).unwrap_err().to_string();
        assert!(wrong("veth").contains("CONFIG_VETH=y or =m"), "{}", wrong("veth"));
        assert!(wrong("a").contains("a needs b needs a"), "{}", wrong("a"));
        assert!(wrong("c").contains("module c depends on gone"), "{}", wrong("c"));
        tree.write("d.ko", b"no ELF");
        assert!(wrong("d").contains("d.ko: it is not a 64-bit ELF"), "{}", wrong("d"));
        tree.write("e.ko.xz", b"\xfd7zXZ\0no archive");
        assert!(wrong("e").contains("cannot read"), "{}", wrong("e"));
        assert_eq!(Modules::unknown().order(&[("veth", true)]), Ok(Vec::new()));
    }

    #[test]
    fn packed_modules_are_unpacked() {
        let tree = Tree::of(&[("plain.ko", "zipped")], "");
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zip.write_all(&module("zstandard")).unwrap();
        tree.write("x/zipped.ko.gz", &zip.finish().unwrap());
        use ruzstd::encoding::{CompressionLevel, compress_to_vec};
        let zst = compress_to_vec(&module("")[..], CompressionLevel::Fastest);
        tree.write("x/zstandard.ko.zst", &zst);
        assert_eq!(tree.order(&[("plain", true)]).unwrap(), ["zstandard", "zipped", "plain"]);
    }
}
