//! The static table (RFC 7541 appendix A).

/// How many fields the static table has. The first field of the dynamic table follows it.
pub(crate) const STATIC_LENGTH: usize = 61;

/// The fields, in order: index 1 is the first.
const FIELDS: [(&str, &str); STATIC_LENGTH] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The field with an index from 1 to 61.
#[inline]
pub(super) fn field(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = FIELDS.get(index.checked_sub(1)?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// The index of a field in the static table: of the whole field (`true`) or of its name.
pub(crate) fn find(name: &str, value: Option<&[u8]>) -> Option<(usize, bool)> {
    let is_whole = |field: &(&str, &str)| field.0 == name && value == Some(field.1.as_bytes());
    let whole = FIELDS.iter().position(is_whole).map(|at| (at + 1, true));
    whole.or_else(|| FIELDS.iter().position(|field| field.0 == name).map(|at| (at + 1, false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_those_of_the_standard() {
        // RFC 7541 appendix A.
        assert_eq!(field(0), None);
        assert_eq!(field(1), Some((&b":authority"[..], &b""[..])));
        assert_eq!(field(8), Some((&b":status"[..], &b"200"[..])));
        assert_eq!(field(28), Some((&b"content-length"[..], &b""[..])));
        assert_eq!(field(61), Some((&b"www-authenticate"[..], &b""[..])));
        assert_eq!(field(62), None);
    }

    #[test]
    fn a_whole_field_is_found_before_its_name() {
        assert_eq!(find(":method", Some(b"POST")), Some((3, true)));
        assert_eq!(find(":method", Some(b"PUT")), Some((2, false)));
        assert_eq!(find(":path", None), Some((4, false)));
        assert_eq!(find("user-agent", Some(b"x")), Some((58, false)));
        assert_eq!(find("x-unknown", Some(b"x")), None);
    }
}
