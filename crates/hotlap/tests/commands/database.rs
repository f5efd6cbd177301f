//! Tests the PostgreSQL that hotlap starts for servers and stops afterwards.

use std::process::Command;

use hotlap_servers::database::{Database, DatabaseSetting, Programs, Schema};
use hotlap_servers::process::Supervisor;
use hotlap_testkit::{Scene, program};

const SCHEMA: &str = "
    CREATE TABLE indexed (k int PRIMARY KEY, v int);
    CREATE TABLE bare (k int, v int);
    INSERT INTO indexed SELECT n, n FROM generate_series(1, 3000) n;
    INSERT INTO bare SELECT * FROM indexed;";

/// Returns a folder with a schema. Without PostgreSQL, returns `None` and prints that the test is
/// skipped.
#[expect(clippy::print_stderr, reason = "a test that is skipped must say so")]
fn scene() -> Option<Scene> {
    if let Err(why) = Programs::find(None) {
        eprintln!("skipped: {why}");
        return None;
    }
    let scene = Scene::new();
    scene.write("schema.sql", SCHEMA);
    Some(scene)
}

/// Returns the command of a server that looks up a row for each response.
fn asking(how: &str) -> String {
    format!("{} __lookup '3000 {how}'", program())
}

/// A missing index shows in the database's CPU time and not in the server's CPU time.
#[test]
fn the_cost_of_a_missing_index_is_the_databases() {
    let Some(scene) = scene() else { return };
    let run = "run --with-postgres schema.sql --restarts 1 --rounds 2 --slice 12ms --no-store \
               --no-ceiling --export-json out.json --name indexed --name bare";
    let of = |table: &str| asking(&format!("SELECT v FROM {table} WHERE k = $1"));
    let said = scene.hotlap(run).args([of("indexed"), of("bare")]).said().measured();
    said.has("DB/req").has("PostgreSQL");
    let rows = &scene.json("out.json")["tables"][0]["rows"];
    let figure = |server: &str, figure: &str| {
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == server).unwrap();
        row[figure]["value"].as_f64().unwrap()
    };
    let [indexed, bare] = ["indexed", "bare"].map(|server| figure(server, "database_us"));
    assert!(bare > 3.0 * indexed, "{indexed} and {bare} µs");
    let sum = figure("bare", "cpu_us") + bare;
    assert!((figure("bare", "total_us") / sum - 1.0).abs() < 0.01);
    scene.is_clean();
}

/// Each start of a server gets a new copy of the database, which `--prepare` sees too.
#[test]
fn rows_of_one_start_are_not_in_the_next() {
    let Some(scene) = scene() else { return };
    let psql = Programs::find(None).unwrap().path("psql").display().to_string();
    let prepare = format!(
        "{psql} -qAtc 'SELECT count(*) FROM indexed' >> counts && \
         {psql} -qc 'INSERT INTO indexed VALUES (-1, -1)'"
    );
    let run = "run --with-postgres schema.sql --restarts 2 --rounds 1 --slice 12ms --no-store \
               --no-ceiling";
    let server = asking("SELECT v FROM indexed WHERE k = $1");
    let run = scene.hotlap(run).args(["--prepare", &prepare, &server, &server]);
    // Regression: the variable was inherited. With its value, psql refuses every connection.
    run.env("PGCHANNELBINDING", "require").said().measured();
    let counts = scene.read("counts");
    // Two servers and the control are each started three times: once to be verified, and once in
    // each restart.
    assert_eq!(counts, "3000\n".repeat(9));
}

/// In a PostgreSQL of the user, hotlap creates and removes only its own databases.
#[test]
fn a_postgres_of_the_user_is_left_as_it_was() {
    let Some(scene) = scene() else { return };
    let setting = DatabaseSetting {
        programs: Programs::find(None).unwrap(),
        schema: Schema::File(scene.path("schema.sql")),
        url: None,
        cores: Vec::new(),
        servers: 1,
    };
    let supervisor = Supervisor::new(program(), &["__supervisor"]);
    let logs = scene.path("");
    let theirs = Database::start(setting, &supervisor, &logs, Default::default()).unwrap();
    let variables = theirs.copy_for(0).unwrap();
    let url = variables[0].1.replace("//app:", "//hotlap:").replace("/server_0", "/postgres");
    let sql = |statement: &str| {
        let psql = Programs::find(None).unwrap().path("psql");
        let done = Command::new(psql).args(["-qAtX", &url, "-c", statement]).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    // A killed run left the first database behind. The second database is the user's.
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    sql("CREATE DATABASE hotlap_0123abcd_1");
    sql(&format!("COMMENT ON DATABASE hotlap_0123abcd_1 IS 'hotlap on {node}: /nowhere'"));
    sql("CREATE DATABASE hotlap_theirs");
    let run = "run --with-postgres schema.sql --restarts 1 --rounds 1 --slice 12ms --no-store \
               --no-ceiling";
    let server = asking("SELECT v FROM indexed WHERE k = $1");
    let said = scene.hotlap(run).args(["--database", &url, &server, &server]).said().measured();
    said.has("hotlap creates databases with schema.sql in the PostgreSQL at 127.0.0.1:")
        .has("DB/req");
    let all = sql("SELECT datname FROM pg_database ORDER BY 1");
    let expected = ["hotlap_theirs", "original", "postgres", "server_0", "template0", "template1"];
    assert_eq!(all.lines().collect::<Vec<_>>(), expected);
    let wrong = url.replace("//hotlap:", "//nobody:");
    let refused = scene.hotlap(run).args(["--database", &wrong, &server]).said();
    refused.fails(1).has("check the URL of --database");
}

#[test]
fn what_is_missing_or_wrong_is_named_with_the_remedy() {
    let Some(scene) = scene() else { return };
    let run = |words: &str| scene.hotlap(&format!("run --no-store {words} 'sleep 9'")).said();
    run("--with-postgres none.sql").fails(2).has("cannot read the SQL file none.sql: No such file");
    run("--with-postgres schema.sql --postgres .").fails(2).has(". lacks initdb, postgres or psql");
    scene.write("wrong.sql", "CREATE TABLE a (b int);\nCREATE TABLE c (d nothing);\n");
    run("--with-postgres wrong.sql")
        .fails(1)
        .has("database: wrong.sql:2: ERROR: type \"nothing\" does not exist")
        .has("correct the SQL");
    scene.is_clean();
}

/// Adds a server that fulfils a contract with a database, except for a cheat.
fn floor(scene: &Scene, contract: &str, cheat: &str) {
    let id = format!("test/{contract}-{cheat}");
    scene.server(&id, "probe = [\"true\"]", &[&program(), "__floor", cheat]);
    let file = format!("servers/{id}/server.toml");
    let manifest = scene.read(&file).replace("[\"hello\"]", &format!("[{contract:?}]"));
    scene.write(&file, manifest);
}

/// The check finds every way to save the work that a contract asks for.
#[test]
fn a_server_that_cheats_fails_the_check() {
    let Some(scene) = scene() else { return };
    let contracts =
        ["json", "db", "queries", "updates", "fortunes", "cached", "upload", "delay", "static"];
    contracts.iter().for_each(|contract| floor(&scene, contract, "none"));
    let cheats = [
        ("fortunes", "unescaped", "which is not escaped"),
        ("fortunes", "unsorted", "a page with"),
        ("db", "cached", "statements: expected at least 1 statement for each request"),
        ("queries", "onestatement", "statements: expected at least 20 statements"),
        ("updates", "unwritten", "statements: expected at least 21 statements"),
        ("updates", "tired", "statements: expected at least 21 statements"),
        ("updates", "lossy", "changes: expected a number from a request in at least 95% of"),
        ("cached", "uncached", "statements: expected none once the rows are in memory"),
        ("db", "greedy", "too many connections"),
        ("upload", "truncated", "crc32"),
        ("delay", "impatient", "a response after 0 ms"),
        ("static", "forgetful", "If-None-Match: expected 304"),
        ("static", "partless", "expected 206"),
        ("static", "uncompressed", "no Content-Encoding"),
    ];
    cheats.iter().for_each(|(contract, cheat, _)| floor(&scene, contract, cheat));
    let said = scene.hotlap("check test/*-none").said();
    assert_eq!(said.code, Some(0), "{said:?}");
    for (contract, cheat, why) in cheats {
        let said = scene.hotlap(&format!("check test/{contract}-{cheat}")).said();
        said.fails(3).has(why);
    }
}
