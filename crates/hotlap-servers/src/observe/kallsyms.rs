//! Functions of the kernel, from `/proc/kallsyms`.

use std::fs;
use std::sync::OnceLock;

use super::functions::Functions;
use super::interrupts::KERNEL;
use super::observation::Frame;

/// The functions of the running kernel.
#[derive(Debug)]
pub(super) struct Kernel(Functions);

/// Read when it is first asked for: a list of 100,000 lines.
pub(super) fn kernel() -> &'static Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    KERNEL.get_or_init(|| Kernel(parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())))
}

impl Kernel {
    /// Whether the kernel shows its addresses.
    pub(super) fn is_readable(&self) -> bool {
        !self.0.is_empty()
    }

    /// The function at an address of the kernel.
    pub(super) fn frame(&self, address: u64) -> Frame {
        let function = self.0.at(address).unwrap_or("[kernel]").to_owned();
        Frame { function, library: KERNEL.to_owned() }
    }
}

/// Lines like `ffffffff81000000 T _text` and `ffffffffc0000000 t probe [module]`. Where addresses
/// are hidden, all are zero.
fn parse(text: &str) -> Functions {
    Functions::new(text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address > 0)?;
        let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
        let name = words.next()?.to_owned();
        is_code.then_some((address, 0, name))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_and_data_is_not() {
        let text = "ffffffff81000000 T tcp_sendmsg\nffffffff81000100 D jiffies\n\
                    ffffffffc0000000 t probe\t[virtio_net]\n";
        let kernel = Kernel(parse(text));
        assert_eq!(kernel.frame(0xffff_ffff_8100_0110).function, "tcp_sendmsg");
        assert_eq!(kernel.frame(0xffff_ffff_c000_0001).function, "probe");
        assert_eq!(kernel.frame(0x10).function, "[kernel]");
    }

    #[test]
    fn hidden_addresses_are_no_addresses() {
        let kernel =
            Kernel(parse("0000000000000000 T tcp_sendmsg\n0000000000000000 T udp_sendmsg\n"));
        assert!(!kernel.is_readable());
        assert_eq!(kernel.frame(0xffff_ffff_8100_0110).function, "[kernel]");
    }
}
