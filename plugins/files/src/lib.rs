//! Tools that list, read, search, write, edit and move files in granted directory trees.

mod edit;
mod list;
mod read;
mod search;
mod write;

use agent_host_sdk::prelude::*;

/// The plugin, which offers all tools of this crate.
pub struct Files;

impl ToolPlugin for Files {
    fn tools() -> Tools {
        Tools::new()
            .tool(
                Tool::new(
                    "files.list",
                    "Lists the files and directories in a directory, with their sizes in bytes. `depth` above 1 \
                     also lists its subdirectories, except those that are hidden or that .gitignore or .ignore \
                     excludes. Use it to find out what there is before reading.",
                )
                .title("List a directory")
                .read_only()
                .output::<list::Listing>()
                .run(|arguments, _: &Call| Done::json(&list::list(arguments)?)),
            )
            .tool(
                Tool::new(
                    "files.read",
                    "Reads a text file: the lines from `first_line` on, or with `offset` a range of bytes. If there is \
                     more, the result says how to read what follows.",
                )
                .title("Read a file")
                .read_only()
                .run(|arguments, _: &Call| read::read(arguments).map(Done::text)),
            )
            .tool(
                Tool::new(
                    "files.search",
                    "Searches the text files of a directory tree, or one file, for lines that match a regular \
                     expression (`pattern`) or contain a `text`. Returns `path:line: text` for each match. Leaves \
                     out hidden files, and what .gitignore and .ignore exclude, unless `all` is set.",
                )
                .title("Search in files")
                .read_only()
                .run(|arguments, call: &Call| search::search(arguments, call).map(Done::text)),
            )
            .tool(
                Tool::new(
                    "files.write",
                    "Writes a text file. `mode` says what may happen: `create` fails if the file exists (default), \
                     `overwrite` replaces the whole file, `append` adds at the end. Missing directories are created.",
                )
                .title("Write a file")
                .destructive()
                .sequential()
                .output::<write::Written>()
                .run(|arguments, _: &Call| Done::json(&write::write(arguments)?)),
            )
            .tool(
                Tool::new(
                    "files.edit",
                    "Edits a text file: each edit replaces the exact text `old` by `new`. `old` must occur exactly once, \
                     unless `all` is set. If one edit does not fit, nothing is changed and the error says why.",
                )
                .title("Edit a file")
                .destructive()
                .sequential()
                .output::<edit::Edited>()
                .run(|arguments, _: &Call| Done::json(&edit::edit(arguments)?)),
            )
            .tool(
                Tool::new(
                    "files.move",
                    "Moves or renames a file or directory within the granted trees. Fails if the target exists, \
                     unless `overwrite` is true and both are files.",
                )
                .title("Move a file")
                .destructive()
                .sequential()
                .run(|arguments, _: &Call| write::move_entry(arguments).map(Done::text)),
            )
    }
}

agent_host_sdk::export_tools!(Files);
