//! The bodies of the fuzz targets that use the public interface of the cache. Those for private
//! parts are in the crate itself, behind `--cfg fuzzing`.

pub mod bounded;
pub mod cache;
pub mod hostile;
pub mod reentry;
pub mod settings;

#[path = "../../tests/support/ledger.rs"]
pub mod ledger;
#[path = "../../tests/support/loads.rs"]
pub mod loads;
#[path = "../../tests/support/model/mod.rs"]
pub mod model;
