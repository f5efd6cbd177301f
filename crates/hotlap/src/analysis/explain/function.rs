//! Functions as a profile names them, made comparable: the same function of two programs, of two
//! versions of a library, or of two tiers of a compiler has one name.

use hotlap_servers::observe::Frame;

/// The library of functions of the kernel.
pub const KERNEL: &str = "kernel";

/// The library of functions that a runtime compiled.
const JIT: &str = "jit";

/// The kinds of code that V8 puts before the name of a JavaScript function.
const JAVASCRIPT: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its library without a version; empty for the program itself.
    pub library: String,
    /// Whether a runtime compiled it.
    pub is_jit: bool,
}

impl Function {
    /// The function of a frame.
    #[must_use]
    pub fn of(frame: &Frame) -> Self {
        if frame.library == JIT {
            let name = match frame.function.as_str() {
                "[jit]" => "compiled functions without a name",
                name => name,
            };
            return javascript(name).unwrap_or_else(|| Self {
                name: name.to_owned(),
                library: String::new(),
                is_jit: true,
            });
        }
        let name = match frame.function.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            Some("kernel") => "kernel functions".to_owned(),
            // The library says which.
            Some(_) => "functions without a name".to_owned(),
            None => frame.function.clone(),
        };
        Self { name, library: library(&frame.library), is_jit: false }
    }

    /// A function of which nothing is known.
    pub(super) fn unknown() -> Self {
        Self { name: "unknown".to_owned(), library: String::new(), is_jit: false }
    }

    /// The name in a sentence: without the arguments of templates, and the last two parts of a path
    /// of namespaces.
    #[must_use]
    pub fn short_title(&self) -> String {
        let (mut depth, mut name) = (0_u32, String::new());
        for c in self.name.chars() {
            match c {
                '<' => depth += 1,
                '>' if depth > 0 => depth -= 1,
                _ if depth == 0 => name.push(c),
                _ => {}
            }
        }
        let parts: Vec<&str> = name.split("::").filter(|part| !part.is_empty()).collect();
        let last = parts[parts.len().saturating_sub(2)..].join("::");
        let name = if last.is_empty() { self.name.clone() } else { last };
        Self { name, ..self.clone() }.title()
    }

    /// The name, with the library if that says more.
    #[must_use]
    pub fn title(&self) -> String {
        match self.library.as_str() {
            "" | KERNEL => self.name.clone(),
            library => format!("{} ({library})", self.name),
        }
    }
}

/// A library without its version: `libc.so` for `libc.so.6` and `libc-2.36.so`. Empty for a
/// program, so that a function that is linked into two programs is the same in both.
fn library(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    if name == KERNEL || name.starts_with('[') {
        return name.to_owned();
    }
    let Some((stem, _)) = name.split_once(".so") else { return String::new() };
    let is_version = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let stem = match stem.rsplit_once('-') {
        Some((before, version)) if is_version(version) => before,
        _ => stem,
    };
    let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    format!("{stem}.so")
}

/// A function of JavaScript, as V8 names it in a perf map: kind, tier, name and place.
fn javascript(name: &str) -> Option<Function> {
    let rest = JAVASCRIPT.iter().find_map(|kind| name.strip_prefix(kind))?;
    let rest = rest.trim_start_matches(['*', '~', '^', '+', '\'']);
    let (name, place) = rest.rsplit_once(' ').unwrap_or((rest, ""));
    let (name, place) =
        if name.contains('/') && place.is_empty() { ("", name) } else { (name, place) };
    let name = if name.is_empty() { "anonymous" } else { name };
    Some(Function { name: name.to_owned(), library: package(place), is_jit: true })
}

/// The package of a file of JavaScript, or else the name of the file.
fn package(place: &str) -> String {
    let file = place.split(':').find(|part| part.contains('/')).unwrap_or("");
    if let Some(builtin) = place.strip_prefix("node:") {
        return format!("node:{}", builtin.split(':').next().unwrap_or_default());
    }
    let Some((_, inner)) = file.rsplit_once("node_modules/") else {
        return file.rsplit('/').next().unwrap_or_default().to_owned();
    };
    let parts = if inner.starts_with('@') { 2 } else { 1 };
    inner.split('/').take(parts).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(function: &str, library: &str) -> Function {
        Function::of(&Frame { function: function.to_owned(), library: library.to_owned() })
    }

    #[test]
    fn versions_of_libraries_do_not_matter() {
        for name in ["libc.so.6", "/lib/x86_64-linux-gnu/libc-2.36.so", "libc.so"] {
            assert_eq!(of("malloc", name).library, "libc.so", "{name}");
        }
        assert_eq!(of("f", "libpython3.12.so.1.0").library, "libpython.so");
        assert_eq!(of("f", "libstdc++.so.6.0.30").library, "libstdc++.so");
        assert_eq!(of("f", "[vdso]").title(), "f ([vdso])");
        assert_eq!(of("f", "kernel").title(), "f");
    }

    #[test]
    fn names_are_short_in_sentences() {
        let long = of("v8::internal::LookupIterator::LookupInRegularHolder<false>", "node");
        assert_eq!(long.short_title(), "LookupIterator::LookupInRegularHolder");
        let impls = of("<alloc::vec::Vec<T> as core::clone::Clone>::clone", "app");
        assert_eq!(impls.short_title(), "clone");
        assert_eq!(of("net/http.(*conn).serve", "app").short_title(), "net/http.(*conn).serve");
        assert_eq!(of("[libz.so.1]", "libz.so.1").title(), "functions without a name (libz.so)");
        assert_eq!(of("[jit]", "jit").title(), "compiled functions without a name");
    }

    #[test]
    fn a_function_that_is_linked_into_two_programs_is_one() {
        assert_eq!(of("runtime.mallocgc", "net-http"), of("runtime.mallocgc", "/tmp/fasthttp"));
        assert_ne!(of("runtime.mallocgc", "net-http"), of("runtime.mallocgc", "libgo.so"));
    }

    #[test]
    fn a_javascript_function_is_one_in_every_tier() {
        let next = of("JS:*next file:///srv/node_modules/router/index.js:160:16", "jit");
        assert_eq!(next.title(), "next (router)");
        assert_eq!(of("LazyCompile:~next /srv/node_modules/router/index.js:160:16", "jit"), next);
        assert_eq!(of("JS:^ /srv/app.js:3:9", "jit").title(), "anonymous (app.js)");
        assert_eq!(
            of("JS:*end node:_http_outgoing:1060:12", "jit").title(),
            "end (node:_http_outgoing)"
        );
        assert_eq!(
            of("JS:*f /x/node_modules/@scope/name/lib/a.js:1:1", "jit").library,
            "@scope/name"
        );
        assert_eq!(of("Interpreter", "jit").title(), "Interpreter");
    }
}
