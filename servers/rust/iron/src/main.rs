//! Iron 0.4, which is synchronous: a thread serves one connection until it closes.

extern crate iron;

use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, io};

use iron::headers::ContentType;
use iron::prelude::*;
use iron::{Protocol, Timeouts, method, status};

fn main() {
    let number = |name| env::var(name).ok().and_then(|value| value.parse::<usize>().ok());
    let host = env::var("HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let port = number("PORT").expect("PORT is not set to a port number");
    // Each open connection occupies a thread, and further connections wait until one is closed.
    // Waiting threads cost only memory.
    let threads = 512 * number("CPUS").unwrap_or(1);
    let greeting: fn() -> String = match env::args().nth(1).as_deref() {
        Some("hello") => || "Hello, World!".to_owned(),
        _ => || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
            format!("Hello World {}", now.as_millis())
        },
    };
    let answer = move |request: &mut Request| -> IronResult<Response> {
        // A body that is left unread would be taken for the next request.
        let _ = io::copy(&mut request.body, &mut io::sink());
        let (status, body) = match (&request.method, request.url.path().as_slice()) {
            (method::Get, [""]) => (status::Ok, greeting()),
            (method::Head, [""]) => (status::Ok, String::new()),
            (_, [""]) => (status::MethodNotAllowed, "Method Not Allowed".to_owned()),
            _ => (status::NotFound, "Not Found".to_owned()),
        };
        let mut response = Response::with((status, body));
        response.headers.set(ContentType::plaintext());
        Ok(response)
    };
    Iron::new(answer)
        .listen_with((host.as_str(), port as u16), threads, Protocol::Http, Some(Timeouts::default()))
        .expect("PORT can be listened on");
}
