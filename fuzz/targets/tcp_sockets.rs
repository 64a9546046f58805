//! The kernel's report of TCP sockets: any datagram is read without a panic, and no socket results
//! from nothing.

use bytepath::sys::tcp_sockets::parse;

/// Size of a message without any attribute.
const LEAST: usize = 16 + 72;

pub fn check(data: &[u8]) {
    let messages = parse(data);
    assert!(messages.sockets.len() <= data.len() / LEAST);
    assert!(messages.error != Some(0));
}
