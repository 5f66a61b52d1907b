//! What holds for the sources themselves: which modules import which, and where unsafe code is.

mod imports;
mod unsafe_inventory;
