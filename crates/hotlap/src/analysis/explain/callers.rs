//! Which function of the application calls a function of the kernel, a library or the runtime: time
//! in `memset` says little until its caller is known.

use std::collections::BTreeMap;

use hotlap_observe::Frame;

use super::function::Function;
use super::group::Group;
use super::sampled::Sampled;

/// A caller is named if it accounts for this part of the difference.
const MOST: f64 = 0.5;

/// A caller is named with a group if it accounts for this part of the difference.
const NAMED: f64 = 0.1;

/// The nearest function of the application in a stack, outermost frame first; one of the standard
/// library only if there is no other.
fn caller<'a>(stack: impl DoubleEndedIterator<Item = &'a Frame>) -> Option<Function> {
    let mut callers = stack
        .rev()
        .filter(|frame| Group::of_one(frame) == Group::Application)
        .map(Function::of)
        .peekable();
    let nearest = callers.peek().cloned();
    callers.find(|function| !function.is_standard()).or(nearest).map(Function::line)
}

/// How the cost of two servers differs, by line of the ledger and by caller.
#[derive(Debug, Default)]
pub(super) struct Callers {
    /// In nanoseconds per request; under `None`, what no function of the application called.
    differences: BTreeMap<(Group, Function), BTreeMap<Option<Function>, f64>>,
}

impl Callers {
    /// The callers in a reference and a server.
    pub(super) fn of([reference, server]: &[Sampled; 2]) -> Self {
        let mut callers = Self::default();
        callers.add(reference, -1.0);
        callers.add(server, 1.0);
        callers
    }

    fn add(&mut self, sampled: &Sampled, sign: f64) {
        for sample in sampled.mean_samples() {
            let Some(line) = sample.line() else { continue };
            let caller = caller(sample.profile.stack(sample.stack));
            let by_caller = self.differences.entry(line).or_default();
            *by_caller.entry(caller).or_default() += sign * sample.ns;
        }
    }

    /// The function of the application that accounts for most of the difference in a line. A line
    /// of the application itself needs none.
    pub(super) fn most_of(&self, line: &(Group, Function)) -> Option<Function> {
        if line.0 == Group::Application {
            return None;
        }
        let by_caller = self.differences.get(line)?;
        let all: f64 = by_caller.values().sum();
        let (caller, _) = by_caller.iter().find(|(_, ns)| *ns / all >= MOST)?;
        caller.clone()
    }

    /// The functions of the application that account for the difference in a group by calling its
    /// functions: those that account for a part of it that is worth naming, the largest first, and
    /// for how many nanoseconds per request.
    pub(super) fn of_group(&self, group: Group) -> Vec<(Function, f64)> {
        if group == Group::Application {
            return Vec::new();
        }
        let lines = || self.differences.iter().filter(|((of, _), _)| *of == group);
        let all: f64 = lines().flat_map(|(_, by_caller)| by_caller.values()).sum();
        let mut sums = BTreeMap::<&Function, f64>::new();
        for (caller, ns) in lines().flat_map(|(_, by_caller)| by_caller) {
            if let Some(caller) = caller {
                *sums.entry(caller).or_default() += ns;
            }
        }
        let mut named: Vec<(Function, f64)> = sums
            .into_iter()
            .filter(|(_, ns)| ns / all >= NAMED)
            .map(|(caller, ns)| (caller.clone(), ns))
            .collect();
        named.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_function_that_is_not_standard_calls() {
        let found = |stack: &[(&str, &str)]| {
            let frame = |(function, library): &(&str, &str)| Frame {
                function: (*function).to_owned(),
                library: (*library).to_owned(),
            };
            let frames: Vec<Frame> = stack.iter().map(frame).collect();
            caller(frames.iter()).map(|function| function.name)
        };
        let handle = ("main.handle", "app");
        let write = ("internal/poll.(*FD).Write", "app");
        let call = ("do_syscall_64", "kernel");
        assert_eq!(found(&[handle, write, call]).as_deref(), Some("main.handle"));
        assert_eq!(found(&[write, call]).as_deref(), Some("internal/poll.(*FD).Write"));
        assert_eq!(found(&[("malloc", "libc.so.6")]), None);
    }
}
