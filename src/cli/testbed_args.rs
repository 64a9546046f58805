//! The options that name a testbed and its hosts.

use bytepath_record::{Fault, Role};
use bytepath_spec::{TestbedChoice, usage};
use bytepath_study::parse_testbed;
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct TestbedArgs {
    /// Where roles run: netns, ports, vm or hosts [default: netns]
    ///
    /// The default with a file is the file's. With options: ports:sender=DEVICE,receiver=DEVICE,
    /// vm[:key=value,...], hosts[:key=value,...].
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

impl TestbedArgs {
    /// This machine and another one.
    pub(super) fn with_receiver(host: &str) -> TestbedArgs {
        TestbedArgs { testbed: None, sender: None, receiver: Some(host.to_owned()) }
    }

    /// Returns the named testbed, if any.
    pub(super) fn resolve(&self) -> Result<Option<TestbedChoice>, Fault> {
        self.text()?.as_deref().map(parse_testbed).transpose()
    }

    /// Returns the equivalent argument of `--testbed`.
    fn text(&self) -> Result<Option<String>, Fault> {
        let mut text = self.testbed.clone();
        for (role, host) in Role::ALL.into_iter().zip([&self.sender, &self.receiver]) {
            let Some(host) = host else { continue };
            if host.contains('"') {
                let text = format!("the {role}'s host cannot have double quotes: {host}");
                return Err(usage(text).remedy("use single quotes"));
            }
            let text = text.get_or_insert_with(|| "hosts".to_owned());
            text.push(if text.contains(':') { ',' } else { ':' });
            text.push_str(&format!("{role}=\"{host}\""));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(testbed: Option<&str>, sender: Option<&str>, receiver: Option<&str>) -> String {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let arguments = TestbedArgs {
            testbed: owned(testbed),
            sender: owned(sender),
            receiver: owned(receiver),
        };
        match arguments.resolve() {
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
