//! The confinement of the compiler process. Before the process reads a component, it closes inherited descriptors,
//! limits its memory and time, and gives up the file system, the network and all system calls that compiling does not
//! need.

use super::report::Request;
use serde::{Deserialize, Serialize};

/// Which parts of the confinement this kernel enforces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// The system calls are filtered.
    pub(crate) seccomp: bool,
    /// Access to the file system and the network is denied.
    pub(crate) landlock: bool,
}

impl Confinement {
    /// The names of the parts of the confinement that this kernel does not enforce, as text for a message. None if the
    /// kernel enforces all parts.
    pub(crate) fn missing(self) -> Option<&'static str> {
        match (self.seccomp, self.landlock) {
            (true, true) => None,
            (false, true) => Some("seccomp"),
            (true, false) => Some("landlock"),
            (false, false) => Some("seccomp and landlock"),
        }
    }
}

#[cfg(unix)]
pub(super) use limits::limit_this_process;
#[cfg(target_os = "linux")]
pub(super) use linux::{close_inherited_descriptors, confine_this_process};

/// The limits that the process can set on itself on every Unix system. On systems other than Unix, only the host's
/// limit on wall time applies to the process.
#[cfg(unix)]
mod limits {
    use super::Request;
    use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};

    /// The niceness of the compiler process, which can be from 0 to 19. A child with niceness 5 gets about a third of
    /// the processor time of a process with normal priority.
    const NICENESS: i32 = 5;
    /// Maximum number of open files in the compiler process. The process needs few files: the three pipes are already
    /// open, and the engine does not open files.
    const MAX_OPEN_FILES: u64 = 64;

    /// Limits memory and processor time, and forbids core dumps and writing files.
    pub(crate) fn limit_this_process(request: &Request) {
        // If a lower limit is already in force, it is not raised. The hard limit is one unit (a second or a byte) above
        // the soft limit.
        let limit = |resource: Resource, bound: u64| {
            let bound = getrlimit(resource).current.map_or(bound, |set| set.min(bound));
            let _ = setrlimit(resource, Rlimit { current: Some(bound), maximum: Some(bound + 1) });
        };
        // The address space is not limited, because the engine reserves far more address space than it uses.
        limit(Resource::Data, request.memory);
        limit(Resource::Cpu, request.seconds.max(1));
        limit(Resource::Nofile, MAX_OPEN_FILES);
        for none in [Resource::Core, Resource::Fsize] {
            let _ = setrlimit(none, Rlimit { current: Some(0), maximum: Some(0) });
        }
        let _ = nice(NICENESS);
    }
}

#[cfg(not(unix))]
pub(super) fn limit_this_process(_: &Request) {}

#[cfg(not(target_os = "linux"))]
pub(super) fn close_inherited_descriptors() {}

#[cfg(not(target_os = "linux"))]
pub(super) fn confine_this_process() -> Confinement {
    Confinement::default()
}

#[cfg(target_os = "linux")]
mod linux {
    use super::Confinement;
    use landlock::{
        ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope,
    };
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };
    use std::collections::BTreeMap;
    use std::os::fd::{FromRawFd, OwnedFd, RawFd};

    /// The lowest descriptor number that does not belong to one of the three pipes.
    const FIRST_INHERITED: RawFd = 3;

    /// Closes all inherited descriptors except the three pipes. The descriptors that the host opened are close-on-exec,
    /// so only descriptors that the host itself inherited are left to close.
    pub(crate) fn close_inherited_descriptors() {
        let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        // The numbers of the descriptors are collected first, because the list itself is read through a descriptor,
        // which must be closed before the inherited descriptors are closed.
        let inherited: Vec<RawFd> = numbers.filter(|number| *number >= FIRST_INHERITED).collect();
        for number in inherited {
            close(number);
        }
    }

    #[allow(unsafe_code, reason = "an inherited descriptor can be closed only by its number")]
    fn close(number: RawFd) {
        let is_open = std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
        if is_open {
            // SAFETY: this code runs at the start of the process, before the process has opened a descriptor that stays
            // open. An open descriptor was therefore inherited, and no value in this process owns it.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }

    /// Gives up files, the network and all system calls that compiling does not need, as far as the kernel can enforce
    /// it. No other thread is running yet, and later threads inherit the confinement.
    pub(crate) fn confine_this_process() -> Confinement {
        Confinement { landlock: deny_files().unwrap_or(false), seccomp: filter_system_calls().is_some() }
    }

    /// Denies access to files and the network with a Landlock ruleset that has no rules: such a ruleset denies every
    /// kind of access that it handles.
    fn deny_files() -> Option<bool> {
        let abi = ABI::V6;
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(abi))
            .ok()?
            .handle_access(AccessNet::from_all(abi))
            .ok()?
            .scope(Scope::from_all(abi))
            .ok()?;
        let status = ruleset.create().ok()?.restrict_self().ok()?;
        Some(status.ruleset != RulesetStatus::NotEnforced)
    }

    fn filter_system_calls() -> Option<()> {
        let arch = std::env::consts::ARCH.try_into().ok()?;
        let denied = SeccompAction::Errno(libc::EPERM as u32);
        let allowed = SeccompFilter::new(allowed_calls().ok()?, denied, SeccompAction::Allow, arch).ok()?;
        // The C library creates threads with `clone3`, whose flags a filter cannot read. The filter therefore reports
        // that `clone3` does not exist, and the C library uses `clone` instead.
        let missing = SeccompAction::Errno(libc::ENOSYS as u32);
        let without_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let without_clone3 = SeccompFilter::new(without_clone3, SeccompAction::Allow, missing, arch).ok()?;
        let programs: [BpfProgram; 2] = [without_clone3.try_into().ok()?, allowed.try_into().ok()?];
        // The order of the two filter programs matters: the second program forbids the system call that installs
        // filter programs.
        seccompiler::apply_filter(&programs[0]).ok()?;
        seccompiler::apply_filter(&programs[1]).ok()
    }

    type Rules = BTreeMap<i64, Vec<SeccompRule>>;

    /// The system calls that the compiler needs for memory, threads, waiting, time and its three pipes.
    fn allowed_calls() -> Result<Rules, seccompiler::BackendError> {
        let always = [
            libc::SYS_brk,
            libc::SYS_clock_gettime,
            libc::SYS_clock_nanosleep,
            libc::SYS_clone3,
            libc::SYS_close,
            libc::SYS_exit,
            libc::SYS_exit_group,
            libc::SYS_fstat,
            libc::SYS_futex,
            libc::SYS_getpid,
            libc::SYS_getrandom,
            libc::SYS_gettid,
            libc::SYS_madvise,
            libc::SYS_membarrier,
            libc::SYS_mremap,
            libc::SYS_munmap,
            libc::SYS_nanosleep,
            libc::SYS_read,
            libc::SYS_restart_syscall,
            libc::SYS_rseq,
            libc::SYS_rt_sigaction,
            libc::SYS_rt_sigprocmask,
            libc::SYS_rt_sigreturn,
            libc::SYS_sched_getaffinity,
            libc::SYS_sched_yield,
            libc::SYS_set_robust_list,
            libc::SYS_sigaltstack,
            libc::SYS_write,
            libc::SYS_writev,
        ];
        let mut rules: Rules = always.into_iter().map(|number| (number, Vec::new())).collect();
        // New threads are allowed, but new processes are not.
        let threads = (libc::CLONE_VM | libc::CLONE_THREAD) as u64;
        rules.insert(libc::SYS_clone, vec![argument_rule(0, SeccompCmpOp::MaskedEq(threads), threads)?]);
        // Executable memory is not allowed, because the compiler process never runs the code that it compiles.
        let executable = libc::PROT_EXEC as u64;
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            rules.insert(call, vec![argument_rule(2, SeccompCmpOp::MaskedEq(executable), 0)?]);
        }
        // The process may give names to threads and memory areas.
        let names =
            [libc::PR_SET_NAME, libc::PR_SET_VMA].map(|option| argument_rule(0, SeccompCmpOp::Eq, option as u64));
        rules.insert(libc::SYS_prctl, names.into_iter().collect::<Result<_, _>>()?);
        // Signals to the process's own threads are allowed, so that the process can abort after a fault.
        let process_id = u64::from(std::process::id());
        rules.insert(libc::SYS_tgkill, vec![argument_rule(0, SeccompCmpOp::Eq, process_id)?]);
        Ok(rules)
    }

    fn argument_rule(
        argument: u8,
        operator: SeccompCmpOp,
        value: u64,
    ) -> Result<SeccompRule, seccompiler::BackendError> {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![condition])
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
