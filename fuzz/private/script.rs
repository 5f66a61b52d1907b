//! Parts that all fuzz programs use.

use crate::node::NewNode;

/// The bytes of a program.
pub(super) struct Script<'a>(pub(super) &'a [u8]);

impl Script<'_> {
    /// The next operation; `None` at the end.
    pub(super) fn operation(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The next operand, 0 at the end.
    pub(super) fn operand(&mut self) -> u8 {
        self.operation().unwrap_or(0)
    }
}

/// A node that is in no map yet.
pub(super) fn make(key: u64, value: u64, hash: u64) -> NewNode<u64, u64> {
    NewNode::new(key, value, hash, 1)
}
