//! JSON objects in which each name stands once.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

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

/// Reads JSON in which each object, however deep, has each name once. [`Value`] alone would keep
/// the last of several members, and drop the others.
///
/// # Errors
///
/// The reason and its place, in words: it is not JSON, or a name that appears more than once. No
/// value is repeated.
pub fn distinct(json: &[u8]) -> Result<Value, String> {
    let Distinct = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

/// Any JSON without a name that stands twice in its object. Its values are read apart from it:
/// numbers of arbitrary precision would look like objects here.
struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Distinct {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if names.contains(&name) {
                let twice = format!("the field {} appears more than once", quoted(&name));
                return Err(A::Error::custom(twice));
            }
            map.next_value::<Self>()?;
            names.insert(name);
        }
        Ok(self)
    }
}
