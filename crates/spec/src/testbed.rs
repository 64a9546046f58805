//! A testbed and its options: `vm:cpus=4,memory=2G`.

use super::cells::typed;
use super::options::{differing, find, resolve, split, usage};
use super::placement::Cpus;
use bytepath_record::{Fault, Implied, OptionSpec, Options, Role};

/// What a request needs to know of a testbed in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct TestbedDeclaration {
    /// Name in the catalogue.
    pub name: &'static str,
    /// Its options. If there is an option `cpus`, its hosts have that many CPUs, from 0 on;
    /// otherwise they have those of their machines. If an option `host` is not `none`, one of its
    /// hosts is the machine itself.
    pub options: &'static [OptionSpec],
    /// Defaults that depend on the value of another option.
    pub implied: &'static [Implied],
    /// Whether it boots the kernels that cells name.
    pub boots_kernels: bool,
    /// The default preset of its link.
    pub link: &'static str,
}

/// A requested testbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestbedChoice {
    /// Name in the catalogue.
    pub name: &'static str,
    /// All of its options, resolved.
    pub options: Options,
    /// As a user would type it: the name, and the differences from the defaults.
    pub text: String,
    /// Whether it boots the kernels that cells name.
    pub boots_kernels: bool,
    /// The default preset of its link.
    pub link: &'static str,
}

impl TestbedChoice {
    /// Returns the CPUs that roles may be placed on, if its machines have the CPUs `own`.
    pub fn cpus(&self, own: &Cpus) -> Cpus {
        let Some(count) = self.options.number("cpus") else { return own.clone() };
        let all = 0..u32::try_from(count).unwrap_or(u32::MAX);
        let with_this = !matches!(self.options.word("host"), "" | "none");
        let own = own.of(Role::Sender);
        Cpus::Shared(all.filter(|cpu| !with_this || own.contains(cpu)).collect())
    }

    /// Errors if kernels are named and the testbed boots none.
    pub fn check_kernels(&self, named: bool) -> Result<(), Fault> {
        if !named || self.boots_kernels {
            return Ok(());
        }
        let text =
            format!("testbed {} runs on this machine's kernel and boots no other", self.name);
        Err(usage(text).remedy("choose the testbed vm"))
    }
}

/// Parses `NAME[:key=value,...]`.
pub fn parse_testbed(text: &str, known: &[TestbedDeclaration]) -> Result<TestbedChoice, Fault> {
    let (name, mut typed_options) = split(text)?;
    let declared = find("testbed", &name, known, |declared| declared.name)?;
    for Implied { given: (option, value), then: (other, default) } in declared.implied {
        let is_given = |name: &str| typed_options.iter().find(|(key, _)| key == name);
        if is_given(option).is_some_and(|(_, typed)| typed == value) && is_given(other).is_none() {
            typed_options.push(((*other).to_owned(), (*default).to_owned()));
        }
    }
    let options = resolve(&format!("testbed {name}"), declared.options, &typed_options)?;
    let text = typed(&name, &differing(declared.options, &options));
    let TestbedDeclaration { name, boots_kernels, link, .. } = *declared;
    Ok(TestbedChoice { name, options, text, boots_kernels, link })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::OptionKind;

    const KNOWN: &[TestbedDeclaration] = &[
        TestbedDeclaration {
            name: "netns",
            options: &[],
            implied: &[],
            boots_kernels: false,
            link: "wire",
        },
        TestbedDeclaration {
            name: "vm",
            options: &[
                OptionSpec::new("cpus", OptionKind::Count(1, 8), "2").help("CPUs of a guest"),
                OptionSpec::new("clock", OptionKind::Choice(&["real", "own"]), "real")
                    .help("which clock"),
            ],
            implied: &[Implied { given: ("clock", "own"), then: ("cpus", "1") }],
            boots_kernels: true,
            link: "wire",
        },
    ];

    #[test]
    fn the_text_names_what_differs_from_the_defaults() {
        let text = |text: &str| parse_testbed(text, KNOWN).map(|choice| choice.text);
        assert_eq!(text("netns"), Ok("netns".into()));
        assert_eq!(text("vm:cpus=2"), Ok("vm".into()));
        assert_eq!(text("vm: cpus = 4"), Ok("vm:cpus=4".into()));
        assert_eq!(parse_testbed("vm", KNOWN).unwrap().options.number("cpus"), Some(2));
    }

    #[test]
    fn a_value_changes_the_default_of_another_option_and_not_what_was_typed() {
        let text = |text: &str| parse_testbed(text, KNOWN).unwrap().text;
        assert_eq!(text("vm:clock=own"), "vm:cpus=1,clock=own");
        assert_eq!(text("vm:cpus=3,clock=own"), "vm:cpus=3,clock=own");
        assert_eq!(text("vm:clock=real"), "vm");
        // The resolved options are recorded, and parse to the same testbed.
        assert_eq!(text("vm:cpus=1,clock=own"), "vm:cpus=1,clock=own");
    }

    #[test]
    fn the_cpus_are_those_of_the_hosts() {
        let cpus = |text: &str| parse_testbed(text, KNOWN).unwrap().cpus(&[4, 6].into());
        assert_eq!((cpus("netns"), cpus("vm:cpus=3")), ([4, 6].into(), [0, 1, 2].into()));
        assert!(parse_testbed("netns", KNOWN).unwrap().check_kernels(true).is_err());
        assert!(parse_testbed("vm", KNOWN).unwrap().check_kernels(true).is_ok());
    }

    #[test]
    fn wrong_testbeds_are_explained() {
        let wrong = |text: &str| parse_testbed(text, KNOWN).unwrap_err().to_string();
        assert!(wrong("netsn").contains("did you mean 'netns'?"));
        assert!(wrong("cloud").contains("choose from netns, vm"));
        assert!(wrong("netns:cpus=2").contains("no options"));
        assert!(wrong("vm:cpu=2").contains("did you mean 'cpus'?"));
        assert!(wrong("vm:cpus=9").contains("it takes 1..8"));
    }
}
