//! What limits the number of connections of a host: open files (setrlimit(2)), and the ports that it
//! connects from (ip(7), `ip_local_port_range`).

use bytepath_record::{Cell, Facts, MOST_FILES, Protocol, Role, Support};

const PORTS: &str = "net.ipv4.ip_local_port_range";

/// Connections that are too few to count their files.
const FEW: u32 = 256;

/// Files of an agent besides its connections: of meters, rings and pipes, and second
/// descriptors of connections whose state is read.
const OTHER_FILES: u64 = 1024;

/// Files that an agent needs to be allowed for so many connections; `None`: any limit will do.
pub fn files(flows: u32) -> Option<u64> {
    (flows > FEW).then(|| u64::from(flows) + OTHER_FILES)
}

/// Whether a host of which this is known can have the connections of a cell. Pure; what is not known
/// refuses nothing.
pub fn check(cell: &Cell, role: Role, facts: &Facts) -> Support {
    if cell.stream.protocol != Protocol::Tcp {
        return Support::Yes;
    }
    let files = open_files(cell.flows(role), facts);
    let flows = u64::from(cell.flows(role));
    match role {
        Role::Sender => files.and(ports(flows, facts)),
        Role::Receiver => files,
    }
}

fn open_files(flows: u32, facts: &Facts) -> Support {
    let (Some(files), Some(most)) = (files(flows), number(facts, MOST_FILES)) else {
        return Support::Yes;
    };
    if files <= most {
        return Support::Yes;
    }
    Support::no(
        format!("{flows} connections, and this process may have {most} files open"),
        "raise 'ulimit -Hn' (RLIMIT_NOFILE; of a service, LimitNOFILE), run as root, or choose \
         fewer flows",
    )
}

fn ports(flows: u64, facts: &Facts) -> Support {
    let range = facts.settings.get(PORTS).and_then(|text| text.split_once(' '));
    let bounds = range.and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
    let Some((low, high)) = bounds else { return Support::Yes };
    let ports = u64::saturating_sub(high, low) + 1;
    if flows <= ports {
        return Support::Yes;
    }
    Support::no(
        format!("{flows} connections to one port take as many ports, and {PORTS} has {ports}"),
        format!("--set 'sysctl {PORTS}=1024 65535', or choose fewer flows"),
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
            match check(&cell, role, &facts) {
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
            assert!(refused.contains("30000 connections, and this process may have 20000"));
            assert!(refused.contains("LimitNOFILE"), "{refused}");
        }
        let refused = refusal(30_000, Role::Sender, &[ports]);
        assert!(refused.contains("has 28232 (--set 'sysctl net.ipv4.ip_local"), "{refused}");
        assert_eq!(refusal(30_000, Role::Receiver, &[ports]), "");
    }
}
