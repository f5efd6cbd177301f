//! Short names for commands. For example, `haproxy -f /etc/x.cfg` is called `haproxy`. Two commands
//! that differ only in their arguments are called `app.js --json` and `app.js --log`.

/// The length up to which a command, such as `node app.js`, is its own name.
const SHORT: usize = 14;

/// Interpreters, which run the script that their arguments name.
const INTERPRETERS: [&str; 14] = [
    "node", "bun", "deno", "python", "ruby", "perl", "php", "java", "dotnet", "go", "cargo", "npm",
    "npx", "uv",
];

/// The parts of a command that a name can contain. Folders and the port are left out.
#[derive(Debug, PartialEq)]
struct Parts {
    program: String,
    /// The script that an interpreter runs.
    script: Option<String>,
    arguments: Vec<String>,
}

/// Returns a short name for each command, in order. Equal commands have equal names. A command
/// that no short name distinguishes from other commands keeps its full text.
pub fn names(commands: &[&str]) -> Vec<String> {
    let parts: Vec<Option<Parts>> = commands.iter().map(|command| Parts::of(command)).collect();
    let name = |place: usize| {
        let Some(own) = &parts[place] else { return commands[place].to_owned() };
        let is_other = |&other: &usize| commands[other] != commands[place];
        let others: Vec<&Parts> =
            (0..commands.len()).filter(is_other).filter_map(|i| parts[i].as_ref()).collect();
        own.name(&others).unwrap_or_else(|| commands[place].to_owned())
    };
    (0..commands.len()).map(name).collect()
}

impl Parts {
    /// Splits a command into its parts. Returns `None` if no short name can be derived.
    fn of(command: &str) -> Option<Self> {
        let is_setting =
            |word: &String| word == "env" || word.contains('=') && !word.starts_with('-');
        let words = shell_words::split(command).ok()?.into_iter().skip_while(is_setting);
        let mut words = without_port(words.collect()).into_iter().map(|word| file_name(&word));
        let program = words.next()?;
        let mut arguments: Vec<String> = words.collect();
        let is_interpreter = INTERPRETERS
            .contains(&program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'));
        let is_script = |word: &String| !word.starts_with('-') && word != "run";
        let script = arguments.iter().position(is_script).filter(|_| is_interpreter).map(|at| {
            let script = arguments[at].clone();
            arguments.drain(..=at);
            script
        });
        Some(Self { program, script, arguments })
    }

    /// Returns the whole command if it is short, or else the shortest form that differs from the
    /// forms of all other commands. `None` if no form differs.
    fn name(&self, others: &[&Self]) -> Option<String> {
        let differs = |form: &dyn Fn(&Self) -> String| {
            let own = form(self);
            others.iter().all(|other| form(other) != own).then_some(own)
        };
        let whole = |parts: &Self| parts.form(true, |_| true);
        if whole(self).chars().count() <= SHORT {
            return differs(&whole);
        }
        let base = |parts: &Self| parts.form(false, |_| false);
        let alike: Vec<&&Self> = others.iter().filter(|other| base(other) == base(self)).collect();
        let has = |parts: &Self, word: &str| parts.arguments.iter().any(|a| a == word);
        let is_own = |word: &str| !(has(self, word) && alike.iter().all(|other| has(other, word)));
        differs(&base)
            .or_else(|| differs(&|parts| parts.form(false, is_own)))
            .or_else(|| differs(&|parts| parts.form(true, is_own)))
            .or_else(|| differs(&whole))
    }

    /// Joins the script and the arguments that are kept. The program comes first if it is
    /// requested, or if it does not run a script.
    fn form(&self, has_program: bool, keeps: impl Fn(&str) -> bool) -> String {
        let program = Some(&self.program).filter(|_| has_program || self.script.is_none());
        let arguments = self.arguments.iter().filter(|word| keeps(word));
        let words = program.into_iter().chain(&self.script).chain(arguments);
        words.map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// Removes the words that contain the port, and an option directly before such a word.
fn without_port(words: Vec<String>) -> Vec<String> {
    let has_port = |word: &str| word.contains("$PORT") || word.contains("{port}");
    let is_kept = |(place, word): (usize, &String)| {
        let next = words.get(place + 1).filter(|_| word.starts_with('-') && !word.contains('='));
        !has_port(word) && !next.is_some_and(|next| has_port(next))
    };
    let kept = words.iter().enumerate().filter(|(place, word)| is_kept((*place, word)));
    kept.map(|(_, word)| word.clone()).collect()
}

/// Removes the folder of a file name from a word.
fn file_name(word: &str) -> String {
    let (option, value) = match word.split_once('=') {
        Some((option, value)) if option.starts_with('-') => (Some(option), value),
        _ => (None, word),
    };
    let is_path = value.contains('/') && !value.contains("://");
    let name = if is_path { value.trim_end_matches('/').rsplit('/').next() } else { None };
    let name = name.filter(|name| !name.is_empty()).unwrap_or(value);
    option.map_or_else(|| name.to_owned(), |option| format!("{option}={name}"))
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_long_command_is_called_by_its_program_or_script() {
        assert_eq!(
            names(&[
                "haproxy -f /etc/haproxy/x.cfg",
                "/usr/sbin/lighttpd -D -f /tmp/l.conf",
                "python3 -m http.server $PORT",
                "java -Xmx1g -jar target/app.jar --server.port=$PORT",
                "env NODE_ENV=production node src/main.js --port $PORT",
                "go run ./cmd/server -listen :$PORT -quiet",
                "./build/my-server --port={port}",
            ]),
            [
                "haproxy",
                "lighttpd",
                "http.server",
                "java app.jar",
                "node main.js",
                "server",
                "my-server"
            ]
        );
    }

    #[test]
    fn a_short_command_is_its_own_name() {
        assert_eq!(names(&["node app.js", "bun app.js"]), ["node app.js", "bun app.js"]);
        assert_eq!(names(&["./old --port $PORT", "./new"]), ["old", "new"]);
    }

    #[test]
    fn commands_that_differ_in_arguments_are_told_apart_by_them() {
        assert_eq!(
            names(&["node app.js --port $PORT --json", "node app.js --port $PORT --log"]),
            ["app.js --json", "app.js --log"]
        );
        assert_eq!(
            names(&["node server/app.js --verbose", "bun server/app.js --verbose"]),
            ["node app.js", "bun app.js"]
        );
        assert_eq!(
            names(&["nginx -c /etc/a.conf -g daemon", "nginx -c /etc/b.conf -g daemon"]),
            ["nginx a.conf", "nginx b.conf"]
        );
        assert_eq!(
            names(&["uvicorn app:app --loop asyncio", "uvicorn app:app --loop asyncio --reload"]),
            ["uvicorn", "uvicorn --reload"]
        );
    }

    #[test]
    fn commands_that_no_short_name_tells_apart_keep_their_text() {
        let texts = ["/one/long/path/to/server -a", "/another/long/path/to/server -a"];
        assert_eq!(names(&texts), texts);
        let same = ["node server.js --verbose", "node server.js --verbose"];
        assert_eq!(names(&same), ["server.js", "server.js"]);
        assert_eq!(names(&["echo 'open"]), ["echo 'open"]);
    }
}
