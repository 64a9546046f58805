//! Functions of the kernel, from `/proc/kallsyms` and `/proc/modules`.

use super::names::{build_id, unnamed};
use crate::{Frame, FrameKind};
use object::Endianness;
use object::read::elf::NoteIterator;
use std::ops::Range;

/// Module of functions in the kernel itself.
pub const KERNEL: &str = "[kernel]";

/// Longest function, in bytes. Addresses farther after a symbol are in a gap between the kernel,
/// its modules and BPF programs.
const LONGEST_FUNCTION: u64 = 1 << 20;

#[derive(Clone, Debug, Default)]
pub struct KernelSymbols {
    /// In ascending order, one per address.
    symbols: Vec<Symbol>,
    text: String,
    /// Base, size and name in brackets of each module, in ascending order.
    modules: Vec<(u64, u64, String)>,
    /// Build id of the kernel, hexadecimal; empty if unknown.
    pub build_id: String,
}

/// A line of `/proc/kallsyms`; name and module are positions in the text.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    address: u64,
    code: bool,
    name: (u32, u32),
    module: (u32, u32),
}

impl KernelSymbols {
    /// Parses the text of `/proc/kallsyms`: `ADDRESS TYPE NAME [MODULE]` per line. Other lines are
    /// skipped. If all addresses are zero, as for users from whom `kernel.kptr_restrict` hides
    /// them, there are no symbols, and [`hidden`](KernelSymbols::hidden) returns the reason.
    pub fn parse(text: String) -> KernelSymbols {
        // Positions are 32 bits wide; no kernel's table is nearly that long.
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

    /// Adds the addresses of modules from the text of `/proc/modules`: an address in a module whose
    /// functions have no names is then attributed to that module, and not to what precedes it.
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

    /// Returns base and name of the module at an address. A module's size counts all its parts from
    /// the base of its code, so the module with the nearest base is checked first.
    fn module(&self, address: u64) -> Option<(u64, &str)> {
        let after = self.modules.partition_point(|(base, ..)| *base <= address);
        let (base, size, name) = self.modules.get(after.checked_sub(1)?)?;
        (address - base < *size).then_some((*base, name))
    }

    /// Returns the base of a module, by its name in brackets; `None` if not loaded.
    pub fn module_base(&self, name: &str) -> Option<u64> {
        self.modules.iter().find(|(.., module)| module == name).map(|(base, ..)| *base)
    }

    /// Returns the address of a symbol of the kernel itself, even if the symbol shares its address
    /// with another.
    pub fn address_of(&self, symbol: &str) -> Option<u64> {
        let address = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let (address, name) = (fields.next()?, fields.nth(1)?);
            let address = u64::from_str_radix(address, 16).ok()?;
            (name == symbol && fields.next().is_none() && address != 0).then_some(address)
        };
        self.text.lines().find_map(address)
    }

    /// Returns why there are no symbols; `None` if there are some.
    pub fn hidden(&self) -> Option<&'static str> {
        self.symbols.is_empty().then_some(
            "the kernel hides its addresses, so its functions have no names (as root: sysctl \
             kernel.kptr_restrict=0)",
        )
    }

    /// Returns the name and module of the function at an address.
    pub fn find(&self, address: u64) -> Option<(&str, &str)> {
        let symbol = self.last_symbol(address)?;
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

    /// Returns the address range of the kernel's own objects, which the table names if
    /// `CONFIG_KALLSYMS_ALL` is set; empty otherwise. Objects before the kernel's code are left
    /// out: their values are not addresses but offsets into the memory of each CPU.
    pub fn objects(&self) -> Range<u64> {
        /// Some section marks are named anyway, but nothing between them.
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

    /// Returns the kernel's name for the object at an address within
    /// [`objects`](KernelSymbols::objects).
    pub fn object(&self, address: u64) -> Option<&str> {
        let symbol = self.last_symbol(address)?;
        let place = symbol.name.0 as usize..symbol.name.1 as usize;
        self.text.get(place).filter(|_| !symbol.code)
    }

    /// Returns the symbol at an address, or the nearest before it.
    fn last_symbol(&self, address: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        self.symbols.get(after.checked_sub(1)?)
    }

    /// Returns the frame of an address; without a name, the address becomes the name.
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
    // Both are slices of the line, so their positions follow from the lengths.
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

/// Ranks the names of one address by which to show: code first, no section marks, few leading
/// underscores.
fn preference(text: &str, symbol: &Symbol) -> (bool, bool, i32, usize) {
    let name = text.get(symbol.name.0 as usize..symbol.name.1 as usize).unwrap_or_default();
    let underscores = name.chars().take_while(|c| *c == '_').count();
    let mark = matches!(name, "_stext" | "_text" | "_etext" | "_sinittext" | "_einittext")
        || name.starts_with("__start_")
        || name.ends_with("_start")
        || name.ends_with("_end");
    (symbol.code, !mark, -(underscores as i32), name.len())
}

/// Extracts the build id from the bytes of `/sys/kernel/notes`, an ELF note section.
pub fn kernel_build_id(notes: &[u8]) -> Option<String> {
    let endian = Endianness::default();
    build_id(endian, NoteIterator::new(endian, 4, notes).ok()?)
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
        assert_eq!(symbols.address_of("_stext"), Some(0xffff_ffff_8100_0000));
        assert_eq!((symbols.address_of("veth_xmit"), symbols.address_of("none")), (None, None));
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
        // Every function is found at its own address, by one of the names of that address.
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
}
