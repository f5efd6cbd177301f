//! The address at which generators reach the servers of this machine.

use std::net::{IpAddr, Ipv4Addr};

use hotlap_servers::machine::{self, Network};

use super::Generators;
use super::error::GroupError;
use crate::generator::Door;
use crate::server::{door, reach};
use crate::together::{all, together};

impl Generators {
    /// Finds the first of this machine's addresses that all generators reach, or checks that they
    /// reach the given one. Loopback comes first: it is reached if all share this machine's
    /// network. Returns where servers shall listen, and the address.
    ///
    /// # Errors
    /// A generator is lost, or there is no such address: the cause and the remedy.
    pub fn find_network(&self, given: Option<IpAddr>) -> Result<(Network, IpAddr), String> {
        let own = machine::addresses();
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let addresses = match given {
            Some(given) => vec![given],
            None => std::iter::once(loopback).chain(own.iter().copied()).collect(),
        };
        let generators = self.ready().map_err(|e| e.to_string())?;
        let secret = reach::secret();
        let door = door::Door::open(secret.clone())
            .map_err(|e| format!("cannot listen for generators: {e}"))?;
        let asked = Door { addresses: addresses.clone(), port: door.port(), secret };
        let reached = all(together(&generators, |generator| generator.reaches(&asked)))
            .map_err(|e| GroupError::from(e).to_string())?;
        let found = addresses.iter().find(|ip| reached.iter().all(|own| own.contains(ip)));
        if let Some(found) = found {
            return Ok((Network::at(*found, own.contains(found)), *found));
        }
        let none = reached.iter().position(Vec::is_empty).unwrap_or(0);
        let who = generators[none].channel().command();
        let tried: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let tried = tried.join(", ");
        Err(format!(
            "{who}: while looking for the servers' address: this machine is not reached by all \
             generators at any one address (tried {tried}). Open its ports in the firewall between \
             the two, or name an address with --server-address"
        ))
    }
}
