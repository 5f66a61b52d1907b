//! Draws the picture of `docs/lifetimes.md`: how long an entry lives under each policy, if the same
//! things happen to it.
//!
//! Each row is an entry of a real cache under a manual clock. The program asks the cache every
//! quarter of a minute whether the entry is live, and draws the answers.
//!
//! Run: `cargo run --example lifetimes` checks that `docs/lifetimes.svg` shows what the caches do;
//! with `-- --write` it writes the picture.
//!
//! Expect: one line for each policy, which says when the entry ended.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use wheelhouse::{Cache, CacheBuilder, ManualTicker, Scheduler, expiry};

const QUARTER: Duration = Duration::from_secs(15);
const QUARTERS_IN_A_MINUTE: u64 = 4;
/// How long the picture lasts, in minutes.
const LAST: u64 = 32;

/// What a value says about its own life, in minutes.
#[derive(Clone)]
struct Value {
    lifetime: u64,
    end: Instant,
}

#[derive(Clone, Copy, PartialEq)]
enum Event {
    Write,
    Read,
    /// `set_expiry`, which only the row of the caller has.
    Set,
}

/// The first write creates the entry.
const EVENTS: [(u64, Event); 5] = [
    (0, Event::Write),
    (6, Event::Read),
    (9, Event::Write),
    (12, Event::Read),
    (17, Event::Read),
];

/// Each value says that it lives for so many minutes.
const LIFETIME: u64 = 10;
/// The ends that the two values say, in minutes from the beginning.
const ENDS: [u64; 2] = [10, 14];

type Builder = CacheBuilder<&'static str, Value>;

struct Row {
    name: &'static str,
    about: &'static str,
    policy: fn(Builder) -> Builder,
    is_by_hand: bool,
}

fn of_value(_: &&str, value: &Value) -> Option<Duration> {
    Some(minutes(value.lifetime))
}

fn unchanged(builder: Builder) -> Builder {
    builder
}

const ROWS: [Row; 7] = [
    Row {
        name: "expiry::creating",
        about: "10 min from the first write",
        policy: |builder| builder.expire_after(expiry::creating(of_value)),
        is_by_hand: false,
    },
    Row {
        name: "expiry::until",
        about: "the value names its end: minute 10, then 14",
        policy: |builder| {
            builder.expire_after(expiry::until(|_: &&str, value: &Value| Some(value.end)))
        },
        is_by_hand: false,
    },
    Row {
        name: "expiry::writing",
        about: "10 min from each write",
        policy: |builder| builder.expire_after(expiry::writing(of_value)),
        is_by_hand: false,
    },
    Row {
        name: "time_to_live",
        about: "10 min from each write, one for all entries",
        policy: |builder| builder.time_to_live(minutes(LIFETIME)),
        is_by_hand: false,
    },
    Row {
        name: "expiry::accessing",
        about: "10 min from each write or read",
        policy: |builder| builder.expire_after(expiry::accessing(of_value)),
        is_by_hand: false,
    },
    Row {
        name: "time_to_idle",
        about: "10 min from each write or read, one for all",
        policy: |builder| builder.time_to_idle(minutes(LIFETIME)),
        is_by_hand: false,
    },
    Row {
        name: "insert_with_ttl, set_expiry",
        about: "the caller says 10 min twice, then 7 more",
        policy: unchanged,
        is_by_hand: true,
    },
];

/// What happened to the entry of a row: in which quarters it was live, and which events found it.
struct Life {
    live: Vec<bool>,
    events: Vec<(u64, Event, bool)>,
}

impl Life {
    /// The minute in which the entry ended.
    fn end(&self) -> f64 {
        let quarters = self.live.iter().filter(|live| **live).count();
        quarters as f64 / QUARTERS_IN_A_MINUTE as f64
    }
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

fn live(row: &Row) -> Life {
    let clock = ManualTicker::new();
    let builder = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled());
    let cache = (row.policy)(builder).build();
    let began = cache.policy().now();
    let mut ends = ENDS.iter();
    let mut life = Life {
        live: Vec::new(),
        events: Vec::new(),
    };
    for quarter in 0..LAST * QUARTERS_IN_A_MINUTE {
        for (minute, event) in EVENTS {
            if minute * QUARTERS_IN_A_MINUTE != quarter {
                continue;
            }
            // In the place of the last read, the caller gives the entry a new deadline.
            let is_set = row.is_by_hand && minute == EVENTS[EVENTS.len() - 1].0;
            let event = if is_set { Event::Set } else { event };
            let is_found = match event {
                Event::Write => {
                    let end = ends.next().expect("an end for each write");
                    let value = Value {
                        lifetime: LIFETIME,
                        end: began + minutes(*end),
                    };
                    if row.is_by_hand {
                        cache.insert_with_ttl("key", value, minutes(LIFETIME));
                    } else {
                        cache.insert("key", value);
                    }
                    true
                }
                Event::Read => cache.get("key").is_some(),
                Event::Set => cache.set_expiry("key", Some(minutes(7))),
            };
            life.events.push((minute, event, is_found));
        }
        life.live.push(cache.contains_key("key"));
        clock.advance(QUARTER);
    }
    assert!(!life.live[life.live.len() - 1], "{}: ends later", row.name);
    life
}

const LEFT: u64 = 250;
const PER_MINUTE: u64 = 17;
const TOP: u64 = 56;
const HEIGHT: u64 = 46;

fn picture(lives: &[(&Row, Life)]) -> String {
    let mut svg = String::new();
    let width = LEFT + LAST * PER_MINUTE + 30;
    let height = TOP + HEIGHT * lives.len() as u64 + 40;
    let bottom = height - 36;
    let mut draw = |text: String| writeln!(svg, "{text}").expect("memory");
    draw(format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"13\">"
    ));
    draw(format!(
        "<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"
    ));
    draw("<text x=\"12\" y=\"20\">The bar: the entry is live.</text>".into());
    for (x, event, text) in [
        (200, Event::Write, "write (a new value)"),
        (360, Event::Read, "read"),
        (430, Event::Set, "set_expiry"),
    ] {
        draw(mark(x, 16, event, true));
        draw(format!("<text x=\"{}\" y=\"20\">{text}</text>", x + 12));
    }
    draw(mark(540, 16, Event::Read, false));
    draw("<text x=\"552\" y=\"20\">a read that finds nothing</text>".into());
    for minute in (0..=LAST).step_by(5) {
        let x = LEFT + minute * PER_MINUTE;
        draw(format!(
            "<line x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#ddd\"/>",
            TOP - 12
        ));
        draw(format!(
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{minute}</text>",
            bottom + 18
        ));
    }
    draw(format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">minutes</text>",
        LEFT - 12,
        bottom + 18
    ));
    for ((row, life), number) in lives.iter().zip(0..) {
        let y = TOP + HEIGHT * number;
        draw(format!(
            "<text x=\"12\" y=\"{}\" font-weight=\"bold\">{}</text>",
            y + 8,
            row.name
        ));
        draw(format!(
            "<text x=\"12\" y=\"{}\" font-size=\"11\" fill=\"#555\">{}</text>",
            y + 24,
            row.about
        ));
        let long = life.end() * PER_MINUTE as f64;
        draw(format!(
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{long}\" height=\"18\" fill=\"#90caf9\"/>"
        ));
        for (minute, event, is_found) in &life.events {
            let is_hit = *event == Event::Write || *is_found;
            draw(mark(LEFT + minute * PER_MINUTE, y + 9, *event, is_hit));
        }
    }
    draw("</svg>".into());
    svg
}

/// The sign of an event; empty if it found nothing.
fn mark(x: u64, y: u64, event: Event, is_filled: bool) -> String {
    let colour = match event {
        Event::Write => "#1565c0",
        Event::Read => "#2e7d32",
        Event::Set => "#c62828",
    };
    let fill = if is_filled { colour } else { "white" };
    let style = format!("fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.5\"");
    match event {
        Event::Write => format!(
            "<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"10\" {style}/>",
            x - 5,
            y - 5
        ),
        Event::Read => format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"5\" {style}/>"),
        Event::Set => format!("<path d=\"M{} {} l6 6 l-6 6 l-6 -6 z\" {style}/>", x, y - 6),
    }
}

fn main() {
    let lives: Vec<(&Row, Life)> = ROWS.iter().map(|row| (row, live(row))).collect();
    for (row, life) in &lives {
        println!("{}: ended at minute {}", row.name, life.end());
    }
    let svg = picture(&lives);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/lifetimes.svg");
    if std::env::args().any(|argument| argument == "--write") {
        std::fs::write(file, svg).expect("docs is writable");
        println!("{file} is written");
    } else {
        let drawn = std::fs::read_to_string(file).expect("docs/lifetimes.svg is there");
        assert_eq!(
            drawn, svg,
            "docs/lifetimes.svg is not what the caches do: write it anew"
        );
    }
}
