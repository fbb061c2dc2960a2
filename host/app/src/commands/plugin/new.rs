//! `plugin new`: creates a plugin project that can be built without changes and has a test (S1).

use crate::arguments::new::NewArguments;
use crate::exit::Failure;
use crate::terminal::{BOLD, Terminal};
use agent_devkit::Language;
use agent_devkit::new::{Example, NewProject, ProjectKind, Sdk, create};

/// Creates the project, and shows the next commands.
pub(super) fn new(arguments: NewArguments, terminal: &Terminal) -> Result<(), Failure> {
    let NewArguments { name, kind, lang, http, dir, sdk } = arguments;
    let (kind, language) = (ProjectKind::from(kind), Language::from(lang));
    let sdk = sdk.map_or(Sdk::Embedded, Sdk::At);
    let example = if http { Example::Http } else { Example::Simple };
    let project = NewProject { name, kind, example, language, directory: dir, sdk };
    let created = create(&project).map_err(Failure::refused)?;
    let path = created.path.display();
    let mut lines =
        vec![format!("{BOLD}{path}{BOLD:#}  {} in {language}", kind.with_article()), format!("  cd {path}")];
    lines.extend(created.commands.iter().map(|command| format!("  {command}")));
    super::print(terminal, lines.join("\n"))
}
