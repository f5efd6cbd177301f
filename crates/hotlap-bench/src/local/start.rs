//! Starts a server, waits until it answers, and verifies it against its contract.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use hotlap_load::http::Response;
use hotlap_load::plan::{Protocol, Target};

use super::LocalRunner;
use super::instance::Instance;
use crate::participant::{Load, Origin, Participant, Role};
use crate::runner::Ready;
use hotlap_servers::contract::Exchange;
use hotlap_servers::failure::ServerFailure;
use hotlap_servers::infer;
use hotlap_servers::manifest;
use hotlap_servers::running::StartOrder;
use hotlap_servers::start::{HOST, ask};
use hotlap_servers::verify::{Findings, LIMIT, PAUSE, Verifier, verify};

/// Longer verifications are reported, since the budget does not include them. A convention.
const LONG_VERIFICATION: Duration = Duration::from_secs(20);

impl Instance {
    /// Verifies the control. It is the reference's program, which is verified in full, so only the
    /// responses to the load's requests are checked.
    fn as_the_reference(
        &mut self,
        target: &Target,
        limit: Duration,
    ) -> Result<Examined, ServerFailure> {
        let exchanges = &self.participant.contract.exchanges;
        let ask = |exchange| ask(target, &self.host, limit, exchange);
        let answers: Result<Vec<Response>, String> = exchanges.iter().map(ask).collect();
        let answers = answers.map_err(|what| self.out("verify", what, "see its last log lines"))?;
        self.requests = self.participant.contract.requests(&self.host, &answers);
        Ok(Examined::default())
    }

    /// Verifies a server after a later start: its responses must still be right. A request that is
    /// not safe to repeat is not sent again.
    fn examine_again(&self, target: &Target, limit: Duration) -> Result<Examined, ServerFailure> {
        let is_custom = self.participant.contract.name.is_none();
        let tries = self.participant.requirements.tries();
        let contract = self.participant.contract.with_values(0);
        for exchange in
            contract.exchanges.iter().filter(|exchange| !is_custom || exchange.is_safe())
        {
            let mut asked = ask(target, &self.host, limit, exchange);
            for _ in 1..tries {
                asked = asked.or_else(|_| ask(target, &self.host, limit, exchange));
            }
            if let Err(what) = asked {
                let cause = format!("{}: {what}", exchange.name);
                return Err(self.out(
                    "verify",
                    cause,
                    "its response was correct after an earlier start; see its last log lines",
                ));
            }
        }
        Ok(Examined::default())
    }

    /// Verifies a server against its contract: in full the first time, over its target's protocol
    /// and `others`; later only the requests of the load. `limit` is the time limit for one
    /// response.
    fn examine(&mut self, limit: Duration, others: &[Protocol]) -> Result<Examined, ServerFailure> {
        let began = Instant::now();
        let target = self.target.clone();
        let target =
            target.ok_or_else(|| self.out("verify", "it is not running".to_owned(), ""))?;
        let contract = &self.participant.contract;
        if contract.fields.order.is_some() {
            // A recording says which status is right. It may have many paths, of which a few may
            // be answered otherwise by now, so nothing is learned, and wrong responses count.
            self.requests = contract.unverified_requests(&self.host);
            return Ok(Examined::default());
        }
        if self.verified {
            return self.examine_again(&target, limit);
        }
        if self.participant.role == Role::Control && self.participant.contract.name.is_some() {
            return self.as_the_reference(&target, limit);
        }
        let mut notes = Vec::new();
        if self.participant.contract.name.is_none() {
            let inferred = infer::infer(&target, &self.host, limit, &self.participant.contract)
                .map_err(|what| self.out("verify", what, "try it with curl"))?;
            notes.extend(inferred.notes);
            self.participant.contract = inferred.contract;
            if !self.participant.contract.exchanges.iter().all(Exchange::is_safe) {
                // Each check would send it again.
                self.requests = self.participant.contract.requests(&self.host, &inferred.answers);
                return Ok(Examined { notes, ..Examined::default() });
            }
        }
        let report = self.verified_over(&target, limit)?;
        for protocol in others {
            self.verified_over(&Target { protocol: *protocol, ..target.clone() }, limit)?;
        }
        self.requests = report.requests(&self.participant.contract, &self.host);
        if began.elapsed() > LONG_VERIFICATION {
            notes.push(format!("verification took {:.0} s", began.elapsed().as_secs_f64()));
        }
        Ok(Examined { conformance: report.conformance_count(), notes })
    }

    /// Verifies a server in full over a target's protocol.
    fn verified_over(&self, target: &Target, limit: Duration) -> Result<Findings, ServerFailure> {
        let findings = verify(&Verifier {
            target,
            host: &self.host,
            contract: &self.participant.contract.with_values(0),
            requirements: self.participant.requirements,
            rude: self.server.as_ref().is_some_and(|server| server.is_started()),
            limit,
            pause: PAUSE,
        });
        if findings.passed() {
            return Ok(findings);
        }
        let failures: Vec<String> = findings.failures().map(ToString::to_string).collect();
        let protocol = manifest::Protocol::of(target.protocol, target.tls.is_some());
        let over = match protocol {
            manifest::Protocol::Http1 => String::new(),
            _ => format!("over {protocol}: "),
        };
        let cause = format!("{over}{}", failures.join("; "));
        Err(self.out("verify", cause, "`hotlap check` shows its responses"))
    }
}

/// The result for a server that fulfils its contract.
#[derive(Debug, Default)]
struct Examined {
    conformance: (u32, u32),
    notes: Vec<String>,
}

impl LocalRunner {
    /// Starts a server and waits until it answers. For one that is already running, finds its
    /// process, which is measured.
    pub(super) fn boot(&mut self, participant: usize) -> Result<(), ServerFailure> {
        match self.instances[participant].participant.start.clone() {
            Origin::Running { target, host, .. } => {
                let protocol = self.spoken();
                let found = self.setting.host.find(&target, self.observes)?;
                let instance = &mut self.instances[participant];
                instance.server = found.server;
                instance.notes.extend(found.notes);
                (instance.target, instance.host) = (Some(Target { protocol, ..target }), host);
                Ok(())
            }
            Origin::Launch(launch) => self.launch(participant, &launch),
        }
    }

    /// The protocols of the loads, besides the one in which servers are started.
    fn others(&self) -> Vec<Protocol> {
        let has = |protocol: &Protocol| self.loads.iter().any(|load| load.protocol == *protocol);
        let spoken = self.spoken();
        let others = [Protocol::Http1, Protocol::Http2].into_iter().filter(|p| *p != spoken);
        others.filter(has).collect()
    }

    /// The protocol in which servers are started: that of the loads, or HTTP/1.1 if they differ.
    fn spoken(&self) -> Protocol {
        let is_http2 = |load: &Load| load.protocol == Protocol::Http2;
        if self.loads.iter().all(is_http2) { Protocol::Http2 } else { Protocol::Http1 }
    }

    fn launch(
        &mut self,
        participant: usize,
        launch: &hotlap_servers::launch::Launch,
    ) -> Result<(), ServerFailure> {
        let Participant { counts, requirements, contract, cpus, .. } =
            &self.instances[participant].participant;
        let (cpus, cores) = self.setting.cores.of_server(*cpus);
        let order = StartOrder {
            number: participant,
            launch: launch.clone(),
            counts: counts.clone(),
            requirements: *requirements,
            first: contract.with_values(0).exchanges[0].clone(),
            protocol: self.spoken(),
            cpus,
            cores: cores.to_vec(),
            all_cores: match self.setting.host.is_here() {
                true => self.setting.cores.all(),
                false => cores.to_vec(),
            },
            limit: self.setting.start_limit,
            counters: self.setting.counters,
            observes: self.observes,
        };
        let up = self.setting.host.start(&order, &self.stop)?;
        let instance = &mut self.instances[participant];
        instance.host = HOST.to_owned();
        instance.server = Some(up.server);
        instance.target = Some(up.target);
        instance.ready = Some(up.ready);
        instance.notes = up.notes;
        if up.uncounted.is_some() {
            instance.uncounted = up.uncounted;
        }
        Ok(())
    }

    /// Verifies started servers, all at the same time. One that fails is verified again alone: it
    /// may only have had too little CPU time.
    pub(super) fn verify_some(
        &mut self,
        participants: &[usize],
    ) -> Vec<Result<Ready, ServerFailure>> {
        let limit = self.setting.timeout.max(LIMIT);
        let others = self.others();
        let examine = |instance: &mut Instance| {
            instance.thaw();
            instance.examine(limit, &others)
        };
        let mut examined: BTreeMap<usize, Result<Examined, ServerFailure>> =
            thread::scope(|scope| {
                let instances =
                    self.instances.iter_mut().enumerate().filter(|(n, _)| participants.contains(n));
                let threads: Vec<_> = instances
                    .map(|(n, instance)| (n, scope.spawn(move || examine(instance))))
                    .collect();
                let join = |t: thread::ScopedJoinHandle<'_, _>| {
                    t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                };
                threads.into_iter().map(|(n, thread)| (n, join(thread))).collect()
            });
        participants.iter().for_each(|&n| self.freeze(n));
        let mut ready = Vec::new();
        for &participant in participants {
            let instance = &mut self.instances[participant];
            let beside = examined.remove(&participant).filter(|beside| {
                let is_final = participants.len() == 1 || self.stop.load(Ordering::Relaxed);
                beside.is_ok() || is_final
            });
            let result = beside.unwrap_or_else(|| examine(instance));
            let result = result.or_else(|failure| {
                instance.still_there("verify")?;
                Err(failure)
            });
            match result {
                Err(_) => _ = instance.stop(Duration::ZERO),
                Ok(_) => self.freeze(participant),
            }
            ready.push(result.map(|examined| self.ready(participant, examined)));
        }
        ready
    }

    /// What to report of a verified server. A pair with different responses is reported once, when
    /// the later of the two is verified.
    fn ready(&mut self, participant: usize, examined: Examined) -> Ready {
        let instance = &mut self.instances[participant];
        let mut notes = std::mem::take(&mut instance.notes);
        notes.extend(examined.notes);
        let is_new = !std::mem::replace(&mut instance.verified, true);
        let memory = instance.server.as_mut().and_then(|server| server.resident());
        let rss_bytes = memory.map(|memory| memory.rss_bytes);
        let ready_ms = instance.ready.map(|ready| ready.as_secs_f64() * 1e3);
        if is_new {
            notes.extend(self.differences(participant));
        }
        Ready { ready_ms, conformance: examined.conformance, notes, rss_bytes }
    }

    /// Notes on responses that differ from those of the servers that it is compared with.
    fn differences(&self, participant: usize) -> Vec<String> {
        let is_reference = |instance: &Instance| instance.participant.role == Role::Reference;
        let reference = self.instances.iter().position(is_reference);
        let against = |n: usize| self.setting.against.get(&n).copied().or(reference);
        let is_told = |n: usize| {
            let role = self.instances[n].participant.role;
            self.instances[n].verified && matches!(role, Role::Reference | Role::Plain)
        };
        if !is_told(participant) {
            return Vec::new();
        }
        let own = &self.instances[participant].participant.contract;
        let is_pair =
            |n: &usize| against(participant) == Some(*n) || against(*n) == Some(participant);
        (0..self.instances.len())
            .filter(|n| *n != participant && is_told(*n) && is_pair(n))
            .map(|n| &self.instances[n].participant)
            .filter_map(|other| infer::difference(own, (&other.name, &other.contract)))
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
    use crate::load_host::ThisProcess;
    use crate::participant::Participant;
    use hotlap_servers::allocation::CpuAllocation;
    use hotlap_servers::contract::{Content, Contract, Name};
    use hotlap_servers::launch::Launch;
    use hotlap_servers::network::Network;
    use hotlap_servers::process::Supervisor;
    use hotlap_servers::running::LocalHost;
    use hotlap_servers::verify::Requirements;

    /// Regression: a step with the same response as the one below was said to do different work
    /// than the first.
    #[test]
    fn the_work_of_a_step_is_compared_with_the_step_below() {
        let participant = |name: &str, body: &[u8]| {
            let mut contract = Contract::of(Name::Hello, None);
            contract.exchanges[0].content = Content::exactly(body);
            let launch = Launch::default();
            Participant {
                name: name.to_owned(),
                role: if name == "a" { Role::Reference } else { Role::Plain },
                start: Origin::Launch(launch),
                contract,
                requirements: Requirements::Custom,
                version: String::new(),
                counts: None,
                cpus: None,
            }
        };
        let participants =
            [participant("a", b"text"), participant("b", b"json"), participant("c", b"json")];
        let told = |against: BTreeMap<usize, usize>| -> Vec<usize> {
            let setting = Setting {
                slice: None,
                probe_limit: Duration::ZERO,
                timeout: Duration::ZERO,
                start_limit: Duration::ZERO,
                level_for: Duration::ZERO,
                warm_limit: Duration::ZERO,
                grace: Duration::ZERO,
                freeze: true,
                counters: false,
                cores: CpuAllocation {
                    server: vec![],
                    generator: vec![],
                    shared: true,
                    notes: vec![],
                },
                host: Arc::new(LocalHost {
                    supervisor: Supervisor::new("/none", &[]),
                    logs: PathBuf::new(),
                    network: Network::loopback(),
                }),
                generator: Arc::new(ThisProcess),
                against,
            };
            let mut live =
                LocalRunner::new(setting, &participants, &[], Arc::new(AtomicBool::new(false)));
            let differences = |n: usize| {
                live.instances[n].verified = true;
                live.differences(n).len()
            };
            (0..3).map(differences).collect()
        };
        assert_eq!(told(BTreeMap::new()), [0, 1, 1]);
        assert_eq!(told(BTreeMap::from([(1, 0), (2, 1)])), [0, 1, 0]);
    }
}
