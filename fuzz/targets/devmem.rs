//! Control messages as recvmsg(2) leaves them, and the accounting of their tokens against a kernel
//! that frees any number of them per call: no token is lost, none is returned twice, and it
//! terminates.

use bytepath::sys::devmem::message::encode;
use bytepath::sys::devmem::{Arrived, Control, Fragment, Freer, Held, TokenRange, fragments};
use std::collections::HashMap;
use std::io;

/// A kernel that keeps count of each token it has lent.
struct Kernel<'a> {
    out: HashMap<u32, u32>,
    /// The most that each call frees, repeated cyclically.
    most: &'a [u8],
    call: usize,
}

impl Freer for Kernel<'_> {
    fn free(&mut self, ranges: &[TokenRange]) -> io::Result<usize> {
        assert!(ranges.len() <= 128);
        let asked: u32 = ranges.iter().map(|range| range.count).sum();
        assert!((1..=1024).contains(&asked));
        let most = self.most.get(self.call % self.most.len().max(1)).copied().unwrap_or(1);
        self.call += 1;
        let most = usize::from(most.max(1));
        let tokens =
            ranges.iter().flat_map(|r| (0..r.count).map(|i| r.start.checked_add(i).unwrap()));
        let mut freed = 0;
        for token in tokens.take(most) {
            let out = self.out.get_mut(&token).expect("a token that was never dealt out");
            *out = out.checked_sub(1).expect("a token that was freed twice");
            freed += 1;
        }
        Ok(freed)
    }
}

pub fn check(data: &[u8]) {
    let Some((&split, rest)) = data.split_first() else { return };
    let (most, messages) = rest.split_at(rest.len().min(usize::from(split)));

    // By way of the buffer that receives use, as far as it has room.
    let mut control = Control::new(64);
    control.fill(messages);
    let good: Vec<Fragment> = fragments(control.bytes()).map_while(Result::ok).collect();
    assert!(good.len() <= 64 * 3);

    // What was decoded decodes to the same when it is encoded again.
    let mut again = Vec::new();
    encode(&good, &mut again);
    assert!(fragments(&again).eq(good.iter().copied().map(Ok)));

    let mut held = Held::with_room(16);
    let mut kernel = Kernel { out: HashMap::new(), most, call: 0 };
    for fragment in &good {
        if let Fragment::Dmabuf { token, .. } = fragment {
            *kernel.out.entry(*token).or_default() += 1;
        }
    }
    for arrived in control.arrived().map_while(Result::ok) {
        if let Arrived::Lent(lent) = arrived {
            held.take(lent);
        }
    }
    assert_eq!(control.arrived().count(), 0, "each is handed out once");
    while !held.is_empty() {
        let before = held.len();
        held.give_back(&mut kernel).unwrap();
        assert!(held.len() < before);
    }
    assert!(kernel.out.values().all(|out| *out == 0));
}
