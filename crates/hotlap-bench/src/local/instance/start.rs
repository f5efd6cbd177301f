//! Starts a server, waits until it responds, and verifies it against its contract.

use std::time::{Duration, Instant};

use hotlap_load::plan::{Protocol, Target};
use hotlap_servers::catalogue;
use hotlap_servers::contract::{Exchange, Response};
use hotlap_servers::infer;
use hotlap_servers::launch::{NamedFile, ServerFailure};
use hotlap_servers::verify::{Check, Findings, LIMIT, PAUSE, Verifier, ask, verify};

use super::{Instance, SEE_LOG};
use crate::participant::{Origin, Role, Starter};
use crate::runner::Ready;

/// Verifications that take longer than this are reported, because the budget does not include them.
/// The value is a convention.
const LONG_VERIFICATION: Duration = Duration::from_secs(20);

impl Instance {
    /// The files that the server's command names on this machine. Empty if a command prepares each
    /// start, because that command may build the files.
    fn files(&self) -> Vec<NamedFile> {
        let is_here = self.run.setting.host.is_here();
        match &self.participant.start {
            Origin::Launch(launch) if is_here && launch.prepare.is_none() => launch.files(),
            _ => Vec::new(),
        }
    }

    /// Returns a note if one of these files is not the same as at the first start.
    fn replaced(&mut self, files: Vec<NamedFile>) -> Option<String> {
        let first = self.files.get_or_insert_with(|| files.clone());
        let other = files.into_iter().find(|file| !first.contains(file))?;
        Some(format!(
            "{} was replaced during the run, so restarts possibly measured different programs: \
             repeat the run",
            other.path.display()
        ))
    }

    /// Starts the server and waits until it responds. If the server is already running, finds the
    /// processes to measure. With `observes`, instruments can be used on the server.
    pub fn start(&mut self, observes: bool) -> Result<(), ServerFailure> {
        self.observes = observes;
        let setting = &self.run.setting;
        let starter = Starter {
            host: &*setting.host,
            cores: &setting.cores,
            limit: setting.start_limit,
            protocol: self.run.protocol(),
            counters: setting.counters,
            observes,
            stop: &self.run.stop,
        };
        let files = self.files();
        let started = starter.start(self.number, &self.participant)?;
        let replaced = self.replaced(files);
        self.notes.extend(replaced);
        (self.server, self.host) = (started.server, started.host);
        self.target = Some(started.target);
        (self.fixed_port, self.ready) = (started.fixed_port, started.ready);
        self.notes.extend(started.notes);
        self.uncounted = started.uncounted.or(self.uncounted.take());
        Ok(())
    }

    /// Returns what to report about a server that has been verified.
    pub fn ready(&mut self) -> Ready {
        let memory = self.server.as_mut().and_then(|server| server.resident());
        Ready {
            ready_ms: self.ready.map(|ready| ready.as_secs_f64() * 1e3),
            conformance: self.conformance,
            database_work: std::mem::take(&mut self.database_work),
            notes: std::mem::take(&mut self.notes),
            rss_bytes: memory.map(|memory| memory.rss_bytes),
        }
    }

    /// Verifies the control. The control runs the reference's program, which is verified in full,
    /// so only the responses to the contract's requests are checked.
    fn as_the_reference(&mut self, target: &Target, limit: Duration) -> Result<(), ServerFailure> {
        let contract = self.participant.contract.with_values(0);
        let ask = |exchange| ask(target, &self.host, limit, exchange, &self.run.stop);
        let responses: Result<Vec<Response>, String> = contract.exchanges.iter().map(ask).collect();
        let responses = responses.map_err(|what| self.failure("verify", what, SEE_LOG))?;
        self.requests = self.participant.contract.requests(&self.host, &responses);
        Ok(())
    }

    /// Verifies a server after a later start: its responses must still be correct. A request that
    /// the user defined is sent again only if it is safe to repeat.
    fn examine_again(&self, target: &Target, limit: Duration) -> Result<(), ServerFailure> {
        let is_custom = self.participant.contract.is_custom();
        let tries = self.participant.requirements.tries();
        let contract = self.participant.contract.with_values(0);
        for exchange in
            contract.exchanges.iter().filter(|exchange| !is_custom || exchange.is_safe())
        {
            let mut asked = ask(target, &self.host, limit, exchange, &self.run.stop);
            for _ in 1..tries {
                asked = asked.or_else(|_| ask(target, &self.host, limit, exchange, &self.run.stop));
            }
            if let Err(what) = asked {
                let cause = format!("{}: {what}", exchange.name);
                return Err(self.failure(
                    "verify",
                    cause,
                    "the response was correct after an earlier start: look for the reason in the \
                     server's log",
                ));
            }
        }
        Ok(())
    }

    /// Verifies a server against its contract. The first verification is usually in full, over the
    /// protocols of all loads. Later verifications only check the responses to the contract's
    /// requests.
    pub fn examine(&mut self) -> Result<(), ServerFailure> {
        let limit = self.run.setting.timeout.max(LIMIT);
        self.conformance = (0, 0);
        let began = Instant::now();
        if self.target.is_none() {
            // The process was replaced, but the new process failed to start next to other servers.
            self.start(self.observes)?;
        }
        let target = self.target.clone();
        let target = target
            .ok_or_else(|| self.failure("verify", "the server is not running".to_owned(), ""))?;
        let contract = &self.participant.contract;
        if contract.fields.order.is_some() {
            // A recording defines the correct status of each response. A few of its many requests
            // may get another status by now, so nothing is verified here. Under load, such a
            // response counts as wrong.
            self.requests = contract.unverified_requests(&self.host);
            return Ok(());
        }
        if self.verified {
            return self.examine_again(&target, limit);
        }
        if self.participant.role == Role::Control && !self.participant.contract.is_custom() {
            return self.as_the_reference(&target, limit);
        }
        let mut notes = Vec::new();
        if self.participant.contract.is_custom() {
            let inferred = infer::infer(
                &target,
                &self.host,
                limit,
                &self.participant.contract,
                &self.run.stop,
            )
            .map_err(|what| {
                self.failure("verify", what, "send the request with curl to see the response")
            })?;
            notes.extend(inferred.notes);
            self.participant.contract = inferred.contract;
            if !self.participant.contract.exchanges.iter().all(Exchange::is_safe) {
                // Each check would send the unsafe request again.
                self.requests = self.participant.contract.requests(&self.host, &inferred.responses);
                self.notes.extend(notes);
                return Ok(());
            }
        }
        let report = self.verified_over(&target, limit)?;
        let others: Vec<Protocol> = self.run.other_protocols().collect();
        for protocol in others {
            self.verified_over(&Target { protocol, ..target.clone() }, limit)?;
        }
        self.requests = report.requests(&self.participant.contract, &self.host);
        self.prove(&target)?;
        if began.elapsed() > LONG_VERIFICATION {
            notes.push(format!("verification took {:.0} s", began.elapsed().as_secs_f64()));
        }
        self.conformance = report.conformance_count();
        self.notes.extend(notes);
        match self.participant.start {
            Origin::Launch(_) => self.replace_process(limit),
            Origin::Running { .. } => Ok(()),
        }
    }

    /// Replaces the process that was verified in full, because garbage and broken connections leave
    /// traces in a process. A verified Node server cost 6% more than in its later starts, and
    /// sometimes 35% (docs/lab-notebook.md).
    fn replace_process(&mut self, limit: Duration) -> Result<(), ServerFailure> {
        let (ready, mut notes) = (self.ready, std::mem::take(&mut self.notes));
        notes.extend(self.stop(self.run.setting.grace));
        let started = self.start(self.observes);
        // The earlier start time is kept, because other servers may have started at the same time
        // as the new process.
        self.ready = ready;
        self.notes.retain(|note| !notes.contains(note));
        self.notes.splice(..0, notes);
        started?;
        match self.target.clone() {
            Some(target) => self.examine_again(&target, limit),
            None => Ok(()),
        }
    }

    /// Looks for the database that the server uses, unless it uses the run's database.
    pub fn find_database(&mut self) {
        let notes = self.server.as_mut().map(|server| server.find_database());
        self.notes.extend(notes.unwrap_or_default());
    }

    /// Verifies a server in full over the target's protocol.
    fn verified_over(&self, target: &Target, limit: Duration) -> Result<Findings, ServerFailure> {
        let findings = verify(&Verifier {
            target,
            host: &self.host,
            contract: &self.participant.contract.with_values(0),
            requirements: self.participant.requirements,
            rude: self.server.as_ref().is_some_and(|server| server.is_started()),
            limit,
            pause: PAUSE,
            stop: &self.run.stop,
        });
        if findings.passed() {
            return Ok(findings);
        }
        let protocol = catalogue::SpokenProtocol::of(target.protocol, target.tls.is_some());
        let over = match protocol {
            catalogue::SpokenProtocol::Http1 => String::new(),
            _ => format!("over {protocol}: "),
        };
        Err(self.refused(&over, findings.failures()))
    }

    /// Proves that the server queries its database as the contract demands. One protocol is enough,
    /// because the statements of a request do not depend on the protocol.
    fn prove(&mut self, target: &Target) -> Result<(), ServerFailure> {
        let Some(server) = &self.server else { return Ok(()) };
        let contract = &self.participant.contract;
        let proof = server.prove(contract, &self.requests, target, &self.run.stop);
        self.database_work = proof.work;
        match proof.checks.iter().all(|check| check.pass) {
            true => Ok(()),
            false => Err(self.refused("", proof.checks.iter().filter(|check| !check.pass))),
        }
    }

    /// Returns the failure of a server that did not pass these checks.
    fn refused<'a>(&self, over: &str, failed: impl Iterator<Item = &'a Check>) -> ServerFailure {
        let failures: Vec<String> = failed.map(ToString::to_string).collect();
        let cause = format!("{over}{}", failures.join("; "));
        self.failure("verify", cause, "`hotlap check` shows the server's responses")
    }
}
