//! How threads communicate by atomics, in every order and with every value that the memory model
//! allows: loom runs the program's own source files with its atomics.

#[path = "../../crates/engine/src/copy/counter.rs"]
mod counter;
#[path = "../../crates/engine/src/workload/gate.rs"]
#[allow(dead_code, reason = "the program has more phases")]
mod gate;

/// What these files import, in loom's version.
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
        assert_eq!(held.map(|engine| engine.join().unwrap()), [Phase::Stop; 2]);
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

/// The lock-free FIFO and the ring of the helper thread: the writer fills what the reader has
/// published as taken, and the reader takes what the writer has published as filled.
#[test]
fn what_two_counters_hand_over_is_whole() {
    const ROUNDS: u64 = 3;
    loom::model(|| {
        // One slot, so that the next write replaces what was taken.
        let ring = Arc::new((AtomicU64::new(0), Counter::default(), Counter::default()));
        let writers = ring.clone();
        let writer = thread::spawn(move || {
            let (slot, written, taken) = &*writers;
            for _ in 0..ROUNDS {
                let number = written.own();
                if taken.shown() == number {
                    // Stores before the publication may come in any order.
                    slot.store(100 + number, Ordering::Relaxed);
                    written.show(number + 1);
                }
            }
        });
        let (slot, written, taken) = &*ring;
        for _ in 0..ROUNDS {
            let number = taken.own();
            if written.shown() > number {
                assert_eq!(slot.load(Ordering::Relaxed), 100 + number);
                taken.show(number + 1);
            }
        }
        writer.join().unwrap();
    });
}
