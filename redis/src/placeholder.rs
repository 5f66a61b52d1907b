//! The placeholder that a load leaves in its key, and the scripts about it.

use redis::Cmd;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

/// How many bytes follow the mark. What follows those is the value that the placeholder carries.
const TOKEN: usize = 32;

/// Runs the command of the arguments on the key if the key still has the placeholder, as one step:
/// no write of another client comes between. A placeholder that carries a value is not deleted, but
/// replaced by the value.
const IF_STILL: &str = "local there = redis.call('GET', KEYS[1]) or '' \
    if string.sub(there, 1, #ARGV[1]) ~= ARGV[1] then return end \
    local old = string.sub(there, #ARGV[1] + 1) \
    if ARGV[2] == 'DEL' and old ~= '' then \
    return redis.call('SET', KEYS[1], old, 'KEEPTTL') end \
    return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))";

/// Puts a placeholder before the value of the key, if the value has none yet.
const AHEAD: &str = "local there = redis.call('GET', KEYS[1]) or '' \
    if there == '' or string.sub(there, 1, #ARGV[2]) == ARGV[2] then return end \
    return redis.call('SET', KEYS[1], ARGV[1] .. there, 'KEEPTTL')";

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
/// that follow the key are to be added. Every key has the empty placeholder.
pub(crate) fn if_still(key: &[u8], placeholder: &[u8], command: &str) -> Cmd {
    let mut cmd = script(IF_STILL, key, placeholder);
    cmd.arg(command);
    cmd
}

/// The command that claims a key which has a value.
pub(crate) fn ahead(key: &[u8], placeholder: &[u8], mark: &[u8]) -> Cmd {
    let mut cmd = script(AHEAD, key, placeholder);
    cmd.arg(mark);
    cmd
}

fn script(script: &str, key: &[u8], placeholder: &[u8]) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(script).arg(1).arg(key).arg(placeholder);
    cmd
}
