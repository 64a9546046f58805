//! Archives in the "new ASCII" format of cpio, which is what the kernel unpacks
//! as its first file system (Documentation/driver-api/early-userspace/buffer-format.rst).

/// An archive that grows entry by entry. Folders have to come before what is in
/// them, because the kernel makes none by itself.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    /// Inode numbers only have to differ: two entries with the same one and more
    /// than one link would be taken for hard links.
    inodes: u32,
}

/// Types of file in the mode of an entry, stat(2).
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// What the name of the last entry is.
const TRAILER: &str = "TRAILER!!!";

impl Archive {
    pub(super) fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER | 0o755, (0, 0), &[]);
    }

    /// A file. Its content has to be below 4 GiB, which is all that the format
    /// has digits for.
    pub(super) fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.entry(path, FILE | permissions, (0, 0), content);
    }

    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK | 0o777, (0, 0), target.as_bytes());
    }

    pub(super) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHARACTER_DEVICE | 0o600, (major, minor), &[]);
    }

    /// The whole archive, with its trailer.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, (0, 0), &[]);
        self.bytes
    }

    /// Magic and thirteen numbers of eight hexadecimal digits, the name with its
    /// NUL, the content; name and content are filled up to four bytes.
    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        let name = path.trim_start_matches('/');
        self.inodes += 1;
        let numbers = [
            self.inodes,
            mode,
            0,
            0,
            1,
            0,
            content.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes.extend_from_slice(format!("{number:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.fill();
        self.bytes.extend_from_slice(content);
        self.fill();
    }

    fn fill(&mut self) {
        let whole = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(whole, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    #[test]
    fn an_archive_is_byte_for_byte_what_the_format_says() {
        let mut archive = Archive::default();
        archive.folder("/dev");
        archive.device("/dev/console", 5, 1);
        archive.file("/init", 0o755, b"hello");
        archive.link("/lib", "usr/lib");
        let text = String::from_utf8(archive.finish()).unwrap().replace('\0', "~");
        let expected = [
            "07070100000001000041ED0000000000000000000000010000000000000000\
             000000000000000000000000000000000000000400000000dev~~~",
            "07070100000002000021800000000000000000000000010000000000000000\
             000000000000000000000005000000010000000C00000000dev/console~~~",
            "07070100000003000081ED0000000000000000000000010000000000000005\
             000000000000000000000000000000000000000500000000init~~hello~~~",
            "070701000000040000A1FF0000000000000000000000010000000000000007\
             000000000000000000000000000000000000000400000000lib~~~usr/lib~",
            "07070100000005000000000000000000000000000000010000000000000000\
             000000000000000000000000000000000000000B00000000TRAILER!!!~~~~",
        ];
        assert_eq!(text, expected.concat());
    }

    #[test]
    fn names_and_contents_are_filled_to_four_bytes() {
        for length in 0..9 {
            let mut archive = Archive::default();
            archive.file(&"n".repeat(length + 1), 0o644, &vec![1; length]);
            assert_eq!(archive.finish().len() % 4, 0, "{length}");
        }
    }

    /// Added next to the tool where there is one.
    #[test]
    fn cpio_itself_reads_it() {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let mut archive = Archive::default();
        archive.folder("etc");
        archive.file("etc/name", 0o644, b"bytepath\n");
        let busybox = Command::new("busybox").arg("cpio").arg("--help").output();
        if !busybox.is_ok_and(|o| o.status.success()) {
            skip!("no busybox: the archive is checked against the format's text alone");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("busybox");
        command.args(["cpio", "-i"]).current_dir(folder.path());
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        assert!(child.wait().unwrap().success());
        let name = std::fs::read_to_string(folder.path().join("etc/name")).unwrap();
        assert_eq!(name, "bytepath\n");
    }
}
