//! Lines between controller and agent: whatever parses is written as one line,
//! and read again it is the same.
#![no_main]

use bytepath::record::wire::{Reply, Request};

#[path = "round_trip.rs"]
mod round_trip;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    round_trip::line::<Request>(data);
    round_trip::line::<Reply>(data);
});
