//! A bare client without the load generator: a few connections, polled without pause, with requests
//! at a rate. It measures the round trip on this machine, which is part of every latency that a
//! client sees but not of the time that a test server is made to take.
//!
//! It spins, so that its own wake-ups are not in its times, and it sends at the rate of the laps
//! that it is compared with: a server with rare requests wakes from a deeper sleep each time, which
//! takes about 30 µs on a virtual machine.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hotlap_load::plan::{Endpoint, Target};
use hotlap_servers::cpus;
use hotlap_stats::median;

/// How long it asks.
const FOR: Duration = Duration::from_millis(400);

/// No answer takes longer.
const LIMIT: Duration = Duration::from_secs(5);

/// What ends the answer.
const END: &[u8] = b"Hello, World!";

/// A neighbour can only lengthen the way: what counts is the median of the batch of so many
/// requests that was disturbed least.
const BATCH: usize = 20;

/// How it asks.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// On so many connections.
    pub connections: usize,
    /// Requests/s over all of them, evenly.
    pub rate: f64,
    /// On one of these cores.
    pub cpus: &'a [usize],
}

/// What requests took, in microseconds, in the order in which they were answered.
///
/// # Errors
/// When the server cannot be reached or does not answer.
pub fn times_us(target: &Target, asking: &Asking) -> anyhow::Result<Vec<f64>> {
    let Endpoint::Tcp(address) = target.endpoint else {
        bail!("a test server listens on TCP");
    };
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            // Not being pinned makes the way longer, not wrong.
            let _ = cpus::pin(asking.cpus);
            times(address, asking)
        });
        client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// One connection, and when what is under way on it was sent.
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
        // So few bytes always fit into the buffer of a connection that is idle.
        Ok(self.stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?)
    }

    /// How long the answer took, once it is there.
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
            // Where server and client share a core, the server must have it.
            std::thread::yield_now();
        }
    }
    Ok(times)
}

/// The usual time of a request, in microseconds.
#[must_use]
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
