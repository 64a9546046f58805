//! Stacks and samples of a profile by subsystem.

use super::catalogue::Subsystem;
use super::rules::{COPIES, Class, Rules, SUBMITS};
use crate::{FrameId, FrameKind, Owner, Profile, Sample, StackId};
use serde::{Deserialize, Serialize};

/// The subsystem of every stack of a profile.
#[derive(Clone, Debug)]
pub struct Classes {
    frames: Vec<Option<Class>>,
    stacks: Vec<Subsystem>,
}

impl Classes {
    /// Classifies every stack. Each function is looked up once.
    pub fn of(profile: &Profile, rules: &Rules) -> Classes {
        let frames: Vec<Option<Class>> = profile.frames().iter().map(|f| rules.class(f)).collect();
        let stack = |index: usize| {
            let stack = profile.stack(StackId(index as u32));
            let known = |id: &FrameId| frames.get(id.0 as usize).copied().flatten();
            // What a program's function of a subsystem calls is part of it.
            let submits = stack.iter().position(|id| known(id) == Some(SUBMITS));
            let copies = stack.first().and_then(known) == Some(COPIES);
            let own = if copies { Subsystem::ProgramCopy } else { Subsystem::User };
            let program = || submits.map_or(own, |_| Subsystem::CopySubmission);
            // Where nothing but names is known, those that copy are libc's, too; any other that the
            // kernel has shows that it was reached.
            let is_of_program = |id: &FrameId| {
                let is_shared =
                    known(id).is_none_or(|c| c == Class::Is(Subsystem::Copy) || c == COPIES);
                profile.frame(*id).kind == FrameKind::Unknown && is_shared
            };
            if submits.is_some_and(|at| stack[..at].iter().all(is_of_program)) {
                return program();
            }
            for id in stack {
                match (profile.frame(*id).kind, known(id)) {
                    (FrameKind::User, _) if Some(id) == stack.first() => return program(),
                    // A helper that no function of the kernel called.
                    (FrameKind::User, _) => break,
                    (_, Some(Class::Is(subsystem))) => return subsystem,
                    (_, Some(Class::Caller)) => {}
                    (FrameKind::Kernel, None) => return Subsystem::Other,
                    // Of a stack about which nothing is known, and no function of which
                    // is one of the kernel's, only user space is left.
                    (FrameKind::Unknown, None)
                        if stack.iter().all(|id| known(id).is_none_or(|c| c == SUBMITS)) =>
                    {
                        return program();
                    }
                    (FrameKind::Unknown, None) => return Subsystem::Other,
                }
            }
            // Nothing but helpers.
            let leaf = stack.first().map(|id| profile.frame(*id));
            leaf.and_then(|leaf| rules.alone(leaf)).unwrap_or(Subsystem::Other)
        };
        let stacks = (0..profile.stacks()).map(stack).collect();
        Classes { frames, stacks }
    }

    /// The class of every function, in the order of the profile.
    pub fn frames(&self) -> &[Option<Class>] {
        &self.frames
    }

    /// The subsystem of a sample.
    pub fn sample(&self, sample: &Sample) -> Subsystem {
        match sample.owner {
            Owner::Idle => Subsystem::Idle,
            _ => self.stacks.get(sample.stack.0 as usize).copied().unwrap_or(Subsystem::Other),
        }
    }
}

/// How much of the kernel's time the rules could name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Weight of the samples in the kernel that were not idle.
    pub kernel: f64,
    /// The part of that weight which no rule fits.
    pub other: f64,
}

impl Coverage {
    /// Adds the samples of a profile.
    pub fn add(&mut self, profile: &Profile, classes: &Classes) {
        for sample in profile.samples() {
            match classes.sample(sample) {
                Subsystem::Idle => {}
                subsystem if subsystem.is_of_programs() => {}
                subsystem => {
                    self.kernel += sample.weight;
                    if subsystem == Subsystem::Other {
                        self.other += sample.weight;
                    }
                }
            }
        }
    }

    /// The part that was named, 0 to 1; `None` without a sample in the kernel.
    pub fn share(self) -> Option<f64> {
        (self.kernel > 0.0).then(|| 1.0 - self.other / self.kernel)
    }
}

/// Whether a sample is of a CPU that had nothing to do: its owner shows that, or
/// its thread is the idle task and the function one that waits. Softirqs that ran
/// on top of the idle task are work.
pub fn is_idle(profile: &Profile, classes: &Classes, sample: &Sample) -> bool {
    let thread = &profile.thread(sample.thread).name;
    let swapper = thread == "swapper" || thread.starts_with("swapper/");
    sample.owner == Owner::Idle || swapper && classes.sample(sample) == Subsystem::Idle
}
