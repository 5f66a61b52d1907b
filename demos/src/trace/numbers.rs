//! LIRS: a decimal number per line; blank lines and `*` are passed over.

use super::{Bytes, Op, Request, lines};

pub(crate) fn requests(bytes: Bytes) -> impl Iterator<Item = Result<Request, String>> {
    lines::parsed(bytes, |line| match line {
        "" | "*" => None,
        line => Some(
            line.parse()
                .map(|key| Request {
                    key,
                    op: Op::Access,
                    at: None,
                    ttl: None,
                })
                .map_err(|_| format!("\"{line}\" is not a decimal number")),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_what_is_no_request() {
        let keys: Result<Vec<u64>, String> =
            requests(Box::new(&b"1\r\n\n*\n 22 \n18446744073709551615"[..]))
                .map(|request| Ok(request?.key))
                .collect();
        assert_eq!(keys, Ok(vec![1, 22, u64::MAX]));
    }

    #[test]
    fn names_the_line() {
        let mut requests = requests(Box::new(&b"1\nx\n"[..]));
        assert!(requests.next().unwrap().is_ok());
        assert_eq!(
            requests.next().unwrap(),
            Err("line 2: \"x\" is not a decimal number".to_owned())
        );
    }
}
