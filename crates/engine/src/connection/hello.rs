//! The first bytes of a flow: the token's digits and the flow's index.

use bytepath_record::Fault;
use bytepath_record::wire::Token;
use bytepath_sys::tcp;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How long the peer may take to connect and to send its token.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Additional time for each flow.
const EACH: Duration = Duration::from_millis(1);

/// Returns the bytes to send.
pub fn of(token: &Token, index: u32) -> Vec<u8> {
    let mut bytes = token.0.clone().into_bytes();
    bytes.extend(index.to_le_bytes());
    bytes
}

/// Returns the flow's index, or `None` if the token is wrong.
pub fn read(shown: &[u8], token: &Token) -> Option<u32> {
    let index = shown.strip_prefix(token.0.as_bytes())?;
    Some(u32::from_le_bytes(index.try_into().ok()?))
}

/// Waits until a socket has something to read. Errors after the deadline.
pub fn wait(socket: BorrowedFd, deadline: Instant) -> Result<(), Fault> {
    let left = deadline.saturating_duration_since(Instant::now());
    match tcp::wait_readable(socket, left) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Fault::peer_lost("the peer did not connect in time")),
        Err(e) => Err(Fault::system("cannot wait for the peer", &e)),
    }
}

/// Collects what `accept` returns until each flow has sent its hello. Connections without the index
/// of an outstanding flow are dropped.
pub fn accept_all<T>(
    flows: u32,
    mut accept: impl FnMut(Instant) -> Result<Option<(u32, T)>, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut taken: Vec<Option<T>> = (0..flows).map(|_| None).collect();
    let deadline = Instant::now() + TIMEOUT + EACH * flows;
    let mut missing = flows;
    while missing > 0 {
        if let Some((index, flow)) = accept(deadline)?
            && let Some(slot @ None) = taken.get_mut(index as usize)
        {
            *slot = Some(flow);
            missing -= 1;
        }
    }
    Ok(taken.into_iter().flatten().collect())
}
