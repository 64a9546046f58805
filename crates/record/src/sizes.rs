//! Sizes of messages: a single one, or several by weight.

use super::joined;
use super::unit::{self, bytes};
use std::fmt;
use std::str::FromStr;

/// Sizes in bytes, each with its weight, as typed: `64`, or `64@90+16K@9+1M@1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(Vec<(u64, u32)>);

impl Sizes {
    /// Largest sum of the weights.
    pub const WEIGHTS: u32 = 4096;

    /// One size.
    pub fn one(size: u64) -> Sizes {
        Sizes(vec![(size, 1)])
    }

    /// Bytes and weight of each.
    pub fn all(&self) -> &[(u64, u32)] {
        &self.0
    }

    pub fn smallest(&self) -> u64 {
        self.0.iter().map(|(size, _)| *size).min().unwrap_or(0)
    }

    pub fn largest(&self) -> u64 {
        self.0.iter().map(|(size, _)| *size).max().unwrap_or(0)
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let Some(_) = text.find(['@', '+']) else {
            return Ok(Sizes::one(unit::parse_bytes(text)?));
        };
        let part = |part: &str| {
            let (size, weight) =
                part.split_once('@').ok_or_else(|| format!("'{part}' is not SIZE@WEIGHT"))?;
            let weight = weight.parse().ok().filter(|weight| *weight > 0);
            let weight = weight.ok_or_else(|| format!("'{part}' has no whole number as weight"))?;
            Ok((unit::parse_bytes(size)?, weight))
        };
        let all: Vec<(u64, u32)> = text.split('+').map(part).collect::<Result<_, String>>()?;
        let sum: u64 = all.iter().map(|(_, weight)| u64::from(*weight)).sum();
        if sum > u64::from(Sizes::WEIGHTS) {
            return Err(format!("the weights of '{text}' are more than {}", Sizes::WEIGHTS));
        }
        Ok(Sizes(all))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0[..] {
            [(size, _)] => f.write_str(&bytes(size)),
            ref all => {
                let part = |(size, weight): &(u64, u32)| format!("{}@{weight}", bytes(*size));
                f.write_str(&joined(all.iter().map(part), "+"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_weights() {
        let sizes: Sizes = "64@90+16K@9+1M@1".parse().unwrap();
        assert_eq!(sizes.all(), [(64, 90), (16 << 10, 9), (1 << 20, 1)]);
        assert_eq!((sizes.smallest(), sizes.largest()), (64, 1 << 20));
        for text in ["64", "16K", "64@90+16K@9+1M@1"] {
            assert_eq!(text.parse::<Sizes>().unwrap().to_string(), text);
        }
        for wrong in
            ["", "64@", "64@0", "64@-1", "@1", "64@1+", "64+16K", "64@1+x@1", "1@4000+2@97"]
        {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
    }
}
