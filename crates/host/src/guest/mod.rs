//! Guests: virtual machines whose kernel the study chooses and whose only program is
//! this one. `docs/vm.md` describes how, and what it proves.
//!
//! | file | what |
//! |---|---|
//! | `kernel` | what a study names → an image and its modules |
//! | `vmlinux`, `packed` | the kernel in an image; unpacking |
//! | `modules`, `elf` | which modules, which libraries, in which order |
//! | `cpio`, `initramfs` | the guest's only file system |
//! | `boot` | all of that together, and a second try |
//! | `qemu`, `network` | the command line; whether KVM works; the network device |
//! | `machine` | a guest that runs: port, console, sessions |
//! | `end` | how it ended, in words |
//! | `frame` | what host and guest say to each other |
//! | `init`, `session`, `device`, `cards` | the guest's side of it: the first process |
//! | `host` | an agent in a guest, as a host of a deployment |
//! | `errand` | a session that runs a program and returns what it prints |

mod boot;
mod cards;
mod cpio;
mod device;
mod elf;
mod end;
mod errand;
mod frame;
mod host;
mod init;
mod initramfs;
pub mod kernel;
mod machine;
mod modules;
mod network;
mod packed;
pub mod qemu;
mod session;
mod vmlinux;

pub use boot::{Limits, Shape, bootable, prepare, twice_if_emulated};
pub use cards::{CARDS, parameters as card_parameters};
pub use device::DEVICE;
pub use elf::{Needs, depends, needs};
pub use errand::{Errand, Errands, Outcome};
pub use frame::{Frame, Layout, Says};
pub use host::{GuestHost, in_one_guest};
pub use init::run as guest_init;
pub use kernel::release_in;
pub use machine::{Machine, NotBooted};
pub use network::{Line, Network, TAP_MTU};
pub use vmlinux::of_image as kernel_in;

/// Whether this process is the first of a guest: the kernel calls it so.
pub fn is_guest_init() -> bool {
    std::process::id() == 1
        && std::env::args_os().next().is_some_and(|name| name == initramfs::INIT)
}
