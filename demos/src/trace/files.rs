//! Which files are traces: the ones named, or the ones in the default folder.

use std::fs;
use std::path::{Path, PathBuf};

/// Searched when no file is named, and for a file that is not found where it was named.
pub const DEFAULT_FOLDER: &str = "../shared/data/traces";

/// Files in a folder that are taken for traces.
const ENDINGS: [&str; 3] = [".trace", ".lis", ".csv"];
/// Endings of compressed files.
const PACKED: [&str; 3] = [".gz", ".xz", ".zst"];

/// The trace files among `named`, which may be files or folders. Without any name: those of the
/// default folder.
pub fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    files_with_default(named, Path::new(DEFAULT_FOLDER))
}

fn files_with_default(named: &[PathBuf], default: &Path) -> Result<Vec<PathBuf>, String> {
    if named.is_empty() && !default.is_dir() {
        return Err(format!(
            "no trace was named, and the default folder {} does not exist",
            default.display()
        ));
    }
    let whole_default = [default.to_owned()];
    let named = if named.is_empty() {
        &whole_default
    } else {
        named
    };
    let mut found = Vec::new();
    for path in named {
        let in_default = default.join(path);
        let path = if !path.exists() && in_default.exists() {
            &in_default
        } else {
            path
        };
        if path.is_dir() {
            let before = found.len();
            collect(path, &mut found)
                .map_err(|error| format!("cannot read the folder {}: {error}", path.display()))?;
            if found.len() == before {
                return Err(format!(
                    "no trace in the folder {}; a trace's name ends in {}, perhaps followed by {}",
                    path.display(),
                    ENDINGS.join(", "),
                    PACKED.join(", ")
                ));
            }
        } else if path.exists() {
            found.push(path.clone());
        } else {
            return Err(format!(
                "there is no file {}, and none of that name in {}",
                path.display(),
                default.display()
            ));
        }
    }
    Ok(found)
}

fn is_trace(name: &str) -> bool {
    let mut packed = PACKED.iter();
    let bare = packed.find_map(|ending| name.strip_suffix(ending));
    let bare = bare.unwrap_or(name);
    ENDINGS.iter().any(|ending| bare.ends_with(ending))
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            collect(&entry, found)?;
        } else if is_trace(&entry.to_string_lossy()) {
            found.push(entry);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_missing() {
        let nowhere = Path::new("no/such/folder");
        let none_named = files_with_default(&[], nowhere).unwrap_err();
        assert!(none_named.contains("no/such/folder"), "{none_named}");
        let missing = files_with_default(&["no-such.trace".into()], nowhere).unwrap_err();
        assert!(missing.contains("no-such.trace"), "{missing}");
    }

    #[test]
    fn traces_are_known_by_their_endings() {
        assert!(is_trace("web07.trace.xz") && is_trace("x.csv") && is_trace("P3.lis.zst"));
        assert!(!is_trace("README.md") && !is_trace("LICENSE.txt"));
    }
}
