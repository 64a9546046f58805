//! What threads say to each other by atomics, in every order and with every value that the memory
//! model allows: loom runs the very files of the program with atomics of its own.

#[path = "../../src/copy/counter.rs"]
mod counter;
#[path = "../../src/workload/gate.rs"]
#[allow(dead_code, reason = "the program has more phases")]
mod gate;

/// What these files use, as loom has it.
mod sync {
    pub use loom::sync::{Condvar, Mutex, atomic};
    pub use std::sync::PoisonError;
}

use counter::Counter;
use gate::{Gate, Phase, Progress};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

#[test]
fn no_one_who_is_held_misses_that_it_goes_on() {
    loom::model(|| {
        let gate = Arc::new(Gate::default());
        gate.set(Phase::Hold);
        let held = [(); 2].map(|()| {
            let gate = gate.clone();
            thread::spawn(move || gate.wait())
        });
        gate.set(Phase::Stop);
        held.map(|engine| assert_eq!(engine.join().unwrap(), Phase::Stop));
    });
}

#[test]
fn who_sees_a_phase_noticed_sees_what_was_counted_before() {
    loom::model(|| {
        let progress = Arc::new(Progress::default());
        let engine = progress.clone();
        let engine = thread::spawn(move || {
            engine.publish(7);
            engine.notice(Phase::Drain);
        });
        if progress.has_noticed(Phase::Drain) {
            assert_eq!(progress.total(), 7);
        }
        engine.join().unwrap();
    });
}

/// The FIFO without a lock and the ring of the helper thread: the writer fills what the reader has
/// shown as taken, and the reader takes what the writer has shown as filled.
#[test]
fn what_two_counters_hand_over_is_whole() {
    const SLOTS: usize = 2;
    const NUMBERS: u64 = 4;
    loom::model(|| {
        let ring = Arc::new((
            [(); SLOTS].map(|()| AtomicU64::new(0)),
            [(); 2].map(|()| Counter::default()),
        ));
        let writers = ring.clone();
        let writer = thread::spawn(move || {
            let (slots, [written, taken]) = &*writers;
            for number in 0..NUMBERS {
                while number - taken.shown() >= SLOTS as u64 {
                    thread::yield_now();
                }
                // What is not published yet may come in any order.
                slots[number as usize % SLOTS].store(100 + number, Ordering::Relaxed);
                written.show(number + 1);
                assert_eq!(written.own(), number + 1);
            }
        });
        let (slots, [written, taken]) = &*ring;
        for number in 0..NUMBERS {
            while written.shown() <= number {
                thread::yield_now();
            }
            let found = slots[number as usize % SLOTS].load(Ordering::Relaxed);
            assert_eq!(found, 100 + number);
            taken.show(number + 1);
        }
        writer.join().unwrap();
    });
}
