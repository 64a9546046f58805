//! Making a profile, sample by sample.

use super::profile::{
    Frame, FrameId, FrameRef, Header, Profile, Sample, StackId, Thread, ThreadId,
};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::{BuildHasher, Hasher};

/// Makes a profile, sample by sample; equal frames, threads and stacks are kept once.
///
/// What is known already is found in tables of ids, whose keys are in the profile
/// itself: nothing is kept twice, which counts where there are a million stacks. The
/// hashes are reseeded in every process, so no file can be made to collide.
#[derive(Debug, Default)]
pub struct Builder {
    profile: Profile,
    hashes: DefaultHashBuilder,
    frames: HashTable<u32>,
    threads: HashTable<u32>,
    stacks: HashTable<u32>,
    /// Places of samples without a time, by where they were taken.
    merged: HashTable<u32>,
}

impl Builder {
    pub fn new(header: Header) -> Self {
        Builder { profile: Profile { header, ..Profile::default() }, ..Builder::default() }
    }

    /// The header, to be filled in as it becomes known.
    pub fn header(&mut self) -> &mut Header {
        &mut self.profile.header
    }

    /// The id of a function.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        self.known_frame(frame.borrowed()).unwrap_or_else(|| self.new_frame(frame))
    }

    /// The id of a function whose texts are lent: they are copied only if it is new.
    pub fn frame_of(&mut self, frame: FrameRef) -> FrameId {
        self.known_frame(frame).unwrap_or_else(|| self.new_frame(frame.to_frame()))
    }

    fn known_frame(&self, frame: FrameRef) -> Option<FrameId> {
        let known = &self.profile.frames;
        let same = |id: &u32| known.get(*id as usize).is_some_and(|k| k.borrowed() == frame);
        self.frames.find(self.hashes.hash_one(frame), same).copied().map(FrameId)
    }

    fn new_frame(&mut self, frame: Frame) -> FrameId {
        let id = self.profile.frames.len() as u32;
        let hash = self.hashes.hash_one(frame.borrowed());
        self.profile.frames.push(frame);
        let (known, hashes) = (&self.profile.frames, &self.hashes);
        let hash_of =
            |id: &u32| known.get(*id as usize).map_or(0, |k| hashes.hash_one(k.borrowed()));
        self.frames.insert_unique(hash, id, hash_of);
        FrameId(id)
    }

    /// The id of a thread.
    pub fn thread(&mut self, thread: Thread) -> ThreadId {
        let (known, hashes) = (&mut self.profile.threads, &self.hashes);
        let hash = hashes.hash_one(&thread);
        let same = |id: &u32| known.get(*id as usize) == Some(&thread);
        if let Some(id) = self.threads.find(hash, same) {
            return ThreadId(*id);
        }
        let id = known.len() as u32;
        known.push(thread);
        let hash_of = |id: &u32| known.get(*id as usize).map_or(0, |k| hashes.hash_one(k));
        self.threads.insert_unique(hash, id, hash_of);
        ThreadId(id)
    }

    /// A function that was given an id here.
    pub fn function(&self, frame: FrameId) -> Option<&Frame> {
        self.profile.frames.get(frame.0 as usize)
    }

    /// Name of a thread that was given an id here; empty for any other.
    pub fn name(&self, thread: ThreadId) -> &str {
        self.profile.threads.get(thread.0 as usize).map_or("", |thread| &thread.name)
    }

    /// The id of a stack, given leaf first.
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        let Builder { profile, hashes, stacks, .. } = self;
        let hash = hash_of_stack(hashes, frames);
        let known = |id: &u32| profile.known_stack(*id) == Some(frames);
        if let Some(id) = stacks.find(hash, known) {
            return StackId(*id);
        }
        let id = profile.ends.len() as u32;
        profile.links.extend_from_slice(frames);
        profile.ends.push(profile.links.len());
        let hash_of =
            |id: &u32| profile.known_stack(*id).map_or(0, |known| hash_of_stack(hashes, known));
        stacks.insert_unique(hash, id, hash_of);
        StackId(id)
    }

    /// Adds a sample. One without a time is added up with its like, so that the
    /// memory needed does not grow with the number of samples.
    pub fn add(&mut self, sample: Sample) {
        let (samples, hashes) = (&mut self.profile.samples, &self.hashes);
        if sample.time.is_some() {
            samples.push(sample);
            return;
        }
        let key = |s: &Sample| (s.stack, s.thread, s.owner, s.cpu);
        let hash = hashes.hash_one(key(&sample));
        let same = |at: &u32| samples.get(*at as usize).is_some_and(|s| key(s) == key(&sample));
        let found = self.merged.find(hash, same).copied();
        match found.and_then(|at| samples.get_mut(at as usize)) {
            Some(known) => {
                known.count = known.count.saturating_add(sample.count);
                known.weight += sample.weight;
            }
            None => {
                let at = samples.len() as u32;
                samples.push(sample);
                let hash_of =
                    |at: &u32| samples.get(*at as usize).map_or(0, |s| hashes.hash_one(key(s)));
                self.merged.insert_unique(hash, at, hash_of);
            }
        }
    }

    pub fn build(mut self) -> Profile {
        self.profile.samples.shrink_to_fit();
        self.profile
    }
}

impl Profile {
    /// The samples of several hosts that did one piece of work together: what was done is
    /// that of the first, everything else adds up. Nothing is left of none.
    pub fn joined(parts: Vec<Profile>) -> Profile {
        let mut builder = Builder::default();
        for (number, part) in parts.into_iter().enumerate() {
            let frames = part.frames.iter().map(|frame| builder.frame_of(frame.borrowed()));
            let frames: Vec<FrameId> = frames.collect();
            for sample in &part.samples {
                let stack: Vec<FrameId> =
                    part.stack(sample.stack).iter().map(|id| frames[id.0 as usize]).collect();
                let stack = builder.stack(&stack);
                let thread = builder.thread(part.thread(sample.thread).clone());
                builder.add(Sample { stack, thread, ..*sample });
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

    /// The frames of a stack that may not be there.
    fn known_stack(&self, id: u32) -> Option<&[FrameId]> {
        let index = id as usize;
        let begin = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.links.get(begin..*self.ends.get(index)?)
    }
}

fn hash_of_stack(hashes: &DefaultHashBuilder, frames: &[FrameId]) -> u64 {
    let mut hasher = hashes.build_hasher();
    frames.iter().for_each(|id| hasher.write_u32(id.0));
    // Without its length, a stack would collide with itself and zeros before it.
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
        // What its hash leaves out tells it apart anyway.
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
            assert_eq!(builder.function(id).map(Frame::borrowed), Some(other));
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
