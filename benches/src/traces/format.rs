//! The formats, told apart by how they begin.

use std::io;

/// The keys of a decompressed trace: big-endian 32-bit integers (cache2k), CSV with a column `lbn` (CloudPhysics), lines of
/// "start count ignored number" (ARC), or one decimal number a line (LIRS).
pub(super) fn keys(bytes: &[u8]) -> io::Result<Vec<u64>> {
    // Keys of a binary trace are far below 2^31, so there are zeros in its first bytes; text has none.
    let binary = |byte: &u8| !byte.is_ascii_graphic() && !byte.is_ascii_whitespace();
    if bytes.iter().take(64).any(binary) {
        return integers(bytes);
    }
    let text = std::str::from_utf8(bytes).map_err(wrong)?;
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && *line != "*")
        .peekable();
    let Some(&(_, first)) = lines.peek() else {
        return Err(wrong("it holds no request"));
    };
    let mut keys = Vec::new();
    if let Some(column) = first.split(',').position(|title| title.trim() == "lbn") {
        for (number, line) in lines.skip(1) {
            keys.push(decimal(line.split(',').nth(column), number)?);
        }
    } else if first.split_whitespace().count() == 4 {
        for (number, line) in lines {
            let mut fields = line.split_whitespace();
            let start = decimal(fields.next(), number)?;
            let count = decimal(fields.next(), number)?;
            let end = start
                .checked_add(count)
                .ok_or_else(|| wrong(format!("line {number}: the range does not end")))?;
            keys.extend(start..end);
        }
    } else if first.parse::<u64>().is_ok() {
        for (number, line) in lines {
            keys.push(decimal(Some(line), number)?);
        }
    } else {
        return Err(wrong("its format is none of those known here"));
    }
    Ok(keys)
}

fn integers(bytes: &[u8]) -> io::Result<Vec<u64>> {
    let (keys, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(wrong("its length is no multiple of four bytes"));
    }
    Ok(keys
        .iter()
        .map(|key| u64::from(u32::from_be_bytes(*key)))
        .collect())
}

fn decimal(field: Option<&str>, line: usize) -> io::Result<u64> {
    field
        .and_then(|field| field.trim().parse().ok())
        .ok_or_else(|| wrong(format!("line {line}: no decimal number where one belongs")))
}

fn wrong(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_apart() {
        assert_eq!(keys(b"\n*\n17\r\n 18 \n").unwrap(), [17, 18]);
        assert_eq!(keys(&[0, 0, 1, 7, 0, 0, 0, 9]).unwrap(), [263, 9]);
        assert_eq!(keys(b"5 3 0 0\n9 1 0 1\n7 0 0 2\n").unwrap(), [5, 6, 7, 9]);
        assert_eq!(
            keys(b"version,time,op,size,lbn\n1,5,2a,512,4\n").unwrap(),
            [4]
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let why = |bytes: &[u8]| keys(bytes).unwrap_err().to_string();
        assert!(why(b"1\nx\n").starts_with("line 2:"));
        assert!(why(b"5 1 0 0\n5\n").starts_with("line 2:"));
        assert!(why(&[0, 0, 1]).contains("four bytes"));
        assert!(why(b"hello world\n").contains("format"));
        assert!(why(b"\n").contains("no request"));
    }
}
