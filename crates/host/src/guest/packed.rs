//! Unpacking kernels and modules, whatever they were packed with.

use std::fmt::Display;
use std::io::{self, Read};

/// Most memory that unpacking XZ may take, KiB. Its dictionary is what decides:
/// the kernel's own build uses at most 128 MiB (scripts/xz_wrap.sh).
const XZ_MEMORY: u32 = 160 << 10;

/// Unpacks what gzip, xz or zstd has packed, by the bytes that it begins with, and
/// stops one byte past `most`; what follows the packed data is left alone. None
/// if it was packed by none of them.
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
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    /// `content` packed by gzip and by zstd; xz is tried with the modules and the
    /// kernel of a distribution.
    fn packings(content: &[u8]) -> [Vec<u8>; 2] {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(content).unwrap();
        [gzip.finish().unwrap(), compress_to_vec(content, CompressionLevel::Fastest)]
    }

    #[test]
    fn what_follows_is_left_alone_and_too_much_shows() {
        // Bytes that cannot be made shorter, so that half of them is really missing.
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
