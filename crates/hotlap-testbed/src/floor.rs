//! A server for the contracts that need a database, files, bodies or delays. The server does as
//! little work as possible. Each thread has one connection to the database and prepares its
//! statements once. All statements of one kind that a request needs take one round trip.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;
use std::{env, fs, str};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::event_loop::{Behaviour, NotAServer, ServeError, serve};
use crate::postgres::{Place, Row, Session};
use crate::request::{Reply, Request};

/// The names of the prepared statements.
const ROW: u8 = b'1';
const CHANGE: u8 = b'2';
const FORTUNES: u8 = b'3';
const ROWS: u8 = b'4';
const ALL: u8 = b'5';

/// The first request to change rows, counted from 1 in each thread, that a tired server ignores.
const UNTIL_TIRED: u32 = 50;

/// A way in which a server breaks a contract, mostly to save work. The checks must find every
/// cheat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cheat {
    /// No cheat.
    None,
    /// Pages contain the messages without escaping.
    Unescaped,
    /// The server computes rows that it should read.
    Cached,
    /// The server reads rows that it should have in memory.
    Uncached,
    /// The server reads 20 rows with one statement.
    OneStatement,
    /// The server responds without changing a row.
    Unwritten,
    /// The server changes rows in response to its first requests only.
    Tired,
    /// The server writes the old numbers into the rows with even ids.
    Lossy,
    /// Pages list the messages in the order of the table.
    Unsorted,
    /// The server opens more connections to the database than its pool may have.
    Greedy,
    /// The server computes the checksum of only half of a body.
    Truncated,
    /// The server responds at once instead of after the requested delay.
    Impatient,
    /// The server sends a file again to a client that already has it.
    Forgetful,
    /// The server sends a whole file in response to a request for a part.
    Partless,
    /// The server compresses nothing.
    Uncompressed,
}

impl Cheat {
    /// All variants, including [`Cheat::None`].
    pub const ALL: [Self; 15] = [
        Self::None,
        Self::Unescaped,
        Self::Cached,
        Self::Uncached,
        Self::OneStatement,
        Self::Unwritten,
        Self::Tired,
        Self::Lossy,
        Self::Unsorted,
        Self::Greedy,
        Self::Truncated,
        Self::Impatient,
        Self::Forgetful,
        Self::Partless,
        Self::Uncompressed,
    ];
}

impl FromStr for Cheat {
    type Err = NotAServer;

    fn from_str(text: &str) -> Result<Self, NotAServer> {
        NotAServer::or_named(text, &Self::ALL)
    }
}

/// Serves the contracts that need a database, files, bodies or delays, until the process ends. The
/// server opens a database only if `PGHOST` is set. The other variables of libpq complete the
/// database's address. The server has files only if `FILES` names their folder.
///
/// # Errors
/// The address is unavailable, the system cannot create an event loop, or the database or the
/// files cannot be used.
///
/// # Panics
/// If a thread cannot use the database.
pub fn serve_floor(address: SocketAddr, threads: usize, cheat: Cheat) -> Result<(), ServeError> {
    Server::open(cheat).map_err(ServeError::Data)?;
    serve(address, threads, || Server::open(cheat).expect("a database"))
}

struct Server {
    cheat: Cheat,
    database: Option<Data>,
    files: BTreeMap<String, StaticFile>,
    body: Vec<u8>,
    /// The delay of the response.
    delay: Duration,
    /// The number of requests to change rows so far.
    updates: u32,
}

/// A file of the contract `static`, both plain and compressed.
struct StaticFile {
    plain: Vec<u8>,
    gzip: Vec<u8>,
}

impl StaticFile {
    /// Returns all files of a folder, by name.
    fn all(folder: &Path) -> io::Result<BTreeMap<String, Self>> {
        let read = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            let plain = fs::read(entry.path())?;
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(&plain)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            Ok((name, Self { plain, gzip: encoder.finish()? }))
        };
        fs::read_dir(folder)?.map(read).collect()
    }

    /// Appends the response to a request for the file.
    fn write(
        &self,
        request: &[u8],
        close: &str,
        cheat: Cheat,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let has = |line: &[u8]| request.windows(line.len()).any(|part| part == line);
        let tag = format!("\"{:x}\"", self.plain.len());
        if cheat != Cheat::Forgetful && has(format!("If-None-Match: {tag}").as_bytes()) {
            return write!(out, "HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\n{close}\r\n");
        }
        let (status, more, body) = if has(b"Range: bytes=1000-1999") && cheat != Cheat::Partless {
            let more = format!("Content-Range: bytes 1000-1999/{}\r\n", self.plain.len());
            ("206 Partial Content", more, &self.plain[1_000..2_000])
        } else if has(b"Accept-Encoding: gzip") && cheat != Cheat::Uncompressed {
            ("200 OK", "Content-Encoding: gzip\r\n".to_owned(), &self.gzip[..])
        } else {
            ("200 OK", String::new(), &self.plain[..])
        };
        let length = body.len();
        write!(
            out,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nETag: {tag}\r\n{more}\
             Content-Length: {length}\r\n{close}\r\n"
        )?;
        out.extend_from_slice(body);
        Ok(())
    }
}

struct Data {
    session: Session,
    /// The numbers of all rows, in the order of the ids.
    kept: Vec<i32>,
}

impl Data {
    fn open(cheat: Cheat) -> io::Result<Self> {
        if cheat == Cheat::Greedy {
            let place = Place::from_env()?;
            (0..20).try_for_each(|_| Session::open(&place).map(std::mem::forget))?;
        }
        let mut session = Session::open(&Place::from_env()?)?;
        session.prepare(ROW, 1, "SELECT number FROM world WHERE id = $1")?;
        session.prepare(CHANGE, 2, "UPDATE world SET number = $2 WHERE id = $1")?;
        session.prepare(FORTUNES, 0, "SELECT id, message FROM fortune")?;
        let places: Vec<String> = (1..=20).map(|place| format!("${place}")).collect();
        let list = places.join(",");
        session.prepare(
            ROWS,
            20,
            &format!("SELECT number FROM world WHERE id IN ({list}) ORDER BY id"),
        )?;
        session.prepare(ALL, 0, "SELECT number FROM world ORDER BY id")?;
        let kept = session.execute(ALL, [&[][..]])?.iter().map(|row| row.integer(0)).collect();
        Ok(Self { session, kept })
    }
}

impl Server {
    fn open(cheat: Cheat) -> io::Result<Self> {
        let database = env::var_os("PGHOST").map(|_| Data::open(cheat)).transpose()?;
        let files = env::var_os("FILES").map(|folder| StaticFile::all(Path::new(&folder)));
        let files = files.transpose()?.unwrap_or_default();
        let (body, delay) = (Vec::new(), Duration::ZERO);
        Ok(Self { cheat, database, files, body, delay, updates: 0 })
    }

    fn data(&mut self) -> io::Result<&mut Data> {
        self.database.as_mut().ok_or_else(|| io::Error::other("PGHOST is not set"))
    }

    /// Writes the body of the response. Returns its media type, or `None` if there is no such
    /// path.
    fn answer(&mut self, line: &str, sent: &[u8]) -> io::Result<Option<&'static str>> {
        self.body.clear();
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let ids = || numbers(query, "ids=");
        match (method, path) {
            ("GET", "/db") => {
                let id = numbers(query, "id=").first().copied().unwrap_or(0);
                let rows = self.rows(&[id])?;
                row(id, rows[0], &mut self.body);
            }
            ("GET", "/queries") => {
                let (ids, rows) = (ids(), self.rows(&ids())?);
                list(&ids, &rows, &mut self.body);
            }
            ("GET", "/cached") => {
                let ids = ids();
                if self.cheat == Cheat::Uncached {
                    self.rows(&ids)?;
                }
                let kept = &self.data()?.kept;
                let number = |id: &i32| {
                    let place = usize::try_from(id - 1).ok();
                    place.and_then(|place| kept.get(place)).copied().unwrap_or(0)
                };
                let rows: Vec<i32> = ids.iter().map(number).collect();
                list(&ids, &rows, &mut self.body);
            }
            ("GET", "/json") => {
                let name = query.strip_prefix("name=").unwrap_or("");
                write!(self.body, "{{\"message\":\"Hello, {name}!\"}}")?;
            }
            ("POST", "/upload") => {
                let read = match self.cheat {
                    Cheat::Truncated => &sent[..sent.len() / 2],
                    _ => sent,
                };
                let (bytes, crc32) = (sent.len(), crc32fast::hash(read));
                write!(self.body, "{{\"bytes\":{bytes},\"crc32\":\"{crc32:08x}\"}}")?;
            }
            ("GET", "/delay") => {
                let ms = numbers(query, "ms=").first().copied().unwrap_or(0).unsigned_abs();
                if self.cheat != Cheat::Impatient {
                    self.delay = Duration::from_millis(ms.into());
                }
                write!(self.body, "{{\"ms\":{ms}}}")?;
            }
            ("POST", "/updates") => {
                let (ids, new) = (ids(), numbers(query, "numbers="));
                self.change(&ids, &new)?;
                list(&ids, &new, &mut self.body);
            }
            ("GET", "/fortunes") => {
                let text = query.split('&').find_map(|part| part.strip_prefix("text="));
                self.fortunes(text.unwrap_or(""))?;
                return Ok(Some("text/html; charset=utf-8"));
            }
            _ => return Ok(None),
        }
        Ok(Some("application/json"))
    }

    /// Reads the rows with these ids, and gives them new numbers.
    fn change(&mut self, ids: &[i32], new: &[i32]) -> io::Result<()> {
        let old = self.rows(ids)?;
        self.updates += 1;
        let is_written = match self.cheat {
            Cheat::Unwritten => false,
            Cheat::Tired => self.updates < UNTIL_TIRED,
            _ => true,
        };
        if is_written {
            let keeps = |id: i32| self.cheat == Cheat::Lossy && id % 2 == 0;
            let pair = |((id, new), old): ((&i32, &i32), &i32)| match keeps(*id) {
                true => [*id, *old],
                false => [*id, *new],
            };
            let pairs: Vec<[i32; 2]> = ids.iter().zip(new).zip(&old).map(pair).collect();
            self.data()?.session.execute(CHANGE, pairs.iter().map(|pair| &pair[..]))?;
        }
        Ok(())
    }

    /// Returns the numbers of the rows with these ids.
    fn rows(&mut self, ids: &[i32]) -> io::Result<Vec<i32>> {
        let rows = match self.cheat {
            Cheat::Cached => return Ok(ids.iter().map(|id| id * 7_919 % 10_000 + 1).collect()),
            Cheat::OneStatement if ids.len() == 20 => self.data()?.session.execute(ROWS, [ids])?,
            _ => self.data()?.session.execute(ROW, ids.iter().map(std::slice::from_ref))?,
        };
        Ok(rows.iter().map(|row| row.integer(0)).collect())
    }

    fn fortunes(&mut self, text: &str) -> io::Result<()> {
        let rows = self.data()?.session.execute(FORTUNES, [&[][..]])?;
        let message = |row: &Row| String::from_utf8_lossy(row.column(1)).into_owned();
        let mut all: Vec<(i32, String)> =
            rows.iter().map(|row| (row.integer(0), message(row))).collect();
        all.push((0, format!("Brought by the request: {text}")));
        if self.cheat != Cheat::Unsorted {
            all.sort_by(|(_, one), (_, other)| one.cmp(other));
        }
        self.body.extend_from_slice(
            b"<!DOCTYPE html><html><head><title>Fortunes</title></head><body><table>\
              <tr><th>id</th><th>message</th></tr>",
        );
        for (id, message) in all {
            self.body.extend_from_slice(format!("<tr><td>{id}</td><td>").as_bytes());
            match self.cheat {
                Cheat::Unescaped => self.body.extend_from_slice(message.as_bytes()),
                _ => escape(&message, &mut self.body),
            }
            self.body.extend_from_slice(b"</td></tr>");
        }
        self.body.extend_from_slice(b"</table></body></html>");
        Ok(())
    }
}

impl Behaviour for Server {
    fn respond(&mut self, request: &Request, bytes: &[u8], out: &mut Vec<u8>) -> Duration {
        let end = bytes.iter().position(|byte| *byte == b'\r').unwrap_or(bytes.len());
        let line = str::from_utf8(&bytes[..end]).unwrap_or("");
        self.delay = Duration::ZERO;
        let close = if request.close { "Connection: close\r\n" } else { "" };
        let name = line.strip_prefix("GET /static/").and_then(|rest| rest.split(' ').next());
        if let Some(file) = name.and_then(|name| self.files.get(name)) {
            file.write(bytes, close, self.cheat, out).expect("memory");
            return self.delay;
        }
        match self.answer(line, body(bytes)).expect("the database") {
            Some(media_type) => {
                let length = self.body.len();
                out.extend_from_slice(
                    format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\n\
                         Content-Length: {length}\r\n{close}\r\n"
                    )
                    .as_bytes(),
                );
                out.extend_from_slice(&self.body);
            }
            None => Reply::NotFound.write(request.close, out),
        }
        self.delay
    }
}

/// Returns the bytes after the head. Chunks are not joined.
fn body(bytes: &[u8]) -> &[u8] {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    end.map_or(&[], |end| &bytes[end + 4..])
}

/// Returns the integers of the list that follows `name` in a query.
fn numbers(query: &str, name: &str) -> Vec<i32> {
    let list = query.split('&').find_map(|part| part.strip_prefix(name)).unwrap_or("");
    list.split(',').filter_map(|number| number.parse().ok()).collect()
}

fn row(id: i32, number: i32, out: &mut Vec<u8>) {
    let _ = write!(out, "{{\"id\":{id},\"number\":{number}}}");
}

fn list(ids: &[i32], numbers: &[i32], out: &mut Vec<u8>) {
    out.push(b'[');
    for (place, (id, number)) in ids.iter().zip(numbers).enumerate() {
        if place > 0 {
            out.push(b',');
        }
        row(*id, *number, out);
    }
    out.push(b']');
}

fn escape(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            _ => out.push(byte),
        }
    }
}
