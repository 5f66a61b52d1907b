//! ARC: `start count ignored number`; a line stands for the keys from start to start + count - 1.

use super::{Bytes, Op, Request, lines};

pub(crate) fn requests(bytes: Bytes) -> impl Iterator<Item = Result<Request, String>> {
    let ranges = lines::parsed(bytes, |line| (!line.is_empty()).then(|| range(line)));
    ranges.flat_map(|range| {
        let (keys, error) = match range {
            Ok(keys) => (keys, None),
            Err(error) => (0..0, Some(Err(error))),
        };
        keys.map(|key| {
            Ok(Request {
                key,
                op: Op::Access,
                at: None,
                ttl: None,
            })
        })
        .chain(error)
    })
}

fn range(line: &str) -> Result<std::ops::Range<u64>, String> {
    let mut numbers = line.split_whitespace().map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(start)), Some(Ok(count))) if start.checked_add(count).is_some() => {
            Ok(start..start + count)
        }
        _ => Err(format!(
            "\"{line}\" does not begin with a start and a count"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_range() {
        let keys: Result<Vec<u64>, String> =
            requests(Box::new(&b"5 3 0 0\n9 1 0 1\n7 0 0 2\n"[..]))
                .map(|request| Ok(request?.key))
                .collect();
        assert_eq!(keys, Ok(vec![5, 6, 7, 9]));
    }

    #[test]
    fn names_the_line() {
        let last = requests(Box::new(&b"5 1 0 0\n5\n"[..])).last();
        assert!(last.unwrap().unwrap_err().starts_with("line 2:"));
    }
}
