//! The contract `static`: files of five lengths, parts of files, and requests of clients that
//! already have a file.

use std::path::Path;
use std::{fs, io};

use hotlap_load::plan::ExpectedStatus;

use super::exchange::{Content, Exchange};

/// The length of each file in bytes, and how often the file is requested, relative to the others.
const LENGTHS: [(usize, u32); 5] =
    [(100, 8), (1_000, 8), (10_000, 8), (100_000, 4), (1_000_000, 1)];

/// The length of the file that is also requested compressed and in part.
const MIDDLE: usize = 10_000;

fn name(length: usize) -> String {
    format!("{length}.txt")
}

/// Returns lines that differ, so that compressing them takes work.
fn text(length: usize) -> Vec<u8> {
    let line = |number: u64| {
        format!("{number:6} {:016x}\n", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
    };
    (0..).flat_map(line).take(length).collect()
}

/// Creates a folder and writes the files to it.
///
/// # Errors
/// If the folder or a file cannot be written.
pub fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    LENGTHS.iter().try_for_each(|(length, _)| fs::write(folder.join(name(*length)), text(*length)))
}

fn file(length: usize) -> Exchange {
    let path = format!("/static/{}", name(length));
    Exchange::get(&path, Some("text/plain"), Content::exactly(&text(length)))
}

fn with_header(exchange: Exchange, header: &str, value: &str) -> Exchange {
    Exchange { headers: vec![(header.to_owned(), value.to_owned())], ..exchange }
}

/// Returns requests for all files, and for a compressed one.
pub(super) fn exchanges() -> Vec<Exchange> {
    let plain =
        LENGTHS.iter().map(|(length, weight)| Exchange { weight: *weight, ..file(*length) });
    let compressed = Exchange {
        weight: 4,
        content: Content::Gzip(text(MIDDLE).into()),
        ..with_header(file(MIDDLE), "Accept-Encoding", "gzip")
    };
    let name = format!("{} with gzip", compressed.name);
    plain.chain([compressed.named(&name)]).collect()
}

/// Returns requests for a part of a file (RFC 9110 section 14.2) and for a missing file.
pub(super) fn extras() -> Vec<Exchange> {
    let whole = with_header(file(MIDDLE), "Range", "bytes=1000-1999");
    let part = Exchange {
        status: ExpectedStatus::Exactly(206),
        content_range: Some(format!("bytes 1000-1999/{MIDDLE}")),
        content: Content::exactly(&text(MIDDLE)[1_000..2_000]),
        ..whole
    };
    let missing = Exchange {
        status: ExpectedStatus::Exactly(404),
        ..Exchange::get("/static/none.txt", None, Content::Any)
    };
    let name = format!("{} with a range", part.name);
    vec![part.named(&name), missing]
}

/// Returns the request for the smallest file.
pub(crate) fn first() -> Exchange {
    file(LENGTHS[0].0)
}

/// Returns the request of a client that has the file with this entity tag (RFC 9110 section
/// 13.1.2).
pub(crate) fn again(first: Exchange, tag: &str) -> Exchange {
    Exchange {
        status: ExpectedStatus::Exactly(304),
        media_type: None,
        content: Content::Any,
        ..with_header(first, "If-None-Match", tag)
    }
}
