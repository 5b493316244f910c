//! Files of JSON lines: one message each.

mod complaints;
mod ids;
mod lines;
mod reader;

pub(crate) use self::complaints::Complaints;
pub(crate) use self::ids::{ids, ids_of_file};
pub(crate) use self::reader::{Item, messages, new_id, read};
