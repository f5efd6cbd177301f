//! Tests a channel to an agent in the same process, and the faults of either end.

use std::io::{Read, Write, pipe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use hotlap_agent::{
    AgentCommand, AgentRole, AgentService, Answer, Channel, ChannelError, ChannelFault, Clock,
    Ending, Hello, orders, serve,
};
use serde_json::value::RawValue;

/// A time limit that is longer than any answer here takes.
const LIMIT: Duration = Duration::from_secs(30);

const MARKER: &[u8] = b"\0hotlap-agent\0\n";

/// How long the test waits for an order that stays unanswered.
const SHORT: Duration = Duration::from_millis(50);

orders! {
    TestOrder, carried out by echo: Echo {
        Repeat { text: String } -> String, "repeating", LIMIT => text;
        Refuse { why: String } -> String, "refusing", LIMIT => Err(why)?;
        /// Answers once the test allows it.
        Wait { limit: Duration } -> String, "waiting", *limit => {
            let _ = (limit, echo.0.recv());
            "waited".to_owned()
        };
    }
}

struct Echo(mpsc::Receiver<()>);

struct Agent {
    channel: Channel,
    /// A message on this channel ends the wait of an order.
    proceed: mpsc::Sender<()>,
    thread: JoinHandle<Ending>,
}

/// Connects to an agent whose output begins with `banner`.
fn agent(clock: Clock, banner: &'static [u8]) -> Agent {
    let (agent_input, output) = pipe().expect("a pipe");
    let (input, agent_output) = pipe().expect("a pipe");
    let (proceed, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let open = |_| Ok(Box::new(Echo(wait)) as Box<dyn AgentService>);
        serve(agent_input, agent_output, clock, open, || {})
    });
    let input = banner.chain(input);
    let channel =
        Channel::over("test", AgentRole::Server, LIMIT, output, input).expect("a channel");
    Agent { channel, proceed, thread }
}

/// Returns the error of a channel to a peer that writes these bytes and nothing more.
fn error_of(bytes: &[u8]) -> ChannelError {
    let (_kept, output) = pipe().expect("a pipe");
    let input = std::io::Cursor::new(bytes.to_vec());
    Channel::over("test", AgentRole::Server, LIMIT, output, input).expect_err("no agent")
}

fn frame(json: &str) -> Vec<u8> {
    [&(json.len() as u32).to_le_bytes(), json.as_bytes()].concat()
}

fn command(typed: &str) -> AgentCommand {
    typed.parse().expect("a command")
}

#[test]
fn text_arrives_as_it_was_sent_whatever_it_contains() {
    let agent = agent(Clock::default(), b"");
    for text in ["", "a 'b' \"c\" $d `e` \\f\n\r\0\u{1b}[1m ü 💥", &"x".repeat(1 << 20)] {
        let order = Repeat { text: text.to_owned() };
        assert_eq!(agent.channel.call(order).expect("an answer"), text);
    }
}

#[test]
fn a_login_banner_before_the_agent_is_skipped() {
    let agent = agent(Clock::default(), b"Welcome to bench2!\nYou have mail.\n\0\xff");
    let order = Repeat { text: "a".to_owned() };
    assert_eq!(agent.channel.call(order).expect("an answer"), "a");
    assert_eq!(agent.channel.host(), Hello::own(AgentRole::Server).host);
}

#[test]
fn an_order_that_is_refused_leaves_the_channel_open() {
    let agent = agent(Clock::default(), b"");
    let error = agent.channel.call(Refuse { why: "no Go: install it".to_owned() });
    let error = error.expect_err("a refusal").to_string();
    assert_eq!(error, "test: while refusing: no Go: install it");
    let order = Repeat { text: "a".to_owned() };
    assert_eq!(agent.channel.call(order).expect("an answer"), "a");
}

#[test]
fn a_report_after_the_limit_is_an_error_and_closes_the_channel() {
    let agent = agent(Clock::default(), b"");
    let error = agent.channel.call(Wait { limit: SHORT });
    let late = ChannelFault::Late { limit: SHORT, said: String::new() };
    assert_eq!(error.expect_err("too late").fault, late);
    let error = agent.channel.call(Repeat { text: "a".to_owned() });
    assert_eq!(error.expect_err("a closed channel").fault, late);
    agent.proceed.send(()).expect("a waiting agent");
    assert_eq!(agent.thread.join().expect("no panic"), Ending::Closed);
}

#[test]
fn an_agent_ends_when_its_channel_is_dropped() {
    let agent = agent(Clock::default(), b"");
    drop(agent.channel);
    assert_eq!(agent.thread.join().expect("no panic"), Ending::Closed);
}

/// An agent service that never finishes an order.
struct Busy(mpsc::Sender<()>);

impl AgentService for Busy {
    fn carry_out(&mut self, _: &RawValue) -> Answer {
        let _ = self.0.send(());
        loop {
            std::thread::park();
        }
    }
}

/// The order is still being carried out when the channel is closed.
#[test]
fn an_agent_that_is_busy_ends_its_process_when_its_channel_is_dropped() {
    let (agent_input, mut output) = pipe().expect("a pipe");
    let (mut input, agent_output) = pipe().expect("a pipe");
    let (ended, end) = mpsc::channel();
    let (started, start) = mpsc::channel();
    std::thread::spawn(move || {
        let open = |_| Ok(Box::new(Busy(started)) as Box<dyn AgentService>);
        serve(agent_input, agent_output, Clock::default(), open, move || {
            let _ = ended.send(());
        })
    });
    let hello = serde_json::to_string(&Hello::own(AgentRole::Server)).expect("text");
    output.write_all(&frame(&hello)).expect("written");
    output.write_all(&frame(r#"{"Order":{"number":1,"order":null}}"#)).expect("written");
    start.recv_timeout(LIMIT).expect("a busy agent");
    drop(output);
    end.recv_timeout(LIMIT).expect("the end of the process");
    let mut first = vec![0; MARKER.len()];
    input.read_exact(&mut first).expect("a marker");
    assert_eq!(first, MARKER);
}

/// This test takes 15 s. The controller sends nothing after its hello, not even heartbeats.
#[test]
fn an_agent_ends_when_nothing_comes_from_its_controller() {
    let (agent_input, mut output) = pipe().expect("a pipe");
    let (_input, agent_output) = pipe().expect("a pipe");
    let agent = std::thread::spawn(move || {
        let (_never, wait) = mpsc::channel();
        let open = |_| Ok(Box::new(Echo(wait)) as Box<dyn AgentService>);
        serve(agent_input, agent_output, Clock::default(), open, || {})
    });
    let hello = serde_json::to_string(&Hello::own(AgentRole::Server)).expect("text");
    output.write_all(&frame(&hello)).expect("written");
    assert_eq!(agent.join().expect("no panic"), Ending::Silent);
}

#[test]
fn an_agent_of_another_version_is_named() {
    let hello = r#"{"protocol":1,"version":"9.9.9","host":"bench2","role":"server"}"#;
    let error = error_of(&[MARKER, &frame(hello)].concat());
    assert!(matches!(error.fault, ChannelFault::Mismatch { .. }), "{error}");
    let own = env!("CARGO_PKG_VERSION");
    assert_eq!(
        error.to_string(),
        format!(
            "test: while connecting: the agent on bench2 is hotlap 9.9.9 (protocol 1), but this is \
             hotlap {own} (protocol 9): install the same version on both hosts"
        )
    );
}

/// The agent checks the version too, not only the controller.
#[test]
fn an_agent_serves_no_controller_of_another_version() {
    let hello = r#"{"protocol":2,"version":"9.9.9","host":"bench1","role":"server"}"#;
    let input = std::io::Cursor::new(frame(hello));
    let open = |_| Err("never asked".to_owned());
    let ending = serve(input, std::io::sink(), Clock::default(), open, || {});
    assert_eq!(ending, Ending::Mismatch);
}

#[test]
fn what_is_no_agent_is_quoted() {
    let error = error_of(b"bash: hotlap: command not found\n").to_string();
    assert!(error.contains(r#"The command printed "bash: hotlap: command not found""#), "{error}");
    // The bytes are a message that is cut off, no message, one that is too long, and one that is
    // not JSON.
    for bytes in [&[5, 0, 0, 0, b'"'][..], &[], &[0xff; 4], &[1, 0, 0, 0, b'?']] {
        let error = error_of(&[MARKER, bytes].concat());
        let is_known =
            matches!(error.fault, ChannelFault::NoAgent { .. } | ChannelFault::Malformed(_));
        assert!(is_known, "{bytes:?}: {error}");
    }
}

#[test]
fn a_command_that_cannot_be_started_or_says_why_it_ends_is_an_error() {
    let open =
        |typed: &str| Channel::open(&command(typed), AgentRole::Server, LIMIT, &Arc::default());
    let error = open("/no/such/program").expect_err("no program").to_string();
    assert!(error.contains("cannot start /no/such/program: "), "{error}");
    let error = open("sh -c 'echo Permission denied >&2; exit 255' sh").expect_err("no agent");
    let expected = r#"no agent answered. The command printed "Permission denied". Check"#;
    assert!(error.to_string().contains(expected), "{error}");
}

/// `cat` echoes its input, which is empty before the marker. `yes` never ends.
#[test]
fn a_command_that_says_nothing_or_never_stops_is_an_error_within_the_limit() {
    let open = |typed: &str| {
        let limit = Duration::from_secs(2);
        let opened = Channel::open(&command(typed), AgentRole::Server, limit, &Arc::default());
        opened.expect_err("no agent")
    };
    assert!(matches!(open("sh -c 'exec cat' sh").fault, ChannelFault::Late { .. }));
    assert!(matches!(open("yes").fault, ChannelFault::NoAgent { .. }));
}

/// The interrupt ends the wait of a call that began earlier. Calls that clean up afterwards wait
/// for their answers. The late answer to the first call is ignored.
#[test]
fn an_interrupt_ends_the_wait_for_an_agent_but_not_the_channel() {
    let stop = Arc::new(AtomicBool::new(false));
    let typed = command("sh -c 'exec cat' sh");
    std::thread::scope(|scope| {
        let open = || Channel::open(&typed, AgentRole::Server, Duration::from_secs(3_600), &stop);
        let opened = scope.spawn(open);
        std::thread::sleep(SHORT);
        stop.store(true, Ordering::Relaxed);
        let error = opened.join().expect("no panic").expect_err("an interrupt");
        assert_eq!(error.fault, ChannelFault::Interrupted);
    });
    let stop = Arc::new(AtomicBool::new(false));
    let agent = agent(Clock::default(), b"");
    let channel = agent.channel.interrupted_by(&stop);
    let limit = Duration::from_secs(3_600);
    std::thread::scope(|scope| {
        let called = scope.spawn(|| channel.call(Wait { limit }));
        std::thread::sleep(SHORT);
        stop.store(true, Ordering::Relaxed);
        let error = called.join().expect("no panic").expect_err("an interrupt");
        assert_eq!(error.to_string(), "test: while waiting: interrupted");
    });
    agent.proceed.send(()).expect("a waiting agent");
    let order = Repeat { text: "in order".to_owned() };
    assert_eq!(channel.call(order).expect("an answer"), "in order");
}

#[test]
fn the_offset_of_a_clock_is_found_to_within_its_error() {
    for shift_ns in [0, 3_000_000_000, -3_000_000_000_i64] {
        let agent = agent(Clock::shifted(shift_ns), b"");
        let offset = agent.channel.clock(LIMIT).expect("an offset");
        assert!(offset.ns.abs_diff(shift_ns) <= offset.error_ns, "{shift_ns}: {offset:?}");
        // The channel is a pipe between two threads, so the error is small.
        assert!(offset.error() < Duration::from_secs(1), "{offset:?}");
    }
}
