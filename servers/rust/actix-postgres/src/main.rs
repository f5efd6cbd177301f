//! actix-web with tokio-postgres: a pool for all workers, whose connections prepare each statement
//! once.

use std::env;
use std::time::Duration;

use actix_web::error::{ErrorBadRequest, ErrorInternalServerError, ErrorNotFound};
use actix_web::rt::time::sleep;
use actix_web::web::{Bytes, Data, Html, Json, PayloadConfig, Query};
use actix_web::{App, HttpServer, Result, get, post};
use askama::Template;
use deadpool_postgres::{Client, Manager, Pool};
use serde::{Deserialize, Serialize};
use tokio_postgres::NoTls;

/// The longest body that is read.
const MOST_BYTES: usize = 16 << 20;

#[derive(Clone, Serialize)]
struct World {
    id: i32,
    number: i32,
}

#[derive(Template)]
#[template(path = "fortunes.html")]
struct Page {
    fortunes: Vec<(i32, String)>,
}

#[derive(Serialize)]
struct Greeting {
    message: String,
}

#[derive(Serialize)]
struct Uploaded {
    bytes: usize,
    crc32: String,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
struct Delay {
    ms: u64,
}

/// The parameters of all requests.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Parameters {
    id: i32,
    ids: String,
    numbers: String,
    name: String,
    text: String,
}

fn numbers(text: &str) -> Result<Vec<i32>> {
    text.split(',').map(str::parse).collect::<Result<_, _>>().map_err(ErrorBadRequest)
}

async fn client(pool: &Pool) -> Result<Client> {
    pool.get().await.map_err(ErrorInternalServerError)
}

async fn row(client: &Client, id: i32) -> Result<World> {
    let sql = "SELECT number FROM world WHERE id = $1";
    let statement = client.prepare_cached(sql).await.map_err(ErrorInternalServerError)?;
    let row = client.query_one(&statement, &[&id]).await.map_err(ErrorInternalServerError)?;
    Ok(World { id, number: row.get(0) })
}

async fn rows(client: &Client, ids: &str) -> Result<Vec<World>> {
    let mut worlds = Vec::new();
    for id in numbers(ids)? {
        worlds.push(row(client, id).await?);
    }
    Ok(worlds)
}

#[get("/json")]
async fn json(parameters: Query<Parameters>) -> Json<Greeting> {
    Json(Greeting { message: format!("Hello, {}!", parameters.name) })
}

#[get("/db")]
async fn db(pool: Data<Pool>, parameters: Query<Parameters>) -> Result<Json<World>> {
    row(&client(&pool).await?, parameters.id).await.map(Json)
}

#[get("/queries")]
async fn queries(pool: Data<Pool>, parameters: Query<Parameters>) -> Result<Json<Vec<World>>> {
    rows(&client(&pool).await?, &parameters.ids).await.map(Json)
}

#[post("/updates")]
async fn updates(pool: Data<Pool>, parameters: Query<Parameters>) -> Result<Json<Vec<World>>> {
    let client = client(&pool).await?;
    let mut worlds = rows(&client, &parameters.ids).await?;
    let changed = numbers(&parameters.numbers)?;
    worlds.iter_mut().zip(&changed).for_each(|(world, number)| world.number = *number);
    let ids: Vec<i32> = worlds.iter().map(|world| world.id).collect();
    let sql = "UPDATE world SET number = new.number \
               FROM unnest($1::int[], $2::int[]) AS new(id, number) WHERE world.id = new.id";
    let statement = client.prepare_cached(sql).await.map_err(ErrorInternalServerError)?;
    client.execute(&statement, &[&ids, &changed]).await.map_err(ErrorInternalServerError)?;
    Ok(Json(worlds))
}

#[get("/fortunes")]
async fn fortunes(pool: Data<Pool>, parameters: Query<Parameters>) -> Result<Html> {
    let client = client(&pool).await?;
    let sql = "SELECT id, message FROM fortune";
    let statement = client.prepare_cached(sql).await.map_err(ErrorInternalServerError)?;
    let rows = client.query(&statement, &[]).await.map_err(ErrorInternalServerError)?;
    let mut fortunes: Vec<_> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    fortunes.push((0, format!("Brought by the request: {}", parameters.text)));
    fortunes.sort_by(|(_, a): &(i32, String), (_, b)| a.cmp(b));
    Page { fortunes }.render().map(Html::new).map_err(ErrorInternalServerError)
}

#[get("/cached")]
async fn cached(all: Data<Vec<World>>, parameters: Query<Parameters>) -> Result<Json<Vec<World>>> {
    let world = |id: i32| all.get(usize::try_from(id - 1).ok()?).cloned();
    let found = |id: i32| world(id).ok_or_else(|| ErrorNotFound("no such row"));
    numbers(&parameters.ids)?.into_iter().map(found).collect::<Result<_>>().map(Json)
}

#[post("/upload")]
async fn upload(body: Bytes) -> Json<Uploaded> {
    Json(Uploaded { bytes: body.len(), crc32: format!("{:08x}", crc32fast::hash(&body)) })
}

#[get("/delay")]
async fn delay(delay: Query<Delay>) -> Json<Delay> {
    sleep(Duration::from_millis(delay.ms)).await;
    Json(delay.into_inner())
}

/// Returns all rows, in the order of their ids.
async fn all(pool: &Pool) -> Result<Vec<World>> {
    let sql = "SELECT id, number FROM world ORDER BY id";
    let rows = client(pool).await?.query(sql, &[]).await.map_err(ErrorInternalServerError)?;
    Ok(rows.iter().map(|row| World { id: row.get(0), number: row.get(1) }).collect())
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let setting = |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let number = |name: &str| env::var(name).ok().and_then(|value| value.parse::<u16>().ok());
    let config = setting("DATABASE_URL").parse().expect("DATABASE_URL is not a URL");
    let size = number("POOL_SIZE").unwrap_or(16).into();
    let pool = Pool::builder(Manager::new(config, NoTls)).max_size(size).build().expect("a pool");
    let kept = Data::new(all(&pool).await.expect("the rows"));
    let pool = Data::new(pool);
    let app = move || {
        let app = App::new().app_data(pool.clone()).app_data(kept.clone());
        let app = app.app_data(PayloadConfig::new(MOST_BYTES));
        app.service((json, db, queries, updates, fortunes, cached, upload, delay))
    };
    HttpServer::new(app)
        .workers(number("CPUS").unwrap_or(1).into())
        .shutdown_timeout(1)
        .bind((setting("HOST"), number("PORT").expect("PORT is not a port number")))?
        .run()
        .await
}
