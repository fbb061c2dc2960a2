//! New plugin projects, of any kind in any of the languages: each builds as it is, and has a test (S1).

mod name;
mod rust;
mod workspace;

use crate::carried;
use crate::language::Language;
use crate::vendored;
pub use name::{NameProblem, check_name};
use std::path::{Path, PathBuf};
use workspace::Place;

/// What a project is to be.
#[derive(Clone, Debug)]
pub struct NewProject {
    /// Of the plugin, and of the project's folder.
    pub name: String,
    /// What it does.
    pub kind: ProjectKind,
    /// What it is written in.
    pub language: Language,
    /// In which its folder is made.
    pub directory: PathBuf,
    /// What a project in Rust builds on.
    pub sdk: Sdk,
}

/// The kinds that a project can begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectKind {
    /// Tools that the model calls.
    Tool,
    /// The prompt with which turns begin.
    ContextBuilder,
    /// What may end a turn.
    OutputValidator,
    /// Which media a provider gets to see.
    MediaPolicy,
}

impl ProjectKind {
    /// All of them.
    pub const ALL: [ProjectKind; 4] =
        [ProjectKind::Tool, ProjectKind::ContextBuilder, ProjectKind::OutputValidator, ProjectKind::MediaPolicy];

    /// As the contract names it.
    pub fn key(self) -> &'static str {
        match self {
            ProjectKind::Tool => "tool",
            ProjectKind::ContextBuilder => "context-builder",
            ProjectKind::OutputValidator => "output-validator",
            ProjectKind::MediaPolicy => "media-policy",
        }
    }

    /// For people, with its article.
    pub fn words(self) -> &'static str {
        match self {
            ProjectKind::Tool => "a tool",
            ProjectKind::ContextBuilder => "a context builder",
            ProjectKind::OutputValidator => "an output validator",
            ProjectKind::MediaPolicy => "a media policy",
        }
    }
}

/// Where a project in Rust has the SDK from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// That of the Cargo workspace that the project becomes a member of, where that has one; else what this binary carries is
    /// written into the project.
    Carried,
    /// What lies in this folder.
    At(PathBuf),
}

/// A project that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewlyMade {
    /// Its folder.
    pub path: PathBuf,
    /// What to type there, in order.
    pub commands: Vec<String>,
}

/// Why there is no new project; nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum NewError {
    /// The name cannot be a plugin's.
    #[error(transparent)]
    Name(#[from] NameProblem),
    /// Nothing is overwritten.
    #[error("`{}` is there already, and nothing is overwritten: take another name, or another folder with --dir", path.display())]
    Exists {
        /// What is there.
        path: PathBuf,
    },
    /// There is no folder to make it in.
    #[error("there is no folder `{}` to make the project in", path.display())]
    NoDirectory {
        /// What should be there.
        path: PathBuf,
    },
    /// There is no SDK.
    #[error("`{}` is not agent-host's SDK: it is the folder `sdk` of a checkout, with a Cargo.toml of `agent-host-sdk`",
        path.display())]
    NoSdk {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Only Rust has an SDK.
    #[error("a project in {language} has no SDK: it builds on the contract alone; leave --sdk out")]
    SdkOfNone {
        /// Which language.
        language: Language,
    },
    /// Part of what this binary carries cannot be used.
    #[error("the SDK that this agent-host carries cannot be written: {reason}; name another with --sdk")]
    Carried {
        /// Why not.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// A file of a project: its path there, and its text.
pub(crate) type ProjectFile = (String, String);

/// What stands for the plugin's name in the templates.
const SAMPLE: &str = "my-plugin";
/// Where README says how to try what was built, and how to share it.
const TRY: &str = "<!-- try -->\n";

/// Makes the project, whole or not at all.
pub fn create(project: &NewProject) -> Result<NewlyMade, NewError> {
    check_name(&project.name, project.language)?;
    if project.language != Language::Rust && project.sdk != Sdk::Carried {
        return Err(NewError::SdkOfNone { language: project.language });
    }
    if !project.directory.is_dir() {
        return Err(NewError::NoDirectory { path: project.directory.clone() });
    }
    let path = match project.directory.as_os_str().is_empty() || project.directory == Path::new(".") {
        true => PathBuf::from(&project.name),
        false => project.directory.join(&project.name),
    };
    if path.symlink_metadata().is_ok() {
        return Err(NewError::Exists { path });
    }
    let files = files(project)?;
    // Beside its place, so that one step puts it there, and hidden for as long as it is not whole.
    let unfinished = project.directory.join(format!(".{}.{}.unfinished", project.name, std::process::id()));
    let written = write_all(&unfinished, &files).and_then(|()| {
        std::fs::rename(&unfinished, &path).map_err(|source| NewError::File {
            action: "make",
            path: path.clone(),
            source,
        })
    });
    if let Err(error) = written {
        let _ = std::fs::remove_dir_all(&unfinished);
        return Err(error);
    }
    Ok(NewlyMade { path, commands: commands(project) })
}

fn files(project: &NewProject) -> Result<Vec<ProjectFile>, NewError> {
    let (language, kind) = (project.language.key(), project.kind.key());
    let named = |text: &str| text.replace(SAMPLE, &project.name);
    let template = |path: &str| carried::file(&format!("host/devkit/templates/{path}"));
    let mut files = vec![
        ("plugin.toml".to_owned(), named(template(&format!("manifest/{kind}.toml")))),
        (format!("{}.scenario.toml", project.name), named(template(&format!("manifest/{kind}-scenario.toml")))),
    ];
    let how_to_try = [template(&format!("manifest/{kind}.md")), template("manifest/share.md")].concat();
    for folder in ["all", kind] {
        for (name, text) in carried::below(&format!("host/devkit/templates/{language}/{folder}/")) {
            // Of its own name it would count for this checkout.
            let name = if name == "gitignore" { ".gitignore" } else { name };
            let text = text.replace(TRY, &how_to_try);
            files.push((name.to_owned(), named(&text)));
        }
    }
    match project.language {
        Language::Rust => rust::add(project, &mut files)?,
        _ => add_wit(project.kind, &mut files),
    }
    Ok(files)
}

/// The world of the project's own, and the contract beside it.
fn add_wit(kind: ProjectKind, files: &mut Vec<ProjectFile>) {
    let imports = match kind {
        ProjectKind::Tool | ProjectKind::ContextBuilder => {
            "\n  // What is imported beside the contract is in `deps`; plugin.toml must ask for it, too:\n  \
             // import wasi:config/store@0.2.0-rc.1;\n  // import wasi:logging/logging;\n"
        }
        ProjectKind::OutputValidator | ProjectKind::MediaPolicy => "",
    };
    let world = format!(
        "package author:project;\n\n/// What this component exports, and what it may import.\nworld plugin {{\n  include \
         agent-host:plugin/{}-plugin@0.1.0;\n{imports}}}\n",
        kind.key()
    );
    files.push(("wit/world.wit".to_owned(), world));
    let dependencies = carried_wit();
    let list = vendored::list(dependencies.iter().cloned());
    let below = dependencies.into_iter().chain([(vendored::LIST.to_owned(), list)]);
    files.extend(below.map(|(name, text)| (format!("wit/deps/{name}"), text)));
}

/// What lies in `wit/deps` of a project in another language than Rust.
pub(crate) fn carried_wit() -> Vec<ProjectFile> {
    carried::wit_dependencies().into_iter().map(|(name, text)| (name, text.to_owned())).collect()
}

/// What lies in the folder of the SDK of a project in Rust.
pub(crate) fn carried_sdk() -> Result<Vec<ProjectFile>, NewError> {
    rust::sdk_files()
}

fn commands(project: &NewProject) -> Vec<String> {
    let first: &[&str] = match (project.language, project.kind) {
        (Language::Rust, _) => &["cargo test"],
        (Language::Python, _) => {
            &["python3 -m venv .venv && .venv/bin/pip install -r requirements.txt", "python3 -m unittest"]
        }
        (Language::JavaScript, _) => &["npm install", "node --test"],
        (Language::C, _) => &[
            "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt",
            ".venv/bin/python -m ziglang run -lc test_logic.c logic.c",
        ],
    };
    let then = ["agent-host plugin build .", "agent-host plugin check .", "agent-host test .", "agent-host dev ."];
    first.iter().chain(&then).map(|command| (*command).to_owned()).collect()
}

fn write_all(folder: &Path, files: &[ProjectFile]) -> Result<(), NewError> {
    for (name, text) in files {
        let path = folder.join(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, text)).map_err(|source| NewError::File {
            action: "write",
            path,
            source,
        })?;
    }
    Ok(())
}
