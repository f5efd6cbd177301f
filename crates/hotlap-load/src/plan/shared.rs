//! Lists that are shared rather than copied, because a file may have many lines.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A list that many plans and threads share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<T>", into = "Vec<T>")]
#[serde(bound(serialize = "T: Clone + Serialize", deserialize = "T: Deserialize<'de>"))]
pub struct Shared<T>(Arc<[T]>);

/// Texts of a field.
pub type Texts = Shared<String>;

impl<T> Deref for Shared<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> From<Vec<T>> for Shared<T> {
    fn from(list: Vec<T>) -> Self {
        Self(list.into())
    }
}

impl<T: Clone> From<Shared<T>> for Vec<T> {
    fn from(list: Shared<T>) -> Self {
        list.0.to_vec()
    }
}
