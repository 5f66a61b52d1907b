//! What holds for the sources themselves: which modules import which, where unsafe code is, that
//! each guarantee has its tests, and that the figures of DESIGN.md follow the code.

mod figures;
mod guarantees;
mod imports;
mod unsafe_inventory;
