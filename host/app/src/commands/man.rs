//! `agent-host man`: the manual pages, which are made from the help texts.

use crate::arguments::Arguments;
use crate::exit::{Exit, Failure};
use crate::terminal::Terminal;
use clap::CommandFactory;
use clap_mangen::Man;
use std::path::Path;

/// Prints the manual page of the program, or writes the pages of all commands to a folder.
pub(crate) fn run(output: Option<&Path>, terminal: &Terminal) -> Result<Exit, Failure> {
    let Some(folder) = output else {
        let mut page = Vec::new();
        Man::new(Arguments::command()).render(&mut page).map_err(Failure::output)?;
        let page = String::from_utf8(page).map_err(Failure::failed)?;
        terminal.print(page.trim_end()).map_err(Failure::output)?;
        return Ok(Exit::Done);
    };
    let failed = |error: std::io::Error| Failure::refused(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Arguments::command(), folder).map_err(failed)?;
    terminal.note(format!("the manual pages are in {}: man -l {0}/agent-host.1", folder.display()));
    Ok(Exit::Done)
}
