//! Ctrl-C and similar signals: the first asks a study to end in order, the second ends it at once.

use super::settings::report_what_stays;
use crate::record::Fault;
use crate::sys::process::ignores;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A flag that the first signal sets. The second reports which settings of this host stay, and
/// ends the process. What was ignored when the process started, for example by nohup(1), stays ignored.
pub(super) fn catch_signals() -> Result<Arc<AtomicBool>, Fault> {
    let stop = Arc::new(AtomicBool::new(false));
    catch(&stop).map_err(|e| Fault::system("cannot catch signals", &e))?;
    Ok(stop)
}

fn catch(stop: &Arc<AtomicBool>) -> io::Result<()> {
    let (mut caught, wake) = UnixStream::pair()?;
    let (last, speaking) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignores(*signal)) {
        // A third ends a process that cannot say its last words.
        flag::register_conditional_default(signal, speaking.clone())?;
        flag::register(signal, stop.clone())?;
        flag::register_usize(signal, last.clone(), signal.unsigned_abs() as usize)?;
        low_level::pipe::register(signal, wake.try_clone()?)?;
    }
    let wait = move || {
        // A byte for each signal. If all are ignored, the pipe is at its end.
        if caught.read_exact(&mut [0; 2]).is_ok() {
            speaking.store(true, Ordering::SeqCst);
            report_what_stays();
            let _ = low_level::emulate_default_handler(last.load(Ordering::SeqCst) as i32);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}
