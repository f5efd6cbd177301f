//! The PostgreSQL that hotlap starts for servers, and ends.

use hotlap_servers::database::Programs;
use hotlap_testkit::{Scene, program};

const SCHEMA: &str = "
    CREATE TABLE indexed (k int PRIMARY KEY, v int);
    CREATE TABLE bare (k int, v int);
    INSERT INTO indexed SELECT n, n FROM generate_series(1, 3000) n;
    INSERT INTO bare SELECT * FROM indexed;";

/// A folder with a schema. Without PostgreSQL, prints that the test is skipped: `None`.
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

/// A server that looks up a row for each response.
fn asking(how: &str) -> String {
    format!("{} __lookup '3000 {how}'", program())
}

/// A missing index shows in the database's CPU time, and not in the server's.
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

/// Each start of a server has a fresh copy, and `--prepare` finds it too.
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
    scene.hotlap(run).args(["--prepare", &prepare, &server, &server]).said().measured();
    let counts = scene.read("counts");
    // Two servers and the control, in two restarts.
    assert_eq!(counts, "3000\n".repeat(6));
}

#[test]
fn what_is_missing_or_wrong_is_named_with_the_remedy() {
    let Some(scene) = scene() else { return };
    let run = |words: &str| scene.hotlap(&format!("run --no-store {words} 'sleep 9'")).said();
    run("--with-postgres none.sql").fails(2).has("--with-postgres: none.sql: No such file");
    run("--with-postgres schema.sql --postgres .").fails(2).has(". lacks initdb, postgres or psql");
    scene.write("wrong.sql", "CREATE TABLE a (b int);\nCREATE TABLE c (d nothing);\n");
    run("--with-postgres wrong.sql")
        .fails(1)
        .has("database: wrong.sql:2: ERROR: type \"nothing\" does not exist")
        .has("correct the SQL");
    scene.is_clean();
}
