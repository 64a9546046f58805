//! When a followed thread ends (`do_exit`, kernel/exit.c): records its last name and its CPU time.

use super::super::layout::thread;
use super::{Maps, Members, clear, find_state, leave, lookup, update};
use Reg::*;
use bytepath_sys::bpf::asm::{Alu, AsmError, Assembler, Helper, If, Insn, Reg, Size};

// Offsets on the stack.
const KEY: i16 = -8;
const VALUE: i16 = -16 - thread::SIZE as i16;

/// `task` is always the current one.
///
/// ```c
/// int sched_process_exit(struct task_struct *task)
/// {
///         u64 ids = bpf_get_current_pid_tgid();
///         struct thread zero = {}, *thread;
///         u32 tid = ids;
///
///         if (!find_state())
///                 return 0;
///         thread = bpf_map_lookup_elem(&threads, &tid);
///         if (!thread) {
///                 bpf_map_update_elem(&threads, &tid, &zero, BPF_ANY);
///                 thread = bpf_map_lookup_elem(&threads, &tid);
///                 if (!thread)
///                         return 0;
///         }
///         thread->process = ids >> 32;
///         thread->user = task->utime;
///         thread->system = task->stime;
///         thread->run = task->se.sum_exec_runtime;
///         thread->voluntary = task->nvcsw;
///         thread->involuntary = task->nivcsw;
///         thread->wait = task->sched_info.run_delay; /* CONFIG_SCHED_INFO */
///         bpf_get_current_comm(thread->name, 16);
///         thread->end = bpf_ktime_get_ns();
///         return 0;
/// }
/// ```
pub(crate) fn program(members: &Members, maps: &Maps) -> Result<Vec<Insn>, AsmError> {
    let mut asm = Assembler::new();
    let a = &mut asm;
    a.mov(R6, R1);
    find_state(a, members, maps, None, "out");
    a.call(Helper::GetCurrentPidTgid).mov(R7, R0).store(Size::Word, R10, KEY, R0);
    lookup(a, &maps.threads, KEY);
    a.jump_if(If::Ne, R0, 0, "known");
    clear(a, (R10, VALUE), thread::SIZE);
    update(a, &maps.threads, KEY, VALUE, 0);
    lookup(a, &maps.threads, KEY);
    a.jump_if(If::Eq, R0, 0, "out");
    a.label("known").mov(R8, R0);
    a.alu(Alu::Rsh, R7, 32).store(Size::Word, R8, thread::PROCESS, R7);
    a.load(Size::Double, R7, R6, 0);
    let wait = members.wait.map(|wait| (wait, thread::WAIT));
    let others = [
        (members.utime, thread::USER),
        (members.stime, thread::SYSTEM),
        (members.run, thread::RUN),
        (members.nvcsw, thread::VOLUNTARY),
        (members.nivcsw, thread::INVOLUNTARY),
    ];
    for (from, to) in others.into_iter().chain(wait) {
        a.load(Size::Double, R1, R7, from).store(Size::Double, R8, to, R1);
    }
    a.mov(R1, R8).add(R1, i32::from(thread::NAME)).mov(R2, 16).call(Helper::GetCurrentComm);
    a.call(Helper::KtimeGetNs).store(Size::Double, R8, thread::END, R0);
    leave(a);
    asm.finish()
}
