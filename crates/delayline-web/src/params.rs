//! What the query of a URL or a form says.

use percent_encoding::percent_decode;

/// Names and values in order. Values are bytes, because ids are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(Vec<(String, Vec<u8>)>);

impl Params {
    /// Reads `a=1&b=2`.
    pub(crate) fn read(text: &[u8]) -> Self {
        let pairs = text.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty());
        Self(pairs.map(pair).collect())
    }

    /// The first value of a name.
    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The first value of a name, if it is text and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let text = std::str::from_utf8(self.bytes(name)?).ok()?.trim();
        Some(text).filter(|text| !text.is_empty())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// All values of a name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| &value[..])
    }
}

fn pair(text: &[u8]) -> (String, Vec<u8>) {
    let end = text.iter().position(|&byte| byte == b'=').unwrap_or(text.len());
    let value = text.get(end + 1..).unwrap_or_default();
    (String::from_utf8_lossy(&decoded(&text[..end])).into_owned(), decoded(value))
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = text.iter().map(|&it| if it == b'+' { b' ' } else { it }).collect();
    percent_decode(&spaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bytes_and_the_first_one_counts() {
        let params = Params::read(b"id=%ff%00+x&a=&&id=2&b&%61=3&=4");
        assert_eq!(params.bytes("id"), Some(&b"\xff\0 x"[..]));
        assert_eq!(params.all("id").count(), 2);
        assert_eq!((params.text("a"), params.text("b"), params.text("id")), (None, None, None));
        assert_eq!(params.all("a").nth(1), Some(&b"3"[..]));
        assert!(Params::read(b"").bytes("").is_none());
    }
}
