//! UNSAFE.md lists where unsafe code is, and what it relies on: every file that has some, and no
//! other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Folders of tests are listed as such, not file by file.
const FOLDERS: [&str; 1] = ["models/loom/"];

/// Whether the code after `unsafe`, outside of comments, begins unsafe code or an unsafe attribute.
fn has_unsafe_code(text: &str) -> bool {
    text.lines().any(|line| {
        let code = line.split("//").next().unwrap_or_default();
        code.split("unsafe").skip(1).any(|rest| {
            ["{", "(", "fn ", "impl", "trait ", "extern "]
                .into_iter()
                .any(|begins| rest.trim_start().starts_with(begins))
        })
    })
}

/// Files below `folder` with unsafe code, by their paths from the repository's root. A package may
/// lack some of its folders.
fn collect(root: &Path, folder: &str, found: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(root.join(folder)) else {
        return;
    };
    for entry in entries {
        let entry = entry.expect("an entry");
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(root, &path, found);
        } else if path.ends_with(".rs")
            && has_unsafe_code(&fs::read_to_string(entry.path()).expect("text"))
        {
            let of_folder = FOLDERS.iter().find(|folder| path.starts_with(**folder));
            found.insert(of_folder.map_or(path.clone(), ToString::to_string));
        }
    }
}

#[test]
fn unsafe_code_is_distinguished_from_comments() {
    // Put together here, otherwise this file would count as one with such code.
    let keyword = "unsafe";
    for rest in [
        " { f() }",
        "{f()}",
        " fn f() {}",
        " impl Send for X {}",
        "(no_mangle)]",
        " extern \"C\" {",
    ] {
        assert!(has_unsafe_code(&format!("pub {keyword}{rest}")), "{rest}");
        assert!(!has_unsafe_code(&format!("// {keyword}{rest}")), "{rest}");
    }
    for talk in ["_code)]", " block", "ty"] {
        assert!(!has_unsafe_code(&format!("{keyword}{talk}")), "{talk}");
    }
}

#[test]
fn the_list_names_every_file_with_unsafe_code_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut there = BTreeSet::new();
    collect(root, "src", &mut there);
    for folder in [
        "tests",
        "examples",
        "fuzz/fuzz_targets",
        "fuzz/private",
        "fuzz/src",
        "checks",
        "models",
    ] {
        collect(root, folder, &mut there);
    }
    assert!(there.contains("src/node/slab.rs"), "{there:?}");

    let list = fs::read_to_string(root.join("UNSAFE.md")).expect("UNSAFE.md");
    let rows = list.lines().filter(|line| line.starts_with("| "));
    let listed: BTreeSet<String> = rows
        // The first column; in it, the text between two backticks.
        .flat_map(|row| {
            row.split('|')
                .nth(1)
                .unwrap_or_default()
                .split('`')
                .skip(1)
                .step_by(2)
        })
        .map(|name| match name.split_once('/') {
            Some(("src" | "tests" | "benches" | "checks" | "fuzz" | "models", _)) => {
                name.to_owned()
            }
            _ => format!("src/{name}"),
        })
        .filter(|path| path != "benches/")
        .collect();
    assert_eq!(listed, there);
}
