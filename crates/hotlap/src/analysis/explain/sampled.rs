//! What a lap with the profile on has sampled.

use hotlap_bench::lap::Share;
use hotlap_servers::observe::{Observation, Profile, Stack};

use super::function::{Function, UNKNOWN};
use super::group::Group;
use crate::model::ExplainLap;

/// The profile of a lap that counts, and its CPU time and requests.
pub(super) fn profile(lap: &ExplainLap) -> Option<(&Profile, Share)> {
    match &lap.observation {
        Some(Observation::Profile(profile)) if lap.counts() => Some((profile, lap.cost_share()?)),
        _ => None,
    }
}

/// The line of the ledger to which a stack belongs; `None` if nothing is known of it.
pub(super) fn line_of(profile: &Profile, stack: &Stack) -> Option<(Group, Function)> {
    let top = profile.stack(stack).next_back().filter(|frame| frame.library != UNKNOWN)?;
    Some((Group::of(profile.stack(stack)), Function::of(top).line()))
}
