//! A server brought up: started, waited for, and held against its contract.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use hotlap_load::http::Response;
use hotlap_load::plan::Target;

use super::Live;
use super::lines::Lines;
use super::seat::Seat;
use crate::boot::{Boot, NotYet};
use crate::contract::Exchange;
use crate::cores;
use crate::entrant::{Role, Start};
use crate::learn;
use crate::owner;
use crate::sample::Sampler;
use crate::track::{Ready, Retired};
use crate::verify::wire::Wire;
use crate::verify::{Demand, LIMIT, Verifier, verify};

/// What the `Host` header says to servers that are started here, whatever their port: the same
/// bytes in every heat.
const HOST: &str = "localhost";

/// Sends a request, which must be answered within `limit`; returns the response if it is right.
pub(crate) fn ask(
    target: &Target,
    host: &str,
    limit: Duration,
    exchange: &Exchange,
) -> Result<Response, String> {
    let mut wire = Wire::open(target, limit)?;
    wire.send(&exchange.bytes(host))?;
    let answer = wire.answer(exchange.is_head())?;
    exchange.check(&answer, SystemTime::now())?;
    Ok(answer)
}

/// Whether a server that was just started answers a request within `limit`.
pub(crate) fn is_up(
    target: &Target,
    exchange: &Exchange,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<(), NotYet> {
    let exchange = exchange.readiness();
    let response = || {
        let mut wire = Wire::open(target, limit)?;
        wire.send(&exchange.bytes(HOST))?;
        wire.answer_unless(exchange.is_head(), stop)
    };
    let answer = response().map_err(NotYet::Silent)?;
    exchange.check(&answer, SystemTime::now()).map_err(NotYet::Wrong)
}

impl Seat {
    /// The double is the reference's own program, which is verified whole: only its answers to what
    /// is asked under load are looked at.
    fn as_the_reference(&mut self, target: &Target, limit: Duration) -> Result<Examined, Retired> {
        let exchanges = &self.entrant.contract.exchanges;
        let ask = |exchange| ask(target, &self.host, limit, exchange);
        let answers: Result<Vec<Response>, String> = exchanges.iter().map(ask).collect();
        let answers = answers.map_err(|what| self.out("verify", what, "see its last lines"))?;
        self.requests = self.entrant.contract.requests(&self.host, &answers);
        Ok(Examined::default())
    }

    /// After a later start: it answers as it did after the first. A request that is not safe to
    /// repeat is not sent again.
    fn examine_again(&self, target: &Target, limit: Duration) -> Result<Examined, Retired> {
        let is_stranger = self.entrant.contract.name.is_none();
        let tries = self.entrant.demand.tries();
        let exchanges = self.entrant.contract.exchanges.iter();
        for exchange in exchanges.filter(|exchange| !is_stranger || exchange.is_safe()) {
            let mut asked = ask(target, &self.host, limit, exchange);
            for _ in 1..tries {
                asked = asked.or_else(|_| ask(target, &self.host, limit, exchange));
            }
            if let Err(what) = asked {
                let cause = format!("{}: {what}", exchange.name);
                return Err(self.out(
                    "verify",
                    cause,
                    "it answered correctly after an earlier start",
                ));
            }
        }
        Ok(Examined::default())
    }

    /// Holds it against its contract: the first time against all of it, later against what is asked
    /// under load. `limit` is how long one response may take.
    fn examine(&mut self, limit: Duration) -> Result<Examined, Retired> {
        let began = Instant::now();
        let target = self.target.clone();
        let target =
            target.ok_or_else(|| self.out("verify", "it is not started".to_owned(), ""))?;
        if self.verified {
            return self.examine_again(&target, limit);
        }
        if self.entrant.role == Role::Double && self.entrant.contract.name.is_some() {
            return self.as_the_reference(&target, limit);
        }
        let mut notes = Vec::new();
        if self.entrant.contract.name.is_none() {
            let learned = learn::learn(&target, &self.host, limit, &self.entrant.contract)
                .map_err(|what| self.out("verify", what, "ask it with curl to see why"))?;
            notes.extend(learned.notes);
            self.entrant.contract = learned.contract;
            if !self.entrant.contract.exchanges.iter().all(Exchange::is_safe) {
                // Each check would send it again.
                self.requests = self.entrant.contract.requests(&self.host, &learned.answers);
                return Ok(Examined { notes, ..Examined::default() });
            }
        }
        let report = verify(&Verifier {
            target: &target,
            host: &self.host,
            contract: &self.entrant.contract,
            demand: self.entrant.demand,
            rude: self.process.is_some(),
            limit,
        });
        if !report.passed() {
            let failures: Vec<String> = report.failures().map(ToString::to_string).collect();
            let cause = failures.join("; ");
            return Err(self.out("verify", cause, "a server that answers wrongly is not measured"));
        }
        self.requests = report.requests(&self.entrant.contract, &self.host);
        if began.elapsed() > Duration::from_secs(20) {
            notes.push(format!("verifying it took {:.0} s", began.elapsed().as_secs_f64()));
        }
        Ok(Examined { badges: report.badge_count(), notes })
    }
}

/// What was found of a server that keeps its contract.
#[derive(Debug, Default)]
struct Examined {
    badges: (u32, u32),
    notes: Vec<String>,
}

impl Live {
    /// Starts a server and waits until it answers. One that runs already is looked up: if it is on
    /// this machine, its process is measured.
    pub(super) fn boot(&mut self, entrant: usize) -> Result<(), Retired> {
        match self.seats[entrant].entrant.start.clone() {
            Start::Running { target, host, .. } => {
                let seat = &mut self.seats[entrant];
                if owner::is_here(&target.endpoint) {
                    let owner = owner::owner(&target.endpoint, &[]);
                    seat.sampler = Sampler::of(&owner, None);
                    seat.notes.extend(owner.note());
                }
                (seat.target, seat.host) = (Some(target), host);
                Ok(())
            }
            Start::Launch(launch) => self.launch(entrant, &launch),
        }
    }

    fn launch(&mut self, entrant: usize, launch: &crate::entrant::Launch) -> Result<(), Retired> {
        let seat = &mut self.seats[entrant];
        let first = seat.entrant.contract.exchanges[0].clone();
        let lines = Lines::of(&seat.entrant);
        let split = &self.setting.cores;
        let usual = split.server_cpus(cores::available());
        let cpus = seat.entrant.cpus.unwrap_or(usual);
        let boot = Boot {
            launch,
            cpus,
            // One that is to use more cores than there are gets all of them, and says so.
            cores: &split.server[..cpus.min(split.server.len())],
            warden: &self.setting.warden,
            log: self.setting.logs.join(format!("{entrant}.log")),
            limit: self.setting.start_limit,
            counters: self.setting.counters,
            elsewhere: seat.entrant.demand == Demand::Stranger,
            stop: &self.stop,
        };
        let booted = boot.run(&mut |target, limit| is_up(target, &first, limit, &self.stop))?;
        seat.cores = boot.cores.to_vec();
        seat.lines = lines;
        // The file is opened before another server of this folder starts and puts its own there.
        seat.lines();
        seat.host = HOST.to_owned();
        seat.sampler = booted.sampler;
        seat.target = Some(booted.target);
        seat.process = Some(booted.process);
        seat.ready = Some(booted.ready);
        seat.notes = booted.notes;
        match booted.counters {
            Ok(counters) => seat.counters = Some(counters),
            Err(why) if self.setting.counters => seat.notes.push(format!("no instructions: {why}")),
            Err(_) => {}
        }
        Ok(())
    }

    /// Verifies servers that were started, all at the same time. One that fails beside others is
    /// looked at once more alone: it may only have had too little of its core.
    pub(super) fn verify_some(&mut self, entrants: &[usize]) -> Vec<Result<Ready, Retired>> {
        let limit = self.setting.timeout.max(LIMIT);
        let examine = |seat: &mut Seat| {
            seat.thaw();
            seat.examine(limit)
        };
        let mut examined: BTreeMap<usize, Result<Examined, Retired>> = thread::scope(|scope| {
            let seats = self.seats.iter_mut().enumerate().filter(|(n, _)| entrants.contains(n));
            let threads: Vec<_> =
                seats.map(|(n, seat)| (n, scope.spawn(move || examine(seat)))).collect();
            let join = |t: thread::ScopedJoinHandle<'_, _>| {
                t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(|(n, thread)| (n, join(thread))).collect()
        });
        entrants.iter().for_each(|&n| self.freeze(n));
        let mut ready = Vec::new();
        for &entrant in entrants {
            let seat = &mut self.seats[entrant];
            let beside = examined.remove(&entrant).filter(|beside| {
                let is_final = entrants.len() == 1 || self.stop.load(Ordering::Relaxed);
                beside.is_ok() || is_final
            });
            let result = beside.unwrap_or_else(|| examine(seat));
            match result {
                Err(_) => _ = seat.stop(Duration::ZERO),
                Ok(_) => self.freeze(entrant),
            }
            ready.push(result.map(|examined| self.ready(entrant, examined)));
        }
        ready
    }

    /// What is told of a server that is ready. Each pair that answers differently is told of once,
    /// when the later of the two is verified.
    fn ready(&mut self, entrant: usize, examined: Examined) -> Ready {
        let seat = &mut self.seats[entrant];
        let mut notes = std::mem::take(&mut seat.notes);
        notes.extend(examined.notes);
        let is_new = !std::mem::replace(&mut seat.verified, true);
        let memory = seat.sampler.as_mut().and_then(|s| s.resident().ok());
        let rss_bytes = memory.map(|memory| memory.rss_bytes);
        let ready_ms = seat.ready.map(|ready| ready.as_secs_f64() * 1e3);
        if is_new {
            notes.extend(self.differences(entrant));
        }
        Ready { ready_ms, badges: examined.badges, notes, rss_bytes }
    }

    /// Where its answer is not that of whom it is held against, or of those held against it.
    fn differences(&self, entrant: usize) -> Vec<String> {
        let is_reference = |seat: &Seat| seat.entrant.role == Role::Reference;
        let reference = self.seats.iter().position(is_reference);
        let against = |n: usize| self.setting.against.get(&n).copied().or(reference);
        let is_told = |n: usize| {
            let role = self.seats[n].entrant.role;
            self.seats[n].verified && matches!(role, Role::Reference | Role::Contestant)
        };
        if !is_told(entrant) {
            return Vec::new();
        }
        let own = &self.seats[entrant].entrant.contract;
        let is_pair = |n: &usize| against(entrant) == Some(*n) || against(*n) == Some(entrant);
        (0..self.seats.len())
            .filter(|n| *n != entrant && is_told(*n) && is_pair(n))
            .map(|n| &self.seats[n].entrant)
            .filter_map(|other| learn::difference(own, (&other.name, &other.contract)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::super::Setting;
    use super::*;
    use crate::contract::{Content, Contract, Name};
    use crate::cores::Split;
    use crate::entrant::{Entrant, Launch};
    use crate::process::Warden;
    use crate::verify::Demand;

    /// A rung that answers like the one below it was told not to do the same work as the first.
    #[test]
    fn the_work_of_a_rung_is_held_against_the_rung_below() {
        let entrant = |name: &str, body: &[u8]| {
            let mut contract = Contract::of(Name::Hello, None);
            contract.exchanges[0].content = Content::exactly(body);
            let launch =
                Launch { argv: vec![], env: BTreeMap::new(), cwd: std::path::PathBuf::new() };
            Entrant {
                name: name.to_owned(),
                role: if name == "a" { Role::Reference } else { Role::Contestant },
                start: Start::Launch(launch),
                contract,
                demand: Demand::Stranger,
                version: String::new(),
                counts: None,
                cpus: None,
            }
        };
        let entrants = [entrant("a", b"text"), entrant("b", b"json"), entrant("c", b"json")];
        let told = |against: BTreeMap<usize, usize>| -> Vec<usize> {
            let setting = Setting {
                slice: None,
                probe_limit: Duration::ZERO,
                timeout: Duration::ZERO,
                start_limit: Duration::ZERO,
                warm_limit: Duration::ZERO,
                grace: Duration::ZERO,
                freeze: true,
                counters: false,
                cores: Split { server: vec![], generator: vec![], shared: true, notes: vec![] },
                warden: Warden::new("/none", &[]),
                logs: PathBuf::new(),
                against,
            };
            let mut live = Live::new(setting, &entrants, &[], Arc::new(AtomicBool::new(false)));
            let differences = |n: usize| {
                live.seats[n].verified = true;
                live.differences(n).len()
            };
            (0..3).map(differences).collect()
        };
        assert_eq!(told(BTreeMap::new()), [0, 1, 1]);
        assert_eq!(told(BTreeMap::from([(1, 0), (2, 1)])), [0, 1, 0]);
    }
}
