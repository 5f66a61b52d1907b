//! `cargo run --release -p wheelhouse-bench -- all`: see the README beside this package.

use std::{cell::RefCell, error::Error, fs, path::Path, process::ExitCode, time::Duration};

use clap::Parser;
use wheelhouse_bench::{
    alloc::Counting,
    bars, clock, machine,
    peer::Role,
    report::{Report, plot, summary, table},
    setup::{Setup, is_meant},
    workloads::{self, memory},
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// wheelhouse beside its peers: same process, same keys, same values, same run
#[derive(Debug, Parser)]
#[command(version, after_help = workload_list())]
struct Arguments {
    /// all, bars, or workloads by name; or: report FILE, which writes the results anew from the
    /// JSON file of an earlier run; or: scaling FILE, which draws what the simulator wrote
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
    if let [probe, variant, peer, quick] = &raw[..]
        && probe == memory::PROBE
    {
        memory::probe(variant, peer, quick == "true");
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse();
    let outcome = match &arguments.what[..] {
        [report, file] if report == "report" => write_anew(arguments.setup, file.as_ref()),
        [scaling, file] if scaling == "scaling" => draw_scaling(file),
        _ => run(arguments, &raw.join(" ")),
    };
    let right = outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        false
    });
    ExitCode::from(u8::from(!right))
}

/// Writes the results of an earlier run again, from its JSON file.
fn write_anew(mut setup: Setup, file: &Path) -> Result<bool, Box<dyn Error>> {
    setup.name_files();
    setup.json = None;
    let cannot = |error: &dyn Error| format!("cannot read {}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| cannot(&error))?;
    let mut report: Report = serde_json::from_str(&text).map_err(|error| cannot(&error))?;
    report.verdicts = bars::judge(&bars::all(), &report);
    write_files(&setup, &report)?;
    Ok(true)
}

/// Draws throughput over cores from a file of the simulator in `benches/coherence`.
fn draw_scaling(file: &str) -> Result<bool, Box<dyn Error>> {
    let lines = fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
    let folder = Path::new("benches/plots");
    let count = plot::scaling(&lines, folder)?;
    println!("written: {count} plots in {}", folder.display());
    Ok(true)
}

/// Runs what was asked for; the answer is whether all was as it must be.
fn run(arguments: Arguments, raw: &str) -> Result<bool, Box<dyn Error>> {
    let (what, mut setup) = (arguments.what, arguments.setup);
    let is_known = |name: &str| workloads::ALL.iter().any(|workload| workload.name == name);
    let is_unknown = |name: &&String| !["all", "bars"].contains(&name.as_str()) && !is_known(name);
    if let Some(unknown) = what.iter().find(is_unknown) {
        let (choose, list) = ("choose all, bars, report FILE, or from", workload_list());
        return Err(format!("there is no workload {unknown}: {choose}\n{list}").into());
    }
    let is_asked = |name: &str| what.iter().any(|what| what == name);
    let (all, judged, bars) = (is_asked("all"), is_asked("bars"), bars::all());
    let peers = setup.asked_peers();
    if all {
        setup.name_files();
        setup.patience = setup.rounds.is_none().then_some(PATIENCE);
    }
    if what == ["bars"] && peers.is_empty() {
        setup.only = bars::peers(&bars);
    }
    if let Some(folder) = setup.json.as_ref().and_then(|file| file.parent()) {
        fs::create_dir_all(folder)?;
    }
    let machine = machine::describe();
    print!("{machine}");
    if setup.cpu {
        println!("Times per operation are CPU time of the workers, not elapsed time.");
    }
    let report = RefCell::new(Report {
        machine,
        command: format!("cargo run --release -p wheelhouse-bench -- {raw}"),
        file: setup.json.clone(),
        ..Report::default()
    });
    for workload in workloads::ALL {
        let in_all = all && !workloads::LONG.contains(&workload.name);
        let needed = judged && bars::need(&bars, workload.name);
        if in_all || needed || is_asked(workload.name) {
            workload.run(&setup, &report);
        }
    }
    let mut report = report.into_inner();
    if all || judged {
        report.verdicts = bars::judge(&bars, &report);
        print!("{}", table::of_bars(&report.verdicts));
    }
    print!("{}", table::notes());
    let mut right = true;
    for (table, card, why) in report.failures() {
        println!("FAILED {}, {}: {why}", table.title(), card.name);
        // What another crate does wrong is shown, but fails nothing here.
        right &= card.role != Role::Subject;
    }
    report.save()?;
    write_files(&setup, &report)?;
    for asked in peers {
        if !report.peers().any(|peer| is_meant(&asked, peer)) {
            eprintln!("no peer in what was run is called \"{asked}\"");
            right = false;
        }
    }
    let mut verdicts = report.verdicts.iter();
    let missed = verdicts.any(|verdict| verdict.met() == Some(false));
    Ok(right && !(arguments.strict && missed))
}

fn write_files(setup: &Setup, report: &Report) -> Result<(), Box<dyn Error>> {
    if let Some(file) = &setup.results {
        fs::write(file, table::markdown(report))?;
    }
    if let Some(file) = &setup.summary {
        fs::write(file, summary::markdown(report))?;
    }
    if let Some(folder) = &setup.svg {
        plot::write_all(report, folder)?;
    }
    let named = [&setup.json, &setup.results, &setup.summary, &setup.svg];
    for path in named.into_iter().flatten() {
        println!("written: {}", path.display());
    }
    Ok(())
}
