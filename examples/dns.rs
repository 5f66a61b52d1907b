//! A DNS cache: every record brings its own time to live, and the cache takes it from the value.
//!
//! Addresses live as long as the answer says, "no such name" lives as long as the zone's negative
//! TTL says, and a zero TTL is used once and never served from the cache. A read does not extend
//! anything: `expiry::writing` is asked on create and update.
//!
//! Run: `cargo run --example dns`
//!
//! Expect: a table of questions over five virtual minutes, each answered by the cache or by the
//! upstream server, with the time to live that is left. Every answer is checked; the program panics
//! if the cache ever disagrees.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::time::Duration;

use wheelhouse::{Cache, ManualTicker, expiry};

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Address(Ipv4Addr),
    NoSuchName,
}

#[derive(Clone, Debug)]
struct Record {
    answer: Answer,
    ttl: Duration,
}

/// Stands for the network: the zone as its name server would answer it.
fn ask_upstream(name: &str) -> Record {
    let (answer, seconds) = match name {
        "www.example.org" => (Answer::Address(Ipv4Addr::new(192, 0, 2, 1)), 60),
        "static.example.org" => (Answer::Address(Ipv4Addr::new(192, 0, 2, 7)), 86_400),
        "now.example.org" => (Answer::Address(Ipv4Addr::new(192, 0, 2, 9)), 0),
        _ => (Answer::NoSuchName, 180),
    };
    Record {
        answer,
        ttl: Duration::from_secs(seconds),
    }
}

struct Resolver {
    cache: Cache<String, Record>,
    upstream_questions: Cell<u32>,
}

impl Resolver {
    fn new(ticker: ManualTicker) -> Self {
        let cache = Cache::builder()
            .name("dns")
            .max_capacity(10_000)
            .expire_after(expiry::writing(|_name: &String, record: &Record| {
                Some(record.ttl)
            }))
            .ticker(ticker)
            .build();
        Self {
            cache,
            upstream_questions: Cell::new(0),
        }
    }

    /// The answer, and the life left if the cache gave it.
    fn resolve(&self, name: &str) -> (Answer, Option<Duration>) {
        // The key is a `String`, the question a `&str`: no allocation on a hit.
        if let Some(record) = self.cache.get_ref(name) {
            return (record.answer.clone(), record.time_left());
        }
        let record = ask_upstream(name);
        self.upstream_questions
            .set(self.upstream_questions.get() + 1);
        self.cache.insert(name.to_owned(), record.clone());
        (record.answer, None)
    }
}

fn main() {
    let ticker = ManualTicker::new();
    let resolver = Resolver::new(ticker.clone());
    // At second, question, and whether the cache is to know.
    let questions = [
        (0, "www.example.org", false),
        (0, "static.example.org", false),
        (0, "gone.example.org", false),
        (59, "www.example.org", true),
        (60, "www.example.org", false), // its 60 s are over, however often it was asked for
        (100, "now.example.org", false),
        (100, "now.example.org", false), // a zero TTL is never served
        (179, "gone.example.org", true),
        (180, "gone.example.org", false),
        (300, "static.example.org", true),
    ];

    println!(
        "{:>6}  {:<20} {:<12} {:<10} answer",
        "second", "question", "answered by", "life left"
    );
    let mut now = 0;
    for (second, name, cached) in questions {
        ticker.advance(Duration::from_secs(second - now));
        now = second;
        let (answer, left) = resolver.resolve(name);
        assert_eq!(left.is_some(), cached, "{name} at second {second}");
        assert_eq!(answer, ask_upstream(name).answer);
        println!(
            "{second:>6}  {name:<20} {:<12} {:<10} {answer:?}",
            if cached { "cache" } else { "upstream" },
            left.map_or_else(|| "-".to_owned(), |left| format!("{} s", left.as_secs())),
        );
    }

    assert_eq!(resolver.upstream_questions.get(), 7);
    resolver.cache.run_pending_tasks();
    // www.example.org (asked at 60) and now.example.org have expired; static and gone (asked again
    // at 180) live.
    assert_eq!(resolver.cache.entry_count(), 2);
    println!(
        "{} questions, 7 went upstream, 2 records alive",
        questions.len()
    );
}
