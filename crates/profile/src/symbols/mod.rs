//! Names of addresses: those of the kernel from the text of `/proc/kallsyms` (kernel/kallsyms.c),
//! those of programs from their files, including inlined functions if there is debug information.

mod binary;
mod host;
mod kernel;
mod names;
mod table;
mod user;

pub use host::HostSymbols;
pub use kernel::{KERNEL, KernelSymbols, kernel_build_id};
pub use user::{Mapping, Processes, UserSymbols, parse_maps};
