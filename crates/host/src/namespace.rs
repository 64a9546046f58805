//! Two agents in separate network namespaces on this machine, which may be joined by a veth pair.
//!
//! The namespaces are anonymous. They belong to the two agents and end with them, so that nothing
//! can be left behind, whichever process is killed.

use super::child::{AgentProcess, LocalAgent};
use bytepath_record::{Fault, FaultKind, Role};
use bytepath_settings::STATE_VARIABLE;
use bytepath_sys::Roots;
use bytepath_sys::namespace::{self, Enter, Refused, Step};
use std::io;
use std::path::Path;

/// Starts both agents; the second may receive one end of a pair that the first creates. `states`
/// are folders for the settings that each of them makes itself, if they are not those of this
/// machine.
pub fn pair_of_agents(
    program: &Path,
    states: Option<[&'static str; 2]>,
) -> Result<[LocalAgent; 2], Fault> {
    let program = program.to_path_buf();
    LocalAgent::start(move || {
        let start = |role: Role, enter| {
            let mut command = AgentProcess::command(&program);
            command.envs(states.map(|states| (STATE_VARIABLE, states[role as usize])));
            let child = namespace::spawn(command, enter);
            AgentProcess::new(child.map_err(|refused| fault(&refused, &program))?)
        };
        let first = start(Role::Sender, Enter::New)?;
        let second = start(Role::Receiver, Enter::Beside(first.id()))?;
        Ok([first, second])
    })
}

fn fault(refused: &Refused, program: &Path) -> Fault {
    match refused.step {
        Step::Program => Fault::not_started(program.display(), &refused.error),
        step => {
            let what = format!("testbed netns: {step}");
            let fault = Fault::system(what, &refused.error).remedy(remedy(refused, &Roots::real()));
            match is_limit(&refused.error) {
                // For namespaces, ENOSPC means a limit set by an administrator, not a full disk.
                true => Fault { kind: FaultKind::Permission, ..fault },
                false => fault,
            }
        }
    }
}

/// Returns a remedy, according to what this host forbids.
pub fn remedy(refused: &Refused, roots: &Roots) -> &'static str {
    let is_set = |name: &str, value: &str| {
        let text = std::fs::read_to_string(roots.proc.join("sys").join(name));
        text.is_ok_and(|text| text.trim() == value)
    };
    let code = refused.error.raw_os_error().unwrap_or(0);
    match refused.step {
        Step::Device => match code {
            libc::EOPNOTSUPP => {
                "the kernel has no veth devices: modprobe veth, or a kernel with \
                                 CONFIG_VETH"
            }
            _ => "run as root with CAP_NET_ADMIN",
        },
        Step::Program => "check that the program exists and may be run",
        Step::DeathSignal => "run again: the parent ended while the testbed was starting",
        _ if code == libc::EINVAL || code == libc::ENOSYS => {
            "use a kernel with CONFIG_NET_NS and, to run without root, CONFIG_USER_NS"
        }
        _ if is_set("user/max_user_namespaces", "0") => {
            "run as root, or allow user namespaces: sysctl user.max_user_namespaces=15000"
        }
        _ if is_set("user/max_net_namespaces", "0") => {
            "allow network namespaces: sysctl user.max_net_namespaces=15000"
        }
        _ if is_set("kernel/unprivileged_userns_clone", "0") => {
            "run as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1"
        }
        _ if is_set("kernel/apparmor_restrict_unprivileged_userns", "1") => {
            "run as root, or allow user namespaces: sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0"
        }
        _ if is_limit(&refused.error) => {
            "too many namespaces: end some, or raise user.max_net_namespaces and \
             user.max_user_namespaces"
        }
        _ => {
            "run as root; in a container, start it with CAP_SYS_ADMIN and CAP_NET_ADMIN and a \
              seccomp profile that allows unshare (docker run --privileged)"
        }
    }
}

fn is_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EUSERS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

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
    fn remedy_names_what_the_host_forbids() {
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
    fn a_limit_on_namespaces_is_a_permission_and_not_a_full_disk() {
        let limit = fault(&refused(Step::UserNamespace, libc::ENOSPC), Path::new("bytepath"));
        assert_eq!(limit.kind, FaultKind::Permission, "{limit}");
        let denied = fault(&refused(Step::UserNamespace, libc::EPERM), Path::new("bytepath"));
        assert_eq!(denied.kind, FaultKind::Permission, "{denied}");
    }

    #[test]
    fn a_kernel_without_veth_is_named() {
        let (_dir, roots) = host(&[]);
        let text = remedy(&refused(Step::Device, libc::EOPNOTSUPP), &roots);
        assert!(text.contains("CONFIG_VETH"), "{text}");
    }

    #[test]
    fn names_a_missing_program() {
        let fault = pair_of_agents(Path::new("/no/such/bytepath"), None).err().unwrap();
        if fault.message.starts_with("testbed netns") {
            // The refusal itself is tested above.
            return skip!("{fault}");
        }
        assert!(fault.message.contains("/no/such/bytepath"), "{fault}");
    }
}
