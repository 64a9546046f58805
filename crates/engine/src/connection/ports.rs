//! Which port an end listens on, or connects from.

use bytepath_record::{Fault, Ports};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// Returns what `open` returns at the first free port of a range or, without a range, at a port
/// that the kernel chooses. Errors with `AddrInUse` if no port of the range is free.
pub(super) fn at_free_port<T>(
    address: IpAddr,
    ports: Option<Ports>,
    mut open: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let Some(Ports { low, high }) = ports else { return open((address, 0).into()) };
    for port in low..=high {
        match open((address, port).into()) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => {}
            other => return other,
        }
    }
    let text = format!("none of the ports {low} to {high} is free");
    Err(io::Error::new(ErrorKind::AddrInUse, text))
}

/// Returns the port of a range that a flow connects from.
pub(super) fn of_flow(ports: Ports, flow: u32) -> Result<u16, Fault> {
    let port = u32::from(ports.low) + flow;
    u16::try_from(port).ok().filter(|port| *port <= ports.high).ok_or_else(|| {
        let text = format!("flow {flow} has no port in {} to {}", ports.low, ports.high);
        Fault::usage(text).remedy("choose fewer flows")
    })
}

/// The fault of an end that could not get its port.
pub(super) fn fault(what: String, error: &io::Error) -> Fault {
    let fault = Fault::system(what, error);
    match error.kind() {
        ErrorKind::AddrInUse => fault.remedy("choose other ports; `ss -tulp` shows who uses these"),
        _ => fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{KERNEL_TCP, KERNEL_UDP, Listener, Terms, Transport};
    use bytepath_record::{LinkSettings, Options, Stream};
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn listen(transport: &Transport, ports: Ports) -> Result<Listener, Fault> {
        let (contract, link) = (Stream::default(), LinkSettings::default());
        let ports = Some(ports);
        (transport.listen)(
            HERE,
            &Terms {
                contract: &contract,
                link: &link,
                device: None,
                ports,
                queues: &[],
                options: &Options::default(),
                secret: None,
            },
        )
    }

    /// The first of two neighbouring ports is taken, the second one free.
    fn check<T>(transport: &Transport, take: impl Fn(u16) -> io::Result<T>) {
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _one_at_a_time = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Below the ephemeral range.
        let free = |low: &u16| take(*low).is_ok() && take(*low + 1).is_ok();
        let low = (20_000..30_000).step_by(2).find(free).unwrap();
        let ports = Ports { low, high: low + 1 };
        let _taken = take(low).unwrap();
        let listener = listen(transport, ports).unwrap();
        assert_eq!(listener.address.port(), low + 1);
        let said = listen(transport, ports).err().unwrap().to_string();
        assert!(said.contains(&format!("none of the ports {low} to {}", low + 1)), "{said}");
        assert!(said.contains("ss -tulp"), "{said}");
    }

    #[test]
    fn tcp_takes_the_first_free_port() {
        check(KERNEL_TCP, |port| TcpListener::bind((HERE, port)));
    }

    #[test]
    fn udp_takes_the_first_free_port() {
        check(KERNEL_UDP, |port| UdpSocket::bind((HERE, port)));
    }
}
