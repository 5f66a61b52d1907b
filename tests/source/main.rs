//! What holds for the sources themselves: which modules import which, where unsafe code is, and
//! that each guarantee has its tests.

mod guarantees;
mod imports;
mod unsafe_inventory;
