//! Real sockets on a veth pair in the test's own namespace; skipped, with a report, if there is
//! none.

use super::*;
use crate::bpf::xdp::{Mode, Redirector};
use crate::test_net::{MARK, Port, frame, pair};
use bytepath_testing::skip;

const TIMEOUT: Duration = Duration::from_millis(500);
const ENTRIES: u32 = 64;

/// Returns a socket that receives at one end of a pair, and the index of the other.
fn receiving() -> Option<(Redirector, Receiver, u32)> {
    let [one, other] = pair()?;
    let receiver = Receiver::bind(other, 0, ENTRIES, Binding::Auto);
    let receiver = receiver.map_err(|e| skip!("no AF_XDP: {e}")).ok()?;
    let redirector = Redirector::attach(other, MARK, 1, Mode::Native);
    let redirector = redirector.map_err(|refused| skip!("no XDP: {refused}")).ok()?;
    redirector.serve(0, receiver.as_fd()).unwrap();
    Some((redirector, receiver, one))
}

fn taken(receiver: &mut Receiver, wanted: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while all.len() < wanted && wait_for_any(std::slice::from_ref(receiver), TIMEOUT).unwrap() {
        receiver.take(7, |frame| all.push(frame.to_vec())).unwrap();
    }
    all
}

/// Many more frames than the ring has entries.
#[test]
fn frames_arrive_whole_and_in_order() {
    let Some((_redirector, mut receiver, one)) = receiving() else { return };
    // A veth has no zero-copy.
    assert_eq!(receiver.binding(), Binding::Copy);
    let sender = Port::of(one);
    for turn in 0..20 {
        let batch: Vec<_> = (0..50).map(|n| frame(50 * turn + n, 60 + 29 * n as usize)).collect();
        batch.iter().for_each(|frame| sender.send(frame));
        assert_eq!(taken(&mut receiver, 50), batch, "turn {turn}");
    }
    assert_eq!(receiver.lost().unwrap(), Lost::default());
}

#[test]
fn what_does_not_fit_into_the_ring_is_lost_and_counted() {
    let Some((_redirector, mut receiver, one)) = receiving() else { return };
    let sender = Port::of(one);
    // Fewer at a time than a veth's own ring holds.
    (0..200).for_each(|n| sender.send(&frame(n, 60)));
    std::thread::sleep(TIMEOUT);
    let all = taken(&mut receiver, 200);
    let lost = receiver.lost().unwrap();
    assert_eq!(all.len() as u64 + lost.dropped + lost.ring_full, 200, "{lost:?}");
    assert_eq!((all.len(), &all[63]), (64, &frame(63, 60)), "the first ones were kept");
}

#[test]
fn a_sender_sends_its_frames_again_and_again_and_counts_them() {
    let Some([one, other]) = pair() else { return };
    let frames = [frame(0, 60), frame(1, 300), frame(2, 1514)];
    let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let mut sender = match Sender::bind(one, 0, ENTRIES, Binding::Copy, &slices) {
        Ok(sender) => sender,
        Err(e) => return skip!("no AF_XDP: {e}"),
    };
    let receiver = Port::of(other);
    let (mut completed, mut bytes, mut seen) = (0, 0, 0);
    for _ in 0..40 {
        let sent = sender.send(7).unwrap();
        assert!(!sent.dropped, "{sent:?}");
        (completed, bytes) = (completed + sent.completed, bytes + sent.bytes);
        for _ in 0..7 {
            assert_eq!(receiver.receive().unwrap(), frames[seen % 3], "frame {seen}");
            seen += 1;
        }
    }
    while sender.under_way() > 0 {
        let sent = sender.send(0).unwrap();
        (completed, bytes) = (completed + sent.completed, bytes + sent.bytes);
    }
    assert_eq!(bytes, 93 * (60 + 300 + 1514) + 60);
    assert_eq!((completed, seen, receiver.receive()), (280, 280, None));
    assert!(sender.wakes() >= 40);
}

#[test]
fn what_cannot_be_bound_is_refused() {
    let Some([one, _]) = pair() else { return };
    let bind = |queue, entries, binding| Receiver::bind(one, queue, entries, binding);
    let _first = match bind(0, ENTRIES, Binding::Copy) {
        Ok(first) => first,
        Err(e) => return skip!("no AF_XDP: {e}"),
    };
    let code = |result: io::Result<Receiver>| result.unwrap_err().raw_os_error();
    assert_eq!(code(bind(0, ENTRIES, Binding::Copy)), Some(libc::EBUSY));
    assert_eq!(code(bind(9, ENTRIES, Binding::Copy)), Some(libc::EINVAL));
    assert_eq!(code(bind(0, 100, Binding::Copy)), Some(libc::EINVAL));
    assert_eq!(code(bind(0, 64, Binding::ZeroCopy)), Some(libc::EBUSY));
    let large = vec![0; FRAME + 1];
    let none = Sender::bind(one, 0, ENTRIES, Binding::Copy, &[&large]).unwrap_err();
    assert_eq!(none.raw_os_error(), Some(libc::EINVAL));
}
