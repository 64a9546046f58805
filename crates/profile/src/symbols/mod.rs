//! Names of addresses: the kernel's from the text of `/proc/kallsyms`
//! (kernel/kallsyms.c), those of programs from their files, with the functions
//! that the compiler has put into their callers where debug information is there.

mod binary;
mod host;
mod kernel;
mod names;
mod table;
mod user;

pub use host::HostSymbols;
pub use kernel::{KERNEL, KernelSymbols, kernel_build_id};
pub use user::{Mapping, Processes, UserSymbols, parse_maps};
