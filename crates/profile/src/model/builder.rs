//! Builds a profile sample by sample.

use super::profile::{
    Frame, FrameId, FrameRef, Header, Profile, Sample, StackId, Thread, ThreadId,
};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::{BuildHasher, Hasher};

/// Builds a profile sample by sample; equal frames, threads and stacks are stored once.
///
/// Known items are found through tables of ids whose keys are in the profile itself: nothing is
/// stored twice, which matters with a million stacks. The hashes are seeded anew in every process,
/// so no file can be made to collide.
#[derive(Debug, Default)]
pub struct Builder {
    profile: Profile,
    hashes: DefaultHashBuilder,
    frames: HashTable<u32>,
    threads: HashTable<u32>,
    stacks: HashTable<u32>,
    /// Indices of samples without a time, by stack, thread, owner and CPU.
    merged: HashTable<u32>,
}

impl Builder {
    pub fn new(header: Header) -> Self {
        Builder { profile: Profile { header, ..Profile::default() }, ..Builder::default() }
    }

    /// Returns the header, for the caller to fill in.
    pub fn header(&mut self) -> &mut Header {
        &mut self.profile.header
    }

    /// Returns the id of a function.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        self.frame_of(frame.borrowed())
    }

    /// Returns the id of a function with borrowed texts: they are copied only if it is new.
    pub fn frame_of(&mut self, frame: FrameRef) -> FrameId {
        let (frames, hashes) = (&mut self.profile.frames, &self.hashes);
        let same = |known: &Frame| known.borrowed() == frame;
        let hash_of = |known: &Frame| hashes.hash_one(known.borrowed());
        let hash = hashes.hash_one(frame);
        FrameId(place(&mut self.frames, frames, hash, same, hash_of, || frame.to_frame()))
    }

    /// Returns the id of a thread.
    pub fn thread(&mut self, thread: Thread) -> ThreadId {
        let (threads, hashes) = (&mut self.profile.threads, &self.hashes);
        let same = |known: &Thread| *known == thread;
        let hash_of = |known: &Thread| hashes.hash_one(known);
        let hash = hash_of(&thread);
        ThreadId(place(&mut self.threads, threads, hash, same, hash_of, || thread.clone()))
    }

    /// Returns the function with this id.
    pub fn function(&self, frame: FrameId) -> &Frame {
        self.profile.frame(frame)
    }

    /// Returns the name of the thread with this id; empty if unknown.
    pub fn name(&self, thread: ThreadId) -> &str {
        self.profile.threads.get(thread.0 as usize).map_or("", |thread| &thread.name)
    }

    /// Returns the id of a stack, given leaf first.
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        let Builder { profile, hashes, stacks, .. } = self;
        let same = |id: &u32| profile.stack(StackId(*id)) == frames;
        let hash_of = |id: &u32| hash_of_stack(hashes, profile.stack(StackId(*id)));
        let known = stacks.entry(hash_of_stack(hashes, frames), same, hash_of);
        let new = || {
            profile.links.extend_from_slice(frames);
            profile.ends.push(profile.links.len());
            profile.ends.len() as u32 - 1
        };
        StackId(*known.or_insert_with(new).get())
    }

    /// Adds a sample. One without a time is merged with equal ones, so that memory does not grow
    /// with the number of samples.
    pub fn add(&mut self, sample: Sample) {
        let (samples, hashes) = (&mut self.profile.samples, &self.hashes);
        if sample.time.is_some() {
            samples.push(sample);
            return;
        }
        let key = |s: &Sample| (s.stack, s.thread, s.owner, s.cpu);
        let same = |known: &Sample| key(known) == key(&sample);
        let hash_of = |known: &Sample| hashes.hash_one(key(known));
        let next = samples.len();
        let at = place(&mut self.merged, samples, hash_of(&sample), same, hash_of, || sample);
        if let Some(known) = samples[..next].get_mut(at as usize) {
            known.count = known.count.saturating_add(sample.count);
            known.weight += sample.weight;
        }
    }

    pub fn build(mut self) -> Profile {
        self.profile.samples.shrink_to_fit();
        self.profile
    }
}

impl Profile {
    /// Joins the profiles of several hosts that did one piece of work together: the work is that of
    /// the first, everything else is added up. Empty if there are none. Each host counts its CPUs
    /// from zero, so joined samples have no CPU.
    pub fn joined(parts: Vec<Profile>) -> Profile {
        let mut builder = Builder::default();
        let is_one = parts.len() == 1;
        for (number, part) in parts.into_iter().enumerate() {
            let frames = part.frames.iter().map(|frame| builder.frame_of(frame.borrowed()));
            let frames: Vec<FrameId> = frames.collect();
            for sample in &part.samples {
                let stack: Vec<FrameId> =
                    part.stack(sample.stack).iter().map(|id| frames[id.0 as usize]).collect();
                let stack = builder.stack(&stack);
                let thread = builder.thread(part.thread(sample.thread).clone());
                let cpu = sample.cpu.filter(|_| is_one);
                builder.add(Sample { stack, thread, cpu, ..*sample });
            }
            let header = builder.header();
            if number == 0 {
                *header = part.header;
                continue;
            }
            header.lost += part.header.lost;
            header.cpus = header.cpus.zip(part.header.cpus).map(|(one, other)| one + other);
            for note in part.header.notes {
                if !header.notes.contains(&note) {
                    header.notes.push(note);
                }
            }
        }
        builder.build()
    }
}

/// Returns the index of an item in a list, appending it if it is new.
fn place<T>(
    places: &mut HashTable<u32>,
    list: &mut Vec<T>,
    hash: u64,
    same: impl Fn(&T) -> bool,
    hash_of: impl Fn(&T) -> u64,
    new: impl FnOnce() -> T,
) -> u32 {
    let same = |at: &u32| same(&list[*at as usize]);
    let known = places.entry(hash, same, |at| hash_of(&list[*at as usize]));
    let new = || {
        list.push(new());
        list.len() as u32 - 1
    };
    *known.or_insert_with(new).get()
}

fn hash_of_stack(hashes: &DefaultHashBuilder, frames: &[FrameId]) -> u64 {
    let mut hasher = hashes.build_hasher();
    frames.iter().for_each(|id| hasher.write_u32(id.0));
    // Without its length, a stack would collide with itself plus leading zeros.
    hasher.write_usize(frames.len());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameKind, Owner};

    #[test]
    fn profiles_of_two_hosts_add_up() {
        let of = |functions: &[&str], pid| {
            let mut builder = Builder::new(Header {
                title: "cell".into(),
                cpus: Some(2),
                lost: 1,
                ..Header::default()
            });
            let frame = |f: &&str| Frame { function: (*f).into(), ..Frame::default() };
            let frames: Vec<FrameId> =
                functions.iter().map(|function| builder.frame(frame(function))).collect();
            let (stack, name) = (builder.stack(&frames), "sender/0".to_owned());
            let thread = builder.thread(Thread { name, pid, tid: pid });
            let (owner, time, cpu) = (Owner::Unknown, None, Some(0));
            builder.add(Sample { stack, thread, owner, cpu, time, count: 3, weight: 30.0 });
            builder.build()
        };
        let joined = Profile::joined(vec![of(&["f", "g"], 1), of(&["g", "h"], 2)]);
        assert_eq!((joined.count(), joined.header.lost, joined.header.cpus), (6, 2, Some(4)));
        assert_eq!(joined.header.title, "cell");
        // CPU 0 of one host is not CPU 0 of the other.
        assert!(joined.samples().iter().all(|sample| sample.cpu.is_none()));
        let one = Profile::joined(vec![of(&["f"], 1)]);
        assert_eq!(one.samples()[0].cpu, Some(0));
        let name = |id: &FrameId| joined.frame(*id).function.clone();
        let stacks: Vec<Vec<String>> = joined
            .samples()
            .iter()
            .map(|sample| joined.stack(sample.stack).iter().map(name).collect())
            .collect();
        assert_eq!(stacks, [["f", "g"], ["g", "h"]]);
        let pids: Vec<u32> =
            joined.samples().iter().map(|sample| joined.thread(sample.thread).pid).collect();
        assert_eq!((pids, joined.frames().len()), (vec![1, 2], 3));
    }

    #[test]
    fn equal_things_are_kept_once_and_untimed_samples_add_up() {
        let mut builder = Builder::new(Header::default());
        let frame = Frame { function: "f".into(), ..Frame::default() };
        let f = builder.frame(frame.clone());
        assert_eq!(builder.frame(frame), f);
        let g = builder.frame(Frame { function: "g".into(), ..Frame::default() });
        let thread = builder.thread(Thread::default());
        let (deep, flat) = (builder.stack(&[g, f]), builder.stack(&[f]));
        assert_eq!(builder.stack(&[g, f]), deep);
        let sample = Sample {
            stack: deep,
            thread,
            owner: Owner::Unknown,
            cpu: None,
            time: None,
            count: 1,
            weight: 2.0,
        };
        builder.add(sample);
        builder.add(sample);
        builder.add(Sample { stack: flat, ..sample });
        builder.add(Sample { time: Some(0.5), ..sample });
        let profile = builder.build();
        assert_eq!(profile.samples().len(), 3);
        assert_eq!((profile.count(), profile.total()), (4, 8.0));
        assert_eq!(profile.stack(deep), [g, f]);
        assert_eq!(profile.stack(flat), [f]);
    }

    #[test]
    fn borrowed_and_owned_frames_are_equal() {
        let mut builder = Builder::default();
        let lent = FrameRef { function: "f", kind: FrameKind::Kernel, ..FrameRef::default() };
        let f = builder.frame_of(lent);
        assert_eq!(builder.frame(lent.to_frame()), f);
        // Fields that the hash ignores distinguish frames nevertheless.
        for other in [
            FrameRef { kind: FrameKind::User, ..lent },
            FrameRef { inlined: true, ..lent },
            FrameRef { file: "f.c", ..lent },
            FrameRef { build_id: "00", ..lent },
            FrameRef { module: "[veth]", ..lent },
        ] {
            let id = builder.frame_of(other);
            assert_ne!(id, f, "{other:?}");
            assert_eq!(builder.frame_of(other), id);
            assert_eq!(builder.function(id).borrowed(), other);
        }
    }

    #[test]
    fn tables_that_grow_still_find_everything() {
        let mut builder = Builder::default();
        let names: Vec<String> = (0..3000).map(|i| format!("function_{i}")).collect();
        let frame = |name: &'_ str| Frame { function: name.to_owned(), ..Frame::default() };
        let ids: Vec<FrameId> = names.iter().map(|name| builder.frame(frame(name))).collect();
        let stacks: Vec<StackId> = ids.windows(5).map(|stack| builder.stack(stack)).collect();
        assert_eq!(builder.stack(&[]), builder.stack(&[]));
        for (name, id) in names.iter().zip(&ids) {
            assert_eq!(builder.frame(frame(name)), *id);
        }
        for (stack, id) in ids.windows(5).zip(&stacks) {
            assert_eq!(builder.stack(stack), *id);
        }
        assert_eq!(builder.build().stacks(), stacks.len() + 1);
    }
}
