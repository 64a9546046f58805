//! Events in the kernel, added up there by the function that caused them: shared by `locks` and
//! `handoffs`. Their programs add to one map, which is read, symbolised and emptied after the
//! window has ended and the programs are detached.

use super::Output;
use super::bpf::{self, Named, map};
use Reg::*;
use bytepath_profile::Frame;
use bytepath_profile::subsystem::{Class, Rules, Subsystem};
use bytepath_profile::symbols::KernelSymbols;
use bytepath_record::{Fault, Scope, Unit};
use bytepath_sys::Roots;
use bytepath_sys::bpf::asm::{Alu, AsmError, Assembler, Helper, If, Insn, Reg, Size};
use bytepath_sys::bpf::{Link, Map, MapKind, Program, Update};
use bytepath_sys::btf::Btf;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Programs that are loaded but not attached, and what they have added up.
#[derive(Debug)]
pub(crate) struct Tallies {
    /// The maps of the programs.
    pub maps: Maps,
    /// Names of the kernel's functions.
    pub names: Names,
    programs: Vec<Named<Program>>,
}

/// One kind of event of one function, added up over a window.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tally {
    /// Its kind, a number defined by the meter.
    pub what: u32,
    /// The function that caused it; empty if its call stack was not taken.
    pub function: String,
    /// The address that it concerned, or 0.
    pub place: u64,
    /// The sum of the events' values.
    pub sum: u64,
    /// The number of events.
    pub count: u64,
}

impl Tallies {
    /// Loads `programs` for the tracepoints that are given with them.
    pub(crate) fn load(
        btf: &Btf,
        names: Names,
        maps: Maps,
        programs: Vec<Named<Result<Vec<Insn>, AsmError>>>,
    ) -> Result<Tallies, Fault> {
        Ok(Tallies { maps, names, programs: bpf::load_all(btf, programs)? })
    }

    /// Attaches the programs; they count until the links are dropped.
    pub(crate) fn attach(&self) -> Result<Vec<Link>, Fault> {
        bpf::attach_all(&self.programs)
    }

    /// Adds the number of events for which there was no room since the last call, and warns of it
    /// and of missing function names. `what` is the noun for the events.
    pub(crate) fn enter_lost(
        &self,
        output: &mut Output,
        meter: &str,
        what: &str,
    ) -> Result<(), Fault> {
        let lost = self.maps.take_lost()?;
        output.add(&format!("{meter}.lost"), Unit::Count, lost as f64, &Scope::Machine);
        let lost = (lost > 0).then(|| format!("{lost} {what} did not fit and are not counted"));
        let warnings = lost.into_iter().chain(self.names.symbols.hidden().map(str::to_owned));
        output.warnings.extend(warnings.map(|text| format!("{meter}: {text}")));
        Ok(())
    }

    /// Takes what was counted since the last call, by function: the first one in a call stack that
    /// belongs to none of the subsystems `below`.
    pub(crate) fn take(&self, below: &[Subsystem], more: Vec<Entry>) -> Result<Vec<Tally>, Fault> {
        let mut entries = self.maps.take_entries().map_err(unreadable)?;
        entries.extend(more);
        let stacks = self.maps.take_stacks().map_err(unreadable)?;
        let function = |entry: &Entry| match stacks.get(&entry.stack) {
            Some(stack) => self.names.caller(stack, below),
            None if entry.stack == key::NOT_TAKEN => String::new(),
            None if entry.stack == key::CALL_SITE => self.names.caller(&[entry.place], &[]),
            None => UNKNOWN.to_owned(),
        };
        Ok(merge_by_function(entries, function))
    }
}

/// One in this many frequent events is unwound to find its function; a power of two. Unwinding a
/// call stack takes 5 to 20 us on a virtual machine, longer than most waits for a lock.
pub(crate) const UNWIND_ONE_IN: u64 = 16;

/// Name of a function for whose call stack there was no room.
const UNKNOWN: &str = "[unknown]";

fn unreadable(error: io::Error) -> Fault {
    Fault::system("cannot read what BPF programs counted", &error)
}

/// Adds up the counts of a function's different call stacks.
fn merge_by_function(entries: Vec<Entry>, function: impl Fn(&Entry) -> String) -> Vec<Tally> {
    let mut sums: BTreeMap<(u32, String, u64), (u64, u64)> = BTreeMap::new();
    for entry in entries {
        let place = if entry.stack == key::CALL_SITE { 0 } else { entry.place };
        let (sum, count) = sums.entry((entry.what, function(&entry), place)).or_insert((0, 0));
        (*sum, *count) = (*sum + entry.sum, *count + entry.count);
    }
    let tally =
        |((what, function, place), (sum, count))| Tally { what, function, place, sum, count };
    sums.into_iter().map(tally).collect()
}

/// The maps that programs add to.
#[derive(Debug)]
pub(crate) struct Maps {
    /// [`Entry`] by its first three members.
    entries: Map,
    stacks: Map,
    /// Number of events for which there was no room, in the only entry.
    lost: Map,
}

/// An entry as the programs write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// See [`Tally`].
    pub what: u32,
    /// Id of a call stack.
    pub stack: i32,
    /// See [`Tally`].
    pub place: u64,
    /// See [`Tally`].
    pub sum: u64,
    /// See [`Tally`].
    pub count: u64,
}

/// Offsets of the members of an entry's key, in bytes.
pub(crate) mod key {
    /// See [`super::Tally`]; 32 bits.
    pub(crate) const WHAT: i16 = 0;
    /// Id of a call stack, negative if there is none; 32 bits.
    pub(crate) const STACK: i16 = 4;
    /// See [`super::Tally`]; 64 bits.
    pub(crate) const PLACE: i16 = 8;
    /// In place of a call stack: the place is a return address in the function. The kernel returns
    /// neither this number nor the next as an error of taking a stack.
    pub(crate) const CALL_SITE: i32 = -1;
    /// In place of a call stack: it was not taken.
    pub(crate) const NOT_TAKEN: i32 = -2;
    /// Size of the whole.
    pub(crate) const SIZE: i16 = 16;
}

impl Entry {
    /// Decodes an entry; missing bytes count as zeros.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Entry {
        Entry {
            what: bpf::number(key, key::WHAT as usize, 4) as u32,
            stack: bpf::number(key, key::STACK as usize, 4) as i32,
            place: bpf::number(key, key::PLACE as usize, 8),
            sum: bpf::number(value, 0, 8),
            count: bpf::number(value, 8, 8),
        }
    }
}

impl Maps {
    /// Most entries: functions times kinds of events.
    const ENTRIES: u32 = 4096;
    /// Number of slots for call stacks. Stacks with the same hash share a slot, so there are more
    /// slots than stacks.
    const STACKS: u32 = 8192;
    /// Frames of a call stack, including some of the tracepoint itself.
    const FRAMES: usize = 12;

    pub(crate) fn new() -> Result<Maps, Fault> {
        Ok(Maps {
            entries: map(MapKind::ReservedHash, "entries", key::SIZE as usize, 16, Self::ENTRIES)?,
            stacks: map(MapKind::StackTrace, "stacks", 4, 8 * Self::FRAMES, Self::STACKS)?,
            lost: map(MapKind::Array, "lost", 4, 8, 1)?,
        })
    }

    /// `R0` = the id of the current call stack, negative if there was no room for it. `context`
    /// contains the program's context. Changes R1 to R5.
    ///
    /// ```c
    /// bpf_get_stackid(context, &stacks, BPF_F_FAST_STACK_CMP)
    /// ```
    pub(crate) fn stack(&self, a: &mut Assembler, context: Reg) {
        /// Stacks count as equal if their hashes are (uapi/linux/bpf.h).
        const BPF_F_FAST_STACK_CMP: i32 = 1 << 9;
        a.mov(R1, context).map(R2, self.stacks.as_fd()).mov(R3, BPF_F_FAST_STACK_CMP);
        a.call(Helper::GetStackId);
    }

    /// Like [`Self::stack`], for one event in [`UNWIND_ONE_IN`] at random; [`key::NOT_TAKEN`] for
    /// the others.
    ///
    /// ```c
    /// bpf_get_prandom_u32() & (UNWIND_ONE_IN - 1) ? NOT_TAKEN : stack(context)
    /// ```
    pub(crate) fn sampled_stack(&self, a: &mut Assembler, context: Reg) {
        a.call(Helper::GetPrandomU32).alu(Alu::And, R0, UNWIND_ONE_IN as i32 - 1);
        a.mov(R1, R0).mov(R0, key::NOT_TAKEN).jump_if(If::Ne, R1, 0, "not taken");
        self.stack(a, context);
        a.label("not taken");
    }

    /// Adds `R7` to the entry whose key is on the stack at `key`. Changes R0 to R5 and the 16
    /// bytes at `scratch`; `tag` makes its labels unique.
    ///
    /// ```c
    /// void add(struct key *key, u64 value)
    /// {
    ///         struct { u64 sum, count; } zero = {}, *entry;
    ///
    ///         entry = bpf_map_lookup_elem(&entries, key);
    ///         if (!entry) {
    ///                 bpf_map_update_elem(&entries, key, &zero, BPF_NOEXIST);
    ///                 entry = bpf_map_lookup_elem(&entries, key);
    ///         }
    ///         if (!entry) {
    ///                 count_lost();
    ///                 return;
    ///         }
    ///         __sync_fetch_and_add(&entry->sum, value);
    ///         __sync_fetch_and_add(&entry->count, 1);
    /// }
    /// ```
    pub(crate) fn add(&self, a: &mut Assembler, key: i16, scratch: i16, tag: &str) {
        let (found, done) = (format!("found {tag}"), format!("added {tag}"));
        bpf::lookup(a, &self.entries, key);
        a.jump_if(If::Ne, R0, 0, &*found);
        a.store(Size::Double, R10, scratch, 0).store(Size::Double, R10, scratch + 8, 0);
        bpf::update(a, &self.entries, key, scratch, Update::IfNew);
        bpf::lookup(a, &self.entries, key);
        a.jump_if(If::Ne, R0, 0, &*found);
        self.count_lost(a, scratch, &done);
        a.jump(&*done);
        a.label(found).mov(R1, 1).atomic_add(R0, 0, R7).atomic_add(R0, 8, R1);
        a.label(done);
    }

    /// Counts an event for which there was no room; jumps to `out` if that fails. Changes R0 to R5
    /// and 4 bytes at `scratch`.
    ///
    /// ```c
    /// void count_lost(void)
    /// {
    ///         u32 key = 0;
    ///         u64 *count = bpf_map_lookup_elem(&lost, &key);
    ///
    ///         if (count)
    ///                 __sync_fetch_and_add(count, 1);
    /// }
    /// ```
    pub(crate) fn count_lost(&self, a: &mut Assembler, scratch: i16, out: &str) {
        a.store(Size::Word, R10, scratch, 0);
        bpf::lookup(a, &self.lost, scratch);
        a.jump_if(If::Eq, R0, 0, out).mov(R1, 1).atomic_add(R0, 0, R1);
    }

    /// Returns the number of events for which there was no room since the last call.
    pub(crate) fn take_lost(&self) -> Result<u64, Fault> {
        let only = 0u32.to_ne_bytes();
        let lost = self.lost.lookup(&only).map_err(unreadable)?;
        self.lost.update(&only, &[0; 8], Update::Any).map_err(unreadable)?;
        Ok(bpf::number(&lost, 0, 8))
    }

    fn take_entries(&self) -> io::Result<Vec<Entry>> {
        let entries = bpf::take(&self.entries)?;
        Ok(entries.iter().map(|(key, value)| Entry::decode(key, value)).collect())
    }

    /// Takes the call stacks: return addresses by the id of the stack, innermost first.
    fn take_stacks(&self) -> io::Result<BTreeMap<i32, Vec<u64>>> {
        let decode = |(key, value): (Vec<u8>, Vec<u8>)| {
            let frames = value.chunks_exact(8).map(|frame| bpf::number(frame, 0, 8));
            (bpf::number(&key, 0, 4) as i32, frames.take_while(|frame| *frame != 0).collect())
        };
        Ok(bpf::take(&self.stacks)?.into_iter().map(decode).collect())
    }
}

/// Names of the kernel's functions.
#[derive(Debug)]
pub(crate) struct Names {
    pub symbols: KernelSymbols,
}

impl Names {
    /// Reads `/proc/kallsyms`, which takes some ten milliseconds.
    pub(crate) fn read(roots: &Roots) -> Result<Names, Fault> {
        let path = roots.proc.join("kallsyms");
        let text = std::fs::read(&path).map_err(|e| Fault::system(path.display(), &e))?;
        Ok(Names { symbols: KernelSymbols::parse(String::from_utf8_lossy(&text).into_owned()) })
    }

    /// Checks that the names can be read, and returns none of them: enough for an attempt.
    pub(crate) fn readable(roots: &Roots) -> Result<Names, Fault> {
        let path = roots.proc.join("kallsyms");
        File::open(&path).map_err(|e| Fault::system(path.display(), &e))?;
        Ok(Names { symbols: KernelSymbols::default() })
    }

    /// Returns the innermost function of a stack that belongs neither to one of the subsystems
    /// `below` nor to the tracepoint; the outermost one if all do.
    fn caller(&self, stack: &[u64], below: &[Subsystem]) -> String {
        let mut frames = stack.iter().map(|address| self.symbols.frame(address.saturating_sub(1)));
        // Programs are loaded after the names were read, so their frames are bare addresses.
        let passed = |frame: &Frame| match Rules::built_in().class(frame) {
            Some(Class::Is(Subsystem::Tracing) | Class::Caller) => true,
            Some(Class::Is(subsystem)) => below.contains(&subsystem),
            None => frame.module == "[bpf]" || frame.function.starts_with("0x"),
        };
        let caller = frames.clone().find(|frame| !passed(frame)).or_else(|| frames.next_back());
        caller.map_or_else(|| UNKNOWN.to_owned(), |frame| frame.function)
    }
}

/// Offsets of the members of `task_struct` that tell whose task it is, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    flags: i16,
    comm: i16,
}

impl Task {
    /// Looks up the offsets; the error names what this kernel lacks.
    pub(crate) fn of(btf: &Btf) -> Result<Task, Fault> {
        let at = |path: &str| bpf::task_member(btf, path);
        Ok(Task { flags: at("flags")?, comm: at("comm")? })
    }

    /// Jumps to `own` if the task in a register is a flow's thread, one of io_uring's, or the
    /// kernel's own. Changes R2 to R4.
    ///
    /// ```c
    /// task->flags & (PF_KTHREAD | PF_IO_WORKER)
    ///         || !strncmp(task->comm, "sender/", 7) || !strncmp(task->comm, "receiver", 8)
    /// ```
    pub(crate) fn is_own(self, a: &mut Assembler, task: Reg, own: &str) {
        // include/linux/sched.h
        const PF_IO_WORKER: i32 = 0x10;
        const PF_KTHREAD: i32 = 0x20_0000;
        a.load(Size::Word, R2, task, self.flags);
        a.jump_if(If::Set, R2, PF_KTHREAD | PF_IO_WORKER, own);
        a.load(Size::Double, R2, task, self.comm);
        bpf::named(a, b"sender/", own);
        bpf::named(a, b"receiver", own);
    }
}

/// The owner of a thread, by its name: indexed by the result of [`Task::load_owner`].
pub(crate) const THREAD_OWNERS: [&str; 5] = ["other", "sender", "receiver", "vhost", "pktgen"];

impl Task {
    /// `to` = the index in [`THREAD_OWNERS`] of the task in a register, by the start of
    /// `task->comm`. Changes R2 to R4; `tag` makes its labels unique.
    pub(crate) fn load_owner(self, a: &mut Assembler, task: Reg, to: Reg, tag: &str) {
        const STARTS: [&[u8]; 4] = [b"sender/", b"receiver", b"vhost-", b"kpktgend"];
        let label = |name: &str| format!("{name} {tag}");
        a.load(Size::Double, R2, task, self.comm);
        for (start, name) in STARTS.iter().zip(&THREAD_OWNERS[1..]) {
            bpf::named(a, start, &label(name));
        }
        a.mov(to, 0).jump(label("known"));
        for (number, name) in (1..).zip(&THREAD_OWNERS[1..]) {
            a.label(label(name)).mov(to, number).jump(label("known"));
        }
        a.label(label("known"));
    }
}

/// Most functions to name per window for each kind of event. The others are added up.
const NAMED: usize = 20;

/// Returns the rows to name, the largest first, and the sum of the others. Rows without a function
/// are left out.
pub(crate) fn ranked(mut rows: Vec<Tally>) -> Vec<Tally> {
    rows.retain(|row| !row.function.is_empty());
    rows.sort_by(|a, b| (b.sum, b.count, &a.function).cmp(&(a.sum, a.count, &b.function)));
    let rest = rows.split_off(NAMED.min(rows.len()));
    let add = |mut all: Tally, one: Tally| {
        (all.sum, all.count) = (all.sum + one.sum, all.count + one.count);
        all
    };
    let named = |one: Tally| Tally { function: OTHERS.to_owned(), place: 0, ..one };
    rows.extend(rest.into_iter().reduce(add).map(named));
    rows
}

/// Name for the sum of all functions that are not named.
const OTHERS: &str = "[others]";

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
ffffffff81000000 T _stext
ffffffff81000100 T tcp_sendmsg_locked
ffffffff81000200 T __mutex_lock
ffffffff81000300 T __traceiter_contention_begin
ffffffff81000400 T pipe_write
ffffffff81000500 T _etext
ffffffff82000000 D net_lock
ffffffffc0000100 t bpf_prog_6deef7357e7b4530_sd\t[bpf]
";

    fn tally(function: &str, sum: u64) -> Tally {
        Tally { what: 1, function: function.into(), place: 7, sum, count: 1 }
    }

    #[test]
    fn names_the_first_caller_outside_of_the_locks() {
        let names = Names { symbols: KernelSymbols::parse(KALLSYMS.into()) };
        let at = |low: u64| 0xffff_ffff_8100_0000 + low;
        let program = 0xffff_ffff_c000_0110;
        let later = 0xffff_ffff_d000_0000;
        let stack = [later, program, at(0x310), at(0x210), at(0x410), at(0x110)];
        assert_eq!(names.caller(&stack, &[Subsystem::Locks]), "pipe_write");
        assert_eq!(names.caller(&stack[..4], &[Subsystem::Locks]), "__mutex_lock", "nothing else");
        assert_eq!(names.caller(&stack, &[]), "__mutex_lock");
        // A return address may be the first address of the next function.
        assert_eq!(names.caller(&[at(0x200)], &[]), "tcp_sendmsg_locked");
        assert_eq!(names.caller(&[], &[]), UNKNOWN);
        assert_eq!(names.symbols.object(0xffff_ffff_8200_0000), Some("net_lock"));
    }

    #[test]
    fn merges_entries_of_one_function() {
        let key = [&9u32.to_ne_bytes()[..], &(-17i32).to_ne_bytes(), &3u64.to_ne_bytes()].concat();
        let value = [5u64, 2].map(u64::to_ne_bytes).concat();
        let entry = Entry::decode(&key, &value);
        assert_eq!(entry, Entry { what: 9, stack: -17, place: 3, sum: 5, count: 2 });
        assert_eq!(
            Entry::decode(&[], &[]),
            Entry { what: 0, stack: 0, place: 0, sum: 0, count: 0 }
        );
        let site = Entry { stack: key::CALL_SITE, ..entry };
        let all = merge_by_function(vec![entry, Entry { stack: 4, ..entry }, site], |_| "f".into());
        let row = |place, sum, count| Tally { what: 9, function: "f".into(), place, sum, count };
        assert_eq!(all, [row(0, 5, 2), row(3, 10, 4)], "a call site is not a place");
    }

    #[test]
    fn names_the_largest_and_adds_up_the_others() {
        let rows: Vec<Tally> = (0..NAMED as u64 + 2).map(|n| tally(&format!("f{n}"), n)).collect();
        let ranked = ranked(rows.clone());
        assert_eq!((ranked[0].function.as_str(), ranked.len()), ("f21", NAMED + 1));
        let rest = Tally { place: 0, count: 2, ..tally(OTHERS, 1) };
        assert_eq!(ranked.last(), Some(&rest));
        assert_eq!(super::ranked(vec![tally("", 9), rows[0].clone()]), rows[..1]);
    }
}
