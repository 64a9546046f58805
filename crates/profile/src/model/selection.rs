//! Selects the samples of profiles on some CPUs or of some threads.

use super::{Builder, FrameId, Profile, Sample};
use bytepath_record::{Fault, joined};
use std::collections::BTreeSet;

/// Beginning of the note that marks a partial profile.
const OF_CPUS: &str = "only what ran on CPUs ";
const OF_THREADS: &str = "only threads named ";

/// Returns whether a note marks a profile as partial.
pub fn marks_part(note: &str) -> bool {
    [OF_CPUS, OF_THREADS].iter().any(|lead| note.starts_with(lead))
}

/// Returns the samples of repeated runs that ran on these CPUs; a run may have none. Errors if no
/// run has a sample on these CPUs, or if the samples of a run have no CPU.
pub fn on_cpus(profiles: &[Profile], cpus: &[u32]) -> Result<Vec<Profile>, Fault> {
    let mut all = BTreeSet::new();
    for profile in profiles {
        let known: BTreeSet<u32> = profile.samples().iter().filter_map(|s| s.cpu).collect();
        if known.is_empty() && !profile.samples().is_empty() {
            let title = &profile.header.title;
            let what = format!("{title}: it does not record the CPUs of its samples");
            return Err(Fault::usage(what).remedy(
                "leave out --cpu; perf records them with -a or --sample-cpu, and profiles of two \
                 hosts have none, as their CPUs have the same numbers",
            ));
        }
        all.extend(known);
    }
    if cpus.iter().any(|cpu| all.contains(cpu)) {
        let note = format!("{OF_CPUS}{}", joined(cpus, ","));
        let meant = |sample: &Sample| sample.cpu.is_some_and(|cpu| cpus.contains(&cpu));
        return Ok(profiles.iter().map(|profile| part(profile, &note, meant)).collect());
    }
    let title = profiles.first().map_or("", |profile| &profile.header.title);
    let known = joined(all, ",");
    let fault = Fault::usage(format!("{title}: no sample is of the CPUs named"));
    Err(if known.is_empty() {
        fault.remedy("leave out --cpu: there is no sample at all")
    } else {
        fault.remedy(format!("name one that has some: {known}"))
    })
}

/// Returns the samples of threads whose names begin with `name`. Errors with a list of names if
/// there are none.
pub fn of_threads(profile: &Profile, name: &str) -> Result<Profile, Fault> {
    let is_meant = |sample: &Sample| profile.thread(sample.thread).name.starts_with(name);
    if profile.samples().iter().any(is_meant) {
        return Ok(part(profile, &format!("{OF_THREADS}{name}..."), is_meant));
    }
    let names: BTreeSet<&str> =
        profile.samples().iter().map(|s| profile.thread(s.thread).name.as_str()).collect();
    let title = &profile.header.title;
    let fault = Fault::usage(format!("{title}: no thread has a name that begins with '{name}'"));
    let names = joined(names.into_iter().filter(|name| !name.is_empty()), ", ");
    Err(match names.as_str() {
        "" => fault.remedy("leave out --thread: its samples have no threads"),
        names => fault.remedy(format!("there are {names}")),
    })
}

fn part(profile: &Profile, note: &str, meant: impl Fn(&Sample) -> bool) -> Profile {
    let mut builder = Builder::new(profile.header.clone());
    // The number of CPUs is known only for the whole profile.
    builder.header().cpus = None;
    builder.header().notes.push(note.to_owned());
    for sample in profile.samples().iter().filter(|sample| meant(sample)) {
        let frames = profile.stack(sample.stack).iter();
        let frames = frames.map(|id| builder.frame_of(profile.frame(*id).borrowed()));
        let frames: Vec<FrameId> = frames.collect();
        let stack = builder.stack(&frames);
        let thread = builder.thread(profile.thread(sample.thread).clone());
        builder.add(Sample { stack, thread, ..*sample });
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Header, Thread};

    /// A profile with one sample for each of these CPUs.
    fn profile(cpus: &[Option<u32>]) -> Profile {
        let header = Header { cpus: Some(9), title: "p".into(), ..Header::default() };
        let mut builder = Builder::new(header);
        for cpu in cpus {
            let function = format!("on {cpu:?}");
            let frame = builder.frame(Frame { function, ..Frame::default() });
            let stack = builder.stack(&[frame]);
            let thread = builder.thread(Thread::default());
            let (cpu, weight) = (*cpu, 1.0);
            builder.add(Sample { stack, thread, cpu, weight, ..Sample::default() });
        }
        builder.build()
    }

    #[test]
    fn a_profile_of_some_threads_is_theirs() {
        let mut builder = Builder::new(Header { title: "p".into(), ..Header::default() });
        for name in ["vhost-7", "vhost-9", "kpktgend_0"] {
            let frame = builder.frame(Frame { function: name.into(), ..Frame::default() });
            let stack = builder.stack(&[frame]);
            let thread = builder.thread(Thread { name: name.into(), ..Thread::default() });
            builder.add(Sample { stack, thread, weight: 1.0, ..Sample::default() });
        }
        let all = builder.build();
        let part = of_threads(&all, "vhost").unwrap();
        let functions: Vec<&str> = part.frames().iter().map(|f| f.function.as_str()).collect();
        assert_eq!((part.total(), functions), (2.0, vec!["vhost-7", "vhost-9"]));
        assert_eq!(part.header.notes, ["only threads named vhost..."]);
        assert!(part.header.notes.iter().all(|note| marks_part(note)));
        let none = of_threads(&all, "qemu").unwrap_err();
        assert_eq!(none.remedy.as_deref(), Some("there are kpktgend_0, vhost-7, vhost-9"));
    }

    #[test]
    fn a_profile_of_one_cpu_has_what_ran_there() {
        let all = [profile(&[Some(1), Some(3), None, Some(1), Some(4)])];
        let one = on_cpus(&all, &[1]).unwrap().remove(0);
        assert_eq!((one.total(), one.frames().len()), (2.0, 1));
        assert_eq!(one.frames()[0].function, "on Some(1)");
        let two = on_cpus(&all, &[4, 3, 7]).unwrap().remove(0);
        assert_eq!((two.total(), two.stacks()), (2.0, 2));
        // The note names the CPUs requested, not those with samples.
        assert_eq!(two.header.notes, ["only what ran on CPUs 4,3,7"]);
        assert_eq!((one.header.cpus, two.header.cpus), (None, None));
        let other = on_cpus(&all, &[7]).unwrap_err();
        assert!(other.message.contains("no sample is of the CPUs named"), "{other}");
        assert_eq!(other.remedy.as_deref(), Some("name one that has some: 1,3,4"));
        let unknown = on_cpus(&[profile(&[None])], &[0]).unwrap_err();
        assert!(unknown.message.contains("does not record the CPUs"), "{unknown}");
    }

    /// A CPU that was idle in one of several runs cost nothing there.
    #[test]
    fn a_run_without_a_sample_of_a_cpu_counts_as_nothing() {
        let runs = [profile(&[Some(0), Some(1)]), profile(&[Some(0)]), profile(&[])];
        let part = on_cpus(&runs, &[1]).unwrap();
        assert_eq!(part.iter().map(Profile::total).collect::<Vec<_>>(), [1.0, 0.0, 0.0]);
        assert!(on_cpus(&runs, &[2]).unwrap_err().remedy.unwrap().ends_with("some: 0,1"));
        let unknown = on_cpus(&[profile(&[Some(0)]), profile(&[None])], &[0]).unwrap_err();
        assert!(unknown.message.contains("does not record the CPUs"), "{unknown}");
    }
}
