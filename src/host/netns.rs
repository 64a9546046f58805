//! The embedded testbed: two network namespaces on this machine and a veth
//! pair between them. The traffic crosses a whole TCP stack twice, and no byte
//! leaves the machine.
//!
//! The namespaces are anonymous. They belong to the two agents and end with
//! them, so that nothing can be left behind, whoever is killed.

use super::child::AgentProcess;
use super::keeper::Agents;
use super::{AgentPipe, Raised, Site, Testbed};
use crate::record::wire::LinkEnd;
use crate::record::{Fault, LinkSettings, Role, Support};
use crate::sys::Roots;
use crate::sys::namespace::{self, Enter, Refused, Step};
use crate::sys::netlink::{Veth, veth_message};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

/// Two network namespaces and a veth pair.
pub struct Netns;

impl Testbed for Netns {
    fn name(&self) -> &'static str {
        "netns"
    }

    fn summary(&self) -> &'static str {
        "two network namespaces and a veth pair on this machine"
    }

    fn probe(&self) -> Support {
        let pair = Veth {
            name: device(Role::Sender).into(),
            peer: device(Role::Receiver).into(),
            peer_process: None,
            mtu: None,
            queues: 1,
        };
        let tried = veth_message(&pair)
            .map_err(|error| Refused { step: Step::Device, error })
            .and_then(namespace::rehearse);
        match tried {
            Ok(()) => Support::Yes,
            Err(refused) => {
                let remedy = remedy(&refused, &Roots::real());
                Support::no(refused.to_string(), remedy)
            }
        }
    }

    fn raise(&self, site: &Site) -> Result<Box<dyn Raised>, Fault> {
        site.refuse_kernel(self.name())?;
        let program = site.program.to_path_buf();
        Ok(Box::new(Up { agents: Agents::start(move || start_agents(&program))? }))
    }
}

/// The testbed while it is up.
struct Up {
    agents: Agents,
}

impl Raised for Up {
    fn take_pipe(&mut self, role: Role) -> AgentPipe {
        self.agents.of(role).take_pipe()
    }

    fn link_end(
        &self,
        role: Role,
        settings: &LinkSettings,
        softirq_cpu: Option<u32>,
    ) -> Option<LinkEnd> {
        Some(veth_end(role, settings, softirq_cpu, self.agents.receiver()))
    }

    fn address(&self, role: Role) -> IpAddr {
        address(role)
    }

    fn device(&self, role: Role) -> Option<String> {
        Some(device(role).to_string())
    }

    fn last_words(&mut self, role: Role) -> String {
        self.agents.of(role).last_words()
    }
}

/// One end of the pair. `receiver` is the process whose namespace the peer's
/// device goes to, as the sender's agent knows it.
pub(super) fn veth_end(
    role: Role,
    settings: &LinkSettings,
    softirq_cpu: Option<u32>,
    receiver: u32,
) -> LinkEnd {
    let peer = match role {
        Role::Sender => Some((device(Role::Receiver).to_string(), receiver)),
        Role::Receiver => None,
    };
    LinkEnd {
        role,
        device: device(role).to_string(),
        peer,
        address: address(role),
        prefix: PREFIX,
        settings: settings.clone(),
        softirq_cpu,
        softirq_required: false,
        patience: LinkEnd::moment(),
        neighbour: None,
    }
}

/// Addresses from 198.18.0.0/15, which RFC 2544 sets aside for benchmarks of
/// network devices; no real network has them.
pub fn address(role: Role) -> IpAddr {
    IpAddr::V4(match role {
        Role::Sender => Ipv4Addr::new(198, 18, 0, 1),
        Role::Receiver => Ipv4Addr::new(198, 18, 0, 2),
    })
}

/// Length of the link's prefix in bits.
pub(super) const PREFIX: u8 = 30;

/// Device of a role's end of the pair.
pub(super) fn device(role: Role) -> &'static str {
    match role {
        Role::Sender => "byte0",
        Role::Receiver => "byte1",
    }
}

fn start_agents(program: &Path) -> Result<[AgentProcess; 2], Fault> {
    let start = |enter| {
        let child = namespace::spawn(AgentProcess::command(program), enter);
        child.map(AgentProcess::new).map_err(|refused| fault(&refused, program))
    };
    let sender = start(Enter::New)?;
    let receiver = start(Enter::Beside(sender.id()))?;
    Ok([sender, receiver])
}

fn fault(refused: &Refused, program: &Path) -> Fault {
    match refused.step {
        Step::Program => Fault::system(format!("starting {}", program.display()), &refused.error),
        step => Fault::system(format!("testbed netns: {}", step.words()), &refused.error)
            .remedy(remedy(refused, &Roots::real())),
    }
}

/// What would help, from what this host forbids.
pub(super) fn remedy(refused: &Refused, roots: &Roots) -> String {
    let sysctl = |name: &str| -> Option<String> {
        let text = std::fs::read_to_string(roots.proc.join("sys").join(name)).ok()?;
        Some(text.trim().to_string())
    };
    let code = refused.error.raw_os_error().unwrap_or(0);
    match refused.step {
        Step::Device => match code {
            libc::EOPNOTSUPP => "the kernel has no veth devices: modprobe veth, or a kernel with \
                                 CONFIG_VETH"
                .into(),
            _ => "run as root with CAP_NET_ADMIN".into(),
        },
        Step::Program => "check that the program exists and may be run".into(),
        Step::DeathSignal => "run again: the parent ended while the testbed was starting".into(),
        _ if code == libc::EINVAL || code == libc::ENOSYS => {
            "use a kernel with CONFIG_NET_NS and, to run without root, CONFIG_USER_NS".into()
        }
        _ if sysctl("user/max_user_namespaces").as_deref() == Some("0") => {
            "run as root, or allow user namespaces: sysctl user.max_user_namespaces=15000".into()
        }
        _ if sysctl("user/max_net_namespaces").as_deref() == Some("0") => {
            "allow network namespaces: sysctl user.max_net_namespaces=15000".into()
        }
        _ if sysctl("kernel/unprivileged_userns_clone").as_deref() == Some("0") => {
            "run as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1"
                .into()
        }
        _ if sysctl("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") => {
            "run as root, or allow user namespaces: sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0"
                .into()
        }
        _ if is_limit(&refused.error) => {
            "too many namespaces: end some, or raise user.max_net_namespaces and \
             user.max_user_namespaces"
                .into()
        }
        _ => "run as root; in a container, start it with CAP_SYS_ADMIN and CAP_NET_ADMIN and a \
              seccomp profile that allows unshare (docker run --privileged)"
            .into(),
    }
}

fn is_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EUSERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(settings: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        for (name, value) in settings {
            let path = dir.path().join("proc/sys").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{value}\n")).unwrap();
        }
        let roots = Roots::recorded(dir.path());
        (dir, roots)
    }

    fn refused(step: Step, code: i32) -> Refused {
        Refused { step, error: io::Error::from_raw_os_error(code) }
    }

    #[test]
    fn the_remedy_names_what_this_host_forbids() {
        let cases = [
            ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
            ("user/max_net_namespaces", "0", "user.max_net_namespaces=15000"),
            ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
            (
                "kernel/apparmor_restrict_unprivileged_userns",
                "1",
                "kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            ("user/max_user_namespaces", "96365", "CAP_SYS_ADMIN"),
        ];
        for (name, value, expected) in cases {
            let (_dir, roots) = host(&[(name, value)]);
            let text = remedy(&refused(Step::UserNamespace, libc::EPERM), &roots);
            assert!(text.contains(expected), "{name}={value}: {text}");
        }
    }

    #[test]
    fn a_kernel_without_veth_is_named() {
        let (_dir, roots) = host(&[]);
        let text = remedy(&refused(Step::Device, libc::EOPNOTSUPP), &roots);
        assert!(text.contains("CONFIG_VETH"), "{text}");
    }

    #[test]
    fn a_program_that_is_not_there_is_a_fault_that_names_it() {
        if !Netns.probe().is_yes() {
            // The refusal itself is covered above.
            return;
        }
        let fault = Netns.raise(&Site::of(Path::new("/no/such/bytepath"))).err().unwrap();
        assert!(fault.message.contains("/no/such/bytepath"), "{fault}");
    }
}
