//! A bare client: one connection, blocking, nothing of the load generator. It tells how long the
//! way to a server and back takes here, which is part of every time that a client sees and of none
//! that a server was made to take.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hotlap_harness::cores;
use hotlap_load::plan::{Endpoint, Target};
use hotlap_stats::estimate::median;

/// Requests that it sends at most, and at least.
const MOST: usize = 2_000;
const LEAST: usize = 20;

/// How long it sends, unless the least takes longer.
const FOR: Duration = Duration::from_millis(300);

/// What ends the answer.
const END: &[u8] = b"Hello, World!";

/// A neighbour can only lengthen the way: what counts is the median of the batch of so many
/// requests that was disturbed least.
const BATCH: usize = 20;

/// The usual time of a request, in microseconds, on the generator's cores.
///
/// # Errors
/// When the server cannot be reached or does not answer.
pub fn usual_us(target: &Target, cpus: &[usize]) -> anyhow::Result<f64> {
    let Endpoint::Tcp(address) = target.endpoint else {
        anyhow::bail!("a known server listens on TCP");
    };
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            // Not being pinned makes the way longer, not wrong.
            let _ = cores::pin(cpus);
            times(TcpStream::connect(address).context("a known server does not answer")?)
        });
        client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn times(mut stream: TcpStream) -> anyhow::Result<f64> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut times = Vec::with_capacity(MOST);
    let (began, mut answer) = (Instant::now(), [0; 1024]);
    while times.len() < MOST && (times.len() < LEAST || began.elapsed() < FOR) {
        let (sent, mut got) = (Instant::now(), 0);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        while !answer[..got].ends_with(END) {
            let count = stream.read(&mut answer[got..])?;
            ensure!(count > 0, "a known server closed the connection");
            got += count;
        }
        times.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    least_median(&times).context("a known server was not asked")
}

fn least_median(times: &[f64]) -> Option<f64> {
    times.chunks_exact(BATCH).filter_map(median).min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_that_is_there_half_of_the_time_does_not_lengthen_the_way() {
        let times: Vec<f64> = (0..200)
            .map(|i| if i / 50 % 2 == 0 { 4_000.0 } else { 30.0 + f64::from(i % 3) })
            .collect();
        assert_eq!(least_median(&times), Some(31.0));
        assert_eq!(least_median(&[]), None);
    }
}
