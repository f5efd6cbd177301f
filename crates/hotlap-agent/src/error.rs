//! The errors of a channel to an agent.

use std::time::Duration;

use crate::message::Hello;

pub(crate) const CONNECTING: &str = "connecting";

/// Why an agent cannot be used. The message names the command, the step that failed, the cause and
/// usually a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{command}: while {phase}: {fault}{}", hint(.phase, .fault))]
pub struct ChannelError {
    /// The command that started the agent, as typed.
    pub command: String,
    /// The step that failed: `connecting`, `starting the load`.
    pub phase: String,
    /// What went wrong.
    pub fault: ChannelFault,
}

/// What went wrong with an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelFault {
    /// The command cannot be started.
    #[error("cannot start {program}: {why}")]
    Start {
        /// The command's first word.
        program: String,
        /// The system's error.
        why: String,
    },
    /// The command ended or wrote something else before an agent answered.
    #[error("no agent answered{}. {remedy}", quoted(.said))]
    NoAgent {
        /// What the command printed. May be empty.
        said: String,
        /// What to do, as a sentence.
        remedy: String,
    },
    /// The version of the agent differs from the version of this program.
    #[error(
        "the agent on {} is hotlap {} (protocol {}), but this is hotlap {} (protocol {}): install \
         the same version on both hosts",
        .theirs.host, .theirs.version, .theirs.protocol, .ours.version, .ours.protocol
    )]
    Mismatch {
        /// The hello of the agent.
        theirs: Box<Hello>,
        /// The hello of this program.
        ours: Box<Hello>,
    },
    /// The agent or the connection to it ended.
    #[error(
        "the agent ended or lost its connection{}. Check that its host and the connection are up, \
         and try again",
        quoted(.said)
    )]
    Ended {
        /// The end of what the command printed to standard error. May be empty.
        said: String,
    },
    /// Nothing has arrived from the agent for too long.
    #[error(
        "the agent has sent nothing for {0:?}. Check that its host is up and not overloaded, \
         and try again"
    )]
    Silent(Duration),
    /// The agent took too long to answer.
    #[error(
        "the agent did not answer within {limit:?}{}. Check that the host is up and not \
         overloaded",
        quoted(.said)
    )]
    Late {
        /// How long the controller waited.
        limit: Duration,
        /// The end of what the command printed to standard error. May be empty.
        said: String,
    },
    /// The agent answered, but its load was not done within the limit.
    #[error(
        "the load took longer than {0:?}. Check that the host is not overloaded, and that the \
         host can reach the server"
    )]
    Unfinished(Duration),
    /// The agent could not carry out an order, or the order is too long to send.
    #[error("{0}")]
    Refused(String),
    /// The user interrupted while the controller waited for the answer.
    #[error("interrupted")]
    Interrupted,
    /// A message from the agent cannot be understood, or is too long.
    #[error("{0}")]
    Malformed(String),
}

/// Quotes what a command printed, as a separate sentence.
fn quoted(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(MAX_LINES)..];
    let last = last.join(" / ");
    if last.is_empty() { String::new() } else { format!(". The command printed \"{last}\"") }
}

/// Returns what else to check if no answer came. Only a command that is connecting may ask for a
/// password.
fn hint(phase: &str, fault: &ChannelFault) -> &'static str {
    match fault {
        ChannelFault::Late { .. } if phase == CONNECTING => {
            ", and that the command does not ask for a password"
        }
        _ => "",
    }
}

/// How many lines are quoted, counted from the last one.
const MAX_LINES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::AgentRole;

    fn message(fault: ChannelFault) -> String {
        let (command, phase) = ("ssh b".to_owned(), "connecting".to_owned());
        ChannelError { command, phase, fault }.to_string()
    }

    #[test]
    fn a_message_names_command_phase_cause_and_remedy() {
        let said = "bash: hotlap: command not found\n\n".to_owned();
        assert_eq!(
            message(ChannelFault::NoAgent { said, remedy: "Install it".to_owned() }),
            "ssh b: while connecting: no agent answered. The command printed \"bash: hotlap: \
             command not found\". Install it"
        );
        assert_eq!(
            message(ChannelFault::Late { limit: Duration::from_secs(30), said: String::new() }),
            "ssh b: while connecting: the agent did not answer within 30s. Check that the host is \
             up and not overloaded, and that the command does not ask for a password"
        );
        let ours = Hello {
            protocol: 1,
            version: "0.1.0".to_owned(),
            host: "a".to_owned(),
            role: AgentRole::Generator,
        };
        let theirs = Hello { version: "0.2.0".to_owned(), host: "b".to_owned(), ..ours.clone() };
        assert_eq!(
            message(ChannelFault::Mismatch { theirs: theirs.into(), ours: ours.into() }),
            "ssh b: while connecting: the agent on b is hotlap 0.2.0 (protocol 1), but this is \
             hotlap 0.1.0 (protocol 1): install the same version on both hosts"
        );
    }

    #[test]
    fn only_the_last_lines_are_quoted() {
        let said = (1..=9).map(|n| format!("line {n}\n")).collect();
        assert_eq!(
            ChannelFault::Ended { said }.to_string(),
            "the agent ended or lost its connection. The command printed \"line 5 / line 6 / \
             line 7 / line 8 / line 9\". Check that its host and the connection are up, and try \
             again"
        );
    }
}
