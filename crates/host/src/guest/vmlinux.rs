//! Extracts the kernel from a bootable image.
//!
//! Such an image (bzImage) unpacks itself when it is started. That takes an emulated processor
//! seconds, and this program a moment. The result is an ELF file. If it has a PVH entry, which lets
//! any hypervisor start a kernel directly, qemu uses that (Documentation/arch/x86/boot.rst,
//! "payload_offset"; docs/misc/pvh.pandoc of Xen).

use object::Endianness;
use object::elf::{FileHeader64, PT_NOTE};
use object::read::elf::{ElfFile, ProgramHeader};
use std::fmt::Display;
use std::io::{self, Read};

/// Most bytes of a kernel. Distributions ship 40 to 100 MiB.
const LARGEST: u64 = 512 << 20;

/// Type and owner of the note with the entry for hypervisors (XEN_ELFNOTE_PHYS32_ENTRY,
/// include/xen/interface/elfnote.h).
const PHYS32_ENTRY: u32 = 18;
const OWNER: &[u8] = b"Xen";

/// Extracts the kernel from an image. Errors with the reason why this image has to unpack itself.
pub fn of_image(image: &[u8]) -> Result<Vec<u8>, String> {
    let payload = payload(image).ok_or("it is not an image with a payload (boot protocol 2.08)")?;
    let kernel = match unpack(payload, LARGEST) {
        Some(kernel) => kernel.map_err(|e| format!("it cannot be unpacked: {e}"))?,
        None => return Err("it is compressed with neither gzip, xz nor zstd".into()),
    };
    if kernel.len() as u64 > LARGEST {
        return Err(format!("it unpacks to more than {} MiB", LARGEST >> 20));
    }
    match has_entry(&kernel) {
        Ok(true) => Ok(kernel),
        Ok(false) => Err("it has no entry for hypervisors (CONFIG_PVH)".into()),
        Err(why) => Err(format!("it does not unpack to a kernel: {why}")),
    }
}

/// Returns the compressed part of an image, which follows the setup code.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u16::from_le_bytes(image.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?));
    if image.get(0x202..0x206)? != b"HdrS" || word(0x206)? < 0x208 {
        return None;
    }
    // Sectors of setup code after the first; 0 means 4.
    let sectors = match image.get(0x1f1)? {
        0 => 4,
        n => usize::from(*n),
    };
    let begin = (sectors + 1) * 512 + long(0x248)? as usize;
    image.get(begin..begin.checked_add(long(0x24c)? as usize)?)
}

/// Whether a kernel has an entry for hypervisors (PVH).
fn has_entry(kernel: &[u8]) -> Result<bool, String> {
    let text = |e: object::read::Error| e.to_string();
    let file = ElfFile::<FileHeader64<Endianness>>::parse(kernel).map_err(text)?;
    let endian = file.endian();
    let headers = file.elf_program_headers().iter();
    for header in headers.filter(|header| header.p_type(endian) == PT_NOTE) {
        let Some(mut notes) = header.notes(endian, kernel).map_err(text)? else { continue };
        while let Some(note) = notes.next().map_err(text)? {
            if note.name() == OWNER && note.n_type(endian).0 == PHYS32_ENTRY {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Most memory for unpacking xz, KiB. The dictionary dominates; the kernel's own build uses at most
/// 128 MiB (scripts/xz_wrap.sh).
const XZ_MEMORY: u32 = 160 << 10;

/// Unpacks gzip, xz or zstd, recognised by the first bytes. Stops one byte past `most`, and ignores
/// bytes after the compressed data. `None` if the format is another one.
pub(super) fn unpack(bytes: &[u8], most: u64) -> Option<io::Result<Vec<u8>>> {
    let invalid = |e: &dyn Display| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
    let reader: io::Result<Box<dyn Read + '_>> = match bytes {
        [0x1f, 0x8b, ..] => Ok(Box::new(flate2::read::GzDecoder::new(bytes))),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            Ok(Box::new(lzma_rust2::XzReader::new_mem_limit(bytes, false, XZ_MEMORY)))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => match ruzstd::decoding::StreamingDecoder::new(bytes) {
            Ok(reader) => Ok(Box::new(reader)),
            Err(e) => Err(invalid(&e)),
        },
        _ => return None,
    };
    let mut unpacked = Vec::new();
    let read = reader.and_then(|reader| reader.take(most + 1).read_to_end(&mut unpacked));
    Some(read.map(|_| unpacked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::elf::{EM_X86_64, ET_EXEC};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    /// A kernel that contains nothing but a note of this type.
    fn kernel(note: u32) -> Vec<u8> {
        let mut bytes = vec![0u8; 64 + 56];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..18].copy_from_slice(&ET_EXEC.0.to_le_bytes());
        bytes[18..20].copy_from_slice(&EM_X86_64.0.to_le_bytes());
        // e_version; e_phoff; e_ehsize, e_phentsize, e_phnum.
        bytes[20] = 1;
        bytes[32] = 64;
        bytes[52..58].copy_from_slice(&[64, 0, 56, 0, 1, 0]);
        let mut content = Vec::new();
        for number in [4, 4, note] {
            content.extend_from_slice(&number.to_le_bytes());
        }
        content.extend_from_slice(b"Xen\0\x10\0\0\x01");
        // p_type; p_offset; p_filesz; p_align.
        bytes[64] = PT_NOTE.0 as u8;
        bytes[72] = 120;
        bytes[96] = content.len() as u8;
        bytes[112] = 4;
        bytes.extend(content);
        bytes
    }

    /// An image with a payload after one sector of setup code.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0u8; 1024];
        bytes[0x1f1] = 1;
        bytes[0x202..0x208].copy_from_slice(b"HdrS\x0f\x02");
        bytes[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        bytes[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend([0; 16]);
        bytes.extend_from_slice(payload);
        bytes
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(content).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn a_kernel_with_an_entry_comes_out() {
        let kernel = kernel(PHYS32_ENTRY);
        assert_eq!(of_image(&image(&gzip(&kernel))), Ok(kernel));
    }

    #[test]
    fn explains_why_an_image_unpacks_itself() {
        let wrong = |image: &[u8]| of_image(image).unwrap_err();
        let without = image(&gzip(&kernel(1)));
        assert!(wrong(&without).contains("CONFIG_PVH"), "{}", wrong(&without));
        assert!(wrong(&image(&gzip(b"text"))).contains("not unpack to a kernel"));
        assert!(wrong(&image(b"\x02\x21\x4c\x18 lz4")).contains("neither gzip"));
        assert!(wrong(&image(&gzip(&kernel(18))[..30])).contains("cannot be unpacked"));
        let mut old = image(b"");
        old[0x206] = 7;
        let mut cut = image(&gzip(b"x"));
        cut.truncate(1040);
        for image in [&b""[..], b"text", &old, &cut] {
            assert!(wrong(image).contains("2.08"), "{}", wrong(image));
        }
    }

    /// `content` compressed by gzip and by zstd; xz is tested with a distribution's modules and
    /// kernel.
    fn packings(content: &[u8]) -> [Vec<u8>; 2] {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(content).unwrap();
        [gzip.finish().unwrap(), compress_to_vec(content, CompressionLevel::Fastest)]
    }

    #[test]
    fn ignores_trailing_bytes_and_detects_excess() {
        // Bytes that do not compress, so that the truncated half lacks content.
        let mixed = |n: u32| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8;
        let content: Vec<u8> = (0..3000).map(mixed).collect();
        for mut packed in packings(&content) {
            let half = packed.len() / 2;
            packed.extend_from_slice(b"size");
            assert_eq!(unpack(&packed, 3000).unwrap().unwrap(), content);
            assert_eq!(unpack(&packed, 100).unwrap().unwrap().len(), 101);
            packed.truncate(half);
            assert!(unpack(&packed, 3000).unwrap().is_err());
        }
        assert!(unpack(b"\x7fELF", 10).is_none());
        assert!(unpack(b"\xfd7zXZ\0and no more", 10).unwrap().is_err());
    }
}
