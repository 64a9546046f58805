//! Any program under the same meters.
pub mod kernel;
pub mod layout;
pub mod program;
pub mod seen;
