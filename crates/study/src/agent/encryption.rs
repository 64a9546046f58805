//! Proves that the kernel's TLS carried the bytes of a session, and who encrypted: by the counters
//! of the network namespace (`/proc/net/tls_stat`) before there are connections, after, and at the
//! end. A socket that the kernel decrypts for delivers nothing that was not encrypted with the
//! trial's secret. So if as many sockets decrypted as there are flows, the bytes arrived as TLS
//! records.

use bytepath_record::{Evidence, Fault, Ledger, Manner, Reading, Role, Scope, Unit};
use bytepath_sys::ktls;
use std::collections::BTreeMap;
use std::path::Path;

/// The counters of a session whose connections the kernel encrypts.
pub(super) struct Encryption {
    before: Counts,
    /// Read once there are connections.
    begun: Counts,
}

type Counts = BTreeMap<String, u64>;

impl Encryption {
    /// Reads the counters before there are connections.
    pub(crate) fn before() -> Result<Encryption, Fault> {
        Ok(Encryption { before: read()?, begun: Counts::new() })
    }

    /// Reads the counters again, once all connections exist.
    pub(crate) fn begun(&mut self) -> Result<(), Fault> {
        self.begun = read()?;
        Ok(())
    }

    /// Corrects the ledger of a role whose session has ended, and returns the counts. `sends` is
    /// true if the entries that did not come in were sent.
    pub(crate) fn ended(
        &self,
        role: Role,
        sends: bool,
        flows: usize,
        ledger: &mut Ledger,
    ) -> Result<Vec<Reading>, Fault> {
        let ended = read()?;
        let (begun, all) = (gained(&self.before, &self.begun), gained(&self.before, &ended));
        let by = |direction| By::of(&begun, direction, flows as u64);
        let [tx, rx] = ["Tx", "Rx"].map(by);
        *ledger = ledger.reclassify(|entry| match sends && !entry.came_in {
            true => tx.passed(entry, "encrypted", "TlsTx"),
            false => rx.passed(entry, "decrypted", "TlsRx"),
        });
        if role == Role::Sender {
            ledger.mode = tx.mode().into();
        }
        let counted = all.iter().filter(|(name, _)| !name.starts_with("TlsCurr"));
        let reading = |(name, count): (&String, &u64)| {
            let scope = Scope::Role(role);
            Reading::sum(format!("tls.{name}"), Unit::Count, *count as f64, scope)
        };
        Ok(counted.map(reading).collect())
    }
}

/// Who encrypts or decrypts for all connections of a session, if that is proven.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Kernel,
    Card,
    Unknown,
}

impl By {
    fn of(begun: &Counts, direction: &str, flows: u64) -> By {
        let count = |by| begun.get(&format!("Tls{direction}{by}")).copied().unwrap_or(0);
        match (count("Sw"), count("Device")) {
            (sw, 0) if sw >= flows => By::Kernel,
            (0, device) if device >= flows => By::Card,
            _ => By::Unknown,
        }
    }

    /// Bytes that software encrypted are in other memory than before, whichever path they took: the
    /// CPU read and wrote every byte. What a NIC does has not been observed yet.
    fn passed(self, entry: &Evidence, done: &str, counter: &str) -> Option<(Manner, String)> {
        let manner = match self {
            By::Kernel => Manner::Copied,
            By::Card if entry.manner != Manner::NotCopied => entry.manner,
            By::Card | By::Unknown => Manner::Unknown,
        };
        let source = match self {
            By::Kernel => format!("{done} by the kernel into other memory ({counter}Sw)"),
            By::Card => format!("{done} by the card ({counter}Device)"),
            By::Unknown => format!("and tls_stat does not say that it was {done}"),
        };
        Some((manner, source))
    }

    fn mode(self) -> &'static str {
        match self {
            By::Kernel => "TLS by the kernel",
            By::Card => "TLS by the card",
            By::Unknown => "TLS unproven",
        }
    }
}

fn read() -> Result<Counts, Fault> {
    let counts = ktls::counts(Path::new("/proc/self/net"));
    Ok(counts.map_err(|e| Fault::system("/proc/self/net/tls_stat", &e))?.into_iter().collect())
}

fn gained(before: &Counts, after: &Counts) -> Counts {
    let since = |name: &String| before.get(name).copied().unwrap_or(0);
    after.iter().map(|(name, n)| (name.clone(), n.saturating_sub(since(name)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: &[(&str, u64)]) -> Counts {
        all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }

    #[test]
    fn it_takes_a_counted_socket_for_each_flow() {
        let before = counts(&[("TlsTxSw", 3)]);
        let after = counts(&[("TlsTxSw", 5), ("TlsRxDevice", 2)]);
        let begun = gained(&before, &after);
        assert_eq!((By::of(&begun, "Tx", 2), By::of(&begun, "Rx", 2)), (By::Kernel, By::Card));
        assert_eq!((By::of(&begun, "Tx", 3), By::of(&begun, "Rx", 3)), (By::Unknown, By::Unknown));
        assert_eq!(By::of(&Counts::new(), "Tx", 1), By::Unknown);
    }

    #[test]
    fn pages_that_the_kernel_encrypts_are_not_passed_without_a_copy() {
        let mut ledger = Ledger::default();
        ledger.enter(Manner::NotCopied, 90, 1, "sendfile(2): references");
        ledger.enter(Manner::Copied, 10, 1, "send(2)");
        let of = |by: By| ledger.reclassify(|entry| by.passed(entry, "encrypted", "TlsTx"));
        let kernel = of(By::Kernel);
        assert_eq!((kernel.copied, kernel.not_copied, kernel.delivered), (100, 0, 100));
        let first = &kernel.evidence[0].source;
        let said = "sendfile(2): references, encrypted by the kernel into other memory (TlsTxSw)";
        assert_eq!(first, said);
        let card = of(By::Card);
        assert_eq!((card.copied, card.not_copied, card.unknown), (10, 0, 90));
        assert_eq!(of(By::Unknown).unknown, 100);
    }
}
