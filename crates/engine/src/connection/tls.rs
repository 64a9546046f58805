//! TLS 1.3 over a connection, by the kernel (kTLS) or by the program. Only records, with a secret
//! that the controller made for this trial, since what is compared is the cost of the bytes and not
//! of a handshake. The token at the start of a connection is sent unencrypted.

use super::{Flow, records};
use bytepath_record::wire::Secret;
use bytepath_record::{Attempt, Facts, Fault, FaultKind, Outcome, Role, Support, Tls};
use bytepath_sys::ktls::{self, Key};
use bytepath_sys::tcp;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Keys of one end of a flow. `Debug` does not show them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    /// For what this end sends.
    pub send: Key,
    /// For what it receives.
    pub receive: Key,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Keys {
    /// The keys of a flow at a role's end. The index is part of the IVs, so that no two records of
    /// a trial have the same nonce.
    pub fn of(secret: &Secret, index: u32, role: Role) -> Keys {
        let [sender, receiver] = secret.0.map(|bytes| {
            let mut key = Key { key: [0; 16], iv: [0; 12] };
            key.key.copy_from_slice(&bytes[..16]);
            key.iv.copy_from_slice(&bytes[16..]);
            key.iv.iter_mut().zip(index.to_le_bytes()).for_each(|(byte, part)| *byte ^= part);
            key
        });
        match role {
            Role::Sender => Keys { send: sender, receive: receiver },
            Role::Receiver => Keys { send: receiver, receive: sender },
        }
    }
}

/// Sets up TLS on a connected flow, if required.
pub(super) fn over(
    mut flow: Flow,
    tls: Tls,
    secret: Option<&Secret>,
    role: Role,
) -> Result<Flow, Fault> {
    if tls == Tls::None {
        return Ok(flow);
    }
    let secret = secret.ok_or_else(|| {
        let text = format!("flow {}: there is no secret to encrypt with", flow.index);
        Fault::failed(text).remedy("report this as a bug")
    })?;
    let keys = Keys::of(secret, flow.index, role);
    match tls {
        Tls::Kernel => by_kernel(flow.fd(), &keys).map_err(|e| refused(&flow, &e))?,
        Tls::User | Tls::None => flow.keys = Some(keys),
    }
    Ok(flow)
}

/// Names of the attempts, as in [`Facts`].
const KERNEL: &str = "tls.kernel";
const USER: &str = "tls.user";

/// Remedy for a kernel without TLS.
const REMEDY: &str = "load it: modprobe tls (CONFIG_TLS) and gcm (CONFIG_CRYPTO_GCM); or run the \
                      study in guests, whose kernel has both: --testbed vm";

/// Returns whether a host with these facts can encrypt this way.
pub fn support(tls: Tls, facts: &Facts) -> Support {
    match tls {
        Tls::None => Support::Yes,
        Tls::Kernel => facts.require(KERNEL, REMEDY),
        Tls::User => facts.require(USER, "choose tls=kernel, or a processor with them"),
    }
}

/// Tries both; the kernel's by a record over loopback, if that is up.
pub fn attempts() -> [Attempt; 2] {
    let user = match records::supported() {
        true => Outcome::Works("TLS 1.3, AES-128-GCM".into()),
        false => Outcome::Missing("the processor lacks instructions: AES, PCLMULQDQ, AVX2".into()),
    };
    [kernel(), Attempt { name: USER.into(), outcome: user }]
}

fn kernel() -> Attempt {
    let outcome = match try_record() {
        Ok(detail) => Outcome::Works(detail),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
            Outcome::Missing("this kernel has no TLS for sockets, or no AES-GCM".into())
        }
        Err(e) => e.raw_os_error().map_or(Outcome::Missing(e.to_string()), Outcome::Errno),
    };
    Attempt { name: KERNEL.into(), outcome }
}

fn try_record() -> io::Result<String> {
    let (tx, rx) = match tcp::loopback_pair() {
        Ok(pair) => pair,
        Err(e) if Path::new("/proc/self/net/tls_stat").exists() => {
            return Ok(format!("loaded; no record sent, as there is no loopback connection: {e}"));
        }
        Err(e) => return Err(e),
    };
    let secret = Secret([[1; 28], [2; 28]]);
    let of = |role| Keys::of(&secret, 0, role);
    by_kernel(tx.as_fd(), &of(Role::Sender))?;
    by_kernel(rx.as_fd(), &of(Role::Receiver))?;
    tcp::send(tx.as_fd(), b"record", 0)?;
    let mut read = [0; 6];
    let got = tcp::recv(rx.as_fd(), &mut read, libc::MSG_WAITALL)?;
    match &read[..got] {
        b"record" => Ok("TLS 1.3, AES-128-GCM".into()),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

fn by_kernel(socket: BorrowedFd, keys: &Keys) -> io::Result<()> {
    ktls::attach(socket)?;
    ktls::encrypt(socket, &keys.send)?;
    ktls::decrypt(socket, &keys.receive)
}

fn refused(flow: &Flow, error: &io::Error) -> Fault {
    let fault = flow.fault("TLS by the kernel", error);
    match error.raw_os_error() {
        Some(libc::ENOENT) => Fault { kind: FaultKind::Unsupported, ..fault }.remedy(REMEDY),
        _ => fault,
    }
}

/// Adds what an undecryptable record means to its fault.
pub(super) fn undecryptable(fault: Fault) -> Fault {
    Fault { kind: FaultKind::Corrupt, ..fault }
        .context("a TLS record cannot be decrypted")
        .remedy("the two ends have different keys, or something on the way changes bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_both_ends_match() {
        let secret = Secret([[3; 28], [5; 28]]);
        let of = |index, role| Keys::of(&secret, index, role);
        let (sender, receiver) = (of(7, Role::Sender), of(7, Role::Receiver));
        assert!(sender.send == receiver.receive && sender.receive == receiver.send);
        assert!(sender.send != sender.receive);
        let other = of(8, Role::Sender).send;
        assert!(other.key == sender.send.key && other.iv != sender.send.iv);
        assert_eq!(format!("{sender:?} {secret:?}"), "Keys(..) Secret(..)");
    }

    #[test]
    fn refuses_tls_without_secret() {
        let (tx, _rx) = tcp::loopback_pair().unwrap();
        let fault = over(Flow::tcp(tx, 3), Tls::User, None, Role::Sender).unwrap_err();
        assert_eq!(fault.message, "flow 3: there is no secret to encrypt with");
    }

    #[test]
    fn missing_kernel_tls_has_remedy() {
        let (tx, _rx) = tcp::loopback_pair().unwrap();
        let fault = refused(&Flow::tcp(tx, 0), &io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!(fault.kind, FaultKind::Unsupported);
        assert!(fault.to_string().contains("modprobe tls"), "{fault}");
    }
}
