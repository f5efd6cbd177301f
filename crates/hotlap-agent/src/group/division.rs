//! The division of a load among generators.

use hotlap_load::plan::{LoadPart, Pace, Plan, Stop};

/// The parts of a load, one for each of `count` generators. Connections are divided, and with them
/// the load; all generators have equally many threads, as many as the plan says if their
/// connections suffice. Rate, number of requests and values of fields remain those of the whole
/// load, of which each generator takes every n-th (see [`LoadPart`]), so no two send the same
/// value.
///
/// # Errors
/// There are fewer connections than generators.
pub(super) fn divide(plan: &Plan, count: usize) -> Result<Vec<Plan>, String> {
    let connections = plan.connections;
    if connections < count {
        return Err(format!(
            "{connections} connections cannot be divided among {count} generators: use at least \
             {count} (-c)"
        ));
    }
    let part = |index: usize| Plan {
        connections: connections / count + usize::from(index < connections % count),
        threads: plan.threads.min(connections / count),
        // All begin at an agreed time.
        start_at: None,
        part: LoadPart { index, of: count },
        ..plan.clone()
    };
    Ok((0..count).map(part).collect())
}

/// Where a generator runs its threads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// The cores that its threads are pinned to; empty: not pinned.
    pub cpus: Vec<usize>,
    /// Whether nothing else uses these cores, so that its threads need not sleep while they wait.
    pub is_alone: bool,
}

impl Placement {
    /// Places a part of a load.
    pub(super) fn apply(&self, part: &mut Plan) {
        part.cpus.clone_from(&self.cpus);
        part.busy_poll &= self.is_alone;
    }
}

/// How many requests a sampler sends, per second: few enough to leave it idle and the server as it
/// is.
pub const SAMPLES_PER_S: f64 = 100.0;

/// Where the values of a sampler's fields begin, beyond those of the load.
const SAMPLED_VALUES: u64 = 1 << 32;

/// The plan of a generator that samples latency while others load: the same requests over one
/// connection at a low rate (Leverich and Kozyrakis, "Reconciling high server utilization and
/// sub-millisecond quality-of-service", EuroSys 2014: mutilate).
///
/// # Errors
/// The load ends after a number of requests, so nobody knows when.
pub(super) fn sampler(plan: &Plan) -> Result<Plan, String> {
    if matches!(plan.stop, Stop::Requests(_)) {
        return Err("sampling latency needs a load with a duration: use -d".to_owned());
    }
    Ok(Plan {
        connections: 1,
        threads: 1,
        pipeline: 1,
        pace: Pace::Constant { rate: SAMPLES_PER_S },
        first_value: plan.first_value + SAMPLED_VALUES,
        start_at: None,
        ..plan.clone()
    })
}

/// Which share of the requests a generator sends, 0 to 1: in a closed loop that of its connections,
/// in an open loop the same for all.
pub(super) fn share(whole: &Plan, part: &Plan) -> f64 {
    match whole.pace.rate() {
        None => part.connections as f64 / whole.connections.max(1) as f64,
        Some(_) => 1.0 / part.part.of.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use hotlap_load::plan::{Endpoint, Request, Target};

    use super::*;

    fn plan(connections: usize, threads: usize) -> Plan {
        let target = Target::plain(Endpoint::Tcp(([127, 0, 0, 1], 80).into()));
        Plan { connections, threads, ..Plan::new(target, Request::get("/", "test")) }
    }

    fn shape(parts: &[Plan]) -> Vec<(usize, usize, usize)> {
        parts.iter().map(|p| (p.connections, p.threads, p.part.index)).collect()
    }

    #[test]
    fn connections_are_divided_and_no_generator_has_more_threads_than_connections() {
        let parts = divide(&plan(10, 8), 3).expect("parts");
        assert_eq!(shape(&parts), [(4, 3, 0), (3, 3, 1), (3, 3, 2)]);
        assert!(parts.iter().all(|part| part.check().is_ok() && part.part.of == 3));
        assert_eq!(shape(&divide(&plan(64, 2), 2).expect("parts")), [(32, 2, 0), (32, 2, 1)]);
    }

    #[test]
    fn rate_and_number_of_requests_stay_those_of_the_whole_load() {
        let mut whole = plan(10, 1);
        (whole.pace, whole.stop) = (Pace::Constant { rate: 900.0 }, Stop::Requests(100));
        for part in divide(&whole, 3).expect("parts") {
            assert_eq!((&part.pace, part.stop), (&whole.pace, whole.stop));
            assert!((share(&whole, &part) - 1.0 / 3.0).abs() < 1e-12);
        }
        whole.pace = Pace::Closed;
        let parts = divide(&whole, 3).expect("parts");
        let shares: Vec<f64> = parts.iter().map(|part| share(&whole, part)).collect();
        assert_eq!(shares, [0.4, 0.3, 0.3]);
    }

    #[test]
    fn a_sampler_has_one_connection_a_low_rate_and_values_of_its_own() {
        let whole = plan(64, 4);
        let sampler = sampler(&whole).expect("a plan");
        assert_eq!((sampler.connections, sampler.threads), (1, 1));
        assert_eq!(sampler.pace, Pace::Constant { rate: 100.0 });
        assert_eq!((sampler.stop, sampler.warmup), (whole.stop, whole.warmup));
        assert_eq!(sampler.first_value, 1 << 32);
        assert_eq!(sampler.check(), Ok(()));
        let counted = Plan { stop: Stop::Requests(10), ..whole };
        assert!(super::sampler(&counted).expect_err("no end").ends_with("use -d"));
    }

    #[test]
    fn fewer_connections_than_generators_are_an_error() {
        assert_eq!(
            divide(&plan(2, 1), 3),
            Err("2 connections cannot be divided among 3 generators: use at least 3 (-c)"
                .to_owned())
        );
    }
}
