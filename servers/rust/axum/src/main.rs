//! axum: a router on hyper and tokio, as at the beginning of its documentation. axum-server
//! provides TLS.

use std::net::{IpAddr, SocketAddr};
use std::{env, io};

use axum::serve::ListenerExt;
use axum::{Router, routing::get};
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::RustlsConfig;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> io::Result<()> {
    let host = env::var("HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let host = host.parse::<IpAddr>().expect("HOST is not an address");
    let port = env::var("PORT").ok().and_then(|value| value.parse().ok());
    let address = SocketAddr::new(host, port.expect("PORT is not set to a port number"));
    let app = Router::new().route("/", get(|| async { "Hello, World!" }));
    if let (Ok(certificate), Ok(key)) = (env::var("TLS_CERT"), env::var("TLS_KEY")) {
        let config = RustlsConfig::from_pem_file(certificate, key).await?;
        return axum_server::bind_rustls(address, config)
            .map(|tls| tls.acceptor(NoDelayAcceptor::new()))
            .serve(app.into_make_service())
            .await;
    }
    let listener = TcpListener::bind(address).await?.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await
}
