//! Sessions with a sliding expiry: every use of a session restarts its idle time; `peek_ref` does
//! not.
//!
//! Each user has an idle time of their own, so a cache-wide `time_to_idle` would not do: the policy
//! asks the session. Reads go through `get_ref`, which hands out a reference instead of a clone;
//! the session lives in the cache and nowhere else.
//!
//! Run: `cargo run --example sessions`
//!
//! Expect: a short story told line by line, at once, because the clock is a `ManualTicker`. Every
//! line is also checked; the program exits with a panic if the cache ever disagrees.

use std::sync::Mutex;
use std::time::Duration;

use wheelhouse::{Cache, ManualTicker, RemovalCause, expiry};

const MINUTE: Duration = Duration::from_secs(60);

/// Neither `Clone` nor `Copy`: the cache lends it out.
struct Session {
    user: &'static str,
    idle_limit: Mutex<Duration>,
    basket: Vec<&'static str>,
}

fn main() {
    let ticker = ManualTicker::new();
    let sessions: Cache<String, Session> = Cache::builder()
        .name("sessions")
        .max_capacity(100_000)
        // Asked on create, on update and on every read; what it answers counts from now.
        .expire_after(expiry::accessing(|_token: &String, session: &Session| {
            Some(*session.idle_limit.lock().unwrap())
        }))
        .removal_listener(|token: &String, session: &Session, cause: RemovalCause| {
            println!("  listener: {token} of {} left: {cause:?}", session.user);
        })
        .ticker(ticker.clone())
        .build();

    let login = |token: &str, user, idle_limit, basket| {
        sessions.insert(
            token.to_owned(),
            Session {
                user,
                idle_limit: Mutex::new(idle_limit),
                basket,
            },
        );
    };
    login("tok-ada", "ada", 30 * MINUTE, vec!["lamp"]);
    login("tok-bob", "bob", 10 * MINUTE, vec![]);
    println!("ada may idle for 30 minutes, bob for 10");

    ticker.advance(9 * MINUTE);
    {
        // A reference pins memory while it lives: take what is needed and let go.
        let bob = sessions
            .get_ref("tok-bob")
            .expect("bob was here 9 minutes ago");
        assert_eq!(bob.time_left(), Some(10 * MINUTE));
        println!(
            "minute 9: bob clicks, has {} things in the basket and 10 minutes again",
            bob.basket.len()
        );
    }
    {
        let ada = sessions
            .peek_ref("tok-ada")
            .expect("ada has 21 minutes left");
        assert_eq!(ada.time_left(), Some(21 * MINUTE));
        println!(
            "minute 9: an admin looks at ada's basket {:?}; that is no use, 21 minutes stay",
            ada.basket
        );
    }

    ticker.advance(10 * MINUTE);
    assert!(
        sessions.get_ref("tok-bob").is_none(),
        "at exactly its deadline a session is gone"
    );
    println!("minute 19: bob's session is over");
    sessions.run_pending_tasks();

    // "Keep me signed in". `set_expiry` would not do: the next use asks the policy, which would
    // answer 30 minutes again. So the answer itself changes, and the click that asks for it is the
    // first use that gets the new one.
    {
        let ada = sessions.peek_ref("tok-ada").expect("11 minutes are left");
        *ada.idle_limit.lock().unwrap() = 24 * 60 * MINUTE;
    }
    assert!(sessions.get_ref("tok-ada").is_some());
    ticker.advance(12 * 60 * MINUTE);
    {
        let ada = sessions.get_ref("tok-ada").expect("half a day is left");
        assert_eq!(ada.time_left(), Some(24 * 60 * MINUTE));
        println!("half a day later: ada asked to stay signed in, clicks, and has a day again");
    }
    ticker.advance(23 * 60 * MINUTE);
    assert!(sessions.contains_key("tok-ada"));

    sessions.invalidate("tok-ada");
    sessions.run_pending_tasks();
    assert_eq!(sessions.entry_count(), 0);
    println!("ada signs out: no session left");
}
