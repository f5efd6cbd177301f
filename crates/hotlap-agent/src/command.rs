//! The command that starts an agent, as the user typed it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The command that starts an agent on another host: `ssh bench2`, `ip netns exec ns1`,
/// `kubectl exec -i pod --`. It is split into words as a shell splits them, and `hotlap agent` is
/// appended unless it is there; after a path to a file called `hotlap`, only `agent`. Everything
/// else goes over the channel as data, so nothing needs to be quoted twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCommand {
    typed: String,
    argv: Vec<String>,
}

/// Why a command cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// It has no words.
    #[error("the command that starts an agent is empty: use for example 'ssh HOST'")]
    Empty,
    /// A quote is not closed.
    #[error("{0}: a quote is not closed")]
    Quotes(String),
}

/// The program, as it is called where it is installed.
const PROGRAM: &str = "hotlap";

/// Its command.
const AGENT: &str = "agent";

impl FromStr for AgentCommand {
    type Err = CommandError;

    fn from_str(typed: &str) -> Result<Self, CommandError> {
        let split = shell_words::split(typed);
        let mut argv = split.map_err(|_| CommandError::Quotes(typed.to_owned()))?;
        let last = argv.last().ok_or(CommandError::Empty)?;
        let is_program =
            |word: &str| Path::new(word).file_name().is_some_and(|name| name == PROGRAM);
        if !matches!(&argv[..], [.., program, last] if is_program(program) && last == AGENT) {
            // A host may be called hotlap, so its name alone is not a path.
            if !is_program(last) || !(last.contains('/') || argv.len() == 1) {
                argv.push(PROGRAM.to_owned());
            }
            argv.push(AGENT.to_owned());
        }
        Ok(Self { typed: typed.trim().to_owned(), argv })
    }
}

impl AgentCommand {
    /// The words of the whole command, `agent` included. There are at least two.
    pub fn argv(&self) -> &[String] {
        &self.argv
    }

    /// What to do if the command ended with this exit code, and no agent answered: a sentence.
    pub(crate) fn remedy(&self, code: Option<i32>) -> String {
        let (started, host) =
            (&self.argv[..self.argv.len() - 1], &self.argv[..self.argv.len() - 2]);
        let has_path = started.last().is_some_and(|program| program != PROGRAM);
        let by_hand = format!("'{} --version'", shell_words::join(started));
        match code {
            // ssh(1), EXIT STATUS: 255 if an error occurred, else that of the remote command.
            Some(255) => format!("Check the connection: run {by_hand} in a terminal"),
            _ if has_path => format!("Is hotlap installed there? Check it with {by_hand}"),
            _ => format!(
                "Is hotlap installed there and in the PATH? Otherwise name its path: '{} \
                 /path/to/hotlap'",
                shell_words::join(host)
            ),
        }
    }
}

/// As typed.
impl fmt::Display for AgentCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(typed: &str) -> Vec<String> {
        typed.parse::<AgentCommand>().expect("a command").argv
    }

    #[test]
    fn the_program_and_its_command_are_appended() {
        assert_eq!(argv("ssh bench2"), ["ssh", "bench2", "hotlap", "agent"]);
        assert_eq!(
            argv("kubectl exec -i pod --"),
            ["kubectl", "exec", "-i", "pod", "--", "hotlap", "agent"]
        );
        assert_eq!(
            argv("sh -c 'exec \"$@\"' 'a b'"),
            ["sh", "-c", "exec \"$@\"", "a b", "hotlap", "agent"]
        );
    }

    #[test]
    fn a_path_to_the_program_replaces_its_name() {
        assert_eq!(argv("ssh bench2 /opt/hotlap"), ["ssh", "bench2", "/opt/hotlap", "agent"]);
        assert_eq!(argv("./hotlap"), ["./hotlap", "agent"]);
        assert_eq!(argv("hotlap"), ["hotlap", "agent"]);
        assert_eq!(argv("ssh hotlap"), ["ssh", "hotlap", "hotlap", "agent"]);
        assert_eq!(argv("ssh bench2 hotlap agent"), ["ssh", "bench2", "hotlap", "agent"]);
        assert_eq!(argv("srun /opt/hotlap agent"), ["srun", "/opt/hotlap", "agent"]);
        assert_eq!(argv("ssh agent"), ["ssh", "agent", "hotlap", "agent"]);
        assert_eq!(argv("env /opt/hotlap.sh"), ["env", "/opt/hotlap.sh", "hotlap", "agent"]);
    }

    #[test]
    fn the_remedy_fits_the_exit_code_and_the_command() {
        let remedy = |typed: &str, code| typed.parse::<AgentCommand>().unwrap().remedy(code);
        let installed = "Is hotlap installed there and in the PATH? Otherwise name its path: 'ssh \
                         b /path/to/hotlap'";
        assert_eq!(remedy("ssh b", Some(127)), installed);
        assert_eq!(remedy("ssh b", None), installed);
        assert_eq!(remedy("ssh b hotlap agent", None), installed);
        assert_eq!(
            remedy("ssh b /opt/hotlap", Some(127)),
            "Is hotlap installed there? Check it with 'ssh b /opt/hotlap --version'"
        );
        assert_eq!(
            remedy("ssh b", Some(255)),
            "Check the connection: run 'ssh b hotlap --version' in a terminal"
        );
        assert_eq!(
            remedy("ssh b /opt/hotlap", Some(255)),
            "Check the connection: run 'ssh b /opt/hotlap --version' in a terminal"
        );
    }

    #[test]
    fn a_command_without_words_or_with_an_open_quote_is_an_error() {
        assert_eq!(" ".parse::<AgentCommand>(), Err(CommandError::Empty));
        let error = "ssh 'a".parse::<AgentCommand>().expect_err("an open quote");
        assert_eq!(error.to_string(), "ssh 'a: a quote is not closed");
    }
}
