//! Kernel TLS (`CONFIG_TLS`, Documentation/networking/tls.rst): a connected TCP socket whose sends
//! become TLS 1.3 records, and whose receives return the content of records. Only the records: the
//! handshake, or another agreement on keys, happens before.

use super::tcp::{set_int, set_option};
use libc::{SOL_TLS, TLS_RX, TLS_RX_EXPECT_NO_PAD, TLS_TX, TLS_TX_ZEROCOPY_RO};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// An AES-128-GCM key and initial vector for one direction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub key: [u8; 16],
    /// The initial vector, which is combined with the number of each record.
    pub iv: [u8; 12],
}

/// Attaches kernel TLS to a connection; it does nothing yet. ENOENT: this kernel has no TLS;
/// ENOTCONN: the socket is not connected; EEXIST: TLS is already attached.
pub fn attach(socket: BorrowedFd) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls\0")
}

/// Makes everything sent from now on into records, starting with number 0. ENOENT: this kernel has
/// no AES-GCM. A NIC that encrypts reads what sendfile(2) sends in place: changing the file
/// meanwhile would break records, which nothing here does.
pub fn encrypt(socket: BorrowedFd, key: &Key) -> io::Result<()> {
    set_option(socket, SOL_TLS, TLS_TX, &crypto_info(key))?;
    optional(set_int(socket, SOL_TLS, TLS_TX_ZEROCOPY_RO, 1))
}

/// Expects everything that arrives from now on to be records, starting with number 0. A receive
/// returns their content; a record not made with this key makes it fail with EBADMSG. Our peers do
/// not pad records, so they are decrypted straight into the reader's buffer.
pub fn decrypt(socket: BorrowedFd, key: &Key) -> io::Result<()> {
    set_option(socket, SOL_TLS, TLS_RX, &crypto_info(key))?;
    optional(set_int(socket, SOL_TLS, TLS_RX_EXPECT_NO_PAD, 1))
}

/// Returns the TLS counters of a network namespace: names and values of `/proc/PID/net/tls_stat`.
/// Empty if the kernel has no TLS, or has not loaded it.
pub fn counts(net: &Path) -> io::Result<Vec<(String, u64)>> {
    match std::fs::read_to_string(net.join("tls_stat")) {
        Ok(text) => Ok(text.lines().filter_map(count).collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

fn count(line: &str) -> Option<(String, u64)> {
    let (name, value) = line.split_once(char::is_whitespace)?;
    Some((name.to_owned(), value.trim().parse().ok()?))
}

/// Ignores the error of kernels that do not know the option (before 5.19 or 6.0).
fn optional(set: io::Result<()>) -> io::Result<()> {
    match set {
        Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        other => other,
    }
}

/// Encodes `struct tls12_crypto_info_aes_gcm_128`: version, cipher, the last 8 bytes of the initial
/// vector, the key, the first 4 bytes of the initial vector, the number of the next record.
fn crypto_info(Key { key, iv }: &Key) -> [u8; 40] {
    let mut info = [0; 40];
    info[..2].copy_from_slice(&libc::TLS_1_3_VERSION.to_ne_bytes());
    info[2..4].copy_from_slice(&libc::TLS_CIPHER_AES_GCM_128.to_ne_bytes());
    info[4..12].copy_from_slice(&iv[4..]);
    info[12..28].copy_from_slice(key);
    info[28..32].copy_from_slice(&iv[..4]);
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_laid_out_as_the_kernel_reads_it() {
        let key = Key { key: [7; 16], iv: [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2] };
        let info = crypto_info(&key);
        assert_eq!(info[..4], [4, 3, 51, 0].map(|byte: u8| byte.to_le()));
        assert_eq!((&info[4..12], &info[12..28]), (&[2; 8][..], &[7; 16][..]));
        assert_eq!((&info[28..32], &info[32..]), (&[1; 4][..], &[0; 8][..]));
    }

    #[test]
    fn counts_are_read_by_name() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(counts(folder.path()).unwrap(), []);
        let text = "TlsCurrTxSw                     \t1\nTlsDecryptError\t18446744073709551615\n";
        std::fs::write(folder.path().join("tls_stat"), text).unwrap();
        let found = counts(folder.path()).unwrap();
        let expected = [("TlsCurrTxSw", 1), ("TlsDecryptError", u64::MAX)];
        assert_eq!(found, expected.map(|(name, n)| (name.to_owned(), n)));
    }
}
