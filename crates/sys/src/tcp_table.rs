//! TCP connections of the network namespace of the calling thread: `/proc/net/tcp` and
//! `tcp6` (Documentation/networking/proc_net_tcp.rst).

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;

/// Own addresses of the connections that are established. Empty where the tables cannot
/// be read.
pub fn connected() -> BTreeSet<IpAddr> {
    let table = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let texts = ["tcp", "tcp6"].map(|name| table(name).unwrap_or_default());
    texts.iter().flat_map(|text| text.lines().filter_map(established)).collect()
}

/// The own address of a line that tells of an established connection.
fn established(line: &str) -> Option<IpAddr> {
    const ESTABLISHED: &str = "01";
    let mut words = line.split_whitespace();
    let (local, _port) = words.nth(1)?.split_once(':')?;
    let state = words.nth(1)?;
    // 32-bit words in the machine's own order.
    let word = |at: usize| -> Option<[u8; 4]> {
        let digits = local.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let address = match local.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            IpAddr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    (state == ESTABLISHED).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn an_open_connection_is_seen_and_a_listener_is_not() {
        let own = Ipv4Addr::new(127, 66, 5, 4);
        let listener = TcpListener::bind((own, 0)).unwrap();
        assert!(!connected().contains(&own.into()), "{:?}", connected());
        let _stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(connected().contains(&own.into()), "{:?}", connected());
    }

    #[test]
    fn lines_of_both_families() {
        let v6 = "   0: B80D0120000000000000000001000000:0016 0000:0050 01 rest";
        let mapped = "   0: 0000000000000000FFFF00000701A8C0:0016 0000:0050 01 rest";
        if cfg!(target_endian = "little") {
            assert_eq!(established(v6), Some("2001:db8::1".parse().unwrap()));
            assert_eq!(established(mapped), Some("192.168.1.7".parse().unwrap()));
        }
        for line in
            ["", "sl local_address", "0: 00:01 x 01", "0: zzzzzzzz:0016 x 01", "0: é:1 x 01"]
        {
            assert_eq!(established(line), None, "{line}");
        }
    }
}
