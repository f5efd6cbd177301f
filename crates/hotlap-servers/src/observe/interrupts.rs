//! Functions of the kernel that the sampling clock sees instead of their callers.
//!
//! The clock is a timer, and a timer cannot interrupt code that runs with interrupts off. A sample
//! of such code is taken where interrupts are switched on again. So time on top of these functions
//! is not their own: their caller has spent it.
//!
//! Functions that enter and leave the kernel by a system call switch interrupts on too. They are
//! not listed, because the time before is that of entering and leaving.

/// The library of functions of the kernel.
pub(super) const KERNEL: &str = "kernel";

/// The beginnings of the names of functions in which a section with interrupts off ends.
const ENDS: [&str; 8] = [
    // The end of a lock that its holder took with interrupts off.
    "_raw_spin_unlock_irq",
    "_raw_read_unlock_irq",
    "_raw_write_unlock_irq",
    // The end of a switch to another thread, which `__schedule` makes.
    "finish_task_switch",
    // The start of deferred work: interrupts were off in what called for it.
    "handle_softirqs",
    "__do_softirq",
    "do_softirq",
    // The end of an interrupt.
    "irqentry_exit",
];

/// How many frames at the end of a stack, outermost first, the clock saw instead of their caller.
/// A caller in user mode has not spent the kernel's time.
/// Each frame is a function and its library.
pub(super) fn seen_instead(stack: &[(&str, &str)]) -> usize {
    let stands_for_caller = |pair: &&[(&str, &str)]| {
        let ends = ENDS.iter().any(|beginning| pair[1].0.starts_with(beginning));
        ends && pair[0].1 == KERNEL && pair[1].1 == KERNEL
    };
    stack.windows(2).rev().take_while(stands_for_caller).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function that has a sample of `main` and these functions of the kernel.
    fn spent_by(in_kernel: &[&str]) -> String {
        let kernel = in_kernel.iter().map(|function| (*function, KERNEL));
        let stack: Vec<(&str, &str)> = std::iter::once(("main", "app")).chain(kernel).collect();
        stack[stack.len() - 1 - seen_instead(&stack)].0.to_owned()
    }

    #[test]
    fn time_with_interrupts_off_is_the_callers() {
        let spent = [
            (&["do_syscall_64", "__mod_timer", "_raw_spin_unlock_irqrestore"][..], "__mod_timer"),
            (&["tcp_rcv_established", "sock_def_readable"], "sock_def_readable"),
            (&["net_rx_action", "process_backlog", "_raw_spin_unlock_irq"], "process_backlog"),
            (&["schedule", "__schedule", "finish_task_switch.isra.0"], "__schedule"),
            (
                &["ip_output", "__local_bh_enable_ip", "do_softirq.part.0", "handle_softirqs"],
                "__local_bh_enable_ip",
            ),
            (
                &["asm_sysvec_apic_timer_interrupt", "irqentry_exit_to_user_mode"],
                "asm_sysvec_apic_timer_interrupt",
            ),
        ];
        for (stack, function) in spent {
            assert_eq!(spent_by(stack), function, "{stack:?}");
        }
    }

    #[test]
    fn time_with_interrupts_on_stays_where_it_is() {
        // Work that such a function calls has interrupts on.
        assert_eq!(spent_by(&["do_softirq", "handle_softirqs", "net_rx_action"]), "net_rx_action");
        assert_eq!(spent_by(&["tcp_recvmsg", "_raw_spin_unlock_bh"]), "_raw_spin_unlock_bh");
        assert_eq!(spent_by(&["entry_SYSCALL_64", "do_syscall_64"]), "do_syscall_64");
        assert_eq!(spent_by(&[]), "main");
    }

    #[test]
    fn time_in_the_kernel_is_never_given_to_the_program() {
        assert_eq!(spent_by(&["_raw_spin_unlock_irq"]), "_raw_spin_unlock_irq");
        assert_eq!(spent_by(&["do_softirq", "handle_softirqs"]), "do_softirq");
    }
}
