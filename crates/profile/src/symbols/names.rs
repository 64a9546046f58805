//! Addresses and bytes as names.

use crate::{Frame, FrameKind};
use std::fmt::Write;

pub(super) fn unnamed(address: u64, module: &str, kind: FrameKind) -> Frame {
    Frame { function: format!("{address:#x}"), module: module.to_owned(), kind, ..Frame::default() }
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
