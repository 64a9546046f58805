//! The cable between two guests, or between a guest and this host: which one is available, and how
//! it is created.
//!
//! The better cable consists of tap devices in a separate network namespace: a bridge between two
//! of them, or one that a role on this host uses itself. Packets cross it with their offloads
//! (`struct virtio_net_hdr`), so a packet of 64 KiB from a guest arrives as one. The namespace has
//! no name and no process: the descriptors held by qemu and by us keep it alive, so it ends with
//! us, however we end.
//!
//! The other cable is a pair of sockets between two qemu processes: it needs nothing on this host,
//! and carries packets one at a time, without offloads.

use super::ends;
use crate::descriptors::has_backpressure;
use crate::guest::{Line, Network, TAP_MTU};
use crate::remedy;
use bytepath_record::{Fault, FaultKind, Finding, Role, Severity, TapSettings};
use bytepath_sys::Roots;
use bytepath_sys::bridge::{bridge_message, port_message};
use bytepath_sys::namespace::{self, Kept, Made, Part, Refused, Step};
use bytepath_sys::tap::{self, Tap};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Kinds of cables, as the user types them.
pub(super) const KINDS: &[&str] = &["auto", "tap", "socket"];

/// Whether the kernel moves the packets of a tap, as the user types it.
pub(super) const VHOST: &[&str] = &["auto", "on", "off"];

/// The requested cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CableSpec {
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// Queues of each device.
    pub queues: u32,
    /// One of [`VHOST`].
    pub vhost: &'static str,
    /// Whether a full ring stops the queue of a tap on this host.
    pub backpressure: bool,
}

/// A cable that is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cable {
    /// Sockets, with the reason why taps are not used.
    Sockets(String),
    Taps {
        queues: u32,
        /// Whether the kernel moves their packets; the error is the reason why not.
        vhost: Result<(), String>,
        /// Whether a full ring stops the queue of the tap on this host.
        backpressure: bool,
    },
}

/// A cable that exists.
pub(super) struct CreatedCable {
    /// The network of each guest, in the order of the roles.
    pub networks: Vec<Network>,
    /// The namespace with the end that stays on this host, if one does.
    pub host: Option<Kept>,
}

impl CableSpec {
    /// The cable if the user requests nothing.
    pub(super) const DEFAULT: CableSpec =
        CableSpec { kind: "auto", queues: 1, vhost: "auto", backpressure: false };

    /// Returns this request combined with the cell's request for the tap.
    pub(super) fn with(&self, tap: TapSettings) -> Result<CableSpec, Fault> {
        let vhost = if tap.vhost { "on" } else { "off" };
        if ![vhost, "auto"].contains(&self.vhost) {
            let text = format!(
                "testbed vm: vhost={} contradicts the link, whose vhost is {vhost}",
                self.vhost
            );
            return Err(Fault::usage(text).remedy("leave it out of the testbed's options"));
        }
        if tap.backpressure {
            let known = tap::known_flags();
            has_backpressure(known.map_err(|e| Fault::system("opening /dev/net/tun", &e))?)?;
        }
        Ok(CableSpec { vhost, backpressure: tap.backpressure, ..self.clone() })
    }

    /// Determines the cable that is available here, between guests or to a role `on_host`. Actually
    /// tries it, and leaves nothing behind.
    pub(super) fn settle(&self, on_host: Option<Role>) -> Result<Cable, Fault> {
        if self.kind == "socket" {
            return Ok(Cable::Sockets("wire=socket requires it".into()));
        }
        let vhost = match self.vhost {
            "off" => Err("vhost=off requires it".to_owned()),
            wish => match (vhost(Path::new(VHOST_NET)), wish) {
                (Err(fault), "on") => return Err(fault),
                (found, _) => found.map(drop).map_err(|fault| fault.message),
            },
        };
        // Sockets support none of these.
        let needed =
            self.kind == "tap" || on_host.is_some() || self.queues > 1 || self.vhost == "on";
        let CableSpec { queues, backpressure, .. } = *self;
        match make(&plan(queues, on_host, backpressure)?) {
            Ok(_) => Ok(Cable::Taps { queues, vhost, backpressure }),
            Err(refused) if needed => Err(fault(&refused, &Roots::real())),
            Err(refused) => Ok(Cable::Sockets(format!("no taps: {refused}"))),
        }
    }
}

impl Cable {
    /// Creates it between two guests, or from one to the role that stays `on_host`.
    pub(super) fn lay(&self, on_host: Option<Role>) -> Result<CreatedCable, Fault> {
        let guests = Role::ALL.into_iter().filter(|role| Some(*role) != on_host);
        let Cable::Taps { queues, vhost: with_vhost, backpressure } = self else {
            return Ok(CreatedCable {
                networks: Network::joined(Network::VIRTIO, false)?.into(),
                host: None,
            });
        };
        let plan = plan(*queues, on_host, *backpressure)?;
        let made = make(&plan).map_err(|r| fault(&r, &Roots::real()))?;
        let mut all = made.queues.into_iter();
        let mut line = || -> Result<Line, Fault> {
            let queues: Vec<OwnedFd> = all.by_ref().take(*queues as usize).collect();
            let vhost = match with_vhost {
                Ok(()) => queues.iter().map(|_| vhost(Path::new(VHOST_NET))).collect(),
                Err(_) => Ok(Vec::new()),
            };
            Ok(Line::Tap { queues, vhost: vhost? })
        };
        let networks = guests.map(|role| Ok(Network::virtio(role, line()?)));
        let networks = networks.collect::<Result<Vec<_>, Fault>>()?;
        Ok(CreatedCable { networks, host: on_host.map(|_| made.namespace) })
    }

    /// Returns the facts to record about it, by name.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            Cable::Sockets(why) => vec![("link.wire", format!("sockets ({why})"))],
            Cable::Taps { queues, vhost, .. } => {
                let vhost = match vhost {
                    Ok(()) => "on".to_owned(),
                    Err(why) => format!("off ({why})"),
                };
                vec![
                    ("link.wire", "taps".to_owned()),
                    ("link.queues", queues.to_string()),
                    ("link.vhost", vhost),
                ]
            }
        }
    }
}

/// Lists what a cable of guests lacks on this host.
pub(super) fn findings() -> Vec<Finding> {
    let tried = plan(1, None, false).map(|plan| make(&plan));
    let Ok(Err(refused)) = tried else { return Vec::new() };
    let fault = fault(&refused, &Roots::real());
    vec![Finding {
        severity: Severity::Note,
        what: format!("testbed vm: {}", fault.message),
        effect: "two guests are joined by sockets, packet by packet; a guest and this \
                 host cannot be joined"
            .to_owned(),
        command: fault.remedy.unwrap_or_default(),
    }]
}

/// Device by which a program has the kernel move packets between a tap and a guest.
const VHOST_NET: &str = "/dev/vhost-net";

/// Opens vhost-net for one more guest, which loads the module if there is one.
fn vhost(device: &Path) -> Result<OwnedFd, Fault> {
    let opened = File::options().read(true).write(true).open(device);
    opened.map(OwnedFd::from).map_err(|e| {
        let name = device.display();
        let (kind, remedy) = match e.kind() {
            io::ErrorKind::PermissionDenied => (
                FaultKind::Permission,
                format!("run as root, or as a member of the group that owns {name} (often kvm)"),
            ),
            _ => (
                FaultKind::Unsupported,
                "modprobe vhost_net, or a kernel with CONFIG_VHOST_NET; vhost=off does without"
                    .into(),
            ),
        };
        Fault::new(kind, format!("vhost-net is not available: {name}: {e}")).remedy(remedy)
    })
}

/// Files that a trial may change in the namespace of a role on this host.
const RESTORED: &[&CStr] = &[c"/proc/sys/net/ipv4/tcp_wmem"];

/// Initial settings of a namespace with a cable. IPv6 would send router solicitations across it.
/// What TCP learned about the peer in one trial must not reach the next (tcp_metrics(8)).
const SETTINGS: &[(&CStr, &[u8])] = &[
    (c"/proc/sys/net/ipv6/conf/default/disable_ipv6", b"1"),
    (c"/proc/sys/net/ipv6/conf/all/disable_ipv6", b"1"),
    (c"/proc/sys/net/ipv4/tcp_no_metrics_save", b"1"),
];

/// Interface index of the first device of a namespace after the loopback device.
const FIRST: u32 = 2;

/// Describes the namespace of a cable.
fn plan(queues: u32, on_host: Option<Role>, backpressure: bool) -> Result<Vec<Part>, Fault> {
    let fail = |e| Fault::system("describing a cable", &e);
    let mut parts: Vec<Part> =
        SETTINGS.iter().map(|(file, text)| Part::Setting(file, text)).collect();
    if let Some(role) = on_host {
        // GRO works within NAPI, and only NAPI can be threaded.
        let stops = if backpressure { tap::BACKPRESSURE } else { 0 };
        let flags = tap::VNET_HDR | tap::NAPI | stops;
        let device = Tap::new(ends::device(role), FIRST, queues, flags).map_err(fail)?;
        parts.push(Part::Tap(device));
        return Ok(parts);
    }
    let bridge = FIRST + 2;
    for (index, name) in (FIRST..bridge).zip(["tap0", "tap1"]) {
        parts.push(Part::Tap(Tap::new(name, index, queues, tap::VNET_HDR).map_err(fail)?));
    }
    parts.push(Part::Request(bridge_message("wire", bridge).map_err(fail)?));
    let ports = (FIRST..bridge).map(|index| port_message(index, TAP_MTU, Some(bridge)));
    parts.extend(ports.map(Part::Request));
    Ok(parts)
}

fn make(plan: &[Part]) -> Result<Made, Refused> {
    namespace::make(plan.to_vec(), RESTORED)
}

fn fault(refused: &Refused, roots: &Roots) -> Fault {
    let code = refused.error.raw_os_error().unwrap_or(0);
    let denied = matches!(code, libc::EPERM | libc::EACCES);
    let help = match refused.step {
        Step::OpenTap if denied => {
            "run as root, or make it accessible to all users, as most systems do: chmod 0666 /dev/net/tun"
        }
        Step::OpenTap => "modprobe tun; in a container, give it the device /dev/net/tun",
        Step::Tap if denied => "run as root with CAP_NET_ADMIN",
        Step::Tap => "use a kernel with CONFIG_TUN",
        Step::Join => "modprobe bridge, or a kernel with CONFIG_BRIDGE",
        _ => remedy(refused, roots),
    };
    let kind = if denied { FaultKind::Permission } else { FaultKind::Unsupported };
    Fault::new(kind, format!("guests cannot be joined by taps: {refused}")).remedy(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    fn refused(step: Step, code: i32) -> Fault {
        let error = io::Error::from_raw_os_error(code);
        fault(&Refused { step, error }, &Roots::real())
    }

    #[test]
    fn names_missing_features_with_a_remedy() {
        for (step, code, what, remedy) in [
            (Step::OpenTap, libc::ENOENT, "/dev/net/tun", "modprobe tun"),
            (Step::OpenTap, libc::EACCES, "/dev/net/tun", "chmod 0666"),
            (Step::Tap, libc::EPERM, "tap device", "CAP_NET_ADMIN"),
            (Step::Join, libc::EOPNOTSUPP, "by a bridge", "CONFIG_BRIDGE"),
            (Step::Namespaces, libc::EINVAL, "network namespace", "CONFIG_NET_NS"),
        ] {
            let fault = refused(step, code);
            assert!(fault.message.contains(what), "{fault}");
            assert!(fault.remedy.as_ref().unwrap().contains(remedy), "{fault:?}");
        }
        assert_eq!(refused(Step::OpenTap, libc::EACCES).kind, FaultKind::Permission);
    }

    #[test]
    fn opens_vhost_or_names_it() {
        let fault = vhost(Path::new("/no/such/vhost-net")).unwrap_err();
        assert!(fault.message.contains("/no/such/vhost-net"), "{fault}");
        assert!(fault.remedy.unwrap().contains("modprobe vhost_net"));
        assert!(vhost(Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn named_taps_never_fall_back_to_sockets() {
        let wish = CableSpec { kind: "socket", ..CableSpec::DEFAULT };
        let cable = wish.settle(None).unwrap();
        assert!(matches!(&cable, Cable::Sockets(why) if why.contains("requires it")));
        let created = cable.lay(None).unwrap();
        assert!(created.networks.len() == 2 && created.host.is_none());
        assert_eq!(cable.facts()[0].1, "sockets (wire=socket requires it)");
    }

    #[test]
    fn taps_have_the_queues_that_were_requested() {
        let wish = CableSpec { kind: "tap", queues: 3, vhost: "off", backpressure: false };
        let cable = match wish.settle(None) {
            Ok(cable) => cable,
            Err(fault) => {
                skip!("{fault}");
                return;
            }
        };
        let facts = cable.facts();
        assert_eq!(facts[1], ("link.queues", "3".to_owned()));
        assert_eq!(facts[2].1, "off (vhost=off requires it)");
        let both = cable.lay(None).unwrap();
        let counts: Vec<usize> = both.networks.iter().map(|n| n.descriptors().len()).collect();
        assert_eq!(counts, [3, 3]);
        assert!(both.host.is_none(), "the queues keep the namespace");
        let one = cable.lay(Some(Role::Receiver)).unwrap();
        assert_eq!(one.networks.len(), 1);
        assert!(one.networks[0].mac.ends_with(":01") && one.host.is_some());
    }
}
