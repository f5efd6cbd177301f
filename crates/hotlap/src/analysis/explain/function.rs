//! Makes the functions of profiles comparable, and finds the part of a server that each function
//! belongs to. A function gets the same name in two programs, in two versions of a library, and in
//! two tiers of a compiler.

use std::sync::LazyLock;

use hotlap_observe::Frame;
use serde::Deserialize;

/// The library name for functions of the kernel.
pub const KERNEL: &str = "kernel";

/// The library name for code that the kernel maps into every process, such as `clock_gettime`.
pub const VDSO: &str = "vdso";

/// The library name for a process that ended before its functions could be named.
pub const UNKNOWN: &str = "unknown";

/// The library name for functions that a runtime compiled.
const JIT: &str = "jit";

/// The beginning of the names of files that are part of Node.js.
const BUILT_IN: &str = "node:";

/// The folder of installed JavaScript packages.
const PACKAGES: &str = "node_modules/";

/// A function, with a name that can be compared between programs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function {
    /// The name of the function.
    pub name: String,
    /// The library without its version, or the JavaScript package or file. Empty for the program
    /// itself.
    pub library: String,
    /// Whether a runtime compiled the function.
    pub is_jit: bool,
    /// Whether all functions of the library share one line of a ledger.
    pub is_package: bool,
}

impl Function {
    /// Returns the function of a frame.
    pub fn of(frame: &Frame) -> Self {
        if frame.library == JIT {
            let name = match frame.function.as_str() {
                "[jit]" => "compiled functions without a name",
                name => name,
            };
            return javascript(name).unwrap_or_else(|| Self {
                name: java(name).unwrap_or_else(|| name.to_owned()),
                library: String::new(),
                is_jit: true,
                is_package: false,
            });
        }
        let name = match frame.function.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            Some("kernel") => "kernel functions".to_owned(),
            // The title shows the name of the library.
            Some(_) => "functions without a name".to_owned(),
            None => frame.function.clone(),
        };
        let library = library(&frame.library);
        Self { name, library, is_jit: false, is_package: false }
    }

    /// Returns what appears as a line in a ledger: the function, or its package. A JavaScript
    /// package has many small functions, so the name of the package says more.
    pub(super) fn line(self) -> Self {
        match self.is_package {
            true => Self { name: self.library, library: String::new(), ..self },
            false => self,
        }
    }

    /// Returns the name for use in a sentence: without the arguments of templates, and with only
    /// the last two parts of a namespace path.
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
        let separator = if self.is_method() { "." } else { "::" };
        let parts: Vec<&str> = name.split(separator).filter(|part| !part.is_empty()).collect();
        let last = parts[parts.len().saturating_sub(2)..].join(separator);
        let name = if last.is_empty() { self.name.clone() } else { last };
        Self { name, ..self.clone() }.title()
    }

    /// Whether the function is a method of a JVM.
    fn is_method(&self) -> bool {
        self.is_jit && self.library.is_empty() && self.name.contains('.')
    }

    /// Whether the function belongs to the part of a language's standard library that only passes
    /// calls on. The caller of a socket's `write` says more than `write`.
    pub fn is_standard(&self) -> bool {
        const GO: [&str; 4] = ["syscall.", "internal/", "sync.", "bufio."];
        const JAVA: [&str; 4] = ["java.", "javax.", "jdk.", "sun."];
        let begins = |with: &[&str]| with.iter().any(|beginning| self.name.starts_with(beginning));
        if self.is_method() { begins(&JAVA) } else { begins(&GO) }
    }

    /// Returns the name of the function. The library follows, unless it is the program itself or
    /// the kernel.
    pub fn title(&self) -> String {
        match self.library.as_str() {
            "" | KERNEL => self.name.clone(),
            library => format!("{} ({library})", self.name),
        }
    }
}

/// Returns a library without its version: `libc.so` for `libc.so.6` and `libc-2.36.so`. The result
/// is empty for a program, so that a function that is linked into two programs is the same in both.
fn library(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    if name == KERNEL || name == VDSO || name.starts_with('[') {
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

/// Parses a JavaScript function: its name, a space, and its file, line and column.
fn javascript(function: &str) -> Option<Function> {
    let (name, place) = function.rsplit_once(' ')?;
    let mut parts = place.rsplitn(3, ':');
    let is_number = |part: Option<&str>| {
        part.is_some_and(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
    };
    if !is_number(parts.next()) || !is_number(parts.next()) {
        return None;
    }
    let file = parts.next()?;
    let is_package = file.starts_with(BUILT_IN) || file.contains(PACKAGES);
    Some(Function { name: name.to_owned(), library: package(file), is_jit: true, is_package })
}

/// Returns a method of a JVM without its types: `a.B.run` for `void a.B.run(int)`.
fn java(function: &str) -> Option<String> {
    let (before, _) = function.split_once('(')?;
    let (_, name) = before.rsplit_once(' ')?;
    let is_method = name.contains('.') && function.ends_with(')');
    is_method.then(|| name.to_owned())
}

/// Returns the package of a JavaScript file, or else the name of the file.
fn package(file: &str) -> String {
    if file.starts_with(BUILT_IN) {
        return file.to_owned();
    }
    let Some((_, inner)) = file.rsplit_once(PACKAGES) else {
        return file.rsplit('/').next().unwrap_or_default().to_owned();
    };
    let parts = if inner.starts_with('@') { 2 } else { 1 };
    inner.split('/').take(parts).collect::<Vec<_>>().join("/")
}

/// The part of a server to which a function in a profile belongs.
///
/// The function on top of the stack decides, so time in libc counts as libc, whatever the caller
/// is. Only kernel functions are grouped by their callers: `copy_to_iter` belongs to the network if
/// its caller is `tcp_recvmsg`.
///
/// On one host, a send also delivers the data. Within the send, the kernel notifies the process at
/// the other end, and wakes that process if it sleeps. Interrupts are off during the wake-up, so a
/// profile cannot tell the parts of the wake-up apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeGroup {
    /// Sockets, TCP and IP, and waiting for sockets.
    KernelNetwork,
    /// Notifying the process at the other end of a socket of new data, and waking that process.
    Notifying,
    /// Everything else in the kernel: files, memory, the scheduler.
    KernelOther,
    /// Entering and leaving the kernel.
    SystemCallEntry,
    /// The C library and memory allocators.
    Libc,
    /// The language runtime, its interpreter and its compiler.
    Runtime,
    /// The application and its libraries.
    Application,
}

/// The kernel function that tells the reader of a socket that data has arrived.
const NOTIFIES: &str = "sock_def_readable";

/// The names in `names.toml`, which decide the group of a function or a system call.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Names {
    kernel_network: Vec<String>,
    kernel_sends: Vec<String>,
    kernel_entry: Vec<String>,
    libc_libraries: Vec<String>,
    libc_functions: Vec<String>,
    runtime_libraries: Vec<String>,
    runtime_programs: Vec<String>,
    runtime_functions: Vec<String>,
    collectors: Vec<String>,
    network_calls: Vec<String>,
    cheap_calls: Vec<String>,
}

static NAMES: LazyLock<Names> =
    LazyLock::new(|| toml::from_str(include_str!("names.toml")).expect("part of the program"));

fn begins(name: &str, with: &[String]) -> bool {
    with.iter().any(|beginning| name.starts_with(beginning.as_str()))
}

fn contains(name: &str, any: &[String]) -> bool {
    any.iter().any(|word| name.contains(word.as_str()))
}

fn is_one_of(name: &str, all: &[String]) -> bool {
    all.iter().any(|known| known == name)
}

impl CodeGroup {
    /// Returns the group of a stack that begins with the outermost frame. The innermost frame
    /// decides, and for a kernel function also its callers in the kernel.
    pub fn of<'a>(stack: impl DoubleEndedIterator<Item = &'a Frame>) -> Self {
        let mut inwards = stack.rev();
        let Some(top) = inwards.next() else { return Self::Application };
        if top.library != KERNEL {
            return Self::of_user(top);
        }
        if begins(&top.function, &NAMES.kernel_entry) {
            return Self::SystemCallEntry;
        }
        let callers: Vec<&str> = std::iter::once(top)
            .chain(inwards)
            .take_while(|frame| frame.library == KERNEL)
            .map(|frame| frame.function.as_str())
            .collect();
        let sends = |name: &&str| contains(name, &NAMES.kernel_sends);
        let mut outside = callers.iter().skip_while(|name| **name != NOTIFIES);
        match () {
            () if outside.any(sends) => Self::Notifying,
            () if callers.iter().any(|name| begins(name, &NAMES.kernel_network)) => {
                Self::KernelNetwork
            }
            () => Self::KernelOther,
        }
    }

    /// Returns the group of a frame, whatever its caller is.
    pub fn of_one(frame: &Frame) -> Self {
        Self::of(std::iter::once(frame))
    }

    fn of_user(frame: &Frame) -> Self {
        let function = Function::of(frame);
        let (name, library) = (function.name.as_str(), function.library.as_str());
        let is_libc = begins(library, &NAMES.libc_libraries)
            || (!function.is_jit && begins(name, &NAMES.libc_functions));
        if is_libc {
            return Self::Libc;
        }
        let program = frame.library.rsplit('/').next().unwrap_or_default();
        let is_runtime = is_one_of(library, &NAMES.runtime_libraries)
            || begins(name, &NAMES.runtime_functions)
            || (library.is_empty() && !function.is_jit && begins(program, &NAMES.runtime_programs));
        if is_runtime { Self::Runtime } else { Self::Application }
    }

    /// Returns the group that contains most of the cost of a system call.
    pub fn of_call(name: &str) -> Self {
        match name {
            _ if is_one_of(name, &NAMES.cheap_calls) => Self::SystemCallEntry,
            _ if name.starts_with("readlink") => Self::KernelOther,
            _ if begins(name, &NAMES.network_calls) => Self::KernelNetwork,
            _ => Self::KernelOther,
        }
    }
}

/// Whether a function belongs to a garbage collector.
pub fn is_collector(function: &Function) -> bool {
    contains(&function.name, &NAMES.collectors)
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
        assert_eq!(of("f", "vdso").title(), "f (vdso)");
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
    fn methods_have_no_types() {
        let write = of("int sun.nio.ch.FileDispatcherImpl.write0(java.io.FileDescriptor)", "jit");
        assert_eq!(write.title(), "sun.nio.ch.FileDispatcherImpl.write0");
        assert_eq!(write.short_title(), "FileDispatcherImpl.write0");
        assert!(write.is_standard());
        assert!(!of("void io.netty.util.Recycler$Handle.recycle()", "jit").is_standard());
        assert!(of("internal/poll.(*FD).Write", "app").is_standard());
    }

    #[test]
    fn a_function_that_is_linked_into_two_programs_is_one() {
        assert_eq!(of("runtime.mallocgc", "net-http"), of("runtime.mallocgc", "/tmp/fasthttp"));
        assert_ne!(of("runtime.mallocgc", "net-http"), of("runtime.mallocgc", "libgo.so"));
    }

    #[test]
    fn functions_of_javascript_have_the_name_of_their_package() {
        let title = |function: &str| of(function, "jit").title();
        let file = "/srv/node_modules/router/index.js:160:16";
        assert_eq!(title(&format!("next {file}")), "next (router)");
        assert_eq!(title("(anonymous) file:///srv/app.js:3:9"), "(anonymous) (app.js)");
        assert_eq!(title("end node:_http_outgoing:1060:12"), "end (node:_http_outgoing)");
        let scoped = of("get f /x/node_modules/@scope/name/lib/a.js:1:1", "jit");
        assert_eq!((scoped.name.as_str(), scoped.library.as_str()), ("get f", "@scope/name"));
        // A package is one line, and so is a file of Node.js. The functions of an application have
        // separate lines.
        assert_eq!(scoped.line().title(), "@scope/name");
        assert_eq!(
            of("end node:_http_outgoing:1060:12", "jit").line().title(),
            "node:_http_outgoing"
        );
        assert_eq!(of("f /srv/app.js:3:9", "jit").line().title(), "f (app.js)");
        assert_eq!(of("Interpreter", "jit").title(), "Interpreter");
    }

    mod group {
        use super::super::*;

        fn group(stack: &[(&str, &str)]) -> CodeGroup {
            let frame = |(function, library): &(&str, &str)| Frame {
                function: (*function).to_owned(),
                library: (*library).to_owned(),
            };
            let frames: Vec<Frame> = stack.iter().map(frame).collect();
            CodeGroup::of(frames.iter())
        }

        /// Returns the group of kernel functions within a system call.
        fn in_call(inner: &[&str]) -> CodeGroup {
            let mut stack =
                vec![("main", "app"), ("entry_SYSCALL_64", KERNEL), ("do_syscall_64", KERNEL)];
            stack.extend(inner.iter().map(|name| (*name, KERNEL)));
            group(&stack)
        }

        #[test]
        fn the_kernel_is_grouped_by_the_nearest_caller_that_is_known() {
            assert_eq!(in_call(&[]), CodeGroup::SystemCallEntry);
            assert_eq!(
                in_call(&["ksys_write", "sock_write_iter", "copy_from_iter"]),
                CodeGroup::KernelNetwork
            );
            assert_eq!(in_call(&["do_sys_openat2", "memcg_slab_alloc"]), CodeGroup::KernelOther);
            assert_eq!(
                group(&[("main", "app"), ("asm_exc_page_fault", KERNEL)]),
                CodeGroup::KernelOther
            );
        }

        #[test]
        fn a_send_that_wakes_the_receiver_has_a_group_of_its_own() {
            let receives = ["tcp_sendmsg", "__tcp_transmit_skb", "net_rx_action", "tcp_v4_rcv"];
            let wakes = [&receives[..], &["sock_def_readable"]].concat();
            assert_eq!(in_call(&receives), CodeGroup::KernelNetwork);
            assert_eq!(in_call(&wakes), CodeGroup::Notifying);
            let deeper = [&wakes[..], &["__wake_up_sync_key", "ep_poll_callback"]].concat();
            assert_eq!(in_call(&deeper), CodeGroup::Notifying);
            // Data that arrives from another host wakes a thread of the server itself.
            assert_eq!(in_call(&["net_rx_action", "sock_def_readable"]), CodeGroup::KernelNetwork);
            // A thread that has work for another thread wakes that thread, too.
            assert_eq!(in_call(&["futex_wake", "try_to_wake_up"]), CodeGroup::KernelOther);
        }

        #[test]
        fn the_function_on_top_decides() {
            assert_eq!(group(&[("handle", "app"), ("malloc", "libc.so.6")]), CodeGroup::Libc);
            assert_eq!(group(&[("handle", "app"), ("_int_malloc", "app")]), CodeGroup::Libc);
            assert_eq!(
                group(&[("main.handle", "app"), ("runtime.mallocgc", "app")]),
                CodeGroup::Runtime
            );
            assert_eq!(group(&[("_PyEval_EvalFrameDefault", "python3.12")]), CodeGroup::Runtime);
            assert_eq!(
                group(&[("v8::internal::Scavenger", "node"), ("f a.js:1:1", "jit")]),
                CodeGroup::Application
            );
            assert_eq!(group(&[("Builtin:ArrayPush", "jit")]), CodeGroup::Runtime);
            assert_eq!(group(&[("deflate_slow", "libz.so.1")]), CodeGroup::Application);
            assert_eq!(group(&[]), CodeGroup::Application);
        }

        #[test]
        fn a_call_shows_in_the_group_of_its_work() {
            let of = ["write", "epoll_wait", "getpid", "futex", "newfstatat", "readlinkat"]
                .map(CodeGroup::of_call);
            let (network, other) = (CodeGroup::KernelNetwork, CodeGroup::KernelOther);
            assert_eq!(of, [network, network, CodeGroup::SystemCallEntry, other, other, other]);
        }
    }
}
