//! Which part of the kernel a sample was in, by rules about the names of
//! functions, their modules and their source folders. The rules are data
//! (`subsystems.toml`); users add their own.

mod catalogue;
mod classes;
mod rules;
#[cfg(test)]
mod tests;

pub use catalogue::Subsystem;
pub use classes::{Classes, Coverage, is_idle};
pub use rules::{Class, Rules};
