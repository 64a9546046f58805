//! Limits on a host's number of connections: open files (setrlimit(2)), ports to connect from
//! (ip(7), `ip_local_port_range`), and the memory of TCP (tcp(7), `tcp_mem`).

use bytepath_record::{Cell, Facts, LINK_DEVICE, MOST_FILES, Protocol, Role, Support};

const PORTS: &str = "net.ipv4.ip_local_port_range";
const REUSE: &str = "net.ipv4.tcp_tw_reuse";
const MEMORY: &str = "net.ipv4.tcp_mem";

/// Seconds that a connection stays in TIME-WAIT, and keeps its port, at the end that has closed
/// first (`TCP_TIMEWAIT_LEN`, include/net/tcp.h).
const TIME_WAIT: u64 = 60;

/// Kernel parameters for a client that connects over and over: all ports, each reusable a second
/// after its connection was closed (Documentation/networking/ip-sysctl.rst, `tcp_tw_reuse`).
pub const CLIENT_SYSCTLS: &[(&str, &str)] = &[(PORTS, "1024 65535"), (REUSE, "1")];

/// Number of connections up to which their files are not checked.
const FEW: u32 = 256;

/// Open files of an agent besides its connections: of meters, rings and pipes, and second
/// descriptors of connections whose state is read.
const OTHER_FILES: u64 = 1024;

/// Returns the limit on open files that an agent needs for `flows` connections, or `None` if any
/// will do.
pub fn files(flows: u32) -> Option<u64> {
    (flows > FEW).then(|| u64::from(flows) + OTHER_FILES)
}

const FAST_OPEN: &str = "net.ipv4.tcp_fastopen";

/// Kernel parameters for the server of such a client, so that it accepts data in a SYN if
/// requested.
pub const SERVER_SYSCTLS: &[(&str, &str)] = &[(FAST_OPEN, "3")];

/// Returns whether a role can use TCP Fast Open on a host with these facts
/// (Documentation/networking/ip-sysctl.rst, `tcp_fastopen`).
pub fn check_fast_open(role: Role, facts: &Facts) -> Support {
    let bit = if role == Role::Sender { 1 } else { 2 };
    match facts.settings.get(FAST_OPEN).and_then(|text| text.parse::<u64>().ok()) {
        Some(set) if set & bit == 0 => Support::no(
            format!(
                "TCP Fast Open is switched off for a {}: {FAST_OPEN} is {set}",
                if bit == 1 { "client" } else { "server" }
            ),
            format!("--set 'sysctl {FAST_OPEN}=3', or leave fastopen at off"),
        ),
        _ => Support::Yes,
    }
}

/// Returns whether a host with these facts can have `open` connections of a cell. Pure; unknown
/// limits refuse nothing.
pub fn check(cell: &Cell, open: u32, role: Role, facts: &Facts) -> Support {
    if cell.stream.protocol != Protocol::Tcp {
        return Support::Yes;
    }
    let held = open_files(open, facts).and(memory(open.into(), facts));
    match role {
        Role::Sender => held.and(ports(open.into(), facts)),
        Role::Receiver => held,
    }
}

/// Returns whether a client can connect over and over: it would run out of ports during a trial,
/// unless those of connections in TIME-WAIT are reused. Pure; unknown limits refuse nothing.
pub fn check_reconnecting(facts: &Facts) -> Support {
    let over_device = facts.settings.contains_key(LINK_DEVICE);
    let reuses = match number(facts, REUSE) {
        Some(0) => false,
        // Only over loopback.
        Some(2) => !over_device,
        _ => true,
    };
    let Some(ports) = port_count(facts).filter(|_| !reuses) else { return Support::Yes };
    Support::no(
        format!(
            "each connection keeps its port for {TIME_WAIT} s, so that {ports} ports ({PORTS}) are \
             enough for {} connections a second",
            ports / TIME_WAIT
        ),
        format!("--set 'sysctl {REUSE}=1'; more ports: --set 'sysctl {PORTS}=1024 65535'"),
    )
}

fn open_files(flows: u32, facts: &Facts) -> Support {
    let (Some(files), Some(most)) = (files(flows), number(facts, MOST_FILES)) else {
        return Support::Yes;
    };
    if files <= most {
        return Support::Yes;
    }
    Support::no(
        format!("{flows} connections take {files} files, and this process may have {most} open"),
        "raise 'ulimit -Hn' (RLIMIT_NOFILE; of a service, LimitNOFILE), run as root, or choose \
         fewer flows",
    )
}

fn port_count(facts: &Facts) -> Option<u64> {
    let (low, high) = facts.settings.get(PORTS)?.split_once(' ')?;
    let bound = |text: &str| text.trim().parse::<u64>().ok();
    Some(bound(high)?.saturating_sub(bound(low)?) + 1)
}

fn ports(flows: u64, facts: &Facts) -> Support {
    let Some(ports) = port_count(facts) else { return Support::Yes };
    if flows <= ports {
        return Support::Yes;
    }
    Support::no(
        format!("{flows} connections to one port take as many ports, and {PORTS} has {ports}"),
        format!("--set 'sysctl {PORTS}=1024 65535', or choose fewer flows"),
    )
}

/// Data in flight over a connection takes at least a page, and TCP may have this many in total.
fn memory(flows: u64, facts: &Facts) -> Support {
    let most = facts.settings.get(MEMORY).and_then(|text| text.split_whitespace().last());
    let Some(pages) = most.and_then(|text| text.parse::<u64>().ok()) else { return Support::Yes };
    if flows <= pages {
        return Support::Yes;
    }
    Support::no(
        format!(
            "{MEMORY} lets TCP use {pages} pages of memory, less than one for each of {flows} connections"
        ),
        format!("raise the last number of {MEMORY}, for the whole machine, or choose fewer flows"),
    )
}

fn number(facts: &Facts, name: &str) -> Option<u64> {
    facts.settings.get(name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::Half;

    #[test]
    fn refuses_more_connections_than_a_limit_allows() {
        let refusal = |flows, role, settings: &[(&str, &str)]| {
            let mut cell = Cell::new("test", Half::plain("epoll"), Half::plain("epoll"));
            cell.stream.flows = flows;
            let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            let facts = Facts { settings: settings.collect(), ..Facts::default() };
            match check(&cell, flows, role, &facts) {
                Support::Yes => String::new(),
                Support::No { reason, remedy } => format!("{reason} ({remedy})"),
            }
        };
        let (files, ports) = ((MOST_FILES, "20000"), (PORTS, "32768 60999"));
        for role in Role::ALL {
            assert_eq!(refusal(4096, role, &[files, ports]), "");
            assert_eq!(refusal(30_000, role, &[]), "", "nothing is known");
            assert_eq!(refusal(200, role, &[(MOST_FILES, "1024")]), "", "as ever");
            let refused = refusal(30_000, role, &[files, ports]);
            assert!(refused.contains("30000 connections take "), "{refused}");
            assert!(refused.contains(" files, and this process may have 20000 open"), "{refused}");
            assert!(refused.contains("LimitNOFILE"), "{refused}");
        }
        let refused = refusal(30_000, Role::Sender, &[ports]);
        assert!(refused.contains("has 28232 (--set 'sysctl net.ipv4.ip_local"), "{refused}");
        assert_eq!(refusal(30_000, Role::Receiver, &[ports]), "");
        let memory = |text| refusal(500, Role::Receiver, &[(MEMORY, text)]);
        assert!(memory("10 20 30").starts_with("net.ipv4.tcp_mem lets TCP use 30 pages"));
        assert_eq!((memory("10 20 500"), memory("")), (String::new(), String::new()));
    }

    #[test]
    fn refuses_to_reconnect_where_ports_stay_in_time_wait() {
        let refusal = |settings: &[(&str, &str)]| {
            let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            let facts = Facts { settings: settings.collect(), ..Facts::default() };
            match check_reconnecting(&facts) {
                Support::Yes => String::new(),
                Support::No { reason, remedy } => format!("{reason} ({remedy})"),
            }
        };
        let (ports, device) = ((PORTS, "32768 60999"), (LINK_DEVICE, "eth0"));
        for fine in [
            &[] as &[_],
            &[ports, device, (REUSE, "1")],
            &[ports, (REUSE, "2")],
            &[device, (REUSE, "0")],
            CLIENT_SYSCTLS,
        ] {
            assert_eq!(refusal(fine), "", "{fine:?}");
        }
        for dry in [&[ports, (REUSE, "0")] as &[_], &[ports, device, (REUSE, "2")]] {
            let refused = refusal(dry);
            assert!(refused.contains("28232 ports"), "{refused}");
            assert!(refused.contains("enough for 470 connections a second"), "{refused}");
            assert!(refused.contains("net.ipv4.tcp_tw_reuse=1"), "{refused}");
        }
    }
}
