//! Finds the kernel that a study names: an image, an installed release, a Debian package, or a
//! fetched kernel.

use super::modules::Modules;
use super::{qemu, vmlinux};
use crate::child::{remove_left, run_unless_stopped};
use bytepath_record::{Fault, FaultKind};
use bytepath_sys::files;
use std::cmp::Ordering;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Prefix of names of fetched kernels: `debian:newest`, `debian:6.1`.
const FETCHED: &str = "debian:";

/// How to get a kernel.
const FETCH: &str = "make vm-kernel (tools/vm-kernel) fetches one, or give the path of an image";

/// A kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The compressed image, in the form that boot loaders take.
    pub path: PathBuf,
    /// Its `uname -r`.
    pub release: String,
    /// The folder of its modules, if there is one.
    pub modules: Option<PathBuf>,
}

/// Prefix of the folders that packages are unpacked to; the process id follows.
const UNFINISHED: &str = ".unpacking-";

/// Most bytes of an image; distributions ship 10 to 20 MiB.
const LARGEST: u64 = 256 << 20;

impl Image {
    /// Opens the file for qemu: the image itself, or, if `unpacked`, the kernel extracted from it.
    /// Falls back to the image, which unpacks itself, if the kernel cannot be extracted.
    pub fn open(&self, unpacked: bool) -> Result<OwnedFd, Fault> {
        let fault = |e: io::Error| unreadable(&self.path, &e);
        let mut file = files::open(&self.path).map_err(fault)?;
        if unpacked {
            // Unpacking takes about a second, as long as booting.
            let kept = cache().and_then(|cache| self.kept(&cache.join("vmlinux")));
            if let Ok(Ok(kernel)) = kept.as_ref().map(fs::File::open) {
                return Ok(kernel.into());
            }
            let mut bytes = Vec::new();
            file.by_ref().take(LARGEST).read_to_end(&mut bytes).map_err(fault)?;
            if let Ok(kernel) = vmlinux::of_image(&bytes) {
                // If this fails, the next guest unpacks again.
                let _ = kept.map(|place| keep(&place, &kernel));
                return qemu::in_memory("vmlinux", &kernel)
                    .map_err(|e| Fault::system("keeping a kernel in memory", &e));
            }
        }
        Ok(file.into())
    }

    /// Returns where the extracted kernel is kept. A rebuilt image has another path.
    fn kept(&self, cache: &Path) -> Result<PathBuf, Fault> {
        let state = state(std::slice::from_ref(&self.path))?;
        Ok(cache.join(&self.release).join(state))
    }
}

/// Writes a kernel to `place` atomically, and removes its predecessors.
fn keep(place: &Path, kernel: &[u8]) -> io::Result<()> {
    let folder = place.parent().unwrap_or(place);
    let cache = folder.parent().unwrap_or(folder);
    fs::create_dir_all(folder)?;
    let unfinished = tempfile::NamedTempFile::new_in(cache)?;
    fs::write(unfinished.path(), kernel)?;
    for old in fs::read_dir(folder)?.flatten() {
        fs::remove_file(old.path())?;
    }
    unfinished.persist(place)?;
    Ok(())
}

/// Finds the kernel that a study calls `source`: the path of an image or of a `.deb`, the release
/// of an installed kernel, `debian:newest`, or `debian:` and the beginning of a release. Among
/// fetched kernels, one that has `module` is preferred.
pub fn find(source: &str, module: Option<&str>, stop: &AtomicBool) -> Result<Image, Fault> {
    if let Some(wanted) = source.strip_prefix(FETCHED) {
        return fetched(&cache()?.join("kernels"), wanted, module);
    }
    if source.ends_with(".deb") {
        return unpacked(Path::new(source), &cache()?.join("unpacked"), stop);
    }
    if source.contains('/') {
        return image(Path::new(source));
    }
    let places = [format!("/boot/vmlinuz-{source}"), format!("/lib/modules/{source}/vmlinuz")];
    match places.iter().find(|place| Path::new(place).is_file()) {
        Some(place) => image(Path::new(place)),
        None if Path::new(source).is_file() => image(Path::new(source)),
        None => Err(Fault::unsupported(format!(
            "there is no kernel '{source}': neither {}, {} nor a file",
            places[0], places[1]
        ))),
    }
}

/// Returns the folder for fetched and unpacked files (XDG Base Directory Specification).
pub(super) fn cache() -> Result<PathBuf, Fault> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let folder = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let folder = folder.ok_or_else(|| {
        Fault::storage("there is no folder for what is fetched")
            .remedy("set HOME or XDG_CACHE_HOME")
    })?;
    Ok(folder.join("bytepath"))
}

/// Returns the newest kernel below `root` whose release begins with `wanted`; those with `module`
/// come first.
fn fetched(root: &Path, wanted: &str, module: Option<&str>) -> Result<Image, Fault> {
    let folder = root.join("lib/modules");
    let names = match fs::read_dir(&folder) {
        Ok(entries) => entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(unreadable(&folder, &e)),
    };
    let fits = |name: &&String| {
        let is_asked_for = wanted == "newest" || name.starts_with(wanted);
        is_asked_for && !wanted.is_empty() && folder.join(name).join("vmlinuz").is_file()
    };
    let has_module = |name: &str| {
        let Some(module) = module else { return false };
        Modules::of(&folder.join(name)).is_ok_and(|modules| modules.may_have(module))
    };
    let ranked = names.iter().filter(fits).map(|name| (has_module(name), name));
    match ranked.max_by(|a, b| a.0.cmp(&b.0).then(by_version(a.1, b.1))) {
        Some((_, name)) => image(&folder.join(name).join("vmlinuz")),
        None => Err(Fault::unsupported(format!(
            "there is no kernel '{FETCHED}{wanted}' in {}",
            folder.display()
        ))
        .remedy(FETCH)),
    }
}

/// Compares releases number by number: 6.10 is newer than 6.9.
fn by_version(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| -> Vec<(u64, String)> {
        let parts = text.split(|c: char| !c.is_ascii_alphanumeric());
        parts.map(|part| (part.parse().unwrap_or(0), part.to_owned())).collect()
    };
    parts(a).cmp(&parts(b))
}

/// Returns an image with its release and its modules.
fn image(path: &Path) -> Result<Image, Fault> {
    let path = fs::canonicalize(path).map_err(|e| unreadable(path, &e))?;
    let release = release(&path)?;
    let modules = modules_beside(&path, &release);
    Ok(Image { path, release, modules })
}

/// How many bytes of an image are read to find its release: the text is in the setup code, which is
/// at most 64 KiB long.
const SETUP: u64 = 0x200 + (1 << 16) + 256;

fn release(path: &Path) -> Result<String, Fault> {
    let fault = |e: &io::Error| unreadable(path, e);
    let file = files::open(path).map_err(|e| fault(&e))?;
    let mut setup = Vec::new();
    file.take(SETUP).read_to_end(&mut setup).map_err(|e| fault(&e))?;
    release_in(&setup).ok_or_else(|| {
        Fault::usage(format!("{} is not a kernel image (bzImage) for x86", path.display()))
            .remedy("give what a boot loader takes: /boot/vmlinuz-..., arch/x86/boot/bzImage")
    })
}

/// Reads the release from the header of an x86 image: `HdrS` at 0x202, and at 0x20e the offset of
/// the version text, less 0x200 (Documentation/arch/x86/boot.rst). `None` if this is not such an
/// image.
pub fn release_in(image: &[u8]) -> Option<String> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let at = u16::from_le_bytes(image.get(0x20e..0x210)?.try_into().ok()?);
    let text = image.get(usize::from(at) + 0x200..)?;
    // "7.3.4+deb13-cloud-amd64 (debian-kernel@...) #1 SMP ..."
    let release = text.split(|byte| matches!(byte, 0 | b' ')).next()?;
    let fine = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-_.~".contains(byte);
    let is_valid = !release.is_empty() && release.len() <= 128 && release.iter().all(fine);
    is_valid.then(|| String::from_utf8_lossy(release).into_owned())
}

/// Returns the folder of an image's modules: its own folder, or lib/modules/RELEASE beside it,
/// above it, or of this machine.
fn modules_beside(image: &Path, release: &str) -> Option<PathBuf> {
    let folder = image.parent()?;
    if folder.file_name().is_some_and(|name| name == release) {
        return Some(folder.to_owned());
    }
    // Packages of a distribution whose `/lib` is a link have the modules below `/usr`.
    let below = |root: &Path| {
        ["lib/modules", "usr/lib/modules"].map(|modules| root.join(modules).join(release))
    };
    let roots = [Some(folder), folder.parent(), Some(Path::new("/"))];
    roots.into_iter().flatten().flat_map(below).find(|found| found.is_dir())
}

/// Unpacks a package and those beside it for the same release: since Linux 7.1, Debian splits
/// image, modules and module lists into separate packages.
fn unpacked(package: &Path, cache: &Path, stop: &AtomicBool) -> Result<Image, Fault> {
    let package = fs::canonicalize(package).map_err(|e| unreadable(package, &e))?;
    files::open(&package).map_err(|e| unreadable(&package, &e))?;
    let stem = package.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let packages = relatives(&package)?;
    let folder = cache.join(format!("{stem}-{}", state(&packages)?));
    if !folder.is_dir() {
        let failed = |e: io::Error| unreadable(cache, &e);
        fs::create_dir_all(cache).map_err(failed)?;
        remove_left(cache, UNFINISHED);
        let name = format!("{UNFINISHED}{}-", std::process::id());
        // Removed on return, unless it was renamed.
        let unfinished =
            tempfile::Builder::new().prefix(&name).tempdir_in(cache).map_err(failed)?;
        packages.iter().try_for_each(|one| extract(one, unfinished.path(), stop))?;
        // Atomic; another process may have been faster.
        match fs::rename(unfinished.path(), &folder) {
            Err(e) if !folder.is_dir() => return Err(unreadable(&folder, &e)),
            _ => {}
        }
    }
    let images = files_called(&folder, "vmlinuz", 8);
    match images.as_slice() {
        [] => Err(Fault::unsupported(format!("{} contains no kernel image", package.display()))
            .remedy("give the package with the image: linux-image-* or linux-binary-*")),
        [first, ..] => image(first),
    }
}

/// Distinguishes these packages from others of the same names: by their number, total size, and
/// newest modification time. So a rebuilt kernel counts as another one.
fn state(packages: &[PathBuf]) -> Result<String, Fault> {
    let (mut bytes, mut youngest) = (0, 0);
    for package in packages {
        let metadata = fs::metadata(package).map_err(|e| unreadable(package, &e))?;
        bytes += metadata.len();
        let changed = i128::from(metadata.mtime()) * 1_000_000_000;
        youngest = youngest.max(changed + i128::from(metadata.mtime_nsec()));
    }
    Ok(format!("{}-{bytes}-{youngest}", packages.len()))
}

/// Returns the package and those of the same release beside it.
fn relatives(package: &Path) -> Result<Vec<PathBuf>, Fault> {
    let mut all = vec![package.to_owned()];
    let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(rest) = ["linux-binary-unsigned-", "linux-binary-", "linux-image-"]
        .iter()
        .find_map(|lead| name.strip_prefix(lead))
    else {
        return Ok(all);
    };
    let folder = package.parent().unwrap_or(Path::new("."));
    for lead in ["linux-modules-", "linux-base-"] {
        let beside = folder.join(format!("{lead}{rest}"));
        all.extend(beside.is_file().then_some(beside));
    }
    Ok(all)
}

fn extract(package: &Path, folder: &Path, stop: &AtomicBool) -> Result<(), Fault> {
    let mut command = Command::new("dpkg-deb");
    command.arg("-x").arg(package).arg(folder);
    let ended = run_unless_stopped(command, stop).map_err(|e| {
        Fault::system(format!("running dpkg-deb to unpack {}", package.display()), &e)
            .remedy("install dpkg, or unpack the package and give the image in it")
    })?;
    match ended {
        None => Err(Fault::new(FaultKind::Interrupted, "interrupted by the user")),
        Some((status, _)) if status.success() => Ok(()),
        Some((_, errors)) => {
            let (package, errors) = (package.display(), errors.trim());
            Err(Fault::storage(format!("dpkg-deb cannot unpack {package}: {errors}")))
        }
    }
}

/// Returns the files below a folder whose names begin with `lead`, in order.
fn files_called(folder: &Path, lead: &str, depth: usize) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 0 {
            files.extend(files_called(&entry.path(), lead, depth - 1));
        } else if kind.is_file() && entry.file_name().to_string_lossy().starts_with(lead) {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

fn unreadable(path: &Path, error: &io::Error) -> Fault {
    let text = format!("cannot read {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::NotFound => Fault::usage(text),
        io::ErrorKind::PermissionDenied => Fault::new(FaultKind::Permission, text),
        _ => Fault::storage(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    static GOES_ON: AtomicBool = AtomicBool::new(false);

    /// A minimal image that a boot loader would accept.
    fn fake_image(release: &str) -> Vec<u8> {
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        let text = format!("{release} (somebody@somewhere) #1 SMP\0");
        bytes[0x300..0x300 + text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    fn install(root: &Path, release: &str) -> PathBuf {
        let folder = root.join("lib/modules").join(release);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("vmlinuz"), fake_image(release)).unwrap();
        folder
    }

    #[test]
    fn the_newest_is_the_newest_by_number() {
        let root = tempfile::tempdir().unwrap();
        for release in ["6.9.1-cloud-amd64", "6.10.0-cloud-amd64", "6.10.0-rc1", "5.19.17"] {
            install(root.path(), release);
        }
        let found = fetched(root.path(), "newest", None).unwrap();
        assert_eq!(found.release, "6.10.0-rc1");
        assert_eq!(fetched(root.path(), "6.9", None).unwrap().release, "6.9.1-cloud-amd64");
        let folder = root.path().canonicalize().unwrap().join("lib/modules/6.9.1-cloud-amd64");
        assert_eq!(fetched(root.path(), "6.9", None).unwrap().modules, Some(folder));
        let fault = fetched(root.path(), "8", None).unwrap_err();
        assert!(fault.to_string().contains("make vm-kernel"), "{fault}");
    }

    #[test]
    fn an_image_finds_its_modules_next_to_it() {
        let root = tempfile::tempdir().unwrap();
        let modules = install(root.path(), "1.2.3-mine");
        let boot = root.path().join("boot");
        fs::create_dir(&boot).unwrap();
        for path in [root.path().join("bzImage"), boot.join("vmlinuz-1.2.3-mine")] {
            fs::write(&path, fake_image("1.2.3-mine")).unwrap();
            let found = image(&path).unwrap();
            assert_eq!(found.release, "1.2.3-mine");
            assert_eq!(found.modules, Some(modules.canonicalize().unwrap()), "{path:?}");
        }
        fs::write(root.path().join("bare"), fake_image("9.9.9-bare")).unwrap();
        assert_eq!(image(&root.path().join("bare")).unwrap().modules, None);
        let below_usr = root.path().join("usr/lib/modules/9.9.9-bare");
        fs::create_dir_all(&below_usr).unwrap();
        let found = image(&root.path().join("bare")).unwrap().modules;
        assert_eq!(found, Some(below_usr.canonicalize().unwrap()));
    }

    /// Builds a Debian package of these files; `None` if dpkg-deb is not installed.
    fn package(to: &Path, files: &[(&str, &[u8])]) -> Option<()> {
        let tree = tempfile::tempdir().unwrap();
        let control = "Package: made-up\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\n\
                       Description: made up\n";
        for (name, content) in [("DEBIAN/control", control.as_bytes())].iter().chain(files) {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let mut command = Command::new("dpkg-deb");
        command.args(["--root-owner-group", "-Znone", "-b"]).arg(tree.path()).arg(to);
        match command.output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{said}");
                Some(())
            }
            Err(e) => {
                skip!("no dpkg-deb to make packages with: {e}");
                None
            }
        }
    }

    #[test]
    fn a_package_is_unpacked_with_its_relatives_and_again_when_it_changes() {
        let (root, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let beside = |name: &str| root.path().join(name);
        let binary = beside("linux-binary-1.2.3-mine_1_all.deb");
        let first = [("boot/vmlinuz-1.2.3-mine", &fake_image("1.2.3-mine")[..])];
        if package(&binary, &first).is_none() {
            return;
        }
        let alone = unpacked(&binary, cache.path(), &GOES_ON).unwrap();
        assert_eq!((alone.release.as_str(), &alone.modules), ("1.2.3-mine", &None));
        let module = [("usr/lib/modules/1.2.3-mine/kernel/veth.ko", &b"veth"[..])];
        package(&beside("linux-modules-1.2.3-mine_1_all.deb"), &module).unwrap();
        let whole = unpacked(&binary, cache.path(), &GOES_ON).unwrap();
        let modules = whole.modules.clone().expect("its modules are next to it");
        assert!(modules.join("kernel/veth.ko").is_file(), "{modules:?}");
        assert_eq!(unpacked(&binary, cache.path(), &GOES_ON).unwrap(), whole, "once is enough");
        package(&binary, &[("boot/vmlinuz-9", &fake_image("1.2.3-mine2")[..])]).unwrap();
        assert_eq!(unpacked(&binary, cache.path(), &GOES_ON).unwrap().release, "1.2.3-mine2");
        package(&binary, &module).unwrap();
        let fault = unpacked(&binary, cache.path(), &GOES_ON).unwrap_err();
        assert!(fault.message.contains("contains no kernel image"), "{fault}");
        fs::write(&binary, b"no package").unwrap();
        let fault = unpacked(&binary, cache.path(), &GOES_ON).unwrap_err();
        assert!(fault.message.contains("dpkg-deb cannot unpack"), "{fault}");
        let left = fs::read_dir(cache.path()).unwrap().flatten().map(|entry| entry.file_name());
        assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with('.')));
    }

    #[test]
    fn an_unpacked_kernel_is_kept_until_the_image_changes() {
        let (root, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = root.path().join("vmlinuz-1.2.3-mine");
        let built = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            image(&path).unwrap().kept(cache.path()).unwrap()
        };
        let first = built(&fake_image("1.2.3-mine"));
        keep(&first, b"a kernel").unwrap();
        assert_eq!(fs::read(&first).unwrap(), b"a kernel");
        let second = built(&[&fake_image("1.2.3-mine")[..], b"and more"].concat());
        assert_ne!(first, second);
        keep(&second, b"another").unwrap();
        assert_eq!(files_called(cache.path(), "", 8), [second]);
    }

    #[test]
    fn names_files_that_are_no_image() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("notes.txt");
        for content in [&b""[..], b"hello", &[0; 4096]] {
            fs::write(&path, content).unwrap();
            let fault = image(&path).unwrap_err();
            assert!(fault.message.contains("notes.txt is not a kernel image"), "{fault}");
        }
        let mut odd = fake_image("../../etc");
        odd.truncate(0x310);
        fs::write(&path, odd).unwrap();
        assert!(image(&path).is_err());
        let fault = find("9.9.9-nowhere", None, &GOES_ON).unwrap_err();
        assert!(fault.message.contains("/boot/vmlinuz-9.9.9-nowhere"), "{fault}");
    }
}
