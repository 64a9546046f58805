//! Counters of network devices that `/proc/net/dev` lacks: a driver's own (`ethtool -S`, by ioctl:
//! the netlink family has only the standard groups), and those of queues and page pools (netlink
//! family `netdev`, Linux 6.9 and 6.8).

use super::bytes::text;
use super::interface_request::{Ethtool, word, words};
use super::netlink::Netlink;
use super::route_request::{RawRequest, attributes, push_attribute, uint};
use netlink_bindings::traits::Protocol;
use std::io;

/// A driver's counters for one device: their names, ready to read the values repeatedly.
pub struct DriverStats {
    device: Ethtool,
    /// Names, in the order of the counters.
    pub names: Vec<String>,
}

/// `ETH_SS_STATS` of linux/ethtool.h.
const STATS: u32 = 1;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
/// Bytes of a name.
const NAME: usize = 32;
/// Most counters of a device to read; a NIC with hundreds of queues has ten thousand.
const MOST: u32 = 1 << 16;

impl DriverStats {
    /// Reads the names of a driver's counters. EOPNOTSUPP: it has none. ENODEV: no such device
    /// here.
    pub fn open(device: &str) -> io::Result<DriverStats> {
        let mut stats = DriverStats { device: Ethtool::open(device)?, names: Vec::new() };
        let count = stats.count()?;
        stats.names = stats.strings(count)?;
        Ok(stats)
    }

    /// Reads the counters. EAGAIN: the number of counters has changed, so the device has to be
    /// opened again.
    pub fn read(&mut self) -> io::Result<Vec<u64>> {
        let count = self.count()?;
        if count as usize != self.names.len() {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        // struct ethtool_stats: command, number of counters, counters.
        let data = self.ask_all(&[ETHTOOL_GSTATS, count], count, size_of::<u64>())?;
        Ok(data.as_chunks().0.iter().copied().map(u64::from_ne_bytes).collect())
    }

    fn count(&mut self) -> io::Result<u32> {
        // struct ethtool_sset_info: command, reserved, mask of the sets in 64 bits, one
        // answer.
        let mut info = words(&[ETHTOOL_GSSET_INFO, 0, 0, 0, 0]);
        info[8..16].copy_from_slice(&(1u64 << STATS).to_ne_bytes());
        // SAFETY: it requests one set, and has room for one answer.
        unsafe { self.device.ask(&mut info)? };
        // The kernel clears the bits of sets that the driver does not have.
        let here = info[8..16].iter().any(|byte| *byte != 0);
        match word(&info, 16) {
            count if count == 0 || !here => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            count if count > MOST => Err(io::Error::from_raw_os_error(libc::E2BIG)),
            count => Ok(count),
        }
    }

    fn strings(&mut self, count: u32) -> io::Result<Vec<String>> {
        // struct ethtool_gstrings: command, set, length, names.
        let data = self.ask_all(&[ETHTOOL_GSTRINGS, STATS, count], count, NAME)?;
        Ok(data.chunks(NAME).map(|name| text(name).trim().to_owned()).collect())
    }

    /// Returns the content of a command's answer after its header: `count` items of size `size`.
    /// There is room for twice as many and some more: the kernel writes as many as the driver has
    /// by then, whatever was requested, and another program may add queues after the count was
    /// read.
    fn ask_all(&mut self, header: &[u32], count: u32, size: usize) -> io::Result<Vec<u8>> {
        let mut data = words(header);
        let begin = data.len();
        data.resize(begin + (2 * count as usize + 1024) * size, 0);
        // SAFETY: there is room for more items than the kernel has just reported.
        unsafe { self.device.ask(&mut data)? };
        data.truncate(begin + count as usize * size);
        Ok(data.split_off(begin))
    }
}

/// A counter of a queue, pool or qdisc: its name in the kernel's specification, and its value.
pub type Counted = (&'static str, u64);

/// The counters of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// True for a transmit queue.
    pub transmits: bool,
    pub queue: u32,
    /// The driver's counters for it.
    pub counts: Vec<Counted>,
}

/// The counters of one page pool since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Id of the pool.
    pub id: u32,
    pub device: u32,
    /// Its user; `None` if no NAPI uses it.
    pub user: Option<PoolUser>,
    /// Whether its memory comes from a memory provider (an area of io_uring, a dmabuf).
    pub provided: bool,
    /// The kernel's counters for it.
    pub counts: Vec<Counted>,
}

/// The user of a page pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolUser {
    /// The receive queue with this number.
    Queue(u32),
    /// The NAPI instance with this id, which does not belong to a queue.
    Napi(u32),
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
    /// Returns the counters of every queue of a device whose driver reports them, Linux 6.9; empty
    /// for others. EOPNOTSUPP or ENOENT: the kernel is older.
    pub fn queue_stats(&mut self, index: u32) -> io::Result<Vec<QueueStats>> {
        let request = dump(QSTATS_GET, &[(QSTATS_IFINDEX, index), (QSTATS_SCOPE, 1)]);
        self.read_all(&request, queue_stats)
    }

    /// Returns the counters of a device's page pools, Linux 6.8 with CONFIG_PAGE_POOL_STATS.
    pub fn pool_stats(&mut self, index: u32) -> io::Result<Vec<PoolStats>> {
        let mut all = self.read_all(&dump(PAGE_POOL_STATS_GET, &[]), pool_stats)?;
        all.retain(|pool| pool.device == index);
        let pools = self.read_all(&dump(PAGE_POOL_GET, &[]), pool)?;
        // Linux 6.8 reports nothing about queues.
        let queues = dump(QUEUE_GET, &[(QUEUE_IFINDEX, index)]);
        let queues = self.read_all(&queues, queue).unwrap_or_default();
        for stats in &mut all {
            let Some(pool) = pools.iter().find(|pool| pool.id == stats.id) else { continue };
            stats.provided = pool.provided;
            stats.user = pool.napi.map(|napi| {
                let of = queues.iter().find(|queue| queue.napi == Some(napi) && !queue.transmits);
                of.map_or(PoolUser::Napi(napi), |queue| PoolUser::Queue(queue.number))
            });
        }
        Ok(all)
    }

    fn read_all<T>(
        &mut self,
        request: &RawRequest,
        decode: fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        self.dump(request, |message| Ok(message.get(GENL..).and_then(decode)))
    }
}

// linux/netdev.h.
const PAGE_POOL_GET: u8 = 5;
const PAGE_POOL_STATS_GET: u8 = 9;
const QUEUE_GET: u8 = 10;
const QSTATS_GET: u8 = 12;
const QSTATS_IFINDEX: u16 = 1;
const QSTATS_QUEUE_TYPE: u16 = 2;
const QSTATS_QUEUE_ID: u16 = 3;
const QSTATS_SCOPE: u16 = 4;
const POOL_STATS_INFO: u16 = 1;
const POOL_ID: u16 = 1;
const POOL_IFINDEX: u16 = 2;
const POOL_NAPI_ID: u16 = 3;
const POOL_DMABUF: u16 = 7;
const POOL_IO_URING: u16 = 8;
const QUEUE_ID: u16 = 1;
const QUEUE_IFINDEX: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI_ID: u16 = 4;
/// Bytes of `struct genlmsghdr`.
const GENL: usize = 4;

/// Makes a dump request of the family `netdev`. Answers are decoded here, because the bindings
/// (0.3.5) read the counters as 32-bit numbers, and the kernel writes 64 bits if a value needs
/// them.
fn dump(command: u8, of: &[(u16, u32)]) -> RawRequest {
    let mut payload = vec![command, 1, 0, 0];
    for (kind, value) in of {
        push_attribute(&mut payload, *kind, &value.to_ne_bytes());
    }
    RawRequest { protocol: Protocol::Generic(b"netdev"), flags: libc::NLM_F_DUMP, payload }
}

/// Returns the number in an attribute of this kind, if there is one.
fn number(message: &[u8], kind: u16) -> Option<u32> {
    let (_, value) = attributes(message).find(|(found, _)| *found == kind)?;
    u32::try_from(uint(value)?).ok()
}

/// Returns the counters of these kinds, in the order of the message.
fn counts(message: &[u8], names: &[(u16, &'static str)]) -> Vec<Counted> {
    let named = |(kind, value): (u16, &[u8])| {
        let (_, name) = names.iter().find(|(known, _)| *known == kind)?;
        Some((*name, uint(value)?))
    };
    attributes(message).filter_map(named).collect()
}

fn queue_stats(message: &[u8]) -> Option<QueueStats> {
    Some(QueueStats {
        transmits: number(message, QSTATS_QUEUE_TYPE)? == 1,
        queue: number(message, QSTATS_QUEUE_ID)?,
        counts: counts(message, QUEUE_COUNTS),
    })
}

fn pool_stats(message: &[u8]) -> Option<PoolStats> {
    let (_, info) = attributes(message).find(|(kind, _)| *kind == POOL_STATS_INFO)?;
    Some(PoolStats {
        id: number(info, POOL_ID)?,
        device: number(info, POOL_IFINDEX)?,
        counts: counts(message, POOL_COUNTS),
        ..PoolStats::default()
    })
}

/// A pool as page-pool-get reports it.
#[derive(Debug, PartialEq, Eq)]
struct Pool {
    id: u32,
    napi: Option<u32>,
    provided: bool,
}

fn pool(message: &[u8]) -> Option<Pool> {
    let provided =
        attributes(message).any(|(kind, _)| [POOL_DMABUF, POOL_IO_URING].contains(&kind));
    Some(Pool { id: number(message, POOL_ID)?, napi: number(message, POOL_NAPI_ID), provided })
}

/// A queue as queue-get reports it.
#[derive(Debug, PartialEq, Eq)]
struct Queue {
    number: u32,
    transmits: bool,
    napi: Option<u32>,
}

fn queue(message: &[u8]) -> Option<Queue> {
    Some(Queue {
        number: number(message, QUEUE_ID)?,
        transmits: number(message, QUEUE_TYPE)? == 1,
        napi: number(message, QUEUE_NAPI_ID),
    })
}

/// Runs every decoder of this file on any bytes, for fuzzing.
pub fn decode_anything(message: &[u8]) {
    let _ = (queue_stats(message), pool_stats(message), pool(message), queue(message));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, kind, value);
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
            ..PoolStats::default()
        };
        assert_eq!(pool_stats(&message), Some(expected));
        let number = |kind, number: u32| attribute(kind, &number.to_ne_bytes());
        let of_napi = [number(POOL_ID, 7), number(POOL_NAPI_ID, 8200)].concat();
        assert_eq!(pool(&of_napi), Some(Pool { id: 7, napi: Some(8200), provided: false }));
        let of_ring = [number(POOL_ID, 8), attribute(POOL_IO_URING | 0x8000, &[])].concat();
        assert_eq!(pool(&of_ring), Some(Pool { id: 8, napi: None, provided: true }));
        let of_dmabuf = [number(POOL_ID, 9), number(POOL_DMABUF, 1)].concat();
        assert!(pool(&of_dmabuf).unwrap().provided);
        let receives = [number(QUEUE_ID, 3), number(QUEUE_TYPE, 0), number(QUEUE_NAPI_ID, 8200)];
        let expected = Queue { number: 3, transmits: false, napi: Some(8200) };
        assert_eq!(queue(&receives.concat()), Some(expected));
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
    fn loopback_counts_nothing_of_its_own() {
        let error = DriverStats::open("lo").err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
        assert!(DriverStats::open("no-such-dev").is_err());
        assert!(DriverStats::open("a name that is far too long").is_err());
        let mut netlink = Netlink::new();
        assert_eq!(netlink.pool_stats(1).unwrap_or_default(), []);
        assert_eq!(netlink.queue_stats(1).unwrap_or_default(), []);
    }
}
