//! Which CPUs the work runs on, as typed: a short form, parts by name, or both.

use super::options::{suggest, usage};
use crate::record::{Fault, Placement, SoftirqCpu};

/// A placement and how ids name it (empty for the default).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreSpec {
    /// The CPUs.
    pub placement: Placement,
    /// Part of a cell's id.
    pub difference: String,
}

/// The short forms, their other name, and what they mean.
pub const SHORT_FORMS: &[(&str, &str, &str)] = &[
    ("two", "two-cores", "sender and receiver on a CPU each"),
    ("one", "one-core", "both on one CPU"),
    ("none", "unpinned", "wherever the scheduler puts them"),
];

/// The parts of the work that can be named, and what each is.
pub const PARTS: [(&str, &str); 5] = [
    ("sender", "the sender's threads"),
    ("receiver", "the receiver's threads"),
    ("softirq", "the kernel's receive work: the link's polling thread, else RPS"),
    ("io-wq", "io_uring's worker threads"),
    ("vhost", "the vhost thread of a virtual machine's device"),
];

/// Reads a placement: `two-cores` (the default), `one-core`, `unpinned`, two CPU
/// numbers `S,R`, or parts by name as in `sender=0,receiver=1,softirq=1,io-wq=0`,
/// alone or behind one of the others. A part goes to a CPU, is `free`, or goes where
/// the `sender` or the `receiver` is. `allowed` are the CPUs that this process may
/// use; others are an error.
pub fn parse_cores(text: &str, allowed: &[u32]) -> Result<CoreSpec, Fault> {
    let cores = read_cores(text, allowed)?;
    match cores.placement.named().find(|(_, cpu)| !allowed.contains(cpu)) {
        None => Ok(cores),
        Some(_) if matches!(text.trim(), "two" | "two-cores") => {
            let fault = usage("this process may use only one CPU".into());
            Err(fault.remedy("--cores one-core, or --cores unpinned"))
        }
        Some((part, cpu)) => {
            Err(usage(format!("CPU {cpu} does not exist or may not be used ({part})"))
                .remedy(format!("this process may use {}", list(allowed))))
        }
    }
}

/// As [`parse_cores`], but a CPU that is not there is no error: an experiment
/// is written once for many machines. `two-cores` on a machine with one CPU names
/// the next number as the second.
pub fn read_cores(text: &str, allowed: &[u32]) -> Result<CoreSpec, Fault> {
    let Some(first) = allowed.first().copied() else {
        return Err(usage("this process may use no CPU at all".into()));
    };
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let (base, parts) = split_base(text, &words)?;
    let mut placement = match base {
        Base::Short("two") => {
            Placement::pinned(first, allowed.get(1).copied().unwrap_or(first.saturating_add(1)))
        }
        Base::Short("one") => Placement::pinned(first, first),
        Base::Short(_) | Base::Nothing => Placement::default(),
        Base::Pair(sender, receiver) => Placement::pinned(sender, receiver),
    };
    let mut asked: Vec<Asked> = Vec::new();
    for part in parts {
        let asked_part = read_part(text, part)?;
        if asked.iter().any(|known| known.part == asked_part.part) {
            return Err(usage(format!("'{}' is given twice in '{text}'", asked_part.part)));
        }
        asked.push(asked_part);
    }
    // The threads first: other parts may go where they are.
    asked.sort_by_key(|asked| PARTS.iter().position(|(name, _)| *name == asked.part));
    for asked in &asked {
        put(&mut placement, asked)?;
    }
    let of_roles = asked.iter().any(|asked| matches!(asked.part, "sender" | "receiver"));
    let difference = difference(&placement, if of_roles { Base::Nothing } else { base });
    Ok(CoreSpec { placement, difference })
}

/// What stands before the parts that are named.
#[derive(Clone, Copy)]
enum Base {
    Nothing,
    /// One of [`SHORT_FORMS`], by its first name.
    Short(&'static str),
    Pair(u32, u32),
}

fn split_base<'a>(text: &str, words: &'a [&'a str]) -> Result<(Base, &'a [&'a str]), Fault> {
    let short =
        |word: &str| SHORT_FORMS.iter().find(|(name, other, _)| [*name, *other].contains(&word));
    let cpu = |word: &str| word.parse::<u32>().ok();
    match words {
        [word, parts @ ..] if short(word).is_some() => {
            Ok((short(word).map_or(Base::Nothing, |(name, ..)| Base::Short(name)), parts))
        }
        [word, ..] if word.contains('=') => Ok((Base::Nothing, words)),
        [sender, receiver, parts @ ..] => match (cpu(sender), cpu(receiver)) {
            (Some(sender), Some(receiver)) => Ok((Base::Pair(sender, receiver), parts)),
            _ => Err(wrong(text)),
        },
        _ => Err(wrong(text)),
    }
}

/// A part as asked for.
struct Asked {
    part: &'static str,
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    Cpu(u32),
    Free,
    Sender,
    Receiver,
}

fn read_part(text: &str, word: &str) -> Result<Asked, Fault> {
    let (name, value) = word.split_once('=').ok_or_else(|| wrong(text))?;
    let (name, value) = (name.trim(), value.trim());
    let Some((part, _)) = PARTS.iter().find(|(part, _)| *part == name) else {
        let names: Vec<&str> = PARTS.iter().map(|(part, _)| *part).collect();
        let fault = usage(format!("'{name}' in '{text}' is no part of the work"));
        return Err(suggest(fault, name, &names));
    };
    let at = match value {
        "free" => At::Free,
        "sender" if *part != "sender" => At::Sender,
        "receiver" if *part != "receiver" => At::Receiver,
        number => At::Cpu(number.parse().map_err(|_| {
            usage(format!("'{value}' in '{text}' is no place for '{part}'"))
                .remedy("write a CPU number, free, sender or receiver")
        })?),
    };
    Ok(Asked { part, at })
}

fn put(placement: &mut Placement, asked: &Asked) -> Result<(), Fault> {
    let role = |cpu: Option<u32>, role: &str| {
        cpu.map(Some).ok_or_else(|| {
            let text = format!("{} cannot go with the {role}, which has no CPU", asked.part);
            usage(text).remedy(format!("give the {role} a CPU, or {} a number", asked.part))
        })
    };
    let cpu = match asked.at {
        At::Cpu(cpu) => Some(cpu),
        At::Free => None,
        At::Sender => role(placement.sender, "sender")?,
        At::Receiver => role(placement.receiver, "receiver")?,
    };
    match asked.part {
        "sender" => placement.sender = cpu,
        "receiver" => placement.receiver = cpu,
        "softirq" => placement.softirq = cpu.map_or(SoftirqCpu::Free, SoftirqCpu::Cpu),
        "io-wq" => placement.io_wq = cpu,
        _ => placement.vhost = cpu,
    }
    Ok(())
}

/// How ids name a placement: `cores=0/1/softirq=1`. With commas in place of the
/// slashes it is read as the same placement.
fn difference(placement: &Placement, base: Base) -> String {
    let Placement { sender, receiver, softirq, io_wq, vhost } = *placement;
    let mut words = vec![match (base, sender, receiver) {
        (Base::Short(name), ..) => name.to_owned(),
        (_, Some(sender), Some(receiver)) => format!("{sender}/{receiver}"),
        _ => "none".to_owned(),
    }];
    if sender.is_none() != receiver.is_none() {
        words.extend(sender.map(|cpu| format!("sender={cpu}")));
        words.extend(receiver.map(|cpu| format!("receiver={cpu}")));
    }
    words.extend(match softirq {
        SoftirqCpu::Link => None,
        SoftirqCpu::Free => Some("softirq=free".to_owned()),
        SoftirqCpu::Cpu(cpu) => Some(format!("softirq={cpu}")),
    });
    words.extend(io_wq.map(|cpu| format!("io-wq={cpu}")));
    words.extend(vhost.map(|cpu| format!("vhost={cpu}")));
    match words.as_slice() {
        [two] if two == SHORT_FORMS[0].0 => String::new(),
        words => format!("cores={}", words.join("/")),
    }
}

fn wrong(text: &str) -> Fault {
    usage(format!("'{text}' is no placement")).remedy(
        "write two-cores, one-core, unpinned, two CPU numbers (sender,receiver), or parts as in \
         sender=0,receiver=1,softirq=1,io-wq=0",
    )
}

fn list(cpus: &[u32]) -> String {
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    list.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(text: &str) -> Placement {
        parse_cores(text, &[0, 1, 2]).unwrap().placement
    }

    #[test]
    fn placements() {
        let cpus = |text: &str, allowed: &[u32]| {
            parse_cores(text, allowed).map(|c| (c.placement.sender, c.placement.receiver))
        };
        assert_eq!(cpus("two", &[0, 1, 2]).unwrap(), (Some(0), Some(1)));
        assert_eq!(cpus("two-cores", &[0, 1, 2]).unwrap(), (Some(0), Some(1)));
        assert_eq!(cpus("one", &[3]).unwrap(), (Some(3), Some(3)));
        assert_eq!(cpus("one-core", &[3]).unwrap(), (Some(3), Some(3)));
        assert_eq!(cpus("none", &[0]).unwrap(), (None, None));
        assert_eq!(cpus("unpinned", &[0]).unwrap(), (None, None));
        assert_eq!(cpus("2, 0", &[0, 2]).unwrap(), (Some(2), Some(0)));
        let elsewhere = |text: &str| read_cores(text, &[0]).unwrap().placement;
        assert_eq!(elsewhere("0,7"), Placement::pinned(0, 7));
        assert_eq!(elsewhere("two"), Placement::pinned(0, 1));
        assert!(cpus("two", &[0]).unwrap_err().remedy.unwrap().contains("one-core"));
        assert!(cpus("0,7", &[0, 1]).unwrap_err().message.contains("CPU 7"));
        assert!(cpus("left", &[0, 1]).unwrap_err().message.contains("'left'"));
    }

    #[test]
    fn parts_by_name_alone_and_behind_a_short_form() {
        let all =
            Placement { softirq: SoftirqCpu::Cpu(1), io_wq: Some(0), ..Placement::pinned(0, 1) };
        assert_eq!(placed("sender=0,receiver=1,softirq=1,io-wq=0"), all);
        assert_eq!(placed("two-cores, softirq = receiver, io-wq=sender"), all);
        assert_eq!(placed("0,1,softirq=1,io-wq=sender"), all);
        let free = Placement { softirq: SoftirqCpu::Free, ..Placement::pinned(0, 1) };
        assert_eq!(placed("two-cores,softirq=free"), free);
        let half = Placement { receiver: Some(2), ..Placement::default() };
        assert_eq!(placed("receiver=2"), half);
        assert_eq!(placed("unpinned,receiver=2"), half);
        assert_eq!(placed("one-core,receiver=free").receiver, None);
        assert_eq!(placed("two,vhost=2").vhost, Some(2));
    }

    #[test]
    fn every_id_reads_back_as_its_placement() {
        for text in [
            "two",
            "one",
            "none",
            "2,0",
            "two,softirq=0",
            "one,softirq=free",
            "0,1,softirq=2,io-wq=1,vhost=2",
            "receiver=1",
            "sender=1,softirq=0",
            "two,receiver=2",
        ] {
            let read = read_cores(text, &[0, 1, 2]).unwrap();
            let id = read.difference.strip_prefix("cores=").unwrap_or("two");
            assert!(!id.contains([',', ' ']), "{id}");
            assert_eq!(
                read_cores(&id.replace('/', ","), &[0, 1, 2]),
                Ok(read.clone()),
                "{text}: {id}"
            );
        }
        let id = |text: &str| read_cores(text, &[0, 1]).unwrap().difference;
        assert_eq!(
            [id("two-cores"), id("one-core"), id("unpinned")],
            ["", "cores=one", "cores=none"]
        );
        assert_eq!(id("1,0"), "cores=1/0");
        assert_eq!(id("two,softirq=sender"), "cores=two/softirq=0");
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let wrong = |text: &str| parse_cores(text, &[0, 1]).unwrap_err().to_string();
        assert!(wrong("softirc=1").contains("did you mean 'softirq'?"), "{}", wrong("softirc=1"));
        assert!(wrong("softirq=5").contains("CPU 5") && wrong("softirq=5").contains("(softirq)"));
        assert!(wrong("softirq=all").contains("'all'"));
        assert!(wrong("sender=0,sender=1").contains("twice"));
        assert!(wrong("unpinned,softirq=receiver").contains("has no CPU"));
        assert!(wrong("sender=sender").contains("no place"));
        for text in ["", ",", "0", "0,1,2", "two,one", "sender", "0,softirq=1"] {
            assert!(wrong(text).contains("is no placement"), "{text}: {}", wrong(text));
        }
    }
}
