//! Servers that execute one PostgreSQL statement for each response.

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::event_loop::{Behaviour, NotAServer, ServeError, serve};
use crate::postgres::{Place, Session};
use crate::request::Request;

/// A server that does only what is needed to answer `hello` and to execute a statement meanwhile.
/// It finds its database through `PGHOST` and the other variables of libpq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The statement. Its parameter, `$1`, counts from 1 to `most`, then starts again.
    pub sql: String,
    /// The largest parameter.
    pub most: i32,
}

impl Lookup {
    /// Serves until the process ends, with a connection to the database for each thread.
    ///
    /// # Errors
    /// The address is unavailable, or the system refuses an event loop.
    ///
    /// # Panics
    /// If the database cannot be used.
    pub fn serve(&self, address: SocketAddr, threads: usize) -> Result<(), ServeError> {
        serve(address, threads, || Server::open(self.clone()).expect("a database"))
    }
}

/// `10000 SELECT …`.
impl FromStr for Lookup {
    type Err = NotAServer;

    fn from_str(text: &str) -> Result<Self, NotAServer> {
        let parsed = text
            .split_once(' ')
            .and_then(|(most, sql)| Some(Self { sql: sql.to_owned(), most: most.parse().ok()? }));
        parsed.ok_or_else(|| NotAServer { text: text.to_owned(), known: "MOST SQL".to_owned() })
    }
}

struct Server {
    lookup: Lookup,
    session: Session,
    parameter: i32,
}

impl Server {
    fn open(lookup: Lookup) -> io::Result<Self> {
        let mut session = Session::open(&Place::from_env()?)?;
        session.prepare(&lookup.sql)?;
        Ok(Self { lookup, session, parameter: 0 })
    }
}

impl Behaviour for Server {
    fn respond(&mut self, request: &Request, out: &mut Vec<u8>) -> Duration {
        self.parameter = self.parameter % self.lookup.most + 1;
        self.session.execute(self.parameter).expect("rows");
        request.reply.write(request.close, out);
        Duration::ZERO
    }
}
