//! Meaning of completion records (`enum dsa_completion_status`, include/uapi/linux/idxd.h).

use bytepath_record::Fault;
use bytepath_sys::idxd::Record;
use std::ops::Range;

/// The copy is complete.
pub const SUCCESS: u8 = 0x01;
/// A page was not present, and the engine was told not to wait for it.
pub const PAGE_FAULT: u8 = 0x03;
/// A page was not present, and requesting it did not help.
pub const PAGE_FAULT_UNANSWERED: u8 = 0x04;
/// Not every descriptor of a batch succeeded; the reasons are in their own records.
pub const BATCH_FAILED: u8 = 0x05;
/// A page of a batch's list was not present: descriptors from there on did not run.
pub const BATCH_PAGE_FAULT: u8 = 0x06;

/// Set if the page fault was on a write.
pub const WRITE: u8 = 0x80;

/// The record of a copy that never ran.
pub(super) const NOTHING_DONE: Record =
    Record { status: PAGE_FAULT, result: 0, completed: 0, fault: 0 };

/// Statuses that make a copy fail permanently, with their meanings.
pub const ERRORS: &[(u8, &str)] = &[
    (0x02, "success with a false predicate, which copies do not have"),
    (0x07, "an offset of a delta record does not increase"),
    (0x08, "an offset of a delta record is outside its range"),
    (0x09, "a data-integrity field is wrong"),
    (0x10, "the operation is not known to the device or not allowed in its queue"),
    (0x11, "a flag is not allowed for the operation"),
    (0x12, "a reserved field is not zero"),
    (0x13, "the size is outside the queue's limits"),
    (0x14, "a batch has more descriptors than the queue accepts, or fewer than two"),
    (0x15, "the size of a delta record is outside its range"),
    (0x16, "buffers overlap"),
    (0x17, "the two targets of a dualcast differ in their page offsets"),
    (0x18, "the list of a batch is not aligned to 64 bytes"),
    (0x19, "the interrupt handle is not valid"),
    (0x1a, "the completion record is at an address that cannot be translated"),
    (0x1b, "the completion record is not aligned to 32 bytes"),
    (0x1c, "an address is not aligned as the operation requires"),
    (0x1d, "the privilege bit is set without privilege"),
    (0x1e, "the traffic classes are not set up"),
    (0x1f, "a page fault at the address of a readback"),
    (0x20, "a hardware error while reading"),
    (0x21, "a hardware error in a readback"),
    (0x22, "an address cannot be translated"),
    (0x26, "the event log has to be emptied first"),
    (0x27, "a batch failed by an error that is in the event log"),
];

/// Returns the range of a copy of `len` bytes that is left to do, or `None` if it is complete.
/// Errors if it cannot be completed.
pub fn left_over(record: &Record, len: u32) -> Result<Option<Range<u32>>, Fault> {
    match record.status & !WRITE {
        SUCCESS => Ok(None),
        PAGE_FAULT | PAGE_FAULT_UNANSWERED if record.completed <= len => {
            // If buffers overlap, the engine may copy backwards.
            let backwards = record.result & 1 == 1;
            let rest = if backwards { 0..len - record.completed } else { record.completed..len };
            Ok(Some(rest))
        }
        _ => Err(refused("a copy", record)),
    }
}

/// Outcome of one descriptor of a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Member {
    /// It is in the descriptor's own record.
    HasRecord,
    /// It did not run.
    NeverRan,
}

/// Returns the outcome of one descriptor of a batch, according to the batch's record.
pub fn of_batch(record: &Record, number: u32) -> Result<Member, Fault> {
    match record.status & !WRITE {
        SUCCESS | BATCH_FAILED => Ok(Member::HasRecord),
        BATCH_PAGE_FAULT if number < record.completed => Ok(Member::HasRecord),
        BATCH_PAGE_FAULT => Ok(Member::NeverRan),
        _ => Err(refused("a batch", record)),
    }
}

fn refused(what: &str, record: &Record) -> Fault {
    let code = record.status & !WRITE;
    let known = ERRORS.iter().find(|(status, _)| *status == code);
    let why = match (known, code) {
        (Some((_, why)), _) => (*why).to_owned(),
        (None, PAGE_FAULT | PAGE_FAULT_UNANSWERED) => {
            format!("a page fault after {}, which is more than it has", record.completed)
        }
        (None, BATCH_FAILED | BATCH_PAGE_FAULT) => "a status that only batches have".to_owned(),
        (None, _) => "a status that the kernel's header does not name".to_owned(),
    };
    Fault::failed(format!("the device refused {what}: {why} ({code:#04x})"))
        .remedy("see /sys/bus/dsa/devices/dsa*/errors, and the limits of the work queue")
}
