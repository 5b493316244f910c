//! Files of JSON lines: one message each.

mod fields;
mod ids;
mod lines;
mod reader;

pub(crate) use self::fields::Fields;
pub(crate) use self::ids::{ids, ids_of_file};
pub(crate) use self::reader::{Item, messages, new_id, read};
