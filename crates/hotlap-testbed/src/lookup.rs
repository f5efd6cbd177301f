//! Servers that execute one PostgreSQL statement for each response.

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::event_loop::{Behaviour, NotAServer, ServeError, serve};
use crate::postgres::{Place, Session};
use crate::request::Request;

/// A server that does only the work that `hello` and one statement per response need. The variables
/// of libpq, such as `PGHOST`, name the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The statement. In each thread, the parameter `$1` counts from 1 to `most` again and again.
    pub sql: String,
    /// The largest value of the parameter.
    pub most: i32,
    /// Whether the server prepares the statement again for each response.
    pub prepares: bool,
}

impl Lookup {
    /// Serves until the process ends, with one database connection per thread.
    ///
    /// # Errors
    /// The address is unavailable, or the system cannot create an event loop.
    ///
    /// # Panics
    /// If the database cannot be used.
    pub fn serve(&self, address: SocketAddr, threads: usize) -> Result<(), ServeError> {
        serve(address, threads, || Server::open(self.clone()).expect("a database"))
    }
}

/// Parses `10000 SELECT …` or `prepare 10000 SELECT …`.
impl FromStr for Lookup {
    type Err = NotAServer;

    fn from_str(text: &str) -> Result<Self, NotAServer> {
        let (prepares, rest) = match text.strip_prefix("prepare ") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let parsed = rest.split_once(' ').and_then(|(most, sql)| {
            Some(Self {
                sql: sql.to_owned(),
                most: most.parse().ok().filter(|most| *most > 0)?,
                prepares,
            })
        });
        let known = || "[prepare] MOST SQL".to_owned();
        parsed.ok_or_else(|| NotAServer { text: text.to_owned(), known: known() })
    }
}

/// The name of the prepared statement.
const ONLY: u8 = b'1';

struct Server {
    lookup: Lookup,
    session: Session,
    parameter: i32,
}

impl Server {
    fn open(lookup: Lookup) -> io::Result<Self> {
        let mut session = Session::open(&Place::from_env()?)?;
        session.prepare(ONLY, 1, &lookup.sql)?;
        Ok(Self { lookup, session, parameter: 0 })
    }
}

impl Behaviour for Server {
    fn respond(&mut self, request: &Request, _: &[u8], out: &mut Vec<u8>) -> Duration {
        self.parameter = self.parameter % self.lookup.most + 1;
        if self.lookup.prepares {
            self.session.prepare_next(ONLY, 1, &self.lookup.sql);
        }
        self.session.execute(ONLY, [&[self.parameter][..]]).expect("rows");
        request.reply.write(request.close, out);
        Duration::ZERO
    }
}
