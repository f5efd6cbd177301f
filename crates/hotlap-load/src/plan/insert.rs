//! Places in a text at which the values of fields are inserted, and the placeholders for them.

use serde::{Deserialize, Serialize};

use super::field::{Buffer, Field};

/// A place in a text at which something is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Insert {
    /// Offset in the text, before which it is inserted.
    pub at: usize,
    /// What is inserted.
    pub what: Inserted,
}

/// What is inserted into a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inserted {
    /// The value of the plan's field with this index.
    Field(usize),
    /// The length of the request's body, for its `Content-Length`.
    BodyLength,
}

/// A placeholder that names no field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownField {
    /// The name in the placeholder.
    pub name: String,
    /// The names of all fields.
    pub known: Vec<String>,
}

impl UnknownField {
    fn text(&self) -> String {
        let Self { name, known } = self;
        match known.is_empty() {
            true => format!("no field {name}: there are none (for a literal ${{, write $${{)"),
            false => format!("no field {name}: there are {}", known.join(", ")),
        }
    }
}

/// The placeholder of the body's length. No field has an empty name.
pub(super) const BODY_LENGTH: &str = "${}";

/// Splits a text with placeholders into the text without them and the places where they were.
/// `$${` stands for a literal `${`.
///
/// # Errors
/// A placeholder names no field.
pub fn split(text: &[u8], fields: &[Field]) -> Result<(Vec<u8>, Vec<Insert>), UnknownField> {
    let (mut literal, mut inserts) = (Vec::with_capacity(text.len()), Vec::new());
    let mut rest = text;
    while let Some(found) = rest.windows(2).position(|pair| pair == b"${") {
        if found > 0 && rest[found - 1] == b'$' {
            literal.extend_from_slice(&rest[..found]);
            literal.push(b'{');
            rest = &rest[found + 2..];
            continue;
        }
        let Some(length) = rest[found + 2..].iter().position(|b| *b == b'}') else { break };
        literal.extend_from_slice(&rest[..found]);
        let name = &rest[found + 2..found + 2 + length];
        let what = if name.is_empty() {
            Inserted::BodyLength
        } else if let Some(index) = fields.iter().position(|f| f.name.as_bytes() == name) {
            Inserted::Field(index)
        } else {
            return Err(UnknownField {
                name: String::from_utf8_lossy(name).into_owned(),
                known: fields.iter().map(|field| field.name.clone()).collect(),
            });
        };
        inserts.push(Insert { at: literal.len(), what });
        rest = &rest[found + 3 + length..];
    }
    literal.extend_from_slice(rest);
    Ok((literal, inserts))
}

/// Whether a text has a placeholder of a field.
pub fn has_fields(text: &[u8], fields: &[Field]) -> bool {
    split(text, fields).is_ok_and(|(_, inserts)| !inserts.is_empty())
}

/// The text with the `number`-th values of all fields in place of its placeholders, for the server
/// with the number `unique`. Placeholders that name no field stay.
pub fn fill(text: &[u8], fields: &[Field], seed: u64, unique: u64, number: u64) -> Vec<u8> {
    let Ok((literal, inserts)) = split(text, fields) else { return text.to_vec() };
    let (mut filled, mut from, mut buffer) = (Vec::new(), 0, Buffer::default());
    for insert in inserts {
        filled.extend_from_slice(&literal[from..insert.at]);
        from = insert.at;
        if let Inserted::Field(index) = insert.what {
            let source = &fields[index].source;
            let key = Field::key(source.seed(seed, unique), index);
            filled.extend_from_slice(source.value(key, number, &mut buffer));
        }
    }
    filled.extend_from_slice(&literal[from..]);
    filled
}

/// A text that [`split`] returns unchanged: no part of it is a placeholder.
pub fn escape(text: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    for (at, byte) in text.iter().enumerate() {
        if *byte == b'$' && text.get(at + 1) == Some(&b'{') {
            escaped.push(b'$');
        }
        escaped.push(*byte);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::field::Source;
    use super::*;

    fn fields() -> Vec<Field> {
        ["id", "name"].map(|n| Field { name: n.to_owned(), source: Source::Uuid }).to_vec()
    }

    #[test]
    fn placeholders_become_places() {
        let (literal, inserts) = split(b"/a/${id}/${name}${id}?x", &fields()).unwrap();
        assert_eq!(literal, b"/a//?x");
        let places: Vec<(usize, Inserted)> = inserts.iter().map(|i| (i.at, i.what)).collect();
        let (id, name) = (Inserted::Field(0), Inserted::Field(1));
        assert_eq!(places, [(3, id), (4, name), (4, id)]);
    }

    #[test]
    fn a_text_is_filled_with_values() {
        let counter =
            |name: &str, from| Field { name: name.to_owned(), source: Source::Counter { from } };
        let fields = [counter("a", 0), counter("b", 10)];
        assert_eq!(fill(b"${b}/${a}/$${a}", &fields, 0, 0, 3), b"13/3/${a}");
        assert!(has_fields(b"${a}", &fields) && !has_fields(b"$${a}", &fields));
    }

    #[test]
    fn a_doubled_dollar_sign_is_a_literal_one() {
        for (text, expected) in
            [("$${id}", "${id}"), ("a$$${id}", "a$${id}"), ("${id", "${id"), ("$id", "$id")]
        {
            let (literal, inserts) = split(text.as_bytes(), &fields()).unwrap();
            assert_eq!(
                (String::from_utf8(literal).unwrap().as_str(), inserts.len()),
                (expected, 0)
            );
        }
    }

    #[test]
    fn an_unknown_field_is_named_with_the_known_ones() {
        let error = split(b"${user}", &fields()).unwrap_err().to_string();
        assert_eq!(error, "no field user: there are id, name");
        let error = split(b"${user}", &[]).unwrap_err().to_string();
        assert_eq!(error, "no field user: there are none (for a literal ${, write $${)");
    }
}
