//! Tests that documents state what the program does. Their commands exist, and generated parts are
//! up to date. `UPDATE_DOCUMENTS=1 cargo test -p hotlap --test documents` updates these parts.

use crate::catalogue;
use crate::example;
use std::fs;
use std::path::{Path, PathBuf};

use crate::scene::{hold, stressed, three};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use hotlap::cli::Cli;
use hotlap::model::{PlantedDifference, PowerCertificate, Question};
use hotlap::render::{Format, render};
use hotlap::report::Report;
use hotlap_servers::catalogue::Catalogue;
use hotlap_servers::requests_file;
use hotlap_testkit::Scene;
use schemars::generate::SchemaSettings;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

fn help(command: &str) -> String {
    let help = Scene::new().hotlap(command).arg("--help").env("COLUMNS", "80");
    help.said().succeeds().out
}

/// Returns the long options in a text.
fn options(text: &str) -> Vec<String> {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.split(|c: char| !word(c))
        .filter(|w| w.starts_with("--") && w.len() > 3)
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn the_action_passes_options_that_there_are() {
    let action = read("action.yml");
    let (run, line) = (help("run"), action.split("hotlap run").nth(1).unwrap());
    let line = line.split("|| code").next().unwrap();
    assert!(options(line).len() >= 5, "{line}");
    for option in options(line) {
        assert!(run.contains(&option), "hotlap run has no {option}");
    }
}

#[test]
fn the_example_workflow_gives_the_action_its_inputs() {
    let (action, example) = (read("action.yml"), read("docs/pull-request.yml"));
    let with = example.split("id: hotlap").nth(1).unwrap().split("- uses").next().unwrap();
    let key = |line: &str| Some(line.strip_prefix("          ")?.split_once(':')?.0.to_owned());
    let inputs: Vec<String> = with.lines().filter_map(key).filter(|k| !k.contains(' ')).collect();
    assert_eq!(inputs, ["base", "head", "path", "fail-if"]);
    for input in inputs {
        assert!(action.contains(&format!("\n  {input}:\n")), "action.yml has no input {input}");
    }
}

#[test]
fn the_page_about_ci_shows_a_certificate() {
    let planted = [(1, 1.008, 8), (3, 1.028, 18), (10, 1.096, 18)];
    let planted = planted.map(|(percent, ratio, found)| {
        let ratio = Some(ratio);
        PlantedDifference { percent, ratio, found }
    });
    let certificate = PowerCertificate {
        made_ms: 0,
        hotlap: String::new(),
        pair_s: 10.0,
        trials: 20,
        false_alarms: 0,
        planted: planted.to_vec(),
        smallest: Some(0.024),
        noise: Some(0.009),
    };
    let page = read("docs/ci.md");
    let shown = page.split("<!-- certificate -->").nth(1).unwrap().split("<!--").next().unwrap();
    let shown: Vec<&str> = shown.trim().lines().map(str::trim).collect();
    assert_eq!(shown, certificate.lines());
}

#[test]
fn the_man_page_is_up_to_date() {
    is_up_to_date("docs/hotlap.1", &man_page());
}

#[test]
fn the_schema_of_the_report_is_up_to_date() {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<Report>();
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    is_up_to_date("schemas/report.schema.json", &text);
}

#[test]
fn the_schema_of_requests_files_is_up_to_date() {
    let settings = SchemaSettings::draft2020_12();
    let schema = settings.into_generator().into_root_schema_for::<requests_file::Document>();
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    is_up_to_date("schemas/requests.schema.json", &text);
}

#[test]
fn the_page_about_requests_has_a_valid_file() {
    let page = read("docs/requests.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (file, _) = rest.split_once("```").unwrap();
    let requests = requests_file::parse(file, Path::new("/none")).unwrap();
    assert_eq!((requests.asks.len(), requests.fields.list.len()), (2, 2));
    for field in page.lines().filter_map(|line| line.strip_prefix("| `{ ")) {
        let (source, _) = field.split_once(" }`").unwrap();
        let file = format!("[[request]]\npath = \"/\"\n[fields]\nx = {{ {source} }}\n");
        let parsed = requests_file::parse(&file, Path::new("/none"));
        let missing = |what: &str| what.contains("cannot read /none/users.txt");
        assert!(parsed.is_ok() || parsed.is_err_and(|(_, what)| missing(&what)), "{source}");
    }
}

#[test]
fn the_json_is_as_its_schema_says() {
    let schema: Value = serde_json::from_str(&read("schemas/report.schema.json")).unwrap();
    let mut layers = three();
    (layers.question, layers.experiment.paced) = (Question::Layers, true);
    layers.scripts[1].dies_at = Some(9);
    for scene in [three(), layers] {
        let mut run = hold(&scene, None).run;
        run.stress = vec![stressed("go/net-http")];
        let text = render(&Report::of(&run), Format::Json);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert!(report["laps"].as_array().unwrap().len() > 60);
        conforms(&report, &schema, &schema, "report").unwrap();
        for (name, wrong) in [("server", Value::Null), ("unheard_of", Value::from(1))] {
            let mut report = report.clone();
            report["laps"][0][name] = wrong;
            let why = conforms(&report, &schema, &schema, "report").unwrap_err();
            assert!(why.starts_with("report.laps[0]"), "{why}");
        }
    }
}

/// Checks that a value conforms to the schema and has no property that the schema does not name.
/// The function knows only the keywords that the schema uses. Any other keyword is an error.
fn conforms(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), String> {
    let type_of = |name: &Value| match name.as_str().unwrap_or_default() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => false,
    };
    let members = value.as_object().into_iter().flatten();
    let items: &[Value] = value.as_array().map_or(&[], Vec::as_slice);
    for (keyword, told) in schema.as_object().unwrap() {
        let one = || std::slice::from_ref(told).iter();
        let mut each = told.as_array().map_or_else(one, |all| all.iter());
        let is_kept = match keyword.as_str() {
            "$ref" => {
                let target = root.pointer(&told.as_str().unwrap()[1..]).unwrap();
                conforms(value, target, root, at)?;
                true
            }
            "anyOf" | "oneOf" => each.any(|choice| {
                let choice = with_properties(choice.clone(), schema);
                conforms(value, &choice, root, at).is_ok()
            }),
            // These properties are checked together with the properties of each choice.
            "properties" if schema.get("oneOf").is_some() => true,
            "type" => each.any(type_of),
            "enum" => each.any(|word| word == value),
            "const" => told == value,
            "required" => each.all(|name| value.get(name.as_str().unwrap()).is_some()),
            "minimum" => value.as_f64().is_none_or(|number| number >= told.as_f64().unwrap()),
            "minItems" => items.len() as u64 >= told.as_u64().unwrap(),
            "maxItems" => items.len() as u64 <= told.as_u64().unwrap(),
            "properties" => {
                for (name, value) in members.clone() {
                    let property = told.get(name).ok_or(format!("{at}: {name} is not named"))?;
                    conforms(value, property, root, &format!("{at}.{name}"))?;
                }
                true
            }
            "prefixItems" | "items" => {
                for (index, item) in items.iter().enumerate() {
                    let own = if keyword == "items" { Some(told) } else { told.get(index) };
                    conforms(item, own.unwrap(), root, &format!("{at}[{index}]"))?;
                }
                true
            }
            "additionalProperties" => *told == Value::Bool(true),
            "$schema" | "$defs" | "title" | "description" | "format" | "default" => true,
            _ => false,
        };
        if !is_kept {
            return Err(format!("{at}: {value} is not as {keyword} says: {told}"));
        }
    }
    Ok(())
}

/// Returns a choice of a schema, with the properties that all choices have.
fn with_properties(mut choice: Value, schema: &Value) -> Value {
    if let Some(common) = schema["properties"].as_object() {
        let own = choice["properties"].as_object_mut().expect("an object, like its siblings");
        own.extend(common.clone());
    }
    choice
}

#[test]
fn the_man_page_has_every_command_and_option() {
    let page = read("docs/hotlap.1").replace("\\-", "-");
    let top = help("");
    let commands = top.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let name = |line: &str| Some(line.strip_prefix("  ")?.split_whitespace().next()?.to_owned());
    let commands = commands.lines().filter(|l| !l.starts_with("   ")).filter_map(name);
    // `hotlap help COMMAND` is the same as `hotlap COMMAND --help`, and has no separate help.
    for command in commands.filter(|command| command != "help") {
        assert!(page.contains(&format!(".SH \"HOTLAP {}\"", command.to_uppercase())), "{command}");
        // Examples may show options of other programs.
        let help = help(&command);
        for option in options(help.split("Examples:").next().unwrap()) {
            assert!(page.contains(&option), "{command}: no {option}");
        }
    }
}

#[test]
fn the_page_of_the_catalogue_is_up_to_date() {
    let catalogue = Catalogue::open(&root().join("servers")).unwrap();
    is_up_to_date("docs/catalogue.md", &catalogue::page(&catalogue));
}

/// With `HOTLAP_EXAMPLE=STORE UPDATE_DOCUMENTS=1`, README shows the last run of this store from
/// then on.
#[test]
fn readme_shows_what_hotlap_prints() {
    if let Some(store) = std::env::var_os("HOTLAP_EXAMPLE") {
        example::replace_by(Path::new(&store));
    }
    let printed = format!("```\n{}\n```\n", example::printed().trim_matches('\n'));
    is_up_to_date("README.md", &with_block(&read("README.md"), "example", &printed));
}

/// Returns the text with other content between `<!-- NAME -->` and `<!-- /NAME -->`.
fn with_block(text: &str, name: &str, content: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->\n"));
    let (before, rest) = text.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    format!("{before}{begin}{content}{end}{after}")
}

#[test]
fn commands_in_readme_are_understood() {
    let readme = read("README.md");
    let lines = readme.lines().filter_map(|line| line.strip_prefix("    hotlap "));
    let commands: Vec<&str> = lines.map(|line| line.split("  #").next().unwrap()).collect();
    assert!(commands.len() >= 3, "{commands:?}");
    for command in commands {
        let understood = parsed(command);
        assert!(understood.is_ok(), "hotlap {command}: {}", understood.unwrap_err());
    }
    // Within a sentence, a command may be incomplete.
    let is_fine =
        |kind| [ErrorKind::MissingRequiredArgument, ErrorKind::DisplayHelp].contains(&kind);
    for command in code(&readme).filter_map(|code| code.strip_prefix("hotlap ")) {
        if let Err(error) = parsed(command) {
            assert!(is_fine(error.kind()), "hotlap {command}: {error}");
        }
    }
}

/// Tests the commands in the pages of `docs`, in which a backslash continues a line.
#[test]
fn commands_in_pages_are_understood() {
    let pages = fs::read_dir(root().join("docs")).unwrap();
    let paths = pages.map(|page| page.unwrap().path());
    let mut commands = 0;
    for page in paths.filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(&page).unwrap().replace("\\\n", " ");
        for command in text.lines().filter_map(|line| line.strip_prefix("    hotlap ")) {
            let understood = parsed(command.split("  #").next().unwrap());
            assert!(understood.is_ok(), "{page:?}: hotlap {command}: {}", understood.unwrap_err());
            commands += 1;
        }
    }
    assert!(commands >= 20, "{commands}");
}

fn parsed(command: &str) -> Result<Cli, clap::Error> {
    let words = shell_words::split(command).unwrap();
    Cli::try_parse_from(std::iter::once("hotlap".to_owned()).chain(words))
}

/// Returns the text between backquotes in the sentences of a document.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let is_text = |line: &&str| !line.starts_with("    ") && !line.starts_with("```");
    text.lines().filter(is_text).flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn options_in_readme_exist() {
    let mut cli = Cli::command();
    cli.build();
    let every = cli.get_subcommands().flat_map(clap::Command::get_arguments);
    let known: Vec<String> =
        every.filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
    let readme = read("README.md");
    let named: Vec<String> = code(&readme)
        .filter(|code| !code.starts_with("cargo "))
        .flat_map(|code| options(code.split('=').next().unwrap()))
        .collect();
    assert!(!named.is_empty());
    for option in named {
        assert!(known.contains(&option), "README names {option}");
    }
}

#[test]
fn readme_is_short_and_has_what_a_fresh_machine_needs() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 130 && readme.split_whitespace().count() <= 950);
    let wide = readme.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None);
    for command in ["cargo run --release -- run", "cargo test --workspace"] {
        assert!(readme.replace('\n', " ").contains(command), "{command}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let pages = ["", "docs", "servers", "results"].into_iter().flat_map(|folder| {
        let files = fs::read_dir(root().join(folder)).unwrap();
        files.map(move |file| Path::new(folder).join(file.unwrap().file_name()))
    });
    for name in pages.filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let own = targets.filter(|target| !target.starts_with("http") && !target.is_empty());
        for target in own {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let page = root().join(&name);
            let path = if file.is_empty() { page } else { page.parent().unwrap().join(file) };
            let is_there = path.exists() && (anchor.is_empty() || has_anchor(&path, anchor));
            assert!(is_there, "{name:?} links to {target}");
        }
    }
}

/// Returns whether a page has a heading for which GitHub generates this anchor.
fn has_anchor(page: &Path, anchor: &str) -> bool {
    let text = fs::read_to_string(page).unwrap();
    let letters = |heading: &str| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
    };
    text.lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| letters(line.trim_start_matches('#')) == anchor)
}

/// Compares a generated file with the file in the repository, or overwrites the file in the
/// repository.
fn is_up_to_date(name: &str, generated: &str) {
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        std::fs::write(root().join(name), generated).unwrap();
    }
    assert!(
        read(name) == generated,
        "{name} is out of date: UPDATE_DOCUMENTS=1 cargo test -p hotlap --test documents"
    );
}

/// Returns the man page: the sections of hotlap itself, then a section for each command.
fn man_page() -> String {
    let mut top = Cli::command();
    top.build();
    let top = in_full(top);
    let about = top.get_about().unwrap().clone();
    let mut page = Vec::new();
    let own = top.clone().about("hyperfine for HTTP servers").long_about(about);
    // The page has no date. An empty date would be left out, and the next argument would take its
    // place.
    let man = Man::new(with_usage(own)).title("HOTLAP").date(" ").manual("User Commands");
    man.render_title(&mut page).unwrap();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_description_section(&mut page).unwrap();
    man.render_options_section(&mut page).unwrap();
    let mut page = String::from_utf8(page).unwrap() + &blocks("SH", &top);
    for command in top.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        // The first section has the options that all commands share.
        let own = in_full(command.clone()).mut_args(|arg| {
            let is_common = arg.is_global_set() || arg.get_id() == "help";
            if is_common { arg.hide(true) } else { arg }
        });
        let man = Man::new(with_usage(own));
        let mut section = Vec::new();
        man.render_description_section(&mut section).unwrap();
        man.render_synopsis_section(&mut section).unwrap();
        man.render_options_section(&mut section).unwrap();
        let section = String::from_utf8(section).unwrap().replace(".SH DESCRIPTION\n", "");
        let heading = format!("HOTLAP {}", command.get_name().to_uppercase());
        page += &Roff::new().control("SH", [heading.as_str()]).to_roff();
        page += &section.replace(".SH ", ".SS ");
        page += &blocks("SS", command);
    }
    let mut files = Roff::new();
    files.control("SH", ["FILES"]);
    for (path, what) in [
        ("~/.local/share/hotlap/hotlap.db", "the stored runs (--store)"),
        ("~/.cache/hotlap", "builds and the unpacked catalogue (HOTLAP_CACHE)"),
        ("~/.config/hotlap/config.toml", "your defaults (HOTLAP_CONFIG, --no-config)"),
    ] {
        files.control("TP", []).text([roman(path)]).text([roman(what)]);
    }
    // Each part begins with the same definitions, which the page needs only once.
    let preamble = page[..page.find(".TH").unwrap()].to_owned();
    preamble.clone() + &page.replace(&preamble, "") + &files.to_roff()
}

/// Returns the command with the options that `--help` shows and `-h` does not.
fn in_full(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| arg.hide_short_help(false))
}

/// Returns the command with its short synopsis, as `--help` shows it.
fn with_usage(command: clap::Command) -> clap::Command {
    let usage = command.clone().render_usage().to_string();
    command.override_usage(usage.trim_start_matches("Usage: ").to_owned())
}

/// Returns the text after the options as it is. The text has examples and lists, each with its
/// first line as the heading.
fn blocks(level: &str, command: &clap::Command) -> String {
    let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::new();
    for block in text.split("\n\n").filter(|block| !block.is_empty()) {
        let (heading, lines) = block.split_once('\n').unwrap_or((block, ""));
        roff.control(level, [heading.trim_end_matches(':').to_uppercase().as_str()])
            .control("nf", []);
        for line in lines.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff.to_roff()
}
