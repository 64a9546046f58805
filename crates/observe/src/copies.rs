//! The copy meter: bytes actually copied between kernel and program, measured independently of the
//! ledgers, and whether the two agree.
//!
//! If the kernel lets a program be attached to the return of its copy functions, their results are
//! added up. Otherwise the result is an estimate, and is called one: the time spent in them, from a
//! profile, times the speed at which the machine copies.

use bytepath_profile::{FrameKind, Profile, Weight};
use bytepath_record::{CopyCount, Ledger};

/// Kernel functions that only copy between kernel and program: arch/x86/lib/copy_user_64.S and its
/// predecessors, arch/arm64/lib, and the generic ones of lib/iov_iter.c, into which the others may
/// be inlined.
const COPYING: &[&str] = &[
    "rep_movs_alternative",
    "copy_user_generic",
    "copy_user_generic_string",
    "copy_user_generic_unrolled",
    "copy_user_enhanced_fast_string",
    "copy_user_short_string",
    "__copy_user_nocache",
    "__copy_user_flushcache",
    "_copy_to_iter",
    "_copy_from_iter",
    "_copy_from_iter_nocache",
    "csum_and_copy_to_iter",
    "csum_and_copy_from_iter",
    "csum_partial_copy_generic",
    "_copy_to_user",
    "_copy_from_user",
    "copyin",
    "copyout",
    "__arch_copy_to_user",
    "__arch_copy_from_user",
    "copy_page_to_iter",
];

/// Relative difference up to which two counts of the same bytes agree: ledgers omit headers of
/// messages and control data, copies do not.
const AGREE: f64 = 0.05;

/// Fewest samples in copy functions for an estimate: with fewer, their number alone is uncertain by
/// a factor of two or more.
const FEWEST: u64 = 30;

/// Largest ratio of the upper to the lower end of an estimate; a wider one is useless.
const WIDEST: f64 = 10.0;

/// Estimates the copies of the given processes from the time in copy functions. `bandwidth` returns
/// how fast one core copies in bytes per second: lower bound (from memory) and upper bound (within
/// its caches). `None` if the profile does not count time or contains no copying, if the bandwidth
/// is unknown, or if the estimate is too uncertain.
pub(crate) fn estimate(
    profile: &Profile,
    pids: &[u32],
    bandwidth: impl FnOnce() -> Option<(f64, f64)>,
) -> Option<CopyCount> {
    if profile.header.weight != Weight::Nanoseconds {
        return None;
    }
    let (mut seconds, mut samples) = (0.0, 0u64);
    for sample in profile.samples() {
        let mine = pids.contains(&profile.thread(sample.thread).pid);
        let leaf = profile.stack(sample.stack).first().map(|leaf| profile.frame(*leaf));
        let copying = leaf.is_some_and(|leaf| {
            leaf.kind != FrameKind::User && COPYING.contains(&leaf.function.as_str())
        });
        if mine && copying {
            seconds += sample.weight * 1e-9;
            samples += sample.count;
        }
    }
    if samples < FEWEST {
        return None;
    }
    let (least, most) = bandwidth()?;
    // Samples are Poisson-distributed: two standard deviations of their number.
    let spread = 2.0 / (samples as f64).sqrt();
    let [low, high] = [least * (1.0 - spread).max(0.0), most * (1.0 + spread)];
    (high <= low * WIDEST).then(|| CopyCount::Estimated {
        low: seconds * low,
        high: seconds * high,
        basis: format!(
            "estimate: {seconds:.3} s in copy functions ({samples} samples) at {:.1} to {:.1} GB/s",
            least / 1e9,
            most / 1e9
        ),
    })
}

/// Describes how the copies contradict the ledgers. `peeked` bytes were read without being
/// consumed: copied, and received later.
pub(crate) fn disagreement(
    copies: &CopyCount,
    sent: &Ledger,
    received: &Ledger,
    peeked: u64,
) -> Option<String> {
    match copies {
        CopyCount::Unknown => None,
        CopyCount::Counted { to_program, from_program } => {
            let parts: Vec<String> =
                [("sent", sent, 0, *from_program), ("received", received, peeked, *to_program)]
                    .into_iter()
                    .filter_map(|(what, ledger, more, count)| direction(what, ledger, more, count))
                    .collect();
            (!parts.is_empty()).then(|| parts.join("; "))
        }
        CopyCount::Estimated { low, high, .. } => {
            let least = sent.copied.saturating_add(received.copied) as f64;
            let most = sent.delivered.saturating_add(received.delivered);
            let most = most.saturating_add(peeked) as f64;
            if *high < least {
                Some(format!(
                    "the ledgers have {least:.0} bytes as copied, but the time in \
                     copy functions suffices for {high:.0} at most"
                ))
            } else if *low > most {
                Some(format!(
                    "the time in copy functions suffices for at least {low:.0} bytes, \
                     but only {most:.0} went through the sockets"
                ))
            } else {
                None
            }
        }
    }
}

/// Checks one direction: the counted bytes must be at least those in the ledger as copied, and at
/// most these plus the unknown ones plus `more`.
fn direction(what: &str, ledger: &Ledger, more: u64, counted: u64) -> Option<String> {
    let least = ledger.copied as f64 * (1.0 - AGREE);
    let most = ledger.copied.saturating_add(ledger.unknown).saturating_add(more);
    let most = most as f64 * (1.0 + AGREE);
    let counted = counted as f64;
    // A few messages of control data are not a contradiction.
    let slack = 4096.0;
    (counted + slack < least || counted > most + slack).then(|| {
        format!(
            "{what}: the ledger has {} bytes as copied and {} as unknown; {counted:.0} were \
             counted being copied",
            ledger.copied, ledger.unknown
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_profile::{Builder, Frame, Header, Owner, Sample, Thread};
    use bytepath_record::Manner;

    fn profile(weight: Weight) -> Profile {
        let mut builder = Builder::new(Header { weight, ..Header::default() });
        let kernel = |function: &str| Frame {
            function: function.into(),
            kind: FrameKind::Kernel,
            ..Frame::default()
        };
        let copy = builder.frame(kernel("rep_movs_alternative"));
        let other = builder.frame(kernel("tcp_sendmsg_locked"));
        let stacks = [builder.stack(&[copy, other]), builder.stack(&[other])];
        for pid in [1, 2] {
            let thread = builder.thread(Thread { pid, tid: pid, ..Thread::default() });
            for stack in stacks {
                let sample = Sample {
                    stack,
                    thread,
                    owner: Owner::Unknown,
                    cpu: None,
                    time: None,
                    count: 100,
                    weight: 1e9,
                };
                builder.add(sample);
            }
        }
        builder.build()
    }

    #[test]
    fn an_estimate_is_time_times_speed() {
        let bandwidth = || Some((10e9, 20e9));
        let estimate = estimate(&profile(Weight::Nanoseconds), &[1], bandwidth).unwrap();
        let CopyCount::Estimated { low, high, basis } = estimate else { panic!("{estimate:?}") };
        // One second, plus or minus a fifth because of 100 samples.
        assert!((low - 8e9).abs() < 1.0 && (high - 24e9).abs() < 1.0, "{low} {high}");
        assert!(basis.starts_with("estimate"), "{basis}");
    }

    #[test]
    fn estimates_nothing_without_time_or_samples() {
        let measure = || panic!("nothing to estimate, so nothing is measured");
        assert_eq!(estimate(&profile(Weight::Events), &[1], measure), None);
        assert_eq!(estimate(&profile(Weight::Nanoseconds), &[3], measure), None);
        assert_eq!(estimate(&profile(Weight::Nanoseconds), &[1], || None), None);
    }

    #[test]
    fn reports_disagreements_only() {
        let mut sent = Ledger::default();
        sent.enter(Manner::Copied, 1_000_000, 10, "c");
        sent.enter(Manner::Unknown, 1_000_000, 10, "u");
        let received = Ledger::default();
        let said = |from_program| {
            let copies = CopyCount::Counted { to_program: 0, from_program };
            disagreement(&copies, &sent, &received, 0)
        };
        assert_eq!((said(1_000_000), said(2_000_000)), (None, None));
        assert!(said(500_000).unwrap().contains("500000"));
        assert!(said(3_000_000).unwrap().starts_with("sent"));
        let estimated = |low, high| {
            let copies = CopyCount::Estimated { low, high, basis: String::new() };
            disagreement(&copies, &sent, &received, 0)
        };
        assert_eq!(estimated(0.0, 1e9), None);
        assert!(estimated(0.0, 10.0).unwrap().contains("at most"));
        assert!(estimated(1e8, 1e9).unwrap().contains("at least"));
        assert_eq!(disagreement(&CopyCount::Unknown, &sent, &received, 0), None);
        // Peeked bytes are copied, but in no ledger.
        let copies = CopyCount::Counted { to_program: 9_000_000, from_program: 1_000_000 };
        assert!(disagreement(&copies, &sent, &received, 0).unwrap().starts_with("received"));
        assert_eq!(disagreement(&copies, &sent, &received, 9_000_000), None);
    }
}
