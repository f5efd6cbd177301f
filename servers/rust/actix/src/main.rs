//! actix-web: workers that each have a single-threaded runtime of their own.

use std::env;

use actix_web::{App, HttpResponse, HttpServer, Responder, route};

#[route("/", method = "GET", method = "HEAD")]
async fn hello() -> impl Responder {
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body("Hello, World!")
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let number = |name| env::var(name).ok().and_then(|value| value.parse::<u16>().ok());
    let port = number("PORT").expect("PORT is not set to a port number");
    HttpServer::new(|| App::new().service(hello))
        .workers(number("CPUS").unwrap_or(1).into())
        .shutdown_timeout(1)
        .bind_auto_h2c(("127.0.0.1", port))?
        .run()
        .await
}
