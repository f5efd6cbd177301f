//! `hotlap list`: lists the servers of the catalogue, and shows which of them can run here.

use hotlap_servers::build::{MissingKind, MissingToolchain, probe_with_databases};
use hotlap_servers::catalogue::{Catalogue, CatalogueError, CatalogueServer};
use serde_json::json;

use crate::assets;
use crate::cli::ListArgs;
use crate::console::Console;
use crate::exit::{Exit, usage};
use crate::interrupt::Interrupt;
use crate::text::layout;
use crate::text::table::{Column, Table};

/// Lists the servers.
pub fn run(args: &ListArgs, console: &Console) -> anyhow::Result<Exit> {
    let catalogue = Catalogue::open(&assets::servers()?)?;
    let servers = select(&catalogue, args.pattern.as_deref()).or_else(|e| usage(e.to_string()))?;
    let interrupt = Interrupt::listen()?;
    let probed = probe_with_databases(&servers, interrupt.flag());
    if interrupt.asked() {
        // If the toolchain check of a server did not finish, the server's state is unknown. Listing
        // the server as unusable would be wrong.
        console.note("Interrupted before all toolchains were checked: nothing is listed.");
        return Ok(Exit::Interrupted);
    }
    let mut rows: Vec<(&CatalogueServer, Result<String, MissingToolchain>)> =
        servers.into_iter().zip(probed).collect();
    if args.ready {
        rows.retain(|(_, probed)| probed.is_ok());
    }
    if args.json {
        console.json(&as_json(&rows))?;
    } else if console.quiet {
        console.print(&rows.iter().map(|(s, _)| format!("{}\n", s.id)).collect::<String>())?;
    } else {
        console.print(&table(&rows, console.width))?;
        summary(&rows, console);
    }
    for broken in &catalogue.broken {
        console.note(&format!("{broken}"));
    }
    Ok(if catalogue.broken.is_empty() { Exit::Ok } else { Exit::Usage })
}

/// Returns the servers that match a pattern, or all servers if there is no pattern.
pub fn select<'a>(
    catalogue: &'a Catalogue,
    pattern: Option<&str>,
) -> Result<Vec<&'a CatalogueServer>, CatalogueError> {
    let Some(pattern) = pattern else { return Ok(catalogue.servers.iter().collect()) };
    // An empty pattern, possibly from an unset shell variable, must not select the whole catalogue.
    let is_within = |s: &&CatalogueServer| !pattern.is_empty() && s.id.contains(pattern);
    let within: Vec<&CatalogueServer> = catalogue.servers.iter().filter(is_within).collect();
    if within.is_empty() { catalogue.select(pattern) } else { Ok(within) }
}

fn as_json(rows: &[(&CatalogueServer, Result<String, MissingToolchain>)]) -> serde_json::Value {
    let row = |(server, probed): &(&CatalogueServer, Result<String, MissingToolchain>)| {
        let absence = probed.as_ref().err();
        json!({
            "id": server.id,
            "language": server.language(),
            "about": server.about,
            "url": server.url,
            "kind": server.kind,
            "contracts": server.contracts,
            "protocols": server.protocols,
            "state": state(probed),
            "why": absence.map(|a| &a.why),
            "remedy": absence.map(|a| &a.remedy),
        })
    };
    rows.iter().map(row).collect()
}

fn state(probed: &Result<String, MissingToolchain>) -> &'static str {
    match probed.as_ref().map_err(|a| a.kind) {
        Ok(_) => "ready",
        Err(MissingKind::Missing) => "missing",
        Err(MissingKind::Unfit) => "unfit",
        Err(MissingKind::Unreachable) => "unreachable",
    }
}

fn table(rows: &[(&CatalogueServer, Result<String, MissingToolchain>)], width: usize) -> String {
    let contracts =
        |s: &CatalogueServer| s.contracts.iter().map(|c| c.as_str()).collect::<Vec<_>>().join(" ");
    let protocols =
        |s: &CatalogueServer| s.protocols.iter().map(|p| p.as_str()).collect::<Vec<_>>().join(" ");
    let table = Table::new(vec![
        Column::left("server", rows.iter().map(|(s, _)| &s.id)),
        Column::left("kind", rows.iter().map(|(s, _)| s.kind.to_string())).drop_order(1),
        Column::left("contracts", rows.iter().map(|(s, _)| contracts(s))).drop_order(2),
        Column::left("protocols", rows.iter().map(|(s, _)| protocols(s))).drop_order(3),
        Column::left("state", rows.iter().map(|(_, p)| state(p))),
        Column::prose("", rows.iter().map(|(s, p)| remark(s, p))),
    ]);
    layout::lines(&table, width).all().map(|line| format!("{line}\n")).collect()
}

fn remark(server: &CatalogueServer, probed: &Result<String, MissingToolchain>) -> String {
    match probed {
        Ok(_) => server.about.clone(),
        Err(absence) => absence.remedy.clone(),
    }
}

fn summary(rows: &[(&CatalogueServer, Result<String, MissingToolchain>)], console: &Console) {
    let ready = rows.iter().filter(|(_, p)| p.is_ok()).count();
    let missing = rows.len() - ready;
    let hint = if missing > 0 { " `hotlap setup` prints what installs the rest." } else { "" };
    console.note(&format!("\n{ready} of {} can run here.{hint}", rows.len()));
}
