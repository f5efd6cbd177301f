//! hyper 0.10, the last synchronous version: a thread serves one connection until it closes.

extern crate hyper;

use std::{env, io};

use hyper::header::{Allow, ContentType};
use hyper::method::Method;
use hyper::server::{Request, Response, Server};
use hyper::status::StatusCode;
use hyper::uri::RequestUri;

fn main() {
    let number = |name| env::var(name).ok().and_then(|value| value.parse::<usize>().ok());
    let host = env::var("HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let port = number("PORT").expect("PORT is not set to a port number");
    // Each open connection occupies a thread, and further connections wait until one is closed.
    // Waiting threads cost only memory.
    let threads = 512 * number("CPUS").unwrap_or(1);
    Server::http((host.as_str(), port as u16))
        .and_then(|server| server.handle_threads(answer, threads))
        .expect("PORT can be listened on");
}

fn answer(mut request: Request, mut response: Response) {
    // A body that is left unread would be taken for the next request.
    let _ = io::copy(&mut request, &mut io::sink());
    let root = match &request.uri {
        RequestUri::AbsolutePath(path) => path == "/" || path.starts_with("/?"),
        _ => false,
    };
    response.headers_mut().set(ContentType::plaintext());
    let body: &[u8] = match (&request.method, root) {
        (Method::Get, true) => b"Hello, World!",
        (Method::Head, true) => b"",
        (_, true) => {
            *response.status_mut() = StatusCode::MethodNotAllowed;
            response.headers_mut().set(Allow(vec![Method::Get, Method::Head]));
            b"Method Not Allowed"
        }
        _ => {
            *response.status_mut() = StatusCode::NotFound;
            b"Not Found"
        }
    };
    // A client may disconnect at any time.
    let _ = response.send(body);
}
