//! Kernel parameters of the network namespace that an agent is in (sysctl(8),
//! Documentation/admin-guide/sysctl/net.rst). Nothing is restored: the namespace goes, or
//! goes back to its lender.

use bytepath_record::{Fault, SysctlName};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Sets them; one that this namespace has not of its own is left alone.
pub fn set_sysctls(values: &[(SysctlName, String)]) -> Result<(), Fault> {
    values.iter().try_for_each(|(name, value)| {
        let file = Path::new("/proc/sys").join(name.path().collect::<PathBuf>());
        set(&file, value)
            .map_err(|e| Fault::system(format!("setting {name} in the testbed's namespace"), &e))
    })
}

fn set(file: &Path, value: &str) -> io::Result<()> {
    // Shown in every namespace, and the first one's alone to change.
    let is_shown_alone =
        fs::metadata(file).is_ok_and(|shown| shown.permissions().mode() & 0o222 == 0);
    if is_shown_alone {
        return Ok(());
    }
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    match fs::read_to_string(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(now) if words(&now) == words(value) => Ok(()),
        _ => fs::write(file, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_left_alone_and_what_is_said_already_too() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tcp_rmem");
        set(&file, "1 2 3").unwrap();
        assert!(!file.exists());
        fs::write(&file, "4096\t131072\t6291456\n").unwrap();
        set(&file, "4096 131072 6291456").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "4096\t131072\t6291456\n");
        set(&file, "4096 87380 536870912").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "4096 87380 536870912");
        // As net.core.rmem_max is in a namespace that is not the first.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        set(&file, "1 2 3").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "4096 87380 536870912");
    }
}
