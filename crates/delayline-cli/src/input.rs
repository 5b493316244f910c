//! Files of JSON lines: one message each.

mod ids;
mod lines;
mod reader;

pub(crate) use self::ids::{ids, ids_of_file};
pub(crate) use self::reader::{Item, messages, new_id, read};
