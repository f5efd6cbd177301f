//! Parses files of names and values, such as `/proc/cpuinfo` and `/etc/os-release`.

/// The value after a name and a separator, without quotes.
pub(super) fn named(text: &str, name: &str, separator: char) -> Option<String> {
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(separator)?;
        (key.trim() == name).then_some(value)
    })?;
    Some(value.trim().trim_matches('"').to_owned())
}
