//! Trouble for a lent NIC in the middle of a trial.

use bytepath::record::DeviceName;
use bytepath::settings::namespace_of;
use bytepath::sys::lasting_namespace::within;
use bytepath::sys::netlink::Netlink;
use std::fs;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Packets that show that a stream is under way; its handshakes take far fewer.
const UNDER_WAY: u64 = 200;

/// Waits until a study has stored this many trials and its next stream crosses a lent device; then
/// does one thing to the device: `down`, `down-up` or `write FILE TEXT`, or nothing if none is
/// named.
pub fn upset(study: &str, trials: usize, device: &str, deed: &[&str]) {
    let stored = || {
        let text = fs::read_to_string(format!("{study}/trials.jsonl")).unwrap_or_default();
        text.lines().count()
    };
    wait_for("trials", || stored() >= trials);
    // Between two trials nothing arrives.
    let before = received(device);
    wait_for("a stream", || received(device) > before + UNDER_WAY);
    match deed {
        [] => {}
        ["down"] => at(device, |netlink, index| netlink.set_down(index).unwrap()),
        ["down-up"] => at(device, |netlink, index| {
            netlink.set_down(index).and_then(|()| netlink.set_up(index)).unwrap();
        }),
        ["write", file, text] => fs::write(file, text).unwrap(),
        other => panic!("unknown action {other:?}"),
    }
}

/// Waits until no agent runs, which is when the deployment of a trial has been taken down.
pub fn await_no_agents() {
    let is_agent = |process: std::io::Result<fs::DirEntry>| {
        let words = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"agent")
    };
    wait_for("ends of agents", || !fs::read_dir("/proc").unwrap().any(is_agent));
}

/// Prints the name of a device on its bus, and the folder of the PCI device that it belongs to:
/// `0000:02:00.0 /sys/devices/pci0000:00/.../0000:02:00.0`.
pub fn place(device: &str) {
    let folder = fs::canonicalize(format!("/sys/class/net/{device}/device")).unwrap();
    let pci = folder.ancestors().find(|folder| folder.join("remove").exists()).unwrap();
    println!("{} {}", folder.file_name().unwrap().to_str().unwrap(), pci.display());
}

/// Packets that a device has received in the namespace it is lent to.
fn received(device: &str) -> u64 {
    at(device, |netlink, _| netlink.traffic(device).unwrap().unwrap().received)
}

fn at<T: Send>(device: &str, work: impl FnOnce(&mut Netlink, u32) -> T + Send) -> T {
    let name = DeviceName::new(device).unwrap();
    let namespace = namespace_of(&name).unwrap().unwrap_or_else(|| panic!("{device} is not lent"));
    within(namespace.as_fd(), || {
        let mut netlink = Netlink::new();
        let index = netlink.link(device).unwrap().unwrap().index;
        work(&mut netlink, index)
    })
    .unwrap()
}

fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_there() {
        assert!(Instant::now() < deadline, "there are no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
