//! A guest in a guest: its host is a kernel that this machine may not have, with vhost-net and taps
//! that know back-pressure. Two emulators on top of each other take minutes, so it runs on request.

use crate::command::CommandRunner;
use crate::guests::able;
use bytepath::guest::GuestCommand;
use bytepath_testing::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PROGRAM: &str = "qemu-system-x86_64";

/// What it loads into a guest with a virtio device.
const FIRMWARE: [&str; 5] =
    ["bios-256k.bin", "kvmvapic.bin", "linuxboot_dma.bin", "pvh.bin", "efi-virtio.rom"];

/// How the names begin of what a kernel has to have for a guest.
const NEEDED: [&str; 6] =
    ["vmlinuz", "modules.builtin", "virtio", "veth.", "failover.", "net_failover."];

/// Cells of one study: who reads the tap, and whether its queue stops.
const EXPERIMENT: &str = r#"
testbed = "vm:host=sender,boot=900s,silence=300s,cpus=1,memory=768M"
workload = "packets:count=2000"
baseline = { vhost = false, backpressure = false }
blocks = 1
meters = "none"

[factors]
tx = "packet:bypass=on"
rx = "packet"
link = "guest-tap"
vhost = [false, true]
backpressure = [false, true]
qdisc = "pfifo"
queue-length = 16
cores = ["unpinned", "unpinned,vhost=1"]

[[exclude]]
vhost = false
cores = "unpinned,vhost=1"
"#;

#[test]
#[ignore = "takes minutes: a guest emulated in an emulated guest"]
fn back_pressure_and_vhost_hold_for_a_guest_behind_a_tap() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    fs::write(&file, EXPERIMENT).unwrap();
    let Some(mut files) = inner_machine() else { return skip!("no qemu and kernel of Debian's") };
    files.push(("/tmp/x.toml".to_owned(), file));
    let guest = CommandRunner::boot_with("debian:newest", &["bridge"], None, &files).unwrap();
    let run = |words: &str| {
        let words = shlex::split(words).unwrap();
        let environment = [("PATH", "/bin:/usr/bin"), ("HOME", "/root")];
        let environment = environment.map(|(name, value)| (name.into(), value.into())).into();
        guest.run_within(GuestCommand { words, environment }, Duration::from_secs(3000)).unwrap()
    };
    let outcome = run("/bin/bytepath run /tmp/x.toml --study /tmp/study");
    let text = String::from_utf8_lossy(&[outcome.output, outcome.errors].concat()).into_owned();
    println!("{text}");
    let lines = run("/bin/bytepath show /tmp/study --json").output;
    println!("{}", String::from_utf8_lossy(&lines).chars().take(20000).collect::<String>());
}

/// qemu with its firmware, and a kernel with what its guests need, by their places in the guest.
fn inner_machine() -> Option<Vec<(String, PathBuf)>> {
    let found = |name: &str, folders: &[&str]| {
        folders.iter().map(|folder| Path::new(folder).join(name)).find(|file| file.is_file())
    };
    let mut files = vec![(format!("/usr/bin/{PROGRAM}"), found(PROGRAM, &["/usr/bin"])?)];
    // Where the emulator is a module of qemu's.
    let accelerator = Path::new("/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so");
    if accelerator.is_file() {
        files.push((accelerator.display().to_string(), accelerator.to_owned()));
    }
    for name in FIRMWARE {
        let file = found(name, &["/usr/share/qemu", "/usr/share/seabios", "/usr/lib/ipxe/qemu"])?;
        files.push((format!("/usr/share/qemu/{name}"), file));
    }
    let cache = PathBuf::from(std::env::var_os("HOME")?).join(".cache/bytepath");
    let releases = fs::read_dir(cache.join("kernels/lib/modules")).ok()?.flatten();
    let releases = releases.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let release = releases.filter(|name| name.starts_with("7.") && name.contains("cloud")).max()?;
    let mut open = vec![cache.join("kernels/lib/modules").join(&release)];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).ok()?.flatten().map(|entry| entry.path()));
            continue;
        }
        let name = path.file_name()?.to_string_lossy();
        if NEEDED.iter().any(|lead| name.starts_with(lead)) {
            let place = path.strip_prefix(&cache).ok()?.display();
            files.push((format!("/root/.cache/bytepath/{place}"), path.clone()));
        }
    }
    // Unpacked already, and kept by its image's size and time, of which there is none in a guest.
    let kept = fs::read_dir(cache.join("vmlinux").join(&release)).ok()?.flatten().next()?.path();
    let name = kept.file_name()?.to_string_lossy().into_owned();
    let (size, _) = name.rsplit_once('-')?;
    files.push((format!("/root/.cache/bytepath/vmlinux/{release}/{size}-0"), kept));
    Some(files)
}
