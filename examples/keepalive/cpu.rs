//! CPU time of one thread, found by its name, where the system tells (Linux).

use std::fs;
use std::path::Path;
use std::time::Duration;

/// CPU time, user and system, of all threads whose name has `part` in it; `None` where the system does not tell or no such
/// thread runs. A nanosecond count where the kernel keeps one, else in steps of its clock tick, 10 ms.
pub(crate) fn thread_time(part: &str) -> Option<Duration> {
    // The kernel keeps 15 bytes of a name, so a long one may have lost its end.
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let mut total = None;
    for task in tasks.flatten() {
        let path = task.path();
        let named = fs::read_to_string(path.join("comm")).is_ok_and(|name| is_part(&name, part));
        if let Some(time) = named.then(|| read_time(&path)).flatten() {
            *total.get_or_insert(Duration::ZERO) += time;
        }
    }
    total
}

/// Whether a thread name, perhaps cut by the kernel in the middle of `part`, names the thread that is looked for.
fn is_part(name: &str, part: &str) -> bool {
    let name = name.trim_end();
    let cut = name.len() == 15 && (4..part.len()).any(|len| name.ends_with(&part[..len]));
    name.contains(part) || cut
}

fn read_time(task: &Path) -> Option<Duration> {
    let exact = fs::read_to_string(task.join("schedstat")).ok();
    exact
        .as_deref()
        .and_then(parse_schedstat)
        .or_else(|| parse_stat(&fs::read_to_string(task.join("stat")).ok()?))
}

/// `schedstat`: nanoseconds on a CPU, nanoseconds waiting, slices.
fn parse_schedstat(text: &str) -> Option<Duration> {
    text.split_whitespace()
        .next()?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}

/// `stat`: fields 14 and 15 are user and system time in clock ticks, a hundred a second on every Linux a program meets; the
/// second field, a name in parentheses, may hold spaces, so count from its end.
fn parse_stat(text: &str) -> Option<Duration> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis(10 * (user + system)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_files() {
        assert_eq!(
            parse_schedstat("1234567 89 4\n"),
            Some(Duration::from_nanos(1_234_567))
        );
        let stat = "77 (a (odd) name) S 1 77 77 0 -1 4194304 138 0 0 0 12 30 0 0 20 0 1 0 125062";
        assert_eq!(parse_stat(stat), Some(Duration::from_millis(420)));
        assert_eq!(parse_stat("garbage"), None);
    }

    #[test]
    fn knows_a_cut_name() {
        assert!(is_part("keepalive\n", "keepalive"));
        assert!(is_part("wheelhouse-keep\n", "keepalive"));
        assert!(!is_part("tokio-runtime-w\n", "keepalive"));
        assert!(!is_part("server\n", "keepalive"));
    }
}
