//! Studies and experiments are programs: one that someone else may have written does nothing on
//! behalf of this user before it is trusted.

use crate::made_up;
use crate::shared::{bytepath, said};
use assert_cmd::Command;
use bytepath::record::{Power, PowerSource, SettingRecord, Study};
use bytepath::spec;
use bytepath::study::{OpenStudy, StudyWriter};
use bytepath_testing::skip;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const NOBODY: u32 = 65534;

/// A folder with a program that leaves a mark.
struct Place {
    folder: TempDir,
    program: PathBuf,
}

impl Place {
    /// `None` without root, which it takes to make files that belong to others.
    fn new() -> Option<Place> {
        if !rustix::process::geteuid().is_root() {
            skip!("only root has files of others");
            return None;
        }
        let folder = TempDir::new().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "#!/bin/sh\necho ran >\"$0.mark\"\n").unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        Some(Place { folder, program })
    }

    /// A testbed that runs the program.
    fn testbed(&self) -> String {
        format!("hosts:sender=exec:{}", self.program.display())
    }

    /// Whether the program ran since the last call.
    fn ran(&self) -> bool {
        fs::remove_file(self.program.with_extension("mark")).is_ok()
    }

    /// Writes an experiment file that belongs to the user nobody.
    fn experiment(&self, content: &str) -> String {
        let file = self.folder.path().join("file.toml");
        fs::write(&file, content).unwrap();
        chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
        file.to_str().unwrap().to_owned()
    }

    /// Writes a study that lacks trials, in a folder that belongs to the user nobody.
    fn study(&self, change: impl FnOnce(&mut Study)) -> PathBuf {
        let folder = self.folder.path().join("study");
        let _ = fs::remove_dir_all(&folder);
        let mut study = made_up::study();
        study.trials.truncate(3);
        change(&mut study);
        let mut writer = StudyWriter::create(&folder, &study.header).unwrap();
        writer.append(&study.trials).unwrap();
        drop(writer);
        give(&folder);
        folder
    }
}

/// Gives a folder and its files to the user nobody.
fn give(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        chown(entry.unwrap().path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
}

#[test]
fn a_study_of_others_is_resumed_only_if_it_is_trusted() {
    let Some(place) = Place::new() else { return };
    let testbed = place.testbed();
    let study = place.study(|study| study.header.testbed = testbed.clone());
    let study = study.to_str().unwrap();
    let (code, _, errors) = bytepath(&["resume", study]);
    assert_eq!(code, 4, "{errors}");
    let whose = format!("{study} belongs to user {NOBODY}, and would make you use the testbed");
    assert!(errors.contains(&whose) && errors.contains(&testbed), "{errors}");
    assert!(errors.contains("--trust"), "{errors}");
    assert!(!place.ran(), "{errors}");
    let (_, _, errors) = bytepath(&["resume", study, "--trust"]);
    assert!(place.ran(), "{errors}");
}

#[test]
fn a_study_says_what_it_would_do() {
    let Some(place) = Place::new() else { return };
    let why = |study: &Path| OpenStudy::open(study, false).map(drop).map_err(|f| f.to_string());
    let argv = vec!["p.sh".to_owned(), "now".to_owned()];
    let study = place.study(|study| {
        let receiver = Power { source: PowerSource::Command { argv }, ..Power::default() };
        study.header.power = Power { receiver: Some(Box::new(receiver)), ..Power::default() };
        let line = "sysctl net.core.rmem_max=1000000";
        let wanted = spec::wanted_settings(std::iter::empty(), std::iter::once(line)).unwrap();
        study.header.settings = wanted.iter().map(SettingRecord::from).collect();
    });
    let said = why(&study).unwrap_err();
    assert!(
        said.contains("would make you run p.sh now; set sysctl net.core.rmem_max=1000000"),
        "{said}"
    );
    // A folder in which another user may replace files, and a file that another user may change.
    chown(&study, Some(0), Some(0)).unwrap();
    assert!(why(&study).unwrap_err().contains(&format!("belongs to user {NOBODY}")));
    for file in ["experiment.toml", "hosts.json", "trials.jsonl"] {
        chown(study.join(file), Some(0), Some(0)).unwrap();
    }
    assert_eq!(why(&study), Ok(()));
    fs::set_permissions(&study, Permissions::from_mode(0o777)).unwrap();
    assert!(why(&study).unwrap_err().contains("may be written by every user"));
    fs::set_permissions(&study, Permissions::from_mode(0o770)).unwrap();
    assert_eq!(why(&study), Ok(()), "root's own group");
    chown(&study, None, Some(1)).unwrap();
    assert!(why(&study).unwrap_err().contains("may be written by group 1"));
    // A study that only moves bytes on its own link may be anyone's.
    assert_eq!(why(&place.study(|_| ())), Ok(()));
}

#[test]
fn an_experiment_of_others_queries_no_host() {
    let Some(place) = Place::new() else { return };
    let file = place.experiment(&format!(
        "testbed = '{}'\n[factors]\npath = ['socket', 'splice']\n",
        place.testbed()
    ));
    for arguments in
        [&["run", "--dry-run", &file][..], &["run", &file], &["doctor", "--experiment", &file]]
    {
        let (code, _, errors) = bytepath(arguments);
        assert_eq!(code, 4, "{arguments:?}: {errors}");
        assert!(errors.contains("would make you use the testbed hosts:"), "{errors}");
        assert!(!place.ran(), "{arguments:?}");
    }
    let (_, _, errors) = bytepath(&["run", "--dry-run", "--trust", &file]);
    assert!(place.ran(), "{errors}");
    // To root, the user of sudo(8) is trusted; to nobody else.
    let sudo = |user: u32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        said(command.args(["run", "--dry-run", &file]).env("SUDO_UID", user.to_string()))
    };
    assert_eq!((sudo(1).0, place.ran()), (4, false));
    let (_, _, errors) = sudo(NOBODY);
    assert!(place.ran(), "{errors}");
}

#[test]
fn a_fleet_takes_no_command_of_others() {
    let Some(place) = Place::new() else { return };
    let file = place
        .experiment("power = 'command=p.sh'\nblocks = 2\n[factors]\npath = ['socket', 'splice']\n");
    let out = place.folder.path().join("fleet");
    let out = out.to_str().unwrap();
    let (code, _, errors) = bytepath(&["fleet", "submit", &file, out, "--shards", "1"]);
    assert_eq!(code, 4, "{errors}");
    assert!(errors.contains("would make you run p.sh"), "{errors}");
    assert!(!Path::new(out).exists(), "nothing was written");
}

#[test]
fn an_inventory_of_others_reaches_no_host() {
    let Some(place) = Place::new() else { return };
    let file = place.experiment(&format!(
        "[hosts.a]\nat = 'exec:{}'\n[hosts.b]\nat = 'here'\n\
         [pairs.p]\nsender = 'a'\nreceiver = 'b'\n",
        place.program.display()
    ));
    let (code, _, errors) =
        bytepath(&["run", "--path", "socket", "--pairs", "p", "--inventory", &file]);
    assert_eq!(code, 4, "{errors}");
    assert!(!place.ran(), "{errors}");
}
