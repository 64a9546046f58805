//! How large TCP may make the send buffers of this network namespace: the
//! third value of `net.ipv4.tcp_wmem` (ip-sysctl), which every namespace has of
//! its own.

use bytepath_record::{Fault, FaultKind};
use std::fs;
use std::sync::OnceLock;

const PATH: &str = "/proc/sys/net/ipv4/tcp_wmem";

/// What this namespace came with.
static INITIAL: OnceLock<String> = OnceLock::new();

/// Bounds the send buffers that TCP tunes by itself; none goes back to what the
/// namespace came with. Sockets that exist keep what they have.
pub(crate) fn limit(most: Option<u32>) -> Result<(), Fault> {
    let fault = |e: std::io::Error| {
        Fault::system(format!("limiting send buffers ({PATH})"), &e)
            .remedy("add wmem=auto to the link, which keeps the kernel's limit")
    };
    let before = fs::read_to_string(PATH).map_err(fault)?;
    let initial = INITIAL.get_or_init(|| before.clone());
    let wanted = match most {
        Some(most) => with_most(initial, most)?,
        None => values(initial)?,
    };
    if values(&before)? == wanted {
        return Ok(());
    }
    fs::write(PATH, wanted.map(|value| value.to_string()).join(" ")).map_err(fault)?;
    let now = fs::read_to_string(PATH).map_err(fault)?;
    if values(&now)? == wanted {
        return Ok(());
    }
    let text = format!("{PATH} reads '{}' after '{wanted:?}' was written", now.trim());
    Err(Fault::new(FaultKind::Unsupported, text))
}

/// Least, first and most bytes of a send buffer.
fn values(text: &str) -> Result<[u64; 3], Fault> {
    let all: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    all.try_into().map_err(|_| {
        let text = format!("{PATH} contains '{}', not three numbers", text.trim());
        Fault::new(FaultKind::Unsupported, text)
    })
}

/// The first two values never go above the third.
fn with_most(text: &str, most: u32) -> Result<[u64; 3], Fault> {
    let most = u64::from(most);
    let [least, first, _] = values(text)?;
    Ok([least.min(most), first.min(most), most])
}

#[cfg(test)]
mod tests {
    use super::*;

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
