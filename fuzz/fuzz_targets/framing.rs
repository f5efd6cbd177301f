//! The parser: any bytes, in one piece and cut anywhere, through both readers.
//!
//! The first byte says how the rest is cut. Both readers and all cuts must agree.

#![no_main]

use hotlap_load::http::{ResponseError, ResponseEvent, ResponseReader, read_response};
use libfuzzer_sys::fuzz_target;

type Found = (Vec<(u16, Vec<u8>)>, Option<ResponseError>);

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>, is_head: bool) -> Found {
    let mut reader = ResponseReader::default();
    let (mut responses, mut open) = (Vec::new(), None);
    for mut piece in pieces {
        loop {
            match reader.next(&mut piece, is_head) {
                Ok(ResponseEvent::NeedMore) => break,
                Ok(ResponseEvent::Head(head)) => open = Some((head.status, Vec::new())),
                Ok(ResponseEvent::Data(data)) => {
                    open.as_mut().expect("data follows a head").1.extend_from_slice(data);
                }
                Ok(ResponseEvent::End) => responses.extend(open.take()),
                Err(error) => return (responses, Some(error)),
            }
        }
    }
    (responses, None)
}

fuzz_target!(|input: &[u8]| {
    let Some((&shape, bytes)) = input.split_first() else { return };
    let is_head = shape & 1 == 1;
    let size = usize::from(shape >> 1).max(1);
    let whole = read(std::iter::once(bytes), is_head);
    assert_eq!(read(bytes.chunks(size), is_head), whole);
    match read_response(bytes, is_head, false) {
        Ok(Some(response)) => {
            assert!(response.consumed <= bytes.len());
            assert_eq!(whole.0.first(), Some(&(response.status, response.body)));
        }
        Ok(None) => assert!(whole.0.is_empty() && whole.1.is_none()),
        Err(error) => assert_eq!(whole, (Vec::new(), Some(error))),
    }
    let _ = read_response(bytes, is_head, true);
});
