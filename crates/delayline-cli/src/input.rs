//! Files of JSON lines: one message each.

mod fields;
mod lines;
mod reader;

pub(crate) use self::fields::Fields;
pub(crate) use self::reader::{Item, new_id, read};
