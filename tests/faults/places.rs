//! Something other than a file where a file should be: links, FIFOs, folders, devices, sockets.

use crate::damage::{any_file, copy_of_good, look_at_study};
use crate::lab::Lab;
use anyhow::{Result, ensure};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

const PRECIOUS: &str = "what root must not lose\n";

/// Puts such a thing in the place of a file of a study, of the journal or of the lock.
pub fn place(lab: &mut Lab) -> Result<()> {
    let precious = lab.folder.join("precious");
    fs::write(&precious, PRECIOUS)?;
    let study = copy_of_good(lab)?;
    if lab.one_in(2) {
        chown(&study, Some(1), Some(1))?;
    }
    let state = lab.host.dir.path().join("state");
    let study_is_meant = !lab.one_in(4);
    let file = match study_is_meant {
        true => any_file(lab, &study)?,
        false => state.join(lab.pick(&["journal", "lock"])),
    };
    let _ = fs::remove_file(&file);
    put(lab, &precious, &file)?;
    match study_is_meant {
        true => look_at_study(lab, !file.ends_with("experiment.toml"))?,
        false => {
            lab.ask_bounded(&["restore", "--show"])?.with_code(&[0, 6])?;
            lab.ask_bounded(&["restore"])?.with_code(&[0, 6])?;
            let set = ["run", "--path", "socket", "--blocks", "1", "--window", "100ms", "--set"];
            let rest = ["mtu set0 4000", "--warm-up", "0", "--profile", "none", "--study", "new"];
            lab.ask(&[&set[..], &rest].concat())?.with_code(&[0, 6])?;
            if file.is_dir() {
                fs::remove_dir(&file)?
            } else {
                let _ = fs::remove_file(&file);
            }
        }
    }
    ensure!(fs::read_to_string(&precious)? == PRECIOUS, "a file elsewhere was written to");
    Ok(())
}

fn put(lab: &mut Lab, precious: &Path, file: &Path) -> Result<()> {
    match lab.below(8) {
        0 => symlink(precious, file)?,
        1 => symlink("/dev/zero", file)?,
        2 => symlink(file, file)?,
        3 => symlink("nothing", file)?,
        4 => mknodat(CWD, file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?,
        5 => fs::create_dir(file)?,
        6 => drop(UnixListener::bind(file)?),
        // /dev/zero itself, under a name that is not a link.
        _ => {
            let zero = rustix::fs::makedev(1, 5);
            mknodat(CWD, file, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, zero)?;
        }
    }
    Ok(())
}
