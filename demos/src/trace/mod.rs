//! Access traces: which files there are, what a request is, and how a file becomes requests.
//!
//! Both the compression and the format are told from the first bytes, not from the name: four of
//! the formats end in `.trace` or `.csv` and look different inside.

mod cachelib;
mod cloudphysics;
mod files;
mod integers;
mod lines;
mod numbers;
mod ranges;
mod unpack;

use std::io::{BufRead, Read};
use std::str::FromStr;
use std::time::Duration;

pub use files::{DEFAULT_FOLDER, files};

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub key: u64,
    /// What is done with it.
    pub op: Op,
    /// Time stamp, from an origin of the trace's own.
    pub at: Option<Duration>,
    /// Lifetime given by the trace.
    pub ttl: Option<Duration>,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A look-up, and a write if it misses.
    Access,
    /// A write, whether the key is there or not.
    Write,
    /// A removal.
    Delete,
}

/// The requests of a trace, in order.
pub type Requests = Box<dyn Iterator<Item = Result<Request, String>>>;

/// A source of decompressed bytes.
type Bytes = Box<dyn BufRead>;

/// What a trace looks like inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A decimal number per line (LIRS)
    Numbers,
    /// Big-endian 32-bit integers (cache2k)
    Integers,
    /// Lines of "start count ignored number", for the keys from start on (ARC)
    Ranges,
    /// CSV with the columns time (in microseconds) and lbn (CloudPhysics)
    Cloudphysics,
    /// CSV with the columns op_time, key, op and ttl (CacheLib); each line as often as op_count
    /// says
    Cachelib,
    /// CSV without header: timestamp, key, key size, value size, client, op, ttl (Twitter)
    Twitter,
}

const FORMATS: [(&str, Format); 6] = [
    ("numbers", Format::Numbers),
    ("integers", Format::Integers),
    ("ranges", Format::Ranges),
    ("cloudphysics", Format::Cloudphysics),
    ("cachelib", Format::Cachelib),
    ("twitter", Format::Twitter),
];

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = FORMATS.iter().find(|(name, _)| *name == text);
        known.map(|&(_, format)| format).ok_or_else(|| {
            let names = FORMATS.map(|(name, _)| name).join(", ");
            format!("\"{text}\" is no format of traces; known are {names}")
        })
    }
}

/// The requests of a file, plain or compressed; the format is told from the content if it is not
/// given.
pub fn requests(raw: impl Read + 'static, format: Option<Format>) -> Result<Requests, String> {
    let mut bytes = unpack::unpacked(raw)?;
    let format = match format {
        Some(format) => format,
        None => told_from(
            bytes
                .fill_buf()
                .map_err(|error| format!("cannot be read: {error}"))?,
        )?,
    };
    Ok(match format {
        Format::Numbers => Box::new(numbers::requests(bytes)),
        Format::Integers => Box::new(integers::requests(bytes)),
        Format::Ranges => Box::new(ranges::requests(bytes)),
        Format::Cloudphysics => Box::new(cloudphysics::requests(bytes)?),
        Format::Cachelib => Box::new(cachelib::with_header(bytes)?),
        Format::Twitter => Box::new(cachelib::without_header(bytes)),
    })
}

/// The format that begins with these bytes.
fn told_from(beginning: &[u8]) -> Result<Format, String> {
    if beginning.is_empty() {
        return Err("is empty".to_owned());
    }
    // Keys are far below 2^31, so a binary trace has zeros in its first bytes; text has none.
    let looks_binary = |byte: &u8| !byte.is_ascii_graphic() && !byte.is_ascii_whitespace();
    if beginning.iter().take(64).any(looks_binary) {
        return Ok(Format::Integers);
    }
    let line = beginning
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .find(|line| !line.is_empty());
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    let has_column = |name| {
        line.split(',')
            .any(|column| column.trim().eq_ignore_ascii_case(name))
    };
    if has_column("lbn") {
        Ok(Format::Cloudphysics)
    } else if has_column("key") && has_column("op") {
        Ok(Format::Cachelib)
    } else if line.matches(',').count() >= 6 {
        Ok(Format::Twitter)
    } else if line.split_whitespace().count() == 4 {
        Ok(Format::Ranges)
    } else if line == "*" || line.parse::<u64>().is_ok() {
        Ok(Format::Numbers)
    } else {
        Err(format!(
            "the format of the line \"{}\" is not known; name it with --format",
            line.chars().take(60).collect::<String>()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_apart() {
        let cases: [(&[u8], Format); 8] = [
            (b"17\n18\n", Format::Numbers),
            (b"\n*\n17\n", Format::Numbers),
            (&[0, 0, 1, 7, 0, 0, 0, 9], Format::Integers),
            (b"230027 8 0 0\n", Format::Ranges),
            (
                b"version,time,op,size,lbn\n1,5,2a,512,4\n",
                Format::Cloudphysics,
            ),
            (
                b"op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n",
                Format::Cachelib,
            ),
            (b"0,q:q:1:8W,17,249,1,get,0\n", Format::Twitter),
            (b"0,a,key,17,249,1,get,0\n", Format::Twitter),
        ];
        for (bytes, format) in cases {
            assert_eq!(told_from(bytes), Ok(format), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn the_unknown_is_quoted() {
        assert!(
            told_from(b"hello world\n")
                .unwrap_err()
                .contains("hello world")
        );
        assert!(told_from(b"").is_err());
    }
}
