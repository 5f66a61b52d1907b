//! The protocol as it is.

use crate::sync as door;

#[path = "../../reclaim/epoch.rs"]
mod epoch;
#[path = "models.rs"]
pub(super) mod models;
