//! When a followed thread creates another, before the new thread first runs (`kernel_clone`,
//! kernel/fork.c): follows it, too.

use super::super::layout::{lost, thread};
use super::{Maps, Members, clear, count_lost, find_state, leave, update};
use Reg::*;
use bytepath_sys::bpf::asm::{AsmError, Assembler, Helper, If, Insn, Reg, Size};
use std::os::fd::AsFd;

// Offsets on the stack.
const CHILD: i16 = -8;
const VALUE: i16 = -16 - thread::SIZE as i16;

/// ```c
/// int sched_process_fork(struct task_struct *parent, struct task_struct *child)
/// {
///         struct thread thread = {};
///         u32 tid = child->pid;
///
///         if (!find_state())
///                 return 0;
///         if (!bpf_task_storage_get(&state, child, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE)) {
///                 count_lost(THREADS);
///                 return 0;
///         }
///         thread.process = child->tgid;
///         thread.parent = bpf_get_current_pid_tgid();
///         thread.start = bpf_ktime_get_ns();
///         /* It begins with its parent's name. */
///         bpf_get_current_comm(thread.name, 16);
///         bpf_map_update_elem(&threads, &tid, &thread, BPF_ANY);
///         return 0;
/// }
/// ```
pub(crate) fn program(members: &Members, maps: &Maps) -> Result<Vec<Insn>, AsmError> {
    let mut asm = Assembler::new();
    let a = &mut asm;
    a.mov(R6, R1);
    find_state(a, members, maps, None, "out");
    clear(a, (R10, VALUE), thread::SIZE);
    // R7 = the new thread; its state is created with zeros.
    a.load(Size::Double, R7, R6, 8);
    a.map(R1, maps.state.as_fd()).mov(R2, R7).mov(R3, 0).mov(R4, 1);
    a.call(Helper::TaskStorageGet).jump_if(If::Eq, R0, 0, "full");
    a.load(Size::Word, R1, R7, members.pid).store(Size::Word, R10, CHILD, R1);
    a.load(Size::Word, R1, R7, members.tgid);
    a.store(Size::Word, R10, VALUE + thread::PROCESS, R1);
    a.call(Helper::GetCurrentPidTgid).store(Size::Word, R10, VALUE + thread::PARENT, R0);
    a.call(Helper::KtimeGetNs).store(Size::Double, R10, VALUE + thread::START, R0);
    a.mov(R1, R10).add(R1, i32::from(VALUE + thread::NAME)).mov(R2, 16);
    a.call(Helper::GetCurrentComm);
    update(a, &maps.threads, CHILD, VALUE, 0);
    leave(a);
    a.label("full");
    count_lost(a, maps, lost::THREADS, "out");
    a.jump("out");
    asm.finish()
}
