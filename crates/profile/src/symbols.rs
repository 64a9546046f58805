//! Names of addresses: the kernel's from the text of `/proc/kallsyms`
//! (kernel/kallsyms.c), those of programs from their files, with the functions
//! that the compiler has put into their callers where debug information is there.

use super::{Frame, FrameKind};
use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};
use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Module of a function that is in the kernel itself.
pub const KERNEL: &str = "[kernel]";

/// Bytes that no function is longer than. What is farther after a symbol lies
/// in a gap between the kernel, its modules and BPF programs.
const LONGEST_FUNCTION: u64 = 1 << 20;

/// The kernel's symbols.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols {
    /// Ascending, one an address.
    symbols: Vec<Symbol>,
    text: String,
    /// Where modules are: base, size, name in brackets; ascending.
    modules: Vec<(u64, u64, String)>,
    /// Build id of the kernel, hexadecimal; empty if unknown.
    pub build_id: String,
}

/// A line of `/proc/kallsyms`; name and module are places in the text.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    address: u64,
    code: bool,
    name: (u32, u32),
    module: (u32, u32),
}

impl KernelSymbols {
    /// Reads the text of `/proc/kallsyms`: `ADDRESS TYPE NAME [MODULE]` a line.
    /// Other lines are skipped. Addresses that are all zero, as
    /// they are for users from whom `kernel.kptr_restrict` hides them, give no
    /// symbols, and [`hidden`](KernelSymbols::hidden) says so.
    pub fn parse(text: String) -> KernelSymbols {
        // Places are 32 bits wide; no kernel's table is nearly that long.
        let end = text.len().min(u32::MAX as usize);
        let mut symbols = Vec::new();
        let mut at = 0;
        for line in text.get(..end).unwrap_or_default().split_inclusive('\n') {
            symbols.extend(parse_line(line, at));
            at += line.len();
        }
        let preference = |symbol: &Symbol| preference(&text, symbol);
        symbols.sort_by(|a, b| {
            a.address.cmp(&b.address).then_with(|| preference(b).cmp(&preference(a)))
        });
        symbols.dedup_by_key(|symbol| symbol.address);
        KernelSymbols { symbols, text, modules: Vec::new(), build_id: String::new() }
    }

    /// The same, with the addresses of modules from the text of `/proc/modules`: an address in one whose
    /// functions have no names is of that module, and not of whatever lies before it.
    pub fn with_modules(mut self, text: &str) -> KernelSymbols {
        // NAME SIZE USERS BY STATE ADDRESS (`m_show`, kernel/module/procfs.c)
        let module = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let (name, size) = (fields.next()?, fields.next()?.parse().ok()?);
            let base = u64::from_str_radix(fields.nth(3)?.strip_prefix("0x")?, 16).ok()?;
            (base != 0).then(|| (base, size, format!("[{name}]")))
        };
        self.modules = text.lines().filter_map(module).collect();
        self.modules.sort();
        self
    }

    /// Base and name of the module at an address. The sizes of all its parts count from the
    /// base of its code, so a module that begins nearer is asked first.
    fn module(&self, address: u64) -> Option<(u64, &str)> {
        let after = self.modules.partition_point(|(base, ..)| *base <= address);
        let (base, size, name) = self.modules.get(after.checked_sub(1)?)?;
        (address - base < *size).then_some((*base, name))
    }

    /// Why there are no symbols, if there are none.
    pub fn hidden(&self) -> Option<&'static str> {
        self.symbols.is_empty().then_some(
            "the kernel hides its addresses, so its functions have no names (as root: sysctl \
             kernel.kptr_restrict=0)",
        )
    }

    /// Name and module of the function at an address.
    pub fn find(&self, address: u64) -> Option<(&str, &str)> {
        let behind = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols.get(behind.checked_sub(1)?)?;
        if !symbol.code || address - symbol.address >= LONGEST_FUNCTION {
            return None;
        }
        if self.module(address).is_some_and(|(base, _)| symbol.address < base) {
            return None;
        }
        let place = |(from, to): (u32, u32)| self.text.get(from as usize..to as usize);
        let module = place(symbol.module).filter(|module| !module.is_empty());
        Some((place(symbol.name)?, module.unwrap_or(KERNEL)))
    }

    /// The addresses of the objects of the kernel itself, which the table names where
    /// `CONFIG_KALLSYMS_ALL` is set; nothing where it does not. What comes before its code is not an
    /// address but a place in the memory of each CPU.
    pub fn objects(&self) -> Range<u64> {
        /// Some marks of sections are named anyhow, and nothing between them.
        const LEAST_SHARE: usize = 20;
        let own = || self.symbols.iter().filter(|symbol| symbol.module.0 == symbol.module.1);
        let code = own().find(|symbol| symbol.code).map_or(u64::MAX, |symbol| symbol.address);
        let objects = || own().filter(|symbol| !symbol.code && symbol.address > code);
        match (objects().next(), objects().next_back()) {
            (Some(low), Some(high)) if objects().count() * LEAST_SHARE >= own().count() => {
                low.address..high.address.saturating_add(1)
            }
            _ => 0..0,
        }
    }

    /// What the kernel calls the object at an address within
    /// [`objects`](KernelSymbols::objects).
    pub fn object(&self, address: u64) -> Option<&str> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols.get(after.checked_sub(1)?)?;
        let place = symbol.name.0 as usize..symbol.name.1 as usize;
        self.text.get(place).filter(|_| !symbol.code)
    }

    /// The frame of an address; one without a name has the address for its name.
    pub fn frame(&self, address: u64) -> Frame {
        match self.find(address) {
            Some((function, module)) => Frame {
                function: function.to_owned(),
                module: module.to_owned(),
                build_id: if module == KERNEL { self.build_id.clone() } else { String::new() },
                kind: FrameKind::Kernel,
                ..Frame::default()
            },
            None => {
                let module = self.module(address).map_or(KERNEL, |(_, name)| name);
                unnamed(address, module, FrameKind::Kernel)
            }
        }
    }
}

fn parse_line(line: &str, at: usize) -> Option<Symbol> {
    let (address, rest) = line.split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok().filter(|address| *address != 0)?;
    let (kind, rest) = rest.split_once(' ')?;
    let code = matches!(kind, "t" | "T" | "w" | "W");
    let name = rest.split(['\t', ' ', '\n']).next().filter(|name| !name.is_empty())?;
    let behind = &rest[name.len()..];
    let module = behind.trim();
    // Both are parts of the line, so their places follow from the lengths.
    let name_at = at + line.len() - rest.len();
    let module_at = name_at + name.len() + (behind.len() - behind.trim_start().len());
    let place = |at: usize, length: usize| {
        Some((u32::try_from(at).ok()?, u32::try_from(at + length).ok()?))
    };
    Some(Symbol {
        address,
        code,
        name: place(name_at, name.len())?,
        module: place(module_at, module.len())?,
    })
}

/// Which of the names of one address is shown: code, few underscores in front,
/// and no mark of a section's beginning.
fn preference(text: &str, symbol: &Symbol) -> (bool, bool, i32, usize) {
    let name = text.get(symbol.name.0 as usize..symbol.name.1 as usize).unwrap_or_default();
    let underscores = name.chars().take_while(|c| *c == '_').count();
    let mark = matches!(name, "_stext" | "_text" | "_etext" | "_sinittext" | "_einittext")
        || name.starts_with("__start_")
        || name.ends_with("_start")
        || name.ends_with("_end");
    (symbol.code, !mark, -(underscores as i32), name.len())
}

/// The build id in the bytes of `/sys/kernel/notes`, an ELF note section:
/// name size, descriptor size, type, then both, each filled up to four bytes.
pub fn kernel_build_id(notes: &[u8]) -> Option<String> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut rest = notes;
    while let Some((head, behind)) = rest.split_at_checked(12) {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?))
        };
        let (name, descriptor) = (word(0)? as usize, word(4)? as usize);
        let (name_room, descriptor_room) =
            (name.checked_next_multiple_of(4)?, descriptor.checked_next_multiple_of(4)?);
        let owner = behind.get(..name)?;
        let found = behind.get(name_room..name_room.checked_add(descriptor)?)?;
        if word(8)? == NT_GNU_BUILD_ID && owner == b"GNU\0" {
            return Some(hexadecimal(found));
        }
        rest = behind.get(name_room.checked_add(descriptor_room)?..)?;
    }
    None
}

/// A part of a process's memory that is mapped executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after it.
    pub end: u64,
    /// Where in the file it begins, bytes.
    pub offset: u64,
    /// Path of the file, or a name like `[vdso]`; empty for memory without a file.
    pub path: String,
}

/// The executable lines of `/proc/PID/maps` (proc_pid_maps(5)), in its order,
/// which is ascending. Other lines are skipped.
pub fn parse_maps(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse_mapping).collect()
}

fn parse_mapping(line: &str) -> Option<Mapping> {
    // The path is the rest of the line, and may hold blanks.
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

/// What is mapped executable in each process that was sampled.
#[derive(Clone, Debug, Default)]
pub struct Processes(HashMap<u32, Vec<Mapping>>);

impl Processes {
    /// Adds a mapping, which takes the place of what was there.
    pub fn map(&mut self, pid: u32, mapping: Mapping) {
        let all = self.0.entry(pid).or_default();
        all.retain(|known| known.end <= mapping.start || known.start >= mapping.end);
        let at = all.partition_point(|known| known.start < mapping.start);
        all.insert(at, mapping);
    }

    /// Gives a new process what the one that made it has mapped.
    pub fn fork(&mut self, pid: u32, parent: u32) {
        if let (false, Some(maps)) = (self.0.contains_key(&pid), self.0.get(&parent)) {
            let maps = maps.clone();
            self.0.insert(pid, maps);
        }
    }

    /// Whether anything is known of a process.
    pub fn knows(&self, pid: u32) -> bool {
        self.0.contains_key(&pid)
    }

    fn find(&self, pid: u32, address: u64) -> Option<&Mapping> {
        let all = self.0.get(&pid)?;
        let behind = all.partition_point(|mapping| mapping.start <= address);
        all.get(behind.checked_sub(1)?).filter(|mapping| address < mapping.end)
    }
}

/// Names the addresses of programs. Each file is read once, each address of it
/// named once.
pub struct UserSymbols {
    symbolizer: Symbolizer,
    files: HashMap<String, File>,
    named: HashMap<(String, u64), Vec<Frame>>,
}

/// A file with code.
#[derive(Clone, Debug)]
struct File {
    /// Where it can be read; none where it cannot.
    path: Option<PathBuf>,
    build_id: String,
}

impl Default for UserSymbols {
    fn default() -> Self {
        let symbolizer = Symbolizer::builder().enable_auto_reload(false).build();
        UserSymbols { symbolizer, files: HashMap::new(), named: HashMap::new() }
    }
}

impl UserSymbols {
    /// The frames of an address of a process, leaf first: more than one where the
    /// compiler has put functions into their callers. None where nothing
    /// executable is mapped there, which no true return address is.
    ///
    /// `root` is where `/proc` is: the file of a process in another mount
    /// namespace, or one that was deleted, is reached by `PID/map_files` there.
    pub fn frames(
        &mut self,
        processes: &Processes,
        root: &Path,
        pid: u32,
        address: u64,
    ) -> Option<Vec<Frame>> {
        let mapping = processes.find(pid, address)?;
        if mapping.path.is_empty() {
            // Code that was made at run time.
            return Some(vec![unnamed(address, "[anon]", FrameKind::User)]);
        }
        let offset = (address - mapping.start).checked_add(mapping.offset)?;
        if !mapping.path.starts_with('/') {
            // [vdso] and its like lie elsewhere in each process, but are the same.
            return Some(vec![unnamed(offset, &mapping.path, FrameKind::User)]);
        }
        let key = (mapping.path.clone(), offset);
        if let Some(frames) = self.named.get(&key) {
            return Some(frames.clone());
        }
        let file = self.file(mapping, root, pid);
        let named = file.path.as_deref().and_then(|path| self.ask(path, offset));
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
            // An address of one run says nothing in another; the offset does.
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
        let candidates = [root.join(exact), PathBuf::from(&mapping.path)];
        let path = candidates.into_iter().find(|path| std::fs::File::open(path).is_ok());
        let build_id = path.as_deref().and_then(|path| read_elf_build_id(path).ok().flatten());
        let build_id = build_id.map(|bytes| hexadecimal(&bytes)).unwrap_or_default();
        let file = File { path, build_id };
        self.files.insert(mapping.path.clone(), file.clone());
        file
    }

    /// Functions at an offset of a file, leaf first: name, source file, whether
    /// it was put into the next.
    fn ask(&self, path: &Path, offset: u64) -> Option<Vec<(String, String, bool)>> {
        let source = Source::Elf(Elf::new(path));
        let answer = self.symbolizer.symbolize_single(&source, Input::FileOffset(offset)).ok()?;
        let Symbolized::Sym(symbol) = answer else { return None };
        let source = |info: Option<&CodeInfo>| {
            info.map(|info| info.to_path().display().to_string()).unwrap_or_default()
        };
        // Inlined functions come outermost first, each with the place of its call.
        let outer = (symbol.name.to_string(), source(symbol.code_info.as_deref()), false);
        let inner = symbol.inlined.iter();
        let inner = inner.map(|f| (f.name.to_string(), source(f.code_info.as_ref()), true));
        let mut functions: Vec<_> = std::iter::once(outer).chain(inner).collect();
        functions.reverse();
        Some(functions)
    }
}

fn unnamed(address: u64, module: &str, kind: FrameKind) -> Frame {
    Frame { function: format!("{address:#x}"), module: module.to_owned(), kind, ..Frame::default() }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    const KALLSYMS: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000100 t do_work.isra.0
ffffffff81000100 T __do_work
ffffffff81000200 D jiffies
ffffffff81000300 W weak_one
nonsense
ffffffff81000400 t
zzzz t broken
ffffffffc0000000 t veth_xmit\t[veth]
ffffffffc0000100 t bpf_prog_6deef7357e7b4530_sd\t[bpf]
";

    #[test]
    fn kernel_addresses_have_names() {
        let symbols = KernelSymbols::parse(KALLSYMS.into());
        assert_eq!(symbols.hidden(), None);
        let find = |address| symbols.find(address);
        assert_eq!(find(0xffff_ffff_8100_0000), Some(("startup_64", KERNEL)));
        assert_eq!(find(0xffff_ffff_8100_00ff), Some(("startup_64", KERNEL)));
        assert_eq!(find(0xffff_ffff_8100_0180), Some(("do_work.isra.0", KERNEL)));
        assert_eq!(find(0xffff_ffff_8100_0210), None, "data is not a function");
        assert_eq!(find(0xffff_ffff_8100_0300), Some(("weak_one", KERNEL)));
        assert_eq!(find(0xffff_ffff_9100_0300), None, "far past the last one");
        assert_eq!(find(0xffff_ffff_c000_0010), Some(("veth_xmit", "[veth]")));
        assert_eq!(find(0xffff_ffff_c000_0100).unwrap().1, "[bpf]");
        assert_eq!(find(0x1000), None);
        let objects = symbols.objects();
        assert_eq!((objects.start, objects.end), (0xffff_ffff_8100_0200, 0xffff_ffff_8100_0201));
        assert_eq!(symbols.object(0xffff_ffff_8100_0204), Some("jiffies"));
        assert_eq!(symbols.object(0xffff_ffff_8100_0304), None, "a function is not an object");
        assert!(KernelSymbols::parse("ffffffff81000000 T _stext\n".into()).objects().is_empty());
        let frame = symbols.frame(0x1000);
        assert_eq!((frame.function.as_str(), frame.kind), ("0x1000", FrameKind::Kernel));
    }

    #[test]
    fn an_address_without_a_name_is_of_the_module_that_it_lies_in() {
        let modules = "vhost 8192 1 vhost_net, Live 0xffffffffc0002000\n\
                       veth 65536 0 - Live 0xffffffffc0000000\n\
                       hidden 4096 0 - Live 0x0000000000000000\nnonsense\n";
        let symbols = KernelSymbols::parse(KALLSYMS.into()).with_modules(modules);
        let frame = |address| {
            let Frame { function, module, .. } = symbols.frame(address);
            (function, module)
        };
        let of = |function: &str, module: &str| (function.to_owned(), module.to_owned());
        assert_eq!(frame(0xffff_ffff_c000_0010), of("veth_xmit", "[veth]"));
        assert_eq!(frame(0xffff_ffff_c000_2e70), of("0xffffffffc0002e70", "[vhost]"));
        assert_eq!(frame(0xffff_ffff_c000_0108).1, "[bpf]", "it has a name of its own");
        assert_eq!(frame(0xffff_ffff_9100_0000).1, KERNEL);
        let unresolved =
            crate::normalise::of_frame(&symbols.frame(0xffff_ffff_c000_2e70)).into_owned();
        assert_eq!(unresolved, "[vhost] unresolved");
    }

    #[test]
    fn hidden_addresses_are_said_to_be() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 t do_work\n";
        let symbols = KernelSymbols::parse(hidden.into());
        assert!(symbols.hidden().unwrap().contains("kptr_restrict"));
        assert_eq!(symbols.find(0xffff_ffff_8100_0000), None);
        assert!(KernelSymbols::parse(String::new()).hidden().is_some());
    }

    #[test]
    fn this_kernel_s_own_table() {
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let symbols = KernelSymbols::parse(text.clone());
        if let Some(why) = symbols.hidden() {
            return skip!("{why}");
        }
        // Every function is found at its own address, by some name of that address.
        let mut found = 0;
        for line in text.lines().filter(|line| line.contains(" T ")).step_by(97) {
            let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
            found += usize::from(symbols.find(address).is_some());
        }
        assert!(found > 100, "{found}");
    }

    #[test]
    fn notes_hold_a_build_id() {
        let note = |name: &[u8], descriptor: &[u8], kind: u32| {
            let mut bytes = (name.len() as u32).to_ne_bytes().to_vec();
            bytes.extend((descriptor.len() as u32).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            for part in [name, descriptor] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let mut notes = note(b"Linux\0", &[1, 2, 3], 257);
        notes.extend(note(b"GNU\0", &[0xab, 0x01, 0xff, 0x10, 0x77], 3));
        assert_eq!(kernel_build_id(&notes).as_deref(), Some("ab01ff1077"));
        for length in 0..notes.len() - 3 {
            assert_eq!(kernel_build_id(&notes[..length]), None, "{length}");
        }
        let mut wild = notes;
        wild[..8].fill(0xff);
        assert_eq!(kernel_build_id(&wild), None);
    }

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

    /// A function of this very program, by its address in this very process.
    #[inline(never)]
    fn a_function_with_a_name() -> u64 {
        std::hint::black_box(a_function_with_a_name as *const () as u64)
    }

    #[test]
    fn own_addresses_have_names_files_and_build_ids() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let (pid, mut processes) = (std::process::id(), Processes::default());
        parse_maps(&maps).into_iter().for_each(|mapping| processes.map(pid, mapping));
        let mut symbols = UserSymbols::default();
        let mut frames = |address| symbols.frames(&processes, Path::new("/proc"), pid, address);
        let own = frames(a_function_with_a_name()).unwrap();
        let last = own.last().unwrap();
        assert!(last.function.contains("a_function_with_a_name"), "{own:?}");
        assert!(last.file.ends_with("symbols.rs") && !last.build_id.is_empty(), "{last:?}");
        assert_eq!((last.kind, last.inlined), (FrameKind::User, false));
        assert_eq!(frames(0x10), None);
    }
}
