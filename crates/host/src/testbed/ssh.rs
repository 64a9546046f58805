//! Hosts reached by the system's ssh(1), with the user's own configuration. One connection to each
//! stays open as long as the testbed; agents use it one after the other.

use crate::child::remove_left;
use crate::{AgentProcess, LocalAgent, echoes};
use bytepath_record::{Fault, FaultKind};
use bytepath_sys::process::spawn_tied_sigterm;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A host by its address, `ssh://[USER@]HOST[:PORT]`, which is passed to ssh(1) unchanged.
pub(super) struct Ssh {
    address: String,
    /// The connection that multiplexes the others.
    main: Mutex<Option<Main>>,
}

struct Main {
    process: LocalAgent,
    socket: PathBuf,
}

/// Options of every connection. No one is there to answer a prompt, nothing but the pipe is
/// forwarded, and commands in the user's configuration must not run.
const OPTIONS: &[&str] = &[
    "-T",
    "-a",
    "-x",
    "-oBatchMode=yes",
    "-oClearAllForwardings=yes",
    "-oControlPersist=no",
    "-oEscapeChar=none",
    "-oPermitLocalCommand=no",
    "-oRemoteCommand=none",
];

/// The form of an address, for error messages.
const FORM: &str = "ssh://[USER@]HOST[:PORT]";

impl Ssh {
    /// Checks an address. It may only contain the characters of names, addresses and ports, so that
    /// it is a single word of a command and cannot be an option.
    pub(super) fn new(address: &str) -> Result<Ssh, String> {
        let wrong =
            |what: &str| Err(format!("'{}' {what}; it takes {FORM}", address.escape_debug()));
        let Some(rest) = address.strip_prefix("ssh://") else {
            return wrong("is not an address of ssh");
        };
        let (user, place) = rest.split_once('@').map_or((None, rest), |(u, p)| (Some(u), p));
        let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_name = |name: &str| !name.starts_with('-') && name.chars().all(named);
        if user.is_some_and(|user| user.is_empty() || !is_name(user)) {
            return wrong("has no valid user");
        }
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => place.split_once(':').map_or((place, None), |(h, p)| (h, Some(p))),
        };
        let in_brackets = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '%');
        let valid = match place.starts_with('[') {
            true => host.contains(':') && host.chars().all(in_brackets),
            false => is_name(host),
        };
        if host.is_empty() || !valid {
            return wrong("has no valid host");
        }
        if port.is_some_and(|port| !matches!(port.parse(), Ok(1..=u16::MAX))) {
            return wrong("has no valid port");
        }
        Ok(Ssh { address: address.to_owned(), main: Mutex::new(None) })
    }

    /// Returns the address as typed.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the command that runs a shell there, over the existing connection.
    pub(super) fn shell(&self, stop: &AtomicBool) -> Result<Vec<String>, Fault> {
        let socket = self.socket(stop)?;
        Ok(self.command(&["-oControlMaster=no"], &socket, "sh"))
    }

    /// Drops the connection: everything that it carried is lost, and the next agent needs a new
    /// one.
    pub(super) fn disconnect(&self) {
        *self.main.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn command(&self, options: &[&str], socket: &Path, program: &str) -> Vec<String> {
        let socket = format!("-oControlPath={}", socket.display());
        let words = ["ssh"].iter().chain(OPTIONS).chain(options).copied();
        words.chain([&*socket, "--", &*self.address, program]).map(str::to_owned).collect()
    }

    /// Returns the socket of the multiplexing connection; connects if there is none.
    fn socket(&self, stop: &AtomicBool) -> Result<PathBuf, Fault> {
        let mut main = self.main.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(main) = main.as_mut()
            && main.process.process.is_running()
        {
            return Ok(main.socket.clone());
        }
        *main = None;
        let socket = new_socket()?;
        let words = self.command(&["-oControlMaster=yes"], &socket, "cat");
        let mut process = start(words)?;
        echoes(&self.address, &mut process.process, stop)?;
        *main = Some(Main { process, socket: socket.clone() });
        Ok(socket)
    }
}

impl Drop for Main {
    fn drop(&mut self) {
        // ssh removes its socket when it ends by itself, as it does when its pipe is closed.
        self.process.process.close();
    }
}

/// Starts a program that ends with this process and communicates with it over pipes.
pub(super) fn start(words: Vec<String>) -> Result<LocalAgent, Fault> {
    let [agent] = LocalAgent::start(move || {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for us: results of completed measurements still have to come over this pipe.
        command.process_group(0);
        let child = spawn_tied_sigterm(command).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Fault::system(format_args!("starting {}", words[0]), &e)
                    .remedy(format!("install {}", words[0]))
            }
            _ => Fault::not_started(&words[0], &e),
        })?;
        Ok([AgentProcess::new(child)?])
    })?;
    Ok(agent)
}

/// Returns a name for a socket in a folder that only we can access. ssh(1) creates the socket, and
/// first appends a random suffix, so the name has to be short (unix(7)).
fn new_socket() -> Result<PathBuf, Fault> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let own = rustix::process::getuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if folder.len() < 40 => PathBuf::from(folder).join("bytepath"),
        _ => PathBuf::from(format!("/tmp/bytepath-{own}")),
    };
    let fault = |e: &std::io::Error| {
        Fault::system(format_args!("making the folder {}", folder.display()), e)
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|e| fault(&e))?;
    let metadata = fs::symlink_metadata(&folder).map_err(|e| fault(&e))?;
    if !metadata.is_dir() || metadata.uid() != own || metadata.mode() & 0o077 != 0 {
        let text = format!("the folder {} is accessible to others", folder.display());
        return Err(Fault::new(FaultKind::Permission, text).remedy("remove it"));
    }
    remove_left(&folder, "ssh-");
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ok(folder.join(format!("ssh-{}-{number}", std::process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_word_and_no_option() {
        for right in ["ssh://peer", "ssh://root@10.0.0.2:2222", "ssh://[fe80::1%eth0]:22"] {
            let ssh = Ssh::new(right).unwrap();
            let words = ssh.command(&["-oControlMaster=no"], Path::new("/run/x"), "sh");
            assert_eq!(&words[words.len() - 3..], ["--", right, "sh"]);
        }
        for wrong in [
            "peer",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://-luser@a",
            "ssh://a\nb",
            "ssh://a b",
            "ssh://a;b",
            "ssh://@a",
            "ssh://u$@a",
            "ssh://a:0",
            "ssh://a:x",
            "ssh://[a]",
            "ssh://[::1",
        ] {
            assert!(Ssh::new(wrong).is_err(), "{wrong}");
        }
    }
}
