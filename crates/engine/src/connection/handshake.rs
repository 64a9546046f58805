//! TLS 1.3 handshakes by rustls, for connections that come and go: the parameters of both ends, the
//! certificate, and the tickets by which a client resumes.

use bytepath_record::Fault;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, NamedGroup, RootCertStore, ServerConfig,
    ServerConnection,
};
use rustls_graviola::{kx, suites};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Which handshake a client makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// With a certificate, every time.
    Full,
    /// By the ticket of an earlier connection, if there is one (RFC 8446, 2.2).
    Resumed,
}

/// TLS configuration of one end.
#[derive(Clone)]
pub enum TlsConfig {
    Client(Arc<ClientConfig>),
    Server(Arc<ServerConfig>),
}

impl TlsConfig {
    /// A client that keeps at most this many tickets.
    pub fn client(handshake: Handshake, tickets: usize) -> Result<TlsConfig, Fault> {
        TlsConfig::client_that_trusts(CERTIFICATE, handshake, tickets)
    }

    fn client_that_trusts(
        certificate: &'static [u8],
        handshake: Handshake,
        tickets: usize,
    ) -> Result<TlsConfig, Fault> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(certificate)).map_err(|e| cannot("trust", &e))?;
        let config = ClientConfig::builder_with_provider(provider().into());
        let config = config.with_protocol_versions(&[&TLS13]).map_err(|e| cannot("have", &e))?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.resumption = match handshake {
            Handshake::Full => Resumption::disabled(),
            Handshake::Resumed => Resumption::store(Arc::new(Tickets::at_most(tickets))),
        };
        Ok(TlsConfig::Client(config.into()))
    }

    /// A server. Its threads must share it, so that a ticket from one is valid at the others.
    pub fn server(handshake: Handshake) -> Result<TlsConfig, Fault> {
        let config = ServerConfig::builder_with_provider(provider().into());
        let config = config.with_protocol_versions(&[&TLS13]).map_err(|e| cannot("have", &e))?;
        let (chain, key) = (vec![CERTIFICATE.into()], PrivatePkcs8KeyDer::from(KEY));
        let config = config.with_no_client_auth().with_single_cert(chain, key.into());
        let mut config = config.map_err(|e| cannot("show", &e))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        if handshake == Handshake::Resumed {
            config.ticketer = rustls_graviola::Ticketer::new().map_err(|e| cannot("issue", &e))?;
            // Each resumption uses up one ticket and obtains the next.
            config.send_tls13_tickets = 1;
        }
        Ok(TlsConfig::Server(config.into()))
    }

    /// Starts a session.
    pub fn begin(&self) -> io::Result<Connection> {
        let begun = match self {
            TlsConfig::Client(config) => {
                let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
                ClientConnection::new(config.clone(), name).map(Connection::Client)
            }
            TlsConfig::Server(config) => {
                ServerConnection::new(config.clone()).map(Connection::Server)
            }
        };
        begun.map_err(failure)
    }
}

/// Wraps a TLS failure in an I/O error.
pub fn failure(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// True if a TLS failure caused the error, rather than a system call.
pub fn is_failure(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// Subject of the certificate. No such name can be registered (RFC 6761).
const NAME: &str = "bytepath.invalid";

/// A self-signed certificate, ECDSA over P-256, and its key. Made up, the same in every copy of
/// bytepath, and public: they protect nothing; only their cost matters. Made by openssl-ca(1)
/// `-selfsign -startdate 19700101000000Z -enddate 99991231235959Z`, so that the clock of a host
/// does not matter.
const CERTIFICATE: &[u8] = include_bytes!("handshake/certificate.der");
const KEY: &[u8] = include_bytes!("handshake/key.der");

/// Parameters that both ends offer: one of each kind, so that there is nothing to negotiate.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![suites::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![&kx::X25519],
        ..rustls_graviola::default_provider()
    }
}

fn cannot(what: &str, error: &dyn std::error::Error) -> Fault {
    Fault::failed(format!("cannot {what} what TLS 1.3 takes: {error}"))
        .remedy("report this as a bug")
}

/// Tickets of the only server, newest last. The store of rustls would keep only eight.
#[derive(Debug)]
struct Tickets {
    most: usize,
    kept: Mutex<Vec<Tls13ClientSessionValue>>,
}

impl Tickets {
    fn at_most(most: usize) -> Tickets {
        Tickets { most, kept: Mutex::new(Vec::with_capacity(most)) }
    }
}

impl ClientSessionStore for Tickets {
    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < self.most {
            kept.push(ticket);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    // There is only one group.
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    // TLS 1.2 is not used.
    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{CertificateError, Error, HandshakeKind};

    /// Passes on what each end sends until neither has anything to send, or one has failed.
    fn exchange(ends: &mut [Connection; 2]) -> Result<(), Error> {
        let mut quiet = 0;
        for from in [0, 1].into_iter().cycle() {
            let mut sent = Vec::new();
            while ends[from].wants_write() {
                ends[from].write_tls(&mut sent).unwrap();
            }
            quiet = if sent.is_empty() { quiet + 1 } else { 0 };
            if quiet == 2 {
                break;
            }
            let mut came = &sent[..];
            while !came.is_empty() {
                ends[1 - from].read_tls(&mut came).unwrap();
                ends[1 - from].process_new_packets()?;
            }
        }
        Ok(())
    }

    fn kinds(client: &TlsConfig, server: &TlsConfig) -> [Option<HandshakeKind>; 2] {
        let mut ends = [client, server].map(|end| end.begin().unwrap());
        exchange(&mut ends).unwrap();
        assert!(ends.iter().all(|end| !end.is_handshaking()));
        ends.map(|end| end.handshake_kind())
    }

    #[test]
    fn a_ticket_is_used_once_and_brings_the_next() {
        let [full, resumed] = [HandshakeKind::Full, HandshakeKind::Resumed].map(|k| [Some(k); 2]);
        let server = TlsConfig::server(Handshake::Resumed).unwrap();
        let client = TlsConfig::client(Handshake::Resumed, 4).unwrap();
        assert_eq!(kinds(&client, &server), full);
        for _ in 0..3 {
            assert_eq!(kinds(&client, &server), resumed);
        }
        // Another server cannot decrypt the ticket.
        assert_eq!(kinds(&client, &TlsConfig::server(Handshake::Resumed).unwrap()), full);
        let of_full = [TlsConfig::client(Handshake::Full, 4), TlsConfig::server(Handshake::Full)];
        let [client, server] = of_full.map(Result::unwrap);
        for _ in 0..3 {
            assert_eq!(kinds(&client, &server), full);
        }
    }

    #[test]
    fn refuses_a_certificate_that_another_key_has_signed() {
        let mut other = CERTIFICATE.to_vec();
        let key = other.windows(5).position(|five| five == [0x03, 0x42, 0x00, 0x04, 0xc8]).unwrap();
        other[key + 5] ^= 1;
        let client = TlsConfig::client_that_trusts(other.leak(), Handshake::Full, 0).unwrap();
        let server = TlsConfig::server(Handshake::Full).unwrap();
        let mut ends = [client, server].map(|end| end.begin().unwrap());
        let refused = exchange(&mut ends).unwrap_err();
        assert!(matches!(refused, Error::InvalidCertificate(CertificateError::BadSignature)));
        // The server receives the alert.
        assert!(matches!(exchange(&mut ends).unwrap_err(), Error::AlertReceived(_)));
        assert!(is_failure(&failure(refused)));
        assert!(!is_failure(&io::ErrorKind::InvalidData.into()));
    }
}
