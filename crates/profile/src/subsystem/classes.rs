//! Classifies the stacks and samples of a profile by subsystem.

use super::catalogue::Subsystem;
use super::rules::{COPIES, Class, Rules, SUBMITS};
use crate::{FrameId, FrameKind, Owner, Profile, Sample, StackId};
use serde::{Deserialize, Serialize};

/// The subsystem of each stack of a profile.
#[derive(Clone, Debug)]
pub struct Classes {
    frames: Vec<Option<Class>>,
    stacks: Vec<Subsystem>,
}

impl Classes {
    /// Classifies all stacks. Looks up each function only once.
    pub fn of(profile: &Profile, rules: &Rules) -> Classes {
        let frames: Vec<Option<Class>> = profile.frames().iter().map(|f| rules.class(f)).collect();
        let stack = |index: usize| {
            let stack = profile.stack(StackId(index as u32));
            let known = |id: &FrameId| frames.get(id.0 as usize).copied().flatten();
            // Whatever a classified function of a program calls belongs to the same subsystem.
            let submits = stack.iter().position(|id| known(id) == Some(SUBMITS));
            let copies = stack.first().and_then(known) == Some(COPIES);
            let own = if copies { Subsystem::ProgramCopy } else { Subsystem::User };
            let program = || submits.map_or(own, |_| Subsystem::CopySubmission);
            // If nothing but names is known, functions that copy may be libc's; any other function
            // of the kernel shows that the program had entered it.
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
                    // If nothing is known about the stack, and none of its functions is the
                    // kernel's, only user space is left.
                    (FrameKind::Unknown, None)
                        if stack.iter().all(|id| known(id).is_none_or(|c| c == SUBMITS)) =>
                    {
                        return program();
                    }
                    (FrameKind::Unknown, None) => return Subsystem::Other,
                }
            }
            // Only helpers.
            let leaf = stack.first().map(|id| profile.frame(*id));
            leaf.and_then(|leaf| rules.alone(leaf)).unwrap_or(Subsystem::Other)
        };
        let stacks = (0..profile.stacks()).map(stack).collect();
        Classes { frames, stacks }
    }

    /// Returns the class of each function, in the order of the profile.
    pub fn frames(&self) -> &[Option<Class>] {
        &self.frames
    }

    /// Returns the subsystem of a sample.
    pub fn sample(&self, sample: &Sample) -> Subsystem {
        match sample.owner {
            Owner::Idle => Subsystem::Idle,
            _ => self.stacks.get(sample.stack.0 as usize).copied().unwrap_or(Subsystem::Other),
        }
    }
}

/// How much of the kernel's time the rules classify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Weight of the kernel's samples that were not idle.
    pub kernel: f64,
    /// The part of that weight that no rule matches.
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

    /// Returns the classified share, 0 to 1, or `None` if no sample was in the kernel.
    pub fn share(self) -> Option<f64> {
        (self.kernel > 0.0).then(|| 1.0 - self.other / self.kernel)
    }
}

/// Whether a sample shows an idle CPU: its owner is idle, or its thread is the idle task and its
/// function one that waits. Softirqs that interrupt the idle task are work.
pub fn is_idle(profile: &Profile, classes: &Classes, sample: &Sample) -> bool {
    let thread = &profile.thread(sample.thread).name;
    let swapper = thread == "swapper" || thread.starts_with("swapper/");
    sample.owner == Owner::Idle || swapper && classes.sample(sample) == Subsystem::Idle
}
