//! Finds the caller of a function that keeps no frame.
//!
//! Some functions set up no frame, such as `memset` and the wrappers of system calls in libc. A
//! walk along frame pointers skips the caller of such a function, because `%rbp` still points to
//! the caller's frame. While the function has pushed nothing, the word on top of the stack is its
//! return address. Otherwise, this word may be anything. The word counts only if it is the address
//! after a call of the sampled function. A call through a register also counts if the sampled
//! function keeps no frame.

/// The length of the longest instruction that is examined, `call *offset(%rip)`, in bytes.
const LONGEST: usize = 6;

/// The target of a call instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The call leads to the function that begins at this address.
    Function(u64),
    /// The call leads to the address in a register.
    Register,
}

/// Returns the target of the call before `returns_to`. `None` if there is no call of a known form.
/// `read` reads memory of the process.
///
/// The encodings are in the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
/// CALL and JMP.
pub(crate) fn target(
    returns_to: u64,
    read: impl Fn(u64, &mut [u8]) -> Option<()>,
) -> Option<Target> {
    if cfg!(not(target_arch = "x86_64")) {
        return None;
    }
    let mut code = [0; LONGEST];
    read(returns_to.checked_sub(LONGEST as u64)?, &mut code)?;
    match code {
        [0xff, 0x15, ..] => pointer(relative(returns_to, &code[2..])?, &read).map(Target::Function),
        [_, 0xe8, ..] => {
            let called = relative(returns_to, &code[2..])?;
            Some(Target::Function(behind_stub(called, &read).unwrap_or(called)))
        }
        [.., 0xff, 0xd0..=0xd7] => Some(Target::Register),
        _ => None,
    }
}

/// Returns whether a function begins by setting up a frame, with `push %rbp`, possibly after
/// `endbr64`. A function that cannot be read counts as keeping a frame.
pub(crate) fn keeps_frame(start: u64, read: impl Fn(u64, &mut [u8]) -> Option<()>) -> bool {
    let mut code = [0; 5];
    read(start, &mut code).is_none() || matches!(code, [0x55, ..] | [0xf3, 0x0f, 0x1e, 0xfa, 0x55])
}

/// Returns the address to which a stub of the procedure linkage table jumps. `None` if there is no
/// stub.
fn behind_stub(stub: u64, read: &impl Fn(u64, &mut [u8]) -> Option<()>) -> Option<u64> {
    // A stub may begin with `endbr64` and a `bnd` prefix.
    let mut code = [0; 11];
    read(stub, &mut code)?;
    let skipped = match code {
        [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, ..] => 5,
        [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, ..] => 4,
        [0xff, 0x25, ..] => 0,
        _ => return None,
    };
    let after = skipped + LONGEST;
    pointer(relative(stub + after as u64, code.get(skipped + 2..after)?)?, read)
}

/// Adds the signed 32-bit offset at the end of an instruction to the address after the instruction.
fn relative(after: u64, offset: &[u8]) -> Option<u64> {
    after.checked_add_signed(i32::from_le_bytes(offset.try_into().ok()?).into())
}

fn pointer(at: u64, read: &impl Fn(u64, &mut [u8]) -> Option<()>) -> Option<u64> {
    let mut word = [0; 8];
    read(at, &mut word)?;
    Some(u64::from_le_bytes(word))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Returns the target of a call in memory that begins at address 0x1000.
    fn found(memory: &[u8], returns_to: u64) -> Option<Target> {
        target(returns_to, |address, into| {
            let at = usize::try_from(address.checked_sub(0x1000)?).ok()?;
            into.copy_from_slice(memory.get(at..at + into.len())?);
            Some(())
        })
    }

    fn memory(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut memory = vec![0; 0x100];
        for (at, bytes) in parts {
            memory[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        memory
    }

    #[test]
    fn a_direct_call_names_its_target() {
        let forth = memory(&[(0x10, &[0xe8, 0x2b, 0, 0, 0])]);
        assert_eq!(found(&forth, 0x1015), Some(Target::Function(0x1040)));
        let back = memory(&[(0x40, &[0xe8, 0xcb, 0xff, 0xff, 0xff])]);
        assert_eq!(found(&back, 0x1045), Some(Target::Function(0x1010)));
    }

    #[test]
    fn a_call_through_a_pointer_names_what_it_points_to() {
        let table = memory(&[(0x10, &[0xff, 0x15, 0x4a, 0, 0, 0]), (0x60, &[7, 0x20])]);
        assert_eq!(found(&table, 0x1016), Some(Target::Function(0x2007)));
    }

    #[test]
    fn a_stub_is_followed() {
        let call = [0xe8, 0x2b, 0, 0, 0];
        let stubs: [&[u8]; 3] = [
            &[0xff, 0x25, 0x1a, 0, 0, 0],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x16, 0, 0, 0],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x15, 0, 0, 0],
        ];
        for stub in stubs {
            let linked = memory(&[(0x10, &call), (0x40, stub), (0x60, &[0, 0x30])]);
            assert_eq!(found(&linked, 0x1015), Some(Target::Function(0x3000)));
        }
    }

    #[test]
    fn a_call_through_a_register_is_one() {
        let register = memory(&[(0x10, &[0x90, 0x90, 0x90, 0x41, 0xff, 0xd6])]);
        assert_eq!(found(&register, 0x1016), Some(Target::Register));
    }

    #[test]
    fn a_function_that_pushes_the_frame_pointer_keeps_a_frame() {
        let keeps = |code: [u8; 5]| {
            keeps_frame(0, |_, into| {
                into.copy_from_slice(&code);
                Some(())
            })
        };
        assert!(keeps([0x55, 0x48, 0x89, 0xe5, 0x90]));
        assert!(keeps([0xf3, 0x0f, 0x1e, 0xfa, 0x55]));
        assert!(!keeps([0xf3, 0x0f, 0x1e, 0xfa, 0x48]));
        assert!(keeps_frame(0, |_, _| None));
    }

    #[test]
    fn what_is_not_a_call_has_no_target() {
        // The first case is a jump. In the other cases, the memory before the address cannot be
        // read.
        assert_eq!(found(&memory(&[(0x10, &[0xe9, 0x2b, 0, 0, 0])]), 0x1015), None);
        assert_eq!(found(&[], 0x1015), None);
        assert_eq!(found(&[], 3), None);
    }
}
