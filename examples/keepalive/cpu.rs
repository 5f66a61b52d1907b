//! CPU time of the cache's own threads, where the system tells (Linux).

use std::fs;
use std::path::Path;
use std::time::Duration;

/// How the names of all threads begin that wheelhouse starts. The kernel keeps 15 bytes of a name.
const CACHE_THREADS: &str = "wheelhouse";

/// CPU time, user and system, of all threads that wheelhouse has started; `None` where the system
/// does not tell or no such thread runs. A nanosecond count where the kernel keeps one, else in
/// steps of its clock tick, 10 ms.
pub(crate) fn of_cache_threads() -> Option<Duration> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let times = tasks.flatten().filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        name.starts_with(CACHE_THREADS)
            .then(|| read_time(&task.path()))?
    });
    times.reduce(|sum, time| sum + time)
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

/// `stat`: fields 14 and 15 are user and system time in clock ticks, a hundred a second on every
/// Linux a program meets; the second field, a name in parentheses, may hold spaces, so count from
/// its end.
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
    #[cfg(target_os = "linux")]
    fn counts_the_threads_of_the_cache_and_no_others() {
        let (started, has_started) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let before = of_cache_threads();
        let thread = std::thread::Builder::new()
            .name("wheelhouse-in-a-test".into())
            .spawn(move || {
                started.send(()).unwrap();
                ended.recv()
            })
            .unwrap();
        has_started.recv().unwrap();
        assert_eq!(before, None, "the thread of the test is counted");
        assert!(of_cache_threads().is_some());
        drop(end);
        assert!(thread.join().unwrap().is_err());
    }
}
