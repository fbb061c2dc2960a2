//! What the examining child gives up before it reads a component: inherited descriptors, memory and time beyond its limits, the
//! file system, the network, and every system call that compiling does not need.

use super::report::Request;
use serde::{Deserialize, Serialize};

/// What of the confinement the kernel has put into force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// System calls are filtered.
    pub(crate) seccomp: bool,
    /// The file system is out of reach.
    pub(crate) landlock: bool,
}

impl Confinement {
    /// What is missing, for people.
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

/// Bounds that every Unix has. A system that has none of them still has the host's clock.
#[cfg(unix)]
mod limits {
    use super::Request;
    use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};

    /// How little the child asks of the processors, from 0 to 19: beside one that asks usually, a third of its share.
    const NICENESS: i32 = 5;
    /// Open files: the engine opens none, and its three pipes are there already.
    const OPEN_FILES: u64 = 64;

    /// Bounds memory and processor time, and allows neither core dumps nor files.
    pub(crate) fn limit_this_process(request: &Request) {
        // One that somebody has set lower stays. Behind the first bound is a last one, in seconds or bytes.
        let limit = |resource: Resource, bound: u64| {
            let bound = getrlimit(resource).current.map_or(bound, |set| set.min(bound));
            let _ = setrlimit(resource, Rlimit { current: Some(bound), maximum: Some(bound + 1) });
        };
        // Not the address space: the engine reserves far more of that than it ever uses.
        limit(Resource::Data, request.memory);
        limit(Resource::Cpu, request.seconds.max(1));
        limit(Resource::Nofile, OPEN_FILES);
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

    /// The first descriptor behind the three pipes.
    const FIRST_INHERITED: RawFd = 3;

    /// Closes what this process has inherited beside its three pipes: the host marks its own descriptors to be closed, and this
    /// closes those that the host inherited itself.
    pub(crate) fn close_inherited_descriptors() {
        let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        // Collected first: reading the folder takes a descriptor of its own, which is closed by then.
        let inherited: Vec<RawFd> = numbers.filter(|number| *number >= FIRST_INHERITED).collect();
        for number in inherited {
            close(number);
        }
    }

    #[allow(unsafe_code, reason = "closing a descriptor by its number is the only way to close one that was inherited")]
    fn close(number: RawFd) {
        let is_open = std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
        if is_open {
            // SAFETY: this runs at the start of the process, before anything in it has opened a descriptor that stays: what is
            // open was inherited, and nobody in this process owns it.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }

    /// Gives up files, the network and all system calls that compiling does not need, as far as the kernel can enforce it. This
    /// holds for threads that start later, too; none has started.
    pub(crate) fn confine_this_process() -> Confinement {
        Confinement { landlock: deny_files().unwrap_or(false), seccomp: filter_system_calls().is_some() }
    }

    /// A ruleset without rules denies whatever it handles.
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
        // The C library asks for threads by `clone3`, whose flags a filter cannot read. Where that is missing it uses `clone`.
        let missing = SeccompAction::Errno(libc::ENOSYS as u32);
        let without_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let without_clone3 = SeccompFilter::new(without_clone3, SeccompAction::Allow, missing, arch).ok()?;
        let programs: [BpfProgram; 2] = [without_clone3.try_into().ok()?, allowed.try_into().ok()?];
        // The second program still allows the call that installs programs no more: so the order is this one.
        seccompiler::apply_filter(&programs[0]).ok()?;
        seccompiler::apply_filter(&programs[1]).ok()
    }

    type Rules = BTreeMap<i64, Vec<SeccompRule>>;

    /// What compiling needs: memory, threads, waiting, time, and the three pipes.
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
        // Threads, but no processes.
        let threads = (libc::CLONE_VM | libc::CLONE_THREAD) as u64;
        rules.insert(libc::SYS_clone, vec![when(0, SeccompCmpOp::MaskedEq(threads), threads)?]);
        // Memory, but none that can be executed: the child compiles code and never runs it.
        let executable = libc::PROT_EXEC as u64;
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            rules.insert(call, vec![when(2, SeccompCmpOp::MaskedEq(executable), 0)?]);
        }
        // The names of threads and of memory.
        let names = [libc::PR_SET_NAME, libc::PR_SET_VMA].map(|option| when(0, SeccompCmpOp::Eq, option as u64));
        rules.insert(libc::SYS_prctl, names.into_iter().collect::<Result<_, _>>()?);
        // Ending itself after a fault: a signal to its own threads.
        let own = u64::from(std::process::id());
        rules.insert(libc::SYS_tgkill, vec![when(0, SeccompCmpOp::Eq, own)?]);
        Ok(rules)
    }

    fn when(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![condition])
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
