//! Protocol counters of a network namespace: `/proc/net/netstat` and `/proc/net/snmp`
//! (net/ipv4/proc.c), which have the same format: a line of names and a line of values for each
//! protocol.

use super::procfs::Malformed;

/// A counter with its protocol and name: `("TcpExt", "TCPBacklogDrop", 3)`.
pub type Counter<'a> = (&'a str, &'a str, i64);

/// Returns all counters of a file, in its order. Errors if a protocol's two lines do not match.
pub fn parse(text: &str) -> Result<Vec<Counter<'_>>, Malformed> {
    const FILE: &str = "netstat or snmp";
    let mut counters = Vec::new();
    let mut lines = text.lines();
    while let (Some(names), values) = (lines.next(), lines.next()) {
        let wrong = || Malformed::new(FILE, names);
        let (protocol, names) = names.split_once(':').ok_or_else(wrong)?;
        let (same, values) = values.and_then(|line| line.split_once(':')).ok_or_else(wrong)?;
        if protocol != same {
            return Err(wrong());
        }
        let (mut names, mut values) =
            (names.split_ascii_whitespace(), values.split_ascii_whitespace());
        loop {
            match (names.next(), values.next()) {
                (Some(name), Some(value)) => {
                    // Most are unsigned longs; MaxConn of Tcp is -1.
                    let value = super::attribute::number(value).ok_or_else(wrong)?;
                    counters.push((protocol, name, value));
                }
                (None, None) => break,
                _ => return Err(wrong()),
            }
        }
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lines_a_protocol() {
        let text = "TcpExt: SyncookiesSent TCPBacklogDrop\nTcpExt: 0 3\nIpExt: InOctets\nIpExt: 18446744073709551615\n";
        let expected = [
            ("TcpExt", "SyncookiesSent", 0),
            ("TcpExt", "TCPBacklogDrop", 3),
            ("IpExt", "InOctets", i64::MAX),
        ];
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse("").unwrap(), []);
        for wrong in
            ["Tcp: A\n", "Tcp: A B\nTcp: 1\n", "Tcp: A\nUdp: 1\n", "x\ny\n", "Tcp: A\nTcp: x\n"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn this_machine_has_them() {
        for (file, counter) in [("netstat", "TCPBacklogDrop"), ("snmp", "RetransSegs")] {
            let text = std::fs::read_to_string(format!("/proc/self/net/{file}")).unwrap();
            assert!(parse(&text).unwrap().iter().any(|(_, name, _)| *name == counter), "{text}");
        }
    }
}
