//! The group of a function that a profile has sampled: what part of a server it belongs to.
//!
//! The function on top of the stack decides, so time in libc counts for libc, whoever called it.
//! Only kernel functions are grouped by their callers: `copy_to_iter` belongs to the network if
//! `tcp_recvmsg` called it.
//!
//! On one host, a send also delivers: within it, the kernel tells the process at the other end, and
//! wakes that process if it sleeps. Waking is with interrupts off, so its parts cannot be told
//! apart.

use hotlap_observe::Frame;

use super::function::{Function, KERNEL};

/// A part of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Sockets, TCP and IP, and waiting for them.
    KernelNetwork,
    /// Telling the process at the other end of a socket that data has come, and waking it.
    Notifying,
    /// Everything else in the kernel: files, memory, the scheduler.
    KernelOther,
    /// Entering and leaving the kernel.
    SystemCallEntry,
    /// The C library and memory allocators.
    Libc,
    /// The language runtime, its interpreter and its compiler.
    Runtime,
    /// The application with its libraries.
    Application,
}

/// The beginnings of the names of kernel functions that belong to the network.
const NETWORK: [&str; 38] = [
    "tcp_",
    "__tcp_",
    "tcp4_",
    "tcp6_",
    "ip_",
    "__ip_",
    "ip6_",
    "ipv4_",
    "ipv6_",
    "ip4_",
    "inet_",
    "__inet_",
    "inet6_",
    "sock_",
    "__sock_",
    "sk_",
    "__sk_",
    "skb_",
    "__skb_",
    "alloc_skb",
    "__alloc_skb",
    "kfree_skb",
    "consume_skb",
    "net_rx_",
    "__netif_",
    "netif_",
    "process_backlog",
    "dev_",
    "__dev_",
    "loopback_",
    "nf_",
    "__sys_send",
    "__sys_recv",
    "__sys_accept",
    "ep_",
    "do_epoll_",
    "release_sock",
    "lock_sock",
];

/// The kernel function that tells the reader of a socket that data has come.
const NOTIFIES: &str = "sock_def_readable";

/// Words in the names of kernel functions that send.
const SENDS: [&str; 2] = ["sendmsg", "transmit_skb"];

/// Kernel functions whose own time is that of entering and leaving the kernel.
const ENTRY: [&str; 10] = [
    "entry_SYSCALL",
    "do_syscall_64",
    "syscall_",
    "__syscall_",
    "x64_sys_call",
    "el0_svc",
    "invoke_syscall",
    "do_el0_svc",
    "exit_to_user_mode",
    "srso_",
];

/// The beginnings of the names of libraries of libc and of allocators.
const LIBC: [&str; 11] = [
    "libc.so",
    "libc.musl",
    "libm.so",
    "libpthread",
    "librt.so",
    "ld-linux",
    "ld-musl",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "vdso",
];

/// The beginnings of the names of functions of libc and allocators that programs link.
const LIBC_FUNCTIONS: [&str; 21] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "_int_malloc",
    "_int_free",
    "__libc_",
    "__memmove",
    "__memcpy",
    "__memset",
    "__memchr",
    "__strlen",
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "mi_",
    "_mi_",
    "je_",
    "tcmalloc",
    "operator new",
];

/// Libraries that are runtimes.
const RUNTIMES: [&str; 13] = [
    "libjvm.so",
    "libjava.so",
    "libnet.so",
    "libnio.so",
    "libzip.so",
    "libpython.so",
    "libnode.so",
    "libruby.so",
    "libcoreclr.so",
    "libclrjit.so",
    "libclrgc.so",
    "libphp.so",
    "libjulia-internal.so",
];

/// Programs that are runtimes.
const INTERPRETERS: [&str; 11] = [
    "node", "python", "ruby", "php", "beam.smp", "java", "dotnet", "deno", "bun", "perl", "luajit",
];

/// The beginnings of the names of functions of runtimes that programs link: those of Go, and those
/// of V8 and of the JVM that are compiled when the program starts. Go writes short ones in
/// assembly.
const RUNTIME_FUNCTIONS: [&str; 26] = [
    "runtime.",
    "runtime/",
    "internal/runtime",
    "gcWriteBarrier",
    "gogo",
    "aeshash",
    "callRet",
    "cmpbody",
    "countbody",
    "indexbody",
    "indexbytebody",
    "memeqbody",
    "syscall.",
    "v8::",
    "Builtins_",
    "Builtin:",
    "BytecodeHandler:",
    "RegExp:",
    "Stub:",
    "Interpreter",
    "StubRoutines",
    "vtable stub",
    "itable stub",
    "_new_array_Java",
    "_new_instance_Java",
    "_complete_monitor_locking_Java",
];

/// Words in the names of functions of garbage collectors.
const COLLECTORS: [&str; 22] = [
    "runtime.gc",
    "runtime.(*gc",
    "runtime.scan",
    "runtime.grey",
    "runtime.mark",
    "runtime.bgsweep",
    "runtime.sweep",
    "runtime.(*sweep",
    "runtime.(*mspan).sweep",
    "runtime.wbBuf",
    "Scavenge",
    "MarkCompact",
    "Sweeper",
    "MarkingVisitor",
    "ConcurrentMark",
    "Evacuat",
    "G1",
    "ParallelGC",
    "Shenandoah",
    "ZMark",
    "gc_collect",
    "garbage",
];

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|beginning| name.starts_with(beginning))
}

impl Group {
    /// The group of a stack, outermost frame first: the group of its innermost function.
    pub fn of<'a>(stack: impl DoubleEndedIterator<Item = &'a Frame>) -> Self {
        let mut inwards = stack.rev();
        let Some(top) = inwards.next() else { return Self::Application };
        if top.library != KERNEL {
            return Self::of_user(top);
        }
        if begins(&top.function, &ENTRY) {
            return Self::SystemCallEntry;
        }
        let callers: Vec<&str> = std::iter::once(top)
            .chain(inwards)
            .take_while(|frame| frame.library == KERNEL)
            .map(|frame| frame.function.as_str())
            .collect();
        let sends = |name: &&str| SENDS.iter().any(|word| name.contains(word));
        let mut outside = callers.iter().skip_while(|name| **name != NOTIFIES);
        match () {
            () if outside.any(sends) => Self::Notifying,
            () if callers.iter().any(|name| begins(name, &NETWORK)) => Self::KernelNetwork,
            () => Self::KernelOther,
        }
    }

    /// The group of a frame, whatever called it.
    pub fn of_one(frame: &Frame) -> Self {
        Self::of(std::iter::once(frame))
    }

    fn of_user(frame: &Frame) -> Self {
        let function = Function::of(frame);
        let (name, library) = (function.name.as_str(), function.library.as_str());
        if begins(library, &LIBC) || (!function.is_jit && begins(name, &LIBC_FUNCTIONS)) {
            return Self::Libc;
        }
        let program = frame.library.rsplit('/').next().unwrap_or_default();
        let is_runtime = RUNTIMES.contains(&library)
            || begins(name, &RUNTIME_FUNCTIONS)
            || (library.is_empty() && !function.is_jit && begins(program, &INTERPRETERS));
        if is_runtime { Self::Runtime } else { Self::Application }
    }

    /// The group in whose cost a system call shows most.
    pub fn of_call(name: &str) -> Self {
        const NETWORK: [&str; 17] = [
            "read",
            "write",
            "readv",
            "writev",
            "recv",
            "send",
            "accept",
            "connect",
            "shutdown",
            "epoll_",
            "poll",
            "ppoll",
            "select",
            "pselect",
            "socket",
            "setsockopt",
            "getsockopt",
        ];
        const CHEAP: [&str; 9] = [
            "getpid",
            "getppid",
            "gettid",
            "getuid",
            "geteuid",
            "getgid",
            "clock_gettime",
            "gettimeofday",
            "getcpu",
        ];
        match name {
            _ if CHEAP.contains(&name) => Self::SystemCallEntry,
            _ if name.starts_with("readlink") => Self::KernelOther,
            _ if begins(name, &NETWORK) => Self::KernelNetwork,
            _ => Self::KernelOther,
        }
    }
}

/// Whether a function belongs to a garbage collector.
pub fn is_collector(function: &Function) -> bool {
    COLLECTORS.iter().any(|word| function.name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(stack: &[(&str, &str)]) -> Group {
        let frame = |(function, library): &(&str, &str)| Frame {
            function: (*function).to_owned(),
            library: (*library).to_owned(),
        };
        let frames: Vec<Frame> = stack.iter().map(frame).collect();
        Group::of(frames.iter())
    }

    /// The group of functions that a system call leads to.
    fn in_call(inner: &[&str]) -> Group {
        let mut stack =
            vec![("main", "app"), ("entry_SYSCALL_64", KERNEL), ("do_syscall_64", KERNEL)];
        stack.extend(inner.iter().map(|name| (*name, KERNEL)));
        group(&stack)
    }

    #[test]
    fn the_kernel_is_grouped_by_the_nearest_caller_that_is_known() {
        assert_eq!(in_call(&[]), Group::SystemCallEntry);
        assert_eq!(
            in_call(&["ksys_write", "sock_write_iter", "copy_from_iter"]),
            Group::KernelNetwork
        );
        assert_eq!(in_call(&["do_sys_openat2", "memcg_slab_alloc"]), Group::KernelOther);
        assert_eq!(group(&[("main", "app"), ("asm_exc_page_fault", KERNEL)]), Group::KernelOther);
    }

    #[test]
    fn a_send_that_wakes_the_receiver_has_a_group_of_its_own() {
        let receives = ["tcp_sendmsg", "__tcp_transmit_skb", "net_rx_action", "tcp_v4_rcv"];
        let wakes = [&receives[..], &["sock_def_readable"]].concat();
        assert_eq!(in_call(&receives), Group::KernelNetwork);
        assert_eq!(in_call(&wakes), Group::Notifying);
        let deeper = [&wakes[..], &["__wake_up_sync_key", "ep_poll_callback"]].concat();
        assert_eq!(in_call(&deeper), Group::Notifying);
        // Data from another host wakes a thread of the server itself.
        assert_eq!(in_call(&["net_rx_action", "sock_def_readable"]), Group::KernelNetwork);
        // So does a thread that has work for another.
        assert_eq!(in_call(&["futex_wake", "try_to_wake_up"]), Group::KernelOther);
    }

    #[test]
    fn the_function_on_top_decides() {
        assert_eq!(group(&[("handle", "app"), ("malloc", "libc.so.6")]), Group::Libc);
        assert_eq!(group(&[("handle", "app"), ("_int_malloc", "app")]), Group::Libc);
        assert_eq!(group(&[("main.handle", "app"), ("runtime.mallocgc", "app")]), Group::Runtime);
        assert_eq!(group(&[("_PyEval_EvalFrameDefault", "python3.12")]), Group::Runtime);
        assert_eq!(
            group(&[("v8::internal::Scavenger", "node"), ("f a.js:1:1", "jit")]),
            Group::Application
        );
        assert_eq!(group(&[("Builtin:ArrayPush", "jit")]), Group::Runtime);
        assert_eq!(group(&[("deflate_slow", "libz.so.1")]), Group::Application);
        assert_eq!(group(&[]), Group::Application);
    }

    #[test]
    fn a_call_shows_in_the_group_of_its_work() {
        let of = ["write", "epoll_wait", "getpid", "futex", "newfstatat", "readlinkat"]
            .map(Group::of_call);
        let (network, other) = (Group::KernelNetwork, Group::KernelOther);
        assert_eq!(of, [network, network, Group::SystemCallEntry, other, other, other]);
    }
}
