//! The guest's only file system: this program (and those of a test), the libraries they need, and
//! the modules to load. It contains no distribution, not even a shell.

use super::kernel::{self, Image};
use super::modules::{Module, Modules, unreadable};
use super::nics::{Maker, NicPair};
use super::{elf, initramfs};
use bytepath_record::Fault;
use bytepath_sys::boot::MODULES;
use bytepath_sys::files;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Path of this program in a guest.
pub(super) const PROGRAM: &str = "/bin/bytepath";

/// The first program that the kernel runs: a link to [`PROGRAM`].
pub(super) const INIT: &str = "/init";

/// Most libraries of a program: a limit against malformed files.
const MOST_LIBRARIES: usize = 256;

/// Most bytes of a debug file: enough for the C library's, though not for those of large C++
/// libraries.
const MOST_DEBUG: u64 = 256 << 20;

/// Folders that the loader searches by default, in addition to those of `/etc/ld.so.conf`
/// (ld.so(8)). The first are Debian's.
const LIBRARY_FOLDERS: &[&str] = &[
    concat!("/lib/", "x86_64-linux-gnu"),
    concat!("/usr/lib/", "x86_64-linux-gnu"),
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Builds the archive that the kernel unpacks. Each pair of `others` is a path in the guest and the
/// program to put there.
pub(super) fn build(
    program: &Path,
    others: &[(&str, &Path)],
    modules: &[Module],
) -> Result<Vec<u8>, Fault> {
    let mut tree = Tree::default();
    for folder in ["/dev", "/proc", "/sys", "/tmp", "/run", MODULES] {
        tree.folder(folder);
    }
    // The kernel opens it as the console of the first process, before anything is mounted.
    tree.archive.device("/dev/console", 5, 1);
    let folders = library_folders(Path::new("/"));
    let mut all = Libraries::new();
    for (place, program) in [(PROGRAM, program)].iter().chain(others) {
        let (bytes, libraries) = with_libraries(program, &folders)?;
        // Every byte costs the guest's memory twice: once packed, once unpacked.
        let lean = elf::without_debug(&bytes);
        tree.file(place, 0o755, lean.as_deref().unwrap_or(&bytes));
        all.extend(libraries);
    }
    tree.archive.link(INIT, PROGRAM);
    for (path, bytes) in &all {
        // If a library gets no names, `bytepath doctor` reports the reason.
        let named = named(bytes, Path::new("/"));
        tree.file(path, 0o755, named.as_deref().unwrap_or(bytes));
    }
    for (number, module) in modules.iter().enumerate() {
        tree.file(&format!("{MODULES}/{number:03}-{}", module.name), 0o644, &module.bytes);
    }
    Ok(tree.archive.finish())
}

/// An archive that creates parent folders as needed.
#[derive(Default)]
struct Tree {
    archive: Archive,
    folders: BTreeSet<String>,
}

impl Tree {
    fn folder(&mut self, path: &str) {
        if let Some((above, _)) = path.rsplit_once('/')
            && !above.is_empty()
        {
            self.folder(above);
        }
        if self.folders.insert(path.to_owned()) {
            self.archive.folder(path);
        }
    }

    fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
        self.archive.file(path, permissions, content);
    }
}

type Libraries = BTreeMap<String, Vec<u8>>;

/// Reads a program and all libraries that it needs, each with the path at which its loader will
/// look for it.
fn with_libraries(program: &Path, folders: &[PathBuf]) -> Result<(Vec<u8>, Libraries), Fault> {
    let unfit = |path: &Path, why: String| {
        Fault::unsupported(format!("{}: {why}", path.display()))
            .remedy("guests run the bytepath binary itself, built for this machine")
    };
    let bytes = read(program)?;
    let mut found = Libraries::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    let needs = elf::needs(&bytes).map_err(|why| unfit(program, why))?;
    if let Some(interpreter) = &needs.interpreter {
        found.insert(interpreter.clone(), read(Path::new(interpreter))?);
    }
    let mut open: Vec<(PathBuf, elf::Needs)> = vec![(program.to_owned(), needs)];
    while let Some((of, needs)) = open.pop() {
        let origin = of.parent().unwrap_or(Path::new("/")).display().to_string();
        let runpaths = needs.folders.iter().map(|folder| folder.replace("$ORIGIN", &origin));
        let runpaths: Vec<PathBuf> = runpaths.map(PathBuf::from).collect();
        for name in needs.libraries {
            // The loader itself may be listed as a library.
            let is_loader = found.keys().any(|path| path.ends_with(&format!("/{name}")));
            if is_loader || !names.insert(name.clone()) {
                continue;
            }
            let places = runpaths.iter().chain(folders).map(|folder| folder.join(&name));
            let Some(path) = places.into_iter().find(|path| path.is_file()) else {
                let why = format!("it needs {name}, which is not in any library folder");
                return Err(unfit(&of, why));
            };
            let bytes = read(&path)?;
            let needs = elf::needs(&bytes).map_err(|why| unfit(&path, why))?;
            found.insert(path.display().to_string(), bytes);
            open.push((path, needs));
            if found.len() > MOST_LIBRARIES {
                let why = format!("it needs more than {MOST_LIBRARIES} libraries");
                return Err(unfit(program, why));
            }
        }
    }
    Ok((bytes, found))
}

/// Returns a library with names for all of its functions, taken from its debug file on a machine
/// whose root is `root`. The guest's profiles need them: a stripped libc, for example, has no name
/// for the memmove that it selects. Errors with the reason if no names can be added.
pub(crate) fn named<'a>(library: &'a [u8], root: &Path) -> Result<Cow<'a, [u8]>, String> {
    if elf::has_symbols(library) {
        return Ok(library.into());
    }
    let path = elf::debug_file(library, root).ok_or("it has no build id")?;
    let debug = files::read(&path, MOST_DEBUG).map_err(|e| match e.kind() {
        ErrorKind::NotFound => "its debug file is not installed".to_owned(),
        _ => format!("cannot read {}: {e}", path.display()),
    })?;
    let named = elf::with_symbols(library, &debug);
    named.map(Cow::Owned).map_err(|why| format!("{}: {why}", path.display()))
}

/// Returns the library folders of a machine whose root is `root`.
fn library_folders(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = LIBRARY_FOLDERS.iter().map(PathBuf::from).collect();
    let configured = root.join("etc/ld.so.conf.d");
    let files = fs::read_dir(configured).into_iter().flatten().flatten().map(|e| e.path());
    for file in files.chain([root.join("etc/ld.so.conf")]) {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines = text.lines().map(str::trim).filter(|line| line.starts_with('/'));
        folders.extend(lines.map(PathBuf::from));
    }
    folders
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    fs::read(path).map_err(|e| unreadable(path, &e))
}

/// A cpio archive, built entry by entry. Folders must precede their contents, because the kernel
/// creates none by itself.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    /// The last inode number. Each entry gets its own: the kernel takes entries with the same
    /// number and more than one link for hard links.
    inodes: u32,
}

/// File types in the mode of an entry (stat(2)).
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// Name of the last entry.
const TRAILER: &str = "TRAILER!!!";

impl Archive {
    pub(super) fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER | 0o755, (0, 0), &[]);
    }

    /// Adds a file. Its content must be below 4 GiB, the most that the size field of the format can
    /// express.
    pub(super) fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.entry(path, FILE | permissions, (0, 0), content);
    }

    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK | 0o777, (0, 0), target.as_bytes());
    }

    pub(super) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHARACTER_DEVICE | 0o600, (major, minor), &[]);
    }

    /// Returns the archive, with its trailer.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, (0, 0), &[]);
        self.bytes
    }

    /// Appends magic, thirteen numbers of eight hexadecimal digits, the name with its NUL, and the
    /// content; name and content are padded to four bytes.
    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        let name = path.trim_start_matches('/');
        self.inodes += 1;
        let ((major, minor), size, name_size) =
            (device, content.len() as u32, name.len() as u32 + 1);
        let numbers = [self.inodes, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes.extend_from_slice(format!("{number:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.fill();
        self.bytes.extend_from_slice(content);
        self.fill();
    }

    fn fill(&mut self) {
        let whole = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(whole, 0);
    }
}

/// Modules that guests load if the kernel has them, and whether sessions require them: the port to
/// the host, the pair of devices between two agents, then those that paths and congestion controls
/// may need.
const GUEST_MODULES: &[(&str, bool)] = &[
    ("virtio_pci", true),
    ("virtio_console", true),
    ("veth", true),
    ("virtio_net", false),
    ("tcp_bbr", false),
    ("tcp_dctcp", false),
    ("udmabuf", false),
    ("dummy", false),
    ("tun", false),
    ("macvtap", false),
    ("sch_fq_codel", false),
    ("sch_fq", false),
    ("sch_netem", false),
    ("vhost_net", false),
    ("pktgen", false),
    ("tls", false),
    // The cipher of kernel TLS, with and without processor instructions for it.
    ("aesni_intel", false),
    ("ghash_generic", false),
    ("ctr", false),
    ("gcm", false),
];

/// Returns a kernel image and the file system of its guests: this program, `others` (path in the
/// guest, program), the usual modules, and, as required ones, `more` and the driver of `nics`.
pub fn prepare(
    kernel: &str,
    program: &Path,
    others: &[(&str, &Path)],
    more: &[&str],
    nics: Option<&NicPair>,
    stop: &AtomicBool,
) -> Result<(Image, Vec<u8>), Fault> {
    let (image, modules) = find(kernel, nics, stop)?;
    let required = more.iter().copied().chain(nics.map(|nics| nics.module));
    let required = required.map(|name| (name, true));
    let names: Vec<(&str, bool)> = GUEST_MODULES.iter().copied().chain(required).collect();
    let modules = modules.order(&names).map_err(|f| f.context(image.path.display()))?;
    let archive = initramfs::build(program, others, &modules)?;
    Ok((image, archive))
}

/// Errors if a kernel lacks what a guest needs, including the driver of `nics`.
pub fn bootable(kernel: &str, nics: Option<&NicPair>) -> Result<(), Fault> {
    find(kernel, nics, &AtomicBool::new(false)).map(drop)
}

/// Finds a kernel and its modules, which must include the driver of `nics`. If several kernels
/// match the name, one with the driver is preferred.
fn find(
    kernel: &str,
    nics: Option<&NicPair>,
    stop: &AtomicBool,
) -> Result<(Image, Modules), Fault> {
    let module = nics.map(|nics| nics.module);
    let image = kernel::find(kernel, module, stop)?;
    let modules = image.modules.as_deref().map_or_else(|| Ok(Modules::unknown()), Modules::of)?;
    match nics {
        Some(nics) if !modules.may_have(nics.module) => {
            let text = format!("there is no module {} for kernel {kernel}", nics.module);
            Err(Fault::unsupported(text).remedy(match nics.maker {
                Maker::Module => {
                    "make vm-nic builds it for the newest kernel 7.x that make vm-kernel fetched"
                }
                Maker::Qemu { .. } => {
                    "make vm-kernel fetches a kernel that has it; the cloud flavour lacks it"
                }
            }))
        }
        _ => Ok((image, modules)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    #[test]
    fn a_program_comes_with_its_loader_and_the_libraries_of_its_libraries() {
        let own = std::env::current_exe().unwrap();
        let (bytes, libraries) = with_libraries(&own, &library_folders(Path::new("/"))).unwrap();
        assert_eq!(bytes, fs::read(&own).unwrap());
        let has = |name: &str| libraries.keys().any(|path| path.contains(name));
        assert!(has("/ld-") && has("/libc.so"), "{:?}", libraries.keys());
        let count = |name: &str| libraries.keys().filter(|path| path.ends_with(name)).count();
        assert_eq!(count("libc.so.6"), 1, "{:?}", libraries.keys());
    }

    #[test]
    fn functions_of_a_guests_libraries_have_names() {
        let own = std::env::current_exe().unwrap();
        let (_, libraries) = with_libraries(&own, &library_folders(Path::new("/"))).unwrap();
        let (path, libc) = libraries.iter().find(|(path, _)| path.contains("/libc.so")).unwrap();
        if elf::debug_file(libc, Path::new("/")).is_none_or(|file| !file.exists()) {
            return skip!("no debug file of {path}: apt-get install libc6-dbg");
        }
        assert!(elf::has_symbols(&named(libc, Path::new("/")).unwrap()), "{path}");
        assert_eq!(named(b"#!/bin/sh", Path::new("/")).unwrap_err(), "it has no build id");
    }

    #[test]
    fn a_library_that_is_nowhere_is_named() {
        let own = std::env::current_exe().unwrap();
        let fault = with_libraries(&own, &[]).unwrap_err();
        assert!(fault.message.contains("it needs lib"), "{fault}");
    }

    #[test]
    fn writes_each_folder_once_before_its_files() {
        let mut tree = Tree::default();
        tree.file("/a/b/c", 0o644, b"1");
        tree.file("/a/b/d", 0o644, b"2");
        let bytes = tree.archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        let at = |name: &str| text.find(&format!("{name}\0")).unwrap();
        assert!(at("a") < at("a/b") && at("a/b") < at("a/b/c"), "{text}");
        assert_eq!(text.matches("a/b\0").count(), 1, "{text}");
    }

    #[test]
    fn archive_matches_the_format_byte_for_byte() {
        let mut archive = Archive::default();
        archive.folder("/dev");
        archive.device("/dev/console", 5, 1);
        archive.file("/init", 0o755, b"hello");
        archive.link("/lib", "usr/lib");
        let text = String::from_utf8(archive.finish()).unwrap().replace('\0', "~");
        let expected = [
            "07070100000001000041ED0000000000000000000000010000000000000000\
             000000000000000000000000000000000000000400000000dev~~~",
            "07070100000002000021800000000000000000000000010000000000000000\
             000000000000000000000005000000010000000C00000000dev/console~~~",
            "07070100000003000081ED0000000000000000000000010000000000000005\
             000000000000000000000000000000000000000500000000init~~hello~~~",
            "070701000000040000A1FF0000000000000000000000010000000000000007\
             000000000000000000000000000000000000000400000000lib~~~usr/lib~",
            "07070100000005000000000000000000000000000000010000000000000000\
             000000000000000000000000000000000000000B00000000TRAILER!!!~~~~",
        ];
        assert_eq!(text, expected.concat());
    }

    #[test]
    fn names_and_contents_are_filled_to_four_bytes() {
        for length in 0..9 {
            let mut archive = Archive::default();
            archive.file(&"n".repeat(length + 1), 0o644, &vec![1; length]);
            assert_eq!(archive.finish().len() % 4, 0, "{length}");
        }
    }

    /// Skips if busybox is not installed.
    #[test]
    fn cpio_itself_reads_it() {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let mut archive = Archive::default();
        archive.folder("etc");
        archive.file("etc/name", 0o644, b"bytepath\n");
        let busybox = Command::new("busybox").arg("cpio").arg("--help").output();
        if !busybox.is_ok_and(|o| o.status.success()) {
            skip!("no busybox: the archive is checked against the format's text alone");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("busybox");
        command.args(["cpio", "-i"]).current_dir(folder.path());
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        assert!(child.wait().unwrap().success());
        let name = std::fs::read_to_string(folder.path().join("etc/name")).unwrap();
        assert_eq!(name, "bytepath\n");
    }
}
