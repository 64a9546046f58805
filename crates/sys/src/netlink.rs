//! Network devices of the caller's namespace: rtnetlink(7) for links and
//! addresses, the `ethtool` and `netdev` generic netlink families for features
//! and NAPI instances (Documentation/netlink/specs in the kernel tree).
//!
//! Errors carry the kernel's own explanation (its extended acknowledgement)
//! after the error number's text, and keep the error's kind.

use super::bridge::up;
use super::bytes::u32_at;
use super::route_request::push_attribute;
use netlink_bindings::netdev::PushNapi;
use netlink_bindings::traits::{NetlinkRequest, Pusher};
use netlink_bindings::{ethtool, netdev, rt_addr, rt_link};
use netlink_socket2::{NetlinkSocket, ReplyError};
use std::ffi::{CStr, CString};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sockets to the kernel, opened on first use. They stay in the network namespace in which the
/// thread was at that moment.
#[derive(Default)]
pub struct Netlink {
    pub(super) socket: NetlinkSocket,
}

/// A veth pair to be made (veth(4)); its ends are down at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Veth {
    /// Name of the end that stays in the caller's namespace.
    pub name: String,
    /// Name of the other end.
    pub peer: String,
    /// Process whose network namespace the other end is moved to; `None` if it stays in the
    /// caller's.
    pub peer_process: Option<u32>,
    /// MTU of both ends in bytes; `None` for the kernel's default, 1500.
    pub mtu: Option<u32>,
    /// Transmit and receive queues of each end.
    pub queues: u32,
}

/// A device as rtnetlink reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    /// Driver kind ("veth", "tun"); empty for hardware and loopback.
    pub kind: String,
    /// Administratively up (IFF_UP).
    pub up: bool,
    /// Operational state `IF_OPER_UP` (RFC 2863): packets can be sent.
    pub operational: bool,
    /// Whether it is up and has a carrier, but its operational state is unknown: always so for an
    /// ipvlan, for other devices until the kernel has handled the first change of their carrier
    /// (Documentation/networking/operstates.rst).
    pub state_unknown: bool,
    /// How often the carrier appeared or disappeared since the device was made.
    pub carrier_changes: u32,
    /// Interface index of the bridge, bond or similar device that it is a port of; 0 if there is
    /// none.
    pub master: u32,
    /// Whether it cannot be moved to another network namespace, such as a bridge or bond
    /// (`IFLA_NETNS_IMMUTABLE`, Linux 6.15; false before).
    pub immovable: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// Largest packet that the device can segment, in bytes (`tso_max_size`, Linux 5.19): the upper
    /// limit of `gso_max_size`.
    pub tso_max_size: Option<u32>,
    /// Transmit queues the device was made with.
    pub tx_queues: u32,
    /// Receive queues the device was made with.
    pub rx_queues: u32,
    /// Interface index of the other end of a pair, or of the device below a VLAN, macvlan or
    /// similar (`IFLA_LINK`); 0 if there is none.
    pub peer_index: u32,
    /// Id of the namespace that device is in, as numbered by this namespace; `None` if it is the
    /// same.
    pub peer_namespace: Option<i32>,
    /// Name of the root qdisc; empty while the device is down.
    pub qdisc: String,
    /// Limits of segmentation and receive offload.
    pub limits: Limits,
}

/// Largest packets of segmentation offload (sending) and GRO (receiving), in bytes. Above 65536
/// this is called BIG TCP. In a change, `None` leaves the limit alone; in an answer, it means that
/// this kernel has no such limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `gso_max_size`: IPv6 (and IPv4 before Linux 6.3).
    pub gso: Option<u32>,
    /// `gro_max_size`, Linux 5.19: IPv6.
    pub gro: Option<u32>,
    /// `gso_ipv4_max_size`, Linux 6.3.
    pub gso_ipv4: Option<u32>,
    /// `gro_ipv4_max_size`, Linux 6.3.
    pub gro_ipv4: Option<u32>,
}

/// Offload features of a device, by the names that `ethtool -k` resolves to
/// (net/ethtool/common.c): "tx-tcp-segmentation", "rx-gro".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Features that the user may change.
    pub changeable: Vec<String>,
    /// Features that are on.
    pub active: Vec<String>,
    /// All features that this kernel knows, for any device.
    pub known: Vec<String>,
}

/// A NAPI instance (netdev family, Linux 6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Napi {
    pub id: u32,
    /// Process id of its kernel thread in the initial PID namespace; `None` if it is not threaded.
    pub thread: Option<u32>,
    /// Number of its interrupt; `None` if it has none.
    pub interrupt: Option<u32>,
    pub timing: NapiTiming,
}

/// When a NAPI instance polls and interrupts (Documentation/networking/napi.rst, Linux 6.13). In an
/// answer, `None` means that the kernel does not report the value; in a change, that it stays as it
/// is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NapiTiming {
    /// Empty polls in a row before interrupts are enabled again.
    pub defer_hard_irqs: Option<u32>,
    /// Nanoseconds.
    pub gro_flush_timeout: Option<u32>,
    /// Nanoseconds.
    pub irq_suspend_timeout: Option<u32>,
    /// 0: in softirqs, 1: in a kernel thread, 2: in a kernel thread that busy polls.
    pub threaded: Option<u32>,
}

/// Packets counted by a device since it was made (`struct rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sent (`tx_packets`).
    pub sent: u64,
    /// Dropped instead of being sent (`tx_dropped`).
    pub dropped: u64,
    /// Received (`rx_packets`).
    pub received: u64,
    /// Received, and dropped by the driver or the stack, or missed for lack of memory
    /// (`rx_dropped`, `rx_missed_errors`).
    pub dropped_on_arrival: u64,
}

impl Link {
    /// Whether it is stacked on another device, as a VLAN is.
    pub fn is_stacked(&self) -> bool {
        ![0, self.index].contains(&self.peer_index) && !PAIRS.contains(&self.kind.as_str())
    }
}

/// Kinds of devices that report their other end where others report the device below them.
const PAIRS: [&str; 2] = ["veth", "netkit"];

impl Netlink {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a veth pair. EOPNOTSUPP: the kernel has no veth; EEXIST: a name is taken; ESRCH: the
    /// peer's process has ended.
    pub fn create_veth(&mut self, veth: &Veth) -> io::Result<()> {
        acknowledged(&mut self.socket, &veth_request(veth)?)
    }

    /// Looks up a device by name; `None` if there is no such device. If a carrier change is pending
    /// in the kernel, this request makes it take effect (net/core/rtnetlink.c, Linux 6.8).
    pub fn link(&mut self, name: &str) -> io::Result<Option<Link>> {
        self.get_link(&named(&device_name(name)?), read_link)
    }

    /// Looks up the other end of a pair, or the device below, in whichever namespace it is. EPERM:
    /// the caller has no privilege over that namespace.
    pub fn peer(&mut self, end: &Link) -> io::Result<Option<Link>> {
        let mut request = rt_link::Request::new().op_getlink_do(&link_header(end.peer_index));
        if let Some(id) = end.peer_namespace {
            request.encode().push_target_netnsid(id);
        }
        self.get_link(&request, read_link)
    }

    /// Returns what `take` extracts from the kernel's answer about a device; `None` if there is no
    /// such device.
    pub(super) fn get_link<T>(
        &mut self,
        request: &rt_link::OpGetlinkDo,
        take: impl FnOnce(rt_link::Ifinfomsg, rt_link::IterableLinkAttrs) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let mut reply = self.socket.request(request)?;
        match reply.recv_one() {
            Err(e) if e.as_io_error().raw_os_error() == Some(libc::ENODEV) => Ok(None),
            other => {
                let (header, attributes) = other.map_err(explained)?;
                take(header, attributes).map(Some)
            }
        }
    }

    /// Collects what `take` returns for each reply of a dump, without the `None`s.
    pub(super) fn dump<R: NetlinkRequest, T>(
        &mut self,
        request: &R,
        mut take: impl for<'a> FnMut(R::ReplyType<'a>) -> io::Result<Option<T>>,
    ) -> io::Result<Vec<T>> {
        let mut reply = self.socket.request(request)?;
        let mut found = Vec::new();
        while let Some(item) = reply.recv() {
            found.extend(take(item.map_err(explained)?)?);
        }
        Ok(found)
    }

    /// Deletes a device; deleting a veth also deletes its peer.
    pub fn delete_link(&mut self, index: u32) -> io::Result<()> {
        let request = rt_link::Request::new().op_dellink_do(&link_header(index));
        acknowledged(&mut self.socket, &request)
    }

    /// Brings a device up.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.set_link(&up(index), |link| link)
    }

    /// Takes a device down, which removes the routes through it.
    pub fn set_down(&mut self, index: u32) -> io::Result<()> {
        self.set_link(&rt_link::Ifinfomsg { ifi_flags: 0, ..up(index) }, |link| link)
    }

    /// Moves a device into another network namespace, keeping its name. It loses its addresses,
    /// routes, qdiscs and sysctls. EEXIST: the name is taken there; EINVAL: this kind of device
    /// cannot be moved.
    pub fn set_namespace(&mut self, index: u32, namespace: BorrowedFd) -> io::Result<()> {
        let namespace = namespace.as_raw_fd() as u32;
        self.set_link(&link_header(index), |link| link.push_net_ns_fd(namespace))
    }

    /// Like [`Self::set_namespace`], into the namespace of a process. ESRCH: there is no such
    /// process.
    pub fn set_namespace_of(&mut self, index: u32, process: u32) -> io::Result<()> {
        self.set_link(&link_header(index), |link| link.push_net_ns_pid(process))
    }

    /// Sets `txqueuelen`, in packets: qdiscs made later use it as their length, and a tap's rings
    /// are resized at once.
    pub fn set_queue_length(&mut self, index: u32, packets: u32) -> io::Result<()> {
        self.set_link(&link_header(index), |link| link.push_txqlen(packets))
    }

    /// Returns a device's packet counters; `None` if there is no such device.
    pub fn traffic(&mut self, name: &str) -> io::Result<Option<Traffic>> {
        self.get_link(&named(&device_name(name)?), |_, attributes| {
            let all = attributes.get_stats64().map_err(undecodable)?;
            Ok(Traffic {
                sent: all.tx_packets,
                dropped: all.tx_dropped,
                received: all.rx_packets,
                dropped_on_arrival: all.rx_dropped + all.rx_missed_errors,
            })
        })
    }

    /// Returns the names of the devices stacked on this one: VLANs, macvlans and the like.
    pub fn devices_upon(&mut self, index: u32) -> io::Result<Vec<String>> {
        let header = rt_link::Ifinfomsg::new();
        let request = rt_link::Request::new().op_getlink_dump(&header);
        self.dump(&request, |(header, attributes)| {
            let kind = attributes.get_linkinfo().ok().and_then(|info| info.get_kind().ok());
            // The other end of a pair is named the same way, but is not stacked on anything.
            let stands = attributes.get_link().is_ok_and(|lower| lower == index)
                && attributes.get_link_netnsid().is_err()
                && header.ifi_index as u32 != index
                && kind.is_some_and(|kind| {
                    !PAIRS.iter().any(|pair| kind.to_bytes() == pair.as_bytes())
                });
            let name = attributes.get_ifname().ok().filter(|_| stands);
            Ok(name.map(|name| name.to_string_lossy().into_owned()))
        })
    }

    fn set_link(
        &mut self,
        header: &rt_link::Ifinfomsg,
        put: impl FnOnce(LinkEncoder) -> LinkEncoder,
    ) -> io::Result<()> {
        let mut request = rt_link::Request::new().op_setlink_do(header);
        drop(put(request.encode()));
        acknowledged(&mut self.socket, &request)
    }

    /// Sets the MTU in bytes. EINVAL: the device does not accept it.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        self.set_link(&link_header(index), |link| link.push_mtu(mtu))
    }

    /// Sets those limits that are given. A kernel that does not know a limit ignores it silently,
    /// so read them back. EINVAL: above what the device supports.
    pub fn set_limits(&mut self, index: u32, limits: &Limits) -> io::Result<()> {
        self.set_link(&link_header(index), |link| {
            // gso_max_size first: up to 65536 it also sets the IPv4 limit.
            let link = put(link, limits.gso, LinkEncoder::push_gso_max_size);
            let link = put(link, limits.gro, LinkEncoder::push_gro_max_size);
            let link = put(link, limits.gso_ipv4, LinkEncoder::push_gso_ipv4_max_size);
            put(link, limits.gro_ipv4, LinkEncoder::push_gro_ipv4_max_size)
        })
    }

    /// Gives a device an address, without duplicate address detection.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let header = address_header(index, address, prefix);
        let mut request = rt_addr::Request::new().set_create().set_excl().op_newaddr_do(&header);
        request.encode().push_local(address).push_address(address);
        acknowledged(&mut self.socket, &request)
    }

    /// Removes all addresses from a device.
    pub fn remove_addresses(&mut self, index: u32) -> io::Result<()> {
        let mut own = self.all_addresses()?;
        own.retain(|(device, ..)| *device == index);
        own.into_iter().try_for_each(|(_, address, prefix)| {
            let header = address_header(index, address, prefix);
            let mut request = rt_addr::Request::new().op_deladdr_do(&header);
            request.encode().push_local(address);
            acknowledged(&mut self.socket, &request)
        })
    }

    /// Returns all addresses of the namespace: index of the device, address, and prefix length in
    /// bits.
    pub(super) fn all_addresses(&mut self) -> io::Result<Vec<(u32, IpAddr, u8)>> {
        let header = rt_addr::Ifaddrmsg::default();
        let request = rt_addr::Request::new().op_getaddr_dump(&header);
        self.dump(&request, |(header, attributes)| {
            let local = attributes.get_local().or_else(|_| attributes.get_address());
            Ok(local.ok().map(|local| (header.ifa_index, local, header.ifa_prefixlen)))
        })
    }

    /// Hardware address of an Ethernet device. InvalidData: it has no address of six bytes.
    pub fn hardware_address(&mut self, name: &str) -> io::Result<[u8; 6]> {
        let mut reply = self.socket.request(&named(&device_name(name)?))?;
        let (_, attributes) = reply.recv_one().map_err(explained)?;
        attributes.get_address().map_err(undecodable)?.try_into().map_err(undecodable)
    }

    /// Offload features of a device. Needs the `ethtool` netlink family, Linux 5.7.
    pub fn features(&mut self, index: u32) -> io::Result<Features> {
        let names = self.feature_names()?;
        let mut request = ethtool::Request::new().op_features_get_do();
        number(&mut request.encode(), ETHTOOL_MSG_FEATURES_GET);
        // Bitmaps: on a device with many features, an answer with names would not fit the socket's
        // buffer.
        let compact = ethtool::HeaderFlags::CompactBitsets as u32;
        request.encode().nested_header().push_dev_index(index).push_flags(compact);
        let mut reply = self.socket.request(&request)?;
        let answer = reply.recv_one().map_err(explained)?;
        let named = |bits: &[u8]| {
            let is_set = |(bit, _): &(u32, String)| is_bit_set(bits, *bit);
            names.iter().filter(|n| is_set(n)).map(|(_, name)| name.clone()).collect()
        };
        let changeable = answer.get_hw().and_then(|set| set.get_value()).map_err(undecodable)?;
        let active = answer.get_active().and_then(|set| set.get_value()).map_err(undecodable)?;
        let (changeable, active) = (named(changeable), named(active));
        let known = names.into_iter().map(|(_, name)| name).collect();
        Ok(Features { changeable, active, known })
    }

    /// Requests that features be on or off. The kernel may leave some as they are, without an
    /// error, so read them back. EINVAL: no such feature.
    pub fn set_features(&mut self, index: u32, wanted: &[(&str, bool)]) -> io::Result<()> {
        let mut request = ethtool::Request::new().op_features_set_do();
        number(&mut request.encode(), ETHTOOL_MSG_FEATURES_SET);
        let quiet = ethtool::HeaderFlags::OmitReply as u32;
        let header = request.encode().nested_header().push_dev_index(index).push_flags(quiet);
        let mut bits = header.end_nested().nested_wanted().nested_bits();
        for (name, on) in wanted {
            let bit = bits.nested_bit().push_name(&CString::new(*name)?);
            bits = if *on { bit.push_value(()) } else { bit }.end_nested();
        }
        drop(bits);
        acknowledged(&mut self.socket, &request)
    }

    /// NAPI instances of a device that is up. ENOENT: before Linux 6.8.
    pub fn napis(&mut self, index: u32) -> io::Result<Vec<Napi>> {
        let mut request = netdev::Request::new().op_napi_get_dump();
        request.encode().push_ifindex(index);
        self.dump(&request, |napi| {
            let id = napi.get_id().map_err(undecodable)?;
            let timing = NapiTiming {
                defer_hard_irqs: napi.get_defer_hard_irqs().ok(),
                gro_flush_timeout: napi.get_gro_flush_timeout().ok(),
                irq_suspend_timeout: napi.get_irq_suspend_timeout().ok(),
                threaded: napi.get_threaded().ok(),
            };
            Ok(Some(Napi {
                id,
                thread: napi.get_pid().ok(),
                interrupt: napi.get_irq().ok(),
                timing,
            }))
        })
    }

    /// Sets when a NAPI instance polls and interrupts; `None` leaves a value as it is. EINVAL:
    /// before Linux 6.13; EPERM: without CAP_NET_ADMIN.
    pub fn set_napi(&mut self, id: u32, timing: &NapiTiming) -> io::Result<()> {
        let NapiTiming { defer_hard_irqs, gro_flush_timeout, irq_suspend_timeout, threaded } =
            *timing;
        let mut request = netdev::Request::new().op_napi_set_do();
        let change = request.encode().push_id(id);
        let change = put(change, defer_hard_irqs, PushNapi::push_defer_hard_irqs);
        let change = put(change, gro_flush_timeout, PushNapi::push_gro_flush_timeout);
        let change = put(change, irq_suspend_timeout, PushNapi::push_irq_suspend_timeout);
        drop(put(change, threaded, PushNapi::push_threaded));
        acknowledged(&mut self.socket, &request)
    }

    /// Bit number and name of every feature the running kernel knows.
    fn feature_names(&mut self) -> io::Result<Vec<(u32, String)>> {
        // ETH_SS_FEATURES, include/uapi/linux/ethtool.h.
        const FEATURES: u32 = 4;
        let mut request = ethtool::Request::new().op_strset_get_do();
        let sets = request.encode().nested_header().end_nested().nested_stringsets();
        drop(sets.nested_stringset().push_id(FEATURES));
        let mut reply = self.socket.request(&request)?;
        let answer = reply.recv_one().map_err(explained)?;
        let mut names = Vec::new();
        for set in answer.get_stringsets().map_err(undecodable)?.get_stringset() {
            // Not `get_strings()`, which stops at the first other attribute.
            let strings = set.filter_map(|attribute| match attribute {
                Ok(ethtool::Stringset::Strings(strings)) => Some(strings),
                _ => None,
            });
            for string in strings.flat_map(|strings| strings.get_string()) {
                let name = string.get_value().map_err(undecodable)?;
                let bit = string.get_index().map_err(undecodable)?;
                names.push((bit, name.to_string_lossy().into_owned()));
            }
        }
        Ok(names)
    }
}

// enum of messages to the kernel in linux/ethtool_netlink.h.
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;

/// Puts the right command number into a message of the `ethtool` family. The bindings (0.3.5)
/// number requests and notifications in one sequence; the kernel numbers each direction separately.
pub(super) fn number(message: &mut impl Pusher, command: u8) {
    if let Some(first) = message.as_vec_mut().first_mut() {
        *first = command;
    }
}

/// A complete RTM_NEWLINK message that makes a veth pair, for
/// [`super::namespace::rehearse`].
pub fn veth_message(veth: &Veth) -> io::Result<Vec<u8>> {
    Ok(message(libc::RTM_NEWLINK, &veth_request(veth)?))
}

/// A complete message of this type that requests an acknowledgement, for callers that cannot use
/// [`Netlink`]: a child between fork and exec.
pub(super) fn message<R: NetlinkRequest>(kind: u16, request: &R) -> Vec<u8> {
    framed(kind, request.flags() | libc::NLM_F_ACK as u16, request.payload())
}

/// A complete message of this type.
pub(super) fn framed(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let flags = flags | libc::NLM_F_REQUEST as u16;
    let mut message = Vec::with_capacity(16 + payload.len());
    message.extend(((16 + payload.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]); // sequence number, port
    message.extend(payload);
    message
}

/// A request for a device by name.
pub(super) fn named(name: &CStr) -> rt_link::OpGetlinkDo<'static> {
    let mut request = rt_link::Request::new().op_getlink_do(&rt_link::Ifinfomsg::new());
    request.encode().push_ifname(name);
    request
}

fn read_link(
    header: rt_link::Ifinfomsg,
    attributes: rt_link::IterableLinkAttrs,
) -> io::Result<Link> {
    let text = |text: &CStr| text.to_string_lossy().into_owned();
    let kind = attributes.get_linkinfo().ok().and_then(|info| info.get_kind().ok());
    let state = attributes.get_operstate().ok().map(i32::from);
    let carries = (libc::IFF_UP | libc::IFF_LOWER_UP) as u32;
    Ok(Link {
        index: header.ifi_index as u32,
        kind: kind.map(text).unwrap_or_default(),
        up: header.ifi_flags & libc::IFF_UP as u32 != 0,
        operational: state == Some(libc::IF_OPER_UP),
        state_unknown: state == Some(libc::IF_OPER_UNKNOWN)
            && header.ifi_flags & carries == carries,
        carrier_changes: attributes.get_carrier_changes().unwrap_or(0),
        master: attributes.get_master().unwrap_or(0),
        immovable: attributes.get_netns_immutable().is_ok_and(|immutable| immutable != 0),
        mtu: attributes.get_mtu().unwrap_or(0),
        tso_max_size: attributes.get_tso_max_size().ok(),
        qdisc: attributes.get_qdisc().map(text).unwrap_or_default(),
        tx_queues: attributes.get_num_tx_queues().unwrap_or(0),
        rx_queues: attributes.get_num_rx_queues().unwrap_or(0),
        peer_index: attributes.get_link().unwrap_or(0),
        peer_namespace: attributes.get_link_netnsid().ok(),
        limits: Limits {
            gso: attributes.get_gso_max_size().ok(),
            gro: attributes.get_gro_max_size().ok(),
            gso_ipv4: attributes.get_gso_ipv4_max_size().ok(),
            gro_ipv4: attributes.get_gro_ipv4_max_size().ok(),
        },
    })
}

fn veth_request(veth: &Veth) -> io::Result<rt_link::OpNewlinkDo<'static>> {
    // linux/veth.h; the bindings have no veth.
    const VETH_INFO_PEER: u16 = 1;
    let (name, peer) = (device_name(&veth.name)?, device_name(&veth.peer)?);
    let header = rt_link::Ifinfomsg::new();
    let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&header);

    let mut other_end = header.as_slice().to_vec();
    let attributes = veth_end(LinkEncoder::new(&mut other_end), &peer, veth);
    drop(put(attributes, veth.peer_process, LinkEncoder::push_net_ns_pid));

    let attributes = veth_end(request.encode(), &name, veth);
    let (mut info, mut data) = (attributes.nested_linkinfo().push_kind(c"veth"), Vec::new());
    push_attribute(&mut data, VETH_INFO_PEER, &other_end);
    push_attribute(info.as_vec_mut(), libc::IFLA_INFO_DATA, &data);
    drop(info);
    Ok(request)
}

fn veth_end<'a>(attributes: LinkEncoder<'a>, name: &CStr, veth: &Veth) -> LinkEncoder<'a> {
    let queues = veth.queues;
    let named = attributes.push_ifname(name).push_num_tx_queues(queues).push_num_rx_queues(queues);
    put(named, veth.mtu, LinkEncoder::push_mtu)
}

/// Encoder of a device's attributes.
type LinkEncoder<'a> = rt_link::PushLinkAttrs<&'a mut Vec<u8>>;

/// Adds an attribute if there is a value for it.
pub(super) fn put<E, T>(encoder: E, value: Option<T>, push: impl FnOnce(E, T) -> E) -> E {
    match value {
        Some(value) => push(encoder, value),
        None => encoder,
    }
}

fn address_header(index: u32, address: IpAddr, prefix: u8) -> rt_addr::Ifaddrmsg {
    let (family, flags) = match address {
        IpAddr::V4(_) => (libc::AF_INET, 0),
        IpAddr::V6(_) => (libc::AF_INET6, libc::IFA_F_NODAD),
    };
    rt_addr::Ifaddrmsg {
        ifa_family: family as u8,
        ifa_prefixlen: prefix,
        ifa_flags: flags as u8,
        ifa_index: index,
        ..Default::default()
    }
}

pub(super) fn link_header(index: u32) -> rt_link::Ifinfomsg {
    rt_link::Ifinfomsg { ifi_index: index as i32, ..Default::default() }
}

/// Converts a device name the kernel accepts: IFNAMSIZ - 1 = 15 bytes at most.
pub(super) fn device_name(name: &str) -> io::Result<CString> {
    if name.is_empty() || name.len() > 15 {
        let text = format!("'{name}' is not a device name of 1 to 15 bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(CString::new(name)?)
}

pub(super) fn acknowledged<R: NetlinkRequest>(
    socket: &mut NetlinkSocket,
    request: &R,
) -> io::Result<()> {
    socket.request(request)?.recv_ack().map_err(explained)
}

/// Adds the kernel's extended-ack message, keeping the error kind.
pub(super) fn explained(error: ReplyError) -> io::Error {
    let message = error.ext_ack().and_then(|ack| ack.get_msg().ok());
    match message {
        Some(message) => {
            let code = error.as_io_error();
            io::Error::new(code.kind(), format!("{code}: {}", message.to_string_lossy()))
        }
        None => error.into(),
    }
}

pub(super) fn undecodable(error: impl std::fmt::Debug) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected netlink answer: {error:?}"))
}

/// Whether a bit of a compact ethtool bitset, an array of native 32-bit words, is set.
fn is_bit_set(words: &[u8], bit: u32) -> bool {
    u32_at(words, (bit / 32) as usize * 4).is_some_and(|word| word >> (bit % 32) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_can_be_read_by_anyone() {
        let mut netlink = Netlink::new();
        let lo = netlink.link("lo").unwrap().unwrap();
        assert!(lo.index == 1 && lo.kind.is_empty() && lo.mtu >= 65536, "{lo:?}");
        let features = netlink.features(lo.index).unwrap();
        assert!(features.active.iter().any(|f| f == "tx-tcp-segmentation"), "{features:?}");
        assert!(features.changeable.iter().all(|f| !f.is_empty()), "{features:?}");
        assert_eq!(netlink.link("no-such-dev").unwrap(), None);
    }

    #[test]
    fn an_error_carries_the_kernels_own_words() {
        let mut netlink = Netlink::new();
        let error = netlink.features(u32::MAX).unwrap_err();
        assert!(error.to_string().contains("no device matches"), "{error}");
        let name = "sixteen-bytes-12";
        assert_eq!(netlink.link(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn bits_beyond_the_set_are_off() {
        let words = [0x8000_0001u32.to_ne_bytes(), 2u32.to_ne_bytes()].concat();
        let set: Vec<u32> = (0..200).filter(|bit| is_bit_set(&words, *bit)).collect();
        assert_eq!(set, [0, 31, 33]);
    }
}
