//! actix-web: workers that each have a single-threaded runtime of their own.

use std::env;

use actix_web::{App, HttpResponse, HttpServer, Responder, route};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

#[route("/", method = "GET", method = "HEAD")]
async fn hello() -> impl Responder {
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body("Hello, World!")
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let number = |name| env::var(name).ok().and_then(|value| value.parse::<u16>().ok());
    let host = env::var("HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let address = (host.as_str(), number("PORT").expect("PORT is not set to a port number"));
    let server = HttpServer::new(|| App::new().service(hello))
        .workers(number("CPUS").unwrap_or(1).into())
        .shutdown_timeout(1);
    let server = match env::var("TLS_CERT") {
        Ok(certificate) => server.bind_rustls_0_23(address, tls(&certificate))?,
        Err(_) => server.bind_auto_h2c(address)?,
    };
    server.run().await
}

/// Returns a configuration without ALPN protocols, because actix-web adds its own.
fn tls(certificate: &str) -> ServerConfig {
    let chain = CertificateDer::pem_file_iter(certificate).expect("TLS_CERT cannot be read");
    let chain = chain.collect::<Result<_, _>>().expect("TLS_CERT is not a certificate");
    let key = env::var("TLS_KEY").expect("TLS_KEY is not set");
    let key = PrivateKeyDer::from_pem_file(key).expect("TLS_KEY is not a private key");
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    config.expect("TLS_KEY is not the key of TLS_CERT")
}
