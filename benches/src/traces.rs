//! Access traces: their names in the tables, and the keys that each asks for.

use std::{
    collections::HashSet,
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use wheelhouse_examples::trace;

/// One trace that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name in the tables.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

/// One trace, read.
#[derive(Debug)]
pub struct Trace {
    /// The keys, in the order in which they are asked for.
    pub keys: Vec<u64>,
    /// When each is asked for, if the trace says so; counted from the first request.
    pub times: Option<Vec<Duration>>,
    /// How many keys are different.
    pub distinct: usize,
}

/// The traces among `named`, files or folders; without any, those of the default folder.
pub fn find(named: &[PathBuf]) -> Result<Vec<Found>, String> {
    let files = trace::files(named)?;
    let found = files.into_iter().map(|path| Found {
        name: name_of(&path),
        path,
    });
    Ok(found.collect())
}

/// The file's name without endings, and with the folder before it where the file alone would not
/// tell what it is.
fn name_of(path: &Path) -> String {
    let text = |name: &std::ffi::OsStr| name.to_string_lossy().into_owned();
    let file = path.file_name().map(text).unwrap_or_default();
    let stem = file.split('.').next().unwrap_or_default();
    let folder = path.parent().and_then(Path::file_name).map(text);
    match (stem, folder.as_deref()) {
        ("cloudPhysicsIO-us", _) => "cloudphysics".to_owned(),
        (stem, Some("lirs")) => format!("lirs-{stem}"),
        (stem, _) => stem.to_owned(),
    }
}

impl Trace {
    /// Reads a file, plain or compressed.
    pub fn read(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let (mut keys, mut times) = (Vec::new(), Vec::new());
        let mut first = None;
        for request in trace::requests(file, None)? {
            let request = request?;
            keys.push(request.key);
            times.extend(request.at.map(|at| {
                let first = *first.get_or_insert(at);
                at.saturating_sub(first)
            }));
        }
        let count = keys.len();
        Ok(Self {
            distinct: keys.iter().collect::<HashSet<_>>().len(),
            keys,
            times: (times.len() == count).then_some(times),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_they_are() {
        let name = |path| name_of(Path::new(path));
        assert_eq!(name("a/lirs/loop.trace.gz"), "lirs-loop");
        assert_eq!(name("a/arc/OLTP.lis.zst"), "OLTP");
        assert_eq!(
            name("cloudphysics/cloudPhysicsIO-us.csv.zst"),
            "cloudphysics"
        );
    }
}
