//! What the query of a URL or a form says.

use percent_encoding::percent_decode;

use crate::failure::{Failure, unknown};

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

    /// The values of a name, untrimmed. [`only`](Self::only) has refused values that are not text.
    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.all(name).filter_map(|value| std::str::from_utf8(value).ok())
    }

    /// Refuses other names than these: a misspelt name would be ignored, and the answer would be
    /// about something else. A name that ends with `*` may be given several times. Values are
    /// text, except for ids.
    pub(crate) fn only(
        self,
        owner: &str,
        kind: &str,
        names: impl Iterator<Item = &'static str> + Clone,
    ) -> Result<Self, Failure> {
        let plain = |name: &'static str| name.strip_suffix('*').unwrap_or(name);
        for (given, value) in &self.0 {
            let Some(name) = names.clone().find(|name| plain(name) == given) else {
                return Err(Failure::Wrong(unknown(owner, kind, given, names.map(plain))));
            };
            if plain(name) == name && self.all(given).count() > 1 {
                return Err(Failure::Wrong(format!("{owner} has `{given}` more than once")));
            }
            if given != "id" && std::str::from_utf8(value).is_err() {
                return Err(Failure::Wrong(format!("`{given}` must be text in UTF-8")));
            }
        }
        Ok(self)
    }

    /// The value of a name that a form has in two fields, to type it in or to pick it.
    pub(crate) fn typed_or_picked(&self, name: &str) -> Result<Option<String>, Failure> {
        let texts = self.texts(name).map(|text| text.trim().to_owned());
        let mut texts = texts.filter(|text| !text.is_empty());
        let text = texts.next();
        match texts.next() {
            None => Ok(text),
            Some(_) => Err(Failure::Wrong(format!("`{name}` is given more than once"))),
        }
    }

    /// The same, if the first field shows the value of the page before: a picked value counts.
    pub(crate) fn picked_or_typed(&self, name: &str) -> Option<&str> {
        self.texts(name).map(str::trim).filter(|text| !text.is_empty()).last()
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

    #[test]
    fn each_name_is_known_and_given_once() {
        let only = |query: &str, names: &[&'static str]| {
            let params = Params::read(query.as_bytes());
            let params = params.only("the URL", "parameter", names.iter().copied());
            params.map(|_| ()).map_err(|failure| failure.detail())
        };
        let names = ["state", "limit", "id", "reason*"];
        assert_eq!(only("", &names), Ok(()));
        assert_eq!(only("limit=1&%73tate=&&id=%ff&reason=a&reason=a", &names), Ok(()));
        for (query, names, why) in [
            ("limit=1&limit=1", &names[..], "the URL has `limit` more than once"),
            ("state=%ff", &names, "`state` must be text in UTF-8"),
            ("reason=a&reason=%ff", &names, "`reason` must be text in UTF-8"),
            ("=1", &names[..1], "the URL has the unknown parameter \"\"; it may have state"),
            (
                "reason*=1",
                &names,
                "the URL has the unknown parameter \"reason*\"; it may have state, limit, id, reason",
            ),
            ("delay=5s", &[], "the URL has the unknown parameter \"delay\"; it may have none"),
        ] {
            assert_eq!(only(query, names), Err(why.to_owned()), "{query}");
        }
        let typed = |query: &str| {
            let params = Params::read(query.as_bytes());
            params.typed_or_picked("when").map_err(|failure| failure.detail())
        };
        assert_eq!(typed("when=&when=+14:00"), Ok(Some("14:00".to_owned())));
        assert_eq!(typed("when=&when="), Ok(None));
        assert_eq!(typed("when=1s&when=1s"), Err("`when` is given more than once".to_owned()));
    }
}
