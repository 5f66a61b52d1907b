//! CloudPhysics: CSV with a header; `time` in microseconds, the key is `lbn`, a block's number.
//! Reads and writes of a block are both accesses to it.

use std::time::Duration;

use csv::{ReaderBuilder, StringRecord};

use super::{Bytes, Op, Request};

pub(crate) fn requests(
    bytes: Bytes,
) -> Result<impl Iterator<Item = Result<Request, String>>, String> {
    let mut reader = ReaderBuilder::new().from_reader(bytes);
    let header = reader
        .headers()
        .map_err(|error| format!("the header cannot be read: {error}"))?;
    let column = |name: &str| {
        header
            .iter()
            .position(|column| column.trim() == name)
            .ok_or_else(|| format!("the header has no column \"{name}\""))
    };
    let (time, lbn) = (column("time")?, column("lbn")?);
    Ok(reader.into_records().map(move |record| {
        let record = record.map_err(|error| error.to_string())?;
        let at = Duration::from_micros(number(&record, time)?);
        Ok(Request {
            key: number(&record, lbn)?,
            op: Op::Access,
            at: Some(at),
            ttl: None,
        })
    }))
}

/// A whole number in a column; a refusal names the line.
pub(crate) fn number(record: &StringRecord, column: usize) -> Result<u64, String> {
    let text = record.get(column).unwrap_or_default().trim();
    text.parse().map_err(|_| {
        let line = record.position().map_or(0, csv::Position::line);
        format!(
            "line {line}: \"{text}\" in column {} is not a whole number",
            column + 1
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let text = b"version,time,op,size,lbn\n1,5000000,2a,512,42\n1,5000250,28,512,43\n";
        let read: Vec<Request> = requests(Box::new(&text[..]))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let at = |micros| Some(Duration::from_micros(micros));
        assert_eq!(
            read,
            [
                Request {
                    key: 42,
                    op: Op::Access,
                    at: at(5_000_000),
                    ttl: None
                },
                Request {
                    key: 43,
                    op: Op::Access,
                    at: at(5_000_250),
                    ttl: None
                },
            ]
        );
    }

    #[test]
    fn refusals() {
        assert!(
            requests(Box::new(&b"version,time,op\n"[..]))
                .err()
                .unwrap()
                .contains("lbn")
        );
        let text = b"time,lbn\n1,2\n1,x\n";
        let last = requests(Box::new(&text[..])).unwrap().last();
        assert!(last.unwrap().unwrap_err().contains("line 3"));
    }
}
