//! One entry in a cache with a scripted policy, in each of the three states that an operation may
//! find.

use std::time::Duration;

use wheelhouse::{Cache, ManualTicker, RemovalCause};

use super::record::Record;
use super::script::{Answer, Asked, Script};
use super::secs;

/// The key of every entry below; the values tell which insert they come from.
pub const KEY: u32 = 7;
pub const OLD: u32 = 100;
pub const NEW: u32 = 200;

pub struct Rig {
    pub cache: Cache<u32, u32>,
    pub clock: ManualTicker,
    pub script: Script,
    pub heard: Record<u32, u32>,
}

impl Rig {
    /// A cache whose policy answers ten seconds on creation, twenty on update, thirty on read.
    pub fn new() -> Rig {
        let clock = ManualTicker::starting_at(1_000_000_007);
        let script = Script::new(
            Answer::After(secs(10)),
            Answer::After(secs(20)),
            Answer::After(secs(30)),
        );
        let heard = Record::new();
        let cache = Cache::builder()
            .expire_after(script.clone())
            .ticker(clock.clone())
            .removal_listener(heard.listener())
            .build();
        Rig {
            cache,
            clock,
            script,
            heard,
        }
    }

    /// An entry that was inserted three seconds ago and has seven left.
    pub fn present() -> Rig {
        let rig = Rig::new();
        rig.cache.insert(KEY, OLD);
        rig.script.asked();
        rig.clock.advance(secs(3));
        rig
    }

    /// An entry that is past its deadline; no maintenance has run since.
    pub fn expired() -> Rig {
        let rig = Rig::present();
        rig.clock.advance(secs(7));
        rig
    }

    pub fn left(&self) -> Option<Option<Duration>> {
        self.cache.peek_ref(&KEY).map(|entry| entry.time_left())
    }

    pub fn heard(&self) -> Vec<(u32, u32, RemovalCause)> {
        self.cache.run_pending_tasks();
        self.heard.take()
    }

    pub fn created(&self) -> Vec<(u32, u32)> {
        let asked = self.script.asked();
        asked
            .iter()
            .map(|call| match *call {
                Asked::Create { key, value, .. } => (key, value),
                other => panic!("asked as {other:?}"),
            })
            .collect()
    }

    #[track_caller]
    pub fn nobody_was_asked(&self) {
        assert_eq!(self.script.asked(), []);
    }
}
