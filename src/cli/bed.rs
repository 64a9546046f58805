//! The testbed that a command names, and its hosts.

use bytepath_host::testbed::{self, Testbed};
use bytepath_record::{Fault, FaultKind, Role};
use bytepath_spec::{self as spec, TestbedChoice};
use bytepath_study::testbed_spec;
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct BedArguments {
    /// Where roles run: netns, ports, vm or hosts [default: netns]
    ///
    /// The default with a file is the file's. With options: ports:sender=DEVICE,receiver=DEVICE, vm[:key=value,...],
    /// hosts[:key=value,...].
    #[arg(long, value_name = "TESTBED")]
    testbed: Option<String>,
    /// Host of the sender, as in ssh://HOST [default: here]
    ///
    /// On the testbed hosts: here, ssh://[USER@]HOST[:PORT], or exec:COMMAND, which runs the words
    /// after it there.
    #[arg(long, value_name = "HOST")]
    sender: Option<String>,
    /// Host of the receiver, as in ssh://HOST [default: here]
    ///
    /// Written like that of the sender.
    #[arg(long, value_name = "HOST")]
    receiver: Option<String>,
}

/// The default testbed.
pub(super) const USUAL: &str = "netns";

impl BedArguments {
    /// This machine and another one.
    pub(super) fn with_receiver(host: &str) -> BedArguments {
        BedArguments { testbed: None, sender: None, receiver: Some(host.to_owned()) }
    }

    /// The testbed that was named, if one was.
    pub(super) fn choice(&self) -> Result<Option<TestbedChoice>, Fault> {
        self.text()?.as_deref().map(choice).transpose()
    }

    /// As it would be typed for `--testbed` alone.
    fn text(&self) -> Result<Option<String>, Fault> {
        let mut text = self.testbed.clone();
        for (role, host) in Role::ALL.into_iter().zip([&self.sender, &self.receiver]) {
            let Some(host) = host else { continue };
            if host.contains('"') {
                let said = format!("the {role}'s host cannot have double quotes: {host}");
                return Err(Fault::new(FaultKind::Usage, said).remedy("use single quotes"));
            }
            let text = text.get_or_insert_with(|| "hosts".to_owned());
            text.push(if text.contains(':') { ',' } else { ':' });
            text.push_str(&format!("{role}=\"{host}\""));
        }
        Ok(text)
    }
}

/// A testbed, from the catalogue or with options of its own.
pub(super) enum Bed {
    Catalogue(&'static dyn Testbed),
    Configured(Box<dyn Testbed>),
}

impl Bed {
    pub(super) fn as_ref(&self) -> &dyn Testbed {
        match self {
            Bed::Catalogue(testbed) => *testbed,
            Bed::Configured(testbed) => testbed.as_ref(),
        }
    }
}

/// The testbed that was chosen, with its options.
pub(super) fn chosen(choice: &TestbedChoice) -> Result<Bed, Fault> {
    let known = testbed::CATALOG.iter().copied().find(|testbed| testbed.name() == choice.name);
    let known = known.ok_or_else(|| {
        Fault::new(FaultKind::Usage, format!("there is no testbed '{}'", choice.name))
    })?;
    let configured = known.configured(&choice.options)?;
    Ok(configured.map_or(Bed::Catalogue(known), Bed::Configured))
}

/// Parses a testbed.
pub(super) fn choice(text: &str) -> Result<TestbedChoice, Fault> {
    spec::parse_testbed(text, &testbed_spec(testbed::CATALOG))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(testbed: Option<&str>, sender: Option<&str>, receiver: Option<&str>) -> String {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let arguments = BedArguments {
            testbed: owned(testbed),
            sender: owned(sender),
            receiver: owned(receiver),
        };
        match arguments.choice() {
            Ok(choice) => choice.map_or_else(String::new, |choice| choice.text),
            Err(fault) => fault.to_string(),
        }
    }

    #[test]
    fn hosts_are_options_of_their_testbed() {
        assert_eq!(text(None, None, None), "");
        assert_eq!(text(Some("netns"), None, None), "netns");
        assert_eq!(text(None, None, Some("ssh://peer")), "hosts:receiver=ssh://peer");
        let with = text(Some("hosts:copies=removed"), Some("exec:ip netns exec a"), None);
        assert_eq!(with, "hosts:sender=\"exec:ip netns exec a\",copies=removed");
        let twice = text(Some("hosts:sender=here"), Some("here"), None);
        assert!(twice.contains("given twice"), "{twice}");
        let wrong = text(Some("vm"), None, Some("ssh://peer"));
        assert!(wrong.contains("testbed vm has no option 'receiver'"), "{wrong}");
        assert!(text(None, Some("exec:a \"b\""), None).contains("single quotes"));
    }
}
