//! Names of ARM processors, for which `/proc/cpuinfo` only has numbers.

use super::field::named;

/// Implementer, part and name, from util-linux's `lscpu-arm.c`: those used in servers.
const PARTS: [(u32, u32, &str); 32] = [
    (0x41, 0xd03, "Cortex-A53"),
    (0x41, 0xd05, "Cortex-A55"),
    (0x41, 0xd07, "Cortex-A57"),
    (0x41, 0xd08, "Cortex-A72"),
    (0x41, 0xd09, "Cortex-A73"),
    (0x41, 0xd0a, "Cortex-A75"),
    (0x41, 0xd0b, "Cortex-A76"),
    (0x41, 0xd0c, "Neoverse-N1"),
    (0x41, 0xd0d, "Cortex-A77"),
    (0x41, 0xd40, "Neoverse-V1"),
    (0x41, 0xd41, "Cortex-A78"),
    (0x41, 0xd44, "Cortex-X1"),
    (0x41, 0xd46, "Cortex-A510"),
    (0x41, 0xd47, "Cortex-A710"),
    (0x41, 0xd49, "Neoverse-N2"),
    (0x41, 0xd4a, "Neoverse-E1"),
    (0x41, 0xd4f, "Neoverse-V2"),
    (0x41, 0xd84, "Neoverse-V3"),
    (0x41, 0xd8e, "Neoverse-N3"),
    (0x43, 0x0af, "ThunderX2-99xx"),
    (0x46, 0x001, "A64FX"),
    (0x48, 0xd01, "TaiShan-v110"),
    (0x51, 0x001, "Oryon"),
    (0x61, 0x022, "Icestorm-M1"),
    (0x61, 0x023, "Firestorm-M1"),
    (0x61, 0x028, "Icestorm-M1-Max"),
    (0x61, 0x029, "Firestorm-M1-Max"),
    (0x61, 0x032, "Blizzard-M2"),
    (0x61, 0x033, "Avalanche-M2"),
    (0x6d, 0xd49, "Azure-Cobalt-100"),
    (0xc0, 0xac3, "Ampere-1"),
    (0xc0, 0xac4, "Ampere-1a"),
];

/// The names of a machine's kinds of cores, each once, in order of appearance.
pub(super) fn name(info: &str) -> Option<String> {
    let mut kinds: Vec<String> = Vec::new();
    for processor in info.split("\n\n") {
        let number = |name: &str| {
            let text = named(processor, name, ':')?;
            u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
        };
        let (Some(implementer), Some(part)) = (number("CPU implementer"), number("CPU part"))
        else {
            continue;
        };
        let known = PARTS.iter().find(|known| (known.0, known.1) == (implementer, part));
        let kind = known.map_or_else(
            || format!("ARM implementer {implementer:#04x}, part {part:#05x}"),
            |(_, _, name)| (*name).to_owned(),
        );
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    (!kinds.is_empty()).then(|| kinds.join(" + "))
}
