//! A minimal PostgreSQL client that executes prepared statements. The client speaks version 3 of
//! the protocol over one blocking connection, without TLS (PostgreSQL 15 documentation, chapter
//! 55).

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};

/// Version 3.0 of the protocol.
const VERSION: i32 = 3 << 16;

/// PostgreSQL's number for the type `integer`.
const INTEGER: [u8; 4] = 23u32.to_be_bytes();

/// The kinds of the message `Authentication`.
const OK: i32 = 0;
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

/// The address of a server's database, and the credentials for it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The host and the port.
    pub(crate) address: String,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) database: String,
}

impl Place {
    /// Reads the environment variables that hotlap sets and that libpq reads.
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

/// A connection to PostgreSQL.
pub(crate) struct Session {
    input: BufReader<TcpStream>,
    output: TcpStream,
    out: Vec<u8>,
}

impl Session {
    /// Connects to PostgreSQL and authenticates with the password.
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

    /// Prepares a statement with this many integer parameters. An earlier statement of the same
    /// name is replaced.
    pub(crate) fn prepare(&mut self, name: u8, parameters: u16, sql: &str) -> io::Result<()> {
        self.prepare_next(name, parameters, sql);
        self.put(b'S', &[]);
        self.send()?;
        self.await_ready().map(drop)
    }

    /// Queues the preparation of a statement, which is sent together with the next execution.
    pub(crate) fn prepare_next(&mut self, name: u8, parameters: u16, sql: &str) {
        // PostgreSQL refuses a name that is taken, so the earlier statement is closed first.
        self.put(b'C', &[&[b'S', name, 0]]);
        let types = INTEGER.repeat(usize::from(parameters));
        let count = parameters.to_be_bytes();
        self.put(b'P', &[&[name, 0], sql.as_bytes(), b"\0", &count, &types]);
    }

    /// Executes a statement once for each list of parameters, all in one round trip. Returns the
    /// rows in the order of the lists.
    pub(crate) fn execute<'p>(
        &mut self,
        name: u8,
        all: impl IntoIterator<Item = &'p [i32]>,
    ) -> io::Result<Vec<Row>> {
        for parameters in all {
            let count = (parameters.len() as u16).to_be_bytes();
            let values: Vec<u8> = parameters
                .iter()
                .flat_map(|value| [4i32.to_be_bytes(), value.to_be_bytes()].concat())
                .collect();
            // `Bind` to the unnamed portal, with all parameters and results in binary.
            self.put(b'B', &[&[0, name, 0], b"\0\x01\0\x01", &count, &values, b"\0\x01\0\x01"]);
            // `Execute` of the unnamed portal, for all rows.
            self.put(b'E', &[b"\0\0\0\0\0"]);
        }
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

    /// Reads messages up to `ReadyForQuery`. Returns the rows.
    fn await_ready(&mut self) -> io::Result<Vec<Row>> {
        let mut rows = Vec::new();
        loop {
            match self.receive()? {
                (b'Z', _) => return Ok(rows),
                (b'D', row) => rows.push(Row(row)),
                _ => {}
            }
        }
    }

    /// Authenticates with SCRAM-SHA-256 (RFC 5802 section 3, RFC 7677), or not at all if
    /// PostgreSQL wants no password. PostgreSQL does not have to prove that it knows the password,
    /// because PostgreSQL runs on this machine.
    fn authenticate(&mut self, password: &str) -> io::Result<()> {
        // The server adds its own random nonce, so the client's nonce may be constant.
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

/// A row in PostgreSQL's binary format.
pub(crate) struct Row(Vec<u8>);

impl Row {
    /// Returns the value of a column, counted from 0. The value is empty if it is NULL or if there
    /// is no such column.
    pub(crate) fn column(&self, column: usize) -> &[u8] {
        let mut rest = self.0.get(2..).unwrap_or_default();
        for place in 0.. {
            let Some((length, after)) = rest.split_first_chunk::<4>() else { break };
            let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
            let (value, others) = after.split_at(length.min(after.len()));
            if place == column {
                return value;
            }
            rest = others;
        }
        &[]
    }

    /// Returns the value of a column of type `integer`.
    pub(crate) fn integer(&self, column: usize) -> i32 {
        self.column(column).first_chunk().map_or(0, |value| i32::from_be_bytes(*value))
    }
}

/// Returns the client's last message, or `None` if the challenge is malformed.
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
