//! Programs at the beginning and the end of a wait for a lock.
//!
//! A wait is identified by the waiting task and the lock: an interrupt in the middle of a wait may
//! wait for another lock, which gets its own entry. It cannot wait for the same lock, which would
//! be a deadlock. Only a mutex begins waiting twice without an end in between: when it goes from
//! spinning to sleeping, or back (`__mutex_lock_common`, kernel/locking/mutex.c).
//!
//! Above each program is the C that it stands for, with these types and the functions of
//! `tallies`:
//!
//! ```c
//! struct who { struct task_struct *task; void *lock; };
//! struct key { u32 what; s32 stack; u64 place; };
//! struct wait { u64 since; struct key key; };
//! ```

use crate::bpf;
use crate::tallies::{Maps, Task, key};
use Reg::*;
use bytepath_sys::bpf::asm::{Alu, AsmError, Assembler, Helper, If, Insn, Reg, Size};
use bytepath_sys::bpf::{Map, Update};
use std::ops::Range;

/// Flags of a kind of wait: the kernel's (`LCB_F_*`, trace/events/lock.h) and one of ours.
pub(super) mod flag {
    /// The CPU does nothing else meanwhile.
    pub(crate) const SPIN: u32 = 1 << 0;
    pub(crate) const READ: u32 = 1 << 1;
    pub(crate) const WRITE: u32 = 1 << 2;
    /// A lock of `CONFIG_PREEMPT_RT`, or a futex with priority inheritance.
    pub(crate) const RT: u32 = 1 << 3;
    /// A lock that readers take on their own CPU.
    pub(crate) const PERCPU: u32 = 1 << 4;
    pub(crate) const MUTEX: u32 = 1 << 5;
    /// The wait of another program.
    pub(crate) const FOREIGN: u32 = 1 << 16;
}

/// A wait in progress; offsets in bytes.
pub(super) mod wait {
    /// Start of the wait, in ns of the monotonic clock.
    pub(crate) const SINCE: i16 = 0;
    /// The key of the tally that its time is added to.
    pub(crate) const KEY: i16 = 8;
    /// Size of the whole.
    pub(crate) const SIZE: usize = 24;
    /// Size of its key: task and lock.
    pub(crate) const KEY_SIZE: usize = 16;
}

/// The programs, which are written for one machine.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    /// Tells whose wait it is.
    pub task: Task,
    /// The maps that they add to.
    pub maps: &'a Maps,
    /// [`wait`] by task and lock.
    pub waits: &'a Map,
    /// Addresses of locks that have a name.
    pub named: Range<u64>,
}

// Offsets on the program's stack.
const WHO: i16 = -16;
const WAIT: i16 = WHO - wait::SIZE as i16;
const SUM: i16 = WAIT - key::SIZE;
const SCRATCH: i16 = SUM - 16;

impl Programs<'_> {
    /// ```c
    /// int contention_begin(void *lock, unsigned int flags)
    /// {
    ///         struct who who = { bpf_get_current_task_btf(), lock };
    ///         struct wait new, *old = bpf_map_lookup_elem(&waits, &who);
    ///
    ///         /* Of another kind it is a wait whose end was missed. */
    ///         if (old && old->key.what & MUTEX)
    ///                 charge(old);
    ///         new.key.what = is_own(who.task) ? flags : flags | FOREIGN;
    ///         new.key.stack = flags & SPIN ? sampled_stack(context) : stack(context);
    ///         new.key.place = lock >= NAMED_START && lock < NAMED_END ? lock : 0;
    ///         /* Last, so that this program's own time does not count as waiting. */
    ///         new.since = bpf_ktime_get_ns();
    ///         if (bpf_map_update_elem(&waits, &who, &new, BPF_ANY))
    ///                 count_lost();
    ///         return 0;
    /// }
    /// ```
    pub(super) fn begin(&self) -> Result<Vec<Insn>, AsmError> {
        bpf::program(|a| {
            a.mov(R6, R1).load(Size::Double, R8, R6, 8);
            self.store_wait_key(a);
            bpf::lookup(a, self.waits, WHO);
            a.jump_if(If::Eq, R0, 0, "new").mov(R9, R0);
            a.load(Size::Word, R1, R9, wait::KEY + key::WHAT);
            a.alu(Alu::And, R1, flag::MUTEX as i32).jump_if(If::Eq, R1, 0, "new");
            self.charge(a);
            a.label("new");
            a.call(Helper::GetCurrentTaskBtf).mov(R1, R0).mov(R7, R8);
            self.task.is_own(a, R1, "own");
            a.alu(Alu::Or, R7, flag::FOREIGN as i32).label("own");
            a.store(Size::Word, R10, WAIT + wait::KEY + key::WHAT, R7);
            a.jump_if(If::Set, R8, flag::SPIN as i32, "spins");
            self.maps.stack(a, R6);
            a.jump("known").label("spins");
            self.maps.sampled_stack(a, R6);
            a.label("known").store(Size::Word, R10, WAIT + wait::KEY + key::STACK, R0);
            a.load(Size::Double, R1, R6, 0);
            a.wide(R2, self.named.start).jump_if(If::Lt, R1, R2, "nameless");
            a.wide(R2, self.named.end).jump_if(If::Lt, R1, R2, "named");
            a.label("nameless").mov(R1, 0).label("named");
            a.store(Size::Double, R10, WAIT + wait::KEY + key::PLACE, R1);
            a.call(Helper::KtimeGetNs).store(Size::Double, R10, WAIT + wait::SINCE, R0);
            bpf::update(a, self.waits, WHO, WAIT, Update::Any);
            a.jump_if(If::Eq, R0, 0, "out");
            self.maps.count_lost(a, SCRATCH, "out");
        })
    }

    /// ```c
    /// int contention_end(void *lock, int ret)
    /// {
    ///         struct who who = { bpf_get_current_task_btf(), lock };
    ///         struct wait *wait = bpf_map_lookup_elem(&waits, &who);
    ///
    ///         if (wait) {
    ///                 charge(wait);
    ///                 bpf_map_delete_elem(&waits, &who);
    ///         }
    ///         return 0;
    /// }
    /// ```
    pub(super) fn end(&self) -> Result<Vec<Insn>, AsmError> {
        bpf::program(|a| {
            a.mov(R6, R1);
            self.store_wait_key(a);
            bpf::lookup(a, self.waits, WHO);
            a.jump_if(If::Eq, R0, 0, "out").mov(R9, R0);
            self.charge(a);
            bpf::delete(a, self.waits, WHO);
        })
    }

    /// Puts the key of this task's wait on the stack, with the lock from the context in `R6`.
    /// Changes R0 to R5.
    fn store_wait_key(&self, a: &mut Assembler) {
        a.call(Helper::GetCurrentTaskBtf).store(Size::Double, R10, WHO, R0);
        a.load(Size::Double, R1, R6, 0).store(Size::Double, R10, WHO + 8, R1);
    }

    /// Adds the time of the wait in `R9` to its entry. Changes R0 to R5 and R7.
    ///
    /// ```c
    /// add(&wait->key, bpf_ktime_get_ns() - wait->since);
    /// ```
    fn charge(&self, a: &mut Assembler) {
        a.call(Helper::KtimeGetNs).mov(R7, R0).load(Size::Double, R1, R9, wait::SINCE);
        a.alu(Alu::Sub, R7, R1);
        for at in (0..key::SIZE).step_by(8) {
            a.load(Size::Double, R1, R9, wait::KEY + at).store(Size::Double, R10, SUM + at, R1);
        }
        self.maps.add(a, SUM, SCRATCH, "wait");
    }
}
