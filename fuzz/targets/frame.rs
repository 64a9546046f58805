//! Input from a network. Ethernet frames, as the user-space TCP reads them: what is found lies
//! within the frame, and what is written is found again. The same as read by the sink of packets:
//! one or several of its frames, or foreign ones. TLS records: what was sealed can be opened, and
//! nothing else can.

use bytepath::connection::records::{self, LARGEST, OVERHEAD, Opener, Sealer};
use bytepath::connection::userspace::Tcp;
use bytepath::record::Touch;
use bytepath::sys::ktls::Key;
use bytepath::workload::{FrameInspector, FramePlan};
use std::cell::RefCell;

const KEY: Key = Key { key: [7; 16], iv: [9; 12] };

thread_local! {
    /// Each has a payload of 1 MiB to compare with.
    static TAKEN: RefCell<[FrameInspector; 2]> = RefCell::new(
        [0, FrameInspector::VNET_HEADER].map(|before| FrameInspector::new(Touch::Verify, before))
    );
}

pub fn check(data: &[u8]) {
    if let Some(tcp) = Tcp::of(data) {
        assert!(tcp.header < tcp.payload && tcp.payload <= tcp.end && tcp.end <= data.len());
        let _ = (tcp.shows_a_gap(data), tcp.is_intact(data), tcp.only_acknowledges());
        let mut frame = data.to_vec();
        tcp.begin_checksum(&mut frame);
        let size = tcp.segment_size(&frame);
        tcp.set_segment_size(&mut frame, 1234);
        assert_eq!(tcp.segment_size(&frame), size.map(|_| 1234));
    }
    TAKEN.with_borrow_mut(|all| all.iter_mut().for_each(|taken| packets(data, taken)));
    if records::supported() {
        record(data);
    }
}

fn packets(data: &[u8], taken: &mut FrameInspector) {
    if let Ok(Some(seen)) = taken.inspect(data) {
        assert!((1..=data.len() as u64).contains(&seen.frames));
        assert!(seen.bytes >= seen.frames * FramePlan::HEADERS as u64);
    }
}

fn record(data: &[u8]) {
    assert!(!matches!(Opener::new(&KEY).open(&mut data.to_vec()), Ok(Some(_))), "it has our tag");
    let Some((place, rest)) = data.split_first_chunk() else { return };
    let plain = &rest[..rest.len().min(LARGEST)];
    let mut sealed = vec![0; plain.len() + OVERHEAD];
    let len = Sealer::new(&KEY).seal(plain, &mut sealed);
    let mut changed = sealed.clone();
    assert_eq!(Opener::new(&KEY).open(&mut sealed), Ok(Some((plain, len))));
    changed[usize::from(u16::from_le_bytes(*place)) % len] ^= 1;
    assert!(!matches!(Opener::new(&KEY).open(&mut changed), Ok(Some(_))), "a changed record");
}
