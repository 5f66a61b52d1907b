//! CacheLib and Twitter: CSV with operations and, on writes, a lifetime in seconds.
//!
//! CacheLib's files have a header, whose columns come in any order; Twitter's have none, and a key
//! may hold commas. Keys are text and become numbers by a stable hash.

use std::time::Duration;

use csv::{ReaderBuilder, StringRecord};

use super::cloudphysics::number;
use super::{Bytes, Op, Request};

/// With a header: `op_time`, `key`, `op`, `ttl` and, for requests that came more than once,
/// `op_count`.
pub(crate) fn with_header(
    bytes: Bytes,
) -> Result<impl Iterator<Item = Result<Request, String>>, String> {
    let mut reader = ReaderBuilder::new().from_reader(bytes);
    let header = reader
        .headers()
        .map_err(|error| format!("the header cannot be read: {error}"))?;
    let find = |name: &str| header.iter().position(|column| column.trim() == name);
    let column =
        |name: &str| find(name).ok_or_else(|| format!("the header has no column \"{name}\""));
    let (time, key, op) = (find("op_time"), column("key")?, column("op")?);
    let (ttl, count) = (find("ttl"), find("op_count"));
    let parse = move |record: &StringRecord| {
        let optional =
            |column: Option<usize>| column.map(|column| number(record, column)).transpose();
        let request = Request {
            key: hash([&record[key]]),
            op: op_named(&record[op]),
            at: optional(time)?.map(Duration::from_secs),
            ttl: optional(ttl)?.and_then(lifetime),
        };
        Ok((request, optional(count)?.unwrap_or(1)))
    };
    Ok(reader.into_records().flat_map(move |record| {
        let parsed = record
            .map_err(|error| error.to_string())
            .and_then(|record| parse(&record));
        let (request, times) = match parsed {
            Ok((request, count)) => (Ok(request), count),
            Err(message) => (Err(message), 1),
        };
        (0..times).map(move |_| request.clone())
    }))
}

/// Without a header: timestamp, key, key size, value size, client, operation, ttl.
pub(crate) fn without_header(bytes: Bytes) -> impl Iterator<Item = Result<Request, String>> {
    let reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .quoting(false)
        .from_reader(bytes);
    reader.into_records().map(|record| {
        let record = record.map_err(|error| error.to_string())?;
        let columns = record.len();
        if columns < 7 {
            let line = record.position().map_or(0, csv::Position::line);
            return Err(format!("line {line} has {columns} columns, 7 are needed"));
        }
        // Commas in the key make more columns: count those behind it from the end.
        let key = record.iter().skip(1).take(columns - 6);
        Ok(Request {
            key: hash(key),
            op: op_named(&record[columns - 2]),
            at: Some(Duration::from_secs(number(&record, 0)?)),
            ttl: lifetime(number(&record, columns - 1)?),
        })
    })
}

/// Zero stands for "not given".
fn lifetime(seconds: u64) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

fn op_named(name: &str) -> Op {
    let named = |names: &[&str]| {
        names
            .iter()
            .any(|known| name.trim().eq_ignore_ascii_case(known))
    };
    if named(&["set", "add", "replace", "cas", "append", "prepend"]) {
        Op::Write
    } else if named(&["delete", "remove"]) {
        Op::Delete
    } else {
        // get, gets, and the counters, which keep an entry's life.
        Op::Access
    }
}

/// FNV-1a, of all parts one after the other.
fn hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    let bytes = parts.into_iter().flat_map(str::bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(requests: impl Iterator<Item = Result<Request, String>>) -> Vec<Request> {
        requests.map(Result::unwrap).collect()
    }

    #[test]
    fn columns_in_any_order_and_counts() {
        let one =
            b"op_time,key,key_size,op,op_count,size,ttl\n60,a,1,GET,3,0,0\n61,a,1,SET,1,9,300\n";
        let other = b"ttl,op,key,op_time\n0,GET,a,60\n0,GET,a,60\n0,GET,a,60\n300,SET,a,61\n";
        let one = read(with_header(Box::new(&one[..])).unwrap());
        assert_eq!(one, read(with_header(Box::new(&other[..])).unwrap()));
        assert_eq!(one.len(), 4);
        assert_eq!(one[0].op, Op::Access);
        assert_eq!(one[0].ttl, None);
        assert_eq!(one[3].op, Op::Write);
        assert_eq!(one[3].ttl, Some(Duration::from_secs(300)));
        assert_eq!(one[3].at, Some(Duration::from_secs(61)));
    }

    #[test]
    fn twitter_lines() {
        let text = b"0,q:q:1,17,249,1,get,0\n7,a,b\"c,5,10,2,set,60\n8,q:q:1,17,0,1,delete,0\n";
        let read = read(without_header(Box::new(&text[..])));
        assert_eq!(read.len(), 3);
        assert_eq!((read[0].op, read[0].at), (Op::Access, Some(Duration::ZERO)));
        assert_eq!(
            (read[1].op, read[1].ttl),
            (Op::Write, Some(Duration::from_secs(60)))
        );
        assert_eq!((read[2].op, read[2].key), (Op::Delete, read[0].key));
        assert_ne!(read[1].key, read[0].key);
    }

    #[test]
    fn refusals_name_the_line() {
        let text = b"0,k,1,1,1,get,0\n1,k,1\n";
        let last = without_header(Box::new(&text[..])).last().unwrap();
        assert!(last.unwrap_err().contains("line 2"));
        assert!(
            with_header(Box::new(&b"key,size\n"[..]))
                .err()
                .unwrap()
                .contains("\"op\"")
        );
    }
}
