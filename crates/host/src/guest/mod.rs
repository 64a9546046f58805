//! Guests: virtual machines that run a kernel of the study's choice and no program but this one.
//! `docs/guide/guests.md` describes how they work and what they prove.
//!
//! The host's side runs in the controller: `kernel` finds the image and the modules that a study
//! names (`vmlinux`, `modules`, `elf`), `initramfs` packs the modules and this program into a file
//! system, `qemu` builds the command line, and `machine` is the running guest: its port, its
//! console, how it ended, and its sessions. `host` makes an agent in it a host of a deployment.
//!
//! The guest's side is `init`, its first process, with `session` and `nics`. The two sides exchange
//! the messages of `frame`, which carry the agents' pipes over one serial port.

#[cfg(feature = "test-support")]
mod command;
mod elf;
mod frame;
mod host;
mod init;
mod initramfs;
pub mod kernel;
mod machine;
mod modules;
mod nics;
pub mod qemu;
mod session;
mod vmlinux;

pub(crate) use elf::debug_file;
pub use elf::{Needs, depends, needs, with_symbols};
#[cfg(feature = "test-support")]
pub use frame::GuestCommand;
pub use frame::{Frame, Layout, Message};
pub use host::{GuestHost, in_one_guest};
pub use init::{is_first as is_guest_init, run as guest_init};
pub(crate) use initramfs::named;
pub use initramfs::{bootable, prepare};
pub use kernel::release_in;
pub use machine::{Machine, NotBooted, retry_once_if_emulated};
pub use nics::{DEVICE, Maker, NIC_PAIRS, NicPair, parameters as nic_parameters};
pub use qemu::{Limits, Line, Network, Shape, TAP_MTU};
pub use vmlinux::of_image as kernel_in;
