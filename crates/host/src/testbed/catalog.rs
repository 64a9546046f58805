//! The catalogue of testbeds.

use super::{Testbed, hosts, netns, ports, vm};

pub static CATALOG: &[&dyn Testbed] =
    &[&netns::Netns, &ports::UNNAMED, &vm::DEFAULT, &hosts::UNNAMED];
