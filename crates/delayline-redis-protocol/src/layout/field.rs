//! The fields of stored structures.

use bytes::{Buf, BufMut, Bytes};

/// The type of a field. Integers are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An integer of 1 byte.
    U8,
    /// An integer of 2 bytes.
    U16,
    /// An integer of 4 bytes.
    U32,
    /// An integer of 8 bytes.
    U64,
    /// Milliseconds since 1970, or a number of milliseconds, in 6 bytes.
    Instant,
    /// A fixed number of bytes.
    Bytes(usize),
    /// Reserved bytes: written as 0, never read.
    Spare(usize),
    /// Bytes whose number is in another field, or all bytes that remain.
    Rest,
}

impl Kind {
    /// Returns the number of its bytes, which is 0 for [`Rest`](Self::Rest).
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 => 4,
            Self::U64 => 8,
            Self::Instant => 6,
            Self::Bytes(bytes) | Self::Spare(bytes) => bytes,
            Self::Rest => 0,
        }
    }
}

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Field {
    /// Its name, in capitals.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Number of bytes in front of it, or `None` if that varies.
    pub offset: Option<usize>,
    /// The condition under which it is present. Empty if it always is.
    pub condition: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
}

impl Field {
    /// Returns the integer in this field of `bytes`, or `None` if they end before it does, or if
    /// its offset varies.
    #[must_use]
    pub fn read(&self, bytes: &[u8]) -> Option<u64> {
        self.take(&mut bytes.get(self.offset?..)?)
    }

    /// Takes this field, as an integer, from the start of `bytes`. Returns `None` if they are too
    /// short, or if the field is not an integer.
    #[must_use]
    pub fn take(&self, bytes: &mut impl Buf) -> Option<u64> {
        let width = self.kind.bytes();
        if (1..=size_of::<u64>()).contains(&width) { bytes.try_get_uint(width).ok() } else { None }
    }

    /// Appends this field to `bytes`. A number that does not fit becomes the largest that does.
    /// Within the limits of operations, every number fits.
    pub fn put(&self, bytes: &mut Vec<u8>, number: u64) {
        let width = self.kind.bytes();
        let digits = width.min(size_of::<u64>());
        let most = match digits {
            0 => 0,
            digits => u64::MAX >> (8 * (size_of::<u64>() - digits)),
        };
        bytes.put_bytes(0, width - digits);
        bytes.put_uint(number.min(most), digits);
    }

    /// Returns the bytes of this field, or `None` if they end before it does, or if its offset
    /// varies.
    #[must_use]
    pub fn slice(&self, bytes: &Bytes) -> Option<Bytes> {
        let offset = self.offset?;
        let end = offset + self.kind.bytes();
        (end <= bytes.len()).then(|| bytes.slice(offset..end))
    }
}

/// A structure, field by field.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Structure {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// The values in Redis that have this form.
    pub place: &'static str,
    /// Its fields, in order.
    pub fields: &'static [Field],
    /// Adjacent fields that are read as one: a name, the first field and the last.
    pub groups: &'static [(&'static str, Field, Field)],
}

impl Structure {
    /// Returns its minimum number of bytes: those of the leading fields that are always present.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        let (mut bytes, mut n) = (0, 0);
        while n < self.fields.len() {
            let field = self.fields[n];
            if !field.condition.is_empty() || matches!(field.kind, Kind::Rest) {
                break;
            }
            bytes += field.kind.bytes();
            n += 1;
        }
        bytes
    }

    /// Returns the bytes behind these fields, or `None` if there are too few bytes.
    pub(crate) fn rest(&self, bytes: &Bytes) -> Option<Bytes> {
        (self.bytes() <= bytes.len()).then(|| bytes.slice(self.bytes()..))
    }
}

/// Fields as they are declared: name, kind, condition, meaning.
pub(super) type Declared = (&'static str, Kind, &'static str, &'static str);

/// Computes the offset of each field.
pub(super) const fn fields<const N: usize>(declared: [Declared; N]) -> [Field; N] {
    let none = Field { name: "", kind: Kind::Rest, offset: None, condition: "", meaning: "" };
    let (mut fields, mut next, mut n) = ([none; N], Some(0), 0);
    while n < N {
        let (name, kind, condition, meaning) = declared[n];
        fields[n] = Field { name, kind, offset: next, condition, meaning };
        next = match (next, kind) {
            (None, _) | (_, Kind::Rest) => None,
            (Some(offset), kind) => Some(offset + kind.bytes()),
        };
        // The offset of a field varies if the field in front may be absent on its own.
        if n + 1 < N && !condition.is_empty() && !same(condition, declared[n + 1].2) {
            next = None;
        }
        n += 1;
    }
    fields
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut n = 0;
    while n < one.len() && n < other.len() && one[n] == other[n] {
        n += 1;
    }
    n == one.len() && n == other.len()
}

/// Declares a module with a constant for each field, and `STRUCTURE` for all of them.
macro_rules! structure {
    (
        $(#[doc = $about:literal])+
        $name:ident in $place:literal {
            $(
                $field:ident: $kind:ident $(($bytes:expr))? $(if $condition:literal)?,
                $meaning:literal;
            )+
        }
        groups { $($group:ident: $first:ident to $last:ident;)* }
    ) => {
        $(#[doc = $about])+
        pub mod $name {
            use super::{Field, Kind, Structure, fields};

            #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "names of fields")]
            enum Number { $($field),+ }

            const FIELDS: &[Field] = &fields([
                $((
                    stringify!($field),
                    Kind::$kind $(($bytes))?,
                    concat!("", $($condition)?),
                    $meaning,
                )),+
            ]);

            $(
                #[doc = $meaning]
                pub const $field: Field = FIELDS[Number::$field as usize];
            )+

            /// The structure as a whole.
            pub const STRUCTURE: Structure = Structure {
                name: stringify!($name),
                about: concat!($($about),+),
                place: $place,
                fields: FIELDS,
                groups: &[$((stringify!($group), $first, $last)),*],
            };

            /// Its minimum length in bytes.
            pub const BYTES: usize = STRUCTURE.bytes();
        }
    };
}
pub(super) use structure;

#[cfg(test)]
mod tests {
    use crate::layout::{STRUCTURES, details, journal, record};

    #[test]
    fn offsets_follow_from_the_fields_in_front() {
        assert_eq!((record::FORM.offset, record::BYTES), (Some(22), 23));
        assert_eq!((record::GROUP_LENGTH.offset, record::MAX_CRASHES.offset), (Some(35), None));
        assert_eq!((details::CRASHES.offset, details::BYTES), (Some(56), 66));
        assert_eq!((journal::LENGTHS.offset, journal::IDS.offset), (Some(18), None));
    }

    #[test]
    fn a_field_reads_what_it_puts() {
        for field in STRUCTURES.iter().flat_map(|structure| structure.fields) {
            let mut bytes = Vec::new();
            field.put(&mut bytes, 200);
            assert_eq!(bytes.len(), field.kind.bytes());
            let is_number = (1..=8).contains(&bytes.len());
            assert_eq!(field.take(&mut &bytes[..]), is_number.then_some(200), "{field:?}");
        }
    }
}
