//! The cheapest clock to read twice around a system call: the time stamp counter if it is constant,
//! otherwise the monotonic clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Reads the clock, in ticks of [`tick_seconds`]. Takes about 10 ns with a time stamp counter, 25
/// to 50 ns without.
#[inline(always)]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if counts_ticks() {
        // SAFETY: RDTSC exists on every x86-64 processor and touches no memory.
        return unsafe { core::arch::x86_64::_rdtsc() };
    }
    monotonic()
}

/// Length of a tick in seconds. The first call measures it, which takes 20 ms;
/// call it once before anything is timed.
pub fn tick_seconds() -> f64 {
    static TICK: OnceLock<f64> = OnceLock::new();
    *TICK.get_or_init(|| if counts_ticks() { calibrate() } else { 1e-9 })
}

/// Whether the time stamp counter is used. The kernel shows whether it is reliable: only then does
/// it use it as its clock source (arch/x86/kernel/tsc.c).
#[inline(always)]
fn counts_ticks() -> bool {
    static COUNTS: OnceLock<bool> = OnceLock::new();
    *COUNTS.get_or_init(|| {
        let current = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let constant = flags.contains("constant_tsc") && flags.contains("nonstop_tsc");
        let name = std::fs::read_to_string(current).unwrap_or_default();
        // Paravirtual clocks are scaled from a constant TSC.
        cfg!(target_arch = "x86_64") && constant && matches!(name.trim(), "tsc" | "kvm-clock")
    })
}

/// CLOCK_MONOTONIC in nanoseconds; reading takes about 25 to 50 ns.
pub fn monotonic() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CLOCK_REALTIME in nanoseconds since the Unix epoch; 0 if it is set to before that.
pub fn realtime() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// CPU time of the calling thread so far in nanoseconds, by the scheduler's clock, including the
/// time since its last tick (clock_gettime(2)).
pub fn thread() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Measures ticks against the monotonic clock for 20 ms: an error below 10 ppm.
fn calibrate() -> f64 {
    let (t0, c0) = (Instant::now(), now());
    while t0.elapsed() < Duration::from_millis(20) {
        std::hint::spin_loop();
    }
    let (elapsed, c1) = (t0.elapsed(), now());
    elapsed.as_secs_f64() / (c1 - c0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_as_long_as_they_say() {
        let tick = tick_seconds();
        let (t0, c0) = (Instant::now(), now());
        while t0.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let (wall, counted) = (t0.elapsed().as_secs_f64(), (now() - c0) as f64 * tick);
        assert!((counted / wall - 1.0).abs() < 0.05, "{counted} s counted in {wall} s");
    }
}
