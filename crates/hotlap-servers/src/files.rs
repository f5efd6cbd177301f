//! Reads whole files that the user names.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The size limit of a file, in MiB. The whole file is read into memory.
const LARGEST: u64 = 256;

/// Reads a file of limited size. Without the limit, an endless file such as `/dev/zero` would fill
/// the memory.
///
/// # Errors
/// If the file cannot be read or is too large.
pub fn read(file: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let limit = LARGEST << 20;
    let mut bytes = Vec::new();
    File::open(file)?.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit {
        true => Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!(
                "the file is larger than {LARGEST} MiB, the most that hotlap reads: name a \
                 smaller file"
            ),
        )),
        false => Ok(bytes),
    }
}

/// Reads a UTF-8 text file.
///
/// # Errors
/// If the file cannot be read, is too large, or is not UTF-8.
pub fn read_to_string(file: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(file)?).map_err(|_| {
        let what = "the file is not text in UTF-8: save the file in UTF-8";
        io::Error::new(ErrorKind::InvalidData, what)
    })
}
