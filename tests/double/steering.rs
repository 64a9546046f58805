//! Makes RSS contexts as ethtool(8) does, by ioctl (linux/ethtool.h).

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// `ETHTOOL_SRSSH`, `ETHTOOL_SRXCLSRLINS`.
const SET_CONTEXT: u32 = 0x47;
const INSERT_RULE: u32 = 0x32;
/// `ETH_RXFH_CONTEXT_ALLOC`.
const NEW: u32 = 0xffff_ffff;
/// `TCP_V4_FLOW | FLOW_RSS`.
const TCP_TO_CONTEXT: u32 = 0x2000_0001;
/// Entries of the software NIC's indirection table.
const TABLE: u32 = 128;

/// Spreads all TCP over IPv4 evenly over `count` queues of a device, by a new RSS context.
pub fn context(device: &str, first: u32, count: u32) {
    // struct ethtool_rxfh: command, context, sizes of table and key, hash, reserved, table.
    let head = [SET_CONTEXT, NEW, TABLE, 0, 0, 0];
    let table = (0..TABLE).map(|at| first + at % count);
    let mut context: Vec<u32> = head.into_iter().chain(table).collect();
    ask(device, &mut context);
    // struct ethtool_rxnfc: a rule that matches any packet, at place 0 and with the context.
    let mut rule = [0; 48];
    (rule[0], rule[4], rule[46]) = (INSERT_RULE, TCP_TO_CONTEXT, context[1]);
    ask(device, &mut rule);
    println!("context {}", context[1]);
}

fn ask(device: &str, words: &mut [u32]) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // SAFETY: all-zero bytes are a valid `ifreq`: it is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *slot = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request and what it points to are live, and as long as their commands state.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    assert_eq!(done, 0, "{device}: {}", std::io::Error::last_os_error());
}
