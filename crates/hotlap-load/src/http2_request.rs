//! Requests as HTTP/2 sends them: header blocks, encoded once, and bodies. They are made from the
//! bytes of the requests in HTTP/1.1.

use std::ops::Range;

use crate::http2::{EncodedRequests, Form, RequestFields, Template, Value, encode};
use crate::plan::Request;
use crate::rendered::{Rendered, Span};

/// The requests of a plan.
#[derive(Debug, Clone)]
pub(crate) struct Http2Requests {
    encoded: EncodedRequests,
    /// The parts of each request that vary, and its body.
    parts: Vec<Parts>,
    /// The block that was rendered last.
    block: Vec<u8>,
}

/// The parts of a request.
#[derive(Debug, Clone)]
struct Parts {
    varying: Vec<Span>,
    body: Span,
}

/// The lines of a request's head: method, path and headers, as ranges of its bytes.
struct Lines {
    method: Range<usize>,
    path: Range<usize>,
    headers: Vec<(Range<usize>, Range<usize>)>,
    body: usize,
}

impl Lines {
    /// Takes a request apart. It was built by [`Request::build`], or checked as if it were.
    fn of(bytes: &[u8]) -> Self {
        let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
        let ends = |from: usize| {
            let line = bytes[from..head].windows(2).position(|w| w == b"\r\n");
            line.map_or(head, |length| from + length)
        };
        let first = ends(0);
        let space = |mut at: std::ops::Range<usize>, is_last: bool| match is_last {
            false => at.find(|&i| bytes[i] == b' '),
            true => at.rev().find(|&i| bytes[i] == b' '),
        };
        let method = 0..space(0..first, false).unwrap_or(first);
        let path_at = (method.end + 1).min(first);
        let path = path_at..space(path_at..first, true).unwrap_or(first);
        let mut headers = Vec::new();
        let mut at = first + 2;
        while at < head {
            let end = ends(at);
            if let Some(colon) = (at..end).find(|&i| bytes[i] == b':') {
                let is_space = |&i: &usize| matches!(bytes[i], b' ' | b'\t');
                let from = (colon + 1..end).find(|i| !is_space(i)).unwrap_or(end);
                headers.push((at..colon, from..end));
            }
            at = end + 2;
        }
        Self { method, path, headers, body: (head + 4).min(bytes.len()) }
    }
}

impl Http2Requests {
    /// Encodes requests for `http` or `https`.
    pub(crate) fn new(requests: &[Request], is_secure: bool) -> Self {
        let lines: Vec<Lines> = requests.iter().map(|r| Lines::of(&r.bytes)).collect();
        let text = |request: &'_ Request, range: &Range<usize>| {
            String::from_utf8_lossy(&request.bytes[range.clone()]).into_owned()
        };
        let texts: Vec<(String, String, Vec<String>)> = (requests.iter().zip(&lines))
            .map(|(request, lines)| {
                let is_host = |(name, _): &&(Range<usize>, Range<usize>)| {
                    request.bytes[name.clone()].eq_ignore_ascii_case(b"host")
                };
                let host = lines.headers.iter().find(is_host);
                let authority = host.map_or_else(String::new, |(_, value)| text(request, value));
                let names = lines.headers.iter().map(|(name, _)| text(request, name)).collect();
                (text(request, &lines.method), authority, names)
            })
            .collect();
        let mut parts = Vec::new();
        let mut all = Vec::new();
        for ((request, lines), (_, _, names)) in requests.iter().zip(&lines).zip(&texts) {
            let mut varying = Vec::new();
            let mut value = |range: &Range<usize>| {
                let span = Span::new(range.clone(), &request.inserts);
                if span.inserts.is_empty() {
                    return Value::Constant(&request.bytes[range.clone()]);
                }
                varying.push(span);
                Value::Varies(varying.len() as u32 - 1)
            };
            let path = value(&lines.path);
            let headers: Vec<(&str, Value<'_>)> = (names.iter().zip(&lines.headers))
                .map(|(name, (_, range))| (name.as_str(), value(range)))
                .collect();
            all.push((path, headers));
            let body = Span::new(lines.body..request.bytes.len(), &request.inserts);
            parts.push(Parts { varying, body });
        }
        let fields: Vec<RequestFields<'_>> = (all.iter().zip(&texts))
            .map(|((path, headers), (method, authority, _))| RequestFields {
                method,
                scheme: if is_secure { "https" } else { "http" },
                authority,
                path: *path,
                headers,
                // It is among the headers.
                body_length: 0,
            })
            .collect();
        Self { encoded: encode(&fields), parts, block: Vec::new() }
    }

    /// The size that the shared fields take in the server's header table.
    pub(crate) fn table_size(&self) -> u32 {
        self.encoded.table_size
    }

    /// The header block and the body of a request. `bytes` are its bytes in HTTP/1.1, `rendered`
    /// the same if it has values of fields.
    #[inline]
    pub(crate) fn get<'a>(
        &'a mut self,
        request: usize,
        form: Form,
        bytes: &'a [u8],
        rendered: Option<&'a Rendered>,
    ) -> (&'a [u8], &'a [u8]) {
        let parts = &self.parts[request];
        let template = self.encoded.requests[request].form(form);
        let body = match rendered {
            None => &bytes[parts.body.literal.clone()],
            Some(rendered) => &rendered.bytes()[rendered.range(&parts.body)],
        };
        match (template.constant(), rendered) {
            (Some(block), _) => (block, body),
            (None, rendered) => {
                render(&mut self.block, template, &parts.varying, rendered);
                (&self.block, body)
            }
        }
    }
}

/// Renders a header block with the values of a request.
#[inline(never)]
fn render(block: &mut Vec<u8>, template: &Template, spans: &[Span], rendered: Option<&Rendered>) {
    block.clear();
    template.render(block, |number, out| {
        if let Some(rendered) = rendered {
            out.extend_from_slice(&rendered.bytes()[rendered.range(&spans[number as usize])]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::hpack::Decoder;
    use crate::plan::{Endpoint, Field, Plan, Source, Target};
    use crate::values::Values;

    fn decoded(block: &[u8]) -> Vec<String> {
        let mut fields = Vec::new();
        let mut decoder = Decoder::default();
        let read = decoder.decode(block, |name, value| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            fields.push(format!("{}={}", text(name), text(value)));
        });
        assert!(read.is_ok());
        fields
    }

    #[test]
    fn a_request_becomes_a_header_block_and_a_body() {
        let headers = [("Accept", "*/*"), ("Connection", "close")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let request = Request::build("POST", "/a?b=c", "h:1", &headers, b"body\r\n\r\n");
        let mut requests = Http2Requests::new(std::slice::from_ref(&request), true);
        let (block, body) = requests.get(0, Form::Plain, &request.bytes, None);
        let expected = [
            ":method=POST",
            ":scheme=https",
            ":authority=h:1",
            ":path=/a?b=c",
            "accept=*/*",
            "content-length=8",
        ];
        assert_eq!(
            (decoded(block), body),
            (expected.map(str::to_owned).into(), &b"body\r\n\r\n"[..])
        );
    }

    #[test]
    fn values_of_fields_are_part_of_block_and_body() {
        let field = Field { name: "id".to_owned(), source: Source::Counter { from: 99 } };
        let headers = [("X-Id".to_owned(), "<${id}>".to_owned())];
        let fields = [field];
        let body = b"{${id}}${id}";
        let request =
            Request::with_fields("PUT", "/${id}/x", "h", &headers, body, &fields).unwrap();
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 80).into());
        let mut plan = Plan::new(Target::plain(endpoint), request.clone());
        plan.fields = fields.into();
        let mut values = Values::new(&plan, &[0], 0);
        let body_at = request.bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let mut rendered = Rendered::new(request.bytes.clone(), request.inserts.clone(), body_at);
        let mut requests = Http2Requests::new(std::slice::from_ref(&request), false);
        for (number, id) in [(0, "99"), (1, "100"), (2, "101")] {
            rendered.render(number, &mut values);
            let (block, body) = requests.get(0, Form::Plain, &request.bytes, Some(&rendered));
            let fields = decoded(block);
            assert_eq!(fields[3], format!(":path=/{id}/x"));
            assert!(fields.contains(&format!("x-id=<{id}>")), "{fields:?}");
            let length = 2 + 2 * id.len();
            assert!(fields.contains(&format!("content-length={length}")), "{fields:?}");
            assert_eq!(body, format!("{{{id}}}{id}").as_bytes());
        }
    }
}
