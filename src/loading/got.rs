//! A value as a call gets it.

use crate::load;
use crate::node::NodePtr;
use crate::time::Clock;
use std::time::Duration;

/// A value, and what the call knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Got<V> {
    pub(crate) value: V,
    /// Whether the call's own code made it.
    pub(crate) fresh: bool,
    /// Whether it was in the cache at that moment.
    pub(crate) stored: bool,
    /// The time that it had left; `None` for ever.
    pub(crate) left: Option<Duration>,
}

impl<V> Got<V> {
    /// A plain hit, for a call that returns the value only.
    pub(super) fn hit(value: V) -> Self {
        Self {
            value,
            fresh: false,
            stored: true,
            left: None,
        }
    }

    /// A value that the call's own code made, and that was not stored.
    pub(super) fn unstored(value: V) -> Self {
        Self {
            fresh: true,
            stored: false,
            ..Self::hit(value)
        }
    }
}

impl<V: Clone> Got<V> {
    /// A live node's value. The pin is held; `Clone` is user code.
    pub(crate) fn of<K>(node: NodePtr<K, V>, clock: &Clock) -> Self {
        let deadline = node.deadline();
        Self {
            value: node.value().clone(),
            fresh: false,
            stored: true,
            left: clock.time_until(deadline),
        }
    }

    /// The value of another call's load.
    pub(super) fn of_load(outcome: &load::SharedValue<V>, clock: &Clock) -> Self {
        Self {
            value: outcome.value.clone(),
            fresh: false,
            stored: outcome.stored,
            left: clock.time_until(outcome.deadline),
        }
    }
}
