//! The witness page: a test, on the real connection before each stream, of whether the sender's
//! path really passes memory by reference.

use super::Connection;
use bytepath_record::{Fault, FaultKind, ProvenWitness};
use std::time::Duration;

/// Length of the witness page in bytes.
pub const WITNESS_LEN: usize = 4096;

/// Contents of the page while it is sent, and afterwards.
const BEFORE: u8 = 0xb5;
const AFTER: u8 = 0x4a;

/// How long the peer's kernel may take to acknowledge the page.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The two contents of the page. A path fills the memory it will send from with
/// [`WitnessPage::before`], sends it by its own mechanism, and calls [`WitnessPage::settle`], which
/// overwrites the memory once the peer's kernel has acknowledged the page. The receiver has not
/// read it by then: it starts to read only when the controller reports that the sender is done.
#[derive(Debug)]
pub struct WitnessPage;

impl WitnessPage {
    /// Fills the page with the contents to send.
    pub fn before(page: &mut [u8]) {
        page.fill(BEFORE);
    }

    /// Waits for the acknowledgement, then calls `overwrite` with the contents that the page must
    /// have afterwards.
    pub fn settle(
        connection: &dyn Connection,
        overwrite: impl FnOnce(&[u8; WITNESS_LEN]),
    ) -> Result<(), Fault> {
        connection
            .wait_acknowledged(TIMEOUT)
            .map_err(|fault| fault.context("the witness page was not acknowledged"))?;
        overwrite(&[AFTER; WITNESS_LEN]);
        Ok(())
    }
}

/// Called by the receiver: reads the page by plain reads and decides whether memory was shared.
pub fn read_witness(connection: &dyn Connection) -> Result<ProvenWitness, Fault> {
    let mut page = [0u8; WITNESS_LEN];
    connection.read_exact(&mut page).map_err(|fault| fault.context("reading the witness page"))?;
    judge(&page)
}

fn judge(page: &[u8; WITNESS_LEN]) -> Result<ProvenWitness, Fault> {
    if page.iter().all(|b| *b == BEFORE) {
        Ok(ProvenWitness::Copied)
    } else if page.iter().all(|b| *b == AFTER) {
        Ok(ProvenWitness::Shared)
    } else {
        Err(Fault::new(FaultKind::Corrupt, "the witness page has neither of its two contents"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_the_two_page_contents() {
        assert_eq!(judge(&[BEFORE; WITNESS_LEN]).unwrap(), ProvenWitness::Copied);
        assert_eq!(judge(&[AFTER; WITNESS_LEN]).unwrap(), ProvenWitness::Shared);
        let mut torn = [BEFORE; WITNESS_LEN];
        torn[17] = AFTER;
        assert_eq!(judge(&torn).unwrap_err().kind, FaultKind::Corrupt);
    }
}
