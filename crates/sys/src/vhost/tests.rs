//! A real worker on a real tap; skipped, with a report, if the kernel has no vhost-net.

use super::*;
use crate::netlink::Netlink;
use crate::tap::Tap;
use crate::test_net::{PROTOCOL, Port, apart, frame};
use crate::{tap, thread};
use bytepath_testing::skip;

const SHAPE: Shape = Shape { entries: 256, buffer: 2048, mergeable: true };
const TIMEOUT: Duration = Duration::from_secs(5);

/// A tap that is up, in the calling thread's own network namespace.
struct Bed {
    queue: OwnedFd,
    index: u32,
}

/// `None`, with the reason printed, if this kernel has no vhost-net or we may not make a tap.
fn bed(flags: u32) -> Option<Bed> {
    features().map_err(|e| skip!("{DEVICE}: {e}")).ok()?;
    apart()?;
    let queue = tap::make(&Tap::new("frames", 7, 1, flags).unwrap()).unwrap().remove(0);
    Netlink::new().set_up(7).unwrap();
    Some(Bed { queue, index: 7 })
}

/// Collects frames that the test sent, each as one piece.
fn taken(receiver: &mut Receiver, wanted: usize) -> Vec<Vec<u8>> {
    let (mut all, mut one) = (Vec::new(), Vec::new());
    while all.len() < wanted && receiver.wait(TIMEOUT).unwrap() {
        let visit = |piece: Piece| {
            one.extend_from_slice(piece.bytes);
            if piece.ends {
                all.push(std::mem::take(&mut one));
            }
        };
        receiver.take(64, visit).unwrap();
        // Frames that the kernel sends on its own are dropped.
        all.retain(|frame: &Vec<u8>| frame[12..14] == PROTOCOL);
    }
    all
}

#[test]
fn frames_of_a_tap_arrive_whole_and_in_order() {
    for flags in [0, tap::VNET_HDR] {
        let Some(bed) = bed(flags) else { return };
        // A frame of 1514 bytes takes three of the small buffers.
        for buffer in [2048, 600] {
            let mut receiver = Receiver::new(bed.queue.as_fd(), Shape { buffer, ..SHAPE }).unwrap();
            let sender = Port::of(bed.index);
            let mut sent = 0;
            for _ in 0..40 {
                let batch: Vec<_> =
                    (0..25).map(|n| frame(sent + n, 60 + 97 * n as usize % 1455)).collect();
                batch.iter().for_each(|frame| sender.send(frame));
                sent += 25;
                assert_eq!(taken(&mut receiver, 25), batch, "{flags:#x} {buffer}");
            }
            let counts = receiver.counts;
            assert!(counts.batches > 0 && counts.sleeps > 0, "{counts:?}");
        }
    }
}

#[test]
fn a_ring_left_full_holds_its_frames_until_they_are_taken() {
    let Some(bed) = bed(0) else { return };
    let mut receiver = Receiver::new(bed.queue.as_fd(), SHAPE).unwrap();
    let sender = Port::of(bed.index);
    (0..400).for_each(|n| sender.send(&frame(n, 60)));
    while receiver.waiting() < SHAPE.entries {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The other frames wait in the tap.
    let all = taken(&mut receiver, 400);
    assert_eq!((all.len(), receiver.counts.kicks > 0), (400, true));
    assert_eq!(all.last().unwrap()[14..18], 399u32.to_be_bytes());
}

#[test]
fn the_worker_is_found_and_can_be_pinned() {
    let Some(bed) = bed(0) else { return };
    let receiver = Receiver::new(bed.queue.as_fd(), SHAPE).unwrap();
    let worker = receiver.worker.expect("a worker was started");
    let cpu = thread::allowed().unwrap()[0];
    thread::pin_other(worker, cpu).unwrap();
    assert!(is_there(worker));
    drop(receiver);
    assert!(!is_there(worker), "the worker outlives its device");
    assert_eq!(thread::pin_other(worker, cpu).unwrap_err().raw_os_error(), Some(libc::ESRCH));
}

#[test]
fn a_tap_that_vanishes_is_named() {
    let Some(bed) = bed(0) else { return };
    let mut receiver = Receiver::new(bed.queue.as_fd(), SHAPE).unwrap();
    assert!(!receiver.wait(Duration::from_millis(1)).unwrap());
    Netlink::new().delete_link(bed.index).unwrap();
    let trouble = receiver.wait(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(trouble, Trouble::DeviceGone), "{trouble}");
}

#[test]
fn what_is_not_a_tap_is_refused() {
    let Some(_bed) = bed(0) else { return };
    let file = tempfile::tempfile().unwrap();
    let refused = Receiver::new(file.as_fd(), SHAPE).unwrap_err();
    assert_eq!(refused.step, Step::Backend, "{refused}");
}
