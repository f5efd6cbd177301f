//! axum with tokio-postgres: statements that each connection of the pool prepares once.

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use deadpool_postgres::{Client, Manager, Pool};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
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

#[derive(Deserialize)]
struct One {
    id: i32,
}

#[derive(Deserialize)]
struct Many {
    ids: String,
    #[serde(default)]
    numbers: String,
}

#[derive(Deserialize)]
struct Brought {
    text: String,
}

#[derive(Deserialize)]
struct Greeted {
    name: String,
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

#[derive(Deserialize, Serialize)]
struct Delay {
    ms: u64,
}

type Failure = (StatusCode, String);

fn failed(error: impl ToString) -> Failure {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn numbers(text: &str) -> Result<Vec<i32>, Failure> {
    let wrong = |_| (StatusCode::BAD_REQUEST, "integers are needed".to_owned());
    text.split(',').map(str::parse).collect::<Result<_, _>>().map_err(wrong)
}

async fn row(client: &Client, id: i32) -> Result<World, Failure> {
    let sql = "SELECT number FROM world WHERE id = $1";
    let statement = client.prepare_cached(sql).await.map_err(failed)?;
    let row = client.query_one(&statement, &[&id]).await.map_err(failed)?;
    Ok(World { id, number: row.get(0) })
}

async fn rows(client: &Client, ids: &str) -> Result<Vec<World>, Failure> {
    let mut worlds = Vec::new();
    for id in numbers(ids)? {
        worlds.push(row(client, id).await?);
    }
    Ok(worlds)
}

async fn json(Query(greeted): Query<Greeted>) -> Json<Greeting> {
    Json(Greeting { message: format!("Hello, {}!", greeted.name) })
}

/// All rows, in the order of their ids.
async fn all(pool: &Pool) -> Result<Arc<[World]>, Failure> {
    let client = pool.get().await.map_err(failed)?;
    let sql = "SELECT id, number FROM world ORDER BY id";
    let rows = client.query(sql, &[]).await.map_err(failed)?;
    Ok(rows.iter().map(|row| World { id: row.get(0), number: row.get(1) }).collect())
}

async fn cached(
    State(all): State<Arc<[World]>>,
    Query(many): Query<Many>,
) -> Result<Json<Vec<World>>, Failure> {
    let unknown = || (StatusCode::NOT_FOUND, "no such row".to_owned());
    let world = |id: i32| all.get(usize::try_from(id - 1).ok()?).cloned();
    let worlds = numbers(&many.ids)?.into_iter().map(|id| world(id).ok_or_else(unknown));
    worlds.collect::<Result<_, _>>().map(Json)
}

async fn db(State(pool): State<Pool>, Query(one): Query<One>) -> Result<Json<World>, Failure> {
    let client = pool.get().await.map_err(failed)?;
    row(&client, one.id).await.map(Json)
}

async fn queries(
    State(pool): State<Pool>,
    Query(many): Query<Many>,
) -> Result<Json<Vec<World>>, Failure> {
    let client = pool.get().await.map_err(failed)?;
    rows(&client, &many.ids).await.map(Json)
}

async fn updates(
    State(pool): State<Pool>,
    Query(many): Query<Many>,
) -> Result<Json<Vec<World>>, Failure> {
    let client = pool.get().await.map_err(failed)?;
    let mut worlds = rows(&client, &many.ids).await?;
    let changed = numbers(&many.numbers)?;
    worlds.iter_mut().zip(&changed).for_each(|(world, number)| world.number = *number);
    let ids: Vec<i32> = worlds.iter().map(|world| world.id).collect();
    let sql = "UPDATE world SET number = new.number \
               FROM unnest($1::int[], $2::int[]) AS new(id, number) WHERE world.id = new.id";
    let statement = client.prepare_cached(sql).await.map_err(failed)?;
    client.execute(&statement, &[&ids, &changed]).await.map_err(failed)?;
    Ok(Json(worlds))
}

async fn fortunes(
    State(pool): State<Pool>,
    Query(brought): Query<Brought>,
) -> Result<Html<String>, Failure> {
    let client = pool.get().await.map_err(failed)?;
    let sql = "SELECT id, message FROM fortune";
    let statement = client.prepare_cached(sql).await.map_err(failed)?;
    let rows = client.query(&statement, &[]).await.map_err(failed)?;
    let mut fortunes: Vec<_> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    fortunes.push((0, format!("Brought by the request: {}", brought.text)));
    fortunes.sort_by(|(_, a): &(i32, String), (_, b)| a.cmp(b));
    Page { fortunes }.render().map(Html).map_err(failed)
}

async fn upload(body: Bytes) -> Json<Uploaded> {
    Json(Uploaded { bytes: body.len(), crc32: format!("{:08x}", crc32fast::hash(&body)) })
}

async fn wait(Query(delay): Query<Delay>) -> Json<Delay> {
    tokio::time::sleep(Duration::from_millis(delay.ms)).await;
    Json(delay)
}

#[tokio::main]
async fn main() {
    let setting = |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let config = setting("DATABASE_URL").parse().expect("DATABASE_URL is no URL");
    let size = env::var("POOL_SIZE").ok().and_then(|size| size.parse().ok()).unwrap_or(16);
    let manager = Manager::new(config, NoTls);
    let pool = Pool::builder(manager).max_size(size).build().expect("a pool");
    let kept = all(&pool).await.expect("the rows");
    let app = Router::new()
        .route("/json", get(json))
        .route("/delay", get(wait))
        .route("/upload", post(upload).layer(DefaultBodyLimit::max(MOST_BYTES)))
        .route("/db", get(db))
        .route("/queries", get(queries))
        .route("/updates", post(updates))
        .route("/fortunes", get(fortunes))
        .with_state(pool)
        .merge(Router::new().route("/cached", get(cached)).with_state(kept));
    let host: IpAddr = setting("HOST").parse().expect("HOST is not an address");
    let port = setting("PORT").parse().expect("PORT is not a port number");
    let listener = TcpListener::bind(SocketAddr::new(host, port)).await.expect("a socket");
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await.expect("an event loop");
}
