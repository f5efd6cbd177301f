//! `-L workers 1,2,4`: one server for each value.

use crate::exit::usage;

/// The servers with each value of each parameter in place of `{NAME}`, in the order given.
/// `parameters` are names, each followed by its values, which commas separate.
pub(super) fn expanded(servers: &[String], parameters: &[String]) -> anyhow::Result<Vec<String>> {
    let mut servers = servers.to_vec();
    for pair in parameters.chunks_exact(2) {
        let (name, values) = (&pair[0], &pair[1]);
        if ["port", "host", "cpus", "tls_cert", "tls_key"].contains(&name.as_str()) {
            return usage(format!(
                "-L {name}: hotlap fills in {{{name}}} itself. Choose another name."
            ));
        }
        let place = format!("{{{name}}}");
        if !servers.iter().any(|server| server.contains(&place)) {
            return usage(format!(
                "-L {name}: no server contains {place}. Write {place} where the values belong."
            ));
        }
        let with_each = |server: &String| -> Vec<String> {
            match server.contains(&place) {
                true => values.split(',').map(|value| server.replace(&place, value)).collect(),
                false => vec![server.clone()],
            }
        };
        servers = servers.iter().flat_map(with_each).collect();
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(servers: &[&str], parameters: &[&str]) -> Result<Vec<String>, String> {
        let owned =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        expanded(&owned(servers), &owned(parameters)).map_err(|error| error.to_string())
    }

    #[test]
    fn each_value_makes_a_server() {
        let found = with(&["go/net-http", "a -w {w} -t {t}"], &["w", "1,2", "t", "x,y"]).unwrap();
        let a = ["a -w 1 -t x", "a -w 1 -t y", "a -w 2 -t x", "a -w 2 -t y"];
        assert_eq!(found[1..], a);
        assert_eq!(with(&["a"], &[]).unwrap(), ["a"]);
        assert_eq!(
            with(&["a"], &["w", "1"]),
            Err("-L w: no server contains {w}. Write {w} where the values belong.".to_owned())
        );
        assert!(with(&["a {port}"], &["port", "1"]).is_err());
    }
}
