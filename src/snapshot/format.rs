//! The serialized form of a snapshot: a version, when it was taken, the entries.
//!
//! The version is written first. A reader compares it before it reads anything else. So it refuses
//! a form that this code does not know, with an error that says so, in formats with and without
//! names of fields. If a format sorts the fields by name, that does no harm.

use super::{SavedEntry, Snapshot};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

/// The version that this code writes, and the only one that it reads.
const VERSION: u32 = 1;
const NAME: &str = "Snapshot";
const FIELDS: &[&str] = &["version", "taken_at", "entries"];

impl<K: Serialize, V: Serialize> Serialize for Snapshot<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A clock before 1970 counts as 1970: there the downtime is anyway not known.
        let taken_at = self.taken_at.duration_since(SystemTime::UNIX_EPOCH);
        let mut fields = serializer.serialize_struct(NAME, FIELDS.len())?;
        fields.serialize_field("version", &VERSION)?;
        fields.serialize_field("taken_at", &taken_at.unwrap_or_default())?;
        fields.serialize_field("entries", &self.entries)?;
        fields.end()
    }
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Snapshot<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct(NAME, FIELDS, Fields(PhantomData))
    }
}

/// Refuses a version that this code does not know.
fn check<E: Error>(version: u32) -> Result<(), E> {
    if version == VERSION {
        return Ok(());
    }
    Err(E::custom(format_args!(
        "the snapshot has format version {version}, but this version of wheelhouse reads {VERSION} only"
    )))
}

struct Fields<K, V>(PhantomData<fn() -> (K, V)>);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Version,
    TakenAt,
    Entries,
}

impl<K, V> Fields<K, V> {
    fn snapshot<E: Error>(
        taken_at: Duration,
        entries: Vec<SavedEntry<K, V>>,
    ) -> Result<Snapshot<K, V>, E> {
        let taken_at = SystemTime::UNIX_EPOCH
            .checked_add(taken_at)
            .ok_or_else(|| {
                E::custom(format_args!(
                    "taken_at is {taken_at:?} after 1970, which this system's clock cannot express"
                ))
            })?;
        Ok(Snapshot { taken_at, entries })
    }
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for Fields<K, V> {
    type Value = Snapshot<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snapshot of a wheelhouse cache")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let missing = |at| A::Error::invalid_length(at, &"version, taken_at and entries");
        check(seq.next_element()?.ok_or_else(|| missing(0))?)?;
        let taken_at = seq.next_element()?.ok_or_else(|| missing(1))?;
        let entries = seq.next_element()?.ok_or_else(|| missing(2))?;
        Self::snapshot(taken_at, entries)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut version, mut taken_at, mut entries) = (None, None, None);
        while let Some(field) = map.next_key()? {
            match field {
                Field::Version => {
                    check(map.next_value()?)?;
                    version = Some(());
                }
                Field::TakenAt => taken_at = Some(map.next_value()?),
                Field::Entries => entries = Some(map.next_value()?),
            }
        }
        version.ok_or_else(|| A::Error::missing_field("version"))?;
        Self::snapshot(
            taken_at.ok_or_else(|| A::Error::missing_field("taken_at"))?,
            entries.ok_or_else(|| A::Error::missing_field("entries"))?,
        )
    }
}
