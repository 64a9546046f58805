//! A study that is killed.

use std::fs::read_to_string;
use std::process::Command;
use std::time::{Duration, Instant};

/// Starts a study and kills it in its first trial: once the folder of the study exists, the journal
/// has one more setting of this kind, and there was time to send.
pub fn killed(study: &str, setting: &str, program: &str, arguments: &[&str]) {
    let mut child = Command::new(program).args(arguments).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(240);
    let mut wait_for = |what: &dyn Fn() -> bool| {
        while !what() {
            assert!(Instant::now() < deadline, "no {setting} in the journal");
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let set = || {
        let journal = read_to_string("/var/lib/bytepath/journal").unwrap_or_default();
        journal.matches(setting).count()
    };
    wait_for(&|| read_to_string(format!("{study}/experiment.toml")).is_ok());
    let before = set();
    wait_for(&|| set() > before);
    std::thread::sleep(Duration::from_secs(3));
    child.kill().unwrap();
    println!("{}", child.wait().unwrap());
}
