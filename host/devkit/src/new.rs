//! Creates new plugin projects of every kind in every language. A new project can be built without changes, and has a
//! test (S1).

mod name;
mod rust;
mod workspace;

use crate::embedded::{self, ProjectFile};
use crate::file_list::{FileList, LIST, PYTHON_SDK_FOLDER, SDK_FOLDER};
use crate::language::Language;
pub use name::{NameProblem, check_name};
use std::path::{Path, PathBuf};

/// Description of a plugin project to create.
#[derive(Clone, Debug)]
pub struct NewProject {
    /// Name of the plugin and of the project's folder.
    pub name: String,
    /// Kind of the plugin, which selects the template.
    pub kind: ProjectKind,
    /// Task of the plugin that the template implements.
    pub example: Example,
    /// Programming language of the project.
    pub language: Language,
    /// Folder in which the project's folder is created. It is created if it does not exist.
    pub directory: PathBuf,
    /// Source of the SDK for a Rust project. Must be [`Sdk::Embedded`] for other languages.
    pub sdk: Sdk,
}

/// The kinds of plugins that a project can start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectKind {
    /// Tools that the model calls.
    Tool,
    /// Builds the prompt at the start of each turn.
    ContextBuilder,
    /// Decides whether an answer may end a turn.
    OutputValidator,
    /// Decides which media are sent to a model provider.
    MediaPolicy,
}

impl ProjectKind {
    /// All kinds, in the order in which help texts list them.
    pub const ALL: [ProjectKind; 4] =
        [ProjectKind::Tool, ProjectKind::ContextBuilder, ProjectKind::OutputValidator, ProjectKind::MediaPolicy];

    /// Returns the name of the kind in the contract, such as `context-builder`.
    pub fn key(self) -> &'static str {
        match self {
            ProjectKind::Tool => "tool",
            ProjectKind::ContextBuilder => "context-builder",
            ProjectKind::OutputValidator => "output-validator",
            ProjectKind::MediaPolicy => "media-policy",
        }
    }

    /// Returns the kind with its article for messages, such as `a context builder`.
    pub fn with_article(self) -> &'static str {
        match self {
            ProjectKind::Tool => "a tool",
            ProjectKind::ContextBuilder => "a context builder",
            ProjectKind::OutputValidator => "an output validator",
            ProjectKind::MediaPolicy => "a media policy",
        }
    }
}

/// The task that the template of a project implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Example {
    /// A task that needs no permissions.
    Simple,
    /// A tool that calls an API over HTTP. The manifest requests the permission for the API.
    Http,
}

/// The source of the SDK for a Rust project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// If the project becomes a member of a Cargo workspace that declares the SDK, the project uses the SDK of this
    /// workspace. In all other cases, the SDK that is embedded in this binary is written into the project.
    Embedded,
    /// The SDK in the folder with the given path.
    At(PathBuf),
}

/// A project that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedProject {
    /// Path of the project's folder.
    pub path: PathBuf,
    /// Commands for the user to run in the project's folder, in this order.
    pub commands: Vec<String>,
}

/// The reason why no project was created. After an error, no files of the project are left on the disk.
#[derive(Debug, thiserror::Error)]
pub enum NewError {
    /// The name is not allowed for a plugin.
    #[error(transparent)]
    Name(#[from] NameProblem),
    /// A file or folder already exists at the path of the new project.
    #[error("`{}` already exists, and nothing is overwritten: choose another name, or another folder with --dir", path.display())]
    Exists {
        /// The path of the new project.
        path: PathBuf,
    },
    /// The folder given in [`Sdk::At`] does not contain the SDK.
    #[error("`{}` is not the agent-host SDK: the SDK is the folder `sdk` of a checkout, with the Cargo.toml of `agent-host-sdk`",
        path.display())]
    NoSdk {
        /// Path of the folder given in [`Sdk::At`].
        path: PathBuf,
    },
    /// An SDK was given for a language other than Rust.
    #[error("--sdk is only for Rust, and not for {language}: leave --sdk out")]
    SdkNotForLanguage {
        /// Language of the project, which is not Rust.
        language: Language,
    },
    /// There is no template for this kind of plugin that calls an API over HTTP.
    #[error("--http is only for tools: leave out --http or --kind")]
    HttpNotForKind,
    /// The SDK files that are embedded in this binary cannot be used.
    #[error("the SDK that this agent-host contains cannot be written: {reason}; choose another SDK with --sdk")]
    Embedded {
        /// The reason why the files cannot be used.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// The failed action: `create`, `open` or `write`.
        action: &'static str,
        /// Path of the file or folder that could not be created, opened or written.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

/// The plugin's name in the templates. In a new project, the name of the new plugin replaces this name.
const SAMPLE_NAME: &str = "my-plugin";
/// The line in the README templates that is replaced by instructions for trying and sharing the plugin.
const TRY_MARK: &str = "<!-- try -->\n";

/// Creates the project completely or not at all.
pub fn create(project: &NewProject) -> Result<CreatedProject, NewError> {
    check_name(&project.name, project.language)?;
    if project.language != Language::Rust && project.sdk != Sdk::Embedded {
        return Err(NewError::SdkNotForLanguage { language: project.language });
    }
    if project.example == Example::Http && project.kind != ProjectKind::Tool {
        return Err(NewError::HttpNotForKind);
    }
    let path = match project.directory.as_os_str().is_empty() || project.directory == Path::new(".") {
        true => PathBuf::from(&project.name),
        false => project.directory.join(&project.name),
    };
    if path.symlink_metadata().is_ok() {
        return Err(NewError::Exists { path });
    }
    let files = project_files(project)?;
    if !project.directory.as_os_str().is_empty() {
        std::fs::create_dir_all(&project.directory).map_err(|source| NewError::File {
            action: "create",
            path: project.directory.clone(),
            source,
        })?;
    }
    // The files are first written to a hidden folder next to the project's path. Renaming the hidden folder to the
    // project's path creates the whole project in one step.
    let unfinished = project.directory.join(format!(".{}.{}.unfinished", project.name, std::process::id()));
    let written = write_all(&unfinished, &files).and_then(|()| {
        std::fs::rename(&unfinished, &path).map_err(|source| NewError::File {
            action: "create",
            path: path.clone(),
            source,
        })
    });
    if let Err(error) = written {
        let _ = std::fs::remove_dir_all(&unfinished);
        return Err(error);
    }
    Ok(CreatedProject { path, commands: next_commands(project) })
}

/// Name of the folder in a language's templates that contains the tool that calls an API over HTTP.
const HTTP_TEMPLATE: &str = "tool-http";

fn project_files(project: &NewProject) -> Result<Vec<ProjectFile>, NewError> {
    let language = project.language.key();
    let kind = match project.example {
        Example::Simple => project.kind.key(),
        Example::Http => HTTP_TEMPLATE,
    };
    let named = |text: &str| text.replace(SAMPLE_NAME, &project.name);
    let template = |path: &str| embedded::file(&format!("host/devkit/templates/{path}"));
    let mut files = vec![
        ("plugin.toml".to_owned(), named(template(&format!("manifest/{kind}.toml")))),
        (format!("{}.scenario.toml", project.name), named(template(&format!("manifest/{kind}-scenario.toml")))),
    ];
    let how_to_try = [template(&format!("manifest/{kind}.md")), template("manifest/share.md")].concat();
    for folder in ["all", kind] {
        for (name, text) in embedded::below(&format!("host/devkit/templates/{language}/{folder}/")) {
            // The template is named `gitignore` without a dot, because git would apply a file named
            // `.gitignore` to this checkout.
            let name = if name == "gitignore" { ".gitignore" } else { name };
            let text = text.replace(TRY_MARK, &how_to_try);
            files.push((name.to_owned(), named(&text)));
        }
    }
    match project.language {
        Language::Rust => rust::add(project, &mut files)?,
        Language::Python => add_python_sdk(project.kind, &mut files),
        Language::JavaScript => add_folder(SDK_FOLDER, embedded::javascript_sdk_files(), &mut files),
        Language::C => add_wit(project, &mut files),
    }
    Ok(files)
}

/// Adds the SDK. In the manifest of a plugin that is not a tool, sets the world that the plugin implements.
fn add_python_sdk(kind: ProjectKind, files: &mut Vec<ProjectFile>) {
    // Skip the template for the README in the SDK's folder, because the files of the SDK contain this README.
    files.retain(|(name, _)| name != embedded::SDK_README_TEMPLATE);
    if kind != ProjectKind::Tool {
        let world = format!("\n# The kind of the plugin.\n[build]\nworld = \"{}-plugin\"\n", kind.key());
        files.iter_mut().filter(|(name, _)| name == "plugin.toml").for_each(|(_, text)| text.push_str(&world));
    }
    add_folder(PYTHON_SDK_FOLDER, embedded::python_sdk_files(), files);
}

/// Adds a WIT file with the project's own world, and the contract in `wit/deps`.
fn add_wit(project: &NewProject, files: &mut Vec<ProjectFile>) {
    let imports = match (project.example, project.kind) {
        (Example::Http, _) => "\n  import wasi:http/outgoing-handler@0.2.0;\n",
        (Example::Simple, ProjectKind::Tool | ProjectKind::ContextBuilder) => {
            "\n  // Interfaces that are not part of the contract. `deps` contains their WIT, and plugin.toml must request them:\n  \
             // import wasi:config/store@0.2.0-rc.1;\n  // import wasi:keyvalue/store@0.2.0-draft2;\n  \
             // import wasi:keyvalue/atomics@0.2.0-draft2;\n  // import wasi:logging/logging;\n"
        }
        (Example::Simple, ProjectKind::OutputValidator | ProjectKind::MediaPolicy) => "",
    };
    if project.example == Example::Http {
        // These files are not in the list of files that `plugin renew` replaces, because other projects do not have them.
        for package in ["http", "io"] {
            let wit = embedded::file(&format!("sdk/wit/deps/{package}/{package}.wit"));
            files.push((format!("wit/deps/wasi-{package}/{package}.wit"), wit.to_owned()));
        }
    }
    let hint = match project.kind {
        ProjectKind::Tool => {
            "\n/// If you delete this folder, the build generates a world with the interfaces that plugin.toml requests."
        }
        _ => "",
    };
    let world = format!(
        "package author:project;\n\n/// The interfaces that this component exports and may import.{hint}\nworld plugin {{\n  \
         include agent-host:plugin/{}-plugin@0.1.0;\n{imports}}}\n",
        project.kind.key()
    );
    files.push(("wit/world.wit".to_owned(), world));
    add_folder("wit/deps", embedded::wit_files(), files);
}

/// Adds a folder whose files `plugin renew` replaces, with the list of these files.
fn add_folder(folder: &str, contents: Vec<ProjectFile>, files: &mut Vec<ProjectFile>) {
    let list = FileList::of(&contents.iter().cloned().collect()).text();
    let below = contents.into_iter().chain([(LIST.to_owned(), list)]);
    files.extend(below.map(|(name, text)| (format!("{folder}/{name}"), text)));
}

fn next_commands(project: &NewProject) -> Vec<String> {
    let language_commands: &[&str] = match (project.language, project.kind) {
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
    let host_commands =
        ["agent-host plugin build .", "agent-host plugin check .", "agent-host test .", "agent-host dev ."];
    language_commands.iter().chain(&host_commands).map(|command| (*command).to_owned()).collect()
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
