//! The file of a program, which anyone may have written: its functions have names or addresses, and
//! there is no panic.

use bytepath::profile::symbols::{Mapping, Processes, UserSymbols};
use std::path::Path;

pub fn check(data: &[u8]) {
    let (path, proc) = ("/program", Path::new("/nonexistent"));
    let mut processes = Processes::default();
    let end = data.len() as u64 + 1;
    processes.map(1, Mapping { start: 0, end, offset: 0, path: path.to_owned() });
    let mut symbols = UserSymbols::default();
    symbols.read(path, data.to_vec());
    for address in (0..end).step_by(data.len() / 16 + 1) {
        let frames = symbols.frames(&processes, proc, 1, address).expect("it is mapped");
        let [frame] = &frames[..] else { panic!("more than symbols: {frames:?}") };
        assert!(frame.module == path && frame.build_id.len() <= 2 * data.len());
    }
}
