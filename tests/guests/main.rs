//! Tests that boot guests; without qemu or a kernel they are skipped.

mod command;
mod guests;

mod drivers;
mod far;
mod frames;
mod instructions;
mod lasting;
mod links;
mod nic;
mod observe;
mod packets;
mod sinks;
mod tls;
mod trouble;
mod unplugged;
mod vm;
mod wire;
mod zcrx;
