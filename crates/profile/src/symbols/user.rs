//! Names of addresses in programs, from the mappings of each process and the symbols of the files.

use super::binary::Binary;
use super::names::unnamed;
use crate::text::hexadecimal;
use crate::{Frame, FrameKind};
use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

/// A part of a process's memory that is mapped executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Path of the file, or a name like `[vdso]`; empty for anonymous memory.
    pub path: String,
}

/// Parses the executable lines of `/proc/PID/maps` (proc_pid_maps(5)), in its order, which is
/// ascending. Other lines are skipped.
pub fn parse_maps(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse_mapping).collect()
}

fn parse_mapping(line: &str) -> Option<Mapping> {
    // The path is the rest of the line, and may contain blanks.
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let (_device, _inode) = (fields.next()?, fields.next()?);
    let path = fields.next().unwrap_or_default().trim_start();
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let mapping = Mapping {
        start: hexadecimal(start)?,
        end: hexadecimal(end)?,
        offset: hexadecimal(offset)?,
        path: path.to_owned(),
    };
    (permissions.contains('x') && mapping.start < mapping.end).then_some(mapping)
}

/// The executable mappings of each sampled process.
#[derive(Clone, Debug, Default)]
pub struct Processes(HashMap<u32, Vec<Mapping>>);

impl Processes {
    /// Adds a mapping, which replaces any that it overlaps.
    pub fn map(&mut self, pid: u32, mapping: Mapping) {
        let all = self.0.entry(pid).or_default();
        all.retain(|known| known.end <= mapping.start || known.start >= mapping.end);
        let at = all.partition_point(|known| known.start < mapping.start);
        all.insert(at, mapping);
    }

    /// Gives a new process the mappings of its parent.
    pub fn fork(&mut self, pid: u32, parent: u32) {
        if let (false, Some(maps)) = (self.0.contains_key(&pid), self.0.get(&parent)) {
            let maps = maps.clone();
            self.0.insert(pid, maps);
        }
    }

    /// Returns whether the mappings of a process are known.
    pub fn knows(&self, pid: u32) -> bool {
        self.0.contains_key(&pid)
    }

    fn find(&self, pid: u32, address: u64) -> Option<&Mapping> {
        let all = self.0.get(&pid)?;
        let behind = all.partition_point(|mapping| mapping.start <= address);
        all.get(behind.checked_sub(1)?).filter(|mapping| address < mapping.end)
    }
}

/// Names addresses of programs. Each file is read once, and each of its addresses is named once.
/// From a file that others may have written, only the symbol tables are read.
pub struct UserSymbols {
    symbolizer: Symbolizer,
    files: HashMap<String, File>,
    named: HashMap<(String, u64), Vec<Frame>>,
    /// Bytes of untrusted files that may still be read.
    room: u64,
}

/// A file with code.
#[derive(Clone, Debug)]
struct File {
    /// `None` if it cannot be read.
    binary: Option<Rc<Binary>>,
    build_id: String,
}

/// Most bytes of untrusted files that are read altogether.
const MOST: u64 = 128 << 20;

impl Default for UserSymbols {
    fn default() -> Self {
        let symbolizer = Symbolizer::builder().enable_auto_reload(false).build();
        UserSymbols { symbolizer, files: HashMap::new(), named: HashMap::new(), room: MOST }
    }
}

impl UserSymbols {
    /// Reads an untrusted file from its bytes and uses it for everything mapped under this path.
    pub fn read(&mut self, path: &str, bytes: Vec<u8>) {
        let binary = Binary::other(bytes, &mut self.room);
        self.files.insert(path.to_owned(), File::of(binary));
    }

    /// Returns the frames of an address of a process, leaf first: several if the compiler has
    /// inlined functions there. `None` if nothing executable is mapped at the address, so it is not
    /// a true return address.
    ///
    /// `root` is the mount point of `/proc`: the file of a process in another mount namespace, or a
    /// deleted one, is reached through `PID/map_files` there.
    pub fn frames(
        &mut self,
        processes: &Processes,
        root: &Path,
        pid: u32,
        address: u64,
    ) -> Option<Vec<Frame>> {
        let mapping = processes.find(pid, address)?;
        if mapping.path.is_empty() {
            // Code generated at run time.
            return Some(vec![unnamed(address, "[anon]", FrameKind::User)]);
        }
        let offset = (address - mapping.start).checked_add(mapping.offset)?;
        if !mapping.path.starts_with('/') {
            // [vdso] and similar mappings have another address in each process, but the same
            // content.
            return Some(vec![unnamed(offset, &mapping.path, FrameKind::User)]);
        }
        let key = (mapping.path.clone(), offset);
        if let Some(frames) = self.named.get(&key) {
            return Some(frames.clone());
        }
        let file = self.file(mapping, root, pid);
        let named = file.binary.as_deref().and_then(|binary| self.look_up(binary, offset));
        let module = mapping.path.clone();
        let frames = match named {
            Some(functions) => {
                let frame = |(function, source, inlined)| Frame {
                    function,
                    module: module.clone(),
                    build_id: file.build_id.clone(),
                    file: source,
                    kind: FrameKind::User,
                    inlined,
                };
                functions.into_iter().map(frame).collect()
            }
            // An address is only valid in one run; the offset is valid in others too.
            None => vec![Frame {
                build_id: file.build_id.clone(),
                ..unnamed(offset, &module, FrameKind::User)
            }],
        };
        self.named.insert(key, frames.clone());
        Some(frames)
    }

    fn file(&mut self, mapping: &Mapping, root: &Path, pid: u32) -> File {
        if let Some(file) = self.files.get(&mapping.path) {
            return file.clone();
        }
        let exact = format!("{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
        let candidates = [&root.join(exact), Path::new(&mapping.path)];
        let binary = candidates.iter().find_map(|path| Binary::open(path, &mut self.room));
        let file = File::of(binary);
        self.files.insert(mapping.path.clone(), file.clone());
        file
    }

    /// Looks up the functions at an offset of a file, leaf first: name, source file, whether it was
    /// inlined into the next.
    fn look_up(&self, binary: &Binary, offset: u64) -> Option<Vec<(String, String, bool)>> {
        let path = match binary {
            Binary::Trusted(path) => path,
            Binary::Other(table) => return Some(vec![(table.find(offset)?, String::new(), false)]),
        };
        let source = Source::Elf(Elf::new(path));
        let answer = self.symbolizer.symbolize_single(&source, Input::FileOffset(offset)).ok()?;
        let Symbolized::Sym(symbol) = answer else { return None };
        let source = |info: Option<&CodeInfo>| {
            info.map(|info| info.to_path().display().to_string()).unwrap_or_default()
        };
        // Inlined functions are listed outermost first, each with the location of its call.
        let outer = (symbol.name.to_string(), source(symbol.code_info.as_deref()), false);
        let inner = symbol.inlined.iter();
        let inner = inner.map(|f| (f.name.to_string(), source(f.code_info.as_ref()), true));
        let mut functions: Vec<_> = std::iter::once(outer).chain(inner).collect();
        functions.reverse();
        Some(functions)
    }
}

impl File {
    fn of(binary: Option<Binary>) -> File {
        let build_id = match &binary {
            Some(Binary::Trusted(path)) => {
                let found = read_elf_build_id(path).ok().flatten();
                found.map(|bytes| hexadecimal(&bytes)).unwrap_or_default()
            }
            Some(Binary::Other(table)) => table.build_id.clone(),
            None => String::new(),
        };
        File { binary: binary.map(Rc::new), build_id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_and_kept_apart() {
        let text = "\
00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/with blank (deleted)
00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/x
7f0000000000-7f0000001000 r-xp 00000000 00:00 0
7ffd4a5e1000-7ffd4a5e3000 r-xp 00000000 00:00 0                          [vdso]
2000-1000 r-xp 0 0 0 /backwards
not a line
";
        let maps = parse_maps(text);
        let paths: Vec<&str> = maps.iter().map(|m| m.path.as_str()).collect();
        assert_eq!(paths, ["/usr/bin/with blank (deleted)", "", "[vdso]"]);
        assert_eq!((maps[0].start, maps[0].end, maps[0].offset), (0x40_0000, 0x45_2000, 0x1000));
        let mut processes = Processes::default();
        maps.into_iter().for_each(|mapping| processes.map(7, mapping));
        assert!(processes.find(7, 0x45_1fff).is_some() && processes.find(7, 0x45_2000).is_none());
        let over = Mapping { start: 0x45_0000, end: 0x46_0000, offset: 0, path: "/new".into() };
        processes.map(7, over);
        assert!(processes.find(7, 0x44_0000).is_none(), "what it overlaps is gone");
        processes.fork(8, 7);
        assert_eq!(processes.find(8, 0x45_0001).unwrap().path, "/new");
        processes.fork(8, 9);
        assert!(processes.knows(8) && !processes.knows(9));
    }

    /// A function of this program, by its address in this process.
    #[inline(never)]
    fn a_function_with_a_name() -> u64 {
        std::hint::black_box(a_function_with_a_name as *const () as u64)
    }

    #[test]
    fn own_addresses_have_names_and_build_ids() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let (pid, mut processes) = (std::process::id(), Processes::default());
        parse_maps(&maps).into_iter().for_each(|mapping| processes.map(pid, mapping));
        let mut symbols = UserSymbols::default();
        let mut frames = |address| symbols.frames(&processes, Path::new("/proc"), pid, address);
        let own = frames(a_function_with_a_name()).unwrap();
        let last = own.last().unwrap();
        assert!(last.function.contains("a_function_with_a_name"), "{own:?}");
        assert!(!last.build_id.is_empty(), "{last:?}");
        assert_eq!((last.kind, last.inlined), (FrameKind::User, false));
        assert_eq!(frames(0x10), None);
    }

    // A C program of two functions, `inner` within `outer`: gcc -O1 -g -nostdlib -static; then
    // objcopy with --strip-debug and --add-gnu-debuglink=plain; or --compress-debug-sections=zlib,
    // with the unpacked size of a section set to 2^62.
    const PROGRAM: &[u8] = include_bytes!("../../../../fuzz/seeds/symbols/with-debug-information");
    const LINKED: &[u8] = include_bytes!("../../../../fuzz/seeds/symbols/with-debug-link");
    const BOMB: &[u8] = include_bytes!("../../../../fuzz/seeds/symbols/unpacks-to-all");

    /// The functions at an offset within the programs' `outer`, and the source file of the first.
    fn of_outer(path: &Path) -> (Vec<String>, String) {
        let path = path.to_str().unwrap().to_owned();
        let mut processes = Processes::default();
        processes.map(1, Mapping { start: 0, end: 0x1000, offset: 0, path });
        let found = UserSymbols::default().frames(&processes, Path::new("/none"), 1, 0x10e);
        let frames = found.unwrap();
        let source = frames[0].file.clone();
        (frames.into_iter().map(|frame| frame.function).collect(), source)
    }

    #[test]
    fn foreign_files_give_symbols_only() {
        use std::fs::{Permissions, set_permissions, write};
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let (symbol, address) = (vec!["outer".to_owned()], vec!["0x10e".to_owned()]);
        write(&path, PROGRAM).unwrap();
        let (functions, source) = of_outer(&path);
        assert!(functions == ["inner", "outer"] && source.ends_with("p.c"), "{functions:?}");

        set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        assert_eq!(of_outer(&path), (symbol.clone(), String::new()));
        write(&path, BOMB).unwrap();
        assert_eq!(of_outer(&path).0, symbol);
        // The debug link refers to something that is never read to its end.
        let fifo = folder.path().join("plain");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let fifo_type = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, fifo_type, mode, 0).unwrap();
        write(&path, LINKED).unwrap();
        assert_eq!(of_outer(&path).0, symbol);
        assert_eq!(of_outer(&fifo).0, address);
        assert_eq!(of_outer(Path::new("/dev/zero")).0, address);
    }

    #[test]
    fn foreign_files_are_limited_in_size() {
        let mut room = PROGRAM.len() as u64;
        let Binary::Other(table) = Binary::other(PROGRAM.to_vec(), &mut room).unwrap() else {
            panic!("it is trusted")
        };
        assert!(room == 0 && table.build_id.len() == 40, "{table:?}");
        assert_eq!(table.find(0x10e).as_deref(), Some("outer"));
        assert_eq!((table.find(0x10b), table.find(u64::MAX)), (None, None));
        assert!(Binary::other(PROGRAM.to_vec(), &mut room).is_none());
    }
}
