//! Huffman-coded strings (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of the same length are consecutive numbers in the order of their
//! symbols. The lengths therefore determine all codes, and the compiler computes the tables.

/// The number of symbols: 256 bytes, and EOS, which must not occur.
const SYMBOLS: usize = 257;

/// The length of the code of each symbol, in bits.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The length of the longest code, in bits.
const LONGEST: usize = 30;

/// The codes of one length.
#[derive(Clone, Copy)]
struct Codes {
    /// The first code of this length.
    first: u32,
    /// The number of codes of this length.
    count: u32,
    /// The position in [`SORTED`] of the first code's symbol.
    at: u32,
}

/// The symbols in the order of their codes: by length, then by value.
static SORTED: [u16; SYMBOLS] = sorted();

/// The codes of each length.
static CODES: [Codes; LONGEST + 1] = codes();

/// The symbol and the length of the code at the start of each 8-bit value. The length is 0 if the
/// code is longer. The table has all codes of letters, digits and common punctuation.
static SHORT: [(u8, u8); 256] = short();

const fn sorted() -> [u16; SYMBOLS] {
    let mut sorted = [0; SYMBOLS];
    let (mut length, mut at) = (1, 0);
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                sorted[at] = symbol as u16;
                at += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    sorted
}

const fn codes() -> [Codes; LONGEST + 1] {
    let mut codes = [Codes { first: 0, count: 0, at: 0 }; LONGEST + 1];
    let mut length = 1;
    while length <= LONGEST {
        let before = codes[length - 1];
        let mut count = 0;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                count += 1;
            }
            symbol += 1;
        }
        let first = (before.first + before.count) << 1;
        codes[length] = Codes { first, count, at: before.at + before.count };
        length += 1;
    }
    codes
}

const fn short() -> [(u8, u8); 256] {
    let (sorted, codes) = (sorted(), codes());
    let mut short = [(0, 0); 256];
    let mut length = 1;
    while length <= 8 {
        let mut number = 0;
        while number < codes[length].count {
            let symbol = sorted[(codes[length].at + number) as usize] as u8;
            let from = ((codes[length].first + number) as usize) << (8 - length);
            let mut at = 0;
            while at < 1 << (8 - length) {
                short[from + at] = (symbol, length as u8);
                at += 1;
            }
            number += 1;
        }
        length += 1;
    }
    short
}

/// Decodes a string and appends it to `out`. The result is at most 8/5 as long as the string.
pub(super) fn decode(string: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    // The bits that are not decoded yet, from the highest on, and the number of these bits.
    let (mut bits, mut have) = (0_u64, 0_u32);
    let mut bytes = string.iter();
    loop {
        while have <= 56 {
            let Some(&byte) = bytes.next() else { break };
            bits |= u64::from(byte) << (56 - have);
            have += 8;
        }
        let (symbol, length) = match SHORT[(bits >> 56) as usize] {
            (_, 0) => long(bits),
            (symbol, length) => (u16::from(symbol), u32::from(length)),
        };
        if length > have {
            break;
        }
        if symbol > 255 {
            return Err("a Huffman-coded string contains EOS");
        }
        out.push(symbol as u8);
        bits <<= length;
        have -= length;
    }
    // The padding has fewer than 8 bits, which are ones, the first bits of EOS.
    if have > 7 || (bits >> (63 - have)) != ((1 << have) - 1) << 1 {
        return Err("a Huffman-coded string has wrong padding");
    }
    Ok(())
}

/// Returns the symbol and the length of a code of more than 8 bits. The code is complete, so any 30
/// bits start with a code.
fn long(bits: u64) -> (u16, u32) {
    for (length, codes) in CODES.iter().enumerate().skip(9) {
        let code = (bits >> (64 - length)) as u32;
        let number = code.wrapping_sub(codes.first);
        if number < codes.count {
            return (SORTED[(codes.at + number) as usize], length as u32);
        }
    }
    // This line is not reached. Its result would be reported as wrong padding.
    (0, u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(string: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut out = Vec::new();
        decode(string, &mut out).map(|()| out)
    }

    /// Returns the code of a symbol and the length of the code.
    fn code(symbol: usize) -> (u32, u32) {
        let length = LENGTHS[symbol];
        let before = LENGTHS[..symbol].iter().filter(|l| **l == length).count() as u32;
        (CODES[usize::from(length)].first + before, u32::from(length))
    }

    fn encoded(symbols: &[usize], padding: bool) -> Vec<u8> {
        let mut bits = String::new();
        for &symbol in symbols {
            let (code, length) = code(symbol);
            bits += &format!("{code:0width$b}", width = length as usize);
        }
        while padding && !bits.len().is_multiple_of(8) {
            bits.push('1');
        }
        let byte = |bits: &[u8]| u8::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap();
        bits.as_bytes().chunks_exact(8).map(byte).collect()
    }

    #[test]
    fn codes_are_those_of_the_standard() {
        // RFC 7541 appendix B.
        for (symbol, expected) in [
            (usize::from(b'0'), (0x0, 5)),
            (usize::from(b'a'), (0x3, 5)),
            (usize::from(b'Z'), (0xfd, 8)),
            (usize::from(b'!'), (0x3f8, 10)),
            (usize::from(b'\\'), (0x7fff0, 19)),
            (0, (0x1ff8, 13)),
            (22, (0x3fff_fffe, 30)),
            (255, (0x3ff_ffee, 26)),
            (256, (0x3fff_ffff, 30)),
        ] {
            assert_eq!(code(symbol), expected, "{symbol}");
        }
    }

    #[test]
    fn the_examples_of_the_standard_are_decoded() {
        // RFC 7541 appendices C.4 and C.6.
        let www = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decoded(&www).unwrap(), b"www.example.com");
        assert_eq!(decoded(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]).unwrap(), b"no-cache");
        assert_eq!(decoded(&[0x64, 0x02]).unwrap(), b"302");
        let date = [
            0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04, 0x0b,
            0x81, 0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
        ];
        assert_eq!(decoded(&date).unwrap(), b"Mon, 21 Oct 2013 20:13:21 GMT");
        assert_eq!(decoded(&[]).unwrap(), b"");
    }

    #[test]
    fn each_byte_is_decoded_from_its_code() {
        for symbol in 0..256 {
            let all = [symbol, usize::from(b'a'), symbol, symbol];
            let expected: Vec<u8> = all.iter().map(|s| *s as u8).collect();
            assert_eq!(decoded(&encoded(&all, true)).unwrap(), expected, "{symbol}");
        }
    }

    #[test]
    fn padding_must_be_up_to_seven_ones() {
        let wrong = Err("a Huffman-coded string has wrong padding");
        // The code of "0" is 00000, so the rest of the byte must be 111.
        assert_eq!(decoded(&[0x07]).unwrap(), b"0");
        for last in 0x00..0x07 {
            // The other bits are not all ones, so they are not padding.
            assert_eq!(decoded(&[last]), wrong, "{last:#x}");
        }
        // Eight or more ones are too many.
        assert_eq!(decoded(&[0x07, 0xff]), wrong);
        assert_eq!(decoded(&[0xff]), wrong);
        assert_eq!(decoded(&[0xff, 0xff, 0xff]), wrong);
        // The code of "Z" has eight bits, so there is no padding.
        assert_eq!(decoded(&[0xfd]).unwrap(), b"Z");
        // The code is cut off.
        assert_eq!(decoded(&[0xfe]), wrong);
    }

    #[test]
    fn eos_is_an_error() {
        let eos = Err("a Huffman-coded string contains EOS");
        assert_eq!(decoded(&[0xff; 4]), eos);
        assert_eq!(decoded(&encoded(&[97, 256, 97], true)), eos);
    }
}
