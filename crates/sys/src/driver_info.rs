//! What the driver of a network device reports about itself and the NIC's firmware:
//! `ETHTOOL_GDRVINFO` (linux/ethtool.h, `struct ethtool_drvinfo`), which ethtool's netlink family
//! lacks.

use super::bytes;
use super::interface_request::{Ethtool, words};
use std::io;

/// `ETHTOOL_GDRVINFO`.
const GDRVINFO: u32 = 3;

/// Bytes of the structure: the command, five texts, 12 reserved bytes, five numbers.
const SIZE: usize = 4 + 5 * TEXT + 12 + 5 * 4;

/// Bytes of each text (`ETHTOOL_FWVERS_LEN` and the like).
const TEXT: usize = 32;

/// A driver's information about itself; `None` for texts that it leaves empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    pub driver: Option<String>,
    /// Its version; drivers in the kernel tree report the kernel's.
    pub version: Option<String>,
    /// Version of the NIC's firmware.
    pub firmware: Option<String>,
}

/// Queries the driver of a device. EOPNOTSUPP: it reports nothing. ENODEV: no such device.
pub fn driver_info(device: &str) -> io::Result<DriverInfo> {
    let mut data = words(&[GDRVINFO]);
    data.resize(SIZE, 0);
    // SAFETY: the answer to the command is the structure, for which there is room.
    unsafe { Ethtool::open(device)?.ask(&mut data)? };
    Ok(read(&data))
}

fn read(data: &[u8]) -> DriverInfo {
    let text = |at: usize| {
        let bytes = data.get(4 + at * TEXT..4 + (at + 1) * TEXT)?;
        let text = bytes::text(bytes).trim().to_owned();
        (!matches!(text.as_str(), "" | "N/A")).then_some(text)
    };
    DriverInfo { driver: text(0), version: text(1), firmware: text(2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_at_a_zero_or_with_their_field() {
        let mut data = vec![0; SIZE];
        data[4..13].copy_from_slice(b"mlx5_core");
        data[4 + TEXT..4 + 2 * TEXT].fill(b'9');
        data[4 + 2 * TEXT..4 + 2 * TEXT + 4].copy_from_slice(b"N/A\0");
        let info = read(&data);
        assert_eq!(info.driver.as_deref(), Some("mlx5_core"));
        assert_eq!(info.version.map(|text| text.len()), Some(TEXT));
        assert_eq!(info.firmware, None);
        assert_eq!(read(&[]), DriverInfo::default());
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        assert!(driver_info("no-such-dev").is_err());
        assert!(driver_info("").is_err());
    }
}
