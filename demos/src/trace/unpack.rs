//! Decompression, chosen by the magic number at the beginning of the file.

use std::io::{BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use liblzma::bufread::XzDecoder;

use super::Bytes;

/// Decompressed bytes are handed on in pieces of this size.
const BUFFER: usize = 1 << 16;

pub(crate) fn unpacked(raw: impl Read + 'static) -> Result<Bytes, String> {
    let mut raw = BufReader::with_capacity(BUFFER, raw);
    let beginning = raw
        .fill_buf()
        .map_err(|error| format!("cannot be read: {error}"))?;
    Ok(if beginning.starts_with(b"\x1f\x8b") {
        buffered(MultiGzDecoder::new(raw))
    } else if beginning.starts_with(b"\xfd7zXZ\0") {
        buffered(XzDecoder::new_multi_decoder(raw))
    } else if beginning.starts_with(b"\x28\xb5\x2f\xfd") {
        let decoder = zstd::Decoder::with_buffer(raw)
            .map_err(|error| format!("cannot be decompressed: {error}"))?;
        buffered(decoder)
    } else {
        Box::new(raw)
    })
}

fn buffered(reader: impl Read + 'static) -> Bytes {
    Box::new(BufReader::with_capacity(BUFFER, reader))
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    const TEXT: &[u8] = b"17\n18\n19\n";

    fn read_back(packed: Vec<u8>) -> Vec<u8> {
        let mut text = Vec::new();
        unpacked(Cursor::new(packed))
            .unwrap()
            .read_to_end(&mut text)
            .unwrap();
        text
    }

    #[test]
    fn each_compression_and_none() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(TEXT).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(TEXT).unwrap();
        assert_eq!(read_back(gzip.finish().unwrap()), TEXT);
        assert_eq!(read_back(xz.finish().unwrap()), TEXT);
        assert_eq!(read_back(zstd::encode_all(TEXT, 1).unwrap()), TEXT);
        assert_eq!(read_back(TEXT.to_vec()), TEXT);
    }
}
