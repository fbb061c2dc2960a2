//! `plugin new`: a project that builds as it is, and has a test (S1).

use crate::arguments::new::NewArguments;
use crate::exit::Failure;
use crate::terminal::{BOLD, Terminal};
use agent_devkit::Language;
use agent_devkit::new::{NewProject, ProjectKind, Sdk, create};

/// Makes it, and says how to go on.
pub(super) fn new(arguments: NewArguments, terminal: &Terminal) -> Result<(), Failure> {
    let NewArguments { name, kind, lang, dir, sdk } = arguments;
    let (kind, language) = (ProjectKind::from(kind), Language::from(lang));
    let sdk = sdk.map_or(Sdk::Carried, Sdk::At);
    let made = create(&NewProject { name, kind, language, directory: dir, sdk }).map_err(Failure::refused)?;
    let path = made.path.display();
    let mut lines = vec![format!("{BOLD}{path}{BOLD:#}  {} in {language}", kind.words()), format!("  cd {path}")];
    lines.extend(made.commands.iter().map(|command| format!("  {command}")));
    super::print(terminal, lines.join("\n"))
}
