//! Records of TLS 1.3 with AES-128-GCM, sealed and opened by the program (RFC 8446, section 5): in
//! memory of the caller, without allocating, and in place except for one copy of what is sent.

use bytepath_record::{Fault, FaultKind};
use bytepath_sys::ktls::Key;
use graviola::aead::AesGcm;

/// Maximum number of plaintext bytes in a record.
pub const LARGEST: usize = 1 << 14;

/// Bytes of a record besides the plaintext: header, content type and tag.
pub const OVERHEAD: usize = HEADER + 1 + TAG;

const HEADER: usize = 5;
const TAG: usize = 16;

/// Content type of application data.
const DATA: u8 = 23;

pub struct Sealer(Cipher);

impl Sealer {
    /// With this key, starting at record number 0.
    pub fn new(key: &Key) -> Sealer {
        Sealer(Cipher::new(key))
    }

    /// Writes a record with at most [`LARGEST`] bytes of plaintext to the start of `memory`, which
    /// must have room for [`OVERHEAD`] more. Returns its length.
    #[inline]
    pub fn seal(&mut self, plain: &[u8], memory: &mut [u8]) -> usize {
        let end = HEADER + plain.len() + 1;
        let (header, rest) = memory[..end + TAG].split_at_mut(HEADER);
        let (inner, tag) = rest.split_at_mut(plain.len() + 1);
        header[..3].copy_from_slice(&[DATA, 3, 3]);
        header[3..].copy_from_slice(&((inner.len() + TAG) as u16).to_be_bytes());
        inner[..plain.len()].copy_from_slice(plain);
        inner[plain.len()] = DATA;
        let mut computed = [0; TAG];
        let nonce = self.0.next();
        self.0.aes.encrypt(&nonce, header, inner, &mut computed);
        tag.copy_from_slice(&computed);
        end + TAG
    }
}

pub struct Opener(Cipher);

impl Opener {
    /// With this key, starting at record number 0.
    pub fn new(key: &Key) -> Opener {
        Opener(Cipher::new(key))
    }

    /// Decrypts the next record in place; returns its plaintext and the length of the record, or
    /// `None` if it is incomplete.
    #[inline]
    pub fn open<'a>(&mut self, memory: &'a mut [u8]) -> Result<Option<(&'a [u8], usize)>, Fault> {
        let Some((header, rest)) = memory.split_first_chunk_mut::<HEADER>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[..3] != [DATA, 3, 3] || !(1 + TAG..=LARGEST + 256).contains(&len) {
            return Err(broken("what arrived is no TLS record"));
        }
        let Some(body) = rest.get_mut(..len) else { return Ok(None) };
        let (inner, tag) = body.split_at_mut(len - TAG);
        let nonce = self.0.next();
        if self.0.aes.decrypt(&nonce, header, inner, tag).is_err() {
            return Err(broken("a TLS record cannot be decrypted")
                .remedy("the two ends have different keys, or something changes bytes"));
        }
        // Padding follows the content type.
        match inner.iter().rposition(|byte| *byte != 0) {
            Some(end) if inner[end] == DATA => Ok(Some((&inner[..end], HEADER + len))),
            _ => Err(broken("a TLS record of another type than data arrived")),
        }
    }
}

/// True if this processor has the instructions that the cipher needs.
pub fn supported() -> bool {
    graviola::util::is_cpu_supported()
}

struct Cipher {
    aes: AesGcm,
    iv: [u8; 12],
    number: u64,
}

impl Cipher {
    fn new(key: &Key) -> Cipher {
        Cipher { aes: AesGcm::new(&key.key), iv: key.iv, number: 0 }
    }

    /// Returns the nonce of the next record: the IV, XORed with the record number (section 5.3).
    #[inline]
    fn next(&mut self) -> [u8; 12] {
        let mut nonce = self.iv;
        let number = self.number.to_be_bytes();
        nonce[4..].iter_mut().zip(number).for_each(|(byte, part)| *byte ^= part);
        self.number += 1;
        nonce
    }
}

fn broken(text: &str) -> Fault {
    Fault::new(FaultKind::Corrupt, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key {
        key: *b"\x17\x42\x2d\xda\x59\x6e\xd5\xd9\xac\xd8\x90\xe3\xc6\x3f\x50\x51",
        iv: *b"\x5b\x78\x92\x3d\xee\x08\x57\x90\x33\xe5\x23\xd9",
    };

    /// Record sent by the client in RFC 8448, section 3; its plaintext is 50 bytes, counting up
    /// from 0.
    const RECORD: [u8; 72] = *b"\x17\x03\x03\x00\x43\xa2\x3f\x70\x54\xb6\x2c\x94\xd0\xaf\xfa\xfe\
        \x82\x28\xba\x55\xcb\xef\xac\xea\x42\xf9\x14\xaa\x66\xbc\xab\x3f\x2b\x98\x19\xa8\xa5\xb4\
        \x6b\x39\x5b\xd5\x4a\x9a\x20\x44\x1e\x2b\x62\x97\x4e\x1f\x5a\x62\x92\xa2\x97\x70\x14\xbd\
        \x1e\x3d\xea\xe6\x3a\xee\xbb\x21\x69\x49\x15\xe4";

    fn plain() -> Vec<u8> {
        (0..50).collect()
    }

    #[test]
    fn records_match_rfc_8448() {
        let mut memory = [0; 100];
        let len = Sealer::new(&KEY).seal(&plain(), &mut memory);
        assert_eq!(memory[..len], RECORD);
        let mut came = RECORD;
        let opened = Opener::new(&KEY).open(&mut came).unwrap();
        assert_eq!(opened, Some((&plain()[..], RECORD.len())));
    }

    #[test]
    fn opens_only_complete_records() {
        let (mut seal, mut open) = (Sealer::new(&KEY), Opener::new(&KEY));
        let messages = [vec![1; LARGEST], Vec::new(), vec![0; 3]];
        let mut memory = vec![0; LARGEST + OVERHEAD];
        for message in &messages {
            let len = seal.seal(message, &mut memory);
            assert_eq!(len, message.len() + OVERHEAD);
            for part in [0, 4, 5, len - 1] {
                assert_eq!(open.open(&mut memory[..part]).unwrap(), None, "{part}");
            }
            assert_eq!(open.open(&mut memory).unwrap(), Some((&message[..], len)));
        }
    }

    #[test]
    fn refuses_other_key_byte_and_type() {
        let refused = |key: &Key, mut record: [u8; 72]| {
            Opener::new(key).open(&mut record).unwrap_err().to_string()
        };
        let mut other = KEY;
        other.key[3] ^= 1;
        assert!(refused(&other, RECORD).contains("different keys"));
        let mut changed = RECORD;
        changed[20] ^= 1;
        assert!(refused(&KEY, changed).contains("cannot be decrypted"));
        let mut plain = RECORD;
        plain[0] = b'G';
        assert!(refused(&KEY, plain).contains("no TLS record"));
        // A close_notify alert (section 6.1), whose sealed content type is alert.
        let (header, mut inner, mut tag) = ([DATA, 3, 3, 0, 3 + TAG as u8], [1, 0, 21], [0; TAG]);
        let mut cipher = Cipher::new(&KEY);
        let nonce = cipher.next();
        cipher.aes.encrypt(&nonce, &header, &mut inner, &mut tag);
        let mut alert = [&header[..], &inner, &tag].concat();
        let fault = Opener::new(&KEY).open(&mut alert).unwrap_err().to_string();
        assert!(fault.contains("another type"), "{fault}");
    }
}
