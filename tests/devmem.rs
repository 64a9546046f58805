//! devmem as far as it goes without a NIC that can do it: memory as dmabufs, the
//! refusals of real devices, recorded and live, and what a study says of it.

use bytepath::sys::devmem::{self, Refusal};
use bytepath::sys::dmabuf::{self, Memory};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// Set in a guest whose devices are all its own: then those with hardware behind
/// them are tried, too.
const ALL_DEVICES: &str = "BYTEPATH_TEST_ALL_DEVICES";

/// What stands for the dmabuf where the kernel has no udmabuf: a driver that
/// cannot bind says so before it looks.
fn memory() -> (Option<Box<dyn Memory>>, OwnedFd) {
    let memory = dmabuf::PROVIDERS.iter().find_map(|provider| provider.allocate(1 << 20).ok());
    (memory, devmem::stand_in().unwrap())
}

#[test]
fn devices_that_cannot_bind_say_why() {
    if let Err(e) = devmem::netdev_family() {
        println!("SKIP devices_that_cannot_bind_say_why: no netdev family: {e}");
        return;
    }
    let (memory, stand_in) = memory();
    let fd = memory.as_ref().map_or(stand_in.as_fd(), |memory| memory.fd());
    let all = std::env::var_os(ALL_DEVICES).is_some();
    let mut tried = 0;
    for entry in std::fs::read_dir("/sys/class/net").unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.path().join("device").exists() && !all || !entry.path().join("ifindex").exists() {
            continue;
        }
        let kind = File::open(entry.path().join("uevent")).map(drop);
        kind.unwrap();
        let index = devmem::device_index(&name).unwrap();
        let bindings = [
            ("rx", devmem::bind_receive(index, &[0], None, fd)),
            ("tx", devmem::bind_send(index, fd)),
        ];
        for (direction, binding) in bindings {
            let Refusal { error, words } = binding.expect_err("a virtual device binds a dmabuf");
            let errno = error.raw_os_error().unwrap();
            println!(
                "{}",
                serde_json::json!({
                    "device": name, "direction": direction, "dmabuf": memory.is_some(),
                    "errno": errno, "words": words,
                })
            );
            tried += 1;
        }
    }
    assert!(tried >= 2, "there is always a loopback device");
}
