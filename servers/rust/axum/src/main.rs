//! axum: a router on hyper and tokio, as its documentation begins.

use std::{env, io};

use axum::serve::ListenerExt;
use axum::{Router, routing::get};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> io::Result<()> {
    let port = env::var("PORT").expect("PORT is not set");
    let app = Router::new().route("/", get(|| async { "Hello, World!" }));
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await
}
