//! The journal of settings, and settings as people type them. A journal of any bytes is read
//! without a panic; what it contains is safe to act on: every setting in it can be printed, and
//! parses to the same again.

use bytepath::record::Setting;
use bytepath::settings::journal::{read, seal};

pub fn check(data: &[u8]) {
    let _ = read(data);
    // With a valid checksum on every line, so that what follows is reached.
    let sealed: Vec<u8> = data.split(|byte| *byte == b'\n').flat_map(seal).collect();
    if let Ok(chronicle) = read(&sealed) {
        for change in &chronicle.changes {
            let _ = (change.before.to_string(), change.set.to_string(), change.setting.command());
            // A testbed's own settings are never typed.
            if !change.setting.is_of_testbed() {
                typed_again(&change.setting);
            }
        }
    }
    for line in String::from_utf8_lossy(data).lines() {
        if let Ok(setting) = line.parse::<Setting>() {
            typed_again(&setting);
        }
    }
}

fn typed_again(setting: &Setting) {
    let text = setting.to_string();
    assert_eq!(text.parse::<Setting>().as_ref(), Ok(setting), "{text}");
}
