//! The timer wheel, drawn live in the terminal: five levels, how full each bucket is, which bucket
//! is next, and when there is work.
//!
//! A cache on a virtual clock is kept filled with entries that live from a second to a month. The
//! clock runs faster than the real one, so that you can watch the hands turn and the buckets of a
//! coarse level cascade into the finer ones.
//!
//! Run: `cargo run --release -p wheelhouse-examples --example viewer`; q ends it, + and - change
//! the speed, space stops the clock. Without a terminal: `-- --plain --frames 5` prints five frames
//! and ends.
//!
//! Expect: one row of bars for each level, finest on top, `^` under the bucket in hand. Every frame
//! is checked: the wheel must hold each entry of the cache exactly once, else the exit status is 1.

mod draw;
mod load;
#[path = "../../../examples/common/mixed.rs"]
mod mixed;
mod screen;

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use load::Load;
use screen::{Key, Screen};

/// The timer wheel, drawn live
#[derive(Parser)]
struct Args {
    /// Entries that the cache is kept filled with
    #[arg(long, short, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    entries: u64,
    /// Virtual seconds in a real one
    #[arg(long, short, default_value_t = 60.0, value_parser = positive)]
    speed: f64,
    /// Frames to draw before it ends; without end if not given
    #[arg(long, short)]
    frames: Option<u64>,
    /// Print frames one below the other, without waiting in between; needs no terminal
    #[arg(long)]
    plain: bool,
}

/// What the keys do, the most useful first.
const KEYS: &[&str] = &["q quit", "space pause", "+ faster", "- slower"];

/// Real time from one frame to the next.
const FRAME: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.plain {
        true => print_frames(&args),
        false => show(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("viewer: {message}");
            ExitCode::FAILURE
        }
    }
}

fn print_frames(args: &Args) -> Result<(), String> {
    let mut load = Load::new(args.entries);
    for _ in 0..args.frames.unwrap_or(10) {
        load.advance(FRAME.mul_f64(args.speed));
        for line in checked_frame(&load, args.speed)? {
            println!("{line}");
        }
        println!();
    }
    Ok(())
}

fn show(args: &Args) -> Result<(), String> {
    if !stdout().is_terminal() {
        return Err("the output is no terminal; pass --plain --frames 10 for text".to_owned());
    }
    let failed = |error| format!("the terminal cannot be used: {error}");
    let mut screen = Screen::open().map_err(failed)?;
    let mut load = Load::new(args.entries);
    let mut speed = args.speed;
    let mut stopped = false;
    let mut left = args.frames.unwrap_or(u64::MAX);
    while left > 0 {
        if !stopped {
            load.advance(FRAME.mul_f64(speed));
        }
        let lines = checked_frame(&load, speed)?;
        screen.draw(&lines, KEYS).map_err(failed)?;
        match screen.key_within(FRAME).map_err(failed)? {
            Some(Key::Quit) => break,
            Some(Key::Faster) => speed = (speed * 2.0).min(1e6),
            Some(Key::Slower) => speed = (speed / 2.0).max(0.1),
            Some(Key::Pause) => stopped = !stopped,
            None => {}
        }
        left -= 1;
    }
    Ok(())
}

fn checked_frame(load: &Load, speed: f64) -> Result<Vec<String>, String> {
    let frame = load.frame();
    let (linked, entries) = (frame.entries(), load.entry_count());
    if linked != entries {
        return Err(format!(
            "the wheel holds {linked} entries, the cache {entries}"
        ));
    }
    let mut lines = vec![format!(
        "{entries} entries, {} expired, virtual time {} at {speed} s a second",
        load.expired(),
        draw::span(load.elapsed())
    )];
    lines.extend(frame.lines());
    Ok(lines)
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.1..=1e6).contains(&number) => Ok(number),
        _ => Err("a number from 0.1 to 1000000 is needed".to_owned()),
    }
}
