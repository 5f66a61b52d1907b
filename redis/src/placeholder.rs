//! The placeholder that a load leaves in its key, and the scripts about it.

use redis::Cmd;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many bytes follow the mark. What follows those is the value that the placeholder carries.
const TOKEN: usize = 32;

/// Runs the command of the arguments on the key if the key still has the placeholder, as one step:
/// no write of another client comes between.
const IF_STILL: &str = "local there = redis.call('GET', KEYS[1]) or '' \
    if string.sub(there, 1, #ARGV[1]) ~= ARGV[1] then return end \
    return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))";

/// Puts a placeholder into a key that has no value; or, if the last argument is `ahead`, before a
/// value with a deadline, which the placeholder then carries. Returns the life of that value, or
/// -2 if there is none; and nothing if the key is not as wanted.
const CLAIM: &str = "local left = redis.call('PTTL', KEYS[1]) \
    local there, life = '', tonumber(ARGV[3]) \
    if left ~= -2 then \
    there = redis.call('GET', KEYS[1]) or '' \
    if left < 1 or ARGV[4] ~= 'ahead' or string.sub(there, 1, #ARGV[2]) == ARGV[2] \
    then return end \
    life = math.min(left, life) end \
    redis.call('SET', KEYS[1], ARGV[1] .. there, 'PX', life) \
    return left";

/// Replaces a placeholder by the value that it carries.
const RESTORE: &str = "local there = redis.call('GET', KEYS[1]) or '' \
    if string.sub(there, 1, #ARGV[1]) ~= ARGV[1] then return end \
    return redis.call('SET', KEYS[1], string.sub(there, #ARGV[1] + 1), 'PX', ARGV[2])";

/// A new placeholder: the mark, then 32 hexadecimal digits that no other one has.
pub(crate) fn new(mark: &[u8]) -> Arc<[u8]> {
    let random = || RandomState::new().hash_one(0u8);
    let token = format!("{:016x}{:016x}", random(), random());
    [mark, token.as_bytes()].concat().into()
}

/// The placeholder in these bytes of a key, and the value that it carries.
pub(crate) fn split<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    if !bytes.starts_with(mark) {
        return None;
    }
    Some(bytes.split_at(bytes.len().min(mark.len() + TOKEN)))
}

/// The command that runs `command` on the key if the key still has this placeholder. The arguments
/// that follow the key are to be added.
pub(crate) fn if_still(key: &[u8], placeholder: &[u8], command: &str) -> Cmd {
    let mut cmd = script(IF_STILL, key, placeholder);
    cmd.arg(command);
    cmd
}

/// What a claim finds at the server.
#[derive(Clone, Copy)]
pub(crate) enum Claim {
    /// A key without a value.
    Absent,
    /// A value before its deadline, which the placeholder carries, or none any more.
    Ahead,
}

/// The command that claims a key.
pub(crate) fn claim(
    key: &[u8],
    placeholder: &[u8],
    mark: &[u8],
    life: Duration,
    claim: Claim,
) -> Cmd {
    let wanted = match claim {
        Claim::Absent => "absent",
        Claim::Ahead => "ahead",
    };
    let mut cmd = script(CLAIM, key, placeholder);
    cmd.arg(mark).arg(life.as_millis() as u64).arg(wanted);
    cmd
}

/// The command that removes a placeholder if the key still has it. What it carries stays until its
/// own deadline, `until`.
pub(crate) fn remove(key: &[u8], placeholder: &[u8], until: Option<Instant>) -> Cmd {
    let left = until.map_or(0, |until| {
        let left = until.saturating_duration_since(Instant::now());
        left.as_millis() as u64
    });
    if left == 0 {
        return if_still(key, placeholder, "DEL");
    }
    let mut cmd = script(RESTORE, key, placeholder);
    cmd.arg(left);
    cmd
}

fn script(script: &str, key: &[u8], placeholder: &[u8]) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(script).arg(1).arg(key).arg(placeholder);
    cmd
}
