//! Measures the cost and the accuracy of reading the CPU clock of a busy process. The clock is read
//! without any preparation, after a move to each of the process's cores in turn, and after a
//! [`ClockFlush`].
//!
//!     cargo bench -p hotlap-servers --bench clock_read
//!
//! A child process spins in one thread per core. The child's clock is read every 12 ms. After each
//! reading, the child is stopped at once, and its clock is read again. The second reading is exact.
//! The difference between the readings is the lag of the first, plus the time that the stop took. A
//! list of 64 cores simulates a larger machine. On a smaller machine, each core is visited several
//! times. The number of moves and wake-ups is the same, though fewer happen at once.
#![allow(clippy::print_stdout, reason = "a bench reports to its terminal")]

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::process::{Child, Command};
    use std::thread;
    use std::time::{Duration, Instant};

    use hotlap_observe::Roots;
    use hotlap_observe::Sampler;
    use hotlap_observe::cpus::ClockFlush;
    use hotlap_observe::cpus::{allowed, pin};
    use hotlap_observe::processes;
    use rustix::process::{Pid, Signal, kill_process};

    const WINDOW: Duration = Duration::from_millis(12);
    const WINDOWS: usize = 60;

    /// A process that spins. Dropping this value ends it.
    struct Spinner(Child);

    impl Drop for Spinner {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    pub(super) fn main() {
        let words: Vec<String> = std::env::args().skip(1).collect();
        if let [word, cpus] = &words[..]
            && word == "spin"
        {
            return spin(&hotlap_observe::cpus::parse(cpus).expect("a list of cores"));
        }
        let all = allowed().expect("the cores");
        println!("                 a read, µs           behind, µs a core");
        println!("cores how             median        90%       16%       50%       84%");
        for count in [1, 2.min(all.len())] {
            let cpus = &all[..count];
            report(cpus, "plain", cpus, &|_| ());
            report(cpus, "moves", cpus, &moves);
            report(cpus, "visit", cpus, &|cpus| drop(ClockFlush::to(cpus)));
        }
        let many: Vec<usize> = all.iter().copied().cycle().take(64).collect();
        report(&all[..1], "moves", &many, &moves);
        report(&all[..1], "visit", &many, &|cpus| drop(ClockFlush::to(cpus)));
    }

    /// Moves to each core in turn, and then back: the alternative to a [`ClockFlush`].
    fn moves(cpus: &[usize]) {
        let home = allowed().expect("the cores");
        for cpu in cpus {
            pin(&[*cpu]).expect("a core");
        }
        pin(&home).expect("home");
    }

    /// Prints one row: the clock of a process that spins on some cores, read after visits to the
    /// same or other cores.
    fn report(spinning: &[usize], name: &str, visited: &[usize], visit: &dyn Fn(&[usize])) {
        let program = std::env::current_exe().expect("this program");
        let list = hotlap_observe::cpus::list(spinning);
        let child = Command::new(program).args(["spin", &list]).spawn().expect("a child");
        let spinner = Spinner(child);
        thread::sleep(Duration::from_millis(100));
        let table = processes::all().expect("the process table");
        let top = table.into_iter().find(|member| member.pid == spinner.0.id()).expect("the child");
        let mut sampler = Sampler::new(Roots { supervisor: None, tops: vec![top] });
        let mut reads = Vec::new();
        let mut read = |sampler: &mut Sampler| {
            let began = Instant::now();
            visit(visited);
            let cpu = sampler.cpu().expect("a clock");
            reads.push(began.elapsed().as_secs_f64() * 1e6);
            cpu.cpu_ns
        };
        let mut off = Vec::new();
        for _ in 0..WINDOWS {
            thread::sleep(WINDOW);
            let before = read(&mut sampler);
            signal(&spinner, Signal::STOP);
            while !has_stopped(&spinner) {}
            let after = sampler.cpu().expect("a clock").cpu_ns;
            signal(&spinner, Signal::CONT);
            off.push((after - before) as f64 / 1e3 / spinning.len() as f64);
        }
        reads.sort_by(f64::total_cmp);
        off.sort_by(f64::total_cmp);
        let at = |values: &[f64], share: f64| values[(share * (values.len() - 1) as f64) as usize];
        println!(
            "{:>5} {name:<9} {:>10.0} {:>10.0} {:>10.0} {:>10.0} {:>10.0}",
            visited.len(),
            at(&reads, 0.5),
            at(&reads, 0.9),
            at(&off, 0.16),
            at(&off, 0.5),
            at(&off, 0.84),
        );
    }

    fn signal(spinner: &Spinner, signal: Signal) {
        let pid = Pid::from_raw(spinner.0.id().cast_signed()).expect("a process id");
        kill_process(pid, signal).expect("a signal to a child");
    }

    fn has_stopped(spinner: &Spinner) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", spinner.0.id()));
        stat.expect("the child").contains(") T ")
    }

    fn spin(cpus: &[usize]) {
        for &cpu in cpus {
            thread::spawn(move || {
                pin(&[cpu]).expect("a core");
                loop {
                    std::hint::black_box(cpu);
                }
            });
        }
        thread::sleep(Duration::from_secs(120));
    }
}
