//! The file of a snapshot: a line that says what it is, with a checksum, then postcard.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use wheelhouse::Snapshot;

use crate::market::Plan;

const NAME: &str = "wheelhouse example orders: state, version ";
const VERSION: u32 = 1;

/// An order that waits for its payment. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) placed: u64,
    pub(crate) due: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) plan: Plan,
    /// When the first run began, in nanoseconds since 1970.
    pub(crate) began: u64,
    /// The first journal whose lines the snapshot does not contain.
    pub(crate) journal: u64,
    pub(crate) orders: Snapshot<u32, Open>,
}

pub(crate) fn encode(saved: &Saved) -> Vec<u8> {
    let body = postcard::to_stdvec(saved).expect("a snapshot of numbers can be written");
    let sum = crc32fast::hash(&body);
    let mut bytes = format!("{NAME}{VERSION}, sum {sum:08x}\n").into_bytes();
    bytes.extend(body);
    bytes
}

/// The error says what is wrong with the file.
pub(crate) fn decode(bytes: &[u8]) -> Result<Saved, String> {
    let foreign = "is not a state of this example";
    let line = bytes.iter().take(100).position(|&byte| byte == b'\n');
    let line = line.ok_or(foreign)?;
    let head = std::str::from_utf8(&bytes[..line]).map_err(|_| foreign)?;
    let (version, sum) = head
        .strip_prefix(NAME)
        .and_then(|head| head.split_once(", sum "))
        .ok_or(foreign)?;
    if version != VERSION.to_string() {
        return Err(format!(
            "has version {version}, but this program reads version {VERSION} only"
        ));
    }
    let body = &bytes[line + 1..];
    if u32::from_str_radix(sum, 16) != Ok(crc32fast::hash(body)) {
        return Err("is damaged: its checksum does not match".into());
    }
    postcard::from_bytes(body).map_err(|error| {
        format!(
            "holds a snapshot that this version of the program and of wheelhouse cannot read: {error}"
        )
    })
}

/// `FILE.name`, for a file that belongs to the state.
pub(crate) fn beside(path: &Path, name: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".");
    beside.push(name);
    beside.into()
}

/// Replaces a file as a whole: a crash leaves the old one or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = beside(path, "new");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    sync_directory(path)
}

/// Makes what happened to the names in a file's directory survive a power failure.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> Saved {
        Saved {
            plan: Plan {
                orders: 7,
                seconds: 3,
            },
            began: 17,
            journal: 4,
            orders: Vec::new().into_iter().collect(),
        }
    }

    #[test]
    fn a_state_comes_back() {
        let saved = saved();
        assert_eq!(decode(&encode(&saved)).unwrap(), saved);
    }

    #[test]
    fn the_error_says_what_is_wrong() {
        let good = encode(&saved());
        let refused = |bytes: &[u8]| decode(bytes).unwrap_err();
        for at in good.len() - 5..good.len() {
            let mut changed = good.clone();
            changed[at] ^= 1;
            assert!(refused(&changed).contains("damaged"));
            assert!(refused(&good[..at]).contains("damaged"));
        }
        assert!(refused(b"").contains("not a state"));
        assert!(refused(&[0xff; 1000]).contains("not a state"));
        let text = String::from_utf8_lossy(&good).replace("version 1", "version 2");
        assert!(refused(text.as_bytes()).contains("version 2"));
        // A body that fits its checksum, and is not what this version writes.
        let body = [0xff; 9];
        let sum = crc32fast::hash(&body);
        let mut other = format!("{NAME}{VERSION}, sum {sum:08x}\n").into_bytes();
        other.extend(body);
        assert!(refused(&other).contains("cannot read"));
    }
}
