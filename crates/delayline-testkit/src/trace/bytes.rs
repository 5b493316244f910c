//! Arbitrary bytes as one word without spaces.

use std::fmt;

use ::bytes::Bytes;

/// Up to this length, repetitions are written out.
const SHORT: usize = 12;

/// The most bytes in one word: more than any limit of the contract.
const MOST: usize = 32 * 1024 * 1024;

/// Formats bytes as a word that [`decode`] reads.
pub(super) struct Word<'a>(pub(super) &'a [u8]);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [first, rest @ ..] = self.0
            && self.0.len() > SHORT
            && rest.iter().all(|byte| byte == first)
        {
            return write!(f, "{}*{}", Word(&[*first]), self.0.len());
        }
        for &byte in self.0 {
            if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Decodes a word, or says what is wrong with it.
pub(super) fn decode(word: &str) -> Result<Bytes, String> {
    let Some((unit, times)) = word.split_once('*') else {
        return Ok(unescape(word)?.into());
    };
    let unit = unescape(unit)?;
    let times: usize = times.parse().map_err(|_| format!("{times:?} is not a count"))?;
    if unit.len().saturating_mul(times) > MOST {
        return Err(format!("{word:?} stands for too many bytes"));
    }
    Ok(unit.repeat(times).into())
}

fn unescape(word: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("{word:?} has a % without two hex digits"))?);
        rest = tail.get(2..).unwrap_or_default();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn what_is_printed_is_read_back(bytes: Vec<u8>, byte: u8, times in 0_usize..100) {
            proptest::prop_assert_eq!(&decode(&Word(&bytes).to_string()).unwrap(), &bytes);
            let same = vec![byte; times];
            proptest::prop_assert_eq!(&decode(&Word(&same).to_string()).unwrap(), &same);
        }

        #[test]
        fn reading_is_total(word: String) {
            let _ = decode(&word);
        }
    }
}
