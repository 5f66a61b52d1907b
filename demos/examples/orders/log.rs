//! A file of lines that is only ever appended to: the journals, the book and the receipts.
//!
//! A line ends with a checksum of what stands before it. So a line that a crash cut off is
//! recognised: it is the last, and it is dropped, since nothing counts before its line is synced. A
//! bad line before a good one has another cause, and is an error.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Placed,
    Paid,
    Closed,
}

/// What happened to an order. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) what: What,
    pub(crate) number: u32,
    pub(crate) at: u64,
    pub(crate) due: u64,
}

/// Now, as lines tell it.
pub(crate) fn now() -> u64 {
    nanos(SystemTime::now())
}

pub(crate) fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// From `then` to `later`; zero if that lies before.
pub(crate) fn between(then: u64, later: u64) -> Duration {
    Duration::from_nanos(later.saturating_sub(then))
}

const WORDS: [(What, &str); 3] = [
    (What::Placed, "placed"),
    (What::Paid, "paid"),
    (What::Closed, "closed"),
];

impl Line {
    fn write(&self, into: &mut String) {
        let word = WORDS.iter().find(|(what, _)| *what == self.what);
        let word = word.expect("each kind of line has its word").1;
        let body = format!("{word} {} at {} due {}", self.number, self.at, self.due);
        let sum = crc32fast::hash(body.as_bytes());
        into.push_str(&format!("{body} sum {sum:08x}\n"));
    }

    fn read(line: &[u8]) -> Option<Self> {
        let (body, sum) = std::str::from_utf8(line).ok()?.rsplit_once(" sum ")?;
        if sum.len() != 8 || u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(body.as_bytes())
        {
            return None;
        }
        let words: Vec<&str> = body.split(' ').collect();
        let [word, number, "at", at, "due", due] = words[..] else {
            return None;
        };
        Some(Self {
            what: WORDS.iter().find(|(_, known)| *known == word)?.0,
            number: number.parse().ok()?,
            at: at.parse().ok()?,
            due: due.parse().ok()?,
        })
    }
}

/// What a file held.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Read {
    pub(crate) lines: Vec<Line>,
    /// Where the last good line ends.
    pub(crate) good: usize,
    /// Bytes behind it, which a crash cut off.
    pub(crate) torn: usize,
}

#[derive(Debug)]
pub(crate) enum Unreadable {
    Io(io::Error),
    /// The number of a line that is bad although a good one follows.
    Damaged(usize),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Damaged(line) => write!(f, "damaged in line {line}"),
        }
    }
}

pub(crate) fn read(path: &Path) -> Result<Read, Unreadable> {
    parse(&std::fs::read(path).map_err(Unreadable::Io)?)
}

fn parse(bytes: &[u8]) -> Result<Read, Unreadable> {
    let mut read = Read::default();
    let mut end = 0;
    let mut bad = None;
    for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        end += line.len();
        match line.strip_suffix(b"\n").and_then(Line::read) {
            Some(line) if bad.is_none() => {
                read.lines.push(line);
                read.good = end;
            }
            Some(_) => return Err(Unreadable::Damaged(bad.unwrap_or_default())),
            None => bad = bad.or(Some(index + 1)),
        }
    }
    read.torn = bytes.len() - read.good;
    Ok(read)
}

/// A file open for appending.
pub(crate) struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    /// Opens a file, and makes it if it is not there. A torn end is cut off, so that the next line
    /// begins a line.
    pub(crate) fn open(path: &Path) -> Result<(Self, Read), Unreadable> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.map_err(Unreadable::Io)?;
        let read = read(path)?;
        if read.torn > 0 {
            let cut = file.set_len(read.good as u64);
            cut.and_then(|()| file.sync_all()).map_err(Unreadable::Io)?;
        }
        let path = path.to_owned();
        Ok((Self { file, path }, read))
    }

    /// Appends lines and syncs them: when this returns, they stay.
    pub(crate) fn append(&mut self, lines: &[Line]) -> Result<(), String> {
        self.append_unsynced(lines)?;
        self.file.sync_data().map_err(|error| self.failed(error))
    }

    /// Appends lines that need not survive a power failure, only a kill of the program.
    pub(crate) fn append_unsynced(&mut self, lines: &[Line]) -> Result<(), String> {
        let mut text = String::new();
        lines.iter().for_each(|line| line.write(&mut text));
        self.file
            .write_all(text.as_bytes())
            .map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> String {
        format!("cannot write {}: {error}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: u32) -> (Vec<Line>, Vec<u8>) {
        let whats = [What::Placed, What::Paid, What::Closed];
        let lines: Vec<Line> = (0..count)
            .map(|number| Line {
                what: whats[number as usize % 3],
                number,
                at: 17,
                due: u64::MAX,
            })
            .collect();
        let mut text = String::new();
        lines.iter().for_each(|line| line.write(&mut text));
        (lines, text.into_bytes())
    }

    #[test]
    fn lines_come_back() {
        let (lines, bytes) = lines(5);
        let good = bytes.len();
        let torn = 0;
        assert_eq!(parse(&bytes).unwrap(), Read { lines, good, torn });
        assert_eq!(parse(b"").unwrap(), Read::default());
    }

    #[test]
    fn a_line_that_was_cut_off_anywhere_is_dropped_and_the_others_stay() {
        let (lines, bytes) = lines(3);
        let whole = bytes[..bytes.len() - 1]
            .iter()
            .rposition(|&byte| byte == b'\n')
            .unwrap()
            + 1;
        for cut in whole..bytes.len() {
            let read = parse(&bytes[..cut]).unwrap();
            assert_eq!((&read.lines[..], read.good), (&lines[..2], whole));
            assert_eq!(read.torn, cut - whole);
        }
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let (lines, bytes) = lines(3);
        let mut ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let second_end = ends.nth(1).unwrap().0;
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            match parse(&changed) {
                Err(Unreadable::Damaged(line)) => assert!(line <= 2),
                Err(Unreadable::Io(error)) => panic!("{error}"),
                // In the last line it looks as if a crash had cut it off. So do the last two, if
                // nothing separates them any more.
                Ok(read) => {
                    let left = if at == second_end { 1 } else { 2 };
                    assert_eq!(read.lines, lines[..left], "{at}");
                }
            }
        }
    }
}
