//! Classifies well-known functions and stacks.

use super::*;
use crate::{Builder, Frame, FrameKind, Header, Owner, Sample, Thread};

fn frame(name: &str, kind: FrameKind) -> Frame {
    Frame { function: name.into(), kind, ..Frame::default() }
}

/// Returns the class of a stack, given leaf first, and whether the sample is idle.
fn of(stack: &[(&str, FrameKind)], thread: &str, owner: Owner) -> (Subsystem, bool) {
    let mut builder = Builder::new(Header::default());
    let frames: Vec<_> = stack.iter().map(|(n, kind)| builder.frame(frame(n, *kind))).collect();
    let stack = builder.stack(&frames);
    let thread = builder.thread(Thread { name: thread.into(), ..Thread::default() });
    builder.add(Sample { stack, thread, owner, cpu: None, time: None, count: 1, weight: 1.0 });
    let profile = builder.build();
    let classes = Classes::of(&profile, Rules::built_in());
    let sample = &profile.samples()[0];
    (classes.sample(sample), is_idle(&profile, &classes, sample))
}

fn kernel(names: &[&str]) -> Subsystem {
    let stack: Vec<_> = names.iter().map(|name| (*name, FrameKind::Kernel)).collect();
    of(&stack, "x", Owner::Unknown).0
}

const WELL_KNOWN: &[(&str, Subsystem)] = &[
    ("_copy_to_iter", Subsystem::Copy),
    ("rep_movs_alternative", Subsystem::Copy),
    ("copy_user_generic_string", Subsystem::Copy),
    ("memset_orig", Subsystem::Copy),
    ("__pi_memcpy", Subsystem::Copy),
    ("csum_partial_copy_generic", Subsystem::Copy),
    ("__arch_copy_from_user", Subsystem::Copy),
    ("csum_partial", Subsystem::Checksum),
    ("ip_send_check", Subsystem::Checksum),
    ("clear_page_erms", Subsystem::PageAllocation),
    ("clear_highpages_kasan_tagged", Subsystem::PageAllocation),
    ("cmpxchg_double_slab.isra.0", Subsystem::PageAllocation),
    ("get_page_from_freelist", Subsystem::PageAllocation),
    ("page_pool_alloc_netmems", Subsystem::PageAllocation),
    ("gen_pool_alloc_algo_owner", Subsystem::PageAllocation),
    ("libeth_rx_recycle_slow", Subsystem::Driver),
    ("net_is_devmem_iov", Subsystem::Driver),
    ("kmem_cache_alloc_node_noprof", Subsystem::PageAllocation),
    ("kfree", Subsystem::PageAllocation),
    ("skb_page_frag_refill", Subsystem::PageAllocation),
    ("filemap_get_entry", Subsystem::Files),
    ("splice_from_pipe", Subsystem::Files),
    ("shmem_file_splice_read", Subsystem::Files),
    ("__alloc_skb", Subsystem::Skb),
    ("skb_release_data", Subsystem::Skb),
    ("__kfree_skb_defer", Subsystem::Skb),
    ("napi_skb_cache_put", Subsystem::Skb),
    ("tcp_sendmsg_locked", Subsystem::Tcp),
    ("__tcp_transmit_skb", Subsystem::Tcp),
    ("__inet_lookup_established", Subsystem::Tcp),
    ("cubictcp_acked", Subsystem::Tcp),
    ("tcp_v4_rcv.isra.0", Subsystem::Tcp),
    ("ip_finish_output2", Subsystem::Ip),
    ("fib_table_lookup", Subsystem::Ip),
    ("udp_recvmsg", Subsystem::Ip),
    ("nf_hook_slow", Subsystem::NetfilterQdisc),
    ("pfifo_fast_dequeue", Subsystem::NetfilterQdisc),
    ("sch_direct_xmit", Subsystem::NetfilterQdisc),
    ("veth_xmit", Subsystem::Driver),
    ("net_rx_action", Subsystem::Driver),
    ("__netif_receive_skb_core.constprop.0", Subsystem::Driver),
    ("dev_gro_receive", Subsystem::GroGso),
    ("tcp_gro_receive", Subsystem::GroGso),
    ("skb_segment", Subsystem::GroGso),
    ("inet_recvmsg", Subsystem::SocketSyscall),
    ("do_syscall_64", Subsystem::SocketSyscall),
    ("entry_SYSCALL_64_after_hwframe", Subsystem::SocketSyscall),
    ("splice_to_socket", Subsystem::SocketSyscall),
    ("sock_def_readable", Subsystem::SocketSyscall),
    ("ep_poll_callback", Subsystem::SocketSyscall),
    ("native_queued_spin_lock_slowpath", Subsystem::Locks),
    ("__pv_queued_spin_lock_slowpath", Subsystem::Locks),
    ("_raw_spin_unlock_irqrestore", Subsystem::Locks),
    ("__rcu_read_lock", Subsystem::Locks),
    ("try_to_wake_up", Subsystem::Scheduler),
    ("finish_task_switch.isra.0", Subsystem::Scheduler),
    ("io_schedule", Subsystem::Scheduler),
    ("io_recv", Subsystem::IoUring),
    ("__x64_sys_io_uring_enter", Subsystem::IoUring),
    ("io_apic_sync", Subsystem::InterruptsTimers),
    ("handle_softirqs", Subsystem::InterruptsTimers),
    ("read_tsc", Subsystem::InterruptsTimers),
    ("_flat_send_IPI_mask", Subsystem::InterruptsTimers),
    ("vm_insert_pages", Subsystem::MemoryMapping),
    ("asm_exc_page_fault", Subsystem::MemoryMapping),
    ("iov_iter_extract_pages", Subsystem::MemoryMapping),
    ("srso_alias_return_thunk", Subsystem::Mitigations),
    ("__x86_indirect_thunk_rax", Subsystem::Mitigations),
    ("retbleed_return_thunk", Subsystem::Mitigations),
    ("__check_object_size", Subsystem::Mitigations),
    ("tls_push_record", Subsystem::Encryption),
    ("aes_gcm_enc_update_vaes_avx10_256", Subsystem::Encryption),
    ("gcm_crypt", Subsystem::Encryption),
    ("perf_event_output_forward", Subsystem::Tracing),
    ("__bpf_prog_run_save_cb", Subsystem::Tracing),
    ("poll_idle", Subsystem::Idle),
    ("pv_native_safe_halt", Subsystem::Idle),
    ("made_up_by_nobody", Subsystem::Other),
    ("0xffffffff81000000", Subsystem::Other),
];

#[test]
fn classifies_well_known_functions() {
    for (name, expected) in WELL_KNOWN.iter().copied() {
        assert_eq!(kernel(&[name]), expected, "{name}");
    }
}

#[test]
fn only_helpers_are_counted_for_their_caller() {
    use Subsystem::*;
    assert_eq!(kernel(&["rb_erase", "tcp_ack"]), Tcp);
    assert_eq!(kernel(&["number", "vsnprintf", "seq_printf"]), Files);
    assert_eq!(kernel(&["rb_erase"]), Other, "the caller is not known");
    // Without stacks, what manages the page cache counts as pages.
    assert_eq!(kernel(&["xas_store"]), PageAllocation);
    assert_eq!(kernel(&["__xa_alloc", "tcp_recvmsg_dmabuf"]), Tcp);
    assert_eq!(kernel(&["made_up_by_nobody", "tcp_ack"]), Other);
    // A lock counts as a lock, whoever takes it.
    assert_eq!(kernel(&["_raw_spin_lock", "tcp_ack"]), Locks);
}

#[test]
fn user_space_is_apart() {
    use FrameKind::*;
    let class = |stack: &[(&str, FrameKind)]| of(stack, "x", Owner::Unknown).0;
    assert_eq!(class(&[("work", User), ("main", User)]), Subsystem::User);
    for copies in ["memcpy", "__memmove_avx512_unaligned_erms", "__memset_evex_unaligned"] {
        assert_eq!(class(&[(copies, User), ("main", User)]), Subsystem::ProgramCopy);
    }
    assert_eq!(class(&[("__memmove_avx_unaligned", Unknown)]), Subsystem::ProgramCopy);
    assert_eq!(class(&[("main", User), ("memcpy", User)]), Subsystem::User, "what it calls");
    assert_eq!(class(&[("copy_page", User), ("main", User)]), Subsystem::User, "its own");
    assert_eq!(class(&[("memcpy", Kernel), ("main", User)]), Subsystem::Copy);
    assert_eq!(class(&[("rb_erase", Kernel), ("main", User)]), Subsystem::Other);
    // Without more information, names must do.
    assert_eq!(class(&[("work", Unknown), ("main", Unknown)]), Subsystem::User);
    assert_eq!(class(&[("tcp_ack", Unknown), ("main", Unknown)]), Subsystem::Tcp);
    assert_eq!(class(&[("new_one", Unknown), ("tcp_ack", Unknown)]), Subsystem::Other);
    assert_eq!(class(&[]), Subsystem::Other);
}

#[test]
fn submitting_a_copy_is_apart_from_the_program_that_does() {
    use FrameKind::*;
    let class = |stack: &[(&str, FrameKind)]| of(stack, "sender/0", Owner::Unknown).0;
    let post = "bytepath_sys::idxd::WorkQueue::post_batch";
    for (stack, expected) in [
        (&[("movdir64b", User), ("mtcp_write_async", User)][..], Subsystem::CopySubmission),
        (&[("dsa_prep_desc_common", User), ("dsa_prep_memcpy", User)], Subsystem::CopySubmission),
        // What such a function calls belongs to it, but not its caller, nor what the kernel does
        // meanwhile.
        (&[("__memset_erms", User), (post, User), ("main", User)], Subsystem::CopySubmission),
        (&[("main", User)], Subsystem::User),
        (&[("memcpy", User), ("main", User)], Subsystem::ProgramCopy),
        (&[("clear_page_erms", Kernel), (post, User)], Subsystem::PageAllocation),
        // Only names are known, as in folded stacks.
        (&[("enqcmd", Unknown), ("main", Unknown)], Subsystem::CopySubmission),
        (&[("own", Unknown), ("dsa_prep_memcpy", Unknown)], Subsystem::CopySubmission),
        (&[("memset", Unknown), ("dsa_prep_memcpy", Unknown)], Subsystem::CopySubmission),
        (&[("memset", Unknown), ("main", Unknown)], Subsystem::Copy),
        (
            &[("clear_page_erms", Unknown), ("asm_exc_page_fault", Unknown), (post, Unknown)],
            Subsystem::PageAllocation,
        ),
        (&[("memcpy", Unknown), ("asm_exc_page_fault", Unknown), (post, Unknown)], Subsystem::Copy),
        // The spelling of the newer symbol mangling.
        (&[("<bytepath_sys::idxd::WorkQueue>::post", User)], Subsystem::CopySubmission),
        // In the kernel, a function of that name belongs to its driver.
        (&[("movdir64b", Kernel)], Subsystem::Other),
    ] {
        assert_eq!(class(stack), expected, "{stack:?}");
    }
}

#[test]
fn idle_is_the_idle_task_that_waits() {
    let halt = [("pv_native_safe_halt", FrameKind::Kernel)];
    let work = [("veth_poll", FrameKind::Kernel)];
    assert_eq!(of(&halt, "swapper/1", Owner::Unknown), (Subsystem::Idle, true));
    assert_eq!(of(&work, "swapper/1", Owner::Unknown), (Subsystem::Driver, false));
    assert_eq!(of(&work, "x", Owner::Idle), (Subsystem::Idle, true));
    // A list without threads, as from readprofile, has idle as one of its rows.
    assert_eq!(of(&halt, "", Owner::Unknown), (Subsystem::Idle, false));
}

#[test]
fn names_are_closed_and_their_own() {
    for subsystem in Subsystem::ALL {
        assert_eq!(subsystem.name().parse(), Ok(*subsystem));
        let json = serde_json::to_string(&subsystem).unwrap();
        assert_eq!(json, format!("\"{}\"", subsystem.name()));
    }
    assert!("kernel".parse::<Subsystem>().is_err());
    let mut titles: Vec<_> = Subsystem::ALL.iter().map(|s| s.title()).collect();
    titles.sort();
    titles.dedup();
    assert_eq!(titles.len(), Subsystem::ALL.len());
}

#[test]
fn coverage_is_of_the_busy_kernel() {
    let mut builder = Builder::new(Header::default());
    let thread = builder.thread(Thread::default());
    for (name, kind, weight) in [
        ("tcp_ack", FrameKind::Kernel, 3.0),
        ("made_up", FrameKind::Kernel, 1.0),
        ("poll_idle", FrameKind::Kernel, 50.0),
        ("main", FrameKind::User, 50.0),
    ] {
        let frame = builder.frame(frame(name, kind));
        let stack = builder.stack(&[frame]);
        let owner = Owner::Unknown;
        builder.add(Sample { stack, thread, owner, cpu: None, time: None, count: 1, weight });
    }
    let profile = builder.build();
    let (mut coverage, classes) = (Coverage::default(), Classes::of(&profile, Rules::built_in()));
    coverage.add(&profile, &classes);
    assert_eq!((coverage.share(), Coverage::default().share()), (Some(0.75), None));
    coverage.add(&profile, &classes);
    assert_eq!(coverage, Coverage { kernel: 8.0, other: 2.0 });
}
