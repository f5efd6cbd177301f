//! The parser: any bytes, in one piece and cut anywhere, through both of its layers.
//!
//! The first byte says how the rest is cut. Both layers and every cut must agree.

#![no_main]

use hotlap_load::http::{ResponseError, Event, ResponseReader, read_response};
use libfuzzer_sys::fuzz_target;

type Heard = (Vec<(u16, Vec<u8>)>, Option<ResponseError>);

fn hear<'a>(pieces: impl Iterator<Item = &'a [u8]>, is_head: bool) -> Heard {
    let mut reader = ResponseReader::default();
    let (mut answers, mut open) = (Vec::new(), None);
    for mut piece in pieces {
        loop {
            match reader.next(&mut piece, is_head) {
                Ok(Event::NeedMore) => break,
                Ok(Event::Head(head)) => open = Some((head.status, Vec::new())),
                Ok(Event::Data(data)) => {
                    open.as_mut().expect("data follows a head").1.extend_from_slice(data);
                }
                Ok(Event::End) => answers.extend(open.take()),
                Err(broken) => return (answers, Some(broken)),
            }
        }
    }
    (answers, None)
}

fuzz_target!(|input: &[u8]| {
    let Some((&shape, bytes)) = input.split_first() else { return };
    let is_head = shape & 1 == 1;
    let size = usize::from(shape >> 1).max(1);
    let whole = hear(std::iter::once(bytes), is_head);
    assert_eq!(hear(bytes.chunks(size), is_head), whole);
    match read_response(bytes, is_head, false) {
        Ok(Some(answer)) => {
            assert!(answer.consumed <= bytes.len());
            assert_eq!(whole.0.first(), Some(&(answer.status, answer.body)));
        }
        Ok(None) => assert!(whole.0.is_empty() && whole.1.is_none()),
        Err(broken) => assert_eq!(whole, (Vec::new(), Some(broken))),
    }
    let _ = read_response(bytes, is_head, true);
});
