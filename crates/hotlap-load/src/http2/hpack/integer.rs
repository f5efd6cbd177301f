//! Integers (RFC 7541 section 5.1).

/// Why an integer cannot be read.
pub(super) const CUT_OFF: &str = "a header block ends within a field";
const TOO_LARGE: &str = "a number in a header block is too large";

/// Reads an integer with a prefix of `bits` bits from the front of `input`. Values up to 2^28 fit:
/// far more than a string or an index can be.
#[inline]
pub(super) fn read_integer(input: &mut &[u8], bits: u8) -> Result<usize, &'static str> {
    let Some((&first, rest)) = input.split_first() else { return Err(CUT_OFF) };
    *input = rest;
    let most = (1 << bits) - 1;
    let value = usize::from(first) & most;
    if value < most { Ok(value) } else { read_rest(input, most) }
}

/// Reads the bytes after the prefix: four at most, so that the sum cannot overflow.
fn read_rest(input: &mut &[u8], prefix: usize) -> Result<usize, &'static str> {
    let mut value = prefix;
    for shift in [0, 7, 14, 21] {
        let Some((&byte, rest)) = input.split_first() else { return Err(CUT_OFF) };
        *input = rest;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(TOO_LARGE)
}

/// Appends an integer with a prefix of `bits` bits; `pattern` is the rest of the first byte.
pub(crate) fn write_integer(out: &mut Vec<u8>, pattern: u8, bits: u8, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Writes the length of the string that begins at `start`, after one byte which was left for it
/// (RFC 7541 section 5.2, raw). Strings of up to 126 bytes stay where they are.
pub(crate) fn insert_length(out: &mut Vec<u8>, start: usize) {
    let length = out.len() - start;
    if length < 0x7f {
        out[start - 1] = length as u8;
        return;
    }
    out[start - 1] = 0x7f;
    let end = out.len();
    let mut rest = length - 0x7f;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
    let added = out.len() - end;
    out[start..].rotate_right(added);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pattern: u8, bits: u8, value: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write_integer(&mut out, pattern, bits, value);
        out
    }

    #[test]
    fn the_examples_of_the_standard_are_read_and_written() {
        // RFC 7541 appendix C.1.
        for (value, bits, bytes) in
            [(10, 5, &[0x0a][..]), (1337, 5, &[0x1f, 0x9a, 0x0a]), (42, 8, &[0x2a])]
        {
            assert_eq!(written(0, bits, value), bytes);
            assert_eq!(read_integer(&mut &bytes[..], bits), Ok(value));
        }
        // The bits before the prefix are not part of the number.
        assert_eq!(read_integer(&mut &[0xea][..], 5), Ok(10));
        assert_eq!(written(0xe0, 5, 10), [0xea]);
    }

    #[test]
    fn what_is_written_can_be_read() {
        for bits in 1..=8 {
            for value in [0, 1, 14, 15, 16, 30, 31, 127, 128, 254, 255, 256, 16_383, 1 << 27] {
                let bytes = written(0, bits, value);
                assert_eq!(read_integer(&mut &bytes[..], bits), Ok(value), "{value} in {bits}");
                for cut in 0..bytes.len() {
                    assert_eq!(read_integer(&mut &bytes[..cut], bits), Err(CUT_OFF));
                }
            }
        }
    }

    #[test]
    fn an_integer_of_more_than_four_further_bytes_is_too_large() {
        let longest = [0x7f, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(read_integer(&mut &longest[..], 7), Ok((1 << 28) - 1 + 127));
        let endless = [0x7f, 0x80, 0x80, 0x80, 0x80, 0x00];
        assert_eq!(read_integer(&mut &endless[..], 7), Err(TOO_LARGE));
    }

    #[test]
    fn a_length_is_inserted_before_a_string_of_any_length() {
        for length in [0, 1, 126, 127, 128, 254, 255, 300, 20_000] {
            let mut out = vec![9, 0];
            out.extend((0..length).map(|i| i as u8));
            insert_length(&mut out, 2);
            let mut rest = &out[1..];
            assert_eq!(read_integer(&mut rest, 7), Ok(length));
            assert!(rest.iter().copied().eq((0..length).map(|i| i as u8)), "{length}");
        }
    }
}
