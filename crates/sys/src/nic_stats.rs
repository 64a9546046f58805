//! Counters of network devices that `/proc/net/dev` does not have: a driver's own
//! (`ethtool -S`, by ioctl: the netlink family has only the standard groups), those of
//! queues and page pools (netlink family `netdev`, Linux 6.9 and 6.8), those of queueing
//! disciplines (rtnetlink).

use super::netlink::Netlink;
use netlink_bindings::traits::{NetlinkRequest, Protocol};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsRawFd;

/// The names and counters that a driver gives of one device, ready to be read again.
#[derive(Debug)]
pub struct DriverStats {
    socket: rustix::fd::OwnedFd,
    device: [libc::c_char; libc::IFNAMSIZ],
    /// Names, in the order of the counters.
    pub names: Vec<String>,
    /// `struct ethtool_stats` with its counters, in words of the kernel's size.
    buffer: Vec<u64>,
}

/// `ETH_SS_STATS` of linux/ethtool.h.
const STATS: u32 = 1;
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
/// Bytes of a name.
const NAME: usize = 32;
/// Counters of a device that are read at most; a card with hundreds of queues has
/// ten thousand.
const MOST: u32 = 1 << 16;

impl DriverStats {
    /// Asks a driver what it counts. EOPNOTSUPP: nothing. ENODEV: no such device here.
    pub fn open(device: &str) -> io::Result<DriverStats> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        let socket =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let mut name = [0; libc::IFNAMSIZ];
        if device.len() >= name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in name.iter_mut().zip(device.bytes()) {
            *to = from as libc::c_char;
        }
        let mut stats = DriverStats { socket, device: name, names: Vec::new(), buffer: Vec::new() };
        let count = stats.count()?;
        stats.names = stats.strings(count)?;
        stats.buffer = vec![0; room(count)];
        Ok(stats)
    }

    /// The counters now. EAGAIN: the device has other counters than before, so it has to
    /// be opened anew.
    pub fn read(&mut self) -> io::Result<&[u64]> {
        let count = self.names.len();
        // The kernel writes as many counters as the driver has now, whatever is asked
        // for, so that has to be known to fit.
        if self.count()? as usize != count {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(room(count as u32), 0);
        set_words(&mut buffer, [ETHTOOL_GSTATS, count as u32]);
        let done = self.ask(buffer.as_mut_ptr().cast());
        self.buffer = buffer;
        done?;
        Ok(self.buffer.get(1..1 + count).unwrap_or_default())
    }

    fn count(&self) -> io::Result<u32> {
        // struct ethtool_sset_info: command, reserved, mask of the sets, one answer.
        let mut info = [0u64; 3];
        set_words(&mut info, [ETHTOOL_GSSET_INFO, 0]);
        info[1] = 1 << STATS;
        self.ask(info.as_mut_ptr().cast())?;
        // The kernel clears the bits of sets that the driver does not have.
        if info[1] == 0 {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let count = words(info[2])[0];
        match count {
            0 => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            _ if count > MOST => Err(io::Error::from_raw_os_error(libc::E2BIG)),
            _ => Ok(count),
        }
    }

    fn strings(&self, count: u32) -> io::Result<Vec<String>> {
        // struct ethtool_gstrings: command, set, length, names.
        let size = (12 + room(count) * NAME).div_ceil(8);
        let mut buffer = vec![0u64; size];
        set_words(&mut buffer, [ETHTOOL_GSTRINGS, STATS]);
        if let Some(length) = buffer.get_mut(1) {
            *length = join([count, 0]);
        }
        self.ask(buffer.as_mut_ptr().cast())?;
        let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let names = bytes.get(12..).unwrap_or_default().chunks(NAME).take(count as usize);
        let text = |name: &[u8]| {
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            String::from_utf8_lossy(name.get(..end).unwrap_or_default()).trim().to_owned()
        };
        Ok(names.map(text).collect())
    }

    /// `data` points to a structure of the ethtool interface with room for its answer.
    fn ask(&self, data: *mut c_void) -> io::Result<()> {
        // SAFETY: all bytes zero is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.device;
        request.ifr_ifru.ifru_data = data.cast();
        // SAFETY: the request lives, and its data is a structure of the command in its
        // first word, with room for as many answers as the kernel was just asked for.
        let done = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &mut request) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Words for so many counters, and as many again and some more: somebody may add queues
/// to a device between the question how many there are and the answer.
fn room(count: u32) -> usize {
    2 * count as usize + 1024
}

fn join([first, second]: [u32; 2]) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn words(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

fn set_words(buffer: &mut [u64], words: [u32; 2]) {
    if let Some(first) = buffer.first_mut() {
        *first = join(words);
    }
}

/// A counter of a queue, pool or discipline: its name as the kernel's specification has
/// it, and its value.
pub type Counted = (&'static str, u64);

/// The counters of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// True of a transmit queue.
    pub transmits: bool,
    /// Its number.
    pub queue: u32,
    /// What the driver counts of it.
    pub counts: Vec<Counted>,
}

/// The counters of one page pool since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Id of the pool.
    pub id: u32,
    /// Its device.
    pub device: u32,
    /// What the kernel counts of it.
    pub counts: Vec<Counted>,
}

/// The counters of one queueing discipline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QdiscStats {
    /// Its device.
    pub device: u32,
    /// Its number; with the parent it tells it from others of the device.
    pub handle: u32,
    /// What it hangs on.
    pub parent: u32,
    /// Its name: `fq_codel`.
    pub kind: String,
    /// Packets and bytes that it let pass, that it dropped, that wait in it.
    pub counts: Vec<Counted>,
}

/// `enum netdev qstats` of linux/netdev.h.
const QUEUE_COUNTS: &[(u16, &str)] = &[
    (8, "rx-packets"),
    (9, "rx-bytes"),
    (10, "tx-packets"),
    (11, "tx-bytes"),
    (12, "rx-alloc-fail"),
    (13, "rx-hw-drops"),
    (14, "rx-hw-drop-overruns"),
    (18, "rx-csum-bad"),
    (19, "rx-hw-gro-packets"),
    (20, "rx-hw-gro-bytes"),
    (21, "rx-hw-gro-wire-packets"),
    (22, "rx-hw-gro-wire-bytes"),
    (23, "rx-hw-drop-ratelimits"),
    (24, "tx-hw-drops"),
    (25, "tx-hw-drop-errors"),
    (28, "tx-hw-gso-packets"),
    (29, "tx-hw-gso-bytes"),
    (32, "tx-hw-drop-ratelimits"),
    (33, "tx-stop"),
    (34, "tx-wake"),
];

/// `enum netdev page-pool-stats` of linux/netdev.h.
const POOL_COUNTS: &[(u16, &str)] = &[
    (8, "alloc-fast"),
    (9, "alloc-slow"),
    (10, "alloc-slow-high-order"),
    (11, "alloc-empty"),
    (12, "alloc-refill"),
    (13, "alloc-waive"),
    (14, "recycle-cached"),
    (15, "recycle-cache-full"),
    (16, "recycle-ring"),
    (17, "recycle-ring-full"),
    (18, "recycle-released-refcnt"),
];

impl Netlink {
    /// Counters of every queue of a device whose driver tells them, Linux 6.9; none of
    /// others. EOPNOTSUPP or ENOENT: the kernel is older.
    pub fn queue_stats(&mut self, index: u32) -> io::Result<Vec<QueueStats>> {
        let request = Request::netdev(QSTATS_GET, &[(QSTATS_IFINDEX, index), (QSTATS_SCOPE, 1)]);
        self.dump(&request, |message| queue_stats(message.get(GENL..)?))
    }

    /// Counters of the page pools of a device, Linux 6.8 with CONFIG_PAGE_POOL_STATS.
    pub fn pool_stats(&mut self, index: u32) -> io::Result<Vec<PoolStats>> {
        let request = Request::netdev(PAGE_POOL_STATS_GET, &[]);
        let mut all = self.dump(&request, |message| pool_stats(message.get(GENL..)?))?;
        all.retain(|pool| pool.device == index);
        Ok(all)
    }

    /// Counters of the queueing disciplines of a device.
    pub fn qdisc_stats(&mut self, index: u32) -> io::Result<Vec<QdiscStats>> {
        let words = [0, index, 0, 0, 0];
        let request = Request {
            protocol: Protocol::Raw {
                protonum: libc::NETLINK_ROUTE as u16,
                request_type: libc::RTM_GETQDISC,
            },
            payload: words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect(),
        };
        let mut all = self.dump(&request, qdisc_stats)?;
        all.retain(|qdisc| qdisc.device == index);
        Ok(all)
    }

    fn dump<T>(
        &mut self,
        request: &Request,
        decode: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let mut reply = self.socket.request(request)?;
        let mut found = Vec::new();
        while let Some(message) = reply.recv() {
            found.extend(decode(message.map_err(super::netlink::explained)?));
        }
        Ok(found)
    }
}

// linux/netdev.h.
const PAGE_POOL_STATS_GET: u8 = 9;
const QSTATS_GET: u8 = 12;
const QSTATS_IFINDEX: u16 = 1;
const QSTATS_QUEUE_TYPE: u16 = 2;
const QSTATS_QUEUE_ID: u16 = 3;
const QSTATS_SCOPE: u16 = 4;
const POOL_STATS_INFO: u16 = 1;
const POOL_ID: u16 = 1;
const POOL_IFINDEX: u16 = 2;
/// Bytes of `struct genlmsghdr`.
const GENL: usize = 4;

/// A dump. Answers come as they are, because the bindings (0.3.5) read the counters as
/// 32-bit numbers, and the kernel writes 64 bits where a value needs them.
struct Request {
    protocol: Protocol,
    payload: Vec<u8>,
}

impl Request {
    fn netdev(command: u8, attributes: &[(u16, u32)]) -> Request {
        let mut payload = vec![command, 1, 0, 0];
        for (kind, value) in attributes {
            payload.extend(8u16.to_ne_bytes());
            payload.extend(kind.to_ne_bytes());
            payload.extend(value.to_ne_bytes());
        }
        Request { protocol: Protocol::Generic(b"netdev"), payload }
    }
}

impl NetlinkRequest for Request {
    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn flags(&self) -> u16 {
        libc::NLM_F_DUMP as u16
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    type ReplyType<'buf> = &'buf [u8];

    fn decode_reply(message: &[u8]) -> Self::ReplyType<'_> {
        message
    }
}

/// Attributes of a netlink message, up to the first that is cut off.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (&[a, b, c, d], _) = rest.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & 0x3fff, value))
    })
}

/// A number of 32 or 64 bits, as attributes of type `uint` have it.
fn uint(value: &[u8]) -> Option<u64> {
    match *value {
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        [a, b, c, d, e, f, g, h] => Some(u64::from_ne_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    }
}

fn small(value: &[u8]) -> Option<u32> {
    u32::try_from(uint(value)?).ok()
}

fn named(names: &[(u16, &'static str)], kind: u16, value: &[u8]) -> Option<Counted> {
    let (_, name) = names.iter().find(|(known, _)| *known == kind)?;
    Some((name, uint(value)?))
}

fn queue_stats(message: &[u8]) -> Option<QueueStats> {
    let mut queue = QueueStats::default();
    for (kind, value) in attributes(message) {
        match kind {
            QSTATS_QUEUE_TYPE => queue.transmits = small(value)? == 1,
            QSTATS_QUEUE_ID => queue.queue = small(value)?,
            _ => queue.counts.extend(named(QUEUE_COUNTS, kind, value)),
        }
    }
    Some(queue)
}

fn pool_stats(message: &[u8]) -> Option<PoolStats> {
    let mut pool = PoolStats::default();
    for (kind, value) in attributes(message) {
        if kind == POOL_STATS_INFO {
            for (kind, value) in attributes(value) {
                match kind {
                    POOL_ID => pool.id = small(value)?,
                    POOL_IFINDEX => pool.device = small(value)?,
                    _ => {}
                }
            }
        } else {
            pool.counts.extend(named(POOL_COUNTS, kind, value));
        }
    }
    Some(pool)
}

/// `struct tcmsg` and the attributes behind it (linux/rtnetlink.h, linux/gen_stats.h).
fn qdisc_stats(message: &[u8]) -> Option<QdiscStats> {
    const HEADER: usize = 20;
    const TCA_KIND: u16 = 1;
    const TCA_STATS2: u16 = 7;
    const TCA_STATS_BASIC: u16 = 1;
    const TCA_STATS_QUEUE: u16 = 3;
    let word = |bytes: &[u8], at: usize| small(bytes.get(at..at.checked_add(4)?)?);
    let mut qdisc = QdiscStats {
        device: word(message, 4)?,
        handle: word(message, 8)?,
        parent: word(message, 12)?,
        ..QdiscStats::default()
    };
    for (kind, value) in attributes(message.get(HEADER..)?) {
        match kind {
            TCA_KIND => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                qdisc.kind = String::from_utf8_lossy(name).into_owned();
            }
            TCA_STATS2 => {
                for (kind, value) in attributes(value) {
                    match kind {
                        TCA_STATS_BASIC => {
                            let bytes = value.get(..8).and_then(uint);
                            qdisc.counts.extend(bytes.map(|bytes| ("bytes", bytes)));
                            let packets = word(value, 8);
                            qdisc.counts.extend(packets.map(|count| ("packets", count.into())));
                        }
                        TCA_STATS_QUEUE => {
                            let names = ["qlen", "backlog", "drops", "requeues", "overlimits"];
                            for (index, name) in names.into_iter().enumerate() {
                                let count = word(value, 4 * index);
                                qdisc.counts.extend(count.map(|count| (name, count.into())));
                            }
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some(qdisc)
}

/// Every decoder of this file on any bytes, for tests that throw bytes at them.
pub fn decode_anything(message: &[u8]) {
    let _ = (queue_stats(message), pool_stats(message), qdisc_stats(message));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn counters_of_both_sizes() {
        let info =
            [attribute(POOL_ID, &7u32.to_ne_bytes()), attribute(POOL_IFINDEX, &3u32.to_ne_bytes())];
        let message = [
            attribute(POOL_STATS_INFO | 0x8000, &info.concat()),
            attribute(8, &5u32.to_ne_bytes()),
            attribute(9, &(1u64 << 40).to_ne_bytes()),
            attribute(99, &[1, 2, 3]),
        ]
        .concat();
        let expected = PoolStats {
            id: 7,
            device: 3,
            counts: vec![("alloc-fast", 5), ("alloc-slow", 1 << 40)],
        };
        assert_eq!(pool_stats(&message), Some(expected));
        let queue = [
            attribute(QSTATS_QUEUE_TYPE, &1u32.to_ne_bytes()),
            attribute(QSTATS_QUEUE_ID, &4u32.to_ne_bytes()),
            attribute(10, &9u32.to_ne_bytes()),
        ]
        .concat();
        let expected = QueueStats { transmits: true, queue: 4, counts: vec![("tx-packets", 9)] };
        assert_eq!(queue_stats(&queue), Some(expected));
    }

    #[test]
    fn a_discipline_with_its_counters() {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
        let basic = [1000u64.to_ne_bytes().to_vec(), words(&[10, 0])].concat();
        let stats = [attribute(1, &basic), attribute(3, &words(&[2, 3000, 4, 5, 6]))].concat();
        let mut message = words(&[0, 12, 0x8001_0000, u32::MAX, 0]);
        message.extend(attribute(1, b"fq_codel\0"));
        message.extend(attribute(7, &stats));
        let qdisc = qdisc_stats(&message).unwrap();
        assert_eq!((qdisc.device, qdisc.kind.as_str()), (12, "fq_codel"));
        let expected = [
            ("bytes", 1000),
            ("packets", 10),
            ("qlen", 2),
            ("backlog", 3000),
            ("drops", 4),
            ("requeues", 5),
            ("overlimits", 6),
        ];
        assert_eq!(qdisc.counts, expected);
        for length in 0..message.len() {
            decode_anything(&message[..length]);
        }
    }

    #[test]
    fn loopback_counts_nothing_of_its_own() {
        let error = DriverStats::open("lo").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
        assert!(DriverStats::open("no-such-dev").is_err());
        assert!(DriverStats::open("a name that is far too long").is_err());
        let mut netlink = Netlink::new();
        let [qdisc] = &netlink.qdisc_stats(1).unwrap()[..] else { panic!("one discipline") };
        assert_eq!(qdisc.kind, "noqueue");
        assert_eq!(netlink.pool_stats(1).unwrap_or_default(), []);
        assert_eq!(netlink.queue_stats(1).unwrap_or_default(), []);
    }
}
