//! The serialized form of a snapshot: a version, when it was taken, the entries.
//!
//! The version is written first. A reader compares it before it reads anything else. So it refuses
//! a form that this code does not know, with an error that says so, in formats with and without
//! names of fields. If a format sorts the fields by name, that does no harm.

use super::{SavedEntry, Snapshot};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::{Duration, SystemTime};

/// The version that this code writes, and the only one that it reads.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(
    rename = "Snapshot",
    expecting = "a snapshot of a wheelhouse cache",
    deny_unknown_fields
)]
struct Form<Entries> {
    #[serde(deserialize_with = "known_version")]
    version: u32,
    /// Since 1970.
    taken_at: Duration,
    entries: Entries,
}

impl<K: Serialize, V: Serialize> Serialize for Snapshot<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A clock before 1970 counts as 1970: there the downtime is anyway not known.
        let taken_at = self.taken_at.duration_since(SystemTime::UNIX_EPOCH);
        let form = Form {
            version: VERSION,
            taken_at: taken_at.unwrap_or_default(),
            entries: &self.entries,
        };
        form.serialize(serializer)
    }
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Snapshot<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form: Form<Vec<SavedEntry<K, V>>> = Form::deserialize(deserializer)?;
        let Some(taken_at) = SystemTime::UNIX_EPOCH.checked_add(form.taken_at) else {
            return Err(D::Error::custom(format_args!(
                "taken_at is {:?} after 1970, which this system's clock cannot express",
                form.taken_at
            )));
        };
        Ok(Self {
            taken_at,
            entries: form.entries,
        })
    }
}

/// Reads the version, and refuses one that this code does not know.
fn known_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let version = u32::deserialize(deserializer)?;
    if version == VERSION {
        return Ok(version);
    }
    Err(D::Error::custom(format_args!(
        "the snapshot has format version {version}, but this version of wheelhouse reads {VERSION} only"
    )))
}
