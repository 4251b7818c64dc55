//! Writes configuration files for tests.

use std::fmt::Write as _;
use std::path::PathBuf;

/// A configuration file under construction; a section may be added to more than once.
#[derive(Clone, Debug)]
pub struct Config {
    path: PathBuf,
    sections: Vec<(String, Vec<(String, String)>)>,
}

impl Config {
    pub fn new(url: &str, path: PathBuf) -> Config {
        Config { path, sections: Vec::new() }.set("pepsi-postgres", "CONFIG", url)
    }

    /// Sets one option.
    pub fn set(mut self, section: &str, option: &str, value: &str) -> Config {
        let index = self.sections.iter().position(|(name, _)| name == section).unwrap_or_else(|| {
            self.sections.push((section.to_owned(), Vec::new()));
            self.sections.len() - 1
        });
        let options = &mut self.sections[index].1;
        options.retain(|(name, _)| name != option);
        options.push((option.to_owned(), value.to_owned()));
        self
    }

    /// A `[stage-NAME]` with its program and options.
    pub fn stage(self, name: &str, program: &str, options: &[(&str, &str)]) -> Config {
        let section = format!("stage-{name}");
        let with_program = self.set(&section, "PROGRAM", program);
        options.iter().fold(with_program, |config, (option, value)| config.set(&section, option, value))
    }

    /// The same without that section.
    pub fn without(mut self, section: &str) -> Config {
        self.sections.retain(|(name, _)| name != section);
        self
    }

    /// Writes the file and returns its path.
    pub fn write(&self) -> PathBuf {
        let mut text = String::new();
        for (section, options) in &self.sections {
            let _ = writeln!(text, "[{section}]");
            for (option, value) in options {
                let _ = writeln!(text, "{option} = {value}");
            }
        }
        std::fs::write(&self.path, text).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        self.path.clone()
    }
}
