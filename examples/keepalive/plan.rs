//! What the run is to do: the arguments, their checks, and the part each client plays.

use std::time::Duration;

use clap::Parser;

use crate::mixed::share;

/// One cache entry per TCP connection; the silent ones are dropped
#[derive(Parser)]
pub(crate) struct Args {
    /// Connections to open; each takes two open files, as server and clients are one process
    #[arg(long, short, default_value_t = 2000)]
    connections: u32,
    /// How long to run
    #[arg(long, short, default_value_t = 14)]
    seconds: u64,
    /// Longest silence a client may ask for; every client asks for between half of it and all of it
    #[arg(long, default_value_t = 1500)]
    silence_ms: u64,
    /// Width of the cache's finest bucket: a drop comes at most this much, and the wake-up time, after its deadline
    #[arg(long, default_value_t = 16)]
    resolution_ms: u64,
    /// Time a drop may take over the resolution before it counts as wrongly kept; generous, for busy machines
    #[arg(long, default_value_t = 1000)]
    allowance_ms: u64,
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

    /// Before the end by this much the last client falls silent.
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
        Plan::new(&Args::try_parse_from(format!("keepalive {line}").split_whitespace()).unwrap())
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
