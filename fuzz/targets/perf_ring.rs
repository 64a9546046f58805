//! A ring of the kernel's with any bytes and any positions: spans or an error, records or an error,
//! without a panic; and splitting a ring in two changes nothing.

use bytepath::sys::perf::{Record, records, spans};

pub fn check(data: &[u8]) {
    let Some((positions, bytes)) = data.split_first_chunk::<16>() else { return };
    let [tail, head] = [&positions[..8], &positions[8..]]
        .map(|half| u64::from_le_bytes(half.try_into().expect("eight bytes")));
    // Whatever the positions are, spans stay within the ring and are no longer than it is.
    for size in [bytes.len(), 64, 4096] {
        if let Ok((first, second)) = spans(tail, head, size) {
            assert!(first.end <= size && second.end <= size);
            assert_eq!((first.len() + second.len()) as u64, head.wrapping_sub(tail));
            assert!(second.is_empty() || (first.end == size && second.end <= first.start));
        }
    }
    // The bytes as a stream of records: reading them twice yields the same, each address of a call
    // chain comes from the record, and an error is the last item.
    let mut ended = false;
    for record in records(bytes) {
        assert!(!ended, "a record after an error");
        match record {
            Ok(Record::Sample(sample)) => {
                assert!(sample.chain.calls().count() * 8 <= bytes.len());
            }
            Ok(Record::Comm(_, name, _)) => assert!(name.len() <= bytes.len()),
            Ok(Record::Mmap(map)) => assert!(!map.path.contains(&0)),
            Ok(_) => {}
            Err(error) => {
                assert!(error.at < bytes.len());
                ended = true;
            }
        }
    }
    // The same records laid across the end of a ring are read as the same.
    let size = bytes.len().next_power_of_two().max(8);
    let start = (tail % size as u64) as usize;
    let mut ring = vec![0u8; size];
    for (at, byte) in bytes.iter().enumerate() {
        ring[(start + at) % size] = *byte;
    }
    let begin = start as u64;
    let (first, second) = spans(begin, begin + bytes.len() as u64, size).expect("it fits");
    let again = [&ring[first], &ring[second]].concat();
    assert_eq!(again, bytes);
}
