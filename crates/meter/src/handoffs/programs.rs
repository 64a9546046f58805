//! Programs that count work handed from one CPU to another.
//!
//! Above each program is the C that it stands for, with these types and the functions of
//! `tallies`:
//!
//! ```c
//! struct key { u32 what; s32 stack; u64 place; };
//! struct waking { u64 cpu; struct key key; u64 by; };
//! ```

use crate::bpf;
use crate::tallies::{Maps, Task, key};
use Reg::*;
use bytepath_record::Fault;
use bytepath_sys::bpf::asm::{Alu, AsmError, Assembler, Helper, If, Insn, Reg, Size};
use bytepath_sys::bpf::{Map, Update};
use bytepath_sys::btf::Btf;

/// Kinds of work that went to another CPU.
pub(super) mod what {
    /// A thread was woken that runs on another CPU.
    pub(crate) const WAKE_UP: u32 = 1;
    /// An interrupt was sent.
    pub(crate) const INTERRUPT: u32 = 2;
    /// Memory was freed on another CPU than it was allocated on; sampled.
    pub(crate) const FREE: u32 = 3;
    /// Memory was freed on the CPU that allocated it; sampled.
    pub(crate) const FREE_HERE: u32 = 4;
    /// A thread of a role was woken, on any CPU. The four bits at [`WOKEN_AT`] contain its index in
    /// `THREAD_OWNERS` of the tallies, those at [`BY_AT`] the index of the thread that woke it; the
    /// upper half of the place is the CPU that it was woken from, the lower half the one that it
    /// was put on.
    pub(crate) const WOKEN: u32 = 5;
    /// See [`WOKEN`].
    pub(crate) const WOKEN_AT: u32 = 8;
    /// See [`WOKEN`].
    pub(crate) const BY_AT: u32 = 12;
    /// Added for events of other programs.
    pub(crate) const FOREIGN: u32 = 1 << 16;
}

/// One in this many addresses is sampled; a power of two.
pub(super) const SAMPLED: u64 = 1 << SAMPLED_BITS;
const SAMPLED_BITS: i32 = 6;

/// A wakeup in progress; offsets in bytes. The key is the woken thread.
pub(super) mod waking {
    /// The CPU of the waker.
    pub(crate) const CPU: i16 = 0;
    /// The key of the tally to add to.
    pub(crate) const KEY: i16 = 8;
    /// The thread that ran there, as an index in `THREAD_OWNERS` of the tallies.
    pub(crate) const BY: i16 = 24;
    /// Size of the whole.
    pub(crate) const SIZE: usize = 32;
}

/// The programs, which are written for one machine.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    /// Tells whose thread caused an event.
    pub task: Task,
    /// Offset in bytes of a task's CPU in `task_struct`.
    pub task_cpu: i16,
    /// The maps that they add to.
    pub maps: &'a Maps,
    /// [`waking`] by thread.
    pub wakings: &'a Map,
    /// The CPU that allocated memory, by its address.
    pub memory: &'a Map,
}

/// Returns the offset of a task's CPU: a member of the task, or of its `thread_info`.
pub(super) fn task_cpu(btf: &Btf) -> Result<i16, Fault> {
    bpf::task_member(btf, "thread_info.cpu")
        .or_else(|_| bpf::task_member(btf, "cpu"))
        .map_err(|_| bpf::too_old("this kernel does not expose the CPU of a task".to_owned()))
}

// Offsets on the program's stack.
const WHO: i16 = -8;
const SUM: i16 = WHO - key::SIZE;
const WAKING: i16 = SUM - waking::SIZE as i16;
const SCRATCH: i16 = WAKING - 16;
const WOKEN: i16 = SCRATCH - key::SIZE;

impl Programs<'_> {
    /// Runs on the waker's CPU, before it is known where the thread goes.
    ///
    /// ```c
    /// int sched_waking(struct task_struct *p)
    /// {
    ///         struct waking w;
    ///
    ///         w.key.what = key_kind(WAKE_UP);
    ///         w.key.stack = sampled_stack(context);
    ///         w.key.place = 0;
    ///         w.cpu = bpf_get_smp_processor_id();
    ///         w.by = whose(bpf_get_current_task_btf());
    ///         if (bpf_map_update_elem(&wakings, &p, &w, BPF_ANY))
    ///                 count_lost();
    ///         return 0;
    /// }
    /// ```
    pub(super) fn waking(&self) -> Result<Vec<Insn>, AsmError> {
        bpf::program(|a| {
            a.mov(R6, R1).load(Size::Double, R1, R6, 0).store(Size::Double, R10, WHO, R1);
            self.begin_key(a, WAKING + waking::KEY, what::WAKE_UP);
            self.maps.sampled_stack(a, R6);
            a.store(Size::Word, R10, WAKING + waking::KEY + key::STACK, R0);
            a.call(Helper::GetSmpProcessorId).store(Size::Double, R10, WAKING + waking::CPU, R0);
            a.call(Helper::GetCurrentTaskBtf).mov(R1, R0);
            self.task.load_owner(a, R1, R7, "waker");
            a.store(Size::Double, R10, WAKING + waking::BY, R7);
            bpf::update(a, self.wakings, WHO, WAKING, Update::Any);
            a.jump_if(If::Eq, R0, 0, "out");
            self.maps.count_lost(a, SCRATCH, "out");
        })
    }

    /// Runs on the waker's CPU or on the one that the thread goes to.
    ///
    /// ```c
    /// int sched_wakeup(struct task_struct *p)
    /// {
    ///         struct waking w, *found = bpf_map_lookup_elem(&wakings, &p);
    ///
    ///         if (!found)
    ///                 return 0;
    ///         w = *found;
    ///         bpf_map_delete_elem(&wakings, &p);
    ///         of_an_end(p, w.cpu, w.by);
    ///         if (p->cpu != w.cpu)
    ///                 add(&w.key, 1);
    ///         return 0;
    /// }
    /// ```
    pub(super) fn woken(&self) -> Result<Vec<Insn>, AsmError> {
        bpf::program(|a| {
            a.load(Size::Double, R6, R1, 0).store(Size::Double, R10, WHO, R6);
            bpf::lookup(a, self.wakings, WHO);
            a.jump_if(If::Eq, R0, 0, "out");
            for at in (0..key::SIZE).step_by(8) {
                a.load(Size::Double, R1, R0, waking::KEY + at).store(
                    Size::Double,
                    R10,
                    SUM + at,
                    R1,
                );
            }
            a.load(Size::Double, R8, R0, waking::CPU).load(Size::Double, R9, R0, waking::BY);
            bpf::delete(a, self.wakings, WHO);
            self.of_an_end(a);
            a.load(Size::Word, R1, R6, self.task_cpu).jump_if(If::Eq, R1, R8, "out");
            self.count(a);
        })
    }

    /// Counts that the task in `R6` was woken, if it belongs to a role: from CPU `R8`, by a thread
    /// with index `R9` in `THREAD_OWNERS`. Changes R0 to R5, R7 and R9.
    ///
    /// ```c
    /// void of_an_end(struct task_struct *p, u64 cpu, u64 by)
    /// {
    ///         u64 end = whose(p);
    ///         struct key key = {
    ///                 .what = end << WOKEN_AT | by << BY_AT | WOKEN,
    ///                 .stack = NOT_TAKEN,
    ///                 .place = p->cpu | cpu << 32,
    ///         };
    ///
    ///         if (end)
    ///                 add(&key, 1);
    /// }
    /// ```
    fn of_an_end(&self, a: &mut Assembler) {
        self.task.load_owner(a, R6, R7, "woken");
        a.jump_if(If::Eq, R7, 0, "of no end");
        a.alu(Alu::Lsh, R7, what::WOKEN_AT as i32).alu(Alu::Lsh, R9, what::BY_AT as i32);
        a.alu(Alu::Or, R7, R9).alu(Alu::Or, R7, what::WOKEN as i32);
        a.store(Size::Word, R10, WOKEN + key::WHAT, R7);
        a.store(Size::Word, R10, WOKEN + key::STACK, key::NOT_TAKEN);
        a.load(Size::Word, R1, R6, self.task_cpu).mov(R2, R8).alu(Alu::Lsh, R2, 32);
        a.alu(Alu::Or, R1, R2).store(Size::Double, R10, WOKEN + key::PLACE, R1).mov(R7, 1);
        self.maps.add(a, WOKEN, SCRATCH, "woken");
        a.label("of no end");
    }

    /// ```c
    /// int ipi_send_cpu(unsigned int cpu, unsigned long callsite)
    /// /* ipi_send_cpumask(const struct cpumask *cpumask, unsigned long callsite) */
    /// {
    ///         struct key key = { key_kind(INTERRUPT), CALL_SITE, callsite };
    ///
    ///         add(&key, 1);
    ///         return 0;
    /// }
    /// ```
    pub(super) fn interrupt(&self) -> Result<Vec<Insn>, AsmError> {
        bpf::program(|a| {
            a.load(Size::Double, R8, R1, 8);
            self.begin_key(a, SUM, what::INTERRUPT);
            self.called_from(a, R8);
            self.count(a);
        })
    }

    /// Runs when memory was allocated. Its address is the second argument of `kmalloc` and
    /// `kmem_cache_alloc`; the page's address is the first of `mm_page_alloc`.
    ///
    /// ```c
    /// int kmalloc(unsigned long call_site, const void *ptr) /* mm_page_alloc(struct page *ptr) */
    /// {
    ///         u64 cpu = bpf_get_smp_processor_id();
    ///
    ///         if (sampled(ptr))
    ///                 bpf_map_update_elem(&memory, &ptr, &cpu, BPF_ANY);
    ///         return 0;
    /// }
    /// ```
    pub(super) fn take(&self, argument: i16) -> Result<Vec<Insn>, AsmError> {
        bpf::program(|a| {
            sample(a, argument);
            a.call(Helper::GetSmpProcessorId).store(Size::Double, R10, SCRATCH, R0);
            bpf::update(a, self.memory, WHO, SCRATCH, Update::Any);
        })
    }

    /// Runs when it is freed, by `kfree`, `kmem_cache_free` or `mm_page_free`.
    ///
    /// ```c
    /// int kfree(unsigned long call_site, const void *ptr) /* mm_page_free(struct page *ptr) */
    /// {
    ///         struct key key = { .what = FREE_HERE };
    ///         u64 cpu, *allocated;
    ///
    ///         if (!sampled(ptr))
    ///                 return 0;
    ///         allocated = bpf_map_lookup_elem(&memory, &ptr);
    ///         if (!allocated)
    ///                 return 0;
    ///         cpu = *allocated;
    ///         bpf_map_delete_elem(&memory, &ptr);
    ///         if (bpf_get_smp_processor_id() != cpu) {
    ///                 key.what = key_kind(FREE);
    ///                 key.stack = CALL_SITE; /* mm_page_free: stack(context) */
    ///                 key.place = call_site; /* mm_page_free: 0 */
    ///         }
    ///         add(&key, 1);
    ///         return 0;
    /// }
    /// ```
    pub(super) fn free(&self, argument: i16) -> Result<Vec<Insn>, AsmError> {
        bpf::program(|a| {
            sample(a, argument);
            bpf::lookup(a, self.memory, WHO);
            a.jump_if(If::Eq, R0, 0, "out").load(Size::Double, R8, R0, 0);
            bpf::delete(a, self.memory, WHO);
            a.call(Helper::GetSmpProcessorId).jump_if(If::Eq, R0, R8, "here");
            self.begin_key(a, SUM, what::FREE);
            match argument {
                0 => {
                    self.maps.stack(a, R6);
                    a.store(Size::Word, R10, SUM + key::STACK, R0);
                }
                _ => {
                    a.load(Size::Double, R8, R6, 0);
                    self.called_from(a, R8);
                }
            }
            a.jump("count").label("here");
            a.store(Size::Double, R10, SUM, what::FREE_HERE as i32);
            a.store(Size::Double, R10, SUM + key::PLACE, 0).label("count");
            self.count(a);
        })
    }

    /// Begins a key on the stack, without a place. Changes R0 to R5 and R9.
    ///
    /// ```c
    /// u32 key_kind(u32 kind)
    /// {
    ///         return is_own(bpf_get_current_task_btf()) ? kind : kind | FOREIGN;
    /// }
    /// ```
    fn begin_key(&self, a: &mut Assembler, key: i16, what: u32) {
        a.call(Helper::GetCurrentTaskBtf).mov(R1, R0).mov(R9, what as i32);
        self.task.is_own(a, R1, "own");
        a.alu(Alu::Or, R9, what::FOREIGN as i32).label("own");
        a.store(Size::Word, R10, key + key::WHAT, R9);
        a.store(Size::Double, R10, key + key::PLACE, 0);
    }

    /// Sets the key's function to the one that contains this return address.
    fn called_from(&self, a: &mut Assembler, address: Reg) {
        a.store(Size::Word, R10, SUM + key::STACK, key::CALL_SITE);
        a.store(Size::Double, R10, SUM + key::PLACE, address);
    }

    /// Counts one event. Changes R0 to R5 and R7.
    fn count(&self, a: &mut Assembler) {
        a.mov(R7, 1);
        self.maps.add(a, SUM, SCRATCH, "event");
    }
}

/// Puts an address that is an argument of the tracepoint on the stack, or jumps to `out` if it is
/// not in the sample; `R6` = the context. Changes R0 to R5.
///
/// ```c
/// bool sampled(const void *ptr)
/// {
///         return (u64)ptr * SPREAD >> (64 - SAMPLED_BITS) == 0;
/// }
/// ```
fn sample(a: &mut Assembler, argument: i16) {
    /// Multiplication by it spreads addresses over the upper bits (2^64 divided by the golden
    /// ratio).
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    a.mov(R6, R1);
    // Read as plain bytes: the verifier forbids arithmetic on the kernel's own pointers.
    a.mov(R1, R10).add(R1, i32::from(WHO)).mov(R2, 8).mov(R3, R6);
    a.add(R3, i32::from(argument)).call(Helper::ProbeReadKernel);
    a.load(Size::Double, R1, R10, WHO).wide(R2, SPREAD).alu(Alu::Mul, R1, R2);
    a.alu(Alu::Rsh, R1, 64 - SAMPLED_BITS).jump_if(If::Ne, R1, 0, "out");
}
