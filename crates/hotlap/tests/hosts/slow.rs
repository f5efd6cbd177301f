//! A slow cable that loses packets: two network interfaces whose packets this process passes on.
//! Few kernels can delay packets themselves (`netem`), but nearly all have such interfaces.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::ioctl::{Opcode, Setter, ioctl};

/// How a cable treats packets.
#[derive(Debug, Clone, Copy)]
pub struct Slow {
    /// The time that a packet takes, each way.
    pub delay: Duration,
    /// One of so many packets is lost; none with 0.
    pub lost_of: u64,
}

/// Makes an interface in the network of the calling thread. Its packets are read from the file and
/// written to it.
#[expect(unsafe_code)]
pub fn interface(name: &str) -> std::io::Result<File> {
    /// TUNSETIFF, with the flags IFF_TAP and IFF_NO_PI (linux/if_tun.h).
    const SET: Opcode = 0x4004_54ca;
    const FLAGS: u16 = 0x0002 | 0x1000;
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    // struct ifreq: a name of 16 bytes, the flags, and room for other requests.
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&FLAGS.to_ne_bytes());
    // SAFETY: the kernel expects a pointer to a struct ifreq, which has 40 bytes.
    unsafe { ioctl(&file, Setter::<SET, _>::new(request)) }?;
    Ok(file)
}

/// Passes packets on in both directions until the interfaces are removed with their networks.
pub fn join(one: &File, other: &File, slow: Slow) -> std::io::Result<()> {
    pass(one.try_clone()?, other.try_clone()?, slow);
    pass(other.try_clone()?, one.try_clone()?, slow);
    Ok(())
}

fn pass(mut from: File, mut to: File, slow: Slow) {
    let (packets, due) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        for (at, packet) in due {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            // While an interface is down, packets are lost.
            let _ = to.write_all(&packet);
        }
    });
    std::thread::spawn(move || {
        let mut packet = vec![0; 1 << 16];
        // Knuth's MMIX.
        let mut random = 1_u64;
        while let Ok(length @ 1..) = from.read(&mut packet) {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let is_lost = slow.lost_of > 0 && (random >> 33).is_multiple_of(slow.lost_of);
            let due = (Instant::now() + slow.delay, packet[..length].to_vec());
            if !is_lost && packets.send(due).is_err() {
                return;
            }
        }
    });
}
