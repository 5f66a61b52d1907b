//! The protocol as it is.

use crate::sync as door;

#[path = "../../reclaim/epoch.rs"]
#[expect(dead_code, reason = "what a thread does at its end is its own matter")]
mod epoch;
#[path = "models.rs"]
pub(super) mod models;
