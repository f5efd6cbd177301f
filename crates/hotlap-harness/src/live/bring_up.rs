//! A server brought up: started, waited for, and held against its contract.

use std::time::{Duration, Instant, SystemTime};

use hotlap_load::http::Answer;
use hotlap_load::plan::Target;

use super::Live;
use super::seat::{Lines, Seat};
use crate::boot::Boot;
use crate::contract::Exchange;
use crate::cores;
use crate::entrant::{Role, Start};
use crate::learn;
use crate::sample::Sampler;
use crate::track::{Ready, Retired};
use crate::verify::wire::Wire;
use crate::verify::{Demand, LIMIT, Verifier, verify};

/// What the `Host` header says to servers that are started here, whatever their port: the same
/// bytes in every heat.
const HOST: &str = "localhost";

/// Asks once; whether the answer is right.
pub(crate) fn ask(target: &Target, host: &str, exchange: &Exchange) -> Result<Answer, String> {
    let mut wire = Wire::open(target, LIMIT)?;
    wire.send(&exchange.bytes(host))?;
    let answer = wire.answer(exchange.is_head())?;
    exchange.check(&answer, SystemTime::now())?;
    Ok(answer)
}

impl Seat {
    /// The double is the reference's own program, which is verified whole: only its answers to what
    /// is asked under load are looked at.
    fn as_the_reference(&mut self, target: &Target, host: &str) -> Result<(u32, u32), Retired> {
        let exchanges = &self.entrant.contract.exchanges;
        let answers: Result<Vec<Answer>, String> =
            exchanges.iter().map(|exchange| ask(target, host, exchange)).collect();
        let answers = answers.map_err(|what| self.out("verify", what, "see its last lines"))?;
        self.requests = self.entrant.contract.requests(host, &answers);
        self.verified = true;
        Ok((0, 0))
    }
}

impl Live {
    /// Starts a server, waits until it answers, and verifies it.
    pub(super) fn bring_up(&mut self, entrant: usize) -> Result<Ready, Retired> {
        let (host, ready, mut notes) = match self.seats[entrant].entrant.start.clone() {
            Start::Running { target, host, .. } => {
                self.seats[entrant].target = Some(target);
                self.seats[entrant].host.clone_from(&host);
                (host, Duration::ZERO, Vec::new())
            }
            Start::Launch(launch) => {
                let (ready, notes) = self.boot(entrant, &launch)?;
                (HOST.to_owned(), ready, notes)
            }
        };
        let badges = self.examine(entrant, &host, &mut notes)?;
        let seat = &mut self.seats[entrant];
        let memory = seat.sampler.as_mut().and_then(|s| s.resident().ok()).unwrap_or_default();
        Ok(Ready {
            ready_ms: ready.as_secs_f64() * 1e3,
            badges,
            notes,
            rss_bytes: memory.rss_bytes,
        })
    }

    fn boot(
        &mut self,
        entrant: usize,
        launch: &crate::entrant::Launch,
    ) -> Result<(Duration, Vec<String>), Retired> {
        let seat = &mut self.seats[entrant];
        let first = seat.entrant.contract.exchanges[0].clone();
        let lines = Lines::of(&seat.entrant);
        let split = &self.setting.cores;
        let usual = split.server_cpus(cores::allowed().map_or(1, |c| c.len()));
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
        let booted = boot.run(&mut |target| ask(target, HOST, &first).map(drop))?;
        seat.cores = boot.cores.to_vec();
        seat.lines = lines;
        // The file is opened before another server of this folder starts and puts its own there.
        seat.lines();
        seat.host = HOST.to_owned();
        seat.sampler = Some(Sampler::new(&booted.process));
        seat.target = Some(booted.target);
        seat.process = Some(booted.process);
        let mut notes = booted.notes;
        match booted.counters {
            Ok(counters) => seat.counters = Some(counters),
            Err(why) if self.setting.counters => notes.push(format!("no instructions: {why}")),
            Err(_) => {}
        }
        Ok((booted.ready, notes))
    }

    /// Holds it against its contract: the first time against all of it, later against what is asked
    /// under load.
    fn examine(
        &mut self,
        entrant: usize,
        host: &str,
        notes: &mut Vec<String>,
    ) -> Result<(u32, u32), Retired> {
        let began = Instant::now();
        let seat = &mut self.seats[entrant];
        let target = seat.target.clone().unwrap_or_else(|| unreachable!("it was brought up"));
        if seat.verified {
            for exchange in &seat.entrant.contract.exchanges {
                ask(&target, host, exchange).map_err(|what| {
                    let cause = format!("{}: {what}", exchange.name);
                    seat.out("verify", cause, "it answered rightly after an earlier start")
                })?;
            }
            return Ok((0, 0));
        }
        if seat.entrant.role == Role::Double && seat.entrant.contract.name.is_some() {
            return seat.as_the_reference(&target, host);
        }
        if seat.entrant.contract.name.is_none() {
            let learned = learn::learn(&target, host, &seat.entrant.contract)
                .map_err(|what| seat.out("verify", what, "ask it with curl to see why"))?;
            notes.extend(learned.notes);
            seat.entrant.contract = learned.contract;
        }
        let report = verify(&Verifier {
            target: &target,
            host,
            contract: &seat.entrant.contract,
            demand: seat.entrant.demand,
            rude: seat.process.is_some(),
            limit: LIMIT,
        });
        if !report.passed() {
            let failures: Vec<String> = report.failures().map(ToString::to_string).collect();
            let cause = failures.join("; ");
            return Err(seat.out("verify", cause, "a server that answers wrongly is not raced"));
        }
        seat.requests = report.requests(&seat.entrant.contract, host);
        seat.verified = true;
        notes.extend(self.differences(entrant));
        let badges = report.badge_count();
        if began.elapsed() > Duration::from_secs(20) {
            notes.push(format!("verifying it took {:.0} s", began.elapsed().as_secs_f64()));
        }
        Ok(badges)
    }

    /// Where its answer is not the reference's; for the reference, whose answers are not its own.
    /// Each pair is told once, when the later of the two is verified.
    fn differences(&self, entrant: usize) -> Vec<String> {
        let own = &self.seats[entrant].entrant;
        let is_told = |(i, seat): &(usize, &Seat)| match seat.entrant.role {
            Role::Reference => true,
            Role::Contestant => own.role == Role::Reference && *i != entrant,
            Role::Double | Role::Ceiling => false,
        };
        if !matches!(own.role, Role::Reference | Role::Contestant) {
            return Vec::new();
        }
        let others = self.seats.iter().enumerate().filter(|(_, seat)| seat.verified);
        others
            .filter(is_told)
            .map(|(_, seat)| (seat.entrant.name.as_str(), &seat.entrant.contract))
            .filter_map(|other| learn::difference(&own.contract, other))
            .collect()
    }
}
