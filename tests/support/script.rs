//! A policy with scripted answers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wheelhouse::Expiry;

/// The answer of a scripted policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The duration that was passed in, which is none on creation.
    Keep,
    Never,
    After(Duration),
    Panic,
}

/// One call of a scripted policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Create {
        key: u32,
        value: u32,
        at: Instant,
    },
    Update {
        key: u32,
        value: u32,
        at: Instant,
        left: Option<Duration>,
    },
    Read {
        key: u32,
        value: u32,
        at: Instant,
        left: Option<Duration>,
        modified: Instant,
    },
}

/// An expiry policy that gives scripted answers and records its calls.
#[derive(Clone)]
pub struct Script(Arc<Mutex<Lines>>);

struct Lines {
    create: Answer,
    update: Answer,
    read: Answer,
    asked: Vec<Asked>,
}

impl Script {
    pub fn new(create: Answer, update: Answer, read: Answer) -> Self {
        Script(Arc::new(Mutex::new(Lines {
            create,
            update,
            read,
            asked: Vec::new(),
        })))
    }

    pub fn on_create(&self, answer: Answer) {
        self.0.lock().unwrap().create = answer;
    }

    pub fn on_update(&self, answer: Answer) {
        self.0.lock().unwrap().update = answer;
    }

    pub fn on_read(&self, answer: Answer) {
        self.0.lock().unwrap().read = answer;
    }

    /// All calls since this was last called.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }

    fn answer(
        &self,
        asked: Asked,
        pick: impl Fn(&Lines) -> Answer,
        left: Option<Duration>,
    ) -> Option<Duration> {
        let answer = {
            let mut lines = self.0.lock().unwrap();
            lines.asked.push(asked);
            pick(&lines)
        };
        match answer {
            Answer::Keep => left,
            Answer::Never => None,
            Answer::After(life) => Some(life),
            Answer::Panic => panic!("the policy was told to panic"),
        }
    }
}

impl Expiry<u32, u32> for Script {
    fn expire_after_create(&self, &key: &u32, &value: &u32, at: Instant) -> Option<Duration> {
        self.answer(Asked::Create { key, value, at }, |lines| lines.create, None)
    }

    fn expire_after_update(
        &self,
        &key: &u32,
        &value: &u32,
        at: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        self.answer(
            Asked::Update {
                key,
                value,
                at,
                left,
            },
            |lines| lines.update,
            left,
        )
    }

    fn expire_after_read(
        &self,
        &key: &u32,
        &value: &u32,
        at: Instant,
        left: Option<Duration>,
        modified: Instant,
    ) -> Option<Duration> {
        self.answer(
            Asked::Read {
                key,
                value,
                at,
                left,
                modified,
            },
            |lines| lines.read,
            left,
        )
    }
}
