//! The network device of a guest, as qemu takes it: the device that the guest sees,
//! and what is behind it. What is behind it comes as descriptors, never by a name or
//! a script, so that qemu needs no privilege and touches nothing of the host.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The largest MTU of a tap: `MAX_MTU` without an Ethernet header (drivers/net/tun.c).
/// A guest learns it from its device, so that it cannot send what a tap would drop.
pub const TAP_MTU: u32 = 65521;

#[derive(Debug)]
pub struct Network {
    /// What is behind it.
    pub line: Line,
    pub mac: String,
}

/// What carries packets between qemu and the outside.
#[derive(Debug)]
pub enum Line {
    /// A connected socket, each message a packet.
    Socket(OwnedFd),
    Tap {
        /// One descriptor for each of its queues.
        queues: Vec<OwnedFd>,
        /// As many of `/dev/vhost-net`, with which the kernel moves the packets; or
        /// none, and qemu does.
        vhost: Vec<OwnedFd>,
    },
}

impl Network {
    /// Its part of qemu's command line.
    pub fn arguments(&self) -> Vec<String> {
        let Network { line, mac } = self;
        let mut device = format!("virtio-net-pci,netdev=wire,mac={mac}");
        let backend = match line {
            Line::Socket(socket) => format!("socket,id=wire,fd={}", socket.as_raw_fd()),
            Line::Tap { queues, vhost } => {
                device += &format!(",host_mtu={TAP_MTU}");
                if queues.len() > 1 {
                    // An interrupt for each direction of each queue, one for the
                    // control queue, one for changes of the configuration.
                    device += &format!(",mq=on,vectors={}", 2 * queues.len() + 2);
                }
                let mut tap = format!("tap,id=wire,fds={}", numbers(queues));
                if !vhost.is_empty() {
                    // Forced, or else qemu would continue without it after a warning.
                    tap += &format!(",vhost=on,vhostforce=on,vhostfds={}", numbers(vhost));
                }
                tap
            }
        };
        vec!["-netdev".into(), backend, "-device".into(), device]
    }

    /// The descriptors that qemu has to inherit.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match &self.line {
            Line::Socket(socket) => vec![socket.as_fd()],
            Line::Tap { queues, vhost } => queues.iter().chain(vhost).map(AsFd::as_fd).collect(),
        }
    }
}

/// "5:6:7".
fn numbers(descriptors: &[OwnedFd]) -> String {
    let numbers: Vec<String> = descriptors.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    numbers.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect()
    }

    fn network(queues: usize, vhost: usize) -> Network {
        let line = Line::Tap { queues: files(queues), vhost: files(vhost) };
        Network { line, mac: "52:54:00:00:00:01".into() }
    }

    #[test]
    fn one_queue_needs_no_more_than_its_descriptor() {
        let network = network(1, 0);
        let [fd] = network.descriptors()[..] else { panic!("{network:?}") };
        let tap = format!("tap,id=wire,fds={}", fd.as_raw_fd());
        let device = "virtio-net-pci,netdev=wire,mac=52:54:00:00:00:01,host_mtu=65521";
        assert_eq!(network.arguments(), ["-netdev", &tap, "-device", device]);
    }

    #[test]
    fn each_queue_has_a_descriptor_of_the_tap_and_one_of_vhost() {
        let network = network(2, 2);
        let all: Vec<i32> = network.descriptors().iter().map(AsRawFd::as_raw_fd).collect();
        let [a, b, c, d] = all[..] else { panic!("{all:?}") };
        let [_, tap, _, device] = &network.arguments()[..] else { panic!() };
        let wanted = format!("tap,id=wire,fds={a}:{b},vhost=on,vhostforce=on,vhostfds={c}:{d}");
        assert_eq!(*tap, wanted);
        assert!(device.ends_with(",mq=on,vectors=6"), "{device}");
    }

    #[test]
    fn a_socket_is_one_descriptor() {
        let socket = files(1).remove(0);
        let number = socket.as_raw_fd();
        let network = Network { line: Line::Socket(socket), mac: "52:54:00:00:00:02".into() };
        assert_eq!(network.arguments()[1], format!("socket,id=wire,fd={number}"));
        assert_eq!(network.descriptors().len(), 1);
    }
}
