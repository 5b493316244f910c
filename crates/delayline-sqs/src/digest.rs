//! The MD5 digests by which SDKs check the messages that they send and receive.

use md5::{Digest as _, Md5};

use crate::attributes::{Attribute, Attributes, Content};

/// The digest of a body.
pub(crate) fn of_body(body: &str) -> String {
    hex(&Md5::digest(body.as_bytes()))
}

/// The digest of attributes, sorted by name; `None` if there are none: then an answer has neither
/// them nor the digest.
pub(crate) fn of_attributes(attributes: &Attributes) -> Option<String> {
    if attributes.is_empty() {
        return None;
    }
    let mut md5 = Md5::new();
    let mut part = |bytes: &[u8], marker: Option<u8>| {
        if let Some(marker) = marker {
            md5.update([marker]);
        }
        md5.update(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        md5.update(bytes);
    };
    for (name, Attribute { data_type, content }) in attributes {
        part(name.as_bytes(), None);
        part(data_type.as_bytes(), None);
        match content {
            Content::Text(text) => part(text.as_bytes(), Some(1)),
            Content::Binary(bytes) => part(bytes, Some(2)),
        }
    }
    Some(hex(&md5.finalize()))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let digit = |four: u8| char::from_digit(u32::from(four), 16).unwrap_or('0');
        text.extend([digit(byte >> 4), digit(byte & 15)]);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_md5_of_its_bytes() {
        assert_eq!(of_body(""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(of_body("hello"), "5d41402abc4b2a76b9719d911017c592");
    }

    #[test]
    fn attributes_are_sorted_and_have_their_whole_types() {
        assert_eq!(of_attributes(&Attributes::new()), None);
        let text = |data_type: &str, text: &str| Attribute {
            data_type: data_type.to_owned(),
            content: Content::Text(text.to_owned()),
        };
        let digest = |pairs: &[(&str, Attribute)]| {
            let map = pairs.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect();
            of_attributes(&map).unwrap()
        };
        let (one, two) = (("a", text("String", "x")), ("b", text("Number.int", "1")));
        assert_eq!(digest(&[one.clone(), two.clone()]), digest(&[two.clone(), one]));
        // The same, written out by hand.
        let mut bytes = Vec::new();
        for part in ["b", "Number.int"] {
            bytes.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes.extend([1, 0, 0, 0, 1, b'1']);
        assert_eq!(digest(&[two]), hex(&Md5::digest(&bytes)));
    }
}
