//! The PostgreSQL of a run. hotlap starts it for the run and removes it at the end, unless the user
//! names a PostgreSQL that already runs.
//!
//! Each start of a server gets a fresh copy of one database. Rows written by one server therefore
//! neither slow down nor warm up another server. hotlap uses only installed programs. The
//! PostgreSQL that hotlap starts has its own folder, port and password. In the user's PostgreSQL,
//! hotlap creates its own databases, and drops them at the end of the run. hotlap changes no other
//! database there, except that it drops the databases that killed runs left.
//!
//! Like a server, PostgreSQL runs under a supervisor, which ends it even if hotlap is killed. If
//! hotlap and the supervisor were both killed, [`remove_left`] ends PostgreSQL at the next start of
//! hotlap, and removes its folder.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hotlap_observe::Sampler;
use serde::{Deserialize, Serialize};

use crate::contract;
use crate::interrupt::LOOK;
use crate::launch::ServerFailure;
use crate::machine::free_port;
use crate::process::{Process, ProcessExit, ProcessSetting, Supervisor};

mod cluster;
mod folder;
mod others;
mod programs;
mod proof;

use cluster::Cluster;
pub use cluster::ClusterUrl;
use folder::{Folder, Owner};
pub use folder::{LOG, is_noted, remove_left};
pub(crate) use others::connected;
pub use programs::Programs;
pub(crate) use programs::inherited;
pub(crate) use proof::Prover;
pub use proof::{DatabaseWork, Proof};

/// The settings that differ from PostgreSQL's defaults. A crash would lose all data, but a run
/// discards its data anyway. The settings prevent work that could fall into a lap by chance:
/// checkpoints, vacuums, and the compilation of queries. Dynamic shared memory is in PostgreSQL's
/// folder, and is removed with the folder. Otherwise, a killed PostgreSQL would leave 1.1 MB in
/// `/dev/shm`.
pub const SETTINGS: [(&str, &str); 10] = [
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("synchronous_commit", "off"),
    ("autovacuum", "off"),
    ("jit", "off"),
    ("max_wal_size", "4GB"),
    ("checkpoint_timeout", "1d"),
    ("shared_buffers", "256MB"),
    ("max_parallel_workers_per_gather", "0"),
    ("dynamic_shared_memory_type", "mmap"),
];

/// The smallest value of `max_connections`.
const LEAST_CONNECTIONS: usize = 400;

/// Connections for hotlap's own statements, and the connections that PostgreSQL reserves for
/// superusers.
const RESERVED_CONNECTIONS: usize = 20;

/// Returns `max_connections` for a run with this many servers, all of which keep their pools open.
/// Each server has one more connection, over which hotlap reads back what the server changed.
fn most_connections(servers: usize) -> usize {
    (servers * (pool_size() + 1) + RESERVED_CONNECTIONS).max(LEAST_CONNECTIONS)
}

/// The settings that are needed to count statements. Statements are counted only before the load.
const COUNTING: [(&str, &str); 2] = [
    ("shared_preload_libraries", "pg_stat_statements"),
    ("pg_stat_statements.track_utility", "off"),
];

/// The environment variable with the URL of a server's database.
pub const DATABASE_URL: &str = "DATABASE_URL";

/// The environment variable with the number of connections that a server should keep open.
pub const POOL_SIZE: &str = "POOL_SIZE";

/// The minimum size of a server's connection pool.
const POOL: usize = 16;

/// Returns the size of a pool, which is the same for all servers. A server with one process per
/// core needs one connection per process.
fn pool_size() -> usize {
    std::thread::available_parallelism().map_or(POOL, |cores| cores.get().max(POOL))
}

/// The time limit for `initdb`, and also for the first connection.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The file with the superuser's password, in PostgreSQL's folder.
const PASSWORD: &str = "password";

/// The time limit for a run of `psql`, which the user can interrupt.
const SQL_LIMIT: Duration = Duration::from_secs(600);

/// The interval between checks whether SQL has ended.
const SQL_LOOK: Duration = Duration::from_millis(5);

/// The time between SIGTERM and SIGKILL. PostgreSQL waits for its clients to disconnect meanwhile.
const GRACE: Duration = Duration::from_secs(5);

/// The settings for the start of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseSetting {
    /// PostgreSQL's programs.
    pub programs: Programs,
    /// The source of the tables and rows. Every start of a server gets a copy of them.
    pub schema: Schema,
    /// A PostgreSQL that already runs. If `None`, hotlap starts a PostgreSQL.
    pub url: Option<ClusterUrl>,
    /// The cores that PostgreSQL runs on. If empty, PostgreSQL is not pinned.
    pub cores: Vec<usize>,
    /// The largest number of servers that are connected at the same time.
    pub servers: usize,
}

/// The source of the tables and rows of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schema {
    /// An SQL file.
    File(PathBuf),
    /// The tables of the contracts that need a database.
    Contracts,
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "{}", file.display()),
            Self::Contracts => f.write_str("the tables of the contracts"),
        }
    }
}

impl DatabaseSetting {
    /// Returns the facts about the database for a report. `servers` are the cores of the servers.
    pub fn facts(&self, servers: &[usize]) -> DatabaseFacts {
        let Self { programs, schema, url, cores, .. } = self;
        DatabaseFacts {
            version: match url {
                Some(url) => format!("PostgreSQL at {url}"),
                None => programs.version().to_owned(),
            },
            schema: schema.to_string(),
            cores: cores.clone(),
            shares_cores: url.as_ref().is_none_or(ClusterUrl::is_loopback)
                && (cores.is_empty() || cores.iter().any(|core| servers.contains(core))),
        }
    }
}

/// What a report says about the database of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DatabaseFacts {
    /// The version, such as `PostgreSQL 15.18`, or the address: `PostgreSQL at 127.0.0.1:5432`.
    pub version: String,
    /// The SQL file, or `the tables of the contracts`.
    pub schema: String,
    /// The cores that PostgreSQL runs on. If empty, PostgreSQL is not pinned.
    pub cores: Vec<usize>,
    /// Whether servers run on the same cores.
    pub shares_cores: bool,
}

/// A running PostgreSQL. Dropping this value ends a PostgreSQL that hotlap started, and removes
/// its folder. For the user's PostgreSQL, the drop removes the databases of the run.
#[derive(Debug)]
pub struct Database {
    /// The process of a PostgreSQL that hotlap started. `None` for the user's PostgreSQL.
    process: Option<Process>,
    setting: DatabaseSetting,
    cluster: Cluster,
    /// The folder of the run.
    logs: PathBuf,
    /// Set when the user interrupts.
    stop: Arc<AtomicBool>,
    /// Whether there may be databases of this run in the user's PostgreSQL.
    has_databases: bool,
    /// Held while statements of a server are counted, because counting is switched on or off for
    /// all servers at once.
    counting: Mutex<()>,
    /// The folder of a PostgreSQL that hotlap started. It is removed after the process has ended.
    _folder: Option<Folder>,
}

impl Database {
    /// Starts PostgreSQL, unless the user named one that already runs. Then creates the database
    /// that is copied for servers. `logs` is the folder of the run. If PostgreSQL is started, a
    /// note with the path of its folder is written to `logs`.
    ///
    /// # Errors
    /// Returns the cause, what PostgreSQL printed, and a remedy.
    pub fn start(
        setting: DatabaseSetting,
        supervisor: &Supervisor,
        logs: &Path,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, ServerFailure> {
        let unlikely = |what: &str, error: io::Error| failure(format!("{what}: {error}"), "");
        if let Some(url) = &setting.url {
            let cluster =
                Cluster::of_the_user(url).map_err(|e| unlikely("cannot choose names", e))?;
            let mut database = Self::within(setting, cluster, logs, stop);
            database.drop_left().map_err(|failure| ServerFailure {
                remedy: "check the URL of --database".to_owned(),
                ..failure
            })?;
            database.has_databases = true;
            database.make_original()?;
            return Ok(database);
        }
        let failed = |what: &str, error: io::Error| {
            failure(format!("{what}: {error}"), "free disk space, or set TMPDIR to another folder")
        };
        let owner = Owner::of_servers();
        let folder = Folder::new(logs, &owner)
            .map_err(|e| failed("cannot make a folder for PostgreSQL", e))?;
        let password = random_text().map_err(|e| unlikely("cannot make a password", e))?;
        folder.write(PASSWORD, &password).map_err(|e| failed("cannot write the password", e))?;
        let port = free_port([127, 0, 0, 1].into())
            .map_err(|e| unlikely("cannot reserve a local port", e))?;
        let place = Place { setting: &setting, owner, folder: folder.path(), logs, supervisor };
        place.make_cluster(&stop)?;
        let process = Some(place.serve(port)?);
        let cluster = Cluster::of_the_run(folder.path(), port, password);
        let mut database = Self::within(setting, cluster, logs, stop);
        (database.process, database._folder) = (process, Some(folder));
        database.await_connection()?;
        database.make_original()?;
        Ok(database)
    }

    /// Returns a PostgreSQL without its process and its folder.
    fn within(
        setting: DatabaseSetting,
        cluster: Cluster,
        logs: &Path,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let (logs, counting) = (logs.to_owned(), Mutex::default());
        let (process, has_databases, _folder) = (None, false, None);
        Self { process, setting, cluster, logs, stop, counting, has_databases, _folder }
    }

    /// Creates a fresh copy of the database for a server, in place of the server's earlier copy.
    /// Returns the environment variables that tell the server how to reach the copy.
    ///
    /// # Errors
    /// Returns PostgreSQL's own message.
    pub fn copy_for(&self, server: usize) -> Result<Vec<(&'static str, String)>, ServerFailure> {
        let name = self.cluster.name(server);
        self.drop_database(&name)?;
        let limit = match self.setting.schema {
            // One more connection is for hotlap, which reads back what a server changed.
            Schema::Contracts => format!("CONNECTION LIMIT {}", pool_size() + 1),
            Schema::File(_) => String::new(),
        };
        self.create_database(&name, &format!("TEMPLATE {} {limit}", self.cluster.original))?;
        let Cluster { host, port, owner, password, sslmode, .. } = &self.cluster;
        let mut variables = vec![
            (DATABASE_URL, self.cluster.url(&name)),
            (POOL_SIZE, pool_size().to_string()),
            ("PGHOST", host.clone()),
            ("PGPORT", port.to_string()),
            ("PGUSER", owner.clone()),
            ("PGPASSWORD", password.clone()),
            ("PGDATABASE", name),
        ];
        // Some drivers insist on TLS unless they are told otherwise.
        let own = self.process.as_ref().map(|_| "disable".to_owned());
        variables.extend(sslmode.clone().or(own).map(|mode| ("PGSSLMODE", mode)));
        Ok(variables)
    }

    /// Creates a database. In the user's PostgreSQL, the database gets a comment. A later run uses
    /// this comment to recognize the databases of a killed run.
    fn create_database(&self, name: &str, options: &str) -> Result<(), ServerFailure> {
        let owner = quoted(&self.cluster.owner);
        let mut sql = format!("CREATE DATABASE {name} OWNER {owner} {options};");
        if self.process.is_none() {
            let comment = cluster::comment(&self.logs).replace('\'', "''");
            sql += &format!("\nCOMMENT ON DATABASE {name} IS '{comment}';");
        }
        self.sql(&sql).map(drop)
    }

    fn drop_database(&self, name: &str) -> Result<(), ServerFailure> {
        self.sql(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).map(drop)
    }

    /// Removes the databases that killed runs left in the user's PostgreSQL. A database that is
    /// still in use stays.
    ///
    /// # Errors
    /// If PostgreSQL cannot be queried.
    fn drop_left(&self) -> Result<(), ServerFailure> {
        for (name, comment) in self.databases_of_runs()? {
            if cluster::is_left(&name, &comment) {
                let _ = self.sql(&format!("DROP DATABASE {name}"));
            }
        }
        Ok(())
    }

    /// Removes the databases of this run from the user's PostgreSQL.
    fn drop_own(&self) {
        let all = self.databases_of_runs().unwrap_or_default();
        for (name, _) in all.iter().filter(|(name, _)| self.cluster.is_own(name)) {
            let _ = self.drop_database(name);
        }
    }

    /// Returns the names and comments of the databases of all runs.
    fn databases_of_runs(&self) -> Result<Vec<(String, String)>, ServerFailure> {
        let all = self.sql(&cluster::databases_of_runs())?;
        let each = all.lines().filter_map(|line| line.split_once(' '));
        Ok(each.map(|(name, comment)| (name.to_owned(), comment.to_owned())).collect())
    }

    /// Returns whether the statements of servers can be counted. Counting needs settings that
    /// hotlap does not change in the user's PostgreSQL.
    pub(crate) fn counts_statements(&self) -> bool {
        self.process.is_some()
    }

    /// Returns a sampler for the CPU time of all PostgreSQL processes, including those that have
    /// ended. Only one server is loaded at a time. While a server is loaded, PostgreSQL and its
    /// background processes work for that server only. Returns `None` for the user's PostgreSQL,
    /// whose processes hotlap finds through the server's connections.
    pub fn sampler(&self) -> Option<Sampler> {
        self.process.as_ref().map(|process| Sampler::new(process.roots()))
    }

    /// Returns the cores that PostgreSQL runs on. If empty, PostgreSQL is not pinned.
    pub fn cores(&self) -> &[usize] {
        &self.setting.cores
    }

    /// Creates the database that is copied for servers. In a PostgreSQL that hotlap started, also
    /// creates the servers' role, and prepares the counting of statements.
    fn make_original(&self) -> Result<(), ServerFailure> {
        let Cluster { creator, owner, original, password, .. } = &self.cluster;
        let starts = self.process.is_some();
        if starts {
            self.sql(&format!("CREATE ROLE {owner} LOGIN PASSWORD '{password}'"))?;
        }
        self.create_database(original, "")?;
        if starts && self.setting.schema == Schema::Contracts {
            self.sql("CREATE EXTENSION pg_stat_statements")?;
            // A setting from the command line could not be changed later.
            self.sql("ALTER SYSTEM SET pg_stat_statements.track = 'none'")?;
            self.sql("SELECT pg_reload_conf()")?;
        }
        let made = match &self.setting.schema {
            Schema::Contracts => self.psql(owner, original, Sql::Text(contract::SCHEMA)),
            Schema::File(file) => {
                let name = file.display().to_string();
                File::open(file).map_err(|error| {
                    failure(format!("{name}: {error}"), "name a readable file with --with-postgres")
                })?;
                self.psql(owner, original, Sql::File(&name))
            }
        };
        let remedy = match (&self.setting.schema, starts) {
            (Schema::Contracts, _) => "",
            (Schema::File(_), true) => {
                "correct the SQL, which runs as the owner of an empty database, not as a superuser"
            }
            (Schema::File(_), false) => {
                "correct the SQL, which runs in an empty database, as the role of --database"
            }
        };
        // The message looks like `psql:schema.sql:2: ERROR: …`.
        made.map_err(|cause| failure(cause.trim_start_matches("psql:").to_owned(), remedy))?;
        // Without autovacuum, nothing else collects the statistics that the planner needs.
        let analyzed = self.psql(creator, original, Sql::Text("VACUUM ANALYZE"));
        analyzed.map_err(|cause| failure(cause, "")).map(drop)
    }

    fn await_connection(&mut self) -> Result<(), ServerFailure> {
        let began = Instant::now();
        loop {
            let Err(failure) = self.sql("SELECT 1") else { return Ok(()) };
            let Some(process) = &mut self.process else { return Err(failure) };
            if let Some(exit) = process.wait(LOOK) {
                return Err(printed(process, format!("PostgreSQL {exit}")));
            }
            if began.elapsed() > START_LIMIT {
                return Err(printed(process, failure.cause));
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
        }
    }

    /// Runs a statement in the database of a server, as the role that creates databases.
    fn sql_of(&self, server: usize, statement: &str) -> Result<String, ServerFailure> {
        let (creator, name) = (&self.cluster.creator, self.cluster.name(server));
        let done = self.psql(creator, &name, Sql::Text(statement));
        done.map_err(|cause| failure(cause, ""))
    }

    /// Runs a statement as the role that creates databases.
    fn sql(&self, statement: &str) -> Result<String, ServerFailure> {
        let Cluster { creator, first, .. } = &self.cluster;
        let done = self.psql(creator, first, Sql::Text(statement));
        done.map_err(|cause| failure(cause, ""))
    }

    /// Runs `psql`, and returns the rows that it prints.
    fn psql(&self, role: &str, database: &str, sql: Sql<'_>) -> Result<String, String> {
        // Other users can read a command's arguments, but not its input.
        let (file, input) = match sql {
            Sql::File(file) => (file, ""),
            Sql::Text(text) => ("-", text),
        };
        let mut command = self.setting.programs.psql();
        let Cluster { psql_host, port, password, .. } = &self.cluster;
        command.args(["--host", psql_host, "--port", &port.to_string(), "--username", role]);
        command.args(["--dbname", &self.cluster.connection(database), "--file", file]);
        // Without --no-password, psql would ask for a password on the terminal.
        command.arg("--no-password");
        command.env("PGPASSWORD", password).env("PGCONNECT_TIMEOUT", "10");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut psql = command.spawn().map_err(|error| format!("cannot start psql: {error}"))?;
        // If psql has ended already, its output says why.
        let _ = psql.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        let output = (reader(psql.stdout.take()), reader(psql.stderr.take()));
        let began = Instant::now();
        let why = loop {
            match psql.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(text_of(output.0)),
                Ok(Some(_)) => return Err(text_of(output.1)),
                Ok(None) if self.stop.load(Ordering::Relaxed) => break "interrupted".to_owned(),
                Ok(None) if began.elapsed() > SQL_LIMIT => {
                    break format!("psql did not end within {} s", SQL_LIMIT.as_secs());
                }
                Ok(None) => thread::sleep(SQL_LOOK),
                Err(error) => break format!("cannot wait for psql: {error}"),
            }
        };
        let _ = psql.kill();
        let _ = psql.wait();
        Err(why)
    }
}

/// Reads the output of a program in another thread, so that the program never waits for a reader.
fn reader(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.map(|mut from| from.read_to_end(&mut bytes));
        bytes
    })
}

fn text_of(reader: thread::JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).trim().to_owned()
}

/// The SQL that `psql` runs.
enum Sql<'a> {
    File(&'a str),
    Text(&'a str),
}

/// The folders, the user and the supervisor for PostgreSQL's programs.
struct Place<'a> {
    setting: &'a DatabaseSetting,
    owner: Owner,
    folder: &'a Path,
    logs: &'a Path,
    supervisor: &'a Supervisor,
}

impl Place<'_> {
    /// Creates the cluster: its files, and the superuser.
    fn make_cluster(&self, stop: &AtomicBool) -> Result<(), ServerFailure> {
        let mut initdb = self.spawn(
            "initdb",
            &[
                format!("--pgdata={}", self.data()),
                format!("--username={}", Cluster::SUPERUSER),
                "--auth=scram-sha-256".to_owned(),
                format!("--pwfile={}", self.folder.join(PASSWORD).display()),
                "--encoding=UTF8".to_owned(),
                "--locale=C".to_owned(),
                "--no-sync".to_owned(),
            ],
        )?;
        match end_of_initdb(&mut initdb, stop)? {
            ProcessExit::Code(0) => {
                initdb.stop(GRACE);
                Ok(())
            }
            exit => Err(printed(&initdb, format!("initdb {exit}"))),
        }
    }

    /// Starts PostgreSQL on a port of the loopback interface, with a socket in PostgreSQL's folder.
    fn serve(&self, port: u16) -> Result<Process, ServerFailure> {
        let folder = self.folder.display().to_string();
        let mut arguments =
            vec![format!("--port={port}"), "-D".to_owned(), self.data(), "-k".to_owned(), folder];
        let counts = self.setting.schema == Schema::Contracts;
        let most = most_connections(self.setting.servers).to_string();
        let of_the_run = [("listen_addresses", "127.0.0.1"), ("max_connections", &most)];
        let settings = SETTINGS.iter().chain(&of_the_run);
        let settings = settings.chain(COUNTING.iter().filter(|_| counts));
        arguments.extend(settings.map(|(name, value)| format!("--{name}={value}")));
        self.spawn("postgres", &arguments)
    }

    fn data(&self) -> String {
        self.folder.join("data").display().to_string()
    }

    fn spawn(&self, program: &str, arguments: &[String]) -> Result<Process, ServerFailure> {
        let program = self.setting.programs.path(program).display().to_string();
        let process = ProcessSetting {
            argv: self.owner.command(program, arguments),
            env: BTreeMap::from([("LC_ALL".to_owned(), "C".to_owned())]),
            cwd: self.folder.to_owned(),
            cpus: self.setting.cores.clone(),
            log: self.logs.join(folder::LOG),
        };
        let supervisor = self.supervisor.clone().without(&inherited());
        Process::start(&process, &supervisor).map_err(|e| failure(e.to_string(), ""))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        match self.process.take() {
            Some(process) => drop(process.stop(GRACE)),
            None if !self.has_databases => {}
            None => {
                // An interrupt must not stop psql before the run's databases are dropped.
                self.stop = Arc::default();
                self.drop_own();
            }
        }
    }
}

/// Waits until `initdb` ends, for at most [`START_LIMIT`].
fn end_of_initdb(initdb: &mut Process, stop: &AtomicBool) -> Result<ProcessExit, ServerFailure> {
    let began = Instant::now();
    loop {
        match initdb.wait(LOOK) {
            Some(exit) => return Ok(exit),
            None if stop.load(Ordering::Relaxed) => return Err(interrupted()),
            None if began.elapsed() > START_LIMIT => {
                let cause = format!("initdb did not end within {} s", START_LIMIT.as_secs());
                return Err(printed(initdb, cause));
            }
            None => {}
        }
    }
}

/// Returns an SQL identifier for this name.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns 128 random bits as text that needs no escaping in SQL, in a URL or in a path.
fn random_text() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn failure(cause: String, remedy: &str) -> ServerFailure {
    ServerFailure {
        phase: "database".to_owned(),
        cause,
        log_tail: Vec::new(),
        remedy: remedy.to_owned(),
    }
}

fn interrupted() -> ServerFailure {
    failure("interrupted".to_owned(), "")
}

/// Returns a failure with the last lines that the process printed.
fn printed(process: &Process, cause: String) -> ServerFailure {
    const LINES: usize = 12;
    let log_tail = process.tail(LINES);
    let lacks_counting = log_tail.iter().any(|line| line.contains("pg_stat_statements"));
    let remedy = match lacks_counting {
        true => "install the package postgresql-contrib of the same version",
        false => "",
    };
    ServerFailure { log_tail, ..failure(cause, remedy) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the number of connections was fixed, although each server has a pool, whose size
    /// grows with the number of cores.
    #[test]
    fn there_are_connections_for_the_pools_of_all_servers() {
        assert!(most_connections(1) >= 400);
        for servers in [24, 100] {
            assert!(most_connections(servers) > servers * (pool_size() + 1));
        }
    }
}
