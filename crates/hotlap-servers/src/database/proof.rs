//! Proves that a server queries its database as its contracts demand. The statements of a few
//! requests are counted, and what they changed is read back.
//!
//! Responses cannot show what a server asks its database. A server may respond from a cache, or
//! read 20 rows with one statement. TechEmpower's benchmarks counted statements for the same
//! reason.

use std::ops::RangeInclusive;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use hotlap_load::plan::Target;

use super::Database;
use crate::contract::{Contract, Exchange, Name};
use crate::launch::ServerFailure;
use crate::verify::{Check, LIMIT, ask};

/// The number of requests whose statements are counted.
const REQUESTS: u64 = 10;

/// How often the requests are repeated until a server with its rows in memory executes no
/// statement. Each of its processes may read the rows once.
const ROUNDS: u32 = 4;

/// How long PostgreSQL may take to tell its processes about a new setting.
const TOLD: Duration = Duration::from_millis(200);

/// Returns the fewest and the most statements for a request of a contract.
fn statements(name: Name) -> RangeInclusive<u64> {
    match name {
        Name::Queries => 20..=u64::MAX,
        // Each row is read separately, but one statement may change all rows.
        Name::Updates => 21..=u64::MAX,
        Name::Cached => 0..=0,
        _ => 1..=u64::MAX,
    }
}

/// What was found out about the statements of a server.
#[derive(Debug, Clone, Default)]
pub struct Proof {
    /// The checks that the server's contracts require.
    pub checks: Vec<Check>,
    /// The number of statements per request, for each request of the contracts. `None` if no
    /// statements were counted.
    pub statements: Vec<Option<f64>>,
}

/// Counts statements and reads back changes, for the server with the number `server`. Contracts
/// without a database are not checked.
pub(crate) fn prove(
    database: &Database,
    server: usize,
    names: &[Name],
    at: (&Target, &str),
    stop: &AtomicBool,
) -> Proof {
    let mut proof = Proof::default();
    for name in names {
        let first = match name.needs_database() {
            true => prove_one(&mut proof.checks, (database, server), *name, at, stop),
            false => None,
        };
        let others = Contract::of(*name, None).exchanges.len().saturating_sub(1);
        proof.statements.push(first);
        proof.statements.resize(proof.statements.len() + others, None);
    }
    proof
}

/// Adds the checks of one contract. Returns the number of statements per request.
fn prove_one(
    checks: &mut Vec<Check>,
    (database, server): (&Database, usize),
    name: Name,
    (target, host): (&Target, &str),
    stop: &AtomicBool,
) -> Option<f64> {
    let contract = Contract::of(name, None);
    let right = statements(name);
    let expected = match right.start() {
        0 => "none once the rows are in memory".to_owned(),
        1 => "at least 1 statement for each request".to_owned(),
        n => format!("at least {n} statements for each request"),
    };
    let mut last = None;
    let mut count = || {
        counted(database, server, || {
            for number in 1..=REQUESTS {
                let exchange = contract.with_values(number).exchanges.swap_remove(0);
                ask(target, host, LIMIT, &exchange, stop)?;
                last = Some(exchange);
            }
            Ok(())
        })
    };
    let all = right.start() * REQUESTS..=right.end().saturating_mul(REQUESTS);
    let mut counted = count();
    for _ in 1..ROUNDS {
        if counted.as_ref().is_ok_and(|statements| statements > all.end()) {
            counted = count();
        }
    }
    let check = |name: &str, expected: String, outcome: Result<(), String>| Check {
        name: name.to_owned(),
        expected,
        pass: outcome.is_ok(),
        got: outcome.err().unwrap_or_default(),
    };
    let per_request = counted.as_ref().ok().map(|statements| *statements as f64 / REQUESTS as f64);
    let statements = counted.and_then(|statements| match all.contains(&statements) {
        true => Ok(()),
        false => Err(format!("{statements} for {REQUESTS} requests")),
    });
    checks.push(check("statements", expected, statements));
    if let (Name::Updates, Some(last)) = (name, last) {
        let kept = kept(database, server, &last);
        let expected = "rows with the numbers of the response".to_owned();
        checks.push(check("changes", expected, kept));
    }
    per_request
}

/// Counts the statements that a server executes while `requests` runs.
fn counted(
    database: &Database,
    server: usize,
    requests: impl FnOnce() -> Result<(), String>,
) -> Result<u64, String> {
    let sql = |statement: &str| database.sql(statement).map_err(|failure| failure.cause);
    let track = |what: &str| {
        sql(&format!("ALTER SYSTEM SET pg_stat_statements.track = '{what}'"))?;
        sql("SELECT pg_reload_conf()")?;
        thread::sleep(TOLD);
        Ok::<(), String>(())
    };
    let _alone = database.counting.lock().unwrap_or_else(PoisonError::into_inner);
    track("top")?;
    sql("SELECT pg_stat_statements_reset()")?;
    let asked = requests();
    let count = sql(&format!(
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements JOIN pg_database ON oid = dbid \
         WHERE datname = '{}'",
        Database::name(server)
    ));
    track("none")?;
    asked?;
    count?.parse().map_err(|_| "PostgreSQL did not count them".to_owned())
}

/// Checks that the rows of a request have the numbers that the request brought.
fn kept(database: &Database, server: usize, request: &Exchange) -> Result<(), String> {
    let list = |name: &str| {
        let (_, rest) = request.path.split_once(&format!("{name}="))?;
        Some(rest.split('&').next().unwrap_or(rest).to_owned())
    };
    let (ids, numbers) = list("ids").zip(list("numbers")).unwrap_or_default();
    let count = database.sql_of(
        server,
        &format!(
            "SELECT count(*) FROM unnest(array[{ids}], array[{numbers}]) AS new(id, number) \
             JOIN world USING (id, number)"
        ),
    );
    let count = count.map_err(|failure: ServerFailure| failure.cause)?;
    let all = ids.split(',').count();
    match count.parse() == Ok(all) {
        true => Ok(()),
        false => Err(format!("{count} of {all} rows")),
    }
}
