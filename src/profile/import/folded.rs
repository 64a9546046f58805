//! Folded stacks: `thread;outermost;...;leaf weight`, one stack a line, as
//! `stackcollapse-perf.pl` and many others write them.
//!
//! The first name is taken to be the thread's, which is what the stackcollapse
//! programs put there; `comm-PID/TID` is taken apart.

use super::lines::{Lines, quote};
use super::names;
use super::number::{Marks, Number};
use super::{HEAD, Importer, Times};
use crate::profile::{
    Builder, Frame, FrameId, FrameKind, Header, Profile, Sample, Thread, ThreadId, Weight,
};
use crate::record::Fault;
use std::collections::HashMap;
use std::io::BufRead;

/// See the module's text.
pub struct Folded;

impl Importer for Folded {
    fn name(&self) -> &'static str {
        "folded"
    }

    fn summary(&self) -> &'static str {
        "one stack a line with its weight, as stackcollapse-*.pl and inferno-collapse-* print"
    }

    fn recognises(&self, head: &[u8]) -> bool {
        let cut = head.len() >= HEAD;
        let mut lines: Vec<&[u8]> = head.split(|byte| *byte == b'\n').collect();
        if cut {
            lines.pop();
        }
        let mut deep = false;
        let mut any = false;
        for line in lines.into_iter().map(<[u8]>::trim_ascii) {
            if line.is_empty() || line.starts_with(b"# ") {
                continue;
            }
            let Ok(text) = std::str::from_utf8(line) else { return false };
            match split(text) {
                Some((stack, _)) => deep |= stack.contains(';'),
                None => return false,
            }
            any = true;
        }
        any && deep
    }

    fn read(&self, title: &str, _: Times, input: &mut dyn BufRead) -> Result<Profile, Fault> {
        let mut lines = Lines::new(title, input);
        let mut line = Vec::with_capacity(4096);
        let mut reader = Reader {
            builder: Builder::new(Header { title: title.to_owned(), ..Header::default() }),
            frames: HashMap::new(),
            threads: HashMap::new(),
            stack: Vec::new(),
            marks: Marks::default(),
            whole: true,
        };
        let mut any = false;
        while lines.next(&mut line)? {
            let text = line.trim_ascii();
            if text.is_empty() || text.starts_with(b"# ") {
                continue;
            }
            reader.line(text).map_err(|what| lines.fault(what))?;
            any = true;
        }
        if !any {
            return Err(lines.whole("holds no stack"));
        }
        Ok(reader.finish())
    }
}

struct Reader {
    builder: Builder,
    frames: HashMap<Box<[u8]>, FrameId>,
    threads: HashMap<Box<[u8]>, ThreadId>,
    stack: Vec<FrameId>,
    marks: Marks,
    /// Every weight so far could be a number of samples.
    whole: bool,
}

impl Reader {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let bad = || format!("{} is no stack with a weight behind it", quote(line));
        let at = memchr::memrchr(b' ', line).ok_or_else(bad)?;
        let (stack, number) =
            (line.get(..at).ok_or_else(bad)?, line.get(at + 1..).ok_or_else(bad)?);
        let number = std::str::from_utf8(number).ok().and_then(weight).ok_or_else(bad)?;
        self.marks.see(number)?;
        let weight = self.marks.value(number);
        self.whole &= weight.fract() == 0.0 && weight < 9e15;
        let mut names = stack.trim_ascii().split(|byte| *byte == b';');
        let thread = self.thread(names.next().unwrap_or_default());
        self.stack.clear();
        for name in names {
            let id = self.frame(name);
            self.stack.push(id);
        }
        self.stack.reverse();
        self.settle_inlined();
        let stack = self.builder.stack(&self.stack);
        let owner = names::owner(self.builder.name(thread), None);
        self.builder.add(Sample {
            stack,
            thread,
            owner,
            cpu: None,
            time: None,
            count: weight as u64,
            weight,
        });
        Ok(())
    }

    fn thread(&mut self, name: &[u8]) -> ThreadId {
        if let Some(id) = self.threads.get(name) {
            return *id;
        }
        let text = String::from_utf8_lossy(name);
        let ids = text.rsplit_once('-').and_then(|(comm, ids)| {
            let (pid, tid) = ids.split_once('/')?;
            Some((comm, pid.parse().ok()?, tid.parse().ok()?))
        });
        let (name_text, pid, tid) = ids.unwrap_or((&text, 0, 0));
        let id = self.builder.thread(Thread { name: name_text.to_owned(), pid, tid });
        self.threads.insert(name.into(), id);
        id
    }

    fn frame(&mut self, name: &[u8]) -> FrameId {
        if let Some(id) = self.frames.get(name) {
            return *id;
        }
        let text = String::from_utf8_lossy(name);
        let frame = match text.strip_suffix("_[k]") {
            Some(text) => {
                Frame { function: text.into(), kind: FrameKind::Kernel, ..Frame::default() }
            }
            None => match text.strip_suffix("_[i]") {
                Some(text) => Frame { function: text.into(), inlined: true, ..Frame::default() },
                // `_[j]` marks code that was made at run time.
                None => Frame {
                    function: text.strip_suffix("_[j]").unwrap_or(&text).into(),
                    ..Frame::default()
                },
            },
        };
        let id = self.builder.frame(frame);
        self.frames.insert(name.into(), id);
        id
    }

    /// An inlined function is on the side of the one that it was inlined into,
    /// which its own mark does not tell.
    fn settle_inlined(&mut self) {
        for index in (0..self.stack.len().saturating_sub(1)).rev() {
            let (Some(own), Some(outer)) = (self.stack.get(index), self.stack.get(index + 1))
            else {
                continue;
            };
            let (own, outer) = (self.builder.function(*own), self.builder.function(*outer));
            let (Some(own), Some(outer)) = (own, outer) else { continue };
            if own.inlined && own.kind == FrameKind::Unknown && outer.kind != FrameKind::Unknown {
                let settled = Frame { kind: outer.kind, ..own.clone() };
                let id = self.builder.frame(settled);
                if let Some(place) = self.stack.get_mut(index) {
                    *place = id;
                }
            }
        }
    }

    fn finish(mut self) -> Profile {
        // Weights with fractions are no samples.
        if !self.whole {
            self.builder.header().weight = Weight::Events;
        }
        self.builder.build()
    }
}

/// A weight as these programs print it, `1e+06` included.
fn weight(text: &str) -> Option<Number> {
    let number = match Number::parse(text) {
        Some(number) => number,
        None if text.contains(['e', 'E']) && text.len() < 32 => {
            let value = text.parse::<f64>().ok().filter(|value| (0.0..1e18).contains(value))?;
            Number::parse(&format!("{value}"))?
        }
        None => return None,
    };
    (Marks::default().value(number) >= 0.0).then_some(number)
}

fn split(text: &str) -> Option<(&str, Number)> {
    let (stack, number) = text.rsplit_once(' ')?;
    let digit = number.starts_with(|c: char| c.is_ascii_digit());
    (digit && !stack.trim().is_empty()).then_some((stack, weight(number)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Owner;

    fn read(text: &str) -> Result<Profile, Fault> {
        Folded.read("t", Times::Kept, &mut text.as_bytes())
    }

    #[test]
    fn stacks_are_read_leaf_first_with_their_marks() {
        let text = "swapper;a_[k];b_[k];c_[i] 2\nnginx-7/9;main;work;do_read_[k] 3\nswapper;a_[k];b_[k];c_[i] 5\n";
        let profile = read(text).unwrap();
        assert!(Folded.recognises(text.as_bytes()));
        assert_eq!((profile.count(), profile.total()), (10, 10.0));
        let [first, second] = profile.samples() else { panic!("{profile:?}") };
        assert_eq!((first.count, first.owner), (7, Owner::Idle));
        let names: Vec<&str> = profile
            .stack(first.stack)
            .iter()
            .map(|id| profile.frame(*id).function.as_str())
            .collect();
        assert_eq!(names, ["c", "b", "a"]);
        let leaf = profile.frame(profile.stack(first.stack)[0]);
        assert!(leaf.inlined && leaf.kind == FrameKind::Kernel);
        let thread = profile.thread(second.thread);
        assert_eq!((thread.name.as_str(), thread.pid, thread.tid), ("nginx", 7, 9));
    }

    #[test]
    fn weights_with_fractions_are_no_samples() {
        let profile = read("t;a 1,5\nt;b 2,25\nt;c 1.000\nt;d 1e+06\n").unwrap();
        assert_eq!(profile.header.weight, Weight::Events);
        assert_eq!(profile.total(), 1.5 + 2.25 + 1000.0 + 1e6);
    }

    #[test]
    fn garbage_is_refused_by_line() {
        for text in ["t;a 1\nt;b x\n", "t;a 1\nnothing\n", "t;a 1.5\nt;b 1,5\n", "t;a 1\nt;b -4"] {
            let error = read(text).unwrap_err();
            assert!(error.message.starts_with("t, line 2: "), "{error}");
        }
        assert!(read("\n\n").unwrap_err().message.contains("no stack"));
        assert!(!Folded.recognises(b"dear all 4\nsee below 5\n"));
    }
}
