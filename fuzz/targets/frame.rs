//! Ethernet frames from a network, as the user-space TCP reads them: what is found lies within
//! the frame, and what is written there is found again.

use bytepath::connection::userspace::Tcp;

pub fn check(data: &[u8]) {
    let Some(tcp) = Tcp::of(data) else { return };
    assert!(tcp.header < tcp.payload && tcp.payload <= tcp.end && tcp.end <= data.len());
    let _ = (tcp.shows_a_gap(data), tcp.is_intact(data), tcp.only_acknowledges());
    let mut frame = data.to_vec();
    tcp.begin_checksum(&mut frame);
    let size = tcp.segment_size(&frame);
    tcp.set_segment_size(&mut frame, 1234);
    assert_eq!(tcp.segment_size(&frame), size.map(|_| 1234));
}
