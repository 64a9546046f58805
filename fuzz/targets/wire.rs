//! Lines between controller and agent: whatever parses is written as one line,
//! and read again it is the same.

use bytepath::record::wire::{Reply, Request};

use super::round_trip;

pub fn check(data: &[u8]) {
    round_trip::line::<Request>(data);
    round_trip::line::<Reply>(data);
}
