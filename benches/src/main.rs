//! `cargo run --release -p wheelhouse-bench -- all`: see the README beside this package.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use wheelhouse_bench::{
    alloc::Counting,
    figures,
    machine::Machine,
    peer::Role,
    report::{Report, plot, table},
    setup::Setup,
    workloads::{self, memory},
    yardstick::Yardstick,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// wheelhouse beside its peers: same process, same keys, same values, same run
#[derive(Debug, Parser)]
#[command(version, after_help = workload_list())]
struct Arguments {
    /// all, figures (what a first version must show), bars (what a release is held to), or workloads by name
    #[arg(required = true, value_name = "WORKLOAD")]
    what: Vec<String>,

    /// smaller sets, fewer operations, two rounds: a check that all works, not a measurement
    #[arg(long)]
    quick: bool,

    /// rounds of each contest [default: 5, quick: 2, ratio: 1]; the storm takes at most 3, the largest timers 2
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// numbers of workers [default: 1, 2, all cores, twice all cores; quick: 1, 2]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,

    /// run only these peers, as the tables call them or up to a comma or a blank in that; separated by commas that no blank follows
    #[arg(long, value_name = "PEERS")]
    only: Vec<String>,

    /// traces for ratio, files or folders [default: ../shared/data/traces]
    #[arg(long, value_delimiter = ',', value_name = "PATH")]
    traces: Vec<PathBuf>,

    /// count the CPU time of the workers instead of elapsed time: for a machine that is not quiet. What a cache does on threads of
    /// its own is not in it
    #[arg(long)]
    cpu: bool,

    /// seconds to spend in each contest on waiting for quiet cores, and on running laps again that somebody else on the machine has
    /// disturbed [default: 3, quick: 0]
    #[arg(long, value_name = "SECONDS")]
    patience: Option<u32>,

    /// write all figures, each round of them, to this file [default for all: target/wheelhouse-bench/figures.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// write plots into this folder [default for all: target/wheelhouse-bench]
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// exit with a failure if a bar is missed, as wrong answers of wheelhouse always do
    #[arg(long)]
    strict: bool,
}

/// Where `all` leaves its figures and plots if nothing else is said.
const RESULTS: &str = "target/wheelhouse-bench";

fn workload_list() -> String {
    let lines = workloads::ALL
        .iter()
        .map(|workload| format!("  {:<14} {}\n", workload.name, workload.about));
    format!("Workloads:\n{}", lines.collect::<String>())
}

fn main() -> ExitCode {
    let raw: Vec<String> = std::env::args().skip(1).collect();
    if raw.first().is_some_and(|first| first == memory::PROBE) {
        memory::probe(&raw[1..]);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::parse();
    if let Some(unknown) = arguments.what.iter().find(|name| !known(name)) {
        eprintln!(
            "there is no workload {unknown}: choose all, figures, bars or from\n{}",
            workload_list()
        );
        return ExitCode::FAILURE;
    }
    if arguments.what.iter().any(|what| what == "all")
        && let Err(error) = leave_results(&mut arguments)
    {
        eprintln!("cannot make the folder {RESULTS}: {error}");
        return ExitCode::FAILURE;
    }
    run(&arguments, &raw)
}

/// Whoever runs everything wants to have it: files are written though none were named.
fn leave_results(arguments: &mut Arguments) -> std::io::Result<()> {
    let folder = Path::new(RESULTS);
    if arguments.json.is_none() {
        fs::create_dir_all(folder)?;
        arguments.json = Some(folder.join("figures.json"));
    }
    arguments.svg.get_or_insert_with(|| folder.to_owned());
    Ok(())
}

fn known(name: &str) -> bool {
    ["all", "figures", "bars"].contains(&name)
        || workloads::ALL.iter().any(|workload| workload.name == name)
}

fn run(arguments: &Arguments, raw: &[String]) -> ExitCode {
    let setup = setup(arguments);
    let machine = Machine::here();
    machine.print();
    if setup.cpu {
        println!("times per operation are CPU time of the workers, not elapsed time");
    }
    let mut report = Report::new(
        machine,
        format!("wheelhouse-bench {}", raw.join(" ")),
        arguments.json.clone(),
    );
    let asked = |name: &str| arguments.what.iter().any(|what| what == name);

    if asked("figures") {
        figures::run_needed(&figures::first_version(), &setup, &mut report);
    }
    if asked("bars") {
        figures::run_needed(&figures::release(), &setup, &mut report);
    }
    for workload in workloads::ALL {
        let had = report
            .contests
            .iter()
            .any(|contest| contest.workload == workload.name);
        let in_all = asked("all") && !workloads::LONG.contains(&workload.name);
        if (in_all || asked(workload.name)) && !had {
            (workload.run)(&setup, &mut report);
        }
    }

    let mut verdicts = Vec::new();
    for (title, checks, wanted) in [
        (
            "Figures of a first version",
            figures::first_version(),
            asked("figures"),
        ),
        (
            "Bars of a release",
            figures::release(),
            asked("bars") || asked("all"),
        ),
    ] {
        if wanted {
            let judged = figures::judge(&checks, &report);
            figures::print(title, &judged);
            verdicts.extend(judged);
        }
    }
    let missed = verdicts.iter().any(|verdict| verdict.met == Some(false));
    report.checks = verdicts;
    let laps = setup.yardstick.laps();
    println!(
        "\n{} of {} laps ran beside somebody else's work on the same cores, or on cores that moved; {} figures, with ~, have no round that counts",
        laps.disturbed,
        laps.all,
        report.disturbed()
    );
    finish(arguments, &setup, &report, missed)
}

fn setup(arguments: &Arguments) -> Setup {
    let rounds = arguments
        .rounds
        .map_or(if arguments.quick { 2 } else { 5 }, |rounds| {
            rounds as usize
        });
    let mut threads: Vec<usize> = arguments
        .threads
        .iter()
        .map(|&threads| usize::from(threads))
        .collect();
    if threads.is_empty() {
        threads = if arguments.quick {
            vec![1, 2]
        } else {
            Setup::default_threads()
        };
    }
    threads.sort_unstable();
    threads.dedup();
    let lists_only = arguments
        .what
        .iter()
        .all(|what| what == "figures" || what == "bars");
    let only = if arguments.only.is_empty() && lists_only {
        figures::PEERS.iter().map(|&peer| peer.to_owned()).collect()
    } else {
        names(&arguments.only)
    };
    let mut setup = Setup::new(arguments.quick, rounds, threads, only);
    setup.cpu = arguments.cpu;
    setup.replays = arguments.rounds.map_or(1, |rounds| rounds as usize);
    setup.traces.clone_from(&arguments.traces);
    let patience = arguments
        .patience
        .unwrap_or(if arguments.quick { 0 } else { 3 });
    setup.yardstick = Yardstick::new(Duration::from_secs(patience.into()));
    setup
}

/// The peers named in these lists: apart at each comma that no blank follows, since names have commas, too.
fn names(lists: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for list in lists {
        let mut goes_on = false;
        for part in list.split(',') {
            match names.last_mut() {
                Some(name) if goes_on && part.starts_with(' ') => {
                    name.push(',');
                    name.push_str(part);
                }
                _ => names.push(part.to_owned()),
            }
            goes_on = true;
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn finish(arguments: &Arguments, setup: &Setup, report: &Report, missed: bool) -> ExitCode {
    print!("{}", table::notes());
    let mut failed = false;
    for failure in report.failures() {
        println!(
            "FAILED {} / {}, {}: {}",
            failure.workload, failure.variant, failure.peer, failure.why
        );
        // What another crate does wrong is shown, but fails nothing here.
        failed |= failure.role == Role::Subject;
    }
    if let Err(error) = report.save() {
        eprintln!("cannot write the JSON file: {error}");
        failed = true;
    }
    if let Some(folder) = &arguments.svg
        && let Err(error) = plot::write_all(report, folder)
    {
        eprintln!("cannot write the plots to {}: {error}", folder.display());
        failed = true;
    }
    if !failed {
        for (what, path) in [("figures", &arguments.json), ("plots", &arguments.svg)] {
            if let Some(path) = path {
                println!("{what} are in {}", path.display());
            }
        }
    }
    if !arguments.only.is_empty() {
        for unmet in setup.unmet() {
            eprintln!("no peer in what was run is called \"{unmet}\"");
            failed = true;
        }
    }
    if failed || (arguments.strict && missed) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_comma_in_it() {
        let named = |lists: &[&str]| {
            names(
                &lists
                    .iter()
                    .map(|list| list.to_string())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(named(&[]), [""; 0]);
        assert_eq!(named(&["wheelhouse,moka"]), ["wheelhouse", "moka"]);
        assert_eq!(
            named(&["moka,wheelhouse, 16 at once,moka", "stretto"]),
            ["moka", "wheelhouse, 16 at once", "moka", "stretto"]
        );
        assert_eq!(named(&["moka,", ",stretto"]), ["moka", "stretto"]);
    }
}
