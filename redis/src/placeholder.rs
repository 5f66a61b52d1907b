//! The placeholder that a load leaves in its key, and the one script about it.

use redis::Cmd;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Runs the command of the arguments on the key if the key still has the placeholder. Otherwise it
/// returns what the key has. As one step, so that no write of another client comes between.
const SCRIPT: &str = "local there = redis.call('GET', KEYS[1]) \
    if there ~= ARGV[1] then return there end \
    return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))";

/// A new placeholder: the mark, then 32 hexadecimal digits that no other one has.
pub(crate) fn new(mark: &[u8]) -> Arc<[u8]> {
    let random = || RandomState::new().hash_one(0u8);
    let token = format!("{:016x}{:016x}", random(), random());
    [mark, token.as_bytes()].concat().into()
}

/// The command that runs `command` on the key if the key still has this placeholder. The arguments
/// that follow the key are to be added.
pub(crate) fn if_still(key: &[u8], placeholder: &[u8], command: &str) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(SCRIPT)
        .arg(1)
        .arg(key)
        .arg(placeholder)
        .arg(command);
    cmd
}
