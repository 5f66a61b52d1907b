//! Decompression, chosen by the magic number at the beginning of the file.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use liblzma::bufread::XzDecoder;

pub(super) fn unpacked(raw: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut raw = BufReader::with_capacity(1 << 16, raw);
    let beginning = raw.fill_buf()?;
    Ok(if beginning.starts_with(b"\x1f\x8b") {
        Box::new(MultiGzDecoder::new(raw))
    } else if beginning.starts_with(b"\xfd7zXZ\0") {
        Box::new(XzDecoder::new_multi_decoder(raw))
    } else if beginning.starts_with(b"\x28\xb5\x2f\xfd") {
        Box::new(zstd::Decoder::with_buffer(raw)?)
    } else {
        Box::new(raw)
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    #[test]
    fn each_compression_and_none() {
        const TEXT: &[u8] = b"17\n18\n";
        let read_back = |packed: Vec<u8>| {
            let mut text = Vec::new();
            unpacked(Cursor::new(packed))
                .unwrap()
                .read_to_end(&mut text)
                .unwrap();
            text
        };
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
