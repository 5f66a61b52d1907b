//! Puts the compiler, the commit and the exact versions of the peers into the program, so that no
//! table is printed without them.

use std::{env, fs, path::Path, process::Command};

const CRATES: &[&str] = &[
    "fibre_cache",
    "foyer-memory",
    "hierarchical_hash_wheel_timer",
    "moka",
    "papaya",
    "quick_cache",
    "tokio-util",
    "wheelhouse",
];

fn main() {
    let of = |name: &str| env::var(name).unwrap_or_default();
    let manifest = of("CARGO_MANIFEST_DIR");
    let lock = Path::new(&manifest).with_file_name("Cargo.lock");
    // Relative to the manifest's folder, and elsewhere in a worktree.
    let path = ["-C", &manifest, "rev-parse", "--git-path", "logs/HEAD"];
    let log = Path::new(&manifest).join(output("git", &path));
    // The log has a line for each commit. A file that does not exist would make each build a new
    // one.
    for changing in [Path::new("build.rs"), &lock, &log] {
        if changing.exists() {
            println!("cargo:rerun-if-changed={}", changing.display());
        }
    }
    let lock = fs::read_to_string(&lock).expect("cargo writes Cargo.lock before it builds");
    let versions = CRATES
        .iter()
        .map(|name| format!("{name} {}", version_of(&lock, name)));
    let describe = ["-C", &manifest, "describe", "--always", "--dirty"];
    for (name, value) in [
        ("VERSIONS", versions.collect::<Vec<_>>().join(", ")),
        ("RUSTC", output(&of("RUSTC"), &["-V"])),
        ("COMMIT", output("git", &describe)),
        ("PROFILE", of("PROFILE")),
        ("FLAGS", of("CARGO_ENCODED_RUSTFLAGS").replace('\x1f', " ")),
    ] {
        println!("cargo:rustc-env=BENCH_{name}={value}");
    }
}

/// The version that this package depends on. Where the lock file holds several of one name, this
/// package's own entry names the version.
fn version_of(lock: &str, name: &str) -> String {
    let own = lock.split("[[package]]");
    let mut own = own.filter(|entry| entry.starts_with("\nname = \"wheelhouse-bench\""));
    let named = |text: &str, before: String| {
        let rest = text.split_once(&before)?.1;
        rest.split_once('"').map(|(version, _)| version.to_owned())
    };
    let chosen = own
        .next()
        .and_then(|own| named(own, format!("\n \"{name} ")));
    chosen
        .or_else(|| named(lock, format!("\nname = \"{name}\"\nversion = \"")))
        .unwrap_or_else(|| panic!("{name} is not in Cargo.lock"))
}

fn output(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).output();
    let done = done.ok().filter(|done| done.status.success());
    done.map_or("unknown".into(), |done| {
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    })
}
