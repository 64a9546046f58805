//! The rules: parsed from text, and compiled for fast look-up.

use super::catalogue::Subsystem;
use crate::{Frame, FrameKind, normalise};
use bytepath_record::Fault;
use hashbrown::HashMap;
use std::iter::successors;
use std::sync::OnceLock;

/// The rules that come with bytepath.
const BUILT_IN: &str = include_str!("../subsystems.toml");

/// The supported version of the rule format.
const VERSION: i64 = 1;

/// The table of functions that count for their caller's subsystem.
const CALLER: &str = "caller";

/// Classes for functions of programs only.
pub(super) const COPIES: Class = Class::Is(Subsystem::ProgramCopy);
pub(super) const SUBMITS: Class = Class::Is(Subsystem::CopySubmission);

/// Names of functions that copy, both in the kernel and in libc.
const SHARED: [&str; 3] = ["memcpy", "memmove", "memset"];

/// The class that a rule gives a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It belongs to this subsystem.
    Is(Subsystem),
    /// It is a helper, and belongs to its caller.
    Caller,
}

/// Compiled rules. A user's rules precede the built-in ones.
#[derive(Clone, Debug)]
pub struct Rules {
    layers: Vec<Layer>,
}

impl Default for &Rules {
    /// The built-in rules.
    fn default() -> Self {
        Rules::built_in()
    }
}

impl Rules {
    /// The built-in rules.
    pub fn built_in() -> &'static Rules {
        static RULES: OnceLock<Rules> = OnceLock::new();
        RULES.get_or_init(|| {
            let layer = Layer::parse("subsystems.toml", BUILT_IN).expect("a test reads it");
            Rules { layers: vec![layer] }
        })
    }

    /// Returns these rules, preceded by those in `text`. Errors refer to the text as `title`.
    pub fn with(&self, title: &str, text: &str) -> Result<Rules, Fault> {
        let mut layers = vec![Layer::parse(title, text)?];
        layers.extend(self.layers.iter().cloned());
        Ok(Rules { layers })
    }

    /// Returns the class of a function, or `None` if no rule matches. Functions of user space are
    /// never classified as the kernel's, nor the other way round.
    pub fn class(&self, frame: &Frame) -> Option<Class> {
        let name = normalise::function(&frame.function);
        let found = self.layers.iter().find_map(|layer| layer.class(name, frame));
        match (frame.kind, found) {
            (FrameKind::User, Some(COPIES | SUBMITS)) | (FrameKind::Unknown, _) => found,
            (FrameKind::User, Some(Class::Is(Subsystem::Copy))) if SHARED.contains(&name) => {
                Some(COPIES)
            }
            (FrameKind::User, _) => Some(Class::Is(Subsystem::User)),
            (FrameKind::Kernel, _) => found.filter(|class| ![COPIES, SUBMITS].contains(class)),
        }
    }

    /// Returns the subsystem of a helper that no function of the kernel called, as in a list
    /// without stacks. `None` if no rule matches.
    pub fn alone(&self, frame: &Frame) -> Option<Subsystem> {
        let name = normalise::function(&frame.function);
        let alone = self.layers.iter().flat_map(|layer| &layer.alone);
        alone.filter(|(prefix, _)| name.starts_with(prefix.as_str())).map(|(_, is)| *is).next()
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        let count = |l: &Layer| {
            l.exact.len() + l.prefix.len() + l.module.len() + l.folder.len() + l.alone.len()
        };
        self.layers.iter().map(count).sum()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The rules of one text.
#[derive(Clone, Debug, Default)]
struct Layer {
    exact: HashMap<String, Class>,
    /// In byte order, so that a binary search finds the longest match.
    prefix: Vec<Prefix>,
    module: HashMap<String, Class>,
    folder: Vec<(String, Class)>,
    /// Prefixes of helpers' names, for those whose caller is unknown.
    alone: Vec<(String, Subsystem)>,
}

#[derive(Clone, Debug)]
struct Prefix {
    text: String,
    class: Class,
    /// Index of the longest other prefix that this one begins with.
    shorter: Option<usize>,
}

/// The kinds of rules in a table, in the order in which they apply.
const KINDS: [&str; 5] = ["exact", "prefix", "module", "folder", "alone"];

impl Layer {
    fn parse(title: &str, text: &str) -> Result<Layer, Fault> {
        let fault = |what: String| Fault::usage(format!("{title}: {what}"));
        let table: toml::Table = text
            .parse()
            .map_err(|e: toml::de::Error| fault(e.to_string().trim_end().to_owned()))?;
        match table.get("version").map(toml::Value::as_integer) {
            Some(Some(VERSION)) => {}
            Some(_) => {
                return Err(fault(format!("the version of the rules is not {VERSION}"))
                    .remedy("use rules of this version, or a newer bytepath"));
            }
            None => {
                return Err(fault("the version of the rules is missing".into())
                    .remedy(format!("begin with `version = {VERSION}`")));
            }
        }
        let mut layer = Layer::default();
        for (name, value) in table.iter().filter(|(name, _)| *name != "version") {
            let class = class(name).ok_or_else(|| {
                let names: Vec<&str> = Subsystem::ALL.iter().map(|s| s.name()).collect();
                fault(format!("there is no subsystem '{name}'"))
                    .remedy(format!("choose from {CALLER}, {}", names.join(", ")))
            })?;
            let kinds =
                value.as_table().ok_or_else(|| fault(format!("'{name}' is not a table")))?;
            for (kind, list) in kinds {
                let wrong = || {
                    fault(format!("'{name}.{kind}' is not a list of names"))
                        .remedy(format!("a table holds {}", KINDS.join(", ")))
                };
                for pattern in list.as_array().ok_or_else(wrong)? {
                    let pattern = pattern.as_str().filter(|p| !p.is_empty()).ok_or_else(wrong)?;
                    layer.add(kind, pattern, class).ok_or_else(|| {
                        let what = format!("'{pattern}' of '{name}.{kind}' is not valid");
                        fault(what).remedy(format!("name it once, in one of {}", KINDS.join(", ")))
                    })?;
                }
            }
        }
        layer.prefix.sort_by(|a, b| a.text.cmp(&b.text));
        layer.folder.sort_by_key(|(folder, _)| std::cmp::Reverse(folder.len()));
        let twice = layer.prefix.windows(2).find(|pair| pair[0].text == pair[1].text);
        if let Some(prefix) = twice.and_then(|pair| pair.first()) {
            let what = format!("the prefix '{}' appears twice", prefix.text);
            return Err(fault(what).remedy("name it once"));
        }
        layer.link();
        Ok(layer)
    }

    /// Adds a rule; `None` if its kind is unknown or it already exists.
    fn add(&mut self, kind: &str, pattern: &str, class: Class) -> Option<()> {
        let owned = pattern.to_owned();
        match (kind, class) {
            ("exact", _) => return self.exact.insert(owned, class).is_none().then_some(()),
            ("module", _) => return self.module.insert(owned, class).is_none().then_some(()),
            ("prefix", _) => self.prefix.push(Prefix { text: owned, class, shorter: None }),
            ("folder", _) => self.folder.push((owned, class)),
            ("alone", Class::Is(subsystem)) => self.alone.push((owned, subsystem)),
            _ => return None,
        }
        Some(())
    }

    fn class(&self, name: &str, frame: &Frame) -> Option<Class> {
        let module = || frame.module.strip_prefix('[')?.strip_suffix(']');
        let named = self.exact.get(name).copied().or_else(|| self.by_prefix(name));
        let named = named.or_else(|| self.module.get(module()?).copied());
        named.or_else(|| self.by_folder(&frame.file))
    }

    /// Links every prefix to the longest other one that it begins with.
    fn link(&mut self) {
        // The prefixes that the last one begins with, the shortest first.
        let mut open: Vec<usize> = Vec::new();
        for at in 0..self.prefix.len() {
            let begins =
                |last: &mut usize| self.prefix[at].text.starts_with(&self.prefix[*last].text);
            while open.pop_if(|last| !begins(last)).is_some() {}
            self.prefix[at].shorter = open.last().copied();
            open.push(at);
        }
    }

    /// Returns the class of the longest prefix that matches: one of the last prefix sorted before
    /// the name and those that this one begins with, in turn. They suffice, because everything
    /// sorted between a prefix of the name and the name itself begins with that prefix.
    fn by_prefix(&self, name: &str) -> Option<Class> {
        let after = self.prefix.partition_point(|prefix| prefix.text.as_str() <= name);
        let last = after.checked_sub(1).map(|last| &self.prefix[last]);
        let mut fitting = successors(last, |prefix| Some(&self.prefix[prefix.shorter?]));
        fitting.find(|prefix| name.starts_with(&prefix.text)).map(|prefix| prefix.class)
    }

    fn by_folder(&self, file: &str) -> Option<Class> {
        let fits = |folder: &str| {
            file.match_indices(folder).any(|(at, _)| at == 0 || file[..at].ends_with('/'))
        };
        self.folder.iter().find(|(folder, _)| fits(folder)).map(|(_, class)| *class)
    }
}

fn class(name: &str) -> Option<Class> {
    if name == CALLER { Some(Class::Caller) } else { name.parse().ok().map(Class::Is) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_rule_is_reachable_and_none_says_what_another_does() {
        let layer = &Rules::built_in().layers[0];
        let by_name = |name: &str| layer.class(name, &Frame::default());
        for (name, class) in &layer.exact {
            assert_eq!(by_name(name), Some(*class));
            assert_ne!(layer.by_prefix(name), Some(*class), "exact {name}: a prefix says it too");
            assert_eq!(normalise::function(name), name, "{name} is never looked up in this form");
        }
        for pair in layer.prefix.windows(2) {
            assert_ne!(pair[0].text, pair[1].text, "twice");
        }
        for Prefix { text: prefix, class, .. } in &layer.prefix {
            // No function has this name: only the prefix can match.
            assert_eq!(by_name(&format!("{prefix}\u{1}")), Some(*class), "prefix {prefix}");
            let shorter = &prefix[..prefix.len() - 1];
            let said = layer.by_prefix(shorter);
            assert_ne!(said, Some(*class), "prefix {prefix}: a shorter one says it too");
        }
        let frame = |module: &str, file: &str| Frame {
            module: format!("[{module}]"),
            file: file.to_owned(),
            ..Frame::default()
        };
        for (module, class) in &layer.module {
            assert_eq!(layer.class("\u{1}", &frame(module, "")), Some(*class), "{module}");
        }
        for (folder, class) in &layer.folder {
            let file = format!("/build/linux-6.1/{folder}\u{1}.c");
            assert_eq!(layer.class("\u{1}", &frame("", &file)), Some(*class), "{folder}");
        }
        for (prefix, _) in &layer.alone {
            assert_eq!(by_name(prefix), Some(Class::Caller), "{prefix} is not a helper");
        }
    }

    #[test]
    fn the_longest_prefix_counts_and_a_user_comes_first() {
        let text = "version = 1\n[tcp]\nprefix = ['a_', 'a_b_c']\n[ip]\nprefix = ['a_b']\n\
                    exact = ['tcp_sendmsg']\nfolder = ['net/x/']\nmodule = ['mine']\n";
        let rules = Rules::built_in().with("mine.toml", text).unwrap();
        assert_eq!(rules.len(), Rules::built_in().len() + 6);
        for (name, expected) in [
            ("a_z", Some(Subsystem::Tcp)),
            ("a_b", Some(Subsystem::Ip)),
            ("a_bz", Some(Subsystem::Ip)),
            ("a_b_cz", Some(Subsystem::Tcp)),
            ("a_b_b", Some(Subsystem::Ip)),
            ("tcp_sendmsg", Some(Subsystem::Ip)),
            ("tcp_recvmsg", Some(Subsystem::Tcp)),
            ("a", None),
            ("", None),
            ("\u{fc}ber", None),
        ] {
            let frame = Frame { function: name.into(), ..Frame::default() };
            assert_eq!(rules.class(&frame), expected.map(Class::Is), "{name}");
        }
        let frame = Frame { module: "[mine]".into(), function: "f".into(), ..Frame::default() };
        assert_eq!(rules.class(&frame), Some(Class::Is(Subsystem::Ip)));
        let file = "/usr/src/linux/net/x/f.c".into();
        let frame = Frame { file, function: "f".into(), ..Frame::default() };
        assert_eq!(rules.class(&frame), Some(Class::Is(Subsystem::Ip)));
        let frame = Frame { file: "mynet/x/f.c".into(), ..frame };
        assert_eq!(rules.class(&frame), None, "a folder of another name");
    }

    #[test]
    fn what_is_wrong_with_rules_is_said() {
        for (text, expected) in [
            ("", "version of the rules is missing"),
            ("version = 2", "is not 1"),
            ("version = 'x'", "is not 1"),
            ("version = 1\n[tpc]\nexact = ['a']", "no subsystem 'tpc'"),
            ("version = 1\ntcp = 3", "'tcp' is not a table"),
            ("version = 1\n[tcp]\nexact = 'a'", "'tcp.exact' is not a list"),
            ("version = 1\n[tcp]\nexact = [1]", "'tcp.exact' is not a list"),
            ("version = 1\n[tcp]\nprefix = ['']", "'tcp.prefix' is not a list"),
            ("version = 1\n[tcp]\nsuffix = ['a']", "'a' of 'tcp.suffix'"),
            ("version = 1\n[caller]\nalone = ['a']", "'a' of 'caller.alone'"),
            ("version = 1\n[tcp]\nexact = ['a']\n[ip]\nexact = ['a']", "'a' of "),
            ("version = 1\n[tcp]\nprefix = ['a']\n[ip]\nprefix = ['a']", "prefix 'a' appears"),
            ("version = [", "mine.toml"),
        ] {
            let fault = Rules::built_in().with("mine.toml", text).unwrap_err();
            assert!(fault.message.starts_with("mine.toml: "), "{fault}");
            assert!(fault.message.contains(expected), "{fault}");
        }
    }
}
