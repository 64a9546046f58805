//! Determines the part of the kernel that a sample was in, by rules about names of functions, their
//! modules and their source folders. The rules are data (`subsystems.toml`); users can add their
//! own.

mod catalogue;
mod classes;
mod rules;
#[cfg(test)]
mod tests;

pub use catalogue::Subsystem;
pub use classes::{Classes, Coverage, is_idle};
pub use rules::{Class, Rules};
