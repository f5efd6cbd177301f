//! A minimal client that does not use the load generator. The client polls a few connections
//! without pause, and sends requests at a given rate. It measures the round trip on this machine.
//! The round trip is part of every latency that a client sees, but not of a test server's
//! configured service time.
//!
//! The client polls so that its own wake-ups are not part of the measured times. It sends at the
//! rate of the laps that the times are compared with. If requests are rare, a server's core wakes
//! up from a deeper idle state each time, which takes longer.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hotlap_load::plan::{Endpoint, Target};
use hotlap_observe::cpus;
use hotlap_stats::median;

/// The shortest time that the client runs.
const FOR: Duration = Duration::from_millis(400);

/// The timeout of a response.
const LIMIT: Duration = Duration::from_secs(5);

/// The last bytes of a complete response.
const END: &[u8] = b"Hello, World!";

/// The number of requests in a batch. A noisy neighbour can only make the round trip longer, so the
/// batch with the lowest median counts.
const BATCH: usize = 20;

/// How the client sends requests.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// The number of connections.
    pub connections: usize,
    /// The total rate over all connections, in requests/s. Requests are evenly spaced.
    pub rate: f64,
    /// The cores that the client runs on.
    pub cpus: &'a [usize],
}

/// Measures the times of requests, in microseconds, in the order of the responses.
pub fn times_us(target: &Target, asking: &Asking) -> anyhow::Result<Vec<f64>> {
    let Endpoint::Tcp(address) = target.endpoint else {
        bail!("a test server listens on TCP");
    };
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            // Without pinning, the round trip is longer, but not wrong.
            let _ = cpus::pin(asking.cpus);
            times(address, asking)
        });
        client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// One connection, and the time at which its pending request was sent.
struct Line {
    stream: TcpStream,
    sent: Option<Instant>,
    answer: [u8; 1024],
    got: usize,
}

impl Line {
    fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).context("a test server does not respond")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, sent: None, answer: [0; 1024], got: 0 })
    }

    fn ask(&mut self) -> anyhow::Result<()> {
        self.got = 0;
        self.sent = Some(Instant::now());
        // A few bytes always fit into the buffer of an idle connection.
        Ok(self.stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?)
    }

    /// Returns the time that the response took, once the response is complete.
    fn look(&mut self) -> anyhow::Result<Option<Duration>> {
        let Some(sent) = self.sent else { return Ok(None) };
        match self.stream.read(&mut self.answer[self.got..]) {
            Ok(0) => bail!("a test server closed the connection"),
            Ok(count) => self.got += count,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.into()),
        }
        let took = sent.elapsed();
        ensure!(took < LIMIT, "a test server does not respond");
        let done = self.answer[..self.got].ends_with(END);
        if done {
            self.sent = None;
        }
        Ok(done.then_some(took))
    }
}

fn times(address: SocketAddr, asking: &Asking) -> anyhow::Result<Vec<f64>> {
    let lines = (0..asking.connections).map(|_| Line::open(address));
    let mut lines: Vec<Line> = lines.collect::<Result<_, _>>()?;
    let mut times = Vec::new();
    let (began, mut asked) = (Instant::now(), 0_u32);
    loop {
        let now = began.elapsed();
        let is_over = now >= FOR && times.len() >= BATCH;
        let mut quiet = true;
        for line in &mut lines {
            if let Some(took) = line.look()? {
                times.push(took.as_secs_f64() * 1e6);
                quiet = false;
            }
            let due = f64::from(asked) / asking.rate <= now.as_secs_f64();
            if !is_over && due && line.sent.is_none() {
                line.ask()?;
                asked += 1;
                quiet = false;
            }
        }
        if is_over && lines.iter().all(|line| line.sent.is_none()) {
            break;
        }
        if quiet {
            // If server and client share a core, the client must yield the core.
            std::thread::yield_now();
        }
    }
    Ok(times)
}

/// The lowest median of all batches, in microseconds.
pub fn usual_us(times: &[f64]) -> Option<f64> {
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
        assert_eq!(usual_us(&times), Some(31.0));
        assert_eq!(usual_us(&[]), None);
    }
}
