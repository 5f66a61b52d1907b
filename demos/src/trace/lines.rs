//! Lines of text with their numbers, for the formats that are read line by line.

use std::io::BufRead;

use super::Bytes;

/// Calls `parse` with each line, trimmed, and names the line in its refusals. `None` from `parse`
/// skips the line.
pub(crate) fn parsed<T>(
    mut bytes: Bytes,
    mut parse: impl FnMut(&str) -> Option<Result<T, String>>,
) -> impl Iterator<Item = Result<T, String>> {
    let mut line = String::new();
    let mut number = 0;
    std::iter::from_fn(move || {
        loop {
            line.clear();
            number += 1;
            match bytes.read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(format!("line {number} cannot be read: {error}"))),
            }
            if let Some(outcome) = parse(line.trim()) {
                return Some(outcome.map_err(|message| format!("line {number}: {message}")));
            }
        }
    })
}
