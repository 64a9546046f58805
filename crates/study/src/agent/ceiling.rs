//! The copy ceiling: how fast one core copies memory, as the yardstick that
//! every path with a copy is measured against.

use bytepath_host::spawn_scoped;
use bytepath_record::{CopyCeiling, Fault};
use bytepath_sys::memory::Region;
use bytepath_sys::{Roots, allowance, thread};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Size of the buffers, bytes, larger than any cache of one core, and the divisor for the share of
/// the available memory that each of the two may take. Mapping them takes longer than copying, and
/// each study waits for it.
const MEMORY_SIZE: u64 = 64 << 20;
const MEMORY_SHARE: u64 = 8;

/// How long each of the two sizes is copied. The best of [`ROUNDS`] such
/// rounds counts: a ceiling is what can be reached, and what disturbs it on a
/// shared machine only ever makes it lower.
const ROUND: Duration = Duration::from_millis(10);
const ROUNDS: u32 = 3;

/// Measures on the given CPU, with buffers of `size` bytes and with buffers far larger than the
/// cache. Errors between steps once `unwanted` is set.
pub fn measure(cpu: Option<u32>, size: u64, unwanted: &AtomicBool) -> Result<CopyCeiling, Fault> {
    let work = || -> Result<CopyCeiling, Fault> {
        if let Some(cpu) = cpu {
            thread::pin(cpu).map_err(|e| Fault::system(format!("cannot pin to CPU {cpu}"), &e))?;
        }
        let available = allowance::available(&Roots::real());
        let memory_size =
            available.map_or(MEMORY_SIZE, |bytes| MEMORY_SIZE.min(bytes / MEMORY_SHARE));
        let workload_size = size.min(memory_size).max(64);
        // Memory first: the CPU has left its idle frequencies by the time it is done.
        let memory = bandwidth(memory_size.max(64) as usize, unwanted)?;
        let workload = bandwidth(workload_size as usize, unwanted)?;
        Ok(CopyCeiling { workload, workload_size, memory, memory_size })
    };
    // In a separate thread, so that the pinning does not outlive it.
    std::thread::scope(|scope| {
        let done = spawn_scoped(scope, "ceiling", work)?.join();
        done.unwrap_or_else(|_| Err(Fault::failed("the copy measurement panicked")))
    })
}

/// Bytes copied per second between two buffers of this size.
fn bandwidth(size: usize, unwanted: &AtomicBool) -> Result<f64, Fault> {
    let check = || match unwanted.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(Fault::peer_lost("the controller has gone away")),
    };
    let region = || {
        check()?;
        Region::new(size, true).map_err(|e| Fault::system("cannot map memory to copy", &e))
    };
    let (source, mut target) = (region()?, region()?);
    target.copy_from_slice(&source);
    let mut best = 0.0f64;
    for _ in 0..ROUNDS {
        let (begin, mut bytes) = (Instant::now(), 0u64);
        while begin.elapsed() < ROUND {
            check()?;
            target.copy_from_slice(black_box(&source));
            black_box(&target);
            bytes += size as u64;
        }
        best = best.max(bytes as f64 / begin.elapsed().as_secs_f64());
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::FaultKind;

    #[test]
    fn stops_measuring_when_the_controller_is_gone() {
        let fault = measure(None, 4096, &AtomicBool::new(true)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::PeerLost);
    }
}
