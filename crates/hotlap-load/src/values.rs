//! The values of fields, as one worker sends them.

use std::sync::Arc;

use crate::plan::{Buffer, Field, Insert, Inserted, Plan};

/// The fields of a plan, for one worker.
///
/// Workers take the values of a sequence in turn, so that a counter never repeats, however many
/// there are.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    fields: Arc<[Field]>,
    uses: Vec<Uses>,
    /// The number of requests in the order that is repeated.
    cycle: u32,
    /// The first value of this worker, and the step from each value to the next.
    first: u64,
    workers: u64,
    buffer: Buffer,
}

/// How often a field is used in the repeated order of requests.
#[derive(Debug, Clone)]
struct Uses {
    /// The field's key for random values.
    key: u64,
    /// Requests before each position that use it.
    before: Vec<u32>,
    /// Requests in the whole order that use it.
    in_cycle: u64,
}

impl Values {
    /// The fields of a plan whose requests are sent in this order, repeatedly.
    pub(crate) fn new(plan: &Plan, order: &[u32], worker: usize) -> Self {
        if plan.order.is_some() {
            return Self::numbered(plan);
        }
        let uses = |index: usize| {
            let is_field = |insert: &Insert| insert.what == Inserted::Field(index);
            let used: Vec<bool> =
                plan.requests.iter().map(|r| r.all_inserts().any(is_field)).collect();
            let mut count = 0;
            let before = |request: &u32| {
                let before = count;
                count += u32::from(used[*request as usize]);
                before
            };
            let before = order.iter().map(before).collect();
            let seed = plan.fields[index].source.seed(plan.seed, plan.unique);
            Uses { key: Field::key(seed, index), before, in_cycle: u64::from(count) }
        };
        Self {
            fields: plan.fields.clone().into(),
            uses: (0..plan.fields.len()).map(uses).collect(),
            cycle: u32::try_from(order.len()).unwrap_or(u32::MAX).max(1),
            first: plan.first_value + plan.worker(worker) as u64,
            workers: plan.workers() as u64,
            buffer: Buffer::default(),
        }
    }

    /// The fields of a plan whose order says which value each request has: the value of that
    /// number, whichever worker sends it.
    fn numbered(plan: &Plan) -> Self {
        let uses =
            |index: usize| Uses { key: Field::key(plan.seed, index), before: vec![0], in_cycle: 1 };
        Self {
            fields: plan.fields.clone().into(),
            uses: (0..plan.fields.len()).map(uses).collect(),
            cycle: 1,
            first: 0,
            workers: 1,
            buffer: Buffer::default(),
        }
    }

    /// The value of a field in the worker's `number`-th request.
    #[inline]
    pub(crate) fn value(&mut self, field: usize, number: u32) -> &[u8] {
        let uses = &self.uses[field];
        let (cycle, position) = (number / self.cycle, number % self.cycle);
        let used = u64::from(cycle) * uses.in_cycle + u64::from(uses.before[position as usize]);
        let n = self.first + used * self.workers;
        self.fields[field].source.value(uses.key, n, &mut self.buffer)
    }
}
