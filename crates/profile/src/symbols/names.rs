//! Addresses as names.

use crate::{Frame, FrameKind};

pub(super) fn unnamed(address: u64, module: &str, kind: FrameKind) -> Frame {
    Frame { function: format!("{address:#x}"), module: module.to_owned(), kind, ..Frame::default() }
}
