//! hyper 1: one thread for each core, each with its own runtime, listener and connections.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::{env, io, thread};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

type Server = Rc<auto::Builder<TokioExecutor>>;

fn main() -> io::Result<()> {
    let variable = |name| env::var(name).unwrap_or_default();
    let host = variable("HOST").parse().expect("HOST is not set to an address");
    let port = variable("PORT").parse().expect("PORT is not set to a port number");
    let address = SocketAddr::new(host, port);
    let tls = env::var("TLS_CERT").ok().map(|certificate| tls(&certificate));
    for _ in 1..variable("CPUS").parse().unwrap_or(1) {
        let tls = tls.clone();
        thread::spawn(move || serve(address, tls));
    }
    serve(address, tls)
}

fn tls(certificate: &str) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(certificate).expect("TLS_CERT cannot be read");
    let chain = chain.collect::<Result<_, _>>().expect("TLS_CERT is not a certificate");
    let key = env::var("TLS_KEY").expect("TLS_KEY is not set");
    let key = PrivateKeyDer::from_pem_file(key).expect("TLS_KEY is not a private key");
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.expect("TLS_KEY is not the key of TLS_CERT");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Serves the connections that the kernel assigns to this thread's listener.
fn serve(address: SocketAddr, tls: Option<TlsAcceptor>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.bind(address)?;
        let listener = socket.listen(1024)?;
        // The first bytes of a connection decide between HTTP/1.1 and HTTP/2.
        let mut server = auto::Builder::new(TokioExecutor::new());
        server.http1().timer(TokioTimer::new());
        server.http2().timer(TokioTimer::new());
        let server = Server::new(server);
        loop {
            // Accepting fails when descriptors run out, and works again when a connection closes.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::task::yield_now().await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let server = Rc::clone(&server);
            match tls.clone() {
                None => tokio::task::spawn_local(serve_connection(server, stream)),
                Some(tls) => tokio::task::spawn_local(async move {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve_connection(server, stream).await;
                    }
                }),
            };
        }
    })
}

async fn serve_connection(server: Server, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
    // A client may disconnect at any time.
    let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/") => (StatusCode::OK, "Hello, World!"),
        (_, "/") => (StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
        _ => (StatusCode::NOT_FOUND, "Not Found"),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}
