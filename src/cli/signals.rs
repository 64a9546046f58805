//! Ctrl-C and similar signals: the first one stops a study cleanly, the second one ends it at once.

use super::output::give_up_after;
use super::settings::report_unrestored;
use bytepath_record::Fault;
use bytepath_sys::process::ignores;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A repeated signal within this time counts as the same: timeout(1) sends it to the process and
/// then to its group.
const TWICE: Duration = Duration::from_millis(200);

/// Returns a flag that the first signal sets. The second signal reports which settings of this host
/// stay changed, and ends the process. Signals that were ignored when the process started, for
/// example by nohup(1), stay ignored.
pub(super) fn catch_signals() -> Result<Arc<AtomicBool>, Fault> {
    let stop = Arc::new(AtomicBool::new(false));
    catch(&stop).map_err(|e| Fault::not_started("a thread that waits for signals", &e))?;
    give_up_after(&stop);
    Ok(stop)
}

fn catch(stop: &Arc<AtomicBool>) -> io::Result<()> {
    let reporting = Arc::new(AtomicBool::new(false));
    let all = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let handled: Vec<i32> = all.filter(|signal| !ignores(*signal)).collect();
    for signal in &handled {
        // A third signal ends a process that cannot report.
        flag::register_conditional_default(*signal, reporting.clone())?;
        flag::register(*signal, stop.clone())?;
    }
    // Signals are counted in memory, of which a child has a copy. A pipe with a byte per signal
    // would be shared with it until execve(2), so that Ctrl-C, which goes to the whole group, would
    // count twice.
    let mut caught = Signals::new(handled)?;
    let wait = move || {
        if let Some(signal) = await_second(caught.forever()) {
            reporting.store(true, Ordering::SeqCst);
            report_unrestored();
            let _ = low_level::emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}

/// Waits for a signal other than the first, or for the first one again after a while.
fn await_second(mut signals: impl Iterator<Item = i32>) -> Option<i32> {
    let first = signals.next()?;
    let at = Instant::now();
    signals.find(|signal| *signal != first || at.elapsed() >= TWICE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_sys::launch::{self, How, PausedProgram};
    use signal_hook::consts::SIGUSR1;

    #[test]
    fn a_signal_that_comes_twice_at_once_is_one() {
        assert_eq!(await_second([SIGINT, SIGINT, SIGINT].into_iter()), None);
        assert_eq!(await_second([SIGINT, SIGINT, SIGTERM].into_iter()), Some(SIGTERM));
        let later = || {
            std::thread::sleep(TWICE);
            SIGINT
        };
        assert_eq!(
            await_second([|| SIGINT, later].into_iter().map(|signal| signal())),
            Some(SIGINT)
        );
    }

    #[test]
    fn a_signal_that_meets_a_child_before_its_program_is_not_counted_here() {
        let mut caught = Signals::new([SIGUSR1]).unwrap();
        let file = launch::find("true".as_ref(), std::env::var_os("PATH")).unwrap();
        let held = PausedProgram::new(&file, &["true".into()]).unwrap();
        launch::signal(held.pid, SIGUSR1).unwrap();
        assert_eq!(held.release().unwrap().wait().unwrap().how, How::Code(0), "it was caught");
        assert_eq!(caught.pending().collect::<Vec<_>>(), [0; 0]);
        launch::signal(std::process::id(), SIGUSR1).unwrap();
        assert_eq!(caught.wait().collect::<Vec<_>>(), [SIGUSR1]);
    }
}
