//! The PostgreSQL in which servers have their databases: how to reach it, and the names in it.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::random_text;

/// The beginning of the names of hotlap's databases in a PostgreSQL that the user runs.
const PREFIX: &str = "hotlap_";

/// The name of the database that is copied for every server, without the prefix of a run.
const ORIGINAL: &str = "original";

/// The port on which PostgreSQL usually listens.
const PORT: u16 = 5432;

/// The parts of the URL of a PostgreSQL that the user runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterUrl {
    host: String,
    port: u16,
    role: String,
    password: String,
    database: String,
    /// Whether and how connections are encrypted, as in libpq: for example `require`.
    sslmode: Option<String>,
}

/// Characters that must be escaped in a URL. Otherwise, the end of the password would be unclear,
/// and hotlap could not remove the password from stored and shown text.
const UNSAFE: [char; 9] = ['#', '"', '\'', '`', '<', '>', '\\', ' ', '|'];

impl ClusterUrl {
    /// Returns whether the host is this machine, judging by the host's name.
    pub fn is_loopback(&self) -> bool {
        let is_loopback = self.host.parse().map(|address: IpAddr| address.is_loopback());
        is_loopback.unwrap_or(self.host == "localhost")
    }

    /// Returns the password, plain and as it is escaped in the URLs of servers.
    pub fn password(&self) -> [String; 2] {
        [self.password.clone(), utf8_percent_encode(&self.password, NON_ALPHANUMERIC).to_string()]
    }
}

impl FromStr for ClusterUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "the URL of a PostgreSQL looks like postgres://role:password@127.0.0.1:5432/postgres"
                .to_owned()
        };
        let schemes = ["postgres://", "postgresql://"];
        let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).ok_or_else(wrong)?;
        if rest.contains(UNSAFE) || rest.contains(|c: char| c.is_control()) {
            return Err("escape special characters in the URL: # is %23, / is %2F".to_owned());
        }
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        // Other parameters, such as `dbname`, would lead clients to another database.
        let sslmode = match parameters.strip_prefix("sslmode=") {
            Some(mode) if mode.chars().all(|c| c.is_ascii_lowercase() || c == '-') => {
                Some(mode.to_owned())
            }
            None if parameters.is_empty() => None,
            _ => {
                let what = "the URL may have only the parameter sslmode, such as sslmode=require";
                return Err(what.to_owned());
            }
        };
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
        let password = decoded(password)?;
        Ok(Self { host, port, role, password, database, sslmode })
    }
}

impl fmt::Display for ClusterUrl {
    /// Formats the host and the port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How clients reach a PostgreSQL, and the names of the roles and databases in it.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The host for `psql`, or the folder of the socket.
    pub psql_host: String,
    /// The host for servers.
    pub host: String,
    pub port: u16,
    /// The role that creates databases.
    pub creator: String,
    /// The role that owns the servers' databases.
    pub owner: String,
    /// The password of both roles.
    pub password: String,
    /// The database that `psql` connects to in order to create other databases.
    pub first: String,
    /// The database that is copied for every server.
    pub original: String,
    /// The name of a server's database, without the server's number.
    prefix: String,
    pub sslmode: Option<String>,
}

impl Cluster {
    /// The superuser of a PostgreSQL that hotlap starts.
    pub const SUPERUSER: &str = "hotlap";

    /// Returns the PostgreSQL that hotlap starts for a run. Its socket is in this folder.
    pub fn of_the_run(folder: &Path, port: u16, password: String) -> Self {
        Self {
            psql_host: folder.display().to_string(),
            host: "127.0.0.1".to_owned(),
            port,
            creator: Self::SUPERUSER.to_owned(),
            owner: "app".to_owned(),
            password,
            first: "postgres".to_owned(),
            original: ORIGINAL.to_owned(),
            prefix: "server".to_owned(),
            sslmode: None,
        }
    }

    /// Returns a PostgreSQL that the user runs, with new names for this run.
    pub fn of_the_user(url: &ClusterUrl) -> io::Result<Self> {
        let ClusterUrl { host, port, role, password, database, sslmode } = url.clone();
        let prefix = format!("{PREFIX}{}", &random_text()?[..8]);
        Ok(Self {
            psql_host: host.clone(),
            host,
            port,
            creator: role.clone(),
            owner: role,
            password,
            first: database,
            original: format!("{prefix}_{ORIGINAL}"),
            prefix,
            sslmode,
        })
    }

    /// Returns the name of a server's database.
    pub fn name(&self, server: usize) -> String {
        format!("{}_{server}", self.prefix)
    }

    /// Returns whether a database in the user's PostgreSQL belongs to this run.
    pub fn is_own(&self, name: &str) -> bool {
        is_name(name) && name.starts_with(&format!("{}_", self.prefix))
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
    /// arguments. The password is in an environment variable, which other users cannot read.
    pub fn connection(&self, database: &str) -> String {
        let database = utf8_percent_encode(database, NON_ALPHANUMERIC);
        format!("postgresql:///{database}{}", self.parameters())
    }

    fn parameters(&self) -> String {
        self.sslmode.as_ref().map_or_else(String::new, |mode| format!("?sslmode={mode}"))
    }
}

/// Returns whether a name has the form that hotlap gives to databases in the user's PostgreSQL.
/// Names of this form need no quotes in SQL.
fn is_name(name: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
    rest.is_some_and(|(run, server)| {
        let is_number = !server.is_empty() && server.bytes().all(|byte| byte.is_ascii_digit());
        run.len() == 8
            && run.bytes().all(|byte| byte.is_ascii_hexdigit())
            && (is_number || server == ORIGINAL)
    })
}

/// Returns the statement that lists the role's databases whose names begin with [`PREFIX`], with
/// their comments.
pub(super) fn databases_of_runs() -> String {
    format!(
        "SELECT datname || ' ' || coalesce(shobj_description(oid, 'pg_database'), '') \
         FROM pg_database WHERE starts_with(datname, '{PREFIX}') AND pg_has_role(datdba, 'USAGE')"
    )
}

/// Returns the comment on a database in a PostgreSQL that the user runs. The comment names the
/// machine and the folder of the run. This folder exists until the run ends.
pub(super) fn comment(logs: &Path) -> String {
    format!("hotlap on {}: {}", node(), logs.display())
}

/// Returns whether a run that has ended left the database with this name and comment behind.
pub(super) fn is_left(name: &str, comment: &str) -> bool {
    let folder = comment.strip_prefix(&format!("hotlap on {}: ", node()));
    let folder = folder.map(Path::new).filter(|folder| folder.is_absolute());
    // A folder that cannot be read may still exist, because it may belong to another user.
    is_name(name) && folder.is_some_and(|folder| folder.try_exists().is_ok_and(|exists| !exists))
}

fn node() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_on_a_loopback_address_is_on_this_machine() {
        let is_loopback = |host: &str| {
            format!("postgres://me@{host}/x").parse::<ClusterUrl>().unwrap().is_loopback()
        };
        assert!(["localhost", "127.0.0.2:1", "[::1]"].into_iter().all(is_loopback));
        assert!(!["db", "10.0.0.1", "localhost.example"].into_iter().any(is_loopback));
    }

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
        let wrong = [
            "db",
            "mysql://me@db",
            "postgres://db",
            "postgres://me@db:x",
            "postgres://@d",
            "postgres://me:p#ss@db",
            "postgres://me:p/ss@db",
            "postgres://me@db/x?dbname=prod",
            "postgres://me@db/x?sslmode=require&host=y",
        ];
        for wrong in wrong {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_databases_of_ended_runs_of_this_machine_are_left() {
        let logs = tempfile::tempdir().unwrap();
        let comment = comment(logs.path());
        let name = "hotlap_0123abcd_1";
        assert!(!is_left(name, &comment));
        drop(logs);
        assert!(is_left(name, &comment) && is_left("hotlap_0123abcd_original", &comment));
        for theirs in ["hotlap_theirs", "hotlap_0123abcd_", "hotlap_0123abcd_1;x", "shop"] {
            assert!(!is_left(theirs, &comment), "{theirs}");
        }
        let elsewhere = "hotlap on another.example: /nowhere";
        for theirs in ["", "/nowhere", elsewhere, &format!("hotlap on {}: x", node())] {
            assert!(!is_left(name, theirs), "{theirs}");
        }
    }
}
