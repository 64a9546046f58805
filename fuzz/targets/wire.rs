//! Lines between controller and agent: whatever parses is written as one line, and parses to the
//! same again. Also the first message of a flow.

use bytepath::connection::hello;
use bytepath::record::wire::{Reply, Request, Token};

use super::round_trip;

pub fn check(data: &[u8]) {
    round_trip::line::<Request>(data);
    round_trip::line::<Reply>(data);
    let token = Token("00ff".repeat(8));
    if let Some(index) = hello::read(data, &token) {
        assert_eq!(hello::of(&token, index), data);
    }
}
