//! The key `probe`: one command, or a list of them.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// One command, or a list of them.
pub(super) struct Probes(pub(super) Vec<Vec<String>>);

/// An item of a probe's list: a word of its only command, or a whole command.
enum Item {
    Word(String),
    Command(Vec<String>),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemVisitor;
        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = Item;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E>(self, word: &str) -> Result<Item, E> {
                Ok(Item::Word(word.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Item, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = seq.next_element()? {
                    words.push(word);
                }
                Ok(Item::Command(words))
            }
        }
        deserializer.deserialize_any(ItemVisitor)
    }
}

impl<'de> Deserialize<'de> for Probes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut words = Vec::new();
        let mut commands = Vec::new();
        for item in Vec::<Item>::deserialize(deserializer)? {
            match item {
                Item::Word(word) => words.push(word),
                Item::Command(command) => commands.push(command),
            }
        }
        match (words.is_empty(), commands.is_empty()) {
            (_, true) => Ok(Self(vec![words])),
            (true, false) => Ok(Self(commands)),
            (false, false) => {
                Err(D::Error::custom("a probe is one command or a list of commands, not a mixture"))
            }
        }
    }
}
