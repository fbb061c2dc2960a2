//! Checks the toolchains that build plugins. A missing toolchain is only a hint, because most users build no plugins, and
//! others build them in one language.

use super::{Finding, Level};
use agent_devkit::build::{TARGET, Toolchain, program_in};
use std::path::{Path, PathBuf};

/// Checks the toolchains of all languages.
pub(super) async fn check(toolchain: &Toolchain) -> Vec<Finding> {
    let mut findings = vec![rust(toolchain).await];
    let find = |variable: &str, programs: &[&str]| -> Option<PathBuf> {
        let named = toolchain.tools.named.get(variable).cloned();
        named.or_else(|| programs.iter().find_map(|program| program_in(program, &toolchain.tools.path)))
    };
    let languages = [
        ("for Python", find("COMPONENTIZE_PY", &["componentize-py"]), "install componentize-py with pip"),
        ("for JavaScript", find("JCO", &["jco"]), "install @bytecodealliance/jco and componentize-js with npm"),
        ("for C", find("ZIG", &["zig"]).or_else(|| find("WASI_SDK_PATH", &[])), "install zig, or set WASI_SDK_PATH"),
    ];
    findings.extend(languages.into_iter().map(|(area, program, install)| match program {
        Some(program) if program.exists() => Finding::ok(area, program.display().to_string()),
        Some(program) => {
            let message = format!("`{}` does not exist, although a variable names it", program.display());
            Finding::new(area, Level::Hint, message, "correct the variable, or unset it")
        }
        None => Finding::new(area, Level::Hint, "plugins in this language cannot be built", install),
    }));
    findings
}

async fn rust(toolchain: &Toolchain) -> Finding {
    const AREA: &str = "for Rust";
    let Some(cargo) = &toolchain.cargo else {
        return Finding::new(AREA, Level::Hint, "plugins in Rust cannot be built", "install Rust with rustup");
    };
    match toolchain.has_target(Path::new(".")).await {
        Ok(true) => Finding::ok(AREA, format!("{} with the target {TARGET}", cargo.display())),
        Ok(false) => {
            let fix = format!(
                "`rustup target add {TARGET}` adds it, and `agent-host plugin build` does so when it is needed"
            );
            Finding::new(AREA, Level::Hint, format!("{} has no target {TARGET}", cargo.display()), fix)
        }
        Err(error) => {
            // The compiler can print a long backtrace after its message.
            let message = error.to_string().lines().take(3).collect::<Vec<_>>().join("\n");
            let fix = "run the command `rustc --version` here, and follow its advice; `rustup update` updates Rust";
            Finding::new(AREA, Level::Hint, message, fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Missing toolchains are hints that say what to install, never errors.
    #[tokio::test]
    async fn missing_toolchains_are_hints() {
        let findings = check(&Toolchain::default()).await;
        assert_eq!(findings.len(), 4);
        for finding in findings {
            assert_eq!(finding.level, Level::Hint, "{finding:?}");
            assert!(finding.fix.is_some_and(|fix| fix.contains("install")));
        }
    }
}
