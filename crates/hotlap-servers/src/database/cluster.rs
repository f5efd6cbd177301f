//! The PostgreSQL in which servers have their databases: how to reach it, and the names in it.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::random_text;

/// The beginning of the names of all databases in a PostgreSQL that the user runs.
const PREFIX: &str = "hotlap_";

/// The port on which PostgreSQL usually listens.
const PORT: u16 = 5432;

/// A PostgreSQL that the user runs, as its URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterUrl {
    host: String,
    port: u16,
    role: String,
    password: String,
    database: String,
    /// The parameters of the connection, for example `sslmode=require`.
    parameters: String,
}

impl FromStr for ClusterUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "a PostgreSQL's URL looks like postgres://role:password@127.0.0.1:5432/postgres"
                .to_owned()
        };
        let schemes = ["postgres://", "postgresql://"];
        let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).ok_or_else(wrong)?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, address) = place.rsplit_once('@').ok_or_else(wrong)?;
        let (role, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (address, PORT),
        };
        let decoded = |part: &str| {
            let decoded = percent_decode_str(part).decode_utf8();
            decoded.map(|part| part.into_owned()).map_err(|_| wrong())
        };
        let role = decoded(role)?;
        let database = if database.is_empty() { role.clone() } else { decoded(database)? };
        let host = host.trim_matches(['[', ']']).to_owned();
        if host.is_empty() || role.is_empty() {
            return Err(wrong());
        }
        let (password, parameters) = (decoded(password)?, parameters.to_owned());
        Ok(Self { host, port, role, password, database, parameters })
    }
}

impl fmt::Display for ClusterUrl {
    /// Formats the host and the port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How clients reach a PostgreSQL, and the names in it.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The host for `psql`, or the folder of the socket.
    pub psql_host: String,
    /// The host for servers.
    pub host: String,
    pub port: u16,
    /// The role that creates databases, and the role that owns the servers' databases.
    pub creator: String,
    pub owner: String,
    /// The password of both roles.
    pub password: String,
    /// The database in which `psql` creates other databases.
    pub first: String,
    /// The database that is copied for every server.
    pub original: String,
    /// The name of a server's database, without the server's number.
    prefix: String,
    parameters: String,
}

impl Cluster {
    /// The superuser of a PostgreSQL that hotlap starts.
    pub const SUPERUSER: &str = "hotlap";

    /// Returns the PostgreSQL of a run, whose socket is in this folder.
    pub fn of_the_run(folder: &Path, port: u16, password: String) -> Self {
        Self {
            psql_host: folder.display().to_string(),
            host: "127.0.0.1".to_owned(),
            port,
            creator: Self::SUPERUSER.to_owned(),
            owner: "app".to_owned(),
            password,
            first: "postgres".to_owned(),
            original: "original".to_owned(),
            prefix: "server".to_owned(),
            parameters: String::new(),
        }
    }

    /// Returns a PostgreSQL that the user runs, with new names for this run.
    pub fn of_the_user(url: &ClusterUrl) -> io::Result<Self> {
        let ClusterUrl { host, port, role, password, database, parameters } = url.clone();
        let prefix = format!("{PREFIX}{}", &random_text()?[..8]);
        Ok(Self {
            psql_host: host.clone(),
            host,
            port,
            creator: role.clone(),
            owner: role,
            password,
            first: database,
            original: format!("{prefix}_original"),
            prefix,
            parameters,
        })
    }

    /// Returns the name of a server's database.
    pub fn name(&self, server: usize) -> String {
        format!("{}_{server}", self.prefix)
    }

    /// Returns the URL of a database for its server.
    pub fn url(&self, database: &str) -> String {
        let Self { host, port, owner, password, .. } = self;
        let encoded = |part| utf8_percent_encode(part, NON_ALPHANUMERIC);
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let (owner, password) = (encoded(owner), encoded(password));
        format!("postgres://{owner}:{password}@{host}:{port}/{database}{}", self.parameters())
    }

    /// Returns the connection string of a database for `psql`. Host, port and role are separate
    /// arguments, and the password is a variable, which other users cannot read.
    pub fn connection(&self, database: &str) -> String {
        let database = utf8_percent_encode(database, NON_ALPHANUMERIC);
        format!("postgresql:///{database}{}", self.parameters())
    }

    fn parameters(&self) -> String {
        match self.parameters.is_empty() {
            true => String::new(),
            false => format!("?{}", self.parameters),
        }
    }
}

/// Returns the statement that finds the databases of all runs of hotlap, with their comments.
pub(super) fn databases_of_runs() -> String {
    format!(
        "SELECT datname || ' ' || coalesce(shobj_description(oid, 'pg_database'), '') \
         FROM pg_database WHERE starts_with(datname, '{PREFIX}')"
    )
}

/// The comment on a database in a PostgreSQL that the user runs. It names the folder of the run,
/// which exists until the run ends, and the machine.
pub(super) fn comment(logs: &Path) -> String {
    format!("hotlap on {}: {}", node(), logs.display())
}

/// Whether a run that has ended left the database with this comment behind.
pub(super) fn is_left(comment: &str) -> bool {
    let folder = comment.strip_prefix(&format!("hotlap on {}: ", node()));
    folder.is_some_and(|folder| Path::new(folder).is_absolute() && !Path::new(folder).exists())
}

fn node() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_how_to_reach_a_database() {
        let of = |url: &str| {
            let cluster = Cluster::of_the_user(&url.parse::<ClusterUrl>()?).unwrap();
            Ok::<_, String>(format!(
                "{} {} {} {} {} {}",
                cluster.host,
                cluster.port,
                cluster.owner,
                cluster.password,
                cluster.first,
                cluster.url("x")
            ))
        };
        let expected = [
            ("postgres://me:pw@db", "db 5432 me pw me postgres://me:pw@db:5432/x"),
            ("postgresql://me@db:1/y", "db 1 me  y postgres://me:@db:1/x"),
            ("postgres://me:a%40b@[::1]:1/y", "::1 1 me a@b y postgres://me:a%40b@[::1]:1/x"),
            (
                "postgres://me:p@db/y?sslmode=require",
                "db 5432 me p y postgres://me:p@db:5432/x?sslmode=require",
            ),
        ];
        for (url, parts) in expected {
            assert_eq!(of(url).as_deref(), Ok(parts), "{url}");
        }
        for wrong in ["db", "mysql://me@db", "postgres://db", "postgres://me@db:x", "postgres://@d"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_databases_of_ended_runs_of_this_machine_are_left() {
        let logs = tempfile::tempdir().unwrap();
        let comment = comment(logs.path());
        assert!(!is_left(&comment));
        drop(logs);
        assert!(is_left(&comment));
        let elsewhere = "hotlap on another.example: /nowhere";
        for theirs in ["", "/nowhere", elsewhere, &format!("hotlap on {}: x", node())] {
            assert!(!is_left(theirs), "{theirs}");
        }
    }
}
