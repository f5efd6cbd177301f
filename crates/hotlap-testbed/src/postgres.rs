//! A minimal client that executes prepared statements of PostgreSQL. It speaks version 3 of the
//! protocol over one blocking connection, without TLS (PostgreSQL 15 documentation, chapter 55).

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};

/// Version 3.0 of the protocol.
const VERSION: i32 = 3 << 16;

/// Kinds of the message `Authentication`.
const OK: i32 = 0;
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

/// Where a server finds its database.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Host and port.
    pub(crate) address: String,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) database: String,
}

impl Place {
    /// Reads the variables that hotlap sets and libpq reads.
    pub(crate) fn from_env() -> io::Result<Self> {
        let read = |name: &str| {
            std::env::var(name).map_err(|_| io::Error::other(format!("{name} is not set")))
        };
        Ok(Self {
            address: format!("{}:{}", read("PGHOST")?, read("PGPORT")?),
            user: read("PGUSER")?,
            password: read("PGPASSWORD")?,
            database: read("PGDATABASE")?,
        })
    }
}

/// A connection with one statement, which has one integer as its parameter.
pub(crate) struct Session {
    input: BufReader<TcpStream>,
    output: TcpStream,
    out: Vec<u8>,
}

impl Session {
    /// Connects, and proves that it knows the password.
    pub(crate) fn open(place: &Place) -> io::Result<Self> {
        let output = TcpStream::connect(&place.address)?;
        output.set_nodelay(true)?;
        let input = BufReader::with_capacity(64 << 10, output.try_clone()?);
        let mut session = Self { input, output, out: Vec::new() };
        let mut start = VERSION.to_be_bytes().to_vec();
        for text in ["user", &place.user, "database", &place.database, ""] {
            start.extend(text.as_bytes());
            start.push(0);
        }
        session.out.extend((start.len() as i32 + 4).to_be_bytes());
        session.out.extend(start);
        session.send()?;
        session.authenticate(&place.password)?;
        session.await_ready()?;
        Ok(session)
    }

    /// Prepares the statement, in place of an earlier one.
    pub(crate) fn prepare(&mut self, sql: &str) -> io::Result<()> {
        // The unnamed statement, the text, and no types of parameters.
        self.put(b'P', &[b"\0", sql.as_bytes(), b"\0\0\0"]);
        self.put(b'S', &[]);
        self.send()?;
        self.await_ready().map(drop)
    }

    /// Executes the prepared statement in one round trip, and returns the number of rows.
    pub(crate) fn execute(&mut self, parameter: i32) -> io::Result<u64> {
        let text = parameter.to_string();
        let length = (text.len() as i32).to_be_bytes();
        // The unnamed portal and statement, all parameters as text, one parameter, its length and
        // text, and all results in binary.
        let bind = [b"\0\0\0\0\0\x01".as_slice(), &length, text.as_bytes(), b"\0\x01\0\x01"];
        self.put(b'B', &bind);
        // The unnamed portal, all rows.
        self.put(b'E', &[b"\0\0\0\0\0"]);
        self.put(b'S', &[]);
        self.send()?;
        self.await_ready()
    }

    fn put(&mut self, kind: u8, parts: &[&[u8]]) {
        let length = 4 + parts.iter().map(|part| part.len()).sum::<usize>();
        self.out.push(kind);
        self.out.extend((length as i32).to_be_bytes());
        parts.iter().for_each(|part| self.out.extend(*part));
    }

    fn send(&mut self) -> io::Result<()> {
        self.output.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.input.read_exact(&mut head)?;
        let length = i32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; usize::try_from(length - 4).map_err(io::Error::other)?];
        self.input.read_exact(&mut body)?;
        match head[0] {
            b'E' => Err(io::Error::other(String::from_utf8_lossy(&body).replace('\0', " "))),
            kind => Ok((kind, body)),
        }
    }

    /// Reads up to `ReadyForQuery`, and counts rows.
    fn await_ready(&mut self) -> io::Result<u64> {
        let mut rows = 0;
        loop {
            match self.receive()?.0 {
                b'Z' => return Ok(rows),
                b'D' => rows += 1,
                _ => {}
            }
        }
    }

    /// SCRAM-SHA-256 (RFC 5802 section 3, RFC 7677), or nothing if PostgreSQL wants no password.
    /// PostgreSQL need not prove that it knows the password, because it is on this machine.
    fn authenticate(&mut self, password: &str) -> io::Result<()> {
        // The text only has to differ from the server's part.
        let first_bare = "n=,r=hotlap";
        let mut proof = None;
        loop {
            let (kind, body) = self.receive()?;
            let step = body.first_chunk().map(|step| i32::from_be_bytes(*step));
            match (kind, step) {
                (b'R', Some(OK)) => return Ok(()),
                (b'R', Some(SASL)) => {
                    let first = format!("n,,{first_bare}");
                    let length = (first.len() as i32).to_be_bytes();
                    self.put(b'p', &[b"SCRAM-SHA-256\0", &length, first.as_bytes()]);
                    self.send()?;
                }
                (b'R', Some(SASL_CONTINUE)) if proof.is_none() => {
                    let challenge = String::from_utf8_lossy(&body[4..]).into_owned();
                    let last = last_message(first_bare, &challenge, password)
                        .ok_or_else(|| io::Error::other("PostgreSQL sent a malformed challenge"))?;
                    self.put(b'p', &[last.as_bytes()]);
                    self.send()?;
                    proof = Some(last);
                }
                (b'R', Some(SASL_FINAL)) => {}
                _ => return Err(io::Error::other("PostgreSQL does not ask for SCRAM-SHA-256")),
            }
        }
    }
}

/// The client's last message. `None` if the challenge is malformed.
fn last_message(first_bare: &str, challenge: &str, password: &str) -> Option<String> {
    let field = |name: &str| challenge.split(',').find_map(|part| part.strip_prefix(name));
    let salt = BASE64.decode(field("s=")?).ok()?;
    let iterations = field("i=")?.parse().ok()?;
    let mut salted = [0; digest::SHA256_OUTPUT_LEN];
    let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
    pbkdf2::derive(algorithm, iterations, &salt, password.as_bytes(), &mut salted);
    let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    let client_key = sign(&salted, b"Client Key");
    let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
    let without_proof = format!("c=biws,r={}", field("r=")?);
    let signed = format!("{first_bare},{challenge},{without_proof}");
    let signature = sign(stored_key.as_ref(), signed.as_bytes());
    let proof = client_key.as_ref().iter().zip(signature.as_ref()).map(|(key, own)| key ^ own);
    Some(format!("{without_proof},p={}", BASE64.encode(proof.collect::<Vec<u8>>())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677 section 3.
    #[test]
    fn the_proof_is_that_of_the_rfc() {
        let challenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let first = "n=user,r=rOprNGfwEbeRWgbNEkqO";
        assert_eq!(
            last_message(first, challenge, "pencil").unwrap(),
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
    }
}
