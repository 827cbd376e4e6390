//! The configuration file: TOML. Every unknown key and every wrong value is an error that names the line.

mod errors;
mod locations;
mod schema;

use std::path::Path;
use std::sync::Arc;

use store::error_text;

use errors::describe_error;
pub use locations::KeyLocations;
pub use schema::{
    ClientConfig, Config, ExportConfig, LargeFilesConfig, Limits, LocalChangesConfig, LostJournalConfig,
    SquashConfig, SubmountsConfig,
};

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// One line that names the file, the line and the key.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {}", path.display(), error_text(&error)))?;
        let config: Self = toml::from_str(&text).map_err(|error| describe_error(path, &text, &error))?;
        Ok(Self { locations: Arc::new(KeyLocations::new(path, &text)), ..config })
    }
}

#[cfg(test)]
mod tests;
