//! Puts the compiler, the commit and the exact versions of the peers into the program, so that no table is printed without them.

use std::{env, fs, path::Path, process::Command};

const CRATES: &[&str] = &[
    "TinyUFO",
    "dashmap",
    "foyer-memory",
    "hierarchical_hash_wheel_timer",
    "mini-moka",
    "moka",
    "papaya",
    "quick_cache",
    "stretto",
    "tokio-util",
    "wheelhouse",
];

fn main() {
    let manifest = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let lock_path = Path::new(&manifest).with_file_name("Cargo.lock");
    println!("cargo:rerun-if-changed={}", lock_path.display());
    println!("cargo:rerun-if-changed=build.rs");
    // A line for each commit, or a new build would bear the name of the one before.
    let log = Path::new(&manifest)
        .with_file_name(".git")
        .join("logs/HEAD");
    if log.exists() {
        println!("cargo:rerun-if-changed={}", log.display());
    }

    let lock = fs::read_to_string(&lock_path).expect("cargo writes Cargo.lock before it builds");
    let versions: Vec<String> = CRATES
        .iter()
        .map(|name| format!("{name} {}", version_of(&lock, name)))
        .collect();
    println!("cargo:rustc-env=BENCH_VERSIONS={}", versions.join(";"));

    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    println!("cargo:rustc-env=BENCH_RUSTC={}", output(&rustc, &["-V"]));
    println!(
        "cargo:rustc-env=BENCH_COMMIT={}",
        output("git", &["-C", &manifest, "describe", "--always", "--dirty"])
    );
    println!(
        "cargo:rustc-env=BENCH_PROFILE={}",
        env::var("PROFILE").unwrap_or_default()
    );
    println!(
        "cargo:rustc-env=BENCH_FLAGS={}",
        env::var("CARGO_ENCODED_RUSTFLAGS")
            .unwrap_or_default()
            .replace('\x1f', " ")
    );
}

/// The version that this package depends on. Where the lock file holds several of one name, this package's own entry says which.
fn version_of(lock: &str, name: &str) -> String {
    let own = lock
        .split("[[package]]")
        .find(|entry| field(entry, "name") == Some("wheelhouse-bench"))
        .unwrap_or_default();
    let chosen = own
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","))
        .find_map(|dependency| dependency.strip_prefix(name)?.strip_prefix(' '));
    if let Some(version) = chosen {
        return version.to_owned();
    }
    lock.split("[[package]]")
        .find(|entry| field(entry, "name") == Some(name))
        .and_then(|entry| field(entry, "version"))
        .unwrap_or_else(|| panic!("{name} is not in Cargo.lock"))
        .to_owned()
}

fn field<'a>(entry: &'a str, name: &str) -> Option<&'a str> {
    entry.lines().find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix(" = \"")?
            .strip_suffix('"')
    })
}

fn output(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .filter(|done| done.status.success())
        .map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned())
        .unwrap_or_else(|| "unknown".into())
}
