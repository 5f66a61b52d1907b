//! Any name is allowed, except one that no thread can have. The cache keeps the name as given
//! and shows it.

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
fn any_name_is_kept_and_shown() {
    for name in NAMES {
        let cache: Cache<u32, u32> = Cache::builder().name(name).build();
        assert_eq!(cache.name(), Some(name));
        let shown = format!("{name:?}");
        for debug in [format!("{cache:?}"), format!("{cache:#?}")] {
            assert!(debug.contains(&shown), "{debug} does not show {shown}");
        }
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
