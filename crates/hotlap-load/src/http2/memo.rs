//! Heads of header blocks that have arrived before.
//!
//! Servers answer the same request with the same header block, except when a date changes. The
//! meaning of a block depends on its bytes and on the dynamic table, and on nothing else. So if a
//! block was decoded without changing the table, and neither it nor any later block has changed the
//! table since, then decoding the same bytes again would give the same fields and change nothing:
//! what they mean is known. `Decoder::changes` counts the changes of the table, so that one
//! comparison shows whether all blocks are still known.

use super::head::Head;

/// How many blocks are kept: enough for a mix of some requests.
const ENTRIES: usize = 8;

/// The longest block that is kept. Longer ones are rare, and comparing them costs more.
const LONGEST: usize = 1024;

/// What a block means: a head, or why it is malformed.
pub(super) type Meaning = Result<Head, &'static str>;

/// A block and its meaning; empty if there is none.
#[derive(Debug)]
struct Entry {
    block: Vec<u8>,
    meaning: Meaning,
}

/// The blocks of one connection.
#[derive(Debug)]
pub(super) struct Memo {
    entries: [Entry; ENTRIES],
    /// The entry that was found or kept last.
    last: usize,
    /// The number of changes of the table for which the entries are valid.
    changes: u64,
}

impl Default for Memo {
    fn default() -> Self {
        let entry = || Entry { block: Vec::new(), meaning: Err("") };
        Self { entries: std::array::from_fn(|_| entry()), last: 0, changes: 0 }
    }
}

impl Memo {
    /// The meaning of a block, if it is known after this number of changes of the table.
    #[inline]
    pub(super) fn find(&mut self, block: &[u8], changes: u64) -> Option<Meaning> {
        if changes != self.changes || block.is_empty() {
            return None;
        }
        let last = &self.entries[self.last];
        if last.block == block {
            return Some(last.meaning);
        }
        self.last = self.entries.iter().position(|entry| entry.block == block)?;
        Some(self.entries[self.last].meaning)
    }

    /// Keeps the meaning of a block that did not change the table, instead of the oldest entry.
    pub(super) fn keep(&mut self, block: &[u8], changes: u64, meaning: Meaning) {
        if changes != self.changes {
            self.entries.iter_mut().for_each(|entry| entry.block.clear());
            self.changes = changes;
        }
        if block.len() <= LONGEST {
            self.last = (self.last + 1) % ENTRIES;
            let entry = &mut self.entries[self.last];
            entry.block.clear();
            entry.block.extend_from_slice(block);
            entry.meaning = meaning;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: Meaning = Ok(Head { status: 200, length: Some(5) });

    #[test]
    fn a_block_is_known_until_the_table_changes() {
        let mut memo = Memo::default();
        assert_eq!(memo.find(b"a", 0), None);
        memo.keep(b"a", 0, OK);
        memo.keep(b"b", 0, Err("wrong"));
        assert_eq!(memo.find(b"a", 0), Some(OK));
        assert_eq!(memo.find(b"b", 0), Some(Err("wrong")));
        assert_eq!((memo.find(b"c", 0), memo.find(b"", 0)), (None, None));
        assert_eq!(memo.find(b"a", 1), None, "the table has changed");
        memo.keep(b"c", 1, OK);
        assert_eq!((memo.find(b"a", 1), memo.find(b"b", 1)), (None, None));
        assert_eq!(memo.find(b"c", 1), Some(OK));
    }

    #[test]
    fn the_last_few_blocks_of_moderate_length_are_kept() {
        let mut memo = Memo::default();
        for block in 0..=ENTRIES as u8 {
            memo.keep(&[block], 0, OK);
        }
        assert_eq!(memo.find(&[0], 0), None);
        assert!((1..=ENTRIES as u8).all(|block| memo.find(&[block], 0) == Some(OK)));
        memo.keep(&[7; LONGEST + 1], 0, OK);
        assert_eq!(memo.find(&[7; LONGEST + 1], 0), None);
        memo.keep(&[7; LONGEST], 0, OK);
        assert_eq!(memo.find(&[7; LONGEST], 0), Some(OK));
    }
}
