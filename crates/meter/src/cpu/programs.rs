//! The programs that account for the time of each CPU, and the layout shared with user space.
//!
//! At any moment, a CPU's time belongs to one class ([`class`]). At each event the time since the
//! previous event is added to the class until then, so the classes add up to the wall time whatever
//! happens in between. The clock of the last event is exchanged and the sum is added to atomically:
//! an interrupt in the middle of a program, which runs another program, loses nothing and counts
//! nothing twice.
//!
//! Above each program is the C that it stands for; [`state`] is its `struct state`.

use crate::bpf::{self, named};
use Reg::*;
use bytepath_record::{Fault, Role};
use bytepath_sys::bpf::Map;
use bytepath_sys::bpf::asm::{Alu, AsmError, Assembler, Helper, If, Insn, Reg, Size};
use bytepath_sys::btf::Btf;

/// What a CPU spends its time on.
pub(super) mod class {
    use bytepath_record::Role;

    pub(crate) const IDLE: usize = 0;
    /// Any task that does not belong to another class.
    pub(crate) const FOREIGN: usize = 1;
    /// `ksoftirqd`, with the softirqs that it serves.
    pub(crate) const KSOFTIRQD: usize = 2;
    /// Kernel threads that poll for a device.
    pub(crate) const NAPI: usize = 3;
    /// A sender's thread outside system calls. Classes of threads come in pairs, the second of
    /// which is inside system calls.
    pub(crate) const SENDER: usize = 4;
    pub(crate) const RECEIVER: usize = 6;
    /// A sender's io_uring workers, including its submission thread.
    pub(crate) const SENDER_URING: usize = 8;
    pub(crate) const RECEIVER_URING: usize = 9;
    /// Softirqs, except for those in `ksoftirqd`.
    pub(crate) const SOFTIRQ: usize = 10;
    pub(crate) const IRQ: usize = 11;
    pub(crate) const COUNT: usize = 12;
    /// Added to a thread's class inside system calls.
    pub(crate) const SYSTEM: usize = 1;

    /// The class of a role's thread outside system calls.
    pub(crate) fn thread(role: Role) -> usize {
        SENDER + 2 * role as usize
    }

    /// The class of a role's io_uring workers.
    pub(crate) fn uring(role: Role) -> usize {
        SENDER_URING + role as usize
    }
}

/// Layout of the account of one CPU: offsets in bytes of 64-bit numbers.
pub(super) mod state {
    /// Time of the last event in ns of the monotonic clock.
    pub(crate) const LAST: i16 = 0;
    /// The class since then.
    pub(crate) const CURRENT: i16 = 8;
    /// The class that a softirq interrupted.
    pub(crate) const UNDER_SOFTIRQ: i16 = 16;
    /// The class that an interrupt interrupted.
    pub(crate) const UNDER_IRQ: i16 = 24;
    /// Nanoseconds by class.
    pub(crate) const SUMS: i16 = 32;
    /// Number of sums there is room for; a power of two, because programs use it as a mask.
    pub(crate) const ROOM: usize = 16;
    /// Size of the whole, so that no two CPUs write to one cache line.
    pub(crate) const SIZE: usize = 256;
}

/// Offsets of members of `task_struct`, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Members {
    pid: i16,
    tgid: i16,
    flags: i16,
    comm: i16,
    parent: i16,
}

impl Members {
    pub(super) fn of(btf: &Btf) -> Result<Members, Fault> {
        let at = |path: &str| bpf::task_member(btf, path);
        Ok(Members {
            pid: at("pid")?,
            tgid: at("tgid")?,
            flags: at("flags")?,
            comm: at("comm")?,
            parent: at("real_parent")?,
        })
    }
}

/// The processes that contain threads of roles. The ids are those of the initial PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoleProcesses {
    /// This process: an agent.
    pub own: u32,
    pub role: Role,
    /// The process that started it, which also started the peer's agent if that is on this machine.
    pub parent: u32,
}

/// The programs, which are written for one machine and one pair of agents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Programs<'a> {
    pub members: Members,
    /// [`state`] by CPU.
    pub states: &'a Map,
    /// The processes that contain threads of roles.
    pub processes: RoleProcesses,
}

/// Runs on demand: stores the ids of the process that runs it and of its parent.
///
/// ```c
/// int identify(void *context)
/// {
///         struct task_struct *task = bpf_get_current_task_btf();
///         u32 key = 0, *ids = bpf_map_lookup_elem(&map, &key);
///
///         if (ids) {
///                 ids[0] = task->tgid;
///                 ids[1] = task->real_parent->tgid;
///         }
///         return 0;
/// }
/// ```
pub(super) fn identify(members: Members, map: &Map) -> Result<Vec<Insn>, AsmError> {
    bpf::program(|a| {
        a.call(Helper::GetCurrentTaskBtf).mov(R7, R0).store(Size::Word, R10, KEY, 0);
        lookup(a, map);
        a.load(Size::Word, R1, R7, members.tgid).store(Size::Word, R0, 0, R1);
        a.load(Size::Double, R1, R7, members.parent).load(Size::Word, R1, R1, members.tgid);
        a.store(Size::Word, R0, 4, R1);
    })
}

impl Programs<'_> {
    /// Runs at the edges of a window, on the CPU itself: brings the account up to date, and
    /// determines what the CPU is running.
    ///
    /// ```c
    /// int mark(void *context)
    /// {
    ///         struct state *s = find_state();
    ///
    ///         if (!s)
    ///                 return 0;
    ///         charge(s, s->current);
    ///         s->current = classify(bpf_get_current_task_btf());
    ///         s->under_softirq = s->under_irq = s->current;
    ///         return 0;
    /// }
    /// ```
    pub(super) fn mark(&self) -> Result<Vec<Insn>, AsmError> {
        bpf::program(|a| {
            self.charge_current(a);
            a.call(Helper::GetCurrentTaskBtf).mov(R7, R0);
            self.classify(a);
            for at in [state::CURRENT, state::UNDER_SOFTIRQ, state::UNDER_IRQ] {
                a.store(Size::Double, R9, at, R8);
            }
        })
    }

    /// ```c
    /// int sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next)
    /// {
    ///         struct state *s = find_state();
    ///
    ///         if (!s)
    ///                 return 0;
    ///         charge(s, s->current);
    ///         s->current = classify(next);
    ///         return 0;
    /// }
    /// ```
    pub(super) fn switch(&self) -> Result<Vec<Insn>, AsmError> {
        bpf::program(|a| {
            a.load(Size::Double, R7, R1, 16);
            self.charge_current(a);
            self.classify(a);
            a.store(Size::Double, R9, state::CURRENT, R8);
        })
    }

    /// Runs when a softirq or an interrupt begins; `CLASS` and `under` are constants of the
    /// program.
    ///
    /// ```c
    /// int softirq_entry(void) /* irq_handler_entry */
    /// {
    ///         struct state *s = find_state();
    ///
    ///         if (!s)
    ///                 return 0;
    ///         charge(s, s->current);
    ///         s->under = s->current; /* under_softirq, under_irq */
    ///         if (CLASS == SOFTIRQ && s->current == KSOFTIRQD)
    ///                 return 0;
    ///         s->current = CLASS;
    ///         return 0;
    /// }
    /// ```
    pub(super) fn interrupt(&self, class: usize, under: i16) -> Result<Vec<Insn>, AsmError> {
        bpf::program(|a| {
            self.charge_current(a);
            a.store(Size::Double, R9, under, R8);
            if class == class::SOFTIRQ {
                a.jump_if(If::Eq, R8, class::KSOFTIRQD as i32, "out");
            }
            a.store(Size::Double, R9, state::CURRENT, class as i32);
        })
    }

    /// Runs when it ends.
    ///
    /// ```c
    /// int softirq_exit(void) /* irq_handler_exit */
    /// {
    ///         struct state *s = find_state();
    ///
    ///         if (!s)
    ///                 return 0;
    ///         charge(s, s->current);
    ///         s->current = s->under;
    ///         return 0;
    /// }
    /// ```
    pub(super) fn resume(&self, under: i16) -> Result<Vec<Insn>, AsmError> {
        bpf::program(|a| {
            self.charge_current(a);
            a.load(Size::Double, R1, R9, under).store(Size::Double, R9, state::CURRENT, R1);
        })
    }

    /// Runs when a system call begins or, if `inside`, ends: until then a role's thread was
    /// outside, or inside. The classes of threads come in pairs, which differ by `SYSTEM`.
    ///
    /// ```c
    /// int sys_enter(void) /* sys_exit */
    /// {
    ///         struct state *s = find_state();
    ///         u64 outside, inside;
    ///
    ///         if (!s || s->current < SENDER || s->current >= SENDER_URING)
    ///                 return 0;
    ///         outside = s->current & ~SYSTEM;
    ///         inside = s->current | SYSTEM;
    ///         charge(s, outside);  /* sys_exit: inside */
    ///         s->current = inside; /* sys_exit: outside */
    ///         return 0;
    /// }
    /// ```
    pub(super) fn call(&self, inside: bool) -> Result<Vec<Insn>, AsmError> {
        const SYSTEM: i32 = class::SYSTEM as i32;
        let (enter, exit) = ((Alu::Or, SYSTEM), (Alu::And, !SYSTEM));
        let [before, after] = if inside { [enter, exit] } else { [exit, enter] };
        bpf::program(|a| {
            self.find_state(a);
            a.load(Size::Double, R8, R9, state::CURRENT);
            a.jump_if(If::Lt, R8, class::SENDER as i32, "out");
            a.jump_if(If::Ge, R8, class::SENDER_URING as i32, "out");
            a.alu(before.0, R8, before.1);
            charge(a);
            a.alu(after.0, R8, after.1).store(Size::Double, R9, state::CURRENT, R8);
        })
    }

    /// `R9` = the account of this CPU; its time up to now is charged to the current class, which is
    /// left in `R8`. Changes R0 to R5.
    fn charge_current(&self, a: &mut Assembler) {
        self.find_state(a);
        a.load(Size::Double, R8, R9, state::CURRENT);
        charge(a);
    }

    /// `R9` = the account of this CPU; jumps to `out` if there is none. Changes R0 to R5.
    ///
    /// ```c
    /// u32 cpu = bpf_get_smp_processor_id();
    /// struct state *s = bpf_map_lookup_elem(&states, &cpu);
    /// ```
    fn find_state(&self, a: &mut Assembler) {
        a.call(Helper::GetSmpProcessorId).store(Size::Word, R10, KEY, R0);
        lookup(a, self.states);
        a.mov(R9, R0);
    }

    /// `R8` = the class of the task in `R7`. A role's thread starts inside a system call, because
    /// that is where it usually left the CPU. The class of one that was preempted outside is
    /// corrected by its next call.
    ///
    /// ```c
    /// u64 classify(struct task_struct *task)
    /// {
    ///         u64 workers;
    ///
    ///         if (!task->pid)
    ///                 return IDLE;
    ///         if (!(task->flags & PF_KTHREAD)) {
    ///                 if (task->tgid == OWN)
    ///                         workers = URING_OF_ROLE;
    ///                 else if (task->real_parent->tgid == PARENT)
    ///                         workers = URING_OF_PEER;
    ///                 else
    ///                         return FOREIGN;
    ///                 if (task->flags & (PF_IO_WORKER | PF_USER_WORKER))
    ///                         return workers;
    ///                 if (!strncmp(task->comm, "sender/", 7))
    ///                         return SENDER + SYSTEM;
    ///                 if (!strncmp(task->comm, "receiver", 8))
    ///                         return RECEIVER + SYSTEM;
    ///                 return FOREIGN;
    ///         }
    ///         if (!strncmp(task->comm, "ksoftirq", 8))
    ///                 return KSOFTIRQD;
    ///         if (!strncmp(task->comm, "napi/", 5))
    ///                 return NAPI;
    ///         if (!strncmp(task->comm, "kpktgend", 8))
    ///                 return SENDER_URING;
    ///         return FOREIGN;
    /// }
    /// ```
    fn classify(&self, a: &mut Assembler) {
        // include/linux/sched.h
        const PF_IO_WORKER: i32 = 0x10;
        /// Includes vhost's workers (Linux 6.4).
        const PF_USER_WORKER: i32 = 0x4000;
        const PF_KTHREAD: i32 = 0x20_0000;
        let Members { pid, tgid, flags, comm, parent } = self.members;
        let is = |a: &mut Assembler, class: usize| _ = a.mov(R8, class as i32);
        is(a, class::IDLE);
        a.load(Size::Word, R1, R7, pid).jump_if(If::Eq, R1, 0, "known");
        a.load(Size::Word, R1, R7, flags).load(Size::Double, R2, R7, comm);
        a.jump_if(If::Set, R1, PF_KTHREAD, "kthread");
        a.load(Size::Word, R3, R7, tgid);
        is(a, class::uring(self.processes.role));
        a.jump_if(If::Eq, R3, self.processes.own as i32, "agent");
        is(a, class::uring(self.processes.role.peer()));
        a.load(Size::Double, R3, R7, parent).load(Size::Word, R3, R3, tgid);
        a.jump_if(If::Ne, R3, self.processes.parent as i32, "foreign");
        a.label("agent").jump_if(If::Set, R1, PF_IO_WORKER | PF_USER_WORKER, "known");
        is(a, class::SENDER + class::SYSTEM);
        named(a, b"sender/", "known");
        is(a, class::RECEIVER + class::SYSTEM);
        named(a, b"receiver", "known");
        a.jump("foreign");
        a.label("kthread");
        is(a, class::KSOFTIRQD);
        named(a, b"ksoftirq", "known");
        is(a, class::NAPI);
        named(a, b"napi/", "known");
        is(a, class::uring(Role::Sender));
        named(a, b"kpktgend", "known");
        a.label("foreign");
        is(a, class::FOREIGN);
        a.label("known");
    }
}

/// Adds the time since the last event to the class in `R8`. Changes R0 to R5.
///
/// ```c
/// void charge(struct state *s, u64 class)
/// {
///         u64 now = bpf_ktime_get_ns();
///         u64 last = xchg(&s->last, now);
///
///         __sync_fetch_and_add(&s->sums[class & (ROOM - 1)], now - last);
/// }
/// ```
fn charge(a: &mut Assembler) {
    a.call(Helper::KtimeGetNs).mov(R1, R0).atomic_exchange(R9, state::LAST, R1);
    a.alu(Alu::Sub, R0, R1);
    a.mov(R2, R8).alu(Alu::And, R2, state::ROOM as i32 - 1).alu(Alu::Lsh, R2, 3).add(R2, R9);
    a.atomic_add(R2, state::SUMS, R0);
}

/// Offset of a map's key on the stack.
const KEY: i16 = -8;

/// `R0` = the value in a map for the key on the stack; jumps to `out` if there is none.
fn lookup(a: &mut Assembler, map: &Map) {
    bpf::lookup(a, map, KEY);
    a.jump_if(If::Eq, R0, 0, "out");
}
