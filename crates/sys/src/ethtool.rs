//! Rings, channels and interrupt coalescing of network devices: the `ethtool` netlink family
//! (Documentation/networking/ethtool-netlink.rst, Linux 5.7 and later). Features are in
//! [`super::netlink`]; flow hashing and steering, which the family could not change for a long
//! time, are in [`super::flow_steering`].
//!
//! EOPNOTSUPP everywhere: the driver does not support it (veth has no rings).

use super::netlink::{Netlink, acknowledged, explained, number, put};
use netlink_bindings::ethtool::{self, HeaderFlags, PushChannels, PushCoalesce, PushRings};
use std::io;

/// Descriptor rings and header split. In an answer, `None` means that the driver does not report
/// the value; in a change, that it stays as it is. Maxima cannot be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Descriptors of each receive ring.
    pub rx: Option<u32>,
    /// Its maximum.
    pub rx_max: Option<u32>,
    /// Descriptors of each transmit ring.
    pub tx: Option<u32>,
    /// Its maximum.
    pub tx_max: Option<u32>,
    /// Size of a receive buffer in bytes.
    pub rx_buf_len: Option<u32>,
    /// Header split; see [`DataSplit`].
    pub tcp_data_split: Option<DataSplit>,
    /// Packets up to this many bytes are not split (Linux 6.14).
    pub hds_thresh: Option<u32>,
    pub hds_thresh_max: Option<u32>,
}

/// `enum ethtool_tcp_data_split`: whether headers are received into separate buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DataSplit {
    /// In an answer: the driver does not report it. In a change: the driver chooses.
    Unknown = 0,
    Disabled = 1,
    Enabled = 2,
}

/// Numbers of queues. `None` has the same meaning as in [`Rings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Queues that only receive.
    pub rx: Option<u32>,
    /// Its maximum.
    pub rx_max: Option<u32>,
    /// Queues that only send.
    pub tx: Option<u32>,
    /// Its maximum.
    pub tx_max: Option<u32>,
    pub combined: Option<u32>,
    /// Its maximum.
    pub combined_max: Option<u32>,
}

/// When a device interrupts. `None` has the same meaning as in [`Rings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalescing {
    /// Microseconds to wait after a received packet.
    pub rx_usecs: Option<u32>,
    /// Received packets to wait for.
    pub rx_frames: Option<u32>,
    /// Microseconds to wait after a sent packet.
    pub tx_usecs: Option<u32>,
    /// Sent packets to wait for.
    pub tx_frames: Option<u32>,
    /// Whether the driver adapts to the rate of received packets.
    pub adaptive_rx: Option<bool>,
    /// Whether the driver adapts to the rate of sent packets.
    pub adaptive_tx: Option<bool>,
}

// Messages to the kernel, linux/ethtool_netlink.h; see `netlink::number`.
const RINGS_GET: u8 = 15;
const RINGS_SET: u8 = 16;
const CHANNELS_GET: u8 = 17;
const CHANNELS_SET: u8 = 18;
const COALESCE_GET: u8 = 19;
const COALESCE_SET: u8 = 20;
const QUIET: u32 = HeaderFlags::OmitReply as u32;

impl Netlink {
    /// Returns rings and header split of a device.
    pub fn rings(&mut self, index: u32) -> io::Result<Rings> {
        let mut request = ethtool::Request::new().op_rings_get_do();
        number(&mut request.encode(), RINGS_GET);
        request.encode().nested_header().push_dev_index(index);
        let mut reply = self.socket.request(&request)?;
        let answer = reply.recv_one().map_err(explained)?;
        let split = |code: u8| match code {
            1 => DataSplit::Disabled,
            2 => DataSplit::Enabled,
            _ => DataSplit::Unknown,
        };
        Ok(Rings {
            rx: answer.get_rx().ok(),
            rx_max: answer.get_rx_max().ok(),
            tx: answer.get_tx().ok(),
            tx_max: answer.get_tx_max().ok(),
            rx_buf_len: answer.get_rx_buf_len().ok(),
            tcp_data_split: answer.get_tcp_data_split().ok().map(split),
            hds_thresh: answer.get_hds_thresh().ok(),
            hds_thresh_max: answer.get_hds_thresh_max().ok(),
        })
    }

    /// Changes rings; most drivers stop the device briefly. EINVAL: out of range. A driver may
    /// round a size, so read them back.
    pub fn set_rings(&mut self, index: u32, rings: &Rings) -> io::Result<()> {
        let mut request = ethtool::Request::new().op_rings_set_do();
        number(&mut request.encode(), RINGS_SET);
        let header = request.encode().nested_header().push_dev_index(index).push_flags(QUIET);
        let change = header.end_nested();
        let change = put(change, rings.rx, PushRings::push_rx);
        let change = put(change, rings.tx, PushRings::push_tx);
        let change = put(change, rings.rx_buf_len, PushRings::push_rx_buf_len);
        let split = rings.tcp_data_split.map(|split| split as u8);
        let change = put(change, split, PushRings::push_tcp_data_split);
        let change = put(change, rings.hds_thresh, PushRings::push_hds_thresh);
        drop(change);
        acknowledged(&mut self.socket, &request)
    }

    /// Returns the numbers of queues of a device.
    pub fn channels(&mut self, index: u32) -> io::Result<Channels> {
        let mut request = ethtool::Request::new().op_channels_get_do();
        number(&mut request.encode(), CHANNELS_GET);
        request.encode().nested_header().push_dev_index(index);
        let mut reply = self.socket.request(&request)?;
        let answer = reply.recv_one().map_err(explained)?;
        Ok(Channels {
            rx: answer.get_rx_count().ok(),
            rx_max: answer.get_rx_max().ok(),
            tx: answer.get_tx_count().ok(),
            tx_max: answer.get_tx_max().ok(),
            combined: answer.get_combined_count().ok(),
            combined_max: answer.get_combined_max().ok(),
        })
    }

    /// Changes the numbers of queues. EINVAL: above the maximum, or no queue would receive or send.
    pub fn set_channels(&mut self, index: u32, channels: &Channels) -> io::Result<()> {
        let mut request = ethtool::Request::new().op_channels_set_do();
        number(&mut request.encode(), CHANNELS_SET);
        let header = request.encode().nested_header().push_dev_index(index).push_flags(QUIET);
        let change = header.end_nested();
        let change = put(change, channels.rx, PushChannels::push_rx_count);
        let change = put(change, channels.tx, PushChannels::push_tx_count);
        let change = put(change, channels.combined, PushChannels::push_combined_count);
        drop(change);
        acknowledged(&mut self.socket, &request)
    }

    /// Returns when a device interrupts.
    pub fn coalescing(&mut self, index: u32) -> io::Result<Coalescing> {
        let mut request = ethtool::Request::new().op_coalesce_get_do();
        number(&mut request.encode(), COALESCE_GET);
        request.encode().nested_header().push_dev_index(index);
        let mut reply = self.socket.request(&request)?;
        let answer = reply.recv_one().map_err(explained)?;
        Ok(Coalescing {
            rx_usecs: answer.get_rx_usecs().ok(),
            rx_frames: answer.get_rx_max_frames().ok(),
            tx_usecs: answer.get_tx_usecs().ok(),
            tx_frames: answer.get_tx_max_frames().ok(),
            adaptive_rx: answer.get_use_adaptive_rx().ok().map(|on| on != 0),
            adaptive_tx: answer.get_use_adaptive_tx().ok().map(|on| on != 0),
        })
    }

    /// Changes when a device interrupts. EINVAL: out of range; EOPNOTSUPP: the driver lacks one of
    /// the given parameters.
    pub fn set_coalescing(&mut self, index: u32, coalescing: &Coalescing) -> io::Result<()> {
        let mut request = ethtool::Request::new().op_coalesce_set_do();
        number(&mut request.encode(), COALESCE_SET);
        let header = request.encode().nested_header().push_dev_index(index).push_flags(QUIET);
        let change = header.end_nested();
        let [rx, tx] = [coalescing.adaptive_rx, coalescing.adaptive_tx].map(|on| on.map(u8::from));
        let change = put(change, rx, PushCoalesce::push_use_adaptive_rx);
        let change = put(change, tx, PushCoalesce::push_use_adaptive_tx);
        let change = put(change, coalescing.rx_usecs, PushCoalesce::push_rx_usecs);
        let change = put(change, coalescing.rx_frames, PushCoalesce::push_rx_max_frames);
        let change = put(change, coalescing.tx_usecs, PushCoalesce::push_tx_usecs);
        let change = put(change, coalescing.tx_frames, PushCoalesce::push_tx_max_frames);
        drop(change);
        acknowledged(&mut self.socket, &request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loopback has neither, so each must be refused as unsupported: a wrong command number would
    /// lead to a different answer (EINVAL, or another message).
    #[test]
    fn a_device_without_rings_says_so() {
        let mut netlink = Netlink::new();
        let lo = netlink.link("lo").unwrap().unwrap().index;
        for (what, error) in [
            ("rings", netlink.rings(lo).unwrap_err()),
            ("channels", netlink.channels(lo).unwrap_err()),
            ("coalescing", netlink.coalescing(lo).unwrap_err()),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{what}: {error}");
        }
    }

    /// The values of this machine's device are within its maxima.
    #[test]
    fn the_machines_own_device_is_within_its_limits() {
        let mut netlink = Netlink::new();
        let names = std::fs::read_dir("/sys/class/net").unwrap().flatten();
        for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
            let Ok(Some(link)) = netlink.link(&name) else { continue };
            if let Ok(rings) = netlink.rings(link.index) {
                assert!(rings.rx <= rings.rx_max && rings.tx <= rings.tx_max, "{name}: {rings:?}");
            }
            if let Ok(c) = netlink.channels(link.index) {
                assert!(c.combined <= c.combined_max && c.rx <= c.rx_max, "{name}: {c:?}");
            }
        }
    }
}
