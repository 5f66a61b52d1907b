//! Imports run one way: a module of the crate names modules of earlier groups of `src/lib.rs` only.
//! Atomics and locks come from `sync`, but for files that are listed here.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The number of the group in which each module is declared: groups are separated by empty lines.
fn groups(root: &str) -> HashMap<String, usize> {
    let mut groups = HashMap::new();
    for (number, paragraph) in root.split("\n\n").enumerate() {
        let declared = paragraph.lines().filter_map(|line| {
            let name = line.strip_prefix("pub ").unwrap_or(line);
            name.strip_prefix("mod ")?.strip_suffix(';')
        });
        groups.extend(declared.map(|name| (name.to_string(), number)));
    }
    groups
}

/// Every source file below a folder, but for unit tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources can be listed") {
        let path = entry.expect("the sources can be listed").path();
        if path.is_dir() {
            if !path.ends_with("tests") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file that is no unit test and no comment.
fn code(text: &str) -> String {
    let shipped = text.split("\nmod tests {").next().unwrap_or_default();
    let lines = shipped
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The modules of the crate that a file names by `crate::`, in code that is no unit test.
fn named(text: &str) -> Vec<String> {
    let code = code(text);
    let first_word = |rest: &str| -> String {
        let rest = rest.trim_start();
        let word = |c: &char| c.is_alphanumeric() || *c == '_';
        rest.chars().take_while(word).collect()
    };
    let mut names = Vec::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap_or_default();
                names.extend(list.split(',').map(first_word));
            }
            None => names.push(first_word(rest)),
        }
    }
    names
}

/// The files whose atomics and locks are not those of `sync`, which models replace, and why.
const OWN_ATOMICS: [(&str, &str); 12] = [
    ("atomic64.rs", "what `sync` and statics share"),
    (
        "flight/turns.rs",
        "a static: how many threads spin, which those of models do not",
    ),
    ("loading_cache/threads.rs", "threads of the system"),
    (
        "reclaim/crossbeam.rs",
        "beside another crate's epochs, which no model runs",
    ),
    ("reclaim/mod.rs", "a static: the numbers of caches"),
    (
        "reclaim/own.rs",
        "a count of one thread, which no model has to order",
    ),
    ("refresh/policies.rs", "the time of the last load, one word"),
    ("scheduler/crew.rs", "threads of the system"),
    ("stripe.rs", "a static: the numbers of threads"),
    ("time/coarse.rs", "a clock: time does not pass in a model"),
    (
        "time/mod.rs",
        "what the anchor of the clock is made of, but for its own model",
    ),
    ("time/ticker.rs", "a clock: time does not pass in a model"),
];

/// Whether a statement of code has one of these texts, and such a word.
fn names(code: &str, texts: &[&str], is_meant: impl Fn(&str) -> bool) -> bool {
    code.split(';').any(|statement| {
        let mut words = statement.split(|c: char| !c.is_alphanumeric() && c != '_');
        texts.iter().any(|text| statement.contains(text)) && words.any(&is_meant)
    })
}

/// Whether code names an atomic, a fence or a lock of std or of parking_lot.
fn has_own_atomics(code: &str) -> bool {
    names(
        code,
        &["std::sync", "crate::atomic64", "parking_lot"],
        |word| {
            word.starts_with("Atomic")
                || ["fence", "Mutex", "RwLock", "Condvar", "self", "atomic64"].contains(&word)
        },
    )
}

/// Whether code names an atomic of 64 bits of std, which some targets do not have.
fn has_std_atomics_of_64_bits(code: &str) -> bool {
    names(code, &["std::sync"], |word| {
        ["AtomicU64", "AtomicI64"].contains(&word)
    })
}

#[test]
fn atomics_and_locks_come_from_sync_or_are_listed() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut found: Vec<String> = files
        .iter()
        .filter(|file| has_own_atomics(&code(&read(file))))
        .map(|file| file.strip_prefix(&src).expect("a file in src"))
        .map(|file| file.display().to_string())
        .filter(|file| !file.starts_with("sync/") && !file.ends_with("tests.rs"))
        .collect();
    found.sort();
    assert_eq!(found, OWN_ATOMICS.map(|(file, _)| file));
}

#[test]
fn atomics_of_64_bits_come_from_one_file() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    files.retain(|file| !file.ends_with("tests.rs"));
    files.retain(|file| has_std_atomics_of_64_bits(&code(&read(file))));
    assert_eq!(files, [src.join("atomic64.rs")]);
}

#[test]
fn an_atomic_of_std_would_be_seen() {
    assert!(has_own_atomics(
        "use std::sync::atomic::{AtomicU64, Ordering};"
    ));
    assert!(has_own_atomics("use std::sync::{\n    Arc, Mutex,\n};"));
    assert!(has_own_atomics("use std::sync::atomic::{self, Ordering};"));
    assert!(has_own_atomics("static A: parking_lot::Mutex<()> = x;"));
    assert!(!has_own_atomics(
        "use std::sync::Arc; use crate::sync::Mutex;"
    ));
    assert!(!has_own_atomics("use std::sync::atomic::Ordering;"));
    assert!(has_std_atomics_of_64_bits(
        "use std::sync::{Arc, atomic::AtomicU64};"
    ));
    assert!(!has_std_atomics_of_64_bits(
        "use std::sync::Arc; use crate::sync::AtomicU64;"
    ));
}

#[test]
fn imports_run_one_way() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let groups = groups(&read(&src.join("lib.rs")));
    assert!(groups.len() > 20, "the groups of src/lib.rs: {groups:?}");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&src).expect("a file in src");
        let module = inside.iter().next().and_then(|name| name.to_str());
        let module = module.expect("a name").trim_end_matches(".rs");
        let Some(own) = groups.get(module) else {
            continue;
        };
        for name in named(&read(&file)) {
            if name != module && groups.get(&name).is_some_and(|other| other >= own) {
                wrong.push(format!("{} names {name}", inside.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_wrong_import_would_be_seen() {
    let groups = groups("mod map;\npub mod node;\n\n// Above.\nmod cache;\n");
    assert!(groups["cache"] > groups["map"] && groups["map"] == groups["node"]);
    let text = "use crate::cache::Cache;\n// crate::no\nuse crate::{map, node::{A, B}};\n\
                #[cfg(test)]\nmod tests {\n use crate::no::No;\n}\n";
    assert_eq!(named(text)[..3], ["cache", "map", "node"]);
    assert!(!named(text).contains(&"no".to_string()));
}
