//! Completions of a zero-copy receive with any numbers: a piece within the area or something else,
//! without a panic; and every buffer goes back once, in order.

use bytepath::sys::uring::zcrx::{DecodedCompletion, Owed, RawCompletion, Reader};

pub fn check(data: &[u8]) {
    let Some((head, mut rest)) = data.split_first_chunk::<24>() else { return };
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let area = usize::try_from(number(&head[..8]) % (1 << 40)).expect("64 bits");
    let reader = Reader { area, token: number(&head[8..16]) };
    let (batch, most) = (usize::from(head[16]), usize::from(head[17]));
    let mut owed = Owed::new(reader, batch, most);
    let (mut lent, mut back) = (Vec::new(), Vec::new());
    // Each completion is followed by a byte with the number of buffers returned after it.
    while let Some((entry, tail)) = rest.split_first_chunk::<25>() {
        rest = tail;
        let four = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four"));
        let completion = RawCompletion {
            data: u64::from(entry[0] % 3),
            result: four(8) as i32,
            flags: four(12),
            off: number(&entry[16..24]),
        };
        if let DecodedCompletion::Bytes(piece) = reader.read(&completion) {
            assert!(piece.len > 0 && piece.at.checked_add(piece.len).is_some_and(|e| e <= area));
            let entry = reader.entry(piece);
            assert_eq!((entry.off, entry.len as usize), (completion.off, piece.len));
            if owed.lend(piece) {
                lent.push(entry);
            } else {
                assert!(owed.is_full());
            }
        }
        let count = usize::from(entry[24]).min(owed.returning().len());
        back.extend_from_slice(&owed.returning()[..count]);
        owed.mark_returned(count);
    }
    owed.retire();
    back.extend_from_slice(owed.returning());
    assert_eq!(lent, back);
}
