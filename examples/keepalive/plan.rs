//! What the run is to do: the arguments, their checks, and the part each client plays.

use std::time::Duration;

use crate::mixed::share;

/// What `--help` prints. The defaults stand in [`Args::default`].
pub(crate) const HELP: &str = "\
One cache entry per TCP connection; the silent ones are dropped

Options, each followed by a whole number:
  -c, --connections  Connections to open; each takes two open files, since server and clients
                     are one process [2000]
  -s, --seconds      How long to run [14]
      --silence-ms   Longest silence that a client may ask for; each client asks for between
                     half of it and all of it [1500]
      --resolution-ms
                     Width of the cache's finest bucket: a drop comes at most this much, plus
                     the wake-up time, after its deadline [16]
      --allowance-ms Time that a drop may take beyond the resolution before it counts as
                     wrongly kept; generous, for busy machines [1000]
  -h, --help         This text
";

/// The arguments as they were given. Read by hand: a parser would take longer to build than the
/// rest of the example.
#[derive(Clone)]
pub(crate) struct Args {
    connections: u32,
    seconds: u64,
    silence_ms: u64,
    resolution_ms: u64,
    allowance_ms: u64,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            connections: 2000,
            seconds: 14,
            silence_ms: 1500,
            resolution_ms: 16,
            allowance_ms: 1000,
        }
    }
}

impl Args {
    /// Reads `--name number` and `--name=number`; `None` if help was asked for.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let mut args = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            if ["-h", "--help"].contains(&name.as_str()) {
                return Ok(None);
            }
            let mut number = |most: u64| {
                let value = value.clone().or_else(|| words.next()).unwrap_or_default();
                let parsed = value.parse().ok().filter(|&number| number <= most);
                parsed.ok_or_else(|| {
                    format!("{name} is \"{value}\"; a whole number up to {most} is needed")
                })
            };
            match name.as_str() {
                "-c" | "--connections" => args.connections = number(1 << 20)? as u32,
                "-s" | "--seconds" => args.seconds = number(86_400)?,
                "--silence-ms" => args.silence_ms = number(86_400_000)?,
                "--resolution-ms" => args.resolution_ms = number(86_400_000)?,
                "--allowance-ms" => args.allowance_ms = number(86_400_000)?,
                _ => return Err(format!("there is no option {name}; --help lists them")),
            }
        }
        Ok(Some(args))
    }
}

/// Checked arguments.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) connections: u32,
    pub(crate) run_for: Duration,
    pub(crate) longest_silence: Duration,
    pub(crate) resolution: Duration,
    pub(crate) allowance: Duration,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Beats on time to the end.
    Steady,
    /// Stops beating after this time and waits to be dropped.
    FallsSilent(Duration),
    /// Closes the connection after this time.
    Closes(Duration),
}

/// Files of the process beside the connections: the standard three, listener, pollers, pipes.
const OTHER_FILES: u64 = 64;

impl Plan {
    pub(crate) fn new(args: &Args) -> Result<Self, String> {
        let plan = Self {
            connections: args.connections,
            run_for: Duration::from_secs(args.seconds),
            longest_silence: Duration::from_millis(args.silence_ms),
            resolution: Duration::from_millis(args.resolution_ms),
            allowance: Duration::from_millis(args.allowance_ms),
        };
        if plan.connections == 0 {
            return Err("--connections is 0; at least 1 is needed".to_owned());
        }
        if args.silence_ms < 100 {
            return Err(format!(
                "--silence-ms is {}; at least 100 is needed",
                args.silence_ms
            ));
        }
        let shortest = plan.last_moment_to_drop() + plan.ramp() + Duration::from_millis(250);
        if plan.run_for < shortest {
            return Err(format!(
                "--seconds is {}; with --silence-ms {}, --resolution-ms {} and --allowance-ms {} it must be at least {}, so that every silent client is due before the end",
                args.seconds,
                args.silence_ms,
                args.resolution_ms,
                args.allowance_ms,
                shortest.as_secs_f64().ceil(),
            ));
        }
        raise_file_limit(plan.connections)?;
        Ok(plan)
    }

    /// All connections are opened within this time, evenly.
    pub(crate) fn ramp(&self) -> Duration {
        self.run_for / 10
    }

    /// The last client falls silent this long before the end.
    fn last_moment_to_drop(&self) -> Duration {
        self.longest_silence + self.resolution + self.allowance
    }

    /// What the client asks the server for.
    pub(crate) fn silence(&self, id: u32) -> Duration {
        self.longest_silence
            .mul_f64(0.5 + 0.5 * share(id.into(), 1))
    }

    pub(crate) fn connects_at(&self, id: u32) -> Duration {
        self.ramp()
            .mul_f64(f64::from(id) / f64::from(self.connections))
    }

    pub(crate) fn role(&self, id: u32) -> Role {
        // Counted from the connection, which comes within the ramp.
        let leaves_after =
            (self.run_for - self.ramp() - self.last_moment_to_drop()).mul_f64(share(id.into(), 2));
        match share(id.into(), 3) {
            ..0.60 => Role::Steady,
            0.60..0.85 => Role::FallsSilent(leaves_after),
            _ => Role::Closes(leaves_after),
        }
    }
}

fn raise_file_limit(connections: u32) -> Result<(), String> {
    let needed = 2 * u64::from(connections) + OTHER_FILES;
    let allowed = rlimit::increase_nofile_limit(needed).map_err(|error| {
        format!("the limit of open files cannot be raised to {needed}: {error}")
    })?;
    if allowed < needed {
        let fitting = allowed.saturating_sub(OTHER_FILES) / 2;
        return Err(format!(
            "{connections} connections need {needed} open files, the system allows {allowed}; raise it with `ulimit -n {needed}` or pass --connections {fitting}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        let args = Args::parse(line.split_whitespace().map(str::to_owned))?;
        Plan::new(&args.expect("no help was asked for"))
    }

    #[test]
    fn arguments_are_read_and_wrong_ones_named() {
        let plan = plan("-c 7 --seconds=20 --silence-ms 900").unwrap();
        assert_eq!((plan.connections, plan.run_for.as_secs()), (7, 20));
        assert_eq!(plan.longest_silence, Duration::from_millis(900));
        let refused = |line: &str| {
            let words = line.split_whitespace().map(str::to_owned);
            Args::parse(words).err().unwrap()
        };
        assert!(refused("--connections many").contains("--connections is \"many\""));
        assert!(refused("--connections").contains("whole number"));
        assert!(refused("--colour 1").contains("--colour"));
        assert!(Args::parse(["--help".to_owned()]).unwrap().is_none());
    }

    #[test]
    fn every_silent_client_is_due_before_the_end() {
        let plan = plan("--connections 200 --seconds 4").unwrap();
        let mut silent = 0;
        for id in 0..plan.connections {
            if let Role::FallsSilent(after) = plan.role(id) {
                silent += 1;
                let due = plan.connects_at(id) + after + plan.silence(id);
                assert!(
                    due + plan.resolution + plan.allowance <= plan.run_for,
                    "client {id} is due at {due:?}"
                );
            }
        }
        assert!((20..80).contains(&silent), "{silent} of 200 fall silent");
    }

    #[test]
    fn a_run_too_short_names_the_setting_and_the_least() {
        let message = plan("--connections 10 --seconds 2").err().unwrap();
        assert!(message.contains("--seconds is 2"), "{message}");
        assert!(message.contains("at least 3"), "{message}");
    }

    #[test]
    fn no_connections_are_refused() {
        assert!(plan("--connections 0").is_err());
    }
}
