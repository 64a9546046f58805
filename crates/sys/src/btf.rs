//! BTF, the kernel's own description of its types: the offset of a structure's member, and the id
//! of a function or type. Read from `/sys/kernel/btf/vmlinux`; the format is that of
//! Documentation/bpf/btf.rst and include/uapi/linux/btf.h.
//!
//! Every read is checked: a file that is not BTF leads to an error, never a panic.

use super::bytes::{u16_at, u32_at};
use std::fs;
use std::path::Path;

/// Types of a kernel.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    /// Offset of each type in `bytes`; the first has id 1.
    types: Vec<u32>,
    /// Range of the names in `bytes`.
    strings: std::ops::Range<usize>,
}

/// Kind of a type; the values are those of the format (`BTF_KIND_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    Struct = 4,
    /// A name for another type. The argument lists of tracepoints are
    /// typedefs called `btf_trace_NAME`.
    Typedef = 8,
    Function = 12,
}

/// A file that is not BTF, or is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the type information of a kernel: {0}")]
pub struct Malformed(&'static str);

const MAGIC: u16 = 0xeb9f;
/// `BTF_KIND_FUNC_PROTO`.
const PROTOTYPE: u32 = 13;
/// Bytes of the part that every type begins with.
const HEAD: usize = 12;
/// Most levels of nested structures, typedefs and qualifiers to follow.
const DEPTH: u32 = 16;

impl Btf {
    /// Reads the types of the running kernel: `SYS/kernel/btf/vmlinux`. ENOENT: the kernel was
    /// built without `CONFIG_DEBUG_INFO_BTF`.
    pub fn kernel(sys: &Path) -> std::io::Result<Btf> {
        let bytes = fs::read(sys.join("kernel/btf/vmlinux"))?;
        Btf::parse(bytes).map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e))
    }

    /// Parses the bytes of a whole file.
    pub fn parse(bytes: Vec<u8>) -> Result<Btf, Malformed> {
        let short = Malformed("it is truncated");
        if u16_at(&bytes, 0).ok_or(short)? != MAGIC {
            return Err(Malformed("it has another magic number"));
        }
        let field = |at| u32_at(&bytes, at).map(|value| value as usize).ok_or(short);
        let (header, type_offset, type_length) = (field(4)?, field(8)?, field(12)?);
        let (string_offset, string_length) = (field(16)?, field(20)?);
        let range = |offset: usize, length: usize| {
            let begin = header.checked_add(offset)?;
            let end = begin.checked_add(length)?;
            (end <= bytes.len()).then_some(begin..end)
        };
        let strings = range(string_offset, string_length).ok_or(short)?;
        let section = range(type_offset, type_length).ok_or(short)?;
        let mut types = Vec::new();
        let mut at = section.start;
        while at < section.end {
            types.push(u32::try_from(at).map_err(|_| Malformed("it is too large"))?);
            let info = u32_at(&bytes, at + 4).ok_or(short)?;
            at += HEAD + tail(info).ok_or(Malformed("it has an unknown kind of type"))?;
        }
        if at != section.end {
            return Err(short);
        }
        Ok(Btf { bytes, types, strings })
    }

    /// Returns the id of the type of this kind and name.
    pub fn id(&self, kind: Kind, name: &str) -> Option<u32> {
        let at = self.types.iter().position(|at| {
            let at = *at as usize;
            let info = u32_at(&self.bytes, at + 4).unwrap_or(0);
            info >> 24 & 0x1f == kind as u32
                && u32_at(&self.bytes, at).is_some_and(|offset| self.is_named(offset, name))
        })?;
        u32::try_from(at + 1).ok()
    }

    /// Returns the number of arguments of a function.
    pub fn arguments(&self, function: u32) -> Option<usize> {
        let word = |id: u32, field: usize| {
            let at = *self.types.get(id.checked_sub(1)? as usize)? as usize;
            u32_at(&self.bytes, at + field)
        };
        let kind = |info: u32| info >> 24 & 0x1f;
        if kind(word(function, 4)?) != Kind::Function as u32 {
            return None;
        }
        let prototype = word(word(function, 8)?, 4)?;
        (kind(prototype) == PROTOTYPE).then_some((prototype & 0xffff) as usize)
    }

    /// Returns the offset in bytes of a member, by its path: `task_struct`, then
    /// `se.sum_exec_runtime`. Members of anonymous structures and unions are found without naming
    /// those. `None` if there is no such member, or if it is a bit field.
    pub fn offset(&self, structure: &str, path: &str) -> Option<u32> {
        let mut id = self.id(Kind::Struct, structure)?;
        let mut bits = 0u32;
        for name in path.split('.') {
            let (offset, member) = self.member(id, name, DEPTH)?;
            bits = bits.checked_add(offset)?;
            id = member;
        }
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Returns the offset in bits and the type of a member.
    fn member(&self, id: u32, name: &str, depth: u32) -> Option<(u32, u32)> {
        let at = self.resolve(id)?;
        let info = u32_at(&self.bytes, at + 4)?;
        if !matches!(info >> 24 & 0x1f, 4 | 5) || depth == 0 {
            return None;
        }
        let members = (0..(info & 0xffff) as usize).filter_map(|i| {
            let at = at + HEAD + i * 12;
            let offset = u32_at(&self.bytes, at + 8)?;
            let (bits, width) =
                if info >> 31 == 1 { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) };
            Some((u32_at(&self.bytes, at)?, u32_at(&self.bytes, at + 4)?, bits, width))
        });
        for (label, member, bits, width) in members {
            if self.is_named(label, name) {
                return (width == 0).then_some((bits, member));
            }
            if self.is_named(label, "")
                && let Some((inner, found)) = self.member(member, name, depth - 1)
            {
                return Some((bits.checked_add(inner)?, found));
            }
        }
        None
    }

    /// Returns the offset of a type, skipping qualifiers and typedefs.
    fn resolve(&self, mut id: u32) -> Option<usize> {
        for _ in 0..DEPTH {
            let at = *self.types.get(id.checked_sub(1)? as usize)? as usize;
            match u32_at(&self.bytes, at + 4)? >> 24 & 0x1f {
                // Typedef, volatile, const, restrict, type tag.
                8 | 9 | 10 | 11 | 18 => id = u32_at(&self.bytes, at + 8)?,
                _ => return Some(at),
            }
        }
        None
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let strings = self.bytes.get(self.strings.clone()).unwrap_or_default();
        let rest = strings.get(offset as usize..).unwrap_or_default();
        rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// Returns the number of bytes that follow the head of a type.
fn tail(info: u32) -> Option<usize> {
    let count = (info & 0xffff) as usize;
    Some(match info >> 24 & 0x1f {
        // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7 | 8 | 9 | 10 | 11 | 12 | 16 | 18 => 0,
        // Integer, variable, declaration tag.
        1 | 14 | 17 => 4,
        // Array; structure, union; enumeration; prototype; section; 64-bit enumeration.
        3 => 12,
        4 | 5 => count * 12,
        6 => count * 8,
        13 => count * 8,
        15 | 19 => count * 12,
        _ => return None,
    })
}

/// Builds a small BTF for a map whose keys are an `int` and whose values are a structure of `words`
/// 64-bit words. The kernel requires one for task storage maps
/// (`bpf_local_storage_map_alloc_check`, kernel/bpf/bpf_local_storage.c). The key's type is 1, the
/// value's [`VALUE_TYPE`].
pub fn describe_value(words: u32) -> Vec<u8> {
    let strings = b"\0int\0u64\0value\0words\0";
    let (int, long, value, member) = (1u32, 5u32, 9u32, 15u32);
    let kind = |kind: u32, count: u32| kind << 24 | count;
    let types = [
        // 1: int, 4 bytes, signed, 32 bits.
        &[int, kind(1, 0), 4, 1 << 24 | 32][..],
        // 2: u64, 8 bytes, 64 bits.
        &[long, kind(1, 0), 8, 64],
        // 3: u64[words], indexed by int.
        &[0, kind(3, 0), 0, 2, 1, words],
        // 4: struct value { u64 words[]; }
        &[value, kind(4, 1), words * 8, member, 3, 0],
    ]
    .concat();
    let type_bytes = types.len() as u32 * 4;
    let mut bytes = Vec::new();
    bytes.extend(MAGIC.to_ne_bytes());
    // Version 1, no flags.
    bytes.extend([1, 0]);
    for word in [24, 0, type_bytes, type_bytes, strings.len() as u32] {
        bytes.extend(word.to_ne_bytes());
    }
    types.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes.extend(strings);
    bytes
}

/// Id of the value's type in [`describe_value`].
pub const VALUE_TYPE: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_write_we_can_read() {
        let btf = Btf::parse(describe_value(10)).unwrap();
        assert_eq!(btf.id(Kind::Struct, "value"), Some(VALUE_TYPE));
        assert_eq!(btf.id(Kind::Struct, "valu"), None);
        assert_eq!(btf.offset("value", "words"), Some(0));
        assert_eq!(btf.offset("value", "nothing"), None);
        assert_eq!(btf.id(Kind::Function, "value"), None);
    }

    #[test]
    fn members_of_nameless_structures_are_found() {
        // struct a { int x; struct { int y; int z:3; }; }
        let strings = b"\0a\0x\0y\0z\0int\0";
        let (a, x, y, z, int) = (1, 3, 5, 7, 9);
        let types = [
            &[int, 1 << 24, 4, 32][..],
            &[0, 1 << 31 | 4 << 24 | 2, 8, y, 1, 0, z, 1, 3 << 24 | 32],
            &[a, 4 << 24 | 2, 12, x, 1, 0, 0, 2, 32],
        ]
        .concat();
        let btf = Btf::parse(file(&types, strings)).unwrap();
        assert_eq!(btf.offset("a", "x"), Some(0));
        assert_eq!(btf.offset("a", "y"), Some(4));
        assert_eq!(btf.offset("a", "z"), None, "a bit field has no offset in bytes");
        assert_eq!(btf.offset("a", "x.y"), None, "an int has no members");
    }

    #[test]
    fn a_structure_within_itself_ends() {
        let types = [1, 4 << 24 | 1, 8, 0, 1, 0];
        let btf = Btf::parse(file(&types, b"\0a\0")).unwrap();
        assert_eq!(btf.offset("a", "b"), None);
    }

    #[test]
    fn arguments_of_a_function_are_those_of_its_prototype() {
        // int f(int, int); and a type that is not a function.
        let types =
            [&[1, 1 << 24, 4, 32][..], &[0, 13 << 24 | 2, 1, 0, 1, 0, 1], &[3, 12 << 24, 2]];
        let btf = Btf::parse(file(&types.concat(), b"\0f\0g\0")).unwrap();
        assert_eq!(btf.id(Kind::Function, "g"), Some(3));
        assert_eq!(btf.arguments(3), Some(2));
        assert_eq!((btf.arguments(0), btf.arguments(1), btf.arguments(9)), (None, None, None));
    }

    #[test]
    fn no_file_panics() {
        let whole = describe_value(3);
        for length in 0..whole.len() {
            assert!(Btf::parse(whole[..length].to_vec()).is_err(), "{length}");
        }
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 0xff;
            if let Ok(btf) = Btf::parse(broken) {
                btf.offset("value", "words");
            }
        }
    }

    fn file(types: &[u32], strings: &[u8]) -> Vec<u8> {
        let mut bytes = [&MAGIC.to_ne_bytes()[..], &[1, 0]].concat();
        let length = types.len() as u32 * 4;
        for word in [24, 0, length, length, strings.len() as u32].iter().chain(types) {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(strings);
        bytes
    }
}
