//! Proves that a server queries its database as its contract demands. The statements of some
//! requests are counted, and the rows that the requests changed are read back. The requests arrive
//! on as many connections as the server may open to its database. A server that fulfils its
//! contract for one client may still mix up or lose the work of several clients.
//!
//! Responses cannot show what a server asks its database. A server may respond from a cache, or
//! read 20 rows with one statement.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hotlap_load::plan::{Plan, Request, Shape, Stop, Target};
use hotlap_load::{Outcome, Session};
use serde::{Deserialize, Serialize};

use super::{Database, SQL_LOOK, pool_size};
use crate::contract::{Contract, Exchange, Fields, Name};
use crate::launch::ServerFailure;
use crate::verify::Check;

/// The number of requests whose statements are counted.
const REQUESTS: u64 = 100;

/// The number of the first counted request. The uncounted requests that are sent before it have
/// lower numbers.
const FIRST: u64 = REQUESTS;

/// The time limit for one of these requests. Their speed is measured later.
const LIMIT: Duration = Duration::from_secs(10);

/// The maximum number of counts. A server that keeps its rows in memory is counted again while it
/// executes statements, because each of its processes may read the rows once.
const ROUNDS: u32 = 4;

/// The minimum percentage of changed rows that must have a number from one of the requests.
const KEPT: usize = 95;

/// How long to wait for PostgreSQL to tell its processes about a new setting.
const TOLD: Duration = Duration::from_millis(200);

/// What a request makes a database do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DatabaseWork {
    /// The number of statements per request.
    pub statements: f64,
    /// The voluntary context switches of the database's processes per request. Each wait for the
    /// server is one switch. Statements that are sent together take one round trip. `None` if the
    /// system does not count context switches.
    pub round_trips: Option<f64>,
}

/// What was found out about the statements of a server.
#[derive(Debug, Clone, Default)]
pub struct Proof {
    /// The checks that the server's contracts require.
    pub checks: Vec<Check>,
    /// The work of each request of the contracts. `None` if no statements were counted.
    pub work: Vec<Option<DatabaseWork>>,
}

/// A stretch in which the statements of one server are counted. The statements of other servers
/// cannot be counted until this stretch ends.
struct Counting<'a> {
    database: &'a Database,
    /// Whether counting could be switched on.
    begun: Result<(), String>,
    _alone: MutexGuard<'a, ()>,
}

impl<'a> Counting<'a> {
    fn begin(database: &'a Database) -> Self {
        let _alone = database.counting.lock().unwrap_or_else(PoisonError::into_inner);
        Self { database, begun: track(database, "top"), _alone }
    }

    /// Switches counting off. Under load, counting would add to the database's CPU time.
    fn end(self) -> Result<(), String> {
        track(self.database, "none")
    }
}

fn check(name: &str, expected: String, outcome: Result<(), String>) -> Check {
    let (name, pass) = (name.to_owned(), outcome.is_ok());
    Check { name, expected, pass, got: outcome.err().unwrap_or_default() }
}

/// Sets which statements are counted, `top` or `none`. Then gives PostgreSQL's processes time to
/// learn the setting.
fn track(database: &Database, what: &str) -> Result<(), String> {
    let set = format!("ALTER SYSTEM SET pg_stat_statements.track = '{what}'");
    for statement in [&set, "SELECT pg_reload_conf()"] {
        database.sql(statement).map_err(|failure| failure.cause)?;
    }
    thread::sleep(TOLD);
    Ok(())
}

/// A server whose statements are counted.
pub(crate) struct Prover<'a> {
    pub(crate) database: &'a Database,
    /// The number of the server, which is part of the name of its database.
    pub(crate) server: usize,
    pub(crate) target: &'a Target,
    pub(crate) stop: &'a AtomicBool,
}

impl Prover<'_> {
    /// Counts statements and reads back changes. `requests` are the requests of the contract, with
    /// their verified responses. Contracts without a database are not checked.
    pub(crate) fn prove(&self, contract: &Contract, requests: &[Request]) -> Proof {
        let mut proof = Proof::default();
        let needs_database = contract.names.iter().any(|name| name.needs_database());
        let counting = needs_database.then(|| Counting::begin(self.database));
        let asks = contract.exchanges.iter().zip(requests).zip(contract.name_of_each());
        for ((exchange, request), name) in asks {
            let load = (exchange, request, &contract.fields);
            let counting = counting.as_ref().filter(|_| name.needs_database());
            proof.work.push(
                counting
                    .and_then(|counting| self.prove_one(&mut proof.checks, counting, name, load)),
            );
        }
        if let Some(Err(why)) = counting.map(Counting::end) {
            let expected = "no statement is counted under load".to_owned();
            proof.checks.push(check("statements", expected, Err(why)));
        }
        proof
    }

    /// Adds the checks of one request of a contract. Returns the work of the request.
    fn prove_one(
        &self,
        checks: &mut Vec<Check>,
        counting: &Counting,
        name: Name,
        (exchange, request, fields): (&Exchange, &Request, &Fields),
    ) -> Option<DatabaseWork> {
        let right = name.statements();
        let expected = match right.start() {
            0 => "none once the rows are in memory".to_owned(),
            1 => "at least 1 statement for each request".to_owned(),
            n => format!("at least {n} statements for each request"),
        };
        let plan = Plan {
            fields: fields.list.clone(),
            seed: fields.seed,
            unique: fields.unique,
            first_value: FIRST,
            shape: Shape { connections: pool_size(), ..Shape::default() },
            stop: Stop::Requests(REQUESTS),
            timeout: LIMIT,
            ..Plan::new(self.target.clone(), request.clone())
        };
        let all = right.start() * REQUESTS..=right.end().saturating_mul(REQUESTS);
        // The first requests may make the server open its connections and read rows into memory.
        let ready = self.load(&Plan { first_value: 0, ..plan.clone() });
        let mut counted = ready.and_then(|()| self.counted(counting, &plan));
        for _ in 1..ROUNDS {
            if counted.as_ref().is_ok_and(|(statements, _)| statements > all.end()) {
                counted = self.counted(counting, &plan);
            }
        }
        let per_request = |count: u64| count as f64 / REQUESTS as f64;
        let work = counted.as_ref().ok().map(|(statements, waits)| DatabaseWork {
            statements: per_request(*statements),
            round_trips: waits.map(per_request),
        });
        let statements = counted.and_then(|(statements, _)| match all.contains(&statements) {
            true => Ok(()),
            false => Err(format!("{statements} for {REQUESTS} requests")),
        });
        checks.push(check("statements", expected, statements));
        if name == Name::Updates {
            let expected =
                format!("a number from a request in at least {KEPT}% of the changed rows");
            checks.push(check("changes", expected, self.kept(exchange, fields)));
        }
        work
    }

    /// Counts the statements that a server executes for the requests of a plan, and how often the
    /// database waited for the server meanwhile.
    fn counted(&self, counting: &Counting, plan: &Plan) -> Result<(u64, Option<u64>), String> {
        counting.begun.clone()?;
        let sql = |statement: &str| self.database.sql(statement).map_err(|failure| failure.cause);
        sql("SELECT pg_stat_statements_reset()")?;
        let mut sampler = self.database.sampler();
        let mut waits = || Some(sampler.as_mut()?.switches().ok()?.voluntary);
        let before = waits();
        self.load(plan)?;
        let waited = waits().zip(before).map(|(after, before)| after.saturating_sub(before));
        let count = sql(&format!(
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements JOIN pg_database ON oid = dbid \
             WHERE datname = '{}'",
            self.database.cluster.name(self.server)
        ));
        let count =
            count?.parse().map_err(|_| "PostgreSQL did not count the statements".to_owned())?;
        Ok((count, waited))
    }

    /// Sends the requests of a plan. Returns an error unless each request gets a correct response.
    fn load(&self, plan: &Plan) -> Result<(), String> {
        let session = Session::start(plan).map_err(|error| error.to_string())?;
        while !session.is_finished() {
            if self.stop.load(Ordering::Relaxed) {
                session.stop();
            }
            thread::sleep(SQL_LOOK);
        }
        let Outcome { totals, failures, first_wrong, .. } =
            session.join().map_err(|error| error.to_string())?;
        if totals.responses >= REQUESTS {
            return Ok(());
        }
        let why = match (first_wrong, failures.most()) {
            (Some(wrong), _) => wrong.why,
            (None, Some(failure)) => failure.to_string(),
            (None, None) => "interrupted".to_owned(),
        };
        let (right, connections) = (totals.responses, plan.shape.connections);
        Err(format!(
            "{right} of {REQUESTS} correct responses over {connections} connections: {why}"
        ))
    }

    /// Checks that enough of the changed rows have a number that a request sent. If several
    /// requests changed a row, any of their numbers is right.
    fn kept(&self, exchange: &Exchange, fields: &Fields) -> Result<(), String> {
        let mut changes = BTreeSet::new();
        for number in FIRST..FIRST + REQUESTS {
            let path = exchange.with_values(fields, number).path;
            changes.extend(listed(&path, "ids").zip(listed(&path, "numbers")));
        }
        let rows: Vec<String> =
            changes.iter().map(|(id, number)| format!("({id},{number})")).collect();
        let all = changes.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len();
        let count = self.database.sql_of(
            self.server,
            &format!(
                "SELECT count(*) FROM (VALUES {}) AS new(id, number) JOIN world USING (id, number)",
                rows.join(",")
            ),
        );
        let count = count.map_err(|failure: ServerFailure| failure.cause)?;
        match count.parse().is_ok_and(|count: usize| count * 100 >= all * KEPT) {
            true => Ok(()),
            false => Err(format!("{count} of {all} rows")),
        }
    }
}

/// Returns the integers of a list in the query of a path.
fn listed(path: &str, name: &str) -> impl Iterator<Item = u64> {
    let lists = path.split(['?', '&']).filter_map(move |part| part.split_once('='));
    let list = lists.filter(move |(own, _)| *own == name).map(|(_, list)| list).next();
    let numbers: Vec<u64> =
        list.unwrap_or_default().split(',').filter_map(|number| number.parse().ok()).collect();
    numbers.into_iter()
}
