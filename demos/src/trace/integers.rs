//! cache2k: a big-endian 32-bit integer per request, nothing else.

use std::io::{BufRead, ErrorKind};

use super::{Bytes, Op, Request};

pub(crate) fn requests(mut bytes: Bytes) -> impl Iterator<Item = Result<Request, String>> {
    std::iter::from_fn(move || {
        match bytes.fill_buf() {
            Ok([]) => return None,
            Ok(_) => {}
            Err(error) => return Some(Err(format!("cannot be read: {error}"))),
        }
        let mut number = [0; 4];
        Some(match bytes.read_exact(&mut number) {
            Ok(()) => Ok(Request {
                key: u32::from_be_bytes(number).into(),
                op: Op::Access,
                at: None,
                ttl: None,
            }),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                // The rest is consumed, so this is said once.
                Err("ends within a number; the length must be a multiple of 4 bytes".to_owned())
            }
            Err(error) => Err(format!("cannot be read: {error}")),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_to_the_end() {
        let keys: Result<Vec<u64>, String> = requests(Box::new(&[0, 0, 1, 0, 0, 0, 0, 9][..]))
            .map(|request| Ok(request?.key))
            .collect();
        assert_eq!(keys, Ok(vec![256, 9]));
    }

    #[test]
    fn a_cut_number_is_refused() {
        let mut requests = requests(Box::new(&[0, 0, 1, 0, 7][..]));
        assert!(requests.next().unwrap().is_ok());
        assert!(requests.next().unwrap().is_err());
        assert!(requests.next().is_none());
    }
}
