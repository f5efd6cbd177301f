//! The contract `upload`: bodies of three sizes. A server responds with the length and the checksum
//! of the body.
//!
//! Each body ends with a stamp that varies, so a right checksum shows that the server read the
//! whole body. The checksums of all stamps are known before the load.

use std::ops::RangeInclusive;

use hotlap_load::plan::{Field, ValueSource};

use super::exchange::{Content, Exchange, Fields};

/// The name and the length in bytes of each body, and how often it is sent, relative to the others.
const SIZES: [(&str, usize, u32); 3] =
    [("1 KB", 1_000, 16), ("64 KB", 64_000, 4), ("1 MB", 1_000_000, 1)];

/// The stamps. All of them have the same length.
const STAMPS: RangeInclusive<u64> = 1_000..=1_999;

/// The line that is repeated before the stamp. The length of the line is odd, so a server that
/// reads a block twice gets a different checksum.
const LINE: &[u8] = b"Each line of this body is the same, and only its end is not.\n";

fn before_stamp(length: usize) -> Vec<u8> {
    LINE.iter().copied().cycle().take(length - STAMPS.start().to_string().len()).collect()
}

/// Returns the fields: the stamp, and the checksum of each size with this stamp.
pub(super) fn fields() -> Fields {
    let (min, max) = STAMPS.into_inner();
    let mut list = vec![Field::new("stamp", ValueSource::Integer { min, max })];
    for (_, length, _) in SIZES {
        let mut before = crc32fast::Hasher::new();
        before.update(&before_stamp(length));
        let checksum = |stamp: u64| {
            let mut all = before.clone();
            all.update(stamp.to_string().as_bytes());
            format!("{:08x}", all.finalize())
        };
        let values: Vec<String> = STAMPS.map(checksum).collect();
        let source = ValueSource::Choice { values: values.into(), random: true };
        list.push(Field { drawn_with: Some(0), ..Field::new(format!("crc32of{length}"), source) });
    }
    Fields { list, ..Fields::default() }
}

/// Returns one exchange for each size.
pub(super) fn exchanges() -> Vec<Exchange> {
    let exchange = |(name, length, weight): (&str, usize, u32)| {
        let answer = format!("{{\"bytes\":{length},\"crc32\":\"${{crc32of{length}}}\"}}");
        let content = Content::JsonText(answer.into_bytes());
        Exchange {
            weight,
            method: "POST".to_owned(),
            headers: vec![("Content-Type".to_owned(), "application/octet-stream".to_owned())],
            body: [&before_stamp(length)[..], b"${stamp}"].concat(),
            ..Exchange::get("/upload", Some("application/json"), content)
                .named(&format!("POST /upload of {name}"))
        }
    };
    SIZES.map(exchange).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every expected response has the checksum of its request.
    #[test]
    fn checksums_follow_from_bodies() {
        let fields = fields();
        for exchange in exchanges() {
            for request in 0..100 {
                let filled = exchange.with_values(&fields, request);
                let (bytes, crc32) = (filled.body.len(), crc32fast::hash(&filled.body));
                let answer = format!("{{\"bytes\":{bytes},\"crc32\":\"{crc32:08x}\"}}");
                assert_eq!(filled.content, Content::JsonText(answer.into_bytes()));
            }
        }
    }
}
