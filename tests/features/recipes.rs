//! Runs the examples of docs/recipes.md as documentation tests.

#![doc = include_str!("../../docs/recipes.md")]
