//! Pixels as a PNG file: the signature, a header, one compressed block, an end (<https://www.w3.org/TR/png-3/>).

use miniz_oxide::deflate::compress_to_vec_zlib;

const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// Of 0..=10; more takes longer and gains little on flat colours.
const COMPRESSION: u8 = 6;
/// A row given as differences to the row above: flat pictures become nearly all zeros.
const FILTER_UP: u8 = 2;

/// `rgb` has three bytes a pixel, row by row.
pub fn encode(width: u32, height: u32, rgb: &[u8]) -> Vec<u8> {
    let row_bytes = 3 * width as usize;
    debug_assert_eq!(rgb.len(), row_bytes * height as usize);
    let mut filtered = Vec::with_capacity(rgb.len() + height as usize);
    let mut above = vec![0; row_bytes];
    for row in rgb.chunks_exact(row_bytes.max(1)) {
        filtered.push(FILTER_UP);
        filtered.extend(
            row.iter()
                .zip(&above)
                .map(|(here, up)| here.wrapping_sub(*up)),
        );
        above.copy_from_slice(row);
    }
    let mut header = Vec::with_capacity(13);
    header.extend(width.to_be_bytes());
    header.extend(height.to_be_bytes());
    // Eight bits a channel, three channels, the only compression and filter method, not interlaced.
    header.extend([8, 2, 0, 0, 0]);
    let mut file = SIGNATURE.to_vec();
    chunk(&mut file, *b"IHDR", &header);
    chunk(
        &mut file,
        *b"IDAT",
        &compress_to_vec_zlib(&filtered, COMPRESSION),
    );
    chunk(&mut file, *b"IEND", &[]);
    file
}

/// Length, kind, content, and the checksum of the last two.
fn chunk(file: &mut Vec<u8>, kind: [u8; 4], content: &[u8]) {
    file.extend((content.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(content);
    let checksum = crc32fast::hash(&file[start..]);
    file.extend(checksum.to_be_bytes());
}
