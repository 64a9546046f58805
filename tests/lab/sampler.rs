//! A profile of a program under observation: when its sampler is called, and how its result is
//! used.

use bytepath::observe::{self, Method, Request, Sampler, SignalFlags, Target};
use bytepath::profile::{Builder, Frame, Header, Owner, Profile, Sample, Thread, Weight};
use bytepath::record::{CopyCount, Ending, Fault, FaultKind};

/// A sampler that finds all of the program's time in a copy function.
struct Fake {
    log: Vec<String>,
    refuse: bool,
    pid: u32,
}

impl Sampler for Fake {
    fn begin(&mut self, pid: u32) -> Result<(), Fault> {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        self.log.push(format!("begin {}", exe.file_name().unwrap().to_string_lossy()));
        self.pid = pid;
        if self.refuse { Err(Fault::new(FaultKind::Permission, "no sampling")) } else { Ok(()) }
    }

    fn tick(&mut self) {
        self.log.push("tick".into());
    }

    fn end(&mut self, _: &[u32]) -> Result<Profile, Fault> {
        self.log.push("end".into());
        let header = Header { weight: Weight::Nanoseconds, ..Header::default() };
        let mut builder = Builder::new(header);
        let frame = builder.frame(Frame { function: "_copy_to_iter".into(), ..Frame::default() });
        let stack = builder.stack(&[frame]);
        let thread = builder.thread(Thread { pid: self.pid, ..Thread::default() });
        let (owner, count, weight) = (Owner::Unknown, 10_000, 1e9);
        builder.add(Sample { stack, thread, owner, cpu: None, time: None, count, weight });
        Ok(builder.build())
    }
}

#[test]
fn a_sampler_begins_before_the_program_and_ends_after_it() {
    let words = ["sh", "-c", "sleep 0.3; exit 8"].map(Into::into).to_vec();
    let request = Request { target: Target::Command(words), method: Method::None, limit: None };
    let mut fake = Fake { log: Vec::new(), refuse: false, pid: 0 };
    let mut seen = observe::observe(&request, &SignalFlags::default(), Some(&mut fake)).unwrap();
    let own = std::env::current_exe().unwrap();
    let own = own.file_name().unwrap().to_string_lossy();
    // The child is still this binary, and not yet the shell.
    assert_eq!(fake.log.first().unwrap(), &format!("begin {own}"));
    assert_eq!(fake.log.last().unwrap(), "end");
    assert!(fake.log.iter().filter(|line| *line == "tick").count() >= 2, "{:?}", fake.log);
    assert_eq!(seen.observation.ending, Ending::Code(8));
    assert!(seen.profile.is_some());
    // One second of copying, with nothing sent through a socket.
    seen.estimate_copies(|| Some((10e9, 20e9)));
    assert!(matches!(seen.observation.copies, CopyCount::Estimated { .. }));
    assert!(seen.observation.disagreement.unwrap().contains("at least"));

    let mut fake = Fake { log: Vec::new(), refuse: true, pid: 0 };
    let seen = observe::observe(&request, &SignalFlags::default(), Some(&mut fake)).unwrap();
    assert_eq!((fake.log.len(), seen.profile), (1, None), "who cannot begin is left alone");
    assert_eq!(seen.observation.ending, Ending::Code(8));
    let absent = seen.observation.absent.iter().find(|absent| absent.what == "profile");
    assert_eq!(absent.unwrap().reason, "no sampling");
}
