//! Random numbers that only the two ends of a connection know.

use bytepath_record::Fault;
use bytepath_record::wire::{Secret, Token};
use rand::TryRngCore;
use rand::rngs::OsRng;

/// 128 bits that no one else knows.
pub(super) fn new_token() -> Result<Token, Fault> {
    let bytes = random::<16>()?;
    Ok(Token(bytes.iter().map(|b| format!("{b:02x}")).collect()))
}

/// What the two ends of a trial encrypt with.
pub(super) fn new_secret() -> Result<Secret, Fault> {
    Ok(Secret([random()?, random()?]))
}

fn random<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    OsRng
        .unwrap_err()
        .try_fill_bytes(&mut bytes)
        .map_err(|e| Fault::failed(format!("no random numbers: {e}")))?;
    Ok(bytes)
}
