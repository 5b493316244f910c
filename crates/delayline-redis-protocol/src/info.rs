//! The text of `INFO`, and of commands that reply alike: `NAME:VALUE` in lines.

use std::collections::BTreeMap;

/// Names and values, as `INFO` and `CONFIG GET` have them.
pub type Fields = BTreeMap<String, String>;

/// All fields.
pub(crate) fn fields_of(text: &str) -> Fields {
    lines(text).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The value of one field.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    lines(text).find_map(|(known, value)| (known == name).then_some(value))
}

fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_one_by_one_and_all_at_once() {
        let text = "# Server\r\nrun_id:abc\r\nslave0:ip=::1,port=1\r\nempty:\r\n";
        assert_eq!(field(text, "run_id"), Some("abc"));
        assert_eq!(field(text, "run"), None);
        let all = fields_of(text);
        assert_eq!(all.len(), 3, "{all:?}");
        assert_eq!((&*all["slave0"], &*all["empty"]), ("ip=::1,port=1", ""));
    }
}
