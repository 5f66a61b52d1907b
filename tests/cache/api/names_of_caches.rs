//! Any name is allowed, except one that no thread can have. The cache keeps the name as given,
//! shows it, and sets it for its thread.

use std::sync::mpsc;

use crate::support::secs;
use wheelhouse::{Cache, CacheBuilder};

const NAMES: [&str; 6] = [
    "",
    " ",
    "\n",
    "größe-🦀-é-longer-than-an-operating-system-lets-the-name-of-a-thread-be",
    "{} {0} %s \u{202e}",
    "sessions",
];

#[test]
fn any_name_is_kept_shown_and_set_for_the_thread() {
    for name in NAMES {
        let (heard, hears) = mpsc::channel();
        let cache = Cache::builder()
            .name(name)
            .removal_listener(move |key: &u32, _: &u32, _| {
                let thread = std::thread::current().name().map(str::to_string);
                heard.send((*key, thread)).ok();
            })
            .build();
        assert_eq!(cache.name(), Some(name));
        let shown = format!("{name:?}");
        for debug in [format!("{cache:?}"), format!("{cache:#?}")] {
            assert!(debug.contains(&shown), "{debug} does not show {shown}");
        }
        cache.insert(1, 1);
        cache.invalidate(&1);
        let (key, thread) = hears
            .recv_timeout(secs(15))
            .unwrap_or_else(|_| panic!("no thread works for the cache {name:?}"));
        assert_eq!(key, 1);
        assert!(
            thread.as_ref().is_some_and(|thread| thread.ends_with(name)),
            "{thread:?} does not have the name {name:?}"
        );
    }
}

#[test]
fn the_builder_shows_its_name_and_takes_it_in_any_form() {
    let builder: CacheBuilder<u32, u32> = Cache::builder().name(String::from("tokens"));
    assert!(format!("{builder:?}").contains("\"tokens\""));
    let boxed: Box<str> = "tickets".into();
    assert_eq!(builder.name(boxed).build().name(), Some("tickets"));
}

#[test]
fn a_name_with_nul_is_refused_because_no_thread_can_have_it() {
    for name in ["\0", "a\0b", "end\0"] {
        let refused = Cache::<u32, u32>::builder().name(name).try_build();
        let message = refused
            .expect_err("no thread can have this name")
            .to_string();
        let shown = format!("{name:?}");
        for part in ["name is", &shown, "without NUL"] {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
        assert!(
            !message.contains('\0'),
            "{message:?} would end early in a log"
        );
    }
}
