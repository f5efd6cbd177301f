//! A JSON API with axum and serde.

use std::{env, io};

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::TcpListener;

#[derive(Serialize)]
struct Results {
    results: [u32; 3],
}

#[derive(Deserialize, Serialize)]
struct Named {
    #[serde(default)]
    name: Value,
}

struct Refusal(StatusCode);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Said {
            error: &'static str,
        }
        let error = self.0.canonical_reason().unwrap_or_default();
        (self.0, Json(Said { error })).into_response()
    }
}

async fn list() -> Json<Results> {
    Json(Results { results: [1, 2, 3] })
}

/// Echoes the name in an object. serde would also accept a sequence, which is not an object.
async fn echo(body: Bytes) -> Result<Json<Named>, Refusal> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refusal(StatusCode::BAD_REQUEST));
    }
    serde_json::from_slice(&body).map(Json).map_err(|_| Refusal(StatusCode::BAD_REQUEST))
}

/// Refuses requests that declare a content type other than JSON.
async fn only_json(request: Request, next: Next) -> Response {
    if !is_json(request.headers()) {
        return Refusal(StatusCode::NOT_ACCEPTABLE).into_response();
    }
    next.run(request).await
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(said) = headers.get(CONTENT_TYPE) else { return true };
    let media = said.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default();
    media.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let host = env::var("HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let port = env::var("PORT").expect("PORT is not set");
    let app = Router::new()
        .route("/", get("Hello, World!"))
        .route("/bla", get(list).post(echo).layer(middleware::from_fn(only_json)))
        .method_not_allowed_fallback(|| async { Refusal(StatusCode::METHOD_NOT_ALLOWED) })
        .fallback(|| async { Refusal(StatusCode::NOT_FOUND) });
    let listener = TcpListener::bind(format!("{host}:{port}")).await?.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await
}
