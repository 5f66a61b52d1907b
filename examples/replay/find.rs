//! Which traces to replay: the ones named, or the ones in the default folder.

use std::fs;
use std::path::{Path, PathBuf};

/// Looked into when no file is named, and for a file that is not found where it was named.
const DEFAULT_FOLDER: &str = "../shared/data/traces";

/// Files in a folder that are taken for traces.
const ENDINGS: [&str; 11] = [
    ".trace",
    ".trace.gz",
    ".trace.xz",
    ".trace.zst",
    ".lis",
    ".lis.gz",
    ".lis.zst",
    ".csv",
    ".csv.gz",
    ".csv.xz",
    ".csv.zst",
];

pub(crate) fn traces(named: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    traces_with_default(named, Path::new(DEFAULT_FOLDER))
}

fn traces_with_default(named: &[PathBuf], default: &Path) -> Result<Vec<PathBuf>, String> {
    if named.is_empty() && !default.is_dir() {
        return Err(format!(
            "no trace named, and the default folder {} does not exist; name a FILE, or try --generate 200000",
            default.display()
        ));
    }
    let whole_default = [default.to_owned()];
    let mut found = Vec::new();
    for path in if named.is_empty() {
        &whole_default
    } else {
        named
    } {
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
                    "no trace in the folder {}; a trace's name ends in one of {}",
                    path.display(),
                    ENDINGS.join(" ")
                ));
            }
        } else if path.exists() {
            found.push(path.clone());
        } else {
            return Err(format!(
                "no file {}, neither there nor in {}; name an existing FILE",
                path.display(),
                default.display()
            ));
        }
    }
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            collect(&entry, found)?;
        } else if ENDINGS
            .iter()
            .any(|ending| entry.to_string_lossy().ends_with(ending))
        {
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
        let none_named = traces_with_default(&[], nowhere).unwrap_err();
        assert!(
            none_named.contains("no/such/folder") && none_named.contains("FILE"),
            "{none_named}"
        );
        let missing = traces_with_default(&["no-such.trace".into()], nowhere).unwrap_err();
        assert!(missing.contains("no-such.trace"), "{missing}");
    }
}
