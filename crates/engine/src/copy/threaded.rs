//! A helper thread on another core, which takes copies from a lock-free ring.

use super::{Copy, Counter, Engine, EngineKind, Events, Place, Shape, helper, pause};
use bytepath_record::{Fault, OptionKind, OptionSpec};
use bytepath_sys::copying::Method;
use bytepath_sys::idxd::Memories;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

pub(super) static KIND: EngineKind = EngineKind {
    name: "thread",
    summary: "a helper core, through a lock-free ring",
    options: &[OptionSpec::new("cpu", OptionKind::WordCount("auto", 0, 4095), "auto").help(
        "CPU that the helper is pinned to; auto leaves it to the scheduler, away from the caller's",
    )],
    open: |memories, shape, options| {
        let cpu = options.number("cpu").and_then(|cpu| u32::try_from(cpu).ok());
        Ok(Box::new(Helper::start(memories, shape, cpu)?))
    },
};

/// A copy in the ring: both memories, both offsets, and the length.
#[derive(Default)]
struct Slot([AtomicU64; 4]);

struct Ring {
    slots: Vec<Slot>,
    /// Number of copies handed over.
    head: Counter,
    /// Number of completed copies.
    tail: Counter,
    stop: AtomicBool,
}

struct Helper {
    memories: Memories,
    ring: Arc<Ring>,
    thread: Option<JoinHandle<()>>,
    /// Number of copies submitted; those held back for a batch are not in `head` yet.
    submitted: u64,
    batch: u64,
    events: Events,
}

impl Helper {
    fn start(memories: &Memories, shape: Shape, cpu: Option<u32>) -> Result<Helper, Fault> {
        let ring = Arc::new(Ring {
            slots: (0..shape.depth).map(|_| Slot::default()).collect(),
            head: Counter::default(),
            tail: Counter::default(),
            stop: AtomicBool::new(false),
        });
        let (theirs, shared) = (memories.clone(), Arc::clone(&ring));
        let thread = helper("copy", cpu, move || shared.serve(&theirs))?;
        let batch = shape.batch as u64;
        let events = Events::default();
        let memories = memories.clone();
        Ok(Helper { memories, ring, thread: Some(thread), submitted: 0, batch, events })
    }
}

impl Ring {
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number % self.slots.len() as u64) as usize]
    }

    fn serve(&self, memories: &Memories) {
        let mut done = 0;
        let mut idle = 0_u32;
        loop {
            // Read before `head`, so that copies handed over before the stop are still made.
            let stopped = self.stop.load(Ordering::Acquire);
            let head = self.head.shown();
            if done == head {
                if stopped {
                    return;
                }
                idle = idle.saturating_add(1);
                pause(idle);
                continue;
            }
            idle = 0;
            while done < head {
                let [places, from, to, len] =
                    self.slot(done).0.each_ref().map(|word| word.load(Ordering::Relaxed) as usize);
                let place = |memory, at| Place { memory, at }.of(memories);
                let (from, to) = (place(places >> 32, from), place(places & 0xffff_ffff, to));
                Method::Memmove.copy(from, to, len);
                done += 1;
                self.tail.show(done);
            }
        }
    }
}

impl Engine for Helper {
    fn submit(&mut self, copy: &Copy) -> Result<bool, Fault> {
        let done = self.ring.tail.shown();
        if self.submitted - done >= self.ring.slots.len() as u64 {
            return Ok(false);
        }
        let Copy { from, to, len } = *copy;
        // Panics here, in the caller, for an invalid place, rather than in the helper.
        for place in [from, to] {
            place.address(&self.memories, len as usize);
        }
        let places = (from.memory as u64) << 32 | to.memory as u64;
        let words = [places, from.at as u64, to.at as u64, len.into()];
        for (word, value) in self.ring.slot(self.submitted).0.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.submitted += 1;
        if self.submitted - self.ring.head.own() >= self.batch {
            self.flush()?;
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        let before = self.ring.head.own();
        self.events.batches += u64::from(self.submitted > before + 1);
        self.ring.head.show(self.submitted);
        Ok(())
    }

    fn poll(&mut self) -> Result<u64, Fault> {
        Ok(self.ring.tail.shown())
    }

    fn events(&self) -> Events {
        self.events
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.flush();
        self.ring.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
