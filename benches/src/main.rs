//! `cargo run --release -p wheelhouse-bench -- all`: see the README beside this package.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use wheelhouse_bench::{
    alloc::Counting,
    bars, cpu,
    machine::Machine,
    peer::Role,
    report::{Missing, Report, plot, results, table},
    setup::Setup,
    workloads::{self, memory},
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// wheelhouse beside its peers: same process, same keys, same values, same run
#[derive(Debug, Parser)]
#[command(version, after_help = workload_list())]
struct Arguments {
    /// all, bars, or workloads by name; or: report FILE, which writes the results anew from the
    /// JSON file of an earlier run
    #[arg(required = true, value_name = "WORKLOAD")]
    what: Vec<String>,

    /// smaller sets, fewer operations, two rounds: a check that all works, not a measurement
    #[arg(long)]
    quick: bool,

    /// rounds of each contest [default: 5, quick: 2, ratio: 1]; long contests take fewer
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// numbers of workers [default: 1, 2, all cores, twice all cores; quick: 1, 2]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,

    /// run only these peers, as the tables call them or up to a comma or a blank in that; separated
    /// by commas that no blank follows
    #[arg(long, value_name = "PEERS")]
    only: Vec<String>,

    /// traces for ratio, files or folders [default: ../shared/data/traces]
    #[arg(long, value_delimiter = ',', value_name = "PATH")]
    traces: Vec<PathBuf>,

    /// count the CPU time of the workers instead of elapsed time: for a machine that is not quiet.
    /// What a cache does on threads of its own is not in it
    #[arg(long)]
    cpu: bool,

    /// write all figures, each round of them, to this file
    /// [default for all: target/wheelhouse-bench/figures.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// write the tables as Markdown to this file [default for all: benches/RESULTS.md; for a quick
    /// run target/wheelhouse-bench/RESULTS.md]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,

    /// write plots into this folder [default for all: benches/plots; for a quick run
    /// target/wheelhouse-bench]
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// exit with a failure if a bar is missed, as wrong answers of wheelhouse always do
    #[arg(long)]
    strict: bool,
}

/// Where figures go that are not to be committed.
const SCRATCH: &str = "target/wheelhouse-bench";

/// Of one peer in one variant of a workload, so that slow peers do not take up most of the time.
const PATIENCE: Duration = Duration::from_secs(1);

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
    let outcome = match &arguments.what[..] {
        [report, file] if report == "report" => {
            let file = PathBuf::from(file);
            name_files(&mut arguments);
            arguments.json = None;
            write_anew(&arguments, &file).map(|()| true)
        }
        what => match what.iter().find(|name| !known(name)) {
            Some(unknown) => {
                let known = workload_list();
                let choose = "choose all, bars, report FILE, or from";
                Err(format!("there is no workload {unknown}: {choose}\n{known}").into())
            }
            None => {
                if arguments.is_asked("all") {
                    name_files(&mut arguments);
                }
                run(&arguments, &raw)
            }
        },
    };
    let right = outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        false
    });
    [ExitCode::FAILURE, ExitCode::SUCCESS][usize::from(right)]
}

impl Arguments {
    fn is_asked(&self, name: &str) -> bool {
        self.what.iter().any(|what| what == name)
    }
}

/// A run of everything writes files though none were named.
fn name_files(arguments: &mut Arguments) {
    let scratch = Path::new(SCRATCH);
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (results, plots) = match arguments.quick {
        true => (scratch.join("RESULTS.md"), scratch.to_owned()),
        false => (package.join("RESULTS.md"), package.join("plots")),
    };
    arguments.json.get_or_insert(scratch.join("figures.json"));
    arguments.results.get_or_insert(results);
    arguments.svg.get_or_insert(plots);
}

fn known(name: &str) -> bool {
    let mut workloads = workloads::ALL.iter();
    ["all", "bars"].contains(&name) || workloads.any(|workload| workload.name == name)
}

/// Writes the results of an earlier run again, from its JSON file.
fn write_anew(arguments: &Arguments, file: &Path) -> Result<(), Box<dyn Error>> {
    let cannot = |error: &dyn Error| format!("cannot read {}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| cannot(&error))?;
    let mut report: Report = serde_json::from_str(&text).map_err(|error| cannot(&error))?;
    report.verdicts = bars::judge(&bars::all(), &report);
    write_files(arguments, &report)
}

/// Runs what was asked for; the answer is whether all was as it must be.
fn run(arguments: &Arguments, raw: &[String]) -> Result<bool, Box<dyn Error>> {
    if let Some(folder) = arguments.json.as_ref().and_then(|file| file.parent()) {
        fs::create_dir_all(folder)?;
    }
    let setup = setup(arguments);
    let machine = Machine::here();
    print!("{}", machine.describe());
    if setup.cpu {
        println!("Times per operation are CPU time of the workers, not elapsed time.");
    }
    let command = format!(
        "cargo run --release -p wheelhouse-bench -- {}",
        raw.join(" ")
    );
    let mut report = Report::new(machine, command, arguments.json.clone());

    let (all, judged, bars) = (
        arguments.is_asked("all"),
        arguments.is_asked("bars"),
        bars::all(),
    );
    for workload in workloads::ALL {
        let in_all = all && !workloads::LONG.contains(&workload.name);
        let needed = judged && bars::need(&bars, workload.name);
        if in_all || needed || arguments.is_asked(workload.name) {
            workload.run_once(&setup, &mut report);
        }
    }
    if all || judged {
        report.verdicts = bars::judge(&bars, &report);
        print!("{}", table::of_bars(&report.verdicts));
    }
    print!("{}", results::notes());
    let mut right = true;
    for failure in report.failures() {
        let Missing {
            workload,
            variant,
            peer,
            why,
            ..
        } = failure;
        println!("FAILED {workload} / {variant}, {peer}: {why}");
        // What another crate does wrong is shown, but fails nothing here.
        right &= failure.role != Role::Subject;
    }
    report.save()?;
    write_files(arguments, &report)?;
    for unmet in setup.unmet().iter().filter(|_| !arguments.only.is_empty()) {
        eprintln!("no peer in what was run is called \"{unmet}\"");
        right = false;
    }
    let mut verdicts = report.verdicts.iter();
    let missed = verdicts.any(|verdict| verdict.met() == Some(false));
    Ok(right && !(arguments.strict && missed))
}

fn write_files(arguments: &Arguments, report: &Report) -> Result<(), Box<dyn Error>> {
    if let Some(file) = &arguments.results {
        fs::write(file, results::markdown(report))?;
    }
    if let Some(folder) = &arguments.svg {
        plot::write_all(report, folder)?;
    }
    let named = [&arguments.json, &arguments.results, &arguments.svg];
    for path in named.into_iter().flatten() {
        println!("written: {}", path.display());
    }
    Ok(())
}

fn setup(arguments: &Arguments) -> Setup {
    let rounds = arguments.rounds.map(|rounds| rounds as usize);
    let mut threads: Vec<usize> = arguments.threads.iter().copied().map(usize::from).collect();
    if threads.is_empty() {
        let cores = cpu::count();
        threads = if arguments.quick {
            vec![1, 2]
        } else {
            vec![1, 2, cores, cores * 2]
        };
    }
    threads.sort_unstable();
    threads.dedup();
    let only = match arguments.only.is_empty() && arguments.what == ["bars"] {
        true => bars::peers(&bars::all()),
        false => names(&arguments.only),
    };
    let default = if arguments.quick { 2 } else { 5 };
    let mut setup = Setup::new(arguments.quick, rounds.unwrap_or(default), threads, only);
    setup.cpu = arguments.cpu;
    setup.patience = (arguments.is_asked("all") && rounds.is_none()).then_some(PATIENCE);
    setup.replays = rounds.unwrap_or(1);
    setup.traces.clone_from(&arguments.traces);
    setup.plots.clone_from(&arguments.svg);
    setup
}

/// The peers named in these lists, apart at each comma that no blank follows: names have commas,
/// too.
fn names(lists: &[String]) -> Vec<String> {
    let within = lists.join(",").replace(", ", "\n");
    let names = within.split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('\n', ", ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_comma_in_it() {
        let named =
            |lists: &[&str]| names(&lists.iter().map(|&list| list.into()).collect::<Vec<_>>());
        assert_eq!(named(&[]), [""; 0]);
        let lists = ["moka,wheelhouse, 16 at once,moka", "stretto,"];
        assert_eq!(
            named(&lists),
            ["moka", "wheelhouse, 16 at once", "moka", "stretto"]
        );
    }
}
