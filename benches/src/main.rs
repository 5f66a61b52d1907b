//! `cargo run --release -p wheelhouse-bench -- all`: see the README beside this package.

use std::{cell::RefCell, error::Error, fs, path::Path, process::ExitCode, time::Duration};

use clap::Parser;
use wheelhouse_bench::{
    alloc::Counting,
    bars, clock,
    machine::Machine,
    peer::Role,
    report::{Report, plot, results, table},
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

    #[command(flatten)]
    setup: Setup,

    /// exit with a failure if a bar is missed, as wrong answers of wheelhouse always do
    #[arg(long)]
    strict: bool,
}

/// Of one peer in one variant of a workload, so that slow peers do not take up most of the time.
const PATIENCE: Duration = Duration::from_secs(1);

fn workload_list() -> String {
    let lines = workloads::ALL
        .iter()
        .map(|workload| format!("  {:<14} {}\n", workload.name, workload.about));
    format!("Workloads:\n{}", lines.collect::<String>())
}

fn main() -> ExitCode {
    // The time that the progress line shows begins here.
    clock::nanos();
    let raw: Vec<String> = std::env::args().skip(1).collect();
    if let [probe, asked] = &raw[..]
        && probe == memory::PROBE
    {
        memory::probe(asked);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::parse();
    let outcome = match &arguments.what[..] {
        [report, file] if report == "report" => {
            let file = Path::new(file).to_owned();
            arguments.setup.name_files();
            arguments.setup.json = None;
            write_anew(&arguments.setup, &file).map(|()| true)
        }
        what => match what.iter().find(|name| !known(name)) {
            Some(unknown) => {
                let known = workload_list();
                let choose = "choose all, bars, report FILE, or from";
                Err(format!("there is no workload {unknown}: {choose}\n{known}").into())
            }
            None => run(arguments, &raw),
        },
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn known(name: &str) -> bool {
    let mut workloads = workloads::ALL.iter();
    ["all", "bars"].contains(&name) || workloads.any(|workload| workload.name == name)
}

/// Writes the results of an earlier run again, from its JSON file.
fn write_anew(setup: &Setup, file: &Path) -> Result<(), Box<dyn Error>> {
    let cannot = |error: &dyn Error| format!("cannot read {}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| cannot(&error))?;
    let mut report: Report = serde_json::from_str(&text).map_err(|error| cannot(&error))?;
    report.verdicts = bars::judge(&bars::all(), &report);
    write_files(setup, &report)
}

/// Runs what was asked for; the answer is whether all was as it must be.
fn run(arguments: Arguments, raw: &[String]) -> Result<bool, Box<dyn Error>> {
    let Arguments {
        what,
        mut setup,
        strict,
    } = arguments;
    let is_asked = |name: &str| what.iter().any(|what| what == name);
    let (all, judged, bars) = (is_asked("all"), is_asked("bars"), bars::all());
    let peers_asked = !setup.only.is_empty();
    if all {
        setup.name_files();
        setup.patience = setup.rounds.is_none().then_some(PATIENCE);
    }
    if what == ["bars"] && !peers_asked {
        setup.only = bars::peers(&bars);
    }
    if let Some(folder) = setup.json.as_ref().and_then(|file| file.parent()) {
        fs::create_dir_all(folder)?;
    }
    let machine = Machine::here();
    print!("{}", machine.describe());
    if setup.cpu {
        println!("Times per operation are CPU time of the workers, not elapsed time.");
    }
    let report = RefCell::new(Report {
        machine,
        command: format!(
            "cargo run --release -p wheelhouse-bench -- {}",
            raw.join(" ")
        ),
        file: setup.json.clone(),
        ..Report::default()
    });
    for workload in workloads::ALL {
        let in_all = all && !workloads::LONG.contains(&workload.name);
        let needed = judged && bars::need(&bars, workload.name);
        if in_all || needed || is_asked(workload.name) {
            workload.run_once(&setup, &report);
        }
    }
    let mut report = report.into_inner();
    if all || judged {
        report.verdicts = bars::judge(&bars, &report);
        print!("{}", table::of_bars(&report.verdicts));
    }
    print!("{}", results::notes());
    let mut right = true;
    for failure in report.failures() {
        let (workload, variant) = (&failure.workload, &failure.variant);
        println!(
            "FAILED {workload} / {variant}, {}: {}",
            failure.peer, failure.why
        );
        // What another crate does wrong is shown, but fails nothing here.
        right &= failure.role != Role::Subject;
    }
    report.save()?;
    write_files(&setup, &report)?;
    for unmet in setup.unmet().iter().filter(|_| peers_asked) {
        eprintln!("no peer in what was run is called \"{unmet}\"");
        right = false;
    }
    let mut verdicts = report.verdicts.iter();
    let missed = verdicts.any(|verdict| verdict.met() == Some(false));
    Ok(right && !(strict && missed))
}

fn write_files(setup: &Setup, report: &Report) -> Result<(), Box<dyn Error>> {
    if let Some(file) = &setup.results {
        fs::write(file, results::markdown(report))?;
    }
    if let Some(folder) = &setup.svg {
        plot::write_all(report, folder)?;
    }
    let named = [&setup.json, &setup.results, &setup.svg];
    for path in named.into_iter().flatten() {
        println!("written: {}", path.display());
    }
    Ok(())
}
