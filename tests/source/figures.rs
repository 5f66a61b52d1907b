//! The figures of DESIGN.md that follow a call through the files: each file is there, and declares
//! what stands beside it. Lines without a file belong to the one above.

use std::fs;
use std::path::Path;

/// Stands between a function and one that it calls.
const ARROW: &str = "─►";

/// The names on a line. The files of the line declare the first one, a `label:` and each
/// `a_function`. Another file may declare a `Type::function` behind the first name, the target of
/// an arrow, and what follows "or". Words in backticks are not looked up.
#[derive(Debug, Default, PartialEq)]
struct Named {
    files: Vec<String>,
    here: Vec<String>,
    anywhere: Vec<String>,
}

/// The paths of a word as `map/{mod,shard}.rs`; none if the word is no file.
fn paths(word: &str) -> Vec<String> {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    let Some(path) = word.strip_suffix(".rs") else {
        return Vec::new();
    };
    let Some((folder, list)) = path.split_once('{') else {
        return vec![word.to_owned()];
    };
    let names = list.trim_end_matches('}').split(',');
    names.map(|name| format!("{folder}{name}.rs")).collect()
}

fn is_name(word: &str) -> bool {
    word.contains("::") || (word.contains('_') && !word.contains('.'))
}

/// What a line names, given the files of the line above.
fn named(line: &str, above: &[String]) -> Named {
    let words: Vec<&str> = line.split_whitespace().collect();
    let lead = words.iter().take_while(|word| !paths(word).is_empty());
    let lead = lead.count();
    let mut found = Named::default();
    if lead == 0 {
        found.files.extend(above.iter().cloned());
    }
    found
        .files
        .extend(words.iter().flat_map(|word| paths(word)));
    let mut before = "";
    for (at, word) in words.iter().enumerate().skip(lead) {
        let name = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
        let name = name.split('(').next().unwrap_or_default();
        let is_prose = word.contains('`') || ["the", ""].contains(&name);
        let is_first = at == lead;
        let leads_on = words.get(at + 1) == Some(&ARROW) || (is_first && word.ends_with(':'));
        let is_elsewhere = before == ARROW
            || (is_name(name) && before == "or")
            || (name.contains("::") && !is_first);
        before = word;
        if is_prose || !paths(word).is_empty() {
            continue;
        }
        if is_elsewhere {
            found.anywhere.push(name.to_owned());
        } else if is_name(name) || leads_on {
            found.here.push(name.to_owned());
        }
    }
    found
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|other| other == word)
}

/// Whether a file declares this function, type, variant or constant.
fn declares(text: &str, name: &str) -> bool {
    if let Some((of, name)) = name.rsplit_once("::") {
        return has_word(text, of) && declares(text, name);
    }
    if name.starts_with(char::is_uppercase) {
        return has_word(text, name);
    }
    let mut declared = text.split("fn ").skip(1);
    declared.any(|rest| {
        let rest = rest.strip_prefix(name).unwrap_or_default();
        rest.starts_with(['(', '<'])
    })
}

fn sources(folder: &Path, texts: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the sources can be listed") {
        let path = entry.expect("the sources can be listed").path();
        if path.is_dir() {
            sources(&path, texts);
        } else {
            texts.extend(fs::read_to_string(path));
        }
    }
}

#[test]
fn the_files_of_a_figure_declare_what_it_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let src = root.join("src");
    let mut all = Vec::new();
    sources(&src, &mut all);
    let design = fs::read_to_string(root.join("DESIGN.md")).expect("DESIGN.md");
    let mut wrong = Vec::new();
    let mut lines = 0;
    let figures = design.split("```text").skip(1);
    for figure in figures.filter_map(|rest| rest.split("```").next()) {
        let mut files = Vec::new();
        for line in figure.lines() {
            let line_names = named(line, &files);
            files.clone_from(&line_names.files);
            if files.is_empty() {
                continue;
            }
            lines += 1;
            let texts: Vec<Option<String>> = files
                .iter()
                .map(|file| fs::read_to_string(src.join(file)).ok())
                .collect();
            if texts.contains(&None) {
                wrong.push(format!("no such file: {line}"));
            }
            let is_here = |name: &&String| texts.iter().flatten().any(|text| declares(text, name));
            let is_there = |name: &&String| all.iter().any(|text| declares(text, name));
            let here = line_names.here.iter().filter(|name| !is_here(name));
            let anywhere = line_names.anywhere.iter().filter(|name| !is_there(name));
            wrong.extend(
                here.chain(anywhere)
                    .map(|name| format!("{name} is not in: {line}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(lines > 80, "{lines} lines of figures");
}

#[test]
fn a_wrong_name_would_be_seen() {
    let above = named(
        "operations/find.rs  glance: Node::deadline (node/hot.rs)",
        &[],
    );
    assert_eq!(above.files, ["operations/find.rs", "node/hot.rs"]);
    assert_eq!(above.here, ["glance"]);
    let below = named("   seal or end_drain ─► free", &above.files);
    assert_eq!(below.files, above.files);
    assert_eq!(below.anywhere, ["end_drain", "free"]);
    let first = named("Type::a, b_c; Other::d", &above.files);
    assert_eq!(first.here, ["Type::a", "b_c"]);
    assert_eq!(
        named("map/{mod,shard}.rs  text", &[]).files,
        ["map/mod.rs", "map/shard.rs"]
    );
    let code = "fn glances() {}\nimpl Node { fn deadline<T>(self) {} }";
    assert!(declares(code, "Node::deadline") && !declares(code, "glance"));
    assert!(!declares(code, "Nod::deadline") && !declares(code, "Node::dead"));
}
