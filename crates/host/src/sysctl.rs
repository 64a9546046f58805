//! Kernel parameters of the network namespace of an agent (sysctl(8),
//! Documentation/admin-guide/sysctl/net.rst). Nothing is restored: the namespace is removed, or
//! returned to its lender.

use bytepath_record::{Fault, SysctlName};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

/// Sets the parameters; those that are not per namespace are left alone.
pub fn set_sysctls(values: &[(SysctlName, String)]) -> Result<(), Fault> {
    values.iter().try_for_each(|(name, value)| {
        let file = Path::new("/proc/sys").join(name.path().collect::<PathBuf>());
        set(&file, value)
            .map_err(|e| Fault::system(format!("setting {name} in the testbed's namespace"), &e))
    })
}

/// Sets those parameters that are per namespace and that this process may set; returns those in
/// force.
pub fn try_sysctls(values: &[(SysctlName, String)]) -> Vec<SysctlName> {
    let holds = |(name, value): &&(SysctlName, String)| {
        let file = Path::new("/proc/sys").join(name.path().collect::<PathBuf>());
        set(&file, value).is_ok()
            && fs::read_to_string(&file).is_ok_and(|now| words(&now) == words(value))
    };
    values.iter().filter(holds).map(|(name, _)| name.clone()).collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn set(file: &Path, value: &str) -> io::Result<()> {
    // Visible in every namespace, but writable only in the initial one.
    let is_shown_alone =
        fs::metadata(file).is_ok_and(|shown| shown.permissions().mode() & 0o222 == 0);
    if is_shown_alone {
        return Ok(());
    }
    match fs::read_to_string(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(now) if words(&now) == words(value) => Ok(()),
        _ => fs::write(file, value),
    }
}

const PATH: &str = "/proc/sys/net/ipv4/tcp_wmem";

/// The initial value in this namespace.
static INITIAL: OnceLock<String> = OnceLock::new();

/// Limits the send buffers of TCP's autotuning; `None` restores the initial value of the namespace.
/// Existing sockets keep their limits.
pub(crate) fn limit(most: Option<u32>) -> Result<(), Fault> {
    let fault = |e: std::io::Error| {
        Fault::system(format!("limiting send buffers ({PATH})"), &e)
            .remedy("add wmem=auto to the link, which keeps the kernel's limit")
    };
    let before = fs::read_to_string(PATH).map_err(fault)?;
    let initial = INITIAL.get_or_init(|| before.clone());
    let target = match most {
        Some(most) => with_most(initial, most)?,
        None => values(initial)?,
    };
    if values(&before)? == target {
        return Ok(());
    }
    fs::write(PATH, target.map(|value| value.to_string()).join(" ")).map_err(fault)?;
    let now = fs::read_to_string(PATH).map_err(fault)?;
    if values(&now)? == target {
        return Ok(());
    }
    Err(Fault::unsupported(format!("{PATH} reads '{}' after '{target:?}' was written", now.trim())))
}

/// Parses the minimum, initial and maximum bytes of a send buffer.
fn values(text: &str) -> Result<[u64; 3], Fault> {
    let all: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    all.try_into().map_err(|_| {
        Fault::unsupported(format!("{PATH} contains '{}', not three numbers", text.trim()))
    })
}

/// Lowers the first two values to the third if necessary.
fn with_most(text: &str, most: u32) -> Result<[u64; 3], Fault> {
    let most = u64::from(most);
    let [least, first, _] = values(text)?;
    Ok([least.min(most), first.min(most), most])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_missing_and_already_set_sysctls() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tcp_rmem");
        set(&file, "1 2 3").unwrap();
        assert!(!file.exists());
        fs::write(&file, "4096\t131072\t6291456\n").unwrap();
        set(&file, "4096 131072 6291456").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "4096\t131072\t6291456\n");
        set(&file, "4096 87380 536870912").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "4096 87380 536870912");
        // Like net.core.rmem_max in a namespace other than the initial one.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        set(&file, "1 2 3").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "4096 87380 536870912");
    }

    #[test]
    fn the_limit_replaces_the_third_value() {
        assert_eq!(with_most("4096\t16384\t4194304\n", 1 << 20), Ok([4096, 16384, 1 << 20]));
        assert_eq!(with_most("4096 16384 4194304", 8192), Ok([4096, 8192, 8192]));
    }

    #[test]
    fn anything_else_is_named() {
        for text in ["", "4096 16384", "a b c", "1 2 3 4"] {
            assert!(values(text).unwrap_err().message.contains("tcp_wmem"), "{text}");
        }
    }
}
