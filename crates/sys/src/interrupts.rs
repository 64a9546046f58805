//! Interrupts that CPUs send to each other, as counted in `/proc/interrupts`.

use super::procfs::Malformed;

/// Interrupts that other CPUs have sent to one CPU since boot. The kernel's counters are 32 bits
/// wide and wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterProcessor {
    /// The CPU that received them.
    pub cpu: u32,
    /// Rescheduling interrupts.
    pub reschedule: u32,
    /// Function call interrupts, including those for queued network work.
    pub call: u32,
    /// TLB shootdowns; `None` if they are not counted separately.
    pub tlb: Option<u32>,
}

/// Parses the inter-processor lines of `/proc/interrupts` (`arch_show_interrupts`,
/// arch/x86/kernel/irq.c; `show_ipi_list`, arch/arm64/kernel/smp.c): a line with the names of all
/// online CPUs, then a line per kind, with a count for each CPU and a description.
pub fn parse(text: &str) -> Result<Vec<InterProcessor>, Malformed> {
    let counts = |kind: &str, cpus: usize| -> Option<Vec<u32>> {
        let line = text.lines().find(|line| line.trim_end().ends_with(kind))?;
        let (_, counts) = line.split_once(':')?;
        let counts = counts.split_ascii_whitespace().take(cpus).map(|count| count.parse().ok());
        counts.collect::<Option<Vec<u32>>>().filter(|counts| counts.len() == cpus)
    };
    let rows = || -> Option<Vec<InterProcessor>> {
        let head = text.lines().next()?.split_ascii_whitespace();
        let cpus = head.map(|cpu| cpu.strip_prefix("CPU")?.parse().ok());
        let cpus: Vec<u32> = cpus.collect::<Option<_>>()?;
        let of = |kind| counts(kind, cpus.len());
        let (reschedule, call) = (of("Rescheduling interrupts")?, of("Function call interrupts")?);
        let tlb = of("TLB shootdowns");
        let each = cpus.iter().zip(reschedule).zip(call).enumerate();
        let row = |(at, ((cpu, reschedule), call)): (usize, ((&u32, u32), u32))| {
            let tlb = tlb.as_ref().map(|tlb| tlb[at]);
            InterProcessor { cpu: *cpu, reschedule, call, tlb }
        };
        Some(each.map(row).collect())
    };
    rows()
        .ok_or_else(|| Malformed::new("/proc/interrupts", text.lines().next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_words() {
        // Two machines with CPU 2 offline: x86 as Linux 6.18 prints it, with made-up counts, and
        // arm64.
        let x86 = "           CPU0       CPU1       CPU3       
  24:          1          0          5  IO-APIC   5-edge      Rescheduling
 NMI:          0          0          0   Non-maskable interrupts
 RES:    8359998   52879763 4294967295   Rescheduling interrupts
 CAL:   42423365   52531324          7   Function call interrupts
 TLB:    2454680    2475327          0   TLB shootdowns
 ERR:          0
";
        let rows = parse(x86).unwrap();
        let last = InterProcessor { cpu: 3, reschedule: u32::MAX, call: 7, tlb: Some(0) };
        assert_eq!((rows.len(), rows[1].call, rows[2]), (3, 52_531_324, last));
        let arm = "     CPU0   CPU1\nIPI0:   12  34  Rescheduling interrupts\nIPI1:  5 6   Function call interrupts\n";
        let row = |cpu, reschedule, call| InterProcessor { cpu, reschedule, call, tlb: None };
        assert_eq!(parse(arm).unwrap(), [row(0, 12, 5), row(1, 34, 6)]);
        for wrong in [
            "",
            "cpu0",
            "CPU0\n",
            "CPU0 CPU1\nRES: 1 Rescheduling interrupts\nCAL: 1 2 Function call interrupts\n",
        ] {
            assert!(parse(wrong).unwrap_err().to_string().contains("/proc/interrupts"), "{wrong}");
        }
    }
}
