//! The placeholder that a load leaves in its key, and the scripts about it.

use redis::Cmd;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many bytes follow the mark. What follows those is the value that the placeholder carries.
const TOKEN: usize = 32;

/// Sets the key if it still has the placeholder, as one step: no write of another client comes
/// between.
const FILL: &str = "local there = redis.call('GET', KEYS[1]) or '' \
    if string.sub(there, 1, #ARGV[1]) ~= ARGV[1] then return end \
    return redis.call('SET', KEYS[1], unpack(ARGV, 2))";

/// Puts a placeholder into a key that has no value; or, if the last argument is `ahead`, before a
/// value with a deadline, which the placeholder then carries. Not before an empty value: it could
/// not be told from none. Returns the life of that value, or
/// -2 if there is none; and nothing if the key is not as wanted.
///
/// `GET` of an absent key and `PEXPIRE` change nothing: they find out whether the user may fill and
/// renew the placeholder. `PEXPIRE` comes after `SET`, which a server without memory refuses only
/// before the first write of a script.
const CLAIM: &str = "local left = redis.call('PTTL', KEYS[1]) \
    local there, life = redis.call('GET', KEYS[1]) or '', tonumber(ARGV[3]) \
    if left ~= -2 then \
    if left < 1 or ARGV[4] ~= 'ahead' or there == '' or string.sub(there, 1, #ARGV[2]) == ARGV[2] \
    then return end \
    life = math.min(left, life) end \
    redis.call('SET', KEYS[1], ARGV[1] .. there, 'PX', life) \
    redis.call('PEXPIRE', KEYS[1], life) return left";

/// Renews the life of a placeholder. A client may have given the key a later deadline, or none: if
/// the placeholder carries a value, that stays.
const RENEW: &str = "local there = redis.call('GET', KEYS[1]) or '' \
    if string.sub(there, 1, #ARGV[1]) ~= ARGV[1] then return end \
    if #there > #ARGV[1] then \
    local left = redis.call('PTTL', KEYS[1]) \
    if left < 0 or left > tonumber(ARGV[2]) then return end end \
    return redis.call('PEXPIRE', KEYS[1], ARGV[3])";

/// Replaces a placeholder by the value that it carries, with the time that is left of that; with
/// the time that the key has if that is not known, or if a client has given the key a later
/// deadline, or none. `PEXPIRE` with zero deletes, by the right that a claim has tried.
const RESTORE: &str = "local there = redis.call('GET', KEYS[1]) or '' \
    if string.sub(there, 1, #ARGV[1]) ~= ARGV[1] then return end \
    local old = string.sub(there, #ARGV[1] + 1) \
    if old == '' then return redis.call('PEXPIRE', KEYS[1], 0) end \
    local left = redis.call('PTTL', KEYS[1]) \
    redis.call('SET', KEYS[1], old, 'KEEPTTL') \
    if left >= 0 and left <= tonumber(ARGV[2]) and ARGV[3] ~= '' \
    then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end";

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

/// The command that sets a key if it still has this placeholder. The value and what follows it in a
/// `SET` are to be added.
pub(crate) fn fill(key: &[u8], placeholder: &[u8]) -> Cmd {
    script(FILL, key, placeholder)
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
    let mut cmd = script(CLAIM, key, placeholder);
    cmd.arg(mark).arg(life.as_millis() as u64);
    if let Claim::Ahead = claim {
        cmd.arg("ahead");
    }
    cmd
}

/// The command that gives a placeholder this life if the key still has it. A value that it carries
/// lives until its own deadline at most, `until`, if that is known.
pub(crate) fn renew(key: &[u8], placeholder: &[u8], life: Duration, until: Option<Instant>) -> Cmd {
    let left = until.map_or(life, |until| {
        until.saturating_duration_since(Instant::now()).min(life)
    });
    let mut cmd = script(RENEW, key, placeholder);
    cmd.arg(life.as_millis() as u64)
        .arg(left.as_millis() as u64);
    cmd
}

/// The command that removes a placeholder if the key still has it. A value that it carries stays
/// until its own deadline, `until`, if that is known.
pub(crate) fn remove(
    key: &[u8],
    placeholder: &[u8],
    life: Duration,
    until: Option<Instant>,
) -> Cmd {
    let left = until.map_or(String::new(), |until| {
        let left = until.saturating_duration_since(Instant::now());
        left.as_millis().to_string()
    });
    let mut cmd = script(RESTORE, key, placeholder);
    cmd.arg(life.as_millis() as u64).arg(left);
    cmd
}

fn script(script: &str, key: &[u8], placeholder: &[u8]) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(script).arg(1).arg(key).arg(placeholder);
    cmd
}
