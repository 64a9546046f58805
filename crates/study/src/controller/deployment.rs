//! A testbed as a user names it, and what can run on its hosts. Commands that examine hosts
//! (`doctor`, `paths`, `meters`) and the request of a run begin here; a study itself gets the
//! testbed alone.

use super::preflight::{OtherDevice, survey, survey_devices};
use crate::{Laboratory, Stewards, path_spec, survey_this_host, testbed_spec};
use bytepath_engine::path::{self, DataPath};
use bytepath_host::testbed::{self, Emulation, Site, Testbed};
use bytepath_host::{self as host};
use bytepath_meter::{self as meter, Meter};
use bytepath_record::{Facts, Fault, FaultKind, Finding, Kernel, Role, Severity, Support, Tls};
use bytepath_spec::{self as spec, CellRequest, Cpus, TestbedChoice, usage};
use bytepath_sys::Roots;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The testbed of a command that names none: the first of the catalogue.
pub fn default_testbed() -> Result<TestbedChoice, Fault> {
    parse_testbed(testbed::CATALOG[0].name())
}

/// Reads `NAME[:key=value,...]` of the catalogue.
pub fn parse_testbed(text: &str) -> Result<TestbedChoice, Fault> {
    spec::parse_testbed(text, &testbed_spec(testbed::CATALOG))
}

/// The program that agents are started from: this one.
pub fn own_program() -> Result<PathBuf, Fault> {
    std::env::current_exe().map_err(|e| Fault::system("cannot find the bytepath binary", &e))
}

/// A testbed with its options. Nothing is raised.
pub struct Deployment {
    choice: TestbedChoice,
    /// `None` if the one of the catalogue has nothing to configure.
    configured: Option<Box<dyn Testbed>>,
    declared: &'static dyn Testbed,
}

impl Deployment {
    pub fn new(choice: TestbedChoice) -> Result<Deployment, Fault> {
        let declared = testbed::CATALOG.iter().copied().find(|bed| bed.name() == choice.name);
        let declared =
            declared.ok_or_else(|| usage(format!("there is no testbed '{}'", choice.name)))?;
        let configured = declared.configured(&choice.options)?;
        Ok(Deployment { choice, configured, declared })
    }

    /// The testbed of a study's header, or of an option.
    pub fn parse(text: &str) -> Result<Deployment, Fault> {
        Deployment::new(parse_testbed(text)?)
    }

    pub fn testbed(&self) -> &dyn Testbed {
        self.configured.as_deref().unwrap_or(self.declared)
    }

    /// This program with everything that it can measure, on this testbed.
    pub fn laboratory<'a>(&'a self, stop: &'a AtomicBool) -> Result<Laboratory<'a>, Fault> {
        Ok(Laboratory {
            paths: path::CATALOG,
            meters: meter::CATALOG,
            testbed: self.testbed(),
            program: own_program()?,
            stop,
        })
    }

    pub fn stewards(&self) -> Result<Stewards, Fault> {
        Stewards::at(self.testbed(), &Site::of(&own_program()?))
    }

    /// CPUs of its hosts, the best first: of named hosts, which are queried, or near the devices
    /// that it takes of this one; `None` if any CPU of this machine is as good.
    pub(crate) fn host_cpus(&self) -> Result<Option<Cpus>, Fault> {
        let testbed = self.testbed();
        let devices = testbed.named_devices();
        if testbed.properties().link_is_given {
            let facts = self.stewards()?.facts()?;
            return Ok(facts.map(|facts| Cpus::of_hosts(facts.each_ref(), &devices)));
        }
        let here = |_| Cpus::of_machine(&host::survey(&Roots::real()), &devices);
        Ok(testbed.devices().map(here))
    }

    /// Facts of both hosts under this kernel, with the default link. With `meters`, what those
    /// need is tried, too.
    fn survey(&self, kernel: Option<&Kernel>, meters: bool) -> Result<Known, Fault> {
        if let Some(devices) = self.testbed().devices() {
            self.testbed().probe().refusal().map_or(Ok(()), Err)?;
            let (first, others) = survey_devices(&devices, |device| survey_over(device, meters));
            return Ok(Known { first, others });
        }
        let stop = AtomicBool::new(false);
        let laboratory = self.laboratory(&stop)?;
        let allowed = bytepath_sys::thread::allowed().unwrap_or_default();
        let cores = spec::parse_cores("none", self.choice.cpus(&allowed.into()))?;
        let paths = [path::PAIRS[0].name.to_owned()];
        let kernels: Vec<Kernel> = kernel.cloned().into_iter().collect();
        let ask = CellRequest {
            link: self.choice.link,
            kernels: &kernels,
            ..CellRequest::of(&paths, &cores)
        };
        let (cells, _) = spec::cells(&ask, &path_spec(path::CATALOG, path::PAIRS))?;
        let (first, others) = survey(&laboratory, &cells[0], meters)?;
        Ok(Known { first, others })
    }

    /// What would distort measurements on hosts that the user named; `None` if the hosts are
    /// this machine's.
    fn findings(&self) -> Result<Option<Vec<Finding>>, Fault> {
        if !self.testbed().properties().link_is_given {
            return Ok(None);
        }
        let marked = |(role, findings): (Option<Role>, Vec<Finding>)| {
            findings.into_iter().map(move |finding| match role {
                Some(role) => Finding { what: format!("{role}: {}", finding.what), ..finding },
                None => finding,
            })
        };
        Ok(Some(self.stewards()?.examine()?.into_iter().flat_map(marked).collect()))
    }
}

/// Facts of this host over a device.
fn survey_over(device: &str, meters: bool) -> Facts {
    let tried: &[&'static Meter] = if meters { meter::CATALOG } else { &[] };
    survey_this_host(path::CATALOG, tried, Some(device))
}

/// Facts of the sender's host and of the receiver's, or why the testbed cannot be set up.
pub struct HostFacts(Result<Known, Fault>);

/// What is known of both hosts: over the first device of each end, and over further ones.
struct Known {
    first: Vec<Facts>,
    others: Vec<OtherDevice>,
}

impl Known {
    fn of(first: Vec<Facts>) -> Known {
        Known { first, others: Vec::new() }
    }
}

impl HostFacts {
    fn support(&self, judge: impl FnOnce(&[Facts]) -> Support) -> Support {
        match &self.0 {
            Ok(known) => judge(&known.first),
            Err(fault) => {
                fault.clone().context("unknown, because the testbed cannot be set up").into()
            }
        }
    }

    /// Whether a half of a path works; `None` if the path has no such half.
    pub fn supports_half(&self, path: &DataPath, role: Role) -> Option<Support> {
        path.half(role)?;
        let check = |facts: &Facts| path.check(role, facts).unwrap_or(Support::Yes);
        let over = |OtherDevice { device, facts, .. }: &OtherDevice| {
            let refusal = check(facts).refusal();
            refusal.map_or(Support::Yes, |fault| fault.context(format!("over {device}")).into())
        };
        let others = self.0.iter().flat_map(|known| &known.others);
        let others = others.filter(|other| other.role == role).map(over);
        let first = self.support(|facts| check(&facts[role as usize]));
        Some(others.fold(first, Support::and))
    }

    pub fn supports_tls(&self, tls: Tls) -> Support {
        self.support(|facts| {
            facts.iter().map(|host| path::tls_support(tls, host)).fold(Support::Yes, Support::and)
        })
    }

    /// Whether a meter works on the receiver's host.
    pub fn supports_meter(&self, meter: &Meter) -> Support {
        self.support(|facts| (meter.probe)(&facts[Role::Receiver as usize]))
    }
}

/// The hosts that a command examines.
pub enum HostSelection {
    /// This host, for both roles, over a network device.
    Device(String),
    /// Those of a testbed, under a kernel if it boots one.
    Testbed(Box<Deployment>, Option<Kernel>),
}

impl HostSelection {
    /// Refuses a kernel if the testbed boots none.
    pub fn on(choice: TestbedChoice, kernel: Option<Kernel>) -> Result<HostSelection, Fault> {
        choice.check_kernels(kernel.is_some())?;
        Ok(HostSelection::Testbed(Box::new(Deployment::new(choice)?), kernel))
    }

    /// Facts of both hosts. Fails only if what the user named is not there.
    pub fn survey(&self, meters: bool) -> Result<HostFacts, Fault> {
        match self {
            HostSelection::Device(device) => {
                bytepath_sys::device::index(device)
                    .map_err(|e| Fault::system(format_args!("the network device {device}"), &e))?;
                Ok(HostFacts(Ok(Known::of(vec![survey_over(device, meters); 2]))))
            }
            HostSelection::Testbed(deployment, kernel) => {
                let named = deployment.testbed().properties().link_is_given;
                match deployment.survey(kernel.as_ref(), meters) {
                    Err(fault) if named || fault.kind == FaultKind::Usage => Err(fault),
                    facts => Ok(HostFacts(facts)),
                }
            }
        }
    }

    /// What would distort measurements between the hosts.
    pub fn findings(&self, facts: &HostFacts) -> Result<Vec<Finding>, Fault> {
        let (findings, devices) = match self {
            HostSelection::Device(device) => (None, [vec![device.clone()], vec![device.clone()]]),
            HostSelection::Testbed(deployment, _) => {
                (deployment.findings()?, deployment.testbed().named_devices())
            }
        };
        let mut findings = findings.unwrap_or_else(|| local_findings(&Roots::real()));
        if let Ok([sender, receiver]) = facts.0.as_ref().map(|known| &known.first[..]) {
            findings.extend(host::examine_pair([sender, receiver], &devices));
            findings.extend(host::examine_gpus([sender, receiver]));
            findings.sort_by_key(|finding| finding.severity);
        }
        Ok(findings)
    }

    /// The device that takes the place of a testbed's link; `None` if there is none.
    pub fn device(&self) -> Option<&str> {
        match self {
            HostSelection::Device(device) => Some(device),
            HostSelection::Testbed(..) => None,
        }
    }
}

/// What would distort measurements on this host, and testbeds that work here but measure no
/// speed.
fn local_findings(roots: &Roots) -> Vec<Finding> {
    let mut all = host::examine(&host::survey(roots), &host::moment(roots));
    all.extend(host::examine_dsa(roots));
    all.extend(host::examine_libraries(roots));
    for bed in testbed::CATALOG.iter().filter(|bed| bed.probe().is_yes()) {
        all.extend(bed.findings());
        if let Some(Emulation { because, .. }) = bed.emulation() {
            all.push(Finding {
                severity: Severity::Note,
                what: format!("testbed {}: {because}", bed.name()),
                effect: "its studies show that things work, not how fast".to_owned(),
                command: "run it on the machine itself, or ask its host for nested virtualisation"
                    .to_owned(),
            });
        }
    }
    all
}

/// Facts of the receiver's host of a testbed, which is not this machine, and what would distort
/// measurements there. `name` is the host as the user typed it.
pub fn examine_host(name: &str, choice: TestbedChoice) -> Result<(HostFacts, Vec<Finding>), Fault> {
    let deployment = Deployment::new(choice)?;
    let mut stewards = deployment.stewards()?;
    let facts = stewards.survey(Role::Receiver)?;
    let findings = stewards.examine()?.into_iter();
    let findings = findings.filter(|(role, _)| *role == Some(Role::Receiver));
    let facts =
        facts.ok_or_else(|| usage(format!("{name} is this machine")).remedy("leave out --host"))?;
    let findings =
        findings.flat_map(|(_, findings)| findings).chain(host::examine_gpus([&facts; 2]));
    let findings = findings.collect();
    Ok((HostFacts(Ok(Known::of(vec![facts; 2]))), findings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_host::{AgentPipe, Attachment, Host, Place, build_of, own_build};
    use bytepath_record::wire::{Identity, Reply, Request, SYNC, line_of};
    use bytepath_record::{Attempt, Outcome, SCHEMA_VERSION};
    use std::io::{self, PipeWriter, Write};

    /// Two hosts with devices `eth1` and `eth2` each, which their agents are asked about.
    struct TwoDevices;

    impl Testbed for TwoDevices {
        fn name(&self) -> &'static str {
            "two-devices"
        }
        fn summary(&self) -> &'static str {
            "agents that are made up"
        }
        fn probe(&self) -> Support {
            Support::Yes
        }
        fn raise(&self, _: &Site) -> Result<testbed::Deployment, Fault> {
            Ok(testbed::Deployment::of([1, 2].map(MadeUpHost::new)))
        }
    }

    struct MadeUpHost {
        pipe: Option<AgentPipe>,
        attachment: Attachment,
    }

    impl MadeUpHost {
        fn new(number: u8) -> MadeUpHost {
            let place = |(network, device): (u8, &str)| Place {
                address: Some([10, 0, network, number].into()),
                device: Some(device.to_owned()),
            };
            let places = (0..).zip(["eth1", "eth2"]).map(place).collect();
            let (from_agent, mut replies) = io::pipe().unwrap();
            writeln!(replies, "{SYNC}").unwrap();
            let (to_agent, from_agent) = (Box::new(MadeUpAgent(replies)), Box::new(from_agent));
            let pipe = Some(AgentPipe { to_agent, from_agent });
            MadeUpHost { pipe, attachment: Attachment::Given(places) }
        }
    }

    impl Host for MadeUpHost {
        fn take_pipe(&mut self) -> AgentPipe {
            self.pipe.take().unwrap()
        }
        fn attachment(&self) -> &Attachment {
            &self.attachment
        }
        fn exit_report(&mut self) -> String {
            "it was made up".into()
        }
    }

    /// Replies to each request at once: what `sendfile` needs works over `eth1` alone.
    struct MadeUpAgent(PipeWriter);

    impl Write for MadeUpAgent {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let reply = match serde_json::from_slice(line)? {
                Request::Hello(_) => {
                    let build = build_of(&own_program().unwrap());
                    let build = build.unwrap_or_else(|| own_build().to_owned());
                    Reply::Hello(Identity { schema: SCHEMA_VERSION, build, pid: 1 })
                }
                Request::CheckDevice(_) => Reply::CheckDevice(()),
                Request::Survey(survey) => {
                    let outcome = match survey.device.as_deref() {
                        Some("eth1") => Outcome::Works(String::new()),
                        device => Outcome::Missing(format!("{device:?} has none")),
                    };
                    let attempts = vec![Attempt { name: "memfd".into(), outcome }];
                    Reply::Survey(Box::new(Facts { attempts, ..Facts::default() }))
                }
                other => Reply::Failed(Fault::failed(format!("no reply to {other:?}"))),
            };
            self.0.write_all(&line_of("a reply", &reply).unwrap())?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn paths_of_hosts_are_asked_over_each_device_of_an_end() {
        let configured: Option<Box<dyn Testbed>> = Some(Box::new(TwoDevices));
        let deployment = Deployment { configured, ..Deployment::parse("netns").unwrap() };
        let hosts = HostSelection::Testbed(Box::new(deployment), None);
        let facts = hosts.survey(false).unwrap();
        let sendfile = path::find(path::CATALOG, "sendfile").unwrap();
        let Some(Support::No { reason, .. }) = facts.supports_half(sendfile, Role::Sender) else {
            panic!("it works over eth1 alone")
        };
        assert!(reason.starts_with("over eth2: "), "{reason}");
        assert!(reason.contains("Some(\"eth2\") has none"), "{reason}");
        let socket = path::find(path::CATALOG, "socket").unwrap();
        assert_eq!(facts.supports_half(socket, Role::Receiver), Some(Support::Yes));
    }
}
