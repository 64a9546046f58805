//! Files and messages that the vm testbed reads: programs, libraries and modules, the header of a
//! kernel's image, and a guest's messages on its port.

use bytepath::guest;

pub fn check(data: &[u8]) {
    if let Ok(needs) = guest::needs(data) {
        assert!(needs.libraries.len() <= data.len());
    }
    if let Ok(names) = guest::depends(data) {
        assert!(names.iter().all(|name| !name.is_empty() && !name.contains('-')));
    }
    // A file that is its own debug file has its symbols twice.
    if let Ok(named) = guest::with_symbols(data, data) {
        assert!(named.len() > data.len());
    }
    if let Ok(kernel) = guest::kernel_in(data) {
        assert!(kernel.starts_with(b"\x7fELF"));
    }
    if let Some(release) = guest::release_in(data) {
        assert!(!release.is_empty() && !release.contains('/'));
    }
    // Whatever is read is written as the same frame.
    let mut rest = data;
    while let Ok(frame) = guest::Frame::read(&mut rest) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes).expect("a frame that was read can be written");
        let again = guest::Frame::read(&mut bytes.as_slice()).expect("and read again");
        assert_eq!(format!("{frame:?}"), format!("{again:?}"));
    }
}
