//! Access traces: which files there are, and the keys that each asks for.
//!
//! Both the compression and the format are told from the first bytes, not from the name. Only keys are kept: time stamps and operations
//! play no part in a hit ratio.

mod format;
mod unpack;

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Looked into when no path is given; relative to the root of the repository.
pub const DEFAULT_FOLDER: &str = "../shared/data/traces";

/// What a trace's name may end in, before the ending of its compression.
const ENDINGS: [&str; 3] = [".trace", ".lis", ".csv"];
/// Endings of compressed files.
const PACKED: [&str; 3] = [".gz", ".xz", ".zst"];

/// The keys of one trace, in the order in which they are asked for.
#[derive(Debug)]
pub struct Trace {
    /// Each key.
    pub keys: Vec<u64>,
    /// How many of them are different.
    pub distinct: usize,
}

/// One trace that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name in the tables: the file's without endings, and with the folder before it where the file alone would not tell.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

/// The folder of traces beside the repository, if it is there.
pub fn default_folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(DEFAULT_FOLDER);
    [Path::new(DEFAULT_FOLDER).to_owned(), beside]
        .into_iter()
        .find(|folder| folder.is_dir())
}

/// The traces under `path`, a file or a folder, by name.
pub fn find(path: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    if path.is_dir() {
        collect(path, &mut found)?;
    } else {
        File::open(path)?;
        found.push(named(path));
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<Found>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if is_trace(&path.to_string_lossy()) {
            found.push(named(&path));
        }
    }
    Ok(())
}

fn is_trace(name: &str) -> bool {
    ENDINGS.iter().any(|ending| bare(name).ends_with(ending))
}

/// Without the ending of a compression.
fn bare(name: &str) -> &str {
    PACKED
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(name)
}

fn named(path: &Path) -> Found {
    let file = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let bare = bare(&file);
    let stem = ENDINGS
        .iter()
        .find_map(|ending| bare.strip_suffix(ending))
        .unwrap_or(bare);
    let folder = path.parent().and_then(Path::file_name);
    let name = match (stem, folder) {
        ("cloudPhysicsIO-us", _) => "cloudphysics".to_owned(),
        (stem, Some(folder)) if folder == "lirs" => format!("lirs-{stem}"),
        (stem, _) => stem.to_owned(),
    };
    Found {
        name,
        path: path.to_owned(),
    }
}

impl Trace {
    /// Reads a file, plain or compressed.
    pub fn read(path: &Path) -> io::Result<Self> {
        Self::parse(File::open(path)?)
    }

    fn parse(raw: impl Read + 'static) -> io::Result<Self> {
        let mut text = Vec::new();
        unpack::unpacked(raw)?.read_to_end(&mut text)?;
        let keys = format::keys(&text)?;
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        sorted.dedup();
        Ok(Self {
            keys,
            distinct: sorted.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_they_are() {
        let name = |path| named(Path::new(path)).name;
        assert_eq!(name("a/lirs/loop.trace.gz"), "lirs-loop");
        assert_eq!(name("a/arc/OLTP.lis.zst"), "OLTP");
        assert_eq!(
            name("a/cloudphysics/cloudPhysicsIO-us.csv.zst"),
            "cloudphysics"
        );
        assert!(is_trace("web07.trace.xz") && is_trace("x.csv"));
        assert!(!is_trace("README.md") && !is_trace("LICENSE.txt"));
    }

    #[test]
    fn a_trace_counts_its_keys() {
        let trace = Trace::parse(&b"1\n2\n\n*\n1\n"[..]).unwrap();
        assert_eq!((trace.keys, trace.distinct), (vec![1, 2, 1], 2));
    }
}
