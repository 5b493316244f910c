//! JSON objects in which each name stands once.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::text::quoted;

/// The members of a JSON object, in order, before it is known whether their names differ.
pub struct Object<V>(pub(crate) Vec<(String, V)>);

impl<V> Object<V> {
    /// Returns the members.
    ///
    /// # Errors
    ///
    /// A name that appears more than once, in words.
    pub fn members(self) -> Result<Vec<(String, V)>, String> {
        let mut names: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("the field {} appears more than once", quoted(pair[0]))),
            None => Ok(self.0),
        }
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Object<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Members<V> {
            type Value = Object<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<V>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}
