//! hyper 1: one thread a core, each with its own runtime, listener and connections.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::{env, io, thread};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpSocket;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

fn main() -> io::Result<()> {
    let number = |name| env::var(name).ok().and_then(|value| value.parse::<u16>().ok());
    let port = number("PORT").expect("PORT is not set to a port number");
    for _ in 1..number("CPUS").unwrap_or(1) {
        thread::spawn(move || serve(port));
    }
    serve(port)
}

/// Serves what the kernel deals out to this thread's listener.
fn serve(port: u16) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
        let listener = socket.listen(1024)?;
        // HTTP/1.1 or HTTP/2, by the first bytes of a connection.
        let mut server = auto::Builder::new(TokioExecutor::new());
        server.http1().timer(TokioTimer::new());
        server.http2().timer(TokioTimer::new());
        let server = Rc::new(server);
        loop {
            // Accepting fails when descriptors run out, and works again when some are given back.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::task::yield_now().await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let server = Rc::clone(&server);
            tokio::task::spawn_local(async move {
                // A client that breaks off is the client's business.
                let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
        }
    })
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
